"""Hubness: whether few candidates are found by many queries (Radovanovic et al. 2010)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from torch import Tensor

from subtext.evaluation.metric import GalleryMetric
from subtext.ops.top_k import occurrences


@dataclass(frozen=True)
class Hubness(GalleryMetric):
    """Skewness of how often a candidate is among the first k of a query, and the share of candidates that never are.

        mean((N_k - mean N_k)^3) / std(N_k)^3        population moments

    The skewness is 0 for a symmetric spread; above 1 some candidates are hubs. It is NaN where all occur equally often.

    Args:
        k: How many candidates of a query count, 1 or more.
    """

    k: int = 10

    reads = ("scores",)
    sort_order = 65
    pattern = r"hubness@(?P<k>\d+)"

    def of(self, scores: Tensor) -> Float[np.ndarray, "c"]:
        """How many of these queries have each candidate among their first k.

        Args:
            scores: (Q C).

        Returns:
            (C) float64 counts.
        """
        return occurrences(scores, self.k)

    def figures(self, occurrences: Float[np.ndarray, "c"]) -> dict[str, float]:
        """Both figures, from the occurrences of all queries.

        Args:
            occurrences: (C) counts over all queries.

        Returns:
            Name -> number.
        """
        return {f"hubness@{self.k}": skewness(occurrences), f"unfound@{self.k}": unfound(occurrences)}


def skewness(occurrences: Float[np.ndarray, "c"]) -> float:
    """Skewness of the occurrences; NaN where all are equal.

    Args:
        occurrences: (C) counts.

    Returns:
        The skewness; NaN where all are equal.

    Example:
        >>> round(skewness(np.array([0.0, 0.0, 0.0, 4.0])), 6)
        1.154701
    """
    gaps = occurrences - occurrences.mean() if len(occurrences) else occurrences
    spread = math.sqrt(float((gaps**2).mean())) if len(gaps) else 0.0
    return float((gaps**3).mean()) / spread**3 if spread > 0 else math.nan


def unfound(occurrences: Float[np.ndarray, "c"]) -> float:
    """Share of candidates that are among the first k of no query.

    Args:
        occurrences: (C) counts.

    Returns:
        In [0, 1].

    Example:
        >>> unfound(np.array([0.0, 0.0, 1.0, 3.0]))
        0.5
    """
    return float((occurrences == 0).mean()) if len(occurrences) else math.nan
