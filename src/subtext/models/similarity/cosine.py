"""Cosine similarity of the best pair of views, with an optional learnt scale and shift."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from subtext.core import Embeddings
from subtext.errors import RequirementError
from subtext.ops.numerics import at_most, best_views, product
from subtext.ops.pairwise import in_blocks, require_one_width


class Cosine(nn.Module):
    """Cosine of the best pair of views (PVSE, Song and Soleymani 2019), scaled and shifted.

    scores_it = scale * max_{k,l} <x_ik, y_tl> + shift, with unit vectors x of images and y of texts.

    With one view it is the plain cosine. Vectors are not normalised here: heads give unit vectors.

    Args:
        temperature: Divides the cosine; above 0. Give a temperature, a scale, or neither for 1. CLIP starts from
            temperature 0.07.
        scale: Multiplies the cosine; above 0. SigLIP starts from scale 10.
        learnable: Whether scale and shift are trained; the parameter is the logarithm of the scale.
        shift: In score units, added after scaling; None for none. SigLIP starts from -10.
        largest: Upper bound of a learnt scale (CLIP: 100), from which it can come back.
        block_bytes: With several views: bytes of scores of pairs of views in memory at a time.

    Raises:
        RequirementError: If both temperature and scale are given, one is not above 0, or a learnt scale starts above
            largest.
        ShapeError: If the widths of images and texts differ.

    Complexity:
        Time I K T K D; memory I T, and block_bytes while views are compared. Blocks are recomputed in the backward
        pass.

    Example:
        >>> def items(*rows):
        ...     return Embeddings(torch.tensor([rows]).transpose(0, 1).contiguous(), torch.arange(len(rows)))
        >>> images, texts = items([1.0, 0.0], [0.0, 1.0]), items([0.0, 1.0], [-1.0, 0.0])
        >>> Cosine(temperature=0.5)(images, texts).tolist()
        [[0.0, -2.0], [2.0, 0.0]]
    """

    indexable = True

    def __init__(
        self,
        *,
        temperature: float | None = None,
        scale: float | None = None,
        learnable: bool = False,
        shift: float | None = None,
        largest: float = 100.0,
        block_bytes: int = 2**28,
    ) -> None:
        super().__init__()
        if temperature is not None and scale is not None:
            raise RequirementError(
                f"Cosine needs a temperature or a scale; it got both, {temperature} and {scale}; name one (scale is 1 "
                "over temperature)"
            )
        for value in (temperature, scale):
            if value is not None and not 0 < value < math.inf:
                raise RequirementError(f"Cosine needs a temperature or scale above 0; it got {value}")
        start = scale if scale is not None else 1 / temperature if temperature is not None else 1.0
        if learnable and start > largest:
            raise RequirementError(
                f"Cosine needs a learnt scale of at most largest = {largest}; it got {start}; raise largest"
            )
        self.learnable = learnable
        self.largest = largest
        self.block_bytes = block_bytes
        self.log_scale = nn.Parameter(torch.tensor(math.log(start))) if learnable else None
        self.learnt_shift = nn.Parameter(torch.tensor(shift)) if learnable and shift is not None else None
        self._fixed_scale = start
        self._fixed_shift = 0.0 if shift is None else shift

    @property
    def scale(self) -> float | Float[Tensor, ""]:
        """Factor of the cosine."""
        return self._fixed_scale if self.log_scale is None else at_most(self.log_scale, math.log(self.largest)).exp()

    @property
    def shift(self) -> float | Float[Tensor, ""]:
        """Summand after scaling."""
        return self._fixed_shift if self.learnt_shift is None else self.learnt_shift

    def forward(self, images: Embeddings, texts: Embeddings) -> Float[Tensor, "i t"]:
        """Scores of every image with every text, larger is better.

        Args:
            images: I items of width D.
            texts: T items of width D; K may differ between the modalities.

        Returns:
            (I T) scores in float32 or better; the gradient reaches the winning pair of views alone (equal winners share
            it), and scale and shift where they are learnt.
        """
        scores = self.cosine(images, texts)
        if self.learnable or self._fixed_scale != 1:
            scores = scores * self.scale
        return scores + self.shift if self.learnt_shift is not None or self._fixed_shift else scores

    def cosine(self, images: Embeddings, texts: Embeddings) -> Float[Tensor, "i t"]:
        """The cosine of the best pair of views, without scale and shift.

        Args:
            images: I items of width D.
            texts: T items of width D.

        Returns:
            (I T) in [-1, 1].
        """
        require_one_width(self, images, texts)
        if images.views == texts.views == 1:
            return product(images.vectors[:, 0], texts.vectors[:, 0])
        row_bytes = 4 * images.views * texts.views * max(len(texts), 1)
        rows = max(1, self.block_bytes // row_bytes)
        if rows >= len(images):
            return best_views(images.vectors, texts.vectors)
        learning = torch.is_grad_enabled() and (images.vectors.requires_grad or texts.vectors.requires_grad)
        return in_blocks(best_views, images.vectors, texts.vectors, rows, learning=learning)
