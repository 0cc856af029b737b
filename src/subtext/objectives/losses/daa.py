"""DAA: average semantic precision with sigmoids for steps: lists are ranked by their relevance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from subtext.core import Comparison, require_choice
from subtext.errors import RequirementError
from subtext.objectives.scene import compare_draws
from subtext.ops.compiled.soft_rank import soft_above, soft_rank
from subtext.ops.numerics import precise


@dataclass(frozen=True)
class DAA:
    """Differentiable ASP approximation (Li et al. 2022, eq. 11 and 12): ranks candidates by their relevance.

    value_q = 1 - 1/|C| sum_c min(rank_C(c), rank_S(c)) / max(rank_C(c), rank_S(c))
    with soft ranks (`ops/compiled`) of the relevance C and of the scores S in the query's row. As the temperature
    falls, and nothing is tied, it becomes 1 - ASP. The best possible value is 0, that of a random order about 0.5.

    Args:
        temperature: Above 0, of both ranks, in units of score and of relevance. The paper does not print it; its code
            has 0.01 for inner products and 0.001 for scores that are sigmoids.
        variant: "rows" as in the paper, except that a candidate is not ranked against itself (eq. 11 adds half a rank),
            as in its code; or "released", for comparison with its checkpoints. That code ranks the candidate of row q
            among the entries of column q, of scores and of relevance alike, which is the same for a symmetric matrix
            only.
        draws: Whether every sample (view) of an item is in the list by itself, as in the probabilistic code: all inner
            products of samples, each with the relevance of its items. "released" then compares the queries' samples
            with each other, and never reads the other modality.

    Raises:
        RequirementError: If the temperature is not above 0, the variant is unknown, or the comparison lacks what it
            needs.

    Complexity:
        Memory Q C; time Q C^2, and less for long float32 rows on a CPU. With K draws of both sides K^2 and K^3 times as
        much.

    Example:
        >>> from subtext.core import Truth
        >>> truth = Truth(torch.eye(1, 3, dtype=torch.bool), relevance=torch.tensor([[0.9, 0.5, 0.1]]), scale="made")
        >>> whole = Comparison(torch.tensor([[0.3, 0.8, 0.1]]), truth)
        >>> round(DAA()(whole).item(), 4)  # ranks 1 2 3 against 2 1 3: 1 - (1/2 + 1/2 + 1) / 3
        0.3333
    """

    temperature: float = 0.01
    variant: Literal["rows", "released"] = "rows"
    draws: bool = False

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise RequirementError(f"DAA needs a temperature above 0; it got {self.temperature}")
        require_choice(self, "variant")

    def __call__(self, comparison: Comparison) -> Float[Tensor, "q"]:
        """One value per query.

        Args:
            comparison: With truth.relevance; ignored cells are in no list. With draws: embeddings on both sides.
                "released" needs as many candidates as queries.

        Returns:
            (Q) in [0, 1), 0 for a query without candidates. The gradient reaches all scores within about ten
            temperatures of each other, and never the relevance.
        """
        scores, relevance, counted = self._lists(comparison)
        relevance_ranks = self._ranks(relevance.detach(), counted).to(scores.dtype)
        ranks = self._ranks(scores, counted)
        agreement = torch.minimum(ranks, relevance_ranks) / torch.maximum(ranks, relevance_ranks)
        if counted is None:
            values = 1 - agreement.mean(dim=1)
        else:
            length = counted.sum(dim=1)
            values = (1 - agreement).masked_fill(~counted, 0).sum(dim=1) / length.clamp_min(1)
        return values.view(len(comparison.scores), -1).mean(dim=1)

    def _lists(self, comparison: Comparison) -> tuple[Tensor, Tensor, Tensor | None]:
        """Scores and relevance of every list, and which cells are in it; None for all."""
        truth, scores = comparison.truth, precise(comparison.scores)
        if truth.relevance is None:
            raise RequirementError(
                "DAA needs a relevance for every query and candidate (Truth.relevance); this comparison has none; "
                "train with the method daa, or compose the scene with one"
            )
        queries, candidates = scores.shape
        if self.variant == "released" and queries != candidates:
            raise RequirementError(
                f"DAA with variant 'released' needs as many candidates as queries; it got {queries} x {candidates}; "
                "take variant 'rows', or train with pairs in one process"
            )
        if self.draws:
            comparison = compare_draws(comparison, "DAA with draws", within=self.variant == "released")
            truth, scores = comparison.truth, comparison.scores
        assert truth.relevance is not None
        return scores, precise(truth.relevance), None if truth.ignored is None else ~truth.ignored

    def _ranks(self, lists: Float[Tensor, "q c"], counted: Bool[Tensor, "q c"] | None) -> Float[Tensor, "q c"]:
        if self.variant == "rows":
            return soft_rank(lists, self.temperature, counted=counted)
        # Cell (q, c) among the cells (a, q) of column q, but that with a = c.
        column, inside = lists.T, None if counted is None else counted.T
        itself = torch.sigmoid((column - lists) / self.temperature)
        if inside is not None:
            itself = itself * inside
        return 1 + soft_above(lists, column, self.temperature, counted=inside) - itself
