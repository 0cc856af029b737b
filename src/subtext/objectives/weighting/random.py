"""Random weights: the control for the effect of uneven weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from subtext.core import DIRECTIONS, Direction, Epoch, Scene
from subtext.errors import RequirementError
from subtext.objectives.scene import batch_items, pairs_to_queries
from subtext.ops import draw


@dataclass(frozen=True)
class Random:
    """Random weight (Thomas and Kovashka 2022, their control in Table 3): pairs count unevenly, for no reason.

    weight = total * softmax(u) over the B pairs of the whole batch, u uniform in [0, 1)
    drawn for each pair anew in every epoch, from (seed, epoch, pair), and the same in both directions. The largest
    weight is at most e times the smallest.

    total  the sum of the weights over the batch, above 0; the paper's lambda, 96 to 196 at B = 32
    of     direction whose queries are weighted
    batch  pairs that `total` is for: others are given total * B / batch; 0: `total` whatever the batch

    Takes     Scene of pairs, or of images with all their texts (an image then counts as the sum of its texts), with
              their embeddings: pairs are known by the ids of their texts. Of Epoch number and seed.
    Gives     (Q) above 0, without gradient.
    Raises    RequirementError for a total that is not above 0, a batch below 0, and a scene without embeddings.
    Cost      time and memory B.

    >>> from subtext.core import Comparison, Embeddings, Truth
    >>> items = Embeddings(torch.eye(2)[:, None], torch.tensor([7, 3]))
    >>> forward = Comparison(torch.eye(2), Truth(torch.eye(2, dtype=torch.bool)), items, items)
    >>> round(Random(total=6.0)(Scene(forward, forward.flip()), Epoch(0, 0)).sum().item(), 4)
    6.0
    """

    total: float
    of: Direction = DIRECTIONS[0]
    batch: int = 0

    def __post_init__(self) -> None:
        if not self.total > 0:
            raise RequirementError(f"Random needs a total above 0; it got {self.total}")
        if self.batch < 0:
            raise RequirementError(f"Random needs a batch of 0 or more pairs; it got {self.batch}")

    def __call__(self, scene: Scene, epoch: Epoch) -> Float[Tensor, "q"]:
        """One weight per query."""
        scores, texts = scene.comparison(self.of).scores, batch_items(scene)[1]
        keys = texts.ids.cpu().numpy()
        samples = draw.uniform(keys, seed=epoch.seed, epoch=epoch.draws, purpose="random weight")[:, 0]
        dtype = torch.promote_types(scores.dtype, torch.float32)
        chances = torch.from_numpy(samples).to(device=scores.device, dtype=dtype).softmax(dim=0)
        return pairs_to_queries(self.total_for(len(texts)) * chances, scene, self.of)

    def total_for(self, pairs: int) -> float:
        """The sum of the weights over a batch of this many pairs."""
        return self.total * pairs / self.batch if self.batch else self.total
