"""Listwise: the softmax over candidates should equal that of a teacher."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from subtext.core import Comparison
from subtext.errors import RequirementError
from subtext.ops.numerics import masked_logsumexp, precise


@dataclass(frozen=True)
class Listwise:
    """List-wise divergence (ListNet, Cao et al. 2007; Hinton et al. 2015): between softmaxes over the same candidates.

    value_q = sum_c p_c (log p_c - log s_c),   p = softmax of the relevance, s = softmax of the scores / temperature
    over all candidates that are not ignored. The relevance is the teacher's scores, already divided by a temperature.

    Args:
        temperature: Above 0, of the scores; a similarity may have divided them by another one already.

    Raises:
        RequirementError: If the temperature is not above 0, or the comparison has no relevance.

    Complexity:
        Time and memory Q C.

    Example:
        >>> from subtext.core import Truth
        >>> truth = Truth(torch.eye(1, 2, dtype=torch.bool), relevance=torch.tensor([[3.0, 1.0]]).log(),
        ...     scale="teacher")
        >>> flat = Comparison(torch.tensor([[1.0, 1.0]]), truth)
        >>> round(Listwise()(flat).item(), 4)  # 3/4 log(3/2) + 1/4 log(1/2)
        0.1308
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise RequirementError(f"Listwise needs a temperature above 0; it got {self.temperature}")

    def __call__(self, comparison: Comparison) -> Float[Tensor, "q"]:
        """One value per query.

        Args:
            comparison: With truth.relevance, such as `--with distil` supplies.

        Returns:
            (Q) >= 0, 0 where both are equal. The gradient reaches every score and never the relevance.

        Raises:
            RequirementError: If the comparison has no relevance.
        """
        truth = comparison.truth
        if truth.relevance is None:
            raise RequirementError(
                "Listwise needs truth.relevance, a teacher's scores; this comparison has none; train with a method "
                "that supplies them (distil)"
            )
        counted = torch.ones_like(truth.match) if truth.ignored is None else ~truth.ignored
        ours = precise(comparison.scores) / self.temperature
        targets = precise(truth.relevance).detach().to(ours.dtype)
        ours, targets = (logits - masked_logsumexp(logits, counted)[:, None] for logits in (ours, targets))
        return (targets.exp() * (targets - ours)).masked_fill(~counted, 0).sum(dim=1)
