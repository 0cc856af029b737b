"""Triplet loss over all negatives, the hardest one, or the hardest one below the positive."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from subtext.core import Comparison, require_choice
from subtext.errors import RequirementError
from subtext.ops.numerics import masked_max, precise

Negatives = Literal["all", "hardest", "semi-hard"]


@dataclass(frozen=True)
class Triplet:
    """Triplet hinge (VSE++, Faghri et al. 2018): positives score higher than negatives by a margin.

    value_q = 1/|P_q| sum_{p in P_q} V_qp,   with   [x]+ = max(0, x)   and
        all        V_qp = sum_{n in N_q} [margin + s_qn - s_qp]+             (VSE0, PVSE)
        hardest    V_qp = [margin + max_{n in N_q} s_qn - s_qp]+             (VSE++)
        semi-hard  V_qp = [margin + s_qn* - s_qp]+, n* the highest negative strictly below s_qp; where there is none,
                   the lowest negative (FaceNet, Schroff et al. 2015, section 3.2)
    The papers have one positive per query. Several are averaged here, so that every query counts the same.
    Reductions belong to the Term: VSE0 and VSE++ sum over queries; PVSE takes the mean over all Q x C cells for "all"
    and the mean over queries for "hardest".

    Args:
        margin: In score units, 0 or more; 0.2 in VSE++, 0.1 in PVSE.
        negatives: "all", "hardest" or "semi-hard", see above.

    Raises:
        RequirementError: If margin is below 0, or the kind of negatives is unknown.

    Complexity:
        Time and memory Q C, with one positive per query; "all" and "semi-hard" take |P| C over all positives.

    Example:
        >>> from subtext.core import Truth
        >>> scores = torch.tensor([[0.6, 0.5, 0.55], [0.3, 0.4, 0.45]])
        >>> comparison = Comparison(scores, Truth(torch.eye(2, 3, dtype=torch.bool)))
        >>> [round(value, 4) for value in Triplet(margin=0.1)(comparison).tolist()]  # 0 + 0.05, 0 + 0.15
        [0.05, 0.15]
    """

    margin: float = 0.2
    negatives: Negatives = "all"

    def __post_init__(self) -> None:
        if not self.margin >= 0:
            raise RequirementError(f"Triplet needs a margin of 0 or more, in score units; it got {self.margin}")
        require_choice(self, "negatives")

    def __call__(self, comparison: Comparison) -> Float[Tensor, "q"]:
        """One value per query.

        Args:
            comparison: Ignored cells are neither positive nor negative.

        Returns:
            (Q) >= 0; 0 without positives or without negatives. The gradient reaches positives and the negatives that
            break the margin, tied hardest negatives in equal shares.
        """
        scores, negative = precise(comparison.scores), comparison.truth.negative
        query, candidate = comparison.truth.match.nonzero(as_tuple=True)
        positive = scores[query, candidate]
        if self.negatives == "hardest":
            hardest = masked_max(scores, negative)[query]
        else:
            # A row for every positive; the matrix itself where every query has exactly one.
            single = torch.equal(query, torch.arange(len(scores), device=scores.device))
            rows, allowed = (scores, negative) if single else (scores[query], negative[query])
        if self.negatives == "all":
            # In place on the one new matrix: training holds no second copy of Q x C for the backward pass.
            excess = rows - (positive - self.margin)[:, None]
            values = excess.masked_fill_(~allowed, 0).relu_().sum(dim=1)
        else:
            if self.negatives == "semi-hard":
                below, lowest = masked_max(rows, allowed & (rows < positive[:, None])), -masked_max(-rows, allowed)
                hardest = torch.where(below > -math.inf, below, lowest.where(allowed.any(dim=1), -math.inf))
            # Minus infinity stands for a query without negatives: the hinge makes 0 of it, with a gradient of 0.
            values = (hardest - positive + self.margin).relu()
        counts = torch.bincount(query, minlength=len(scores)).clamp_min(1)
        return values.new_zeros(len(scores)).index_add(0, query, values) / counts
