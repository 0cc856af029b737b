"""View diversity: the views of an item should differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from subtext.core import Embeddings, Scene
from subtext.errors import RequirementError
from subtext.ops.numerics import precise, product, unit


@dataclass(frozen=True)
class ViewDiversity:
    """View diversity (PVSE, Song and Soleymani 2019): the residuals of views should differ.

    value = mean_n |G_n| / K^2 for images + the same for texts,   G_n = R_n R_n^T with its diagonal set to 0
    with R_n the K residuals of item n, each over its length, and |.| the Frobenius norm. It reads the residuals and not
    the views, which share the global feature. PIE-Net's residuals come from a sigmoid, so their cosines are above 0 and
    the norm can be small only where they are near orthogonal.

    of        "both", or one modality alone: where processes share a batch, each modality has a share of its own

    Takes     Scene whose queries have residuals, which the PIE head gives.
    Gives     () in [0, 2), 0 for K = 1. The gradient reaches the residuals of this process's pairs.
    Raises    RequirementError where a modality has no residuals.
    Cost      time B K^2 D, memory B K^2.

    >>> from subtext.core import Comparison, Truth
    >>> residuals = torch.tensor([[[1.0, 0.0], [3.0, 4.0]]])  # one item, cosine 0.6
    >>> x = Embeddings(residuals, torch.arange(1), residuals=residuals)
    >>> forward = Comparison(torch.zeros(1, 1), Truth(torch.ones(1, 1, dtype=torch.bool)), x, x)
    >>> round(ViewDiversity()(Scene(forward, forward.flip())).item(), 4)  # 2 * sqrt(2 * 0.36) / 4
    0.4243
    """

    of: Literal["both", "image", "text"] = "both"

    def __call__(self, scene: Scene) -> Float[Tensor, ""]:
        """One value for the batch."""
        sides = {"image": scene.image_to_text.queries, "text": scene.text_to_image.queries}
        chosen = [_overlap(side, items) for side, items in sides.items() if self.of in ("both", side)]
        return torch.stack(chosen).sum()


def _overlap(modality: str, items: Embeddings | None) -> Float[Tensor, ""]:
    if items is None or items.residuals is None:
        raise RequirementError(
            f"ViewDiversity needs the residuals of every {modality}, which the PIE head gives; this batch has none; "
            f"give the {modality} branch a PIE head, or leave the penalty out"
        )
    residuals = unit(precise(items.residuals))
    cosines = product(residuals, residuals)
    diagonal = torch.eye(items.views, dtype=torch.bool, device=cosines.device)
    return cosines.masked_fill(diagonal, 0).flatten(1).norm(dim=1).mean() / items.views**2
