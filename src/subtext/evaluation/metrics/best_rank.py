"""The rank of the best positive: its mean, its median, and the mean of its reciprocal (MRR)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subtext.evaluation.metric import Metric, mean
from subtext.ops.rank import Counts, Ties


@dataclass(frozen=True)
class BestRank(Metric):
    """Rank of the best positive, counted from 1.

    The call takes `Comparison`; any number of positives a query, ignored cells are left out. It returns (Q) float64 in
    [1, negatives + 1]; NaN for a query without positives.

    Args:
        ties: Where it stands among negatives of its own score: behind them ("pessimistic"), before them ("optimistic"),
            at the mean of all orders ("expected"), or by column ("stable").

    Complexity:
        One read of the scores.

    Example:
        >>> import torch
        >>> from subtext.core import Comparison, Truth
        >>> BestRank()(Comparison(torch.tensor([[0.3, 0.4, 0.45]]),
        ...     Truth(torch.tensor([[False, True, False]])))).tolist()
        [2.0]
    """

    ties: Ties = "pessimistic"

    reads = ("best_rank",)
    sort_order = 20
    name = "mean_rank"
    percent = False
    lower_is_better = True
    compared = False

    def of(self, counts: Counts) -> NDArray[np.float64]:
        """The same from counts that are already there.

        Args:
            counts: `ops.rank.Counts` of Q queries.

        Returns:
            (Q) float64; NaN where it is undefined.
        """
        return counts.rank(self.ties) + 1

    def chance(self, counts: Counts) -> NDArray[np.float64]:
        """(Q) expected rank of the best positive in a random order: 1 + M / (P + 1).

        P positives, M negatives

        Args:
            counts: `ops.rank.Counts` of Q queries.

        Returns:
            (Q) float64; NaN for a query without positives.
        """
        return np.where(counts.positives > 0, 1 + counts.negatives / (counts.positives + 1), np.nan)

    def figures(self, values: NDArray[np.float64]) -> dict[str, float]:
        """The mean and the median.

        Args:
            values: (Q) values of all queries.

        Returns:
            Name -> number.
        """
        return {self.name: mean(values), "median_rank": median_rank(values)}


@dataclass(frozen=True)
class ReciprocalRank(Metric):
    """Reciprocal of the rank of the best positive (from 1); its mean over queries is MRR.

    The call takes `Comparison`; any number of positives a query, ignored cells are left out. It returns (Q) float64 in
    (0, 1]; NaN for a query without positives.

    Args:
        ties: Where the best positive stands among negatives of its own score; with "expected" it is one over the
            expected rank, which is below the expected reciprocal.

    Complexity:
        One read of the scores.

    Example:
        >>> import torch
        >>> from subtext.core import Comparison, Truth
        >>> truth = Truth(torch.tensor([[False, True, False]]))
        >>> ReciprocalRank()(Comparison(torch.tensor([[0.3, 0.4, 0.45]]), truth)).tolist()
        [0.5]
    """

    ties: Ties = "pessimistic"

    reads = ("best_rank",)
    sort_order = 30
    name = "mrr"

    def of(self, counts: Counts) -> NDArray[np.float64]:
        """The same from counts that are already there.

        Args:
            counts: `ops.rank.Counts` of Q queries.

        Returns:
            (Q) float64; NaN where it is undefined.
        """
        return 1 / (counts.rank(self.ties) + 1)


def median_rank(ranks: NDArray[np.float64]) -> float:
    """Median of ranks counted from 1, rounded down where the two middle ranks differ (Karpathy's evaluation).

    Args:
        ranks: (Q) ranks from 1; NaN for a query without one.

    Returns:
        The median; NaN where there is no rank.

    Example:
        >>> median_rank(np.array([1.0, 2.0, 3.0, 7.0]))
        2.0
    """
    valid = ranks[~np.isnan(ranks)]
    return float(np.floor(np.median(valid))) if len(valid) else math.nan
