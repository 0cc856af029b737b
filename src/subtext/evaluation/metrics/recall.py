"""Recall at k (Karpathy and Fei-Fei 2015): whether a partner is among the first k."""

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
class Recall:
    """Recall at k: 1 for a query whose best-ranked positive is among the first k candidates, else 0.

    k     how many candidates are looked at
    ties  where the best positive stands among negatives of its own score. "pessimistic" (behind them) is the default:
          a model that gives every pair the same score then gets 0. "expected" gives the probability of a hit over all
          orders of the tied; "optimistic" and "stable" (column order) are there to compare with other evaluations

    Takes     Comparison; any number of positives a query, ignored cells are left out.
    Gives     (Q) float64 in [0, 1]; NaN for a query without positives.
    Cost      one read of the scores.

    >>> from subtext.core import Truth
    >>> scores = torch.tensor([[0.6, 0.5, 0.55], [0.3, 0.4, 0.45], [0.65, 0.35, 0.7]])
    >>> Recall(k=1)(Comparison(scores, Truth(torch.eye(3, dtype=torch.bool)))).tolist()
    [1.0, 0.0, 1.0]
    """

    k: int = 1
    ties: Ties = "pessimistic"

    def __call__(self, comparison: Comparison) -> Float[Tensor, "q"]:
        """One value per query."""
        return torch.from_numpy(self.of(compared(comparison, stable=self.ties == "stable")))

    def of(self, counts: Counts) -> NDArray[np.float64]:
        """The same from counts that are already there."""
        if self.ties != "expected":
            rank = counts.rank(self.ties)
            return np.where(np.isnan(rank), np.nan, rank < self.k)
        miss = np.ones(len(counts))
        for place in range(self.k):
            # The place-th slot after those ahead holds a negative: those are drawn from the tied without replacement.
            negatives = np.maximum(counts.tied - place, 0)
            left = np.maximum(counts.tied + counts.level - place, 1)
            miss = np.where(place < self.k - counts.greater, miss * negatives / left, miss)
        return np.where(counts.positives > 0, 1 - miss, np.nan)
