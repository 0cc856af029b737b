"""Recall at k (Karpathy and Fei-Fei 2015): whether a partner is among the first k."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subtext.evaluation.metric import Metric, Request
from subtext.ops.rank import Counts, Ties


@dataclass(frozen=True)
class Recall(Metric):
    """Recall at k: 1 for a query whose best-ranked positive is among the first k candidates, else 0.

    The call takes `Comparison`; any number of positives a query, ignored cells are left out. It returns (Q) float64 in
    [0, 1]; NaN for a query without positives.

    Args:
        k: How many candidates are looked at.
        ties: Where the best positive stands among negatives of its own score. "pessimistic" (behind them) is the
            default: a model that gives every pair the same score then gets 0. "expected" gives the probability of a hit
            over all orders of the tied; "optimistic" and "stable" (column order) are there to compare with other
            evaluations.

    Complexity:
        One read of the scores.

    Example:
        >>> import torch
        >>> from subtext.core import Comparison, Truth
        >>> scores = torch.tensor([[0.6, 0.5, 0.55], [0.3, 0.4, 0.45], [0.65, 0.35, 0.7]])
        >>> Recall(k=1)(Comparison(scores, Truth(torch.eye(3, dtype=torch.bool)))).tolist()
        [1.0, 0.0, 1.0]
    """

    k: int = 1
    ties: Ties = "pessimistic"

    reads = ("best_rank",)
    position = 10
    total = "rsum"
    by_length = True

    @classmethod
    def requested(cls, request: Request) -> Iterable[Recall]:
        """Each k of the protocol, for the pairs and for every other set of positives."""
        protocol = request.protocol
        return [cls(k, protocol.ties) for k in protocol.recall] if request.truth in ("pairs", "named") else []

    @property
    def name(self) -> str:
        """With its k."""
        return f"recall@{self.k}"

    def of(self, counts: Counts) -> NDArray[np.float64]:
        """The same from counts that are already there."""
        return counts.hits(self.k, self.ties)

    def chance(self, counts: Counts) -> NDArray[np.float64]:
        """(Q) probability that a random order puts a positive among the first k: 1 - C(M, k) / C(M + P, k).

        P positives, M negatives
        """
        miss = np.ones(len(counts))
        for rank in range(self.k):
            remaining = counts.negatives + counts.positives - rank
            miss *= np.maximum(counts.negatives - rank, 0) / np.maximum(remaining, 1)
        return np.where(counts.positives > 0, 1 - miss, np.nan)
