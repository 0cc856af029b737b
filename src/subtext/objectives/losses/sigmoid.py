"""Sigmoid loss: binary classification of every query and candidate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from subtext.core import Comparison, require_choice
from subtext.ops.numerics import precise


@dataclass(frozen=True)
class Sigmoid:
    """Pairwise sigmoid (SigLIP, Zhai et al. 2023, algorithm 1): binary classification of each pair.

    value_q = sum_c log(1 + exp(-z_qc s_qc)),   z = 1 for a positive, -1 for a negative
    The paper sums over candidates and takes the mean over queries, which is over="sum" here with a Term whose reduction
    is "mean". Both directions are the same: one direction of a square batch is the full loss.

    Scale and shift belong to the similarity: SigLIP starts from scale 10 and shift -10, both learnt, because a
    batch has many negatives for each positive.

    Args:
        over: "sum" over candidates, or their "mean", which does not grow with the batch.

    Raises:
        RequirementError: If `over` is unknown.

    Complexity:
        Time and memory Q C.

    Example:
        >>> import torch
        >>> from subtext.core import Truth
        >>> comparison = Comparison(torch.tensor([[0.0, 0.0]]), Truth(torch.tensor([[True, False]])))
        >>> round(Sigmoid()(comparison).exp().item(), 4)  # 2 log 2
        4.0
    """

    over: Literal["sum", "mean"] = "sum"

    def __post_init__(self) -> None:
        require_choice(self, "over")

    def __call__(self, comparison: Comparison) -> Float[Tensor, "q"]:
        """One value per query.

        Args:
            comparison: Ignored cells are left out.

        Returns:
            (Q) >= 0, 0 for a query whose cells are all ignored. The gradient reaches every positive and negative.
        """
        scores, match, ignored = precise(comparison.scores), comparison.truth.match, comparison.truth.ignored
        cells = softplus(scores.where(~match, -scores))
        if ignored is not None:
            cells = cells.masked_fill(ignored, 0)
        values = cells.sum(dim=1)
        if self.over == "sum":
            return values
        counts = scores.shape[1] if ignored is None else (~ignored).sum(dim=1).clamp_min(1)
        return values / counts
