"""Density weights: pairs in dense regions of both modalities count more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from subtext.core import DIRECTIONS, Direction, Epoch, Scene
from subtext.errors import RequirementError
from subtext.objectives.scene import batch_items, count_pairs, pairs_to_queries

TABLE = "density"
"""Name in Epoch.table of the scores, one per training text, in [0, 1]."""


@dataclass(frozen=True)
class Density:
    """Density weight (Amrani et al. 2021): pairs in regions that are dense in both modalities count more.

    p_i is the multimodal density of pair i (`ops.density`), from 0 for the sparsest pair of the data set to 1 for the
    densest, computed once from fixed features, as a measure of how likely image and text belong together.
        sum      weight = total * p_i / sum_j p_j over the pairs of the batch     (1 where all p are 0)
        softmax  weight = total * softmax(p)
        none     weight = p_i, the paper's own; `total` is not read
    The paper's code was never published: this class and `ops.density` follow its abstract and accounts of others.

    total  the sum of the weights over the batch, above 0
    scale  normalisation of p; the sum is comparable with other weightings
    of     direction whose queries are weighted
    batch  pairs that `total` is for: others are given total * B / batch; 0: `total` whatever the batch

    Takes     Scene of pairs, or of images with all their texts (an image then counts as the sum of its texts), with
              their embeddings; Epoch.table with "density", by the row of the pair's text.
    Gives     (Q) >= 0, without gradient. Without a table, as in validation, every pair counts total / B, or 1.
    Raises    RequirementError for a total that is not above 0, an unknown scale, a batch below 0, and a table that
              lacks the name.
    Cost      time and memory B.

    >>> from subtext.core import Comparison, Embeddings, Truth
    >>> items = Embeddings(torch.eye(2)[:, None], torch.tensor([2, 0]))
    >>> forward = Comparison(torch.eye(2), Truth(torch.eye(2, dtype=torch.bool)), items, items)
    >>> epoch = Epoch(0, 0, table={"density": torch.tensor([0.25, 0.5, 0.75])})
    >>> Density(total=4.0)(Scene(forward, forward.flip()), epoch).tolist()
    [3.0, 1.0]
    """

    total: float
    scale: Literal["sum", "softmax", "none"] = "sum"
    of: Direction = DIRECTIONS[0]
    batch: int = 0

    def __post_init__(self) -> None:
        if not self.total > 0:
            raise RequirementError(f"Density needs a total above 0; it got {self.total}")
        if self.scale not in ("sum", "softmax", "none"):
            raise RequirementError(
                f"Density needs scale 'sum', 'softmax' or 'none'; it got '{self.scale}'; name one of these"
            )
        if self.batch < 0:
            raise RequirementError(f"Density needs a batch of 0 or more pairs; it got {self.batch}")

    def __call__(self, scene: Scene, epoch: Epoch) -> Float[Tensor, "q"]:
        """One weight per query."""
        scores, pairs = scene.comparison(self.of).scores, count_pairs(scene)
        dtype = torch.promote_types(scores.dtype, torch.float32)
        if epoch.table is None:
            values = torch.ones(pairs, dtype=dtype, device=scores.device)
        elif TABLE not in epoch.table:
            raise RequirementError(
                f"Density reads the table '{TABLE}'; this epoch has {', '.join(sorted(epoch.table))}; train with the "
                "method that supplies it (density)"
            )
        else:
            table = epoch.table[TABLE]
            values = table[batch_items(scene)[1].ids.to(table.device)].to(device=scores.device, dtype=dtype)
        if self.scale == "none":
            return pairs_to_queries(values, scene, self.of)
        total = self.total_for(pairs)
        if self.scale == "softmax":
            return pairs_to_queries(total * values.softmax(dim=0), scene, self.of)
        # All zero: equal weights.
        shares = torch.where(values.sum() > 0, values, torch.ones_like(values))
        return pairs_to_queries(total * shares / shares.sum(), scene, self.of)

    def total_for(self, pairs: int) -> float:
        """The sum of the weights over a batch of this many pairs; for "none" the most that it can be."""
        if self.scale == "none":
            return float(pairs)
        return self.total * pairs / self.batch if self.batch else self.total
