"""Choosing among c candidates: the effect of sampled distractors on a rank, in closed form."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, Int


def choice_probability(
    ahead: Int[np.ndarray, "q"], pool: Int[np.ndarray, "q"], *, c: int, at: int = 1, replacement: bool = False
) -> Float[np.ndarray, "q"]:
    """(Q) probability that the truth is among the first `at` of c, where `ahead` of its `pool` distractors beat it.

    c - 1 distractors are sampled without replacement. The number x of them that beat the truth is hypergeometric:

        sum_{x < at} C(c-1, x) prod_{t < x} (g - t) / (M - t) prod_{t < c-1-x} (M - g - t) / (M - x - t)

    with g = ahead and M = pool. Each factor is in [0, 1], so that large M cannot overflow. NaN where the pool has fewer
    than c - 1.

    replacement  sample with replacement: x is binomial; ((M - g) / M)^(c-1) for at = 1

    >>> choice_probability(np.array([1]), np.array([9]), c=5).round(4).tolist()
    [0.5556]
    """
    g, m = ahead.astype(np.float64), pool.astype(np.float64)
    draws = c - 1
    usable = pool >= draws
    m = np.where(usable, m, max(draws, 1))
    total = np.zeros(len(g))
    for x in range(min(at, c)):
        chance = np.full(len(g), float(math.comb(draws, x)))
        for t in range(x):
            removed = 0 if replacement else t
            chance *= np.clip(g - removed, 0, None) / (m - removed)
        for t in range(draws - x):
            removed, removed_ahead = (0, 0) if replacement else (t, x)
            chance *= np.clip(m - g - removed, 0, None) / (m - removed_ahead - removed)
        total += chance
    return np.where(usable, np.minimum(total, 1.0), np.nan)


def distractors_ahead(
    ahead: Int[np.ndarray, "q"], pool: Int[np.ndarray, "q"], draws: Float[np.ndarray, "q n"]
) -> Int[np.ndarray, "q"]:
    """(Q) how many of n distractors sampled without replacement beat the truth: one hypergeometric sample per query.

    draws  (Q n) uniform numbers. Distractor t beats the truth where its number is below the share of the remaining
           pool that is ahead. With the same numbers, a better rank never does worse.
    """
    count = np.zeros(len(ahead), dtype=np.int64)
    for t in range(draws.shape[1]):
        count += draws[:, t] * np.maximum(pool - t, 1) < ahead - count
    return count
