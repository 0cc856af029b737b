"""Choice among c (Thomas and Kovashka 2020, section 4): the truth against c - 1 random distractors, in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from subtext.core import Comparison
from subtext.errors import RequirementError
from subtext.ops.choice import placed
from subtext.ops.rank import Counts, Ties, compared


@dataclass(frozen=True)
class CWay:
    """Probability that the truth is among the first `at` of c: itself and c - 1 negatives drawn without replacement.

        P = sum_{x < at} C(g, x) C(M - g, c-1-x) / C(M, c-1)        M negatives, g of them ahead of the truth

    The expectation over all draws replaces the paper's single draw, so there is no seed and no noise of sampling.

    c     candidates a question has, the truth among them; the paper's are 5, 20 and 100
    at    1 for accuracy; 3 for being among the first three
    ties  negatives that tie with the truth are ahead of it ("pessimistic"), behind ("optimistic"), in a random order
          ("expected"), or as their columns stand ("stable")
    again  with replacement: a negative that is drawn may be drawn again. The paper does not say; never by default

    Where a query has several positives, the truth is its best-scored one and the others are no distractors.

    Takes     Comparison; ignored cells are left out.
    Gives     (Q) float64 in [0, 1]; NaN for a query without positives or with fewer than c - 1 negatives.
    Raises    RequirementError for c below 2 or `at` below 1.
    Cost      one read of the scores, and O(Q c at).

    >>> from subtext.core import Truth
    >>> CWay(c=2)(Comparison(torch.tensor([[0.3, 0.4, 0.45]]), Truth(torch.tensor([[False, True, False]])))).tolist()
    [0.5]
    """

    c: int = 5
    at: int = 1
    ties: Ties = "pessimistic"
    again: bool = False

    def __post_init__(self) -> None:
        if self.c < 2 or self.at < 1:
            raise RequirementError(f"CWay needs c of at least 2 and at of at least 1; it got {self.c} and {self.at}")

    def __call__(self, comparison: Comparison) -> Float[Tensor, "q"]:
        """One value per query."""
        return torch.from_numpy(self.of(compared(comparison, stable=self.ties == "stable")))

    def of(self, counts: Counts) -> NDArray[np.float64]:
        """The same from counts that are already there."""
        asked = counts.positives > 0
        pool = counts.negatives
        if self.ties != "expected":
            ahead = np.where(asked, counts.rank(self.ties), 0).astype(np.int64)
            return np.where(asked, placed(ahead, pool, c=self.c, at=self.at, again=self.again), np.nan)
        values = placed(counts.greater, pool, c=self.c, at=self.at, again=self.again)
        for query in np.flatnonzero(counts.tied):
            ahead = counts.greater[query] + np.arange(counts.tied[query] + 1)
            every = np.full(len(ahead), pool[query])
            values[query] = placed(ahead, every, c=self.c, at=self.at, again=self.again).mean()
        return np.where(asked, values, np.nan)
