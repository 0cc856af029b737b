"""Soft contrastive loss: binary classification of every pair, with soft labels."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from subtext.core import Comparison
from subtext.errors import RequirementError
from subtext.ops.numerics import precise

MIXED = "mixed"
"""Scale of a relevance that is the share of a mixed image."""


@dataclass(frozen=True)
class SoftContrastive:
    """Soft contrastive (PCME, Chun et al. 2021, eq. 4; PCME++, Chun 2024, eq. 2): classifies pairs by their log odds.

    value_q = sum_c h(s_qc, t_qc) + pseudo * sum_c h(s_qc, t'_qc),   h(s, t) = log(1 + exp(s)) - t s
    t = (1 - smoothing) m + smoothing (1 - m)     m: 1 for a positive, 0 for others, or the share of a mixed image
    t' = the largest t of the row for every candidate that scores no less than the one it belongs to, else t

    Scores are log odds: h is -ln p of a positive and -ln(1 - p) of a negative. With one pair of samples that is
    the loss of PCME's eq. 4; its code averages p over pairs of samples first, as the score here does.

    Without both it is the sigmoid loss of the same scores, summed over candidates.

    Args:
        pseudo: Weight of the second sum, in which candidates that outscore the positive count as positives too, as many
            of them are (pseudo-positives; 0.1 in PCME++); 0 for PCME. Of several positives the best is the threshold.
        smoothing: In [0, 0.5); 1e-4 in PCME++.

    Raises:
        RequirementError: If pseudo is below 0, or smoothing is outside [0, 0.5).

    Complexity:
        Time and memory Q C.

    Example:
        >>> from subtext.core import Truth
        >>> comparison = Comparison(torch.tensor([[0.0, 0.0]]), Truth(torch.tensor([[True, False]])))
        >>> round(SoftContrastive()(comparison).exp().item(), 4)  # 2 log 2
        4.0
    """

    pseudo: float = 0.0
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        if not self.pseudo >= 0:
            raise RequirementError(f"SoftContrastive needs pseudo of 0 or more; it got {self.pseudo}")
        if not 0 <= self.smoothing < 0.5:
            raise RequirementError(
                f"SoftContrastive needs a smoothing of at least 0 and below 0.5; it got {self.smoothing}"
            )

    def __call__(self, comparison: Comparison) -> Float[Tensor, "q"]:
        """One value per query.

        Args:
            comparison: Ignored cells are left out. Where truth.relevance has the scale "mixed" it is m.

        Returns:
            (Q) >= 0, 0 for a query whose cells are all ignored. The gradient reaches every cell, but not the labels of
            pseudo-positives.
        """
        scores, truth, ignored = precise(comparison.scores), comparison.truth, comparison.truth.ignored
        share = truth.relevance if truth.relevance is not None and truth.scale == MIXED else truth.match
        target = share.to(scores.dtype)
        if self.smoothing:
            target = target * (1 - 2 * self.smoothing) + self.smoothing
        weighted = target
        if self.pseudo:
            counted = target if ignored is None else target.masked_fill(ignored, -1)
            largest = counted.amax(dim=1, keepdim=True)
            outscored = scores.detach().masked_fill(counted < largest, -math.inf).amax(dim=1, keepdim=True)
            weighted = target + self.pseudo * torch.where(scores.detach() >= outscored, largest, target)
        cells = (1 + self.pseudo) * softplus(scores) - weighted * scores
        if ignored is not None:
            cells = cells.masked_fill(ignored, 0)
        return cells.sum(dim=1)
