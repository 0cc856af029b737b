"""Average precision, over the full list or over the first R places (mAP@R)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from subtext.evaluation.metric import Metric
from subtext.ops.rank import PositiveRanks, Ties


@dataclass(frozen=True)
class AveragePrecision(Metric):
    """Mean of the precision at the rank of each positive; its mean over queries is mAP@R (Musgrave et al. 2020).

        (1/R) sum_{positives at places r <= R} (positives up to r) / r        R positives of the query

    The call takes `Comparison`; ignored cells are left out. It returns (Q) float64 in [0, 1]; NaN for a query without
    positives.

    Args:
        cut: "r" counts positives among the first R places alone (mAP@R, as ECCV Caption reports it); "all" counts each
            at its place, however far (AP, whose complement Smooth-AP softens).
        ties: Where positives stand among negatives of their own score, as for recall; "expected" is a mean over all
            orders.

    Complexity:
        One sort of each row.

    Example:
        >>> import torch
        >>> from subtext.core import Comparison, Truth
        >>> truth = Truth(torch.tensor([[True, False, True, False]]))
        >>> comparison = Comparison(torch.tensor([[0.9, 0.5, 0.4, 0.1]]), truth)
        >>> AveragePrecision()(comparison).tolist(), round(AveragePrecision("all")(comparison).item(), 6)
        ([0.5], 0.833333)
    """

    cut: Literal["r", "all"] = "r"
    ties: Ties = "pessimistic"

    reads = ("positive_ranks",)
    sort_order = 61
    pattern = r"map@(?P<cut>r|all)"

    @property
    def name(self) -> str:
        """With its cut."""
        return f"map@{self.cut}"

    def of(self, ranks: PositiveRanks) -> NDArray[np.float64]:
        """The same from ranks that are already there.

        Args:
            ranks: `ops.rank.PositiveRanks` of Q queries.

        Returns:
            (Q) float64; NaN where it is undefined.
        """
        positives = ranks.positives[ranks.queries]
        last = positives if self.cut == "r" else positives + ranks.negatives[ranks.queries]
        if self.ties == "expected":
            positions = ranks.places("optimistic")
            worth = np.where(positions <= last, ranks.number / positions, 0.0)
            for at in np.flatnonzero(ranks.tied):
                worth[at] = _tied(ranks, int(at), int(last[at]))
        else:
            positions = ranks.places(self.ties)
            worth = np.where(positions <= last, ranks.number / positions, 0.0)
        return ranks.mean_over_positives(worth)


def _tied(ranks: PositiveRanks, at: int, last: int) -> float:
    """What one of the positives of a run of equal scores adds, over all orders of the run.

    At the t-th place of a run of p positives and n negatives, it is this positive with chance 1 / (p + n), and then
    (t - 1)(p - 1) / (p + n - 1) others of the run are expected before it.
    """
    p, n, before = int(ranks.alike[at]), int(ranks.tied[at]), int(ranks.first[at]) - 1
    ahead = int(ranks.greater[at]) + before
    t = np.arange(1, min(p + n, max(last - ahead, 0)) + 1)
    right = before + 1 + (t - 1) * (p - 1) / (p + n - 1)
    return float((right / (ahead + t)).sum() / (p + n))
