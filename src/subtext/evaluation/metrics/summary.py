"""Per-query values to one number; queries without a meaning (NaN) are left out."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from subtext.ops.rank import Counts


def mean(values: Float[np.ndarray, "q"]) -> float:
    """Mean of the values that are numbers; NaN when there is none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan


def median_rank(ranks: Float[np.ndarray, "q"]) -> float:
    """Median of ranks counted from 1, rounded down where two middle ranks differ (Karpathy's evaluation).

    >>> median_rank(np.array([1.0, 2.0, 3.0, 7.0]))
    2.0
    """
    known = ranks[~np.isnan(ranks)]
    return float(np.floor(np.median(known))) if len(known) else math.nan


def chance_recall(counts: Counts, k: int) -> NDArray[np.float64]:
    """(Q) probability that a random order puts a positive among the first k; NaN for a query without positives.

    1 - C(M, k) / C(M + P, k)        P positives, M negatives
    """
    miss = np.ones(len(counts))
    for place in range(k):
        left = counts.negatives + counts.positives - place
        miss *= np.maximum(counts.negatives - place, 0) / np.maximum(left, 1)
    return np.where(counts.positives > 0, 1 - miss, np.nan)


def chance_rank(counts: Counts) -> NDArray[np.float64]:
    """(Q) expected rank of the best positive in a random order, from 1; NaN for a query without positives.

    1 + M / (P + 1)        P positives, M negatives
    """
    return np.where(counts.positives > 0, 1 + counts.negatives / (counts.positives + 1), np.nan)
