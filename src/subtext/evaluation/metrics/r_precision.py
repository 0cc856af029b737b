"""R-Precision: the share of what is right among as many first candidates as there are right ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from subtext.core import Comparison
from subtext.ops.positive_ranks import PositiveRanks, positive_ranks
from subtext.ops.rank import Ties


@dataclass(frozen=True)
class RPrecision:
    """Share of positives among the first R candidates, R being how many positives the query has.

        |first R and positives| / R

    ties  where positives stand among negatives of their own score, as for recall; "expected" is a mean over all orders

    Takes     Comparison; ignored cells are left out.
    Gives     (Q) float64 in [0, 1]; NaN for a query without positives. A random order gives R / candidates.
    Cost      one sort of each row.

    >>> from subtext.core import Truth
    >>> truth = Truth(torch.tensor([[True, False, True, False]]))
    >>> RPrecision()(Comparison(torch.tensor([[0.9, 0.5, 0.4, 0.1]]), truth)).tolist()
    [0.5]
    """

    ties: Ties = "pessimistic"

    def __call__(self, comparison: Comparison) -> Float[Tensor, "q"]:
        """One value per query."""
        return torch.from_numpy(self.of(positive_ranks(comparison, stable=self.ties == "stable")))

    def of(self, stands: PositiveRanks) -> NDArray[np.float64]:
        """The same from a standing that is already there."""
        return stands.precision(self.ties)
