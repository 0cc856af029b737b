"""The reciprocal rank, whose mean is MRR."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subtext.evaluation.metric import Metric
from subtext.ops.rank import Counts, Ties


@dataclass(frozen=True)
class ReciprocalRank(Metric):
    """Reciprocal of the rank of the best positive (from 1); its mean over queries is MRR.

    ties  where the best positive stands among negatives of its own score; with "expected" it is one over the expected
          rank, which is below the expected reciprocal

    Takes     Comparison; any number of positives a query, ignored cells are left out.
    Gives     (Q) float64 in (0, 1]; NaN for a query without positives.
    Cost      one read of the scores.

    >>> import torch
    >>> from subtext.core import Comparison, Truth
    >>> truth = Truth(torch.tensor([[False, True, False]]))
    >>> ReciprocalRank()(Comparison(torch.tensor([[0.3, 0.4, 0.45]]), truth)).tolist()
    [0.5]
    """

    ties: Ties = "pessimistic"

    reads = ("best_rank",)
    position = 30
    name = "mrr"

    def of(self, counts: Counts) -> NDArray[np.float64]:
        """The same from counts that are already there."""
        return 1 / (counts.rank(self.ties) + 1)
