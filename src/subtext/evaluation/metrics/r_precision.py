"""R-Precision: the share of what is right among as many first candidates as there are right ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subtext.evaluation.metric import Metric
from subtext.ops.rank import PositiveRanks, Ties


@dataclass(frozen=True)
class RPrecision(Metric):
    """Share of positives among the first R candidates, where R is the number of positives of the query.

        |first R and positives| / R

    The call takes `Comparison`; ignored cells are left out. It returns (Q) float64 in [0, 1]; NaN for a query without
    positives. A random order gives R / candidates.

    Args:
        ties: Where positives stand among negatives of their own score, as for recall; "expected" is a mean over all
            orders.

    Complexity:
        One sort of each row.

    Example:
        >>> import torch
        >>> from subtext.core import Comparison, Truth
        >>> truth = Truth(torch.tensor([[True, False, True, False]]))
        >>> RPrecision()(Comparison(torch.tensor([[0.9, 0.5, 0.4, 0.1]]), truth)).tolist()
        [0.5]
    """

    ties: Ties = "pessimistic"

    reads = ("positive_ranks",)
    sort_order = 60
    name = "r_precision"

    def of(self, ranks: PositiveRanks) -> NDArray[np.float64]:
        """The same from ranks that are already there.

        Args:
            ranks: `ops.rank.PositiveRanks` of Q queries.

        Returns:
            (Q) float64; NaN where it is undefined.
        """
        return ranks.precision(self.ties)

    def chance(self, ranks: PositiveRanks) -> NDArray[np.float64]:
        """(Q) share of the candidates that are positives.

        Args:
            ranks: `ops.rank.PositiveRanks` of Q queries.

        Returns:
            (Q) float64; NaN for a query without positives.
        """
        return ranks.share_of_positives()
