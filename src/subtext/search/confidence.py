"""What an index that was calibrated says of its answers: probabilities of hits, and whether anything fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from subtext.search.background import NEAR, Background, Seen, probabilities, standing, weakest
from subtext.search.hit import Fit
from subtext.search.stores.calibration import STALE, Calibration, Way
from subtext.search.stores.item import Side
from subtext.search.stores.shelf import Found
from subtext.search.stores.store import Store, StoreView, changed_since


@dataclass(frozen=True)
class Judgement:
    """What the index showed for one question: its level, and whether anything fits."""

    way: Way
    level: float
    fit: Fit

    def of(self, scores: NDArray[np.float32]) -> NDArray[np.float64]:
        """(T) probabilities of hits with these scores."""
        return probabilities(scores, self.level, self.way)


@dataclass(frozen=True)
class Confidence:
    """What is known at one moment of an index, for as long as it stays as it is.

    view         the index at that moment
    calibration  None where it has none
    """

    view: StoreView
    calibration: Calibration | None
    _backgrounds: dict[Side, Background] = field(default_factory=dict)

    def background(self, side: Side) -> Background:
        """A drawn part of a side."""
        if side not in self._backgrounds:
            self._backgrounds[side] = Background.of(self.view.shelves[side])
        return self._backgrounds[side]

    def way(self, side: Side, of: Side) -> Way | None:
        """How well one side is found by items of the other; None for one's own kind, and where it is not calibrated."""
        return None if self.calibration is None or side == of else self.calibration.ways.get(side)

    @property
    def stale(self) -> float | None:
        """Share of the items that came or went since the calibration, where that is too much; else None."""
        if self.calibration is None:
            return None
        most = changed_since(self.calibration, self.view)
        return most if most > STALE else None

    def judged(self, side: Side, of: Side, queries: NDArray[np.float32], found: Sequence[Found]) -> list[Judgement]:
        """What the index shows for each of (Q L D) queries of a kind that is calibrated.

        found  its best hits among all items, `NEAR` of each or all there are
        """
        way = self.way(side, of)
        assert way is not None
        crowds = self.background(side).scores(queries)
        own = self.background(of).scores(queries)
        judgements = []
        for best, crowd, mine in zip(found, crowds, own, strict=True):
            seen = Seen.among(best.keys[:NEAR], best.scores[:NEAR], self.background(side), crowd, mine)
            share = stands(seen, way)
            judgements.append(Judgement(way, seen.level(way.temperature), Fit(share, way.refused)))
        return judgements


def stands(seen: Seen, way: Way) -> float:
    """Share of questions with an answer for which the index showed as little as for this one, or less."""
    return standing(weakest(seen.signs(way.temperature), way.signs), way.quantiles)


class Kept:
    """The Confidence of an index, made anew only when the index or its calibration has changed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: tuple[int, float, Calibration | None, dict[Side, Background]] = (-1, -1.0, None, {})

    def at(self, view: StoreView) -> Confidence:
        """What is known at that moment."""
        generation, written, calibration, backgrounds = self._known
        now = self._store.calibration_mark()
        if now != written:
            calibration = self._store.calibration()
        if view.generation != generation:
            backgrounds = {}
        self._known = (view.generation, now, calibration, backgrounds)
        return Confidence(view, calibration, backgrounds)
