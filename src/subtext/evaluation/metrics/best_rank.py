"""The rank of the best positive, what median and mean rank are made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from subtext.core import Comparison
from subtext.ops.rank import Counts, Ties, compared


@dataclass(frozen=True)
class BestRank:
    """Rank of the best positive, counted from 1.

    ties  where it stands among negatives of its own score: behind them ("pessimistic"), before them ("optimistic"), at
          the mean of all orders ("expected"), or by column ("stable")

    Takes     Comparison; any number of positives a query, ignored cells are left out.
    Gives     (Q) float64 in [1, negatives + 1]; NaN for a query without positives.
    Cost      one read of the scores.

    >>> from subtext.core import Truth
    >>> BestRank()(Comparison(torch.tensor([[0.3, 0.4, 0.45]]), Truth(torch.tensor([[False, True, False]])))).tolist()
    [2.0]
    """

    ties: Ties = "pessimistic"

    def __call__(self, comparison: Comparison) -> Float[Tensor, "q"]:
        """One value per query."""
        return torch.from_numpy(self.of(compared(comparison, stable=self.ties == "stable")))

    def of(self, counts: Counts) -> NDArray[np.float64]:
        """The same from counts that are already there."""
        return counts.rank(self.ties) + 1
