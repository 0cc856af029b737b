"""The calibration of an index, as the index stores it: JSON with a checksum.

A calibration and its reliability plot are the documents `CALIBRATION` and `PLOT` of an index; `retrieval.confidence`
fits and applies one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from subtext.errors import SearchIndexError
from subtext.retrieval.manifest import Manifest, checksum, with_checksum
from subtext.retrieval.stores.documents import CALIBRATION, PLOT
from subtext.retrieval.stores.item import SIDES, Change, Side
from subtext.retrieval.stores.store import Store, View
from subtext.version import FORMAT, require_format

STALE = 0.1
"""Fraction of items that may change before a calibration is reported as stale."""


@dataclass(frozen=True)
class DirectionCalibration:
    """The calibration of one direction of search, such as text to image.

    Attributes:
        temperature: t of the posterior exp(s / t) / sum over the index, in units of the cosine.
        weights: Of s / t and of the level log sum exp(s / t), in the log odds.
        bias: Of the log odds.
        isotonic: "xs" and "ys": points of the curve from log odds to a probability.
        signal_quantiles: Name of a signal -> its (101) quantiles over queries that have a match, rising.
        quantiles: (101) quantiles of the lowest percentile among the signals of these queries.
        threshold: Percentile below which nothing matches well.
        metrics: Measurements on the half that was not fitted on; see `confidence.fit_calibration`.
        bins: Reliability plot: "predicted", "came_true" and "counts" of each bin.
    """

    temperature: float
    weights: tuple[float, float]
    bias: float
    isotonic: Mapping[str, list[float]]
    signal_quantiles: Mapping[str, list[float]]
    quantiles: list[float]
    threshold: float
    metrics: Mapping[str, float]
    bins: Mapping[str, list[float]] = field(default_factory=dict)

    def curve(self, log_odds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probabilities of log odds.

        Args:
            log_odds: (N) float64.

        Returns:
            (N) probabilities.
        """
        return np.interp(log_odds, self.isotonic["xs"], self.isotonic["ys"])


@dataclass(frozen=True)
class Calibration:
    """The calibration of an index.

    Attributes:
        directions: "images" and "texts", what is searched with the other -> its calibration.
        pairs: The curve from the cosine of a pair to the probability that it is right, and its measurements.
        data: Where the held-out pairs came from, and how many they are.
        counts: Number of items of each side at that time.
        last: Greatest key of each side at that time.
        identity: Of the index; see `Revision`.
        created: UTC time, ISO 8601.
        version: Version of Subtext.
        format: Format of the file.
    """

    directions: Mapping[Side, DirectionCalibration]
    pairs: Mapping[str, Any]
    data: Mapping[str, Any]
    counts: Mapping[Side, int]
    last: Mapping[Side, int]
    identity: str
    created: str = ""
    version: str = ""
    format: int = FORMAT

    def to_json(self) -> str:
        """As indented JSON, with a checksum of all the rest.

        Returns:
            JSON text.
        """
        return with_checksum({"kind": "subtext calibration", **asdict(self)}, indent=1)

    @staticmethod
    def from_json(text: str, *, where: str) -> Calibration:
        """Read a calibration.

        Args:
            text: JSON text.
            where: Place of the text, for messages.

        Returns:
            The calibration.

        Raises:
            SearchIndexError: If the text is no calibration, is damaged, or has another format.
        """
        advice = "calibrate the index again (subtext index calibrate)"
        try:
            content = json.loads(text)
            require_format(content.get("format"), where, "index calibrate", SearchIndexError)
            if content.pop("checksum", None) != checksum(content) or content.pop("kind") != "subtext calibration":
                raise SearchIndexError(f"{where} needs its own checksum; it was changed or damaged; {advice}")
            directions = {
                side: DirectionCalibration(**{**direction, "weights": tuple(direction["weights"])})
                for side, direction in content.pop("directions").items()
            }
            return Calibration(directions=directions, **content)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
            raise SearchIndexError(f"{where} needs to be a calibration; {problem!r}; {advice}") from problem

    def curve(self, cosines: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probabilities that pairs are right, where right and random pairs are equally frequent.

        Args:
            cosines: (N) cosines of pairs.

        Returns:
            (N) probabilities.
        """
        return np.interp(cosines, self.pairs["xs"], self.pairs["ys"])


def stored_calibration(view: View) -> Calibration | None:
    """The calibration of an index.

    Args:
        view: The index at one moment.

    Returns:
        The calibration; None for an index that is not calibrated.

    Raises:
        SearchIndexError: If it is damaged, or was made for another index.
    """
    documents = view.records(CALIBRATION)
    where = f"the calibration of {view.manifest.run or 'the index'}"
    calibration = Calibration.from_json(documents[0][0], where=where) if documents else None
    if calibration is not None:
        _require_own(calibration, view.manifest, f"the index of {view.manifest.run or 'these vectors'}")
    return calibration


def _require_own(calibration: Calibration, manifest: Manifest, where: str) -> None:
    if calibration.identity != manifest.identity:
        raise SearchIndexError(
            f"{where} needs a calibration of its own; it got that of another index; calibrate this one (subtext index "
            "calibrate)"
        )


def calibration_mark(view: View) -> float:
    """A number that changes when the index is calibrated again.

    Args:
        view: The index at one moment.

    Returns:
        0 for an index that is not calibrated.
    """
    return float(dict(view.records("documents")).get(CALIBRATION, 0.0))


def store_calibration(store: Store, calibration: Calibration, plot: str) -> str:
    """Store a calibration and its plot in an index.

    Args:
        store: The index.
        calibration: The calibration.
        plot: Reliability plot, as SVG.

    Returns:
        The place of the plot, for messages.

    Raises:
        SearchIndexError: For the calibration of another index.
    """
    _require_own(calibration, store.manifest, str(store.path))
    with store.writing("calibrate") as writer:
        writer.apply(Change(documents={PLOT: plot, CALIBRATION: calibration.to_json()}))
    return store.locate_document(PLOT)


@runtime_checkable
class Counted(Protocol):
    """What was fitted to an index that had these items.

    Attributes:
        counts: Number of items of each side at that time.
        last: Greatest key of each side at that time.
    """

    @property
    def counts(self) -> Mapping[Side, int]:
        """See above."""

    @property
    def last(self) -> Mapping[Side, int]:
        """See above."""


def changed_since(view: View, calibration: Counted) -> float:
    """Fraction of items that were added or deleted since something was fitted to an index.

    Args:
        view: The index at one moment.
        calibration: The calibration, or the ranker, of the index.

    Returns:
        The larger fraction of both sides, 0 or more.
    """
    shares, view = [], view.whole
    for side in SIDES:
        before = calibration.counts[side]
        remaining = int(np.searchsorted(view.keys(side), calibration.last[side], side="right"))
        shares.append((before - remaining + view.counts[side] - remaining) / max(1, before))
    return max(shares)
