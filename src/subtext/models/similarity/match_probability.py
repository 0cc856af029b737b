"""Match probability: how likely it is that draws of two items lie close enough."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from subtext.core import Embeddings
from subtext.errors import RequirementError, ShapeError
from subtext.ops.numerics import precise, product

KEPT_FLOATS = 2**24
"""Pairs of draws whose numbers are all kept for a backward pass; of more, blocks are computed a second time."""
BLOCK_FLOATS = 2**18
"""Pairs of draws held at a time while nothing is learnt: near the processor."""
NEAR = 1e-6
"""Added to squared distances, so that the root has a slope at 0."""


class MatchProbability(nn.Module):
    """Match probability (PCME, Chun et al. 2021, eq. 2 and 3): the share of pairs of draws that lie close enough.

    p = mean over k, l of sigmoid(2 a_kl),  a_kl = shift - scale * sqrt(|x_k - y_l|^2 + 1e-6)
    score = ln p - ln(1 - p)

    The score is the log odds of p: the same order, but where p is 0 or 1 to all digits pairs still differ, and its
    loss has a gradient. The paper writes sigmoid(a); its code, whose numbers were published, has twice that.

    scale, shift  what both start from: 15 for COCO, 5 for CUB
    learnable     whether both are learnt, without bounds, as published

    Items of one vector are compared by it: with means for vectors the order is that of their cosines.

    Takes     Embeddings of one width, of any numbers of draws.
    Gives     (I T) scores in float32 or better; the gradient reaches every draw, scale and shift.
    Raises    ShapeError for unequal widths; RequirementError for a start that is not finite.
    Cost      one product of all draws with all draws, I K T K D, instead of their differences, and a few passes over
              I K T K numbers. Memory that, in training, up to 2^24 of them; bounded otherwise.

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
        left, right = precise(images.vectors), precise(texts.vectors)
        learning = torch.is_grad_enabled() and any(
            value.requires_grad for value in (left, right, self.scale, self.shift)
        )
        each = images.views * texts.views * max(len(texts), 1)
        if learning and each * len(images) <= KEPT_FLOATS:
            return self._log_odds(left, right)
        rows = max(1, (KEPT_FLOATS if learning else BLOCK_FLOATS) // each)
        blocks = left.split(rows)
        if learning:
            again = [
                checkpoint(self._log_odds, block, right, use_reentrant=False, preserve_rng_state=False)
                for block in blocks
            ]
            return torch.cat(again)
        return torch.cat([self._log_odds(block, right) for block in blocks])

    def probability(self, images: Embeddings, texts: Embeddings) -> Float[Tensor, "i t"]:
        """The probability p of every image with every text, in [0, 1]."""
        return torch.sigmoid(self(images, texts))

    def _log_odds(self, left: Float[Tensor, "i k d"], right: Float[Tensor, "t l d"]) -> Float[Tensor, "i t"]:
        # Draws before items: what is summed lies outside, and every sum runs over whole rows.
        rows, columns = left.transpose(0, 1).flatten(0, 1), right.transpose(0, 1).flatten(0, 1)
        lengths = rows.square().sum(dim=1)[:, None] + columns.square().sum(dim=1)
        squares = (lengths - 2 * product(rows, columns)).clamp_min(0) + NEAR
        logits = 2 * (self.shift - self.scale * squares.sqrt())
        logits = logits.view(left.shape[1], left.shape[0], right.shape[1], right.shape[0])
        # By exponentials, whose last bit is the same wherever a number stands; torch's own logistic is not.
        rest = torch.log1p(torch.exp(-logits.abs()))
        match = logits.clamp_max(0) - rest
        return torch.logsumexp(match, dim=(0, 2)) - torch.logsumexp(match - logits, dim=(0, 2))
