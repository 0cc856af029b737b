"""How well a score separates marked pairs from others (ROC), and how well probabilities are calibrated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from subtext.errors import ShapeError
from subtext.ops import draw

_LEVEL = 0.95
_FEWEST = 10
"""Clusters of either side below which there is no interval."""


def auc(scores: Float[np.ndarray, "n"], marked: Bool[np.ndarray, "n"]) -> float:
    """Area under the ROC curve: how often a marked pair has the larger score than one that is not.

    Equal scores count one half. 0.5 is chance; 1 and 0 separate the two sides completely. Scores that are no number are
    left out.

    Args:
        scores: (N).
        marked: (N) which pairs are marked.

    Returns:
        A number in [0, 1]; NaN where one side is empty.

    Complexity:
        One sort.

    Example:
        >>> auc(np.array([0.1, 0.4, 0.4, 0.9]), np.array([False, False, True, True]))
        0.875
    """
    valid = ~np.isnan(scores)
    _, codes = np.unique(scores[valid], return_inverse=True)
    return _auc(codes, marked[valid], np.ones(int(valid.sum())))


def auc_interval(
    scores: Float[np.ndarray, "n"],
    marked: Bool[np.ndarray, "n"],
    clusters: Int[np.ndarray, "n"],
    *,
    samples: int = 1000,
    seed: int = 0,
) -> tuple[float, float] | None:
    """95 % percentile interval of `auc`, from samples of clusters with replacement.

    Args:
        scores: (N).
        marked: (N) which pairs are marked.
        clusters: (N) the units of resampling: the pairs of one image.
        samples: How many times clusters are resampled.
        seed: Of the samples.

    Returns:
        The lower and the upper end; None where either side has fewer than ten clusters.

    Complexity:
        One sort, and time N a sample.
    """
    valid = ~np.isnan(scores)
    side = marked[valid]
    _, codes = np.unique(scores[valid], return_inverse=True)
    names, of = np.unique(clusters[valid], return_inverse=True)
    if min(len(np.unique(of[side])), len(np.unique(of[~side]))) < _FEWEST:
        return None
    keys = np.arange(len(names), dtype=np.int64)
    samples_auc = np.empty(samples)
    for sample in range(samples):
        chosen = draw.integers(keys, len(names), seed=seed, epoch=sample, purpose="auc bootstrap")[:, 0]
        times = np.bincount(chosen, minlength=len(names))
        samples_auc[sample] = _auc(codes, side, times[of].astype(np.float64))
    low, high = np.nanpercentile(samples_auc, [50 * (1 - _LEVEL), 50 * (1 + _LEVEL)])
    return float(low), float(high)


def _auc(codes: Int[np.ndarray, "n"], marked: Bool[np.ndarray, "n"], times: Float[np.ndarray, "n"]) -> float:
    """AUC with each pair counted `times` times; `codes` number the scores from the least, equal ones alike.

    scikit-learn's sorts anew for every sample of a bootstrap, and rounds a perfect order below 1 (docs/decisions/0101).
    """
    if not len(codes):
        return math.nan
    positives = np.bincount(codes, times * marked)
    negatives = np.bincount(codes, times * ~marked)
    total = float(positives.sum() * negatives.sum())
    below = np.cumsum(negatives) - negatives / 2
    return float((positives * below).sum() / total) if total else math.nan


@dataclass(frozen=True)
class ReliabilityBins:
    """Predictions in bins, from the lowest to the highest; empty bins are left out.

    Args:
        predicted: (B) mean probability.
        came_true: (B) share that was true.
        counts: (B) number of predictions.
    """

    predicted: Float[np.ndarray, "b"]
    came_true: Float[np.ndarray, "b"]
    counts: Int[np.ndarray, "b"]

    @property
    def error(self) -> float:
        """Expected calibration error (Naeini and others 2015), in [0, 1]: |predicted - came true|, weighted by
        counts.
        """
        return float(np.average(np.abs(self.predicted - self.came_true), weights=self.counts))


def reliability(
    probabilities: Float[np.ndarray, "n"],
    truth: Bool[np.ndarray, "n"],
    *,
    bins: int = 15,
    equal: Literal["width", "count"] = "width",
) -> ReliabilityBins:
    """Predictions in bins of equal width, as Guo and others (2017) have them, or of equal counts.

    Equal width hides errors where most predictions fall into one bin; equal counts do not. Equal predictions share a
    bin.

    Args:
        probabilities: (N) in [0, 1].
        truth: (N) what came true.
        bins: How many bins.
        equal: What bins have in common, "width" or "count".

    Returns:
        The bins that are not empty.

    Raises:
        ShapeError: If there are no values, or values outside [0, 1].

    Example:
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
    return ReliabilityBins(sums[0] / counts[filled], sums[1] / counts[filled], counts[filled])
