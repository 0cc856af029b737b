"""Whether scores of pairs order them as people do: correlation of ranks (Spearman 1904, Kendall 1945)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from subtext.errors import DataError, ShapeError
from subtext.evaluation.metric import GalleryMetric, Request
from subtext.ops.roc import auc


@dataclass(frozen=True)
class HumanAgreement(GalleryMetric):
    """Spearman's and Kendall's correlation with people's ratings of pairs, and AUC of pairs that people rated high.

    positive_rating  from which rating a pair counts as positive; None for the middle between lowest and highest
    """

    positive_rating: float | None = None

    reads = ("scores", "ratings")
    truth = "ratings"

    @classmethod
    def requested(cls, request: Request) -> Iterable[HumanAgreement]:
        """One, where there are ratings."""
        return [cls(request.extra.positive_rating)] if request.truth == "ratings" else []

    def figures(self, scores: Float[np.ndarray, "n"], ratings: Float[np.ndarray, "n"]) -> dict[str, float]:
        """The figures that have a meaning: none of these where all ratings are equal.

        Raises DataError for fewer than two rated pairs.
        """
        if len(ratings) < 2:
            raise DataError(f"agreement with people needs two rated pairs or more; it got {len(ratings)}")
        middle = (ratings.min() + ratings.max()) / 2 if self.positive_rating is None else self.positive_rating
        found = {
            "human/spearman": spearman(scores, ratings),
            "human/kendall": kendall(scores, ratings),
            "human/auc": auc(scores, ratings >= middle),
            "human/pairs": float(len(ratings)),
        }
        return {name: value for name, value in found.items() if not math.isnan(value)}


def spearman(left: Float[np.ndarray, "n"], right: Float[np.ndarray, "m"]) -> float:
    """Correlation of the ranks, those of equal values being their mean; NaN where all of a side are equal.

    A pair with a value that is no number is left out.

    Raises ShapeError when the two are not of one length.

    >>> spearman(np.array([1.0, 2.0, 2.0, 9.0]), np.array([4.0, 3.0, 2.0, 1.0]))
    -0.9486832980505138
    """
    sides = np.stack([mean_ranks(side) for side in _known(left, right)])
    if not sides.shape[1]:
        return math.nan
    sides -= sides.mean(axis=1, keepdims=True)
    lengths = np.sqrt((sides**2).sum(axis=1)).prod()
    return float((sides[0] * sides[1]).sum() / lengths) if lengths else math.nan


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
    valid = ~(np.isnan(left) | np.isnan(right))
    return left[valid], right[valid]


def mean_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks from 1; equal values share the mean of theirs."""
    _, codes_of_values, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (counts.cumsum() - (counts - 1) / 2)[codes_of_values]


def _tied(sizes: NDArray[np.int64]) -> float:
    return float((sizes * (sizes - 1) / 2).sum())


def _inversions(codes: NDArray[np.int64]) -> float:
    """How many pairs stand in falling order, bit by bit: the highest bit in which two codes differ decides."""
    total = 0
    for bit in reversed(range(int(codes.max(initial=0)).bit_length())):
        prefix = codes >> (bit + 1)
        order = np.argsort(prefix, kind="stable")
        bits = (codes[order] >> bit) & 1
        before = np.cumsum(bits) - bits
        starts = np.flatnonzero(np.concatenate([[True], prefix[order][1:] != prefix[order][:-1]]))
        sizes = np.diff(np.append(starts, len(codes)))
        within = before - np.repeat(before[starts], sizes)
        total += int(within[bits == 0].sum())
    return float(total)
