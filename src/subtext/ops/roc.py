"""How well a score of pairs tells those with a mark from the others, such as loose pairs from literal ones."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Bool, Float, Int

from subtext.ops import draw

_LEVEL = 0.95
_FEWEST = 10
"""Clusters of either side below which there is no interval."""


def auc(scores: Float[np.ndarray, "n"], marked: Bool[np.ndarray, "n"]) -> float:
    """Area under the ROC curve: how often a marked pair has the larger score than one that is not.

    Equal scores count one half. 0.5 says nothing, 1 tells all by large scores, 0 tells all by small ones. A score that
    is no number is left out; NaN where one side is empty.

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
    """95 % percentile interval of `auc`, from samples of clusters with replacement; None where there are too few.

    clusters  what is drawn together: the pairs of one picture

    Cost   one sort, and time O(n) a sample.
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

    scikit-learn's sorts anew for every sample of a bootstrap, and rounds a perfect order below 1 (docs/decisions.md).
    """
    if not len(codes):
        return math.nan
    positives = np.bincount(codes, times * marked)
    negatives = np.bincount(codes, times * ~marked)
    total = float(positives.sum() * negatives.sum())
    below = np.cumsum(negatives) - negatives / 2
    return float((positives * below).sum() / total) if total else math.nan
