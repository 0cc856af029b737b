"""Recall at k (Karpathy and Fei-Fei 2015): whether a partner is among the first k."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.errors import RequirementError
from subtext.evaluation.metric import Metric
from subtext.ops.rank import Counts, Ties


@dataclass(frozen=True, init=False)
class Recall(Metric):
    """Recall at k: 1 for a query whose best-ranked positive is among the first k candidates, else 0.

    The call takes `Comparison`; any number of positives a query, ignored cells are left out. It returns (Q) float64 in
    [0, 1]; NaN for a query without positives.

    `Recall(1, 5, 10)` stands for three metrics, one for each k, which an evaluation reports side by side.

    Args:
        k: How many candidates are looked at, 1 or more; 1 by default.
        ties: Where the best positive stands among negatives of its own score. "pessimistic" (behind them) is the
            default: a model that gives every pair the same score then gets 0. "expected" gives the probability of a hit
            over all orders of the tied; "optimistic" and "stable" (column order) are there to compare with other
            evaluations.
        by_length: Also report the recall of the texts of each length in words.
        *ks: The same as `k`, by position.
        against: Set of positives, such as "eccv"; "" for the pairs of the data set.

    Raises:
        RequirementError: For a k that is no whole number of 1 or more.

    Complexity:
        One read of the scores.

    Example:
        >>> import torch
        >>> from subtext.core import Comparison, Truth
        >>> scores = torch.tensor([[0.6, 0.5, 0.55], [0.3, 0.4, 0.45], [0.65, 0.35, 0.7]])
        >>> Recall(k=1)(Comparison(scores, Truth(torch.eye(3, dtype=torch.bool)))).tolist()
        [1.0, 0.0, 1.0]
    """

    k: tuple[int, ...] = (1,)
    ties: Ties = "pessimistic"
    by_length: bool = False  # type: ignore[misc]  # a class variable of metrics that have no choice

    reads = ("best_rank",)
    sort_order = 10
    total = "rsum"
    pattern = r"recall@(?P<k>\d+)"

    def __init__(
        self,
        *ks: int,
        k: int | tuple[int, ...] = (),
        ties: Ties = "pessimistic",
        by_length: bool = False,
        against: str = "",
    ) -> None:
        one_or_more: tuple[Any, ...] = (*ks, *(k if isinstance(k, tuple) else (k,))) or (1,)
        if not all(isinstance(number, Integral) and int(number) >= 1 for number in one_or_more):
            raise RequirementError(f"Recall needs numbers k of 1 or more, as in Recall(1, 5, 10); it got {one_or_more}")
        values = {"k": tuple(map(int, one_or_more)), "ties": ties, "by_length": by_length, "against": against}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def each(self) -> tuple[Recall, ...]:
        """A metric for each k.

        Returns:
            One metric per k.
        """
        return tuple(replace(self, k=(k,)) for k in self.k)

    @property
    def name(self) -> str:
        """With its k."""
        return f"recall@{self._only}"

    @property
    def _only(self) -> int:
        if len(self.k) > 1:
            raise RequirementError(f"{self} stands for {len(self.k)} metrics; call one of them: Recall({self.k[0]})")
        return self.k[0]

    def of(self, counts: Counts) -> NDArray[np.float64]:
        """The same from counts that are already there.

        Args:
            counts: `ops.rank.Counts` of Q queries.

        Returns:
            (Q) float64; NaN where it is undefined.
        """
        return counts.hits(self._only, self.ties)

    def chance(self, counts: Counts) -> NDArray[np.float64]:
        """(Q) probability that a random order puts a positive among the first k: 1 - C(M, k) / C(M + P, k).

        P positives, M negatives

        Args:
            counts: `ops.rank.Counts` of Q queries.

        Returns:
            (Q) float64; NaN for a query without positives.
        """
        miss = np.ones(len(counts))
        for rank in range(self._only):
            remaining = counts.negatives + counts.positives - rank
            miss *= np.maximum(counts.negatives - rank, 0) / np.maximum(remaining, 1)
        return np.where(counts.positives > 0, 1 - miss, np.nan)
