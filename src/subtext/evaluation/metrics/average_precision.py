"""Average precision, over the whole list or over the first R places (mAP@R)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from subtext.core import Comparison
from subtext.ops.positive_ranks import PositiveRanks, positive_ranks
from subtext.ops.rank import Ties


@dataclass(frozen=True)
class AveragePrecision:
    """Mean of the precision at the place of each positive; its mean over queries is mAP@R (Musgrave et al. 2020).

        (1/R) sum_{positives at places r <= R} (positives up to r) / r        R positives of the query

    cut   "r" counts positives among the first R places alone (mAP@R, as ECCV Caption reports it); "all" counts each at
          its place, however far (AP, whose complement Smooth-AP softens)
    ties  where positives stand among negatives of their own score, as for recall; "expected" is a mean over all orders

    Takes     Comparison; ignored cells are left out.
    Gives     (Q) float64 in [0, 1]; NaN for a query without positives.
    Cost      one sort of each row.

    >>> from subtext.core import Truth
    >>> truth = Truth(torch.tensor([[True, False, True, False]]))
    >>> comparison = Comparison(torch.tensor([[0.9, 0.5, 0.4, 0.1]]), truth)
    >>> AveragePrecision()(comparison).tolist(), round(AveragePrecision("all")(comparison).item(), 6)
    ([0.5], 0.833333)
    """

    cut: Literal["r", "all"] = "r"
    ties: Ties = "pessimistic"

    def __call__(self, comparison: Comparison) -> Float[Tensor, "q"]:
        """One value per query."""
        return torch.from_numpy(self.of(positive_ranks(comparison, stable=self.ties == "stable")))

    def of(self, stands: PositiveRanks) -> NDArray[np.float64]:
        """The same from a standing that is already there."""
        positives = stands.positives[stands.queries]
        last = positives if self.cut == "r" else positives + stands.negatives[stands.queries]
        if self.ties == "expected":
            places = stands.places("optimistic")
            worth = np.where(places <= last, stands.number / places, 0.0)
            for at in np.flatnonzero(stands.tied):
                worth[at] = _tied(stands, int(at), int(last[at]))
        else:
            places = stands.places(self.ties)
            worth = np.where(places <= last, stands.number / places, 0.0)
        found = np.bincount(stands.queries, worth, minlength=len(stands))
        return np.where(stands.positives > 0, found / np.maximum(stands.positives, 1), np.nan)


def _tied(stands: PositiveRanks, at: int, last: int) -> float:
    """What one of the positives of a run of equal scores adds, over all orders of the run.

    At the t-th place of a run of p positives and n negatives, it is this positive with chance 1 / (p + n), and then
    (t - 1)(p - 1) / (p + n - 1) others of the run are expected before it.
    """
    p, n, before = int(stands.alike[at]), int(stands.tied[at]), int(stands.first[at]) - 1
    ahead = int(stands.greater[at]) + before
    t = np.arange(1, min(p + n, max(last - ahead, 0)) + 1)
    right = before + 1 + (t - 1) * (p - 1) / (p + n - 1)
    return float((right / (ahead + t)).sum() / (p + n))
