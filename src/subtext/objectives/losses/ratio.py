"""Ratio: one minus the softmax of the positive."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from subtext.core import Comparison
from subtext.ops.numerics import masked_logsumexp, precise


@dataclass(frozen=True)
class Ratio:
    """Ratio (Gong et al. 2024, eq. 5 and 6 as printed): one minus the softmax of the positive.

    value_q = 1/|P_q| sum_{p in P_q} 1 - exp(s_qp) / (exp(s_qp) + sum_{n in N_q} exp(s_qn))
    The paper prints a sum of such ratios and says that it is minimised, which would push positives down; minimising
    this raises them. Unlike its logarithm (InfoNCE) it is bounded: a pair that is far behind has no gradient.

    The temperature belongs to the similarity: the scores are already divided by it.

    Complexity:
        Time and memory Q C.

    Example:
        >>> from subtext.core import Truth
        >>> scores = torch.tensor([[3.0, 1.0, 2.0]]).log()
        >>> comparison = Comparison(scores, Truth(torch.tensor([[True, False, False]])))
        >>> round(Ratio()(comparison).item(), 4)  # 1 - 3 / (3 + 1 + 2)
        0.5
    """

    def __call__(self, comparison: Comparison) -> Float[Tensor, "q"]:
        """One value per query.

        Args:
            comparison: Ignored cells are left out of the sum.

        Returns:
            (Q) in [0, 1); 0 for a query without positives or without negatives. The gradient reaches every positive and
            negative.
        """
        scores, match = precise(comparison.scores), comparison.truth.match
        query, candidate = match.nonzero(as_tuple=True)
        negatives = masked_logsumexp(scores, comparison.truth.negative)[query]
        values = torch.sigmoid(negatives - scores[query, candidate])
        counts = match.sum(dim=1).clamp_min(1)
        return torch.zeros_like(scores[:, 0]).index_add(0, query, values) / counts
