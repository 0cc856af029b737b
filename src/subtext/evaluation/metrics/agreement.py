"""Whether scores of pairs order them as people do: correlation of ranks (Spearman 1904, Kendall 1945)."""

from __future__ import annotations

import itertools
import math

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from subtext.errors import ShapeError
from subtext.ops import draw

_ALL, _DRAWN = 7, 9_999
"""Up to so many values all orders are tried; else so many are drawn."""


def spearman(left: Float[np.ndarray, "n"], right: Float[np.ndarray, "m"]) -> float:
    """Correlation of the ranks, those of equal values being their mean; NaN where all of a side are equal.

    A pair with a value that is no number is left out.

    Raises ShapeError when the two are not of one length.

    >>> spearman(np.array([1.0, 2.0, 2.0, 9.0]), np.array([4.0, 3.0, 2.0, 1.0]))
    -0.9486832980505138
    """
    sides = np.stack([_mean_ranks(side) for side in _known(left, right)])
    if not sides.shape[1]:
        return math.nan
    sides -= sides.mean(axis=1, keepdims=True)
    lengths = np.sqrt((sides**2).sum(axis=1)).prod()
    return float((sides[0] * sides[1]).sum() / lengths) if lengths else math.nan


def chance(left: Float[np.ndarray, "n"], right: Float[np.ndarray, "n"], *, seed: int = 0) -> float:
    """How often values in an order of chance have a Spearman correlation as far from 0 as these: p of two sides.

    Over all orders of up to seven values, and else over 9,999 drawn ones and the one that was seen. Values are numbers.

    >>> chance(np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0]))  # two of six orders
    0.3333333333333333
    """
    count = len(right)
    if count <= _ALL:
        orders = np.array(list(itertools.permutations(range(count))))
    else:
        drawn = (draw.permutation(count, seed=seed, epoch=n, purpose="chance of ranks") for n in range(_DRAWN))
        orders = np.stack([np.arange(count), *drawn])
    ranks = [_mean_ranks(side) - (count + 1) / 2 for side in (left, right)]
    found = np.abs(ranks[1][orders] @ ranks[0]) / np.sqrt((ranks[0] ** 2).sum() * (ranks[1] ** 2).sum())
    # The first order is the one that was seen.
    return float(np.mean(found >= found[0] - 1e-12))


def kendall(left: Float[np.ndarray, "n"], right: Float[np.ndarray, "m"]) -> float:
    """Kendall's tau-b: pairs of pairs in the same order less those in the opposite one, corrected for ties.

        (P - Q) / sqrt((P + Q + ties left) (P + Q + ties right))

    NaN where all of a side are equal; a pair with a value that is no number is left out.

    Raises ShapeError when the two are not of one length.
    Cost   O(n log^2 n).

    >>> round(kendall(np.array([1.0, 2.0, 2.0, 9.0]), np.array([4.0, 3.0, 2.0, 1.0])), 6)
    -0.912871
    """
    first, second = (np.unique(side, return_inverse=True)[1] for side in _known(left, right))
    count = len(first)
    pairs = count * (count - 1) / 2
    tied = [_tied(np.bincount(codes)) for codes in (first, second)]
    both = _tied(np.unique(first * (count + 1) + second, return_counts=True)[1])
    if tied[0] >= pairs or tied[1] >= pairs:
        return math.nan
    opposite = _inversions(second[np.lexsort((second, first))])
    same = pairs - tied[0] - tied[1] + both - opposite
    return float((same - opposite) / math.sqrt((pairs - tied[0]) * (pairs - tied[1])))


def _known(left: NDArray[np.float64], right: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if left.shape != right.shape:
        raise ShapeError(f"agreement needs two scores a pair; it got {len(left)} and {len(right)}")
    there = ~(np.isnan(left) | np.isnan(right))
    return left[there], right[there]


def _mean_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    found: NDArray[np.float64] = (counts.cumsum() - (counts - 1) / 2)[place]
    return found


def _tied(sizes: NDArray[np.int64]) -> float:
    return float((sizes * (sizes - 1) / 2).sum())


def _inversions(codes: NDArray[np.int64]) -> float:
    """How many pairs stand in falling order, bit by bit: the highest bit in which two codes differ decides."""
    total = 0
    for bit in reversed(range(int(codes.max(initial=0)).bit_length())):
        prefix = codes >> (bit + 1)
        order = np.argsort(prefix, kind="stable")
        ones = (codes[order] >> bit) & 1
        before = np.cumsum(ones) - ones
        starts = np.flatnonzero(np.concatenate([[True], prefix[order][1:] != prefix[order][:-1]]))
        sizes = np.diff(np.append(starts, len(codes)))
        within = before - np.repeat(before[starts], sizes)
        total += int(within[ones == 0].sum())
    return float(total)
