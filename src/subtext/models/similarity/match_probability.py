"""Match probability: the probability that samples of two items are close."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from subtext.core import Embeddings
from subtext.errors import RequirementError, ShapeError
from subtext.ops.numerics import precise, product

KEPT_FLOATS = 2**24
"""Pairs of samples kept for a backward pass; beyond, blocks are recomputed."""
BLOCK_FLOATS = 2**18
"""Pairs of samples held at a time in evaluation: they fit the cache."""
EPSILON = 1e-6
"""Added to squared distances: the root needs a slope at 0."""


class MatchProbability(nn.Module):
    """Match probability (PCME, Chun et al. 2021, eq. 2 and 3): the share of pairs of samples that are close.

    p = mean over k, l of sigmoid(2 a_kl),  a_kl = shift - scale * sqrt(|x_k - y_l|^2 + 1e-6)
    score = ln p - ln(1 - p)

    The score is the log odds of p. It has the order of p, but pairs still differ, and the loss has a gradient, where p
    rounds to 0 or 1. The paper writes sigmoid(a); its code, which gave the published numbers, has twice that.

    scale, shift  initial values: 15 for COCO, 5 for CUB
    learnable     whether both are learnt, without bounds, as published

    Items of one vector are compared by it: for means the order is that of their cosines.

    Takes     Embeddings of one width, with any number of samples.
    Gives     (I T) scores in float32 or better; the gradient reaches every sample, scale and shift.
    Raises    ShapeError for unequal widths; RequirementError for a start that is not finite.
    Cost      one product of all samples with all samples, I K T K D, and a few passes over I K T K numbers. In training
              up to 2^24 of them are kept; bounded otherwise.

    >>> near = Embeddings(torch.tensor([[[0.0, 0.0]]]), torch.arange(1))
    >>> far = Embeddings(torch.tensor([[[3.0, 4.0]]]), torch.arange(1))
    >>> similarity = MatchProbability(scale=1.0, shift=5.0)
    >>> round(similarity(near, far).item(), 4), round(similarity.probability(near, far).item(), 4)  # distance 5
    (0.0, 0.5)
    """

    indexable = False

    def __init__(self, *, scale: float = 15.0, shift: float = 15.0, learnable: bool = True) -> None:
        super().__init__()
        start = torch.tensor([scale, shift])
        if not bool(start.isfinite().all()):
            raise RequirementError(f"MatchProbability needs a finite scale and shift; it got {scale} and {shift}")
        self.scale = nn.Parameter(start[0].clone(), requires_grad=learnable)
        self.shift = nn.Parameter(start[1].clone(), requires_grad=learnable)

    def forward(self, images: Embeddings, texts: Embeddings) -> Float[Tensor, "i t"]:
        """Log odds of every image with every text, larger is better."""
        if images.width != texts.width:
            raise ShapeError(
                f"MatchProbability needs images and texts of one width; it got {images.width} and {texts.width}; "
                "give both heads the same width"
            )
        images_precise, texts_precise = precise(images.vectors), precise(texts.vectors)
        learning = torch.is_grad_enabled() and any(
            value.requires_grad for value in (images_precise, texts_precise, self.scale, self.shift)
        )
        pairs_per_image = images.views * texts.views * max(len(texts), 1)
        if learning and pairs_per_image * len(images) <= KEPT_FLOATS:
            return self._log_odds(images_precise, texts_precise)
        rows = max(1, (KEPT_FLOATS if learning else BLOCK_FLOATS) // pairs_per_image)
        blocks = images_precise.split(rows)
        if learning:
            recomputed = [
                checkpoint(self._log_odds, block, texts_precise, use_reentrant=False, preserve_rng_state=False)
                for block in blocks
            ]
            return torch.cat(recomputed)
        return torch.cat([self._log_odds(block, texts_precise) for block in blocks])

    def probability(self, images: Embeddings, texts: Embeddings) -> Float[Tensor, "i t"]:
        """The probability p of every image with every text, in [0, 1]."""
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
