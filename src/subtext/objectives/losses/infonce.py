"""InfoNCE: a softmax over candidates, with several positives per query."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from subtext.core import Comparison
from subtext.errors import RequirementError
from subtext.ops.numerics import masked_logsumexp, precise


@dataclass(frozen=True)
class InfoNCE:
    """InfoNCE (van den Oord et al. 2018, eq. 4; CLIP, Radford et al. 2021): cross entropy of a softmax over candidates.

    value_q = 1/|P_q| sum_{p in P_q} -log( exp(s_qp) / sum_{c in D_qp} exp(s_qc) )
    D_qp is p and all negatives, without the other positives: the value can reach 0 for any number of them. With
    `compete` D_qp is all positives and negatives (SupCon, Khosla et al. 2020, eq. 2), and the value is at least
    log |P_q|. With one positive both are the cross-entropy of a row of scores.

    The temperature belongs to the similarity: scores are already divided by it.

    Args:
        compete: Whether positives of one query compete with each other.
        label_smoothing: In [0, 1): share of the target spread evenly over D_qp, p included; 0 in CLIP.

    Raises:
        RequirementError: If label_smoothing is outside [0, 1).

    Complexity:
        Time and memory Q C.

    Example:
        >>> from subtext.core import Truth
        >>> scores = torch.tensor([[3.0, 1.0, 2.0]]).log()
        >>> comparison = Comparison(scores, Truth(torch.tensor([[True, False, False]])))
        >>> round(InfoNCE()(comparison).exp().item(), 4)  # -log(3 / (3 + 1 + 2)) = log 2
        2.0
    """

    compete: bool = False
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 1:
            raise RequirementError(
                f"InfoNCE needs a label_smoothing of at least 0 and below 1; it got {self.label_smoothing}"
            )

    def __call__(self, comparison: Comparison) -> Float[Tensor, "q"]:
        """One value per query.

        Args:
            comparison: Ignored cells are left out of every sum.

        Returns:
            (Q) >= 0; 0 for a query without positives, and without negatives unless positives compete. The gradient
            reaches every positive and negative.
        """
        scores, match, negative = precise(comparison.scores), comparison.truth.match, comparison.truth.negative
        query, candidate = match.nonzero(as_tuple=True)
        positive = scores[query, candidate]
        if self.compete:
            values = masked_logsumexp(scores, match | negative)[query] - positive
        else:
            # log(1 + exp(negatives - positive)) is precise also where the positive is far ahead.
            values = softplus(masked_logsumexp(scores, negative)[query] - positive)
        counts = match.sum(dim=1)
        if self.label_smoothing:
            total = scores.masked_fill(~negative, 0).sum(dim=1)[query]
            members = 1 + negative.sum(dim=1)[query]
            if self.compete:
                total = total + scores.masked_fill(~match, 0).sum(dim=1)[query] - positive
                members = members + counts[query] - 1
            values = values + self.label_smoothing * (positive - (total + positive) / members)
        return torch.zeros_like(scores[:, 0]).index_add(0, query, values) / counts.clamp_min(1)
