"""How many queries have a negative with the very score of their best positive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subtext.core import DIRECTIONS, Direction
from subtext.evaluation.metric import Metric
from subtext.ops.rank import Counts


@dataclass(frozen=True)
class TieShare(Metric):
    """1 for a query of which a negative has the score of the best positive: how it ranks depends on the rule for ties.

    The call takes `Comparison`; any number of positives a query, ignored cells are left out. It returns (Q) float64, 0
    or 1; NaN for a query without positives.

    Complexity:
        One read of the scores.

    Example:
        >>> import torch
        >>> from subtext.core import Comparison, Truth
        >>> truth = Truth(torch.tensor([[False, True, False]]))
        >>> TieShare()(Comparison(torch.tensor([[0.4, 0.4, 0.3]]), truth)).tolist()
        [1.0]
    """

    reads = ("best_rank",)
    sort_order = 50
    name = "tie_share"
    lower_is_better = True
    compared = False

    def of(self, counts: Counts) -> NDArray[np.float64]:
        """The same from counts that are already there.

        Args:
            counts: `ops.rank.Counts` of Q queries.

        Returns:
            (Q) float64; NaN where it is undefined.
        """
        return np.where(counts.positives > 0, counts.tied > 0, np.nan)

    def notes(self, figures: Mapping[str, float], negatives: Mapping[Direction, tuple[int, int]]) -> list[str]:
        """How many queries are tied, if any are.

        Args:
            figures: Name -> number, of all metrics.
            negatives: Direction -> fewest and most negatives of a query.

        Returns:
            The sentences.
        """
        share = max(figures[f"{direction}/{self.name}"] for direction in DIRECTIONS)
        return [f"ties: in up to {share:.1f} % of queries a wrong candidate has the partner's score"] if share else []
