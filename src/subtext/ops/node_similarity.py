"""SGRAF's nodes: how a word, or a whole text, and what it gathers of an image are alike, as a vector."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from subtext.core import Embeddings
from subtext.errors import RequirementError
from subtext.ops import attention
from subtext.ops.bf16 import in_inference, linear
from subtext.ops.numerics import padded, padded_to
from subtext.ops.pairwise import parts_of, vectors_of


class Nodes(nn.Module):
    """Similarity vectors of a pair (SGRAF, Diao et al. 2021, eq. 1-6).

    m_w = |W (c_w - w)^2|    m_0 = |U (g_image - g_text)^2|    |.|: of unit length, ^2: of every number

    c_w is what word w gathers of the regions, of unit length; g are the vectors of the whole.

    width            D           nodes            width of m, 256 in the paper
    attention_scale  multiplies what attention makes a softmax of, 9 in the paper
    bf16             products in bfloat16 where the machine has it, while nothing is learnt
    """

    def __init__(self, width: int, nodes: int, *, attention_scale: float, bf16: bool) -> None:
        super().__init__()
        if width < 1 or nodes < 1 or attention_scale <= 0:
            raise RequirementError(
                f"similarity vectors need widths of 1 or more and a scale above 0; got {width}, {nodes} and "
                f"{attention_scale}"
            )
        self.local = nn.Linear(width, nodes)
        self.whole = nn.Linear(width, nodes)
        self.width = width
        self.attention_scale = attention_scale
        self.bf16 = bf16
        for layer in (self.local, self.whole):
            spread(layer)

    def floats(self, regions: int, words: int) -> int:
        """About how many numbers a pair takes."""
        return words * (2 * self.local.in_features + 4 * self.local.out_features + 6 * regions)

    def gram(self, images: Embeddings) -> Float[Tensor, "i r r"]:
        """Products of each image's regions with each other."""
        return attention.gram(parts_of(images))

    def forward(self, images: Embeddings, gram: Float[Tensor, "i r r"], texts: Embeddings) -> Float[Tensor, "i t n m"]:
        """The whole pair's node, then one a word, N = L + 1; texts of one length. M is padded (`numerics.padded`)."""
        bf16 = in_inference(self.bf16)
        words, regions = parts_of(texts), parts_of(images)
        products = attention.products(words, regions, bf16=bf16)
        weights = attention.over_regions(products, images.mask, self.attention_scale)
        word_squares = self._square(attention.context_differences(words, weights, regions, gram, bf16=bf16))
        global_squares = self._square(vectors_of(images, self.width)[:, None] - vectors_of(texts, self.width)[None])
        global_node, word_nodes = (
            linear(values, padded(layer.weight, 2), padded(layer.bias), bf16=bf16)
            for values, layer in ((global_squares, self.whole), (word_squares, self.local))
        )
        return attention.unit_vectors(torch.cat([global_node[:, :, None], word_nodes], dim=2))

    def _square(self, values: Tensor) -> Tensor:
        return values.square() if torch.is_grad_enabled() else values.square_()


def decided(nodes: Float[Tensor, "*batch m"], layer: nn.Linear) -> Float[Tensor, "*batch"]:
    """A layer of one number, of nodes that zeros fill up."""
    weight = padded_to(layer.weight, nodes.shape[-1])
    return torch.nn.functional.linear(nodes, weight, layer.bias)[..., 0]


def spread(layer: nn.Linear) -> None:
    """Start a layer as the authors do: uniform in +-sqrt(6 / (in + out)), bias zero."""
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
