"""Similarities of items that are distributions: of their means and deviations, or of their samples."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from subtext.core import Embeddings
from subtext.errors import RequirementError
from subtext.ops.numerics import precise, product
from subtext.ops.pairwise import in_blocks, require_one_width


class _Scaled(nn.Module):
    """A similarity with a scale and a shift, which may be learnt without bounds, as published."""

    indexable = False

    def __init__(self, scale: float, shift: float) -> None:
        super().__init__()
        start = torch.tensor([scale, shift])
        if not bool(start.isfinite().all()):
            raise RequirementError(f"{type(self).__name__} needs a finite scale and shift; it got {scale} and {shift}")
        self.scale = nn.Parameter(start[0].clone())
        self.shift = nn.Parameter(start[1].clone())


class ClosedFormDistance(_Scaled):
    """Closed-form sampled distance (PCME++, Chun 2024, eq. 1): the expected squared distance of two samples.

    score = shift - scale * d,   d = |mu - mu'|^2 + sum over dimensions of (std^2 + std'^2)

    The variance of a query is the same for all its candidates and never changes their order; that of a candidate does.
    With kind="wasserstein" d is the squared Wasserstein-2 distance, |mu - mu'|^2 + |std - std'|^2 (the paper's
    ablation): equal items are then at distance 0 however uncertain they are.

    Args:
        kind: "sampled", the expected distance, or "wasserstein".
        scale: Initial scale, which is learnt without bounds, as published; 5 in the paper.
        shift: Initial shift, likewise; 5 in the paper.

    Raises:
        RequirementError: If the kind is unknown, a start is not finite, or deviations are missing.
        ShapeError: If the widths of images and texts differ.

    Complexity:
        One product of means, I T D, and for Wasserstein one of deviations. Memory I T.

    Example:
        >>> def items(mean, std):
        ...     return Embeddings(torch.tensor([[mean]]), torch.arange(1), log_std=torch.tensor([[std]]).log())
        >>> one, other = items([0.0, 1.0], [0.1, 0.2]), items([1.0, 0.0], [0.3, 0.4])
        >>> round(ClosedFormDistance(scale=1.0, shift=0.0)(one, other).item(), 4)  # 2 + 0.01 + 0.04 + 0.09 + 0.16
        -2.3
    """

    def __init__(
        self, *, kind: Literal["sampled", "wasserstein"] = "sampled", scale: float = 5.0, shift: float = 5.0
    ) -> None:
        super().__init__(scale, shift)
        if kind not in ("sampled", "wasserstein"):
            raise RequirementError(
                f"ClosedFormDistance needs kind 'sampled' or 'wasserstein'; it got '{kind}'; name one of these"
            )
        self.kind: Literal["sampled", "wasserstein"] = kind

    def forward(self, images: Embeddings, texts: Embeddings) -> Float[Tensor, "i t"]:
        """Scores of every image with every text, larger is better.

        Args:
            images: I items with log_std, whose vector is the mean; several draws are averaged.
            texts: As `images`.

        Returns:
            (I T) scores in float32 or better; the gradient reaches means, deviations, scale and shift.
        """
        return self.shift - self.scale * self.distance(images, texts)

    def distance(self, images: Embeddings, texts: Embeddings) -> Float[Tensor, "i t"]:
        """The distance d of every image and every text.

        Args:
            images: I items with log_std.
            texts: T items with log_std.

        Returns:
            (I T) distances, 0 or more.
        """
        (images_mean, images_std), (texts_mean, texts_std) = _normal(images), _normal(texts)
        require_one_width(self, images, texts)
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


KEPT_FLOATS = 2**24
"""Pairs of samples kept for a backward pass; beyond, blocks are recomputed."""
BLOCK_FLOATS = 2**18
"""Pairs of samples held at a time in evaluation: they fit the cache."""
EPSILON = 1e-6
"""Added to squared distances: the root needs a slope at 0."""


class MatchProbability(_Scaled):
    """Match probability (PCME, Chun et al. 2021, eq. 2 and 3): the share of sample pairs that are close.

    p = mean over k, l of sigmoid(2 a_kl),  a_kl = shift - scale * sqrt(|x_k - y_l|^2 + 1e-6)
    score = ln p - ln(1 - p)

    The score is the log odds of p. It has the order of p, but pairs still differ, and the loss has a gradient, where p
    rounds to 0 or 1. The paper writes sigmoid(a); its code, which gave the published numbers, has twice that.

    Items of one vector are compared by it: for means the order is that of their cosines.

    Args:
        scale: Initial scale, which is learnt without bounds, as published: 15 for COCO, 5 for CUB.
        shift: Initial shift, likewise.

    Raises:
        ShapeError: If the widths of images and texts differ.
        RequirementError: If a start is not finite.

    Complexity:
        One product of all samples with all samples, I K T K D, and a few passes over I K T K numbers. In training up to
        2^24 of them are kept; bounded otherwise.

    Example:
        >>> near = Embeddings(torch.tensor([[[0.0, 0.0]]]), torch.arange(1))
        >>> far = Embeddings(torch.tensor([[[3.0, 4.0]]]), torch.arange(1))
        >>> similarity = MatchProbability(scale=1.0, shift=5.0)
        >>> round(similarity(near, far).item(), 4), round(similarity.probability(near, far).item(), 4)  # distance 5
        (0.0, 0.5)
    """

    def __init__(self, *, scale: float = 15.0, shift: float = 15.0) -> None:
        super().__init__(scale, shift)

    def forward(self, images: Embeddings, texts: Embeddings) -> Float[Tensor, "i t"]:
        """Log odds of every image with every text, larger is better.

        Args:
            images: Of one width, with any number of samples.
            texts: As `images`.

        Returns:
            (I T) scores in float32 or better; the gradient reaches every sample, scale and shift.
        """
        require_one_width(self, images, texts)
        images_precise, texts_precise = precise(images.vectors), precise(texts.vectors)
        learning = torch.is_grad_enabled() and any(
            value.requires_grad for value in (images_precise, texts_precise, self.scale, self.shift)
        )
        pairs_per_image = images.views * texts.views * max(len(texts), 1)
        if learning and pairs_per_image * len(images) <= KEPT_FLOATS:
            return self._log_odds(images_precise, texts_precise)
        rows = max(1, (KEPT_FLOATS if learning else BLOCK_FLOATS) // pairs_per_image)
        return in_blocks(self._log_odds, images_precise, texts_precise, rows, learning=learning)

    def probability(self, images: Embeddings, texts: Embeddings) -> Float[Tensor, "i t"]:
        """The probability p of every image with every text.

        Args:
            images: I items.
            texts: T items.

        Returns:
            (I T) in [0, 1].
        """
        return torch.sigmoid(self(images, texts))

    def _log_odds(
        self, image_samples: Float[Tensor, "i k d"], text_samples: Float[Tensor, "t l d"]
    ) -> Float[Tensor, "i t"]:
        # Samples before items: every sum runs over contiguous rows.
        rows, columns = image_samples.transpose(0, 1).flatten(0, 1), text_samples.transpose(0, 1).flatten(0, 1)
        lengths = rows.square().sum(dim=1)[:, None] + columns.square().sum(dim=1)
        squares = (lengths - 2 * product(rows, columns)).clamp_min(0) + EPSILON
        logits = 2 * (self.shift - self.scale * squares.sqrt())
        logits = logits.view(
            image_samples.shape[1], image_samples.shape[0], text_samples.shape[1], text_samples.shape[0]
        )
        # By exponentials: the last bit of torch's logistic depends on the position of a number.
        softplus = torch.log1p(torch.exp(-logits.abs()))
        match = logits.clamp_max(0) - softplus
        return torch.logsumexp(match, dim=(0, 2)) - torch.logsumexp(match - logits, dim=(0, 2))
