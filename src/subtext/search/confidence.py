"""What a calibrated index says about its answers: the probability of each hit, and whether anything matches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from subtext.search.answer import Fit
from subtext.search.stores.item import Hits, Side
from subtext.search.stores.manifest import STALE, Calibration, Way
from subtext.search.stores.store import Store, View

SAMPLES = 4096
"""Items of a side in a background; a smaller side is used in full."""
BEST = 10
"""Best hits that are summed exactly; the rest is estimated from the background."""
SOFTER = 2.0
"""Temperature of the familiarity sign, as a multiple of that of the matches."""


@dataclass(frozen=True)
class Background:
    """A sample of one side of an index.

    keys     (M) ascending        vectors  (M K D)
    total    items of that side
    """

    keys: NDArray[np.int64]
    vectors: NDArray[np.float32]
    total: int

    @staticmethod
    def of(view: View, side: Side) -> Background:
        """At most `SAMPLES` items of a side, sampled by their keys."""
        keys = view.sample(side, SAMPLES)
        return Background(keys, view.vectors(side, keys), view.counts[side])

    def scores(self, queries: NDArray[np.float32]) -> NDArray[np.float32]:
        """(Q M) best scores over the views of (Q L D) queries and of the items. Cost time Q L M K D."""
        count, views, dim = queries.shape
        if not len(self.keys):
            return np.zeros((count, 0), dtype=np.float32)
        products = self.vectors.reshape(-1, dim) @ queries.reshape(-1, dim).T
        scores: NDArray[np.float32] = products.reshape(len(self.keys), -1, count, views).max(axis=(1, 3)).T
        return scores


@dataclass(frozen=True)
class Evidence:
    """The scores that an index gives one query.

    keys, scores  (T) the best hits, best first
    background    (M) scores of the sampled items, those of the best hits among them as NaN
    same_side     (M') scores with sampled items of the query's own modality, NaN for those left out; may be empty
    total         items that could have been returned
    """

    keys: NDArray[np.int64]
    scores: NDArray[np.float32]
    background: NDArray[np.float32]
    same_side: NDArray[np.float32]
    total: int

    @staticmethod
    def collect(
        keys: NDArray[np.int64],
        scores: NDArray[np.float32],
        sample: Background,
        background: NDArray[np.float32],
        same_side: NDArray[np.float32],
    ) -> Evidence:
        """The evidence, with the best hits masked in the background's scores."""
        row = np.minimum(np.searchsorted(sample.keys, keys), max(0, len(sample.keys) - 1))
        background = background.copy()
        if len(sample.keys):
            background[row[sample.keys[row] == keys]] = np.nan
        return Evidence(keys, scores, background, same_side, max(sample.total, len(keys)))

    def level(self, temperature: float) -> float:
        """L = log sum_j exp(s_j / t) over the side: the best hits exactly, the rest estimated from the background."""
        terms = [self.scores.astype(np.float64) / temperature]
        rest = self.background[~np.isnan(self.background)].astype(np.float64) / temperature
        uncounted = self.total - len(self.scores)
        if uncounted > 0 and len(rest):
            terms.append(rest + np.log(uncounted / len(rest)))
        return float(np.logaddexp.reduce(np.concatenate(terms), initial=-np.inf))

    def signs(self, temperature: float) -> dict[str, float]:
        """Numbers that are larger where the index has a match.

        level     t log sum exp(s / t) over all items: a soft maximum, which many fair matches raise, too
        familiar  2t log mean exp(s / 2t) over items of the query's own modality: whether the index is about such
                  things. Missing where it has none
        """
        same_side = self.same_side[~np.isnan(self.same_side)].astype(np.float64)
        signs = {"level": temperature * self.level(temperature)}
        if len(same_side):
            softer = SOFTER * temperature
            signs["familiar"] = float(softer * (np.logaddexp.reduce(same_side / softer) - np.log(len(same_side))))
        return signs

    def percentile(self, way: Way) -> float:
        """Share of answerable queries for which the evidence was as weak as here, or weaker."""
        return percentile_of(weakest_percentile(self.signs(way.temperature), way.signs), way.quantiles)


def weakest_percentile(signs: Mapping[str, float], quantiles: Mapping[str, Sequence[float]]) -> float:
    """The lowest percentile of the signs: a query is weak if it is unfamiliar, or if nothing matches it.

    quantiles  of each sign over answerable queries; signs without quantiles are ignored
    """
    percentiles = [percentile_of(value, quantiles[name]) for name, value in signs.items() if name in quantiles]
    return min(percentiles, default=1.0)


def percentile_of(value: float, quantiles: Sequence[float]) -> float:
    """Share of a distribution, given by evenly spaced quantiles, that is `value` or less, in [0, 1]."""
    return float(np.interp(value, quantiles, np.linspace(0, 1, len(quantiles))))


def log_odds(scores: NDArray[np.float32], level: float, way: Way) -> NDArray[np.float64]:
    """(T) log odds of hits by the logistic regression, before the isotonic one."""
    scaled = scores.astype(np.float64) / way.temperature
    odds: NDArray[np.float64] = way.weights[0] * scaled + way.weights[1] * level + way.bias
    return odds


def probabilities(scores: NDArray[np.float32], level: float, way: Way) -> NDArray[np.float64]:
    """(T) probabilities that the hits of one query are true matches."""
    return way.curve(log_odds(scores, level, way))


@dataclass(frozen=True)
class Judgement:
    """What a calibrated index says of one query: its level, and whether anything matches."""

    way: Way
    level: float
    fit: Fit

    def probabilities(self, scores: NDArray[np.float32]) -> NDArray[np.float64]:
        """(T) probabilities of hits with these scores."""
        return probabilities(scores, self.level, self.way)


@dataclass(frozen=True)
class Confidence:
    """The calibration and the backgrounds of one state of an index.

    view         the index in that state
    calibration  None where it has none
    """

    view: View
    calibration: Calibration | None
    _backgrounds: dict[Side, Background] = field(default_factory=dict)

    def background(self, side: Side) -> Background:
        """A sample of a side."""
        if side not in self._backgrounds:
            self._backgrounds[side] = Background.of(self.view, side)
        return self._backgrounds[side]

    def way(self, side: Side, modality: Side) -> Way | None:
        """The calibration of one side for queries of the other; None for the same side, and where there is none."""
        return None if self.calibration is None or side == modality else self.calibration.ways.get(side)

    @property
    def stale(self) -> float | None:
        """Share of the items that changed since the calibration, where that is too much; else None."""
        if self.calibration is None:
            return None
        changed = self.view.changed_since(self.calibration)
        return changed if changed > STALE else None

    def judge(
        self, side: Side, modality: Side, queries: NDArray[np.float32], results: Sequence[Hits]
    ) -> list[Judgement]:
        """The judgement of each of (Q L D) queries of a calibrated modality.

        results  their best hits of the full side; searched again where there are fewer than `BEST`, or none
        """
        way = self.way(side, modality)
        assert way is not None
        if not results or any(len(result.keys) < min(BEST, self.view.counts[side]) for result in results):
            results = self.view.nearest(side, queries, top=BEST)
        sample = self.background(side)
        judgements = []
        for result, scores, same_side in zip(
            results, sample.scores(queries), self.background(modality).scores(queries), strict=True
        ):
            evidence = Evidence.collect(result.keys[:BEST], result.scores[:BEST], sample, scores, same_side)
            fit = Fit(evidence.percentile(way), way.refused)
            judgements.append(Judgement(way, evidence.level(way.temperature), fit))
        return judgements


class ConfidenceCache:
    """The Confidence of an index, made again only when the index or its calibration has changed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._state: tuple[int, float, Calibration | None, dict[Side, Background]] = (-1, -1.0, None, {})

    def at(self, view: View) -> Confidence:
        """The confidence for that state of the index."""
        generation, calibrated, calibration, backgrounds = self._state
        mark = self._store.calibration_mark()
        if mark != calibrated:
            calibration = self._store.calibration()
        if view.generation != generation:
            backgrounds = {}
        self._state = (view.generation, mark, calibration, backgrounds)
        return Confidence(view, calibration, backgrounds)
