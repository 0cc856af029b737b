"""What the scores of an index are worth, as the index keeps it: JSON with a checksum.

A calibration and its reliability plot are the documents `CALIBRATION` and `PLOT` of an index; `search.confidence` fits
and applies one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.errors import SearchIndexError
from subtext.retrieval.manifest import checksum, with_checksum
from subtext.retrieval.stores.item import SIDES, Change, Side
from subtext.retrieval.stores.store import Store, View
from subtext.version import FORMAT, require_format

CALIBRATION, PLOT = "calibration", "plot"
"""Names of the documents that an index keeps a calibration as."""
STALE = 0.1
"""Share of the items that may come and go before a calibration no longer speaks of the index as it is."""


@dataclass(frozen=True)
class DirectionCalibration:
    """The calibration of one direction of search, such as words for images.

    Attributes:
        temperature: t of the posterior exp(s / t) / sum over the index, in units of the cosine.
        weights: Of s / t and of the level log sum exp(s / t); their bias.
        steps: Xs, ys: from those log odds to a probability.
        signs: Name -> (101) quantiles over queries that have a match here, rising.
        quantiles: (101) of the lowest percentile of these queries among their signs.
        refused: Share of them below which nothing is said to fit.
        measured: Figures on the third part; see `search.confidence`.
        bins: Of its reliability plot: predicted, came_true, counts.
    """

    temperature: float
    weights: tuple[float, float]
    bias: float
    steps: Mapping[str, list[float]]
    signs: Mapping[str, list[float]]
    quantiles: list[float]
    refused: float
    measured: Mapping[str, float]
    bins: Mapping[str, list[float]] = field(default_factory=dict)

    def curve(self, log_odds: NDArray[np.float64]) -> NDArray[np.float64]:
        """(N) probabilities of log odds."""
        return np.interp(log_odds, self.steps["xs"], self.steps["ys"])


@dataclass(frozen=True)
class Calibration:
    """What scores of an index are worth.

    Attributes:
        ways: "images" and "texts", what is searched with the other -> Way.
        pairs: A pair's cosine to the probability that it is right, where right and chance pairs are equally many: steps
            and what was measured.
        data: Where the pairs came from, split, how many.
        counts: Items of each side at that time.
        last: Greatest key of each side at that time.
        created: UTC time.
        version: Version of Subtext.
    """

    ways: Mapping[Side, DirectionCalibration]
    pairs: Mapping[str, Any]
    data: Mapping[str, Any]
    counts: Mapping[Side, int]
    last: Mapping[Side, int]
    created: str = ""
    version: str = ""
    format: int = FORMAT

    def to_json(self) -> str:
        """As indented JSON, with a checksum of all the rest."""
        return with_checksum({"kind": "subtext calibration", **asdict(self)}, indent=1)

    @staticmethod
    def from_json(text: str, *, where: str) -> Calibration:
        """The calibration again.

        Raises:
            SearchIndexError: Naming `where`, for anything else.
        """
        advice = "calibrate the index again (subtext index calibrate)"
        try:
            content = json.loads(text)
            require_format(content.get("format"), where, "index calibrate", SearchIndexError)
            if content.pop("checksum", None) != checksum(content) or content.pop("kind") != "subtext calibration":
                raise SearchIndexError(f"{where} needs its own checksum; it was changed or damaged; {advice}")
            ways = {
                side: DirectionCalibration(**{**way, "weights": tuple(way["weights"])})
                for side, way in content.pop("ways").items()
            }
            return Calibration(ways=ways, **content)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
            raise SearchIndexError(f"{where} needs to be a calibration; {problem!r}; {advice}") from problem

    def curve(self, cosines: NDArray[np.float64]) -> NDArray[np.float64]:
        """(N) probabilities of the cosines of pairs."""
        return np.interp(cosines, self.pairs["xs"], self.pairs["ys"])


def stored_calibration(view: View) -> Calibration | None:
    """What the scores of an index are worth; None where that was not measured.

    Raises:
        SearchIndexError: For damage.
    """
    documents = view.records(CALIBRATION)
    where = f"the calibration of {view.manifest.run or 'the index'}"
    return Calibration.from_json(documents[0][0], where=where) if documents else None


def calibration_mark(view: View) -> float:
    """Changes when an index is calibrated again; 0 where it is not calibrated."""
    return float(dict(view.records("documents")).get(CALIBRATION, 0.0))


def keep_calibration(store: Store, calibration: Calibration, plot: str) -> str:
    """Keep a calibration and its plot, an SVG document, in an index; says where the plot is."""
    with store.writing("calibrate") as writer:
        writer.apply(Change(documents={PLOT: plot, CALIBRATION: calibration.to_json()}))
    return store.document(PLOT)


def changed_since(view: View, calibration: Calibration) -> float:
    """Share of the items that were added or deleted since an index was calibrated, of the side with the most."""
    shares = []
    for side in SIDES:
        before = calibration.counts[side]
        remaining = int(np.searchsorted(view.keys(side), calibration.last[side], side="right"))
        shares.append((before - remaining + view.counts[side] - remaining) / max(1, before))
    return max(shares)
