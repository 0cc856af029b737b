"""Calibration of probabilities: predicted against observed frequencies, and the expected calibration error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from subtext.errors import ShapeError


@dataclass(frozen=True)
class Reliability:
    """Predictions in bins, from the lowest to the highest; empty bins are left out.

    predicted  (B) mean probability      came_true  (B) share that was true      counts  (B) number of predictions
    """

    predicted: Float[np.ndarray, "b"]
    came_true: Float[np.ndarray, "b"]
    counts: Int[np.ndarray, "b"]

    @property
    def error(self) -> float:
        """Expected calibration error (Naeini and others 2015): |predicted - came true|, weighted by counts."""
        return float(np.average(np.abs(self.predicted - self.came_true), weights=self.counts))


def reliability(
    probabilities: Float[np.ndarray, "n"],
    truth: Bool[np.ndarray, "n"],
    *,
    bins: int = 15,
    equal: Literal["width", "count"] = "width",
) -> Reliability:
    """Predictions in bins of equal width, as Guo and others (2017) have them, or of equal counts.

    Equal width hides errors where most predictions fall into one bin; equal counts do not. Equal predictions share a
    bin.

    Raises ShapeError for values outside [0, 1], or none.

    >>> found = reliability(np.array([0.1, 0.1, 0.9, 0.9]), np.array([False, False, True, False]))
    >>> found.came_true.tolist(), round(found.error, 3)
    ([0.0, 0.5], 0.25)
    """
    if not len(probabilities) or not ((probabilities >= 0) & (probabilities <= 1)).all():
        raise ShapeError(f"reliability needs one or more probabilities from 0 to 1; it got {len(probabilities)}")
    if equal == "width":
        bin_of = np.minimum((probabilities * bins).astype(np.int64), bins - 1)
    else:
        cuts = np.quantile(probabilities, np.linspace(0, 1, bins + 1)[1:-1])
        bin_of = np.searchsorted(cuts, probabilities, side="left")
    counts = np.bincount(bin_of, minlength=bins)
    filled = counts > 0
    sums = [np.bincount(bin_of, values, minlength=bins)[filled] for values in (probabilities, truth.astype(np.float64))]
    return Reliability(sums[0] / counts[filled], sums[1] / counts[filled], counts[filled])
