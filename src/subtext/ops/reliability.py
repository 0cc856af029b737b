"""Whether probabilities are what they say: what was predicted beside what came true, and how far they are apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from subtext.errors import ShapeError


@dataclass(frozen=True)
class Reliability:
    """Predictions in bins, from the least to the greatest; empty bins are left out.

    predicted  (B) mean probability      came_true  (B) share that was true      counts  (B) predictions
    """

    predicted: Float[np.ndarray, "b"]
    came_true: Float[np.ndarray, "b"]
    counts: Int[np.ndarray, "b"]

    @property
    def error(self) -> float:
        """Expected calibration error (Naeini and others 2015): |predicted - came true|, weighted by the counts."""
        return float(np.average(np.abs(self.predicted - self.came_true), weights=self.counts))


def reliability(
    probabilities: Float[np.ndarray, "n"],
    truth: Bool[np.ndarray, "n"],
    *,
    bins: int = 15,
    equal: Literal["width", "count"] = "width",
) -> Reliability:
    """Put predictions into bins of equal width, as Guo and others (2017) do, or of equal numbers of predictions.

    Equal width hides what is wrong where most predictions fall into one bin; equal counts do not. Equal predictions
    stay in one bin.

    Raises ShapeError for values outside [0, 1], or none.

    >>> found = reliability(np.array([0.1, 0.1, 0.9, 0.9]), np.array([False, False, True, False]))
    >>> found.came_true.tolist(), round(found.error, 3)
    ([0.0, 0.5], 0.25)
    """
    if not len(probabilities) or not ((probabilities >= 0) & (probabilities <= 1)).all():
        raise ShapeError(f"reliability needs probabilities from 0 to 1, one or more; it got {len(probabilities)}")
    if equal == "width":
        place = np.minimum((probabilities * bins).astype(np.int64), bins - 1)
    else:
        cuts = np.quantile(probabilities, np.linspace(0, 1, bins + 1)[1:-1])
        place = np.searchsorted(cuts, probabilities, side="left")
    counts = np.bincount(place, minlength=bins)
    kept = counts > 0
    sums = [np.bincount(place, values, minlength=bins)[kept] for values in (probabilities, truth.astype(np.float64))]
    return Reliability(sums[0] / counts[kept], sums[1] / counts[kept], counts[kept])
