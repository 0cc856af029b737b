"""Closed-form distance: the mean distance of samples of two items, without sampling."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from subtext.core import Embeddings
from subtext.errors import RequirementError, ShapeError
from subtext.ops.numerics import precise, product


class ClosedFormDistance(nn.Module):
    """Closed-form sampled distance (PCME++, Chun 2024, eq. 1): the expected squared distance of two samples.

    score = shift - scale * d,   d = |mu - mu'|^2 + sum over dimensions of (std^2 + std'^2)

    The variance of a query is the same for all its candidates and never changes their order; that of a candidate does.
    With kind="wasserstein" d is the squared Wasserstein-2 distance, |mu - mu'|^2 + |std - std'|^2 (the paper's
    ablation): equal items are then at distance 0 however uncertain they are.

    kind          which distance
    scale, shift  initial values of both; 5 in the paper
    learnable     whether both are learnt, without bounds, as published

    Takes     Embeddings with log_std, and the mean for a vector; of several draws their mean is taken.
    Gives     (I T) scores in float32 or better; the gradient reaches means, deviations, scale and shift.
    Raises    RequirementError for an unknown kind, a start that is not finite and missing deviations; ShapeError for
              unequal widths.
    Cost      one product of means, I T D, and for Wasserstein one of deviations. Memory I T.

    >>> def items(mean, std):
    ...     return Embeddings(torch.tensor([[mean]]), torch.arange(1), log_std=torch.tensor([[std]]).log())
    >>> one, other = items([0.0, 1.0], [0.1, 0.2]), items([1.0, 0.0], [0.3, 0.4])
    >>> round(ClosedFormDistance(scale=1.0, shift=0.0)(one, other).item(), 4)  # 2 + 0.01 + 0.04 + 0.09 + 0.16
    -2.3
    """

    indexable = False

    def __init__(
        self,
        *,
        kind: Literal["sampled", "wasserstein"] = "sampled",
        scale: float = 5.0,
        shift: float = 5.0,
        learnable: bool = True,
    ) -> None:
        super().__init__()
        if kind not in ("sampled", "wasserstein"):
            raise RequirementError(
                f"ClosedFormDistance needs kind 'sampled' or 'wasserstein'; it got '{kind}'; name one of these"
            )
        start = torch.tensor([scale, shift])
        if not bool(start.isfinite().all()):
            raise RequirementError(f"ClosedFormDistance needs a finite scale and shift; it got {scale} and {shift}")
        self.kind: Literal["sampled", "wasserstein"] = kind
        self.scale = nn.Parameter(start[0].clone(), requires_grad=learnable)
        self.shift = nn.Parameter(start[1].clone(), requires_grad=learnable)

    def forward(self, images: Embeddings, texts: Embeddings) -> Float[Tensor, "i t"]:
        """Scores of every image with every text, larger is better."""
        return self.shift - self.scale * self.distance(images, texts)

    def distance(self, images: Embeddings, texts: Embeddings) -> Float[Tensor, "i t"]:
        """The distance d of every image and every text, 0 or more."""
        (images_mean, images_std), (texts_mean, texts_std) = _normal(images), _normal(texts)
        if images.width != texts.width:
            raise ShapeError(
                f"ClosedFormDistance needs images and texts of one width; it got {images.width} and {texts.width}; "
                "give both heads the same width"
            )
        crossed = product(images_mean, texts_mean)
        if self.kind == "wasserstein":
            crossed = crossed + product(images_std, texts_std)
        # |mu|^2 + |std|^2 of each side: all terms but the product of the pair.
        image_norms, text_norms = (
            mean.square().sum(dim=1) + std.square().sum(dim=1)
            for mean, std in ((images_mean, images_std), (texts_mean, texts_std))
        )
        return (image_norms[:, None] + text_norms - 2 * crossed).clamp_min(0)


def _normal(items: Embeddings) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n d"]]:
    """Means and standard deviations."""
    if items.log_std is None:
        raise RequirementError(
            "ClosedFormDistance needs the standard deviations of its items; this batch has means alone; take a "
            "gaussian head"
        )
    return precise(items.vectors).mean(dim=1), precise(items.log_std).mean(dim=1).exp()
