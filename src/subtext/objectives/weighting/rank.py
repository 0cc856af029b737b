"""Rank weights: a pair counts more, the worse the rank of its partner."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from subtext.core import Direction, Epoch, Scene
from subtext.errors import RequirementError
from subtext.ops.numerics import masked_max, precise


@dataclass(frozen=True)
class Rank:
    """Rank weight (Mithun et al. 2018): badly ranked pairs count up to twice.

    weight_q = 1 + strength / (R - r + 1)
    with r in 1..R the rank of the positive in the query's row, and R the number of candidates that can be ranked. The
    best rank gives 1 + strength / R, the last 1 + strength; nearly flat but for the last ranks. Only candidates with a
    strictly greater score stand before the positive: the authors' unstable sort leaves ties to chance. Of several
    positives the best one is ranked, among the negatives alone, so R is 1 + the query's negatives.

    of        direction whose scores are ranked; a term on the other direction takes a weighting of its own
    strength  0 or more, 1 in the paper; 0 gives ones

    Takes     Scene; no Epoch.
    Gives     (Q) in (1, 1 + strength], without gradient; 1 + strength for a query without positives.
    Raises    RequirementError for a strength below 0.
    Cost      time and memory Q C.

    >>> import torch
    >>> from subtext.core import Comparison, Truth
    >>> scores = torch.tensor([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [0.7, 0.9, 0.8]])
    >>> forward = Comparison(scores, Truth(torch.eye(3, dtype=torch.bool)))
    >>> Rank(of="image_to_text")(Scene(forward, forward.flip()), Epoch(0, 0)).tolist()  # ranks 3, 2, 2
    [2.0, 1.5, 1.5]
    """

    of: Direction
    strength: float = 1.0

    def __post_init__(self) -> None:
        if not self.strength >= 0:
            raise RequirementError(f"Rank needs a strength of 0 or more; it got {self.strength}")

    def __call__(self, scene: Scene, epoch: Epoch) -> Float[Tensor, "q"]:
        """One weight per query."""
        comparison = scene.comparison(self.of)
        scores, negative = precise(comparison.scores).detach(), comparison.truth.negative
        best = masked_max(scores, comparison.truth.match)
        behind = (negative & (scores <= best[:, None])).sum(dim=1)
        return 1 + self.strength / (behind + 1).to(scores.dtype)
