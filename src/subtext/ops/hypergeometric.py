"""Choosing among c: what a draw of distractors without replacement does to a rank, in closed form."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, Int


def choice_probability(
    ahead: Int[np.ndarray, "q"], pool: Int[np.ndarray, "q"], *, c: int, at: int = 1, again: bool = False
) -> Float[np.ndarray, "q"]:
    """(Q) probability that the truth is among the first `at` of c, when `ahead` of its `pool` distractors beat it.

    c - 1 distractors are drawn without replacement, so the number x of them that beat the truth is hypergeometric:

        sum_{x < at} C(c-1, x) prod_{t < x} (g - t) / (M - t) prod_{t < c-1-x} (M - g - t) / (M - x - t)

    with g = ahead and M = pool; each factor stays in [0, 1], so nothing overflows however large M is. NaN where the
    pool holds fewer than c - 1.

    again  with replacement: what is drawn may be drawn again, x is binomial; ((M - g) / M)^(c-1) for at = 1

    >>> choice_probability(np.array([1]), np.array([9]), c=5).round(4).tolist()
    [0.5556]
    """
    g, m = ahead.astype(np.float64), pool.astype(np.float64)
    drawn = c - 1
    usable = pool >= drawn
    m = np.where(usable, m, max(drawn, 1))
    total = np.zeros(len(g))
    for x in range(min(at, c)):
        chance = np.full(len(g), float(math.comb(drawn, x)))
        for t in range(x):
            left = 0 if again else t
            chance *= np.clip(g - left, 0, None) / (m - left)
        for t in range(drawn - x):
            left, gone = (0, 0) if again else (t, x)
            chance *= np.clip(m - g - left, 0, None) / (m - gone - left)
        total += chance
    return np.where(usable, np.minimum(total, 1.0), np.nan)


def distractors_ahead(
    ahead: Int[np.ndarray, "q"], pool: Int[np.ndarray, "q"], draws: Float[np.ndarray, "q n"]
) -> Int[np.ndarray, "q"]:
    """(Q) how many of n distractors drawn without replacement beat the truth: one hypergeometric sample a query.

    draws  (Q n) uniform numbers. The t-th distractor beats the truth when its number is below the share that is left
           of those ahead, so that with the same numbers a better rank never does worse.
    """
    count = np.zeros(len(ahead), dtype=np.int64)
    for t in range(draws.shape[1]):
        count += draws[:, t] * np.maximum(pool - t, 1) < ahead - count
    return count
