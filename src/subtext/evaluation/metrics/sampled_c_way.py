"""Choice among c as the papers did it: one seeded draw of distractors a query."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from subtext.core import Comparison
from subtext.errors import RequirementError
from subtext.ops import draw
from subtext.ops.choice import beaten
from subtext.ops.rank import Counts, Ties, compared


@dataclass(frozen=True)
class SampledCWay:
    """Whether the truth is among the first `at` of c, for one draw of c - 1 negatives without replacement.

    Kept for parity with published numbers, which are one draw each; the closed form is its mean over all draws. What
    is drawn is how many of the distractors are ahead of the truth (the rest of a draw changes nothing). The numbers
    behind a draw depend on seed and query alone, so two models are asked with the same luck.

    c, at  as in the closed form
    seed   of the draw
    ties   "pessimistic", "optimistic" or "stable"; for the expectation over orders take the closed form

    Takes     Comparison; queries are known by their ids, or by their position where there are no embeddings.
    Gives     (Q) float64, 0 or 1; NaN for a query without positives or with fewer than c - 1 negatives.
    Raises    RequirementError for c below 2, `at` below 1, or "expected" ties.
    Cost      one read of the scores, and O(Q c).

    >>> from subtext.core import Truth
    >>> truth = Truth(torch.tensor([[False, True, False]]))
    >>> SampledCWay(c=3)(Comparison(torch.tensor([[0.3, 0.4, 0.45]]), truth)).tolist()
    [0.0]
    """

    c: int = 5
    at: int = 1
    seed: int = 0
    ties: Ties = "pessimistic"

    def __post_init__(self) -> None:
        if self.c < 2 or self.at < 1 or self.ties == "expected":
            raise RequirementError(
                "SampledCWay needs c of at least 2, at of at least 1 and an order of ties; "
                f"it got c = {self.c}, at = {self.at}, ties = '{self.ties}'"
            )

    def __call__(self, comparison: Comparison) -> Float[Tensor, "q"]:
        """One value per query."""
        ids = None if comparison.queries is None else comparison.queries.ids.cpu().numpy()
        keys = np.arange(comparison.scores.shape[0], dtype=np.int64) if ids is None else ids
        return torch.from_numpy(self.of(compared(comparison, stable=self.ties == "stable"), keys))

    def of(self, counts: Counts, keys: NDArray[np.int64]) -> NDArray[np.float64]:
        """The same from counts that are already there; keys (Q) name the queries."""
        usable = (counts.positives > 0) & (counts.negatives >= self.c - 1)
        ahead = np.where(usable, counts.rank(self.ties), 0).astype(np.int64)
        draws = draw.uniform(keys, seed=self.seed, epoch=0, purpose=f"{self.c}-way", count=self.c - 1)
        return np.where(usable, beaten(ahead, counts.negatives, draws) < self.at, np.nan)
