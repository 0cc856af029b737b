"""Maximum mean discrepancy between the views of images and the views of texts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from subtext.core import Scene
from subtext.errors import RequirementError
from subtext.objectives.scene import batch_items
from subtext.ops.numerics import precise, product


@dataclass(frozen=True)
class MMD:
    """Maximum mean discrepancy (PVSE, Song and Soleymani 2019): both modalities should have one distribution.

    value = mean_{a,b} k(x_a, x_b) - 2 mean_{a,b} k(x_a, y_b) + mean_{a,b} k(y_a, y_b),   k(a, b) = exp(-gamma |a - b|)
    over all views of all images, x, and of all texts, y, the diagonal with them (the biased estimate). The kernel takes
    the plain distance, as the authors' code does although it calls the kernel radial; `squared` gives exp(-gamma d^2).

    gamma    above 0, per unit of distance; 0.5 in PVSE
    squared  whether the kernel takes the squared distance

    PVSE adds it where K > 1 alone; that is the recipe's choice, since one view has a distribution as well.

    Takes     Scene whose comparisons hold their embeddings; of the candidates those of pairs, here or gathered.
    Gives     () >= 0, 0 for equal distributions. The gradient reaches every vector; two equal vectors have none.
    Raises    RequirementError for a gamma that is not above 0 and a scene without embeddings.
    Cost      time (B K)^2 D, memory (B K)^2.

    >>> from subtext.core import Comparison, Embeddings, Truth
    >>> x = Embeddings(torch.tensor([[[0.0, 0.0]], [[1.0, 0.0]]]), torch.arange(2))
    >>> y = Embeddings(torch.tensor([[[0.0, 1.0]], [[1.0, 1.0]]]), torch.arange(2))
    >>> forward = Comparison(torch.zeros(2, 2), Truth(torch.eye(2, dtype=torch.bool)), x, y)
    >>> round(MMD()(Scene(forward, forward.flip())).item(), 6)  # 1 - exp(-sqrt(2) / 2)
    0.506931
    """

    gamma: float = 0.5
    squared: bool = False

    def __post_init__(self) -> None:
        if not self.gamma > 0:
            raise RequirementError(f"MMD needs a gamma above 0; it got {self.gamma}")

    def __call__(self, scene: Scene) -> Float[Tensor, ""]:
        """One value for the batch."""
        images, texts = (precise(items.vectors).flatten(0, 1) for items in batch_items(scene, "MMD"))
        within = self._kernel(images, images).mean() + self._kernel(texts, texts).mean()
        return within - 2 * self._kernel(images, texts).mean()

    def _kernel(self, left: Float[Tensor, "n d"], right: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
        lengths = left.square().sum(dim=1)[:, None] + right.square().sum(dim=1)[None, :]
        squares = lengths - 2 * product(left, right)
        # Below the rounding error two vectors are equal: the root has no finite slope there and would magnify rounding.
        # That concerns the diagonal and images that are twice in a batch.
        different = squares > 16 * torch.finfo(squares.dtype).eps * lengths
        squares = squares.where(different, 1)
        distances = squares if self.squared else squares.sqrt()
        return torch.exp(-self.gamma * distances).where(different, 1)
