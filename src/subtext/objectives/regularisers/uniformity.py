"""Uniformity: the vectors of a batch should spread over the space."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from subtext.core import Scene
from subtext.errors import RequirementError
from subtext.objectives.scene import batch_items
from subtext.ops.numerics import precise, product


@dataclass(frozen=True)
class Uniformity:
    """Uniformity (Wang and Isola 2020; PCME, Chun et al. 2021): vectors of a batch should be far from each other.

    value = ln mean over pairs a < b of exp(-steepness |z_a - z_b|^2), z all vectors of all images and all texts

    The authors' code samples 128 of them with replacement, some twice, at distance 0 from themselves. Here all count: a
    regulariser has no seed or epoch to sample by, and 128 vectors only estimate the mean over all pairs.

    steepness  above 0, per squared distance; 2 in both

    Takes     Scene whose comparisons hold their embeddings; those gathered from other processes count as well.
    Gives     () <= 0, 0 where all vectors are equal. The gradient reaches every vector.
    Raises    RequirementError for a steepness that is not above 0 and for a scene of scores alone.
    Cost      time (2 B K)^2 D, memory (2 B K)^2.

    >>> from subtext.core import Comparison, Embeddings, Truth
    >>> x, y = (Embeddings(torch.tensor([[[place]]]), torch.arange(1)) for place in (0.0, 1.0))
    >>> forward = Comparison(torch.zeros(1, 1), Truth(torch.ones(1, 1, dtype=torch.bool)), x, y)
    >>> Uniformity()(Scene(forward, forward.flip())).item()
    -2.0
    """

    steepness: float = 2.0

    def __post_init__(self) -> None:
        if not self.steepness > 0:
            raise RequirementError(f"Uniformity needs a steepness above 0; it got {self.steepness}")

    def __call__(self, scene: Scene) -> Float[Tensor, ""]:
        """One value for the batch."""
        vectors = torch.cat([precise(items.vectors).flatten(0, 1) for items in batch_items(scene, "Uniformity")])
        lengths = vectors.square().sum(dim=1)
        squares = (lengths[:, None] + lengths - 2 * product(vectors, vectors)).clamp_min(0)
        count = len(vectors)
        above = torch.ones(count, count, dtype=torch.bool, device=vectors.device).triu(1)
        exponents = (-self.steepness * squares).masked_fill(~above, -math.inf)
        return exponents.flatten().logsumexp(dim=0) - math.log(count * (count - 1) / 2)
