"""Average Semantic Precision (Li et al. 2022): whether a model orders a whole gallery as its meaning does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, UInt
from torch import Tensor

from subtext.core import Comparison
from subtext.errors import RequirementError
from subtext.ops.graded import relevance_of
from subtext.ops.semantic_rank import RankTies, agreement, ranks


@dataclass(frozen=True)
class ASP:
    """Average Semantic Precision (Li et al. 2022, eq. 8-9): how alike scores and relevance rank all candidates.

        ASP_q = mean_i min(R_C(i), R_S(i)) / max(R_C(i), R_S(i))        R_C by relevance, R_S by score

    A random order is expected to give (C + 1) / 2C, about one half, whatever the relevance; the reverse order 0.386. It
    is a mean over the bulk of a gallery: a model that finds every partner first and orders the rest at random is at one
    half too. Relevance with ties keeps scores without ties below 1: `reference.ceiling` says how far.

    ties    "ordinal" (equal values by column, as in the published code), "min" (eq. 8: they share the best rank) or
            "average". Relevance often ties: 15 % of COCO's are exactly 0
    top     N for the candidates of relevance rank up to N alone; 0 for all. With "min" and "average" those that tie for
            the last rank stay together, and none may be meant where more than N share the first
    within  rank scores among those N alone, else keep their ranks among all candidates

    Takes     Comparison with truth.relevance, finite; the name of its scale belongs to the figure's name. Ignored
              cells are left out. A score that is not a number ranks last.
    Gives     (Q) float64 in (0, 1]; NaN for a query without such candidates.
    Raises    RequirementError without relevance, for one that is not finite, and for a negative top.
    Cost      two sorts of each row.

    >>> from subtext.core import Truth
    >>> truth = Truth(torch.ones(1, 3, dtype=torch.bool), relevance=torch.tensor([[4.0, 3.0, 2.0]]), scale="made")
    >>> ASP()(Comparison(torch.tensor([[0.1, 0.3, 0.2]]), truth)).tolist()
    [0.5]
    """

    ties: RankTies = "ordinal"
    top: int = 0
    within: bool = True

    def __post_init__(self) -> None:
        if self.top < 0:
            raise RequirementError(f"ASP needs top of 0 (all candidates) or more; it got {self.top}")

    def __call__(self, comparison: Comparison) -> Float[Tensor, "q"]:
        """One value per query."""
        relevance = relevance_of(comparison, "ASP").numpy()
        scores = comparison.scores.detach().cpu()
        matrix = (scores if scores.dtype in (torch.float32, torch.float64) else scores.float()).numpy()
        ignored = comparison.truth.ignored
        if ignored is None or not bool(ignored.any()):
            return torch.from_numpy(self.of(matrix, ranks(relevance, self.ties)))
        found = torch.full((len(matrix),), torch.nan, dtype=torch.float64)
        for row, kept in enumerate(~ignored.cpu().numpy()):
            if kept.any():
                found[row] = self.of(matrix[row : row + 1, kept], ranks(relevance[row : row + 1, kept], self.ties))[0]
        return found

    def of(
        self, scores: Float[np.ndarray, "q c"], semantic: UInt[np.ndarray, "q c"], *, kernel: bool | None = None
    ) -> Float[np.ndarray, "q"]:
        """The same from ranks of the relevance that are already there (`ops.semantic_rank.ranks`, the same ties)."""
        top = (self.top,) if self.top else ()
        return agreement(scores, semantic, self.ties, top=top, within=self.within, kernel=kernel)[:, 0]
