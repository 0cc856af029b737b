"""The mean rank of the truth among c."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from subtext.core import Comparison
from subtext.errors import RequirementError
from subtext.ops.rank import Counts, Ties, compared


@dataclass(frozen=True)
class CWayRank:
    """Expected rank of the truth among itself and c - 1 negatives drawn without replacement, counted from 1.

        1 + (c - 1) g / M        M negatives, g of them ahead of the truth

    c     candidates a question has, the truth among them
    ties  as for recall; "expected" counts half of the tied negatives as ahead

    Takes     Comparison; the truth of a query with several positives is its best-scored one.
    Gives     (Q) float64 in [1, c]; NaN for a query without positives or with fewer than c - 1 negatives.
    Raises    RequirementError for c below 2.
    Cost      one read of the scores.

    >>> from subtext.core import Truth
    >>> truth = Truth(torch.tensor([[False, True, False]]))
    >>> CWayRank(c=2)(Comparison(torch.tensor([[0.3, 0.4, 0.45]]), truth)).tolist()
    [1.5]
    """

    c: int = 5
    ties: Ties = "pessimistic"

    def __post_init__(self) -> None:
        if self.c < 2:
            raise RequirementError(f"CWayRank needs c of at least 2; it got {self.c}")

    def __call__(self, comparison: Comparison) -> Float[Tensor, "q"]:
        """One value per query."""
        return torch.from_numpy(self.of(compared(comparison, stable=self.ties == "stable")))

    def of(self, counts: Counts) -> NDArray[np.float64]:
        """The same from counts that are already there."""
        ahead = counts.greater + counts.tied / 2 if self.ties == "expected" else counts.rank(self.ties)
        rank = 1 + (self.c - 1) * ahead / np.maximum(counts.negatives, 1)
        return np.where((counts.positives > 0) & (counts.negatives >= self.c - 1), rank, np.nan)
