"""What the scores of an index are worth, as it was measured: kept beside its vectors, and checked when it is read.

An index keeps a Calibration and its reliability plot as the documents `CALIBRATION` and `PLOT`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.errors import IndexError_
from subtext.search.stores.item import Side
from subtext.search.stores.manifest import checksum

CALIBRATION, PLOT = "calibration", "plot"
"""Names of the documents that an index keeps them as."""
FORMAT = 1
"""Raised when an older Subtext could no longer read what a newer one writes."""
STALE = 0.1
"""Share of the items that may come and go before a calibration no longer speaks of the index as it is."""


@dataclass(frozen=True)
class Way:
    """One way of asking, such as words for pictures.

    temperature  t of the posterior exp(s / t) / sum over the index, in units of the cosine
    weights      of s / t and of the level log sum exp(s / t); their bias
    steps        xs, ys: from those log odds to a probability
    signs        name -> (101) quantiles over questions that have an answer here, rising
    quantiles    (101) of the weakest standing of these questions among their signs
    refused      share of them below which nothing is said to fit
    measured     figures on the third part; see `search.calibration_fit`
    bins         of its reliability plot: predicted, came_true, counts
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
        values: NDArray[np.float64] = np.interp(log_odds, self.steps["xs"], self.steps["ys"])
        return values


@dataclass(frozen=True)
class Calibration:
    """What scores of an index are worth.

    ways      "images" and "texts", what is looked for with the other -> Way
    pairs     a pair's cosine to the probability that it is right, where right and chance pairs are equally many: steps
              and what was measured
    data      where the pairs came from, split, how many
    counts    items of each side at that time      last  greatest key of each side at that time
    created, version   UTC time; version of Subtext
    """

    ways: Mapping[Side, Way]
    pairs: Mapping[str, Any]
    data: Mapping[str, Any]
    counts: Mapping[Side, int]
    last: Mapping[Side, int]
    created: str = ""
    version: str = ""
    format: int = FORMAT

    def to_json(self) -> str:
        """As indented JSON, with a checksum of all the rest."""
        found = {"kind": "subtext calibration", **asdict(self)}
        return json.dumps({**found, "checksum": checksum(found)}, indent=1, ensure_ascii=False) + "\n"

    @staticmethod
    def from_json(text: str, *, where: str) -> Calibration:
        """The calibration again. Raises IndexError_, naming `where`, for anything else."""
        advice = "calibrate the index again (subtext index calibrate)"
        try:
            found = json.loads(text)
            written = found.pop("checksum", None)
            if found.get("format") != FORMAT:
                raise IndexError_(f"{where} needs format {FORMAT}; it has {found.get('format')}; {advice}")
            if found.pop("kind", None) != "subtext calibration" or written != checksum(
                {"kind": "subtext calibration", **found}
            ):
                raise IndexError_(f"{where} needs its own checksum; it was changed or damaged; {advice}")
            ways = {name: Way(**{**own, "weights": tuple(own["weights"])}) for name, own in found.pop("ways").items()}
            return Calibration(ways=ways, **found)
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise IndexError_(f"{where} needs to be a calibration; {problem!r}; {advice}") from problem

    def curve(self, cosines: NDArray[np.float64]) -> NDArray[np.float64]:
        """(N) probabilities of the cosines of pairs."""
        values: NDArray[np.float64] = np.interp(cosines, self.pairs["xs"], self.pairs["ys"])
        return values
