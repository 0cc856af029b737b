"""Uniform weights: the baseline of every weighting."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from subtext.core import DIRECTIONS, Direction, Epoch, Scene
from subtext.errors import RequirementError
from subtext.objectives.scene import count_pairs, pairs_to_queries


@dataclass(frozen=True)
class Uniform:
    """Uniform weight (Thomas and Kovashka 2022, their control with Gamma = 0): every pair counts the same.

    weight_q = total / B
    over the B pairs of the whole batch, other processes' with them. A weighting whose weights sum to `total` changes
    two things, the scale of its term and the balance of pairs; this one changes the scale alone.

    total  the sum of the weights over the batch, above 0; the paper's lambda, 96 to 196 at B = 32
    of     direction whose queries and candidates are counted
    batch  pairs that `total` is for: others are given total * B / batch; 0: `total` whatever the batch

    Takes     Scene of pairs, or of images with all their texts (an image then counts as the sum of its texts); no
              Epoch.
    Gives     (Q), without gradient.
    Raises    RequirementError for a total that is not above 0 and a batch below 0.
    Cost      time and memory Q.

    >>> from subtext.core import Comparison, Truth
    >>> forward = Comparison(torch.zeros(2, 2), Truth(torch.eye(2, dtype=torch.bool)))
    >>> Uniform(total=6.0)(Scene(forward, forward.flip()), Epoch(0, 0)).tolist()
    [3.0, 3.0]
    """

    total: float
    of: Direction = DIRECTIONS[0]
    batch: int = 0

    def __post_init__(self) -> None:
        if not self.total > 0:
            raise RequirementError(f"Uniform needs a total above 0; it got {self.total}")
        if self.batch < 0:
            raise RequirementError(f"Uniform needs a batch of 0 or more pairs; it got {self.batch}")

    def __call__(self, scene: Scene, epoch: Epoch) -> Float[Tensor, "q"]:
        """One weight per query."""
        scores, pairs = scene.comparison(self.of).scores, count_pairs(scene)
        dtype = torch.promote_types(scores.dtype, torch.float32)
        weight = self.total_for(pairs) / pairs
        return pairs_to_queries(torch.full((pairs,), weight, dtype=dtype, device=scores.device), scene, self.of)

    def total_for(self, pairs: int) -> float:
        """The sum of the weights over a batch of this many pairs."""
        return self.total * pairs / self.batch if self.batch else self.total
