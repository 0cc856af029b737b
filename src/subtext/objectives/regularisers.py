"""Penalties of a full batch: Scene -> one value, never weighted by sample."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from subtext.core import Embeddings, Scene, require_choice
from subtext.errors import RequirementError
from subtext.objectives.scene import batch_items
from subtext.ops.numerics import precise, product, unit


@dataclass(frozen=True)
class KL:
    """Divergence from N(0, 1) (PCME, Chun et al. 2021, section 3.3; PCME++, Chun 2024): against vanishing deviations.

    value = -1/2 sum over items and dimensions of (1 + l - m^2 - exp(l)),   l = 2 log_std, the log of the variance
    for images + the same for texts. m is the mean of an item's vectors: of its samples, or mu.

    Args:
        modality: "both", "image" or "text". Where processes share a batch, each modality has a share of its own.
        over: "sum" of items and dimensions as in PCME, "mean" of them as in PCME++.
        published: l = log_std, as in PCME's code, which samples with the same number as a log deviation; the minimum is
            still at a deviation of 1.

    Raises:
        RequirementError: If a modality has no deviations, or a setting is unknown.

    Complexity:
        B K D.

    Example:
        >>> from subtext.core import Comparison, Truth
        >>> x = Embeddings(torch.zeros(1, 1, 1), torch.arange(1), log_std=torch.full((1, 1, 1), 0.5))
        >>> forward = Comparison(torch.zeros(1, 1), Truth(torch.ones(1, 1, dtype=torch.bool)), x, x)
        >>> round(KL()(Scene(forward, forward.flip())).item(), 4)  # 2 * (e - 2) / 2
        0.7183
    """

    modality: Literal["both", "image", "text"] = "both"
    over: Literal["sum", "mean"] = "sum"
    published: bool = False

    def __post_init__(self) -> None:
        require_choice(self, "modality")
        require_choice(self, "over")

    def __call__(self, scene: Scene) -> Float[Tensor, ""]:
        """One value for the batch.

        Args:
            scene: Comparisons with embeddings that have log_std, as gaussian heads make them.

        Returns:
            () >= 0. The gradient reaches vectors and deviations of this process's pairs.

        Raises:
            RequirementError: See the class.
        """
        values = []
        for side, items in _sides(scene, self.modality):
            if items is None or items.log_std is None:
                raise RequirementError(
                    f"KL needs the deviations of every {side}, which gaussian heads give; this batch has none; give "
                    f"the {side} branch a gaussian head, or leave the penalty out"
                )
            log_variance = precise(items.log_std).mean(dim=1) * (1 if self.published else 2)
            means = precise(items.vectors).mean(dim=1)
            cells = -0.5 * (1 + log_variance - means.square() - log_variance.exp())
            if self.over == "mean":
                values.append(cells.mean(dim=1).mean())
            else:
                # The mean of this process's items times the full batch: this process's share of the sum.
                values.append(cells.sum(dim=1).mean() * len(batch_items(scene)[side == "text"]))
        return torch.stack(values).sum()


def _sides(scene: Scene, modality: str) -> list[tuple[str, Embeddings | None]]:
    """The modalities that a penalty reads, each with its items of this process."""
    sides = (("image", scene.image_to_text.queries), ("text", scene.text_to_image.queries))
    return [side for side in sides if modality in ("both", side[0])]


@dataclass(frozen=True)
class MMD:
    """Maximum mean discrepancy (PVSE, Song and Soleymani 2019): gives both modalities the same distribution.

    value = mean_{a,b} k(x_a, x_b) - 2 mean_{a,b} k(x_a, y_b) + mean_{a,b} k(y_a, y_b),   k(a, b) = exp(-gamma |a - b|)
    over all views of all images, x, and of all texts, y, the diagonal with them (the biased estimate). The kernel takes
    the plain distance, as the authors' code does although it calls the kernel radial; `squared` gives exp(-gamma d^2).

    PVSE adds it where K > 1 alone; that is the recipe's choice, since one view has a distribution as well.

    Args:
        gamma: Above 0, per unit of distance; 0.5 in PVSE.
        squared: Whether the kernel takes the squared distance.

    Raises:
        RequirementError: If gamma is not above 0, or the scene has no embeddings.

    Complexity:
        Time (B K)^2 D, memory (B K)^2.

    Example:
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
        """One value for the batch.

        Args:
            scene: Comparisons with embeddings; candidates that belong to pairs are read, here or gathered.

        Returns:
            () >= 0, 0 for equal distributions. The gradient reaches every vector; two equal vectors have none.
        """
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


@dataclass(frozen=True)
class Uniformity:
    """Uniformity (Wang and Isola 2020; PCME, Chun et al. 2021): moves the vectors of a batch away from each other.

    value = ln mean over pairs a < b of exp(-steepness |z_a - z_b|^2), z all vectors of all images and all texts

    The authors' code samples 128 of them with replacement, some twice, at distance 0 from themselves. Here all count: a
    regulariser has no seed or epoch to sample by, and 128 vectors only estimate the mean over all pairs.

    Args:
        steepness: Above 0, per squared distance; 2 in both.

    Raises:
        RequirementError: If the steepness is not above 0, or the scene has scores alone.

    Complexity:
        Time (2 B K)^2 D, memory (2 B K)^2.

    Example:
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
        """One value for the batch.

        Args:
            scene: Comparisons with embeddings; those gathered from other processes count as well.

        Returns:
            () <= 0, 0 where all vectors are equal. The gradient reaches every vector.
        """
        vectors = torch.cat([precise(items.vectors).flatten(0, 1) for items in batch_items(scene, "Uniformity")])
        lengths = vectors.square().sum(dim=1)
        squares = (lengths[:, None] + lengths - 2 * product(vectors, vectors)).clamp_min(0)
        count = len(vectors)
        above = torch.ones(count, count, dtype=torch.bool, device=vectors.device).triu(1)
        exponents = (-self.steepness * squares).masked_fill(~above, -math.inf)
        return exponents.flatten().logsumexp(dim=0) - math.log(count * (count - 1) / 2)


@dataclass(frozen=True)
class ViewDiversity:
    """View diversity (PVSE, Song and Soleymani 2019): makes the residuals of views different.

    value = mean_n |G_n| / K^2 for images + the same for texts,   G_n = R_n R_n^T with its diagonal set to 0
    with R_n the K residuals of item n, each over its length, and |.| the Frobenius norm. It reads the residuals and not
    the views, which share the global feature. PIE-Net's residuals come from a sigmoid, so their cosines are above 0 and
    the norm can be small only where they are near orthogonal.

    Args:
        modality: "both", "image" or "text". Where processes share a batch, each modality has a share of its own.

    Raises:
        RequirementError: If a modality has no residuals.

    Complexity:
        Time B K^2 D, memory B K^2.

    Example:
        >>> from subtext.core import Comparison, Truth
        >>> residuals = torch.tensor([[[1.0, 0.0], [3.0, 4.0]]])  # one item, cosine 0.6
        >>> x = Embeddings(residuals, torch.arange(1), residuals=residuals)
        >>> forward = Comparison(torch.zeros(1, 1), Truth(torch.ones(1, 1, dtype=torch.bool)), x, x)
        >>> round(ViewDiversity()(Scene(forward, forward.flip())).item(), 4)  # 2 * sqrt(2 * 0.36) / 4
        0.4243
    """

    modality: Literal["both", "image", "text"] = "both"

    def __call__(self, scene: Scene) -> Float[Tensor, ""]:
        """One value for the batch.

        Args:
            scene: Comparisons whose queries have residuals, as the PIE head makes them.

        Returns:
            () in [0, 2), 0 for K = 1. The gradient reaches the residuals of this process's pairs.

        Raises:
            RequirementError: See the class.
        """
        values = []
        for side, items in _sides(scene, self.modality):
            if items is None or items.residuals is None:
                raise RequirementError(
                    f"ViewDiversity needs the residuals of every {side}, which the PIE head gives; this batch has "
                    f"none; give the {side} branch a PIE head, or leave the penalty out"
                )
            residuals = unit(precise(items.residuals))
            cosines = product(residuals, residuals)
            diagonal = torch.eye(items.views, dtype=torch.bool, device=cosines.device)
            values.append(cosines.masked_fill(diagonal, 0).flatten(1).norm(dim=1).mean() / items.views**2)
        return torch.stack(values).sum()
