"""HAL: a log-sum-exp over negatives, in which hubs dominate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from subtext.core import Comparison, require_choice
from subtext.errors import RequirementError
from subtext.ops.numerics import masked_logsumexp, precise

Diagonal = Literal["shifted", "one", "none"]


@dataclass(frozen=True)
class HAL:
    """Hubness-aware loss (Liu et al. 2020): weights negatives exponentially by their similarity.

    value_q = 1/gamma log(1 + D + sum_{n in N_q} exp(gamma (s_qn - threshold))) - 1/2 log(1 + [s_qp]+)
    The second part is a mean over the positives p. The terms of both directions, each a mean over queries, add up to
    the loss of the authors' code, which has log(1 + [s_qp]+) once per pair: hence the half.

    This is the paper's loss without a memory bank; `Hubs` (mining) changes the scores as the bank's weights do.

    Args:
        gamma: Above 0; 30 on COCO, 60 on Flickr30K.
        threshold: In score units, 0.3 on COCO, 0.7 on Flickr30K.
        diagonal: D, the contribution of the pair's own score to the sum, which should be none. Their code sets that
            score to 0 and sums it: "shifted", D = exp(-gamma threshold); with the bank of `Hubs`, whose weight for it
            is also 0: "one", D = 1. "none": D = 0.

    Raises:
        RequirementError: If gamma is not above 0, or the diagonal is unknown.

    Complexity:
        Time and memory Q C.

    Example:
        >>> from subtext.core import Truth
        >>> whole = Comparison(torch.tensor([[0.0, 0.3]]), Truth(torch.tensor([[True, False]])))
        >>> round(HAL(gamma=1.0, diagonal="none")(whole).exp().item(), 4)  # log(1 + 1) - log(1) / 2
        2.0
    """

    gamma: float = 30.0
    threshold: float = 0.3
    diagonal: Diagonal = "shifted"

    def __post_init__(self) -> None:
        if not self.gamma > 0:
            raise RequirementError(f"HAL needs a gamma above 0; it got {self.gamma}")
        require_choice(self, "diagonal")

    def __call__(self, comparison: Comparison) -> Float[Tensor, "q"]:
        """One value per query.

        Args:
            comparison: Of plain cosines; ignored cells are left out.

        Returns:
            (Q), at least -log(2) / 2 for cosines. The gradient reaches every negative, and positives above 0.
        """
        scores, match = precise(comparison.scores), comparison.truth.match
        exponents = self.gamma * (scores - self.threshold)
        total = masked_logsumexp(exponents, comparison.truth.negative)
        counts = match.sum(dim=1)
        if self.diagonal != "none":
            diagonal = torch.full_like(total, -self.gamma * self.threshold if self.diagonal == "shifted" else 0.0)
            total = torch.where(counts > 0, torch.logaddexp(total, diagonal), total)
        pulls = torch.log1p(scores.relu()).masked_fill(~match, 0).sum(dim=1) / counts.clamp_min(1)
        return softplus(total) / self.gamma - pulls / 2
