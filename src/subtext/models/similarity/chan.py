"""Hard assignment: every word is matched with its best region."""

from __future__ import annotations

import math
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from subtext.core import Embeddings
from subtext.errors import RequirementError
from subtext.ops import attention
from subtext.ops.bf16 import in_inference
from subtext.ops.pairwise import pairwise, parts_of


class Chan(nn.Module):
    """Hard assignment coding (CHAN, Pan et al. 2023): the score of each word is that of its best region.

    A_w = max over r of <v_r, w>;  score = pooling over words of A_w

    pooling      "lse": ln of the sum of exp(A_w / temperature), as published for a GRU; "mean", for a BERT
    temperature  of the soft maximum, 0.1. As in the authors' code the result is not multiplied by it: "lse"
                 scores are about 1 / temperature times as large as cosines
    bf16         see `CrossAttention`

    Takes     Embeddings with unit parts of one width, and their masks.
    Gives     (I T) scores; the gradient reaches every word and the best regions.
    Raises    RequirementError for items without parts and temperatures of 0 or less; ShapeError for unequal widths.
    Cost      I T R L D for the products, and one pass over them. Memory I T R L while training, bounded otherwise.

    >>> import torch
    >>> def items(*parts):
    ...     return Embeddings(torch.zeros(1, 1, 2), torch.arange(1), parts=torch.tensor([parts]))
    >>> Chan(pooling="mean")(items([1.0, 0.0], [0.6, 0.8]), items([1.0, 0.0], [0.0, 1.0])).tolist()
    [[0.8999999761581421]]
    """

    indexable = False

    def __init__(
        self, *, pooling: Literal["lse", "mean"] = "lse", temperature: float = 0.1, bf16: bool = False
    ) -> None:
        super().__init__()
        if temperature <= 0:
            raise RequirementError(f"Chan needs a temperature above 0; it got {temperature}")
        self.pooling = pooling
        self.temperature = temperature
        self.bf16 = bf16

    def forward(self, images: Embeddings, texts: Embeddings) -> Float[Tensor, "i t"]:
        """Scores of every image with every text, larger is better."""
        return pairwise(images, texts, self._score, floats=lambda regions, words: 2 * regions * words)

    def _score(self, images: Embeddings, _: None, texts: Embeddings) -> Float[Tensor, "i t"]:
        products = attention.products(parts_of(texts), parts_of(images), bf16=in_inference(self.bf16))
        if images.mask is not None:
            products = products.masked_fill(~images.mask, -math.inf)
        best = products.amax(dim=3).permute(2, 0, 1)
        return best.mean(dim=2) if self.pooling == "mean" else (best / self.temperature).logsumexp(dim=2)
