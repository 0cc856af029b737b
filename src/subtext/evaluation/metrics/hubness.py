"""Hubness: whether few candidates are found by many queries (Radovanovic et al. 2010)."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float


def skewness(occurrences: Float[np.ndarray, "c"]) -> float:
    """Skewness of how often each candidate is among the first k of a query (Radovanovic et al. 2010).

        mean((N_k - mean N_k)^3) / std(N_k)^3        population moments

    0 for a symmetric spread; above 1 says that some candidates are hubs. NaN where all occur alike often.

    occurrences  `ops.top.occurrences`, summed over all queries

    >>> round(skewness(np.array([0.0, 0.0, 0.0, 4.0])), 6)
    1.154701
    """
    gaps = occurrences - occurrences.mean() if len(occurrences) else occurrences
    spread = math.sqrt(float((gaps**2).mean())) if len(gaps) else 0.0
    return float((gaps**3).mean()) / spread**3 if spread > 0 else math.nan


def unfound(occurrences: Float[np.ndarray, "c"]) -> float:
    """Share of candidates that are among the first k of no query.

    >>> unfound(np.array([0.0, 0.0, 1.0, 3.0]))
    0.5
    """
    return float((occurrences == 0).mean()) if len(occurrences) else math.nan
