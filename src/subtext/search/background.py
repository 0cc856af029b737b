"""A drawn part of an index that a question's scores are held against, and what they then say of the question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subtext.search.stores.calibration import Way
from subtext.search.stores.store import StoreShelf

DRAWN = 4096
"""Items of a side that are drawn: a smaller index is looked at whole."""
NEAR = 10
"""Best hits that are summed as they are, whatever was drawn."""
WIDER = 2.0
"""How much softer than among matches the look is among items of the question's own kind."""


@dataclass(frozen=True)
class Background:
    """Some items of one side.

    keys     (M) ascending        vectors  (M K D)
    total    items of that side
    """

    keys: NDArray[np.int64]
    vectors: NDArray[np.float32]
    total: int

    @staticmethod
    def of(shelf: StoreShelf) -> Background:
        """At most `DRAWN` items of a side, as their keys draw them."""
        keys = shelf.drawn(DRAWN)
        return Background(keys, shelf.vectors_of(keys), shelf.count)

    def scores(self, queries: NDArray[np.float32]) -> NDArray[np.float32]:
        """(Q M) best scores over the views of (Q L D) queries and of the items. Cost time Q L M K D."""
        count, views, width = queries.shape
        if not len(self.keys):
            return np.zeros((count, 0), dtype=np.float32)
        flat = self.vectors.reshape(-1, width) @ queries.reshape(-1, width).T
        found: NDArray[np.float32] = flat.reshape(len(self.keys), -1, count, views).max(axis=(1, 3)).T
        return found


@dataclass(frozen=True)
class Seen:
    """What an index showed for one question.

    keys, scores  (T) the best hits, best first
    crowd         (M) scores of the background's items, those of the best among them as NaN
    own           (M') scores with items of the question's own kind, NaN for what does not count; may be empty
    total         items that could have been found
    """

    keys: NDArray[np.int64]
    scores: NDArray[np.float32]
    crowd: NDArray[np.float32]
    own: NDArray[np.float32]
    total: int

    @staticmethod
    def among(
        keys: NDArray[np.int64],
        scores: NDArray[np.float32],
        background: Background,
        crowd: NDArray[np.float32],
        own: NDArray[np.float32],
    ) -> Seen:
        """With the best hits taken out of the background's scores."""
        place = np.searchsorted(background.keys, keys)
        place = np.minimum(place, max(0, len(background.keys) - 1))
        crowd = crowd.copy()
        if len(background.keys):
            crowd[place[background.keys[place] == keys]] = np.nan
        return Seen(keys, scores, crowd, own, max(background.total, len(keys)))

    def level(self, temperature: float) -> float:
        """L = log sum_j exp(s_j / t) over a whole side: the best hits as they are, the rest as the background says."""
        best = self.scores.astype(np.float64) / temperature
        rest = self.crowd[~np.isnan(self.crowd)].astype(np.float64) / temperature
        left = self.total - len(best)
        parts = [best]
        if left > 0 and len(rest):
            parts.append(rest + np.log(left / len(rest)))
        return float(np.logaddexp.reduce(np.concatenate(parts), initial=-np.inf))

    def signs(self, temperature: float) -> dict[str, float]:
        """What is larger where the index has an answer.

        level     t log sum exp(s / t) over all that could be found: a soft maximum, which many fair matches raise, too
        familiar  2t log mean exp(s / 2t) over items of the question's own kind: whether the index speaks of such
                  things. Missing where it has none
        """
        own = self.own[~np.isnan(self.own)].astype(np.float64)
        found = {"level": temperature * self.level(temperature)}
        if len(own):
            wide = WIDER * temperature
            found["familiar"] = float(wide * (np.logaddexp.reduce(own / wide) - np.log(len(own))))
        return found


def weakest(signs: Mapping[str, float], quantiles: Mapping[str, Sequence[float]]) -> float:
    """The least of the signs' standings: what is unlike all that is spoken of here, or matched by nothing, is weak.

    quantiles  of each sign over questions that have an answer; signs that these do not name are left out
    """
    return min((standing(value, quantiles[name]) for name, value in signs.items() if name in quantiles), default=1.0)


def standing(value: float, quantiles: Sequence[float]) -> float:
    """Share of what the quantiles, evenly spaced, are of that is this or less, in [0, 1]; 0 for less than the least."""
    return float(np.interp(value, quantiles, np.linspace(0, 1, len(quantiles))))


def log_odds(scores: NDArray[np.float32], level: float, way: Way) -> NDArray[np.float64]:
    """(T) log odds of hits, before they are bent to what came true."""
    scaled = scores.astype(np.float64) / way.temperature
    found: NDArray[np.float64] = way.weights[0] * scaled + way.weights[1] * level + way.bias
    return found


def probabilities(scores: NDArray[np.float32], level: float, way: Way) -> NDArray[np.float64]:
    """(T) probabilities of hits of one question being true matches."""
    return way.curve(log_odds(scores, level, way))
