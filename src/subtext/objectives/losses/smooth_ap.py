"""Smooth-AP: average precision with sigmoids for steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from subtext.core import Comparison, require_choice
from subtext.errors import RequirementError
from subtext.objectives.scene import compare_draws
from subtext.ops.numerics import precise


@dataclass(frozen=True)
class SmoothAP:
    """Smooth-AP (Brown et al. 2020, eq. 8): a smooth average precision.

    value_q = 1 - 1/|P_q| sum_{p in P_q} rank+(p) / rank(p)
    rank(p) = 1 + sum_{c not p} 1 / (1 + exp((s_qp - s_qc) / temperature)) over positives and negatives; rank+ over the
    positives alone. As the temperature falls it becomes 1 - average precision.

    The paper's code works within one modality and keeps the query among the candidates and its positives, which no
    ranking can miss: average precision is then at least 1 over the size of a class. Here the truth decides: the query's
    column is a match for the paper's values, and ignored for unbiased ones. Between images and texts there is no such
    column, and the terms of both directions count half each.

    Args:
        temperature: Above 0, in score units; 0.01 in the paper, for cosines. Ranks further apart than about ten
            temperatures have no gradient.
        variant: "rows" as in the paper; or "released", as the code of Li et al. 2022 has it for samples: a positive of
            row q is ranked among the entries of column q, which is the same for a symmetric matrix only.
        draws: Whether every sample (view) of an item is a query, and a candidate, by itself, compared by inner
            products: all samples of a positive are positives, as Li et al. 2022 train PCME.

    Raises:
        RequirementError: If the temperature is not above 0, the variant is unknown, or the comparison lacks what it
            needs.

    Complexity:
        Time and memory M C over all M positives; with K draws of both sides K^3 times as much.

    Example:
        >>> from subtext.core import Truth
        >>> scores = torch.tensor([[0.9, 0.5, 0.1]])
        >>> whole = Comparison(scores, Truth(torch.tensor([[False, True, True]])))
        >>> round(SmoothAP()(whole).item(), 4)  # 1 - (1/2 + 2/3) / 2
        0.4167
    """

    temperature: float = 0.01
    variant: Literal["rows", "released"] = "rows"
    draws: bool = False

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise RequirementError(f"SmoothAP needs a temperature above 0; it got {self.temperature}")
        require_choice(self, "variant")

    def __call__(self, comparison: Comparison) -> Float[Tensor, "q"]:
        """One value per query.

        Args:
            comparison: Ignored cells are left out of every sum. With draws: embeddings on both sides. "released" needs
                as many candidates as queries.

        Returns:
            (Q) in [0, 1); 0 for a query without positives. The gradient reaches positives and close candidates.

        Raises:
            RequirementError: If "released" gets another number of candidates than of queries, or `draws` no embeddings.
        """
        queries = len(comparison.scores)
        if self.variant == "released" and queries != comparison.scores.shape[1]:
            raise RequirementError(
                f"SmoothAP with variant 'released' needs as many candidates as queries; it got {queries} x "
                f"{comparison.scores.shape[1]}; take variant 'rows', or train with pairs in one process"
            )
        if self.draws:
            comparison = compare_draws(comparison, "SmoothAP with draws")
        scores, match, negative = precise(comparison.scores), comparison.truth.match, comparison.truth.negative
        query, candidate = match.nonzero(as_tuple=True)
        own = scores[query, candidate][:, None]
        rivals = (scores.T if self.variant == "released" else scores)[query]
        ahead = torch.sigmoid((rivals - own) / self.temperature)
        itself = torch.zeros_like(match[query]).scatter(1, candidate[:, None], True)
        if self.variant == "released":
            match, negative = match.T, negative.T
        positive_ranks = 1 + ahead.masked_fill(~match[query] | itself, 0).sum(dim=1)
        rank = positive_ranks + ahead.masked_fill(~negative[query], 0).sum(dim=1)
        counts = comparison.truth.match.sum(dim=1)
        precision = torch.zeros_like(scores[:, 0]).index_add(0, query, positive_ranks / rank) / counts.clamp_min(1)
        return torch.where(counts > 0, 1 - precision, 0 * precision).view(queries, -1).mean(dim=1)
