"""Smooth-AP: average precision with sigmoids for steps."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from subtext.core import Comparison
from subtext.errors import RequirementError
from subtext.ops.numerics import precise


@dataclass(frozen=True)
class SmoothAP:
    """Smooth-AP (Brown et al. 2020, eq. 8): a smooth average precision.

    value_q = 1 - 1/|P_q| sum_{p in P_q} rank+(p) / rank(p)
    rank(p) = 1 + sum_{c not p} 1 / (1 + exp((s_qp - s_qc) / temperature)) over positives and negatives; rank+ over the
    positives alone. As the temperature falls it becomes 1 - average precision.

    temperature  above 0, in score units; 0.01 in the paper, for cosines. Ranks further apart than about ten
                 temperatures have no gradient

    The paper's code works within one modality and keeps the query among the candidates and its positives, which no
    ranking can miss: average precision is then at least 1 over the size of a class. Here the truth decides: the query's
    column is a match for the paper's values, and ignored for unbiased ones. Between images and texts there is no such
    column, and the terms of both directions count half each.

    Takes     Comparison; ignored cells are left out of every sum.
    Gives     (Q) in [0, 1); 0 for a query without positives. The gradient reaches positives and close candidates.
    Raises    RequirementError for a temperature that is not above 0.
    Cost      time and memory M C over all M positives.

    >>> from subtext.core import Truth
    >>> scores = torch.tensor([[0.9, 0.5, 0.1]])
    >>> whole = Comparison(scores, Truth(torch.tensor([[False, True, True]])))
    >>> round(SmoothAP()(whole).item(), 4)  # 1 - (1/2 + 2/3) / 2
    0.4167
    """

    temperature: float = 0.01

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise RequirementError(f"SmoothAP needs a temperature above 0; it got {self.temperature}")

    def __call__(self, comparison: Comparison) -> Float[Tensor, "q"]:
        """One value per query."""
        scores, match = precise(comparison.scores), comparison.truth.match
        query, candidate = match.nonzero(as_tuple=True)
        ahead = torch.sigmoid((scores[query] - scores[query, candidate][:, None]) / self.temperature)
        itself = torch.zeros_like(match[query]).scatter(1, candidate[:, None], True)
        positive_ranks = 1 + ahead.masked_fill(~match[query] | itself, 0).sum(dim=1)
        rank = positive_ranks + ahead.masked_fill(~comparison.truth.negative[query], 0).sum(dim=1)
        counts = match.sum(dim=1)
        precision = torch.zeros_like(scores[:, 0]).index_add(0, query, positive_ranks / rank) / counts.clamp_min(1)
        return torch.where(counts > 0, 1 - precision, 0 * precision)
