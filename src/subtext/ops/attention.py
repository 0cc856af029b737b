"""Attention between words and regions as in SCAN, cosines with its contexts without forming them, and fusion.

Axes: T texts of L words, I images of R regions; every tensor of pairs is (T L I R). A context is a weighted sum of
regions, c = sum over r of a_r v_r. Its product with a word is a sum of known products, and its length comes from the
products of regions with each other: |c|^2 = a' (V V') a. So one product of words with regions serves everything.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from subtext.ops.numerics import product, product_minus, square_linear, xavier

SLOPE = 0.1
"""Factor of negative products."""
EPSILON = 1e-8
"""Added to lengths, and minimum of a product of two."""


def products(texts: Float[Tensor, "t l d"], images: Float[Tensor, "i r d"], *, bf16: bool) -> Float[Tensor, "t l i r"]:
    """Inner products of every word with every region.

    Args:
        texts: (T L D) words.
        images: (I R D) regions.
        bf16: Multiply in bfloat16 where the device supports it.

    Returns:
        (T L I R).

    Complexity:
        T L I R D.
    """
    scores = product(texts.flatten(0, 1), images.flatten(0, 1), bf16=bf16)
    return scores.view(*texts.shape[:2], *images.shape[:2])


def over_regions(
    products: Float[Tensor, "t l i r"], mask: Bool[Tensor, "i r"] | None, scale: float
) -> Float[Tensor, "t l i r"]:
    """Attention of each word to each region: softmax over regions of scale * the products.

    Negative products count a tenth; then each region's are divided by their length over the words.

    Args:
        products: (T L I R) of words with regions.
        mask: (I R) which regions exist; None for all.
        scale: Factor of the normalised products, an inverse temperature; 4 to 20 in the papers.

    Returns:
        (T L I R) weights that sum to 1 over regions; 0 where the mask is False.

    Complexity:
        T L I R.
    """
    clipped = torch.nn.functional.leaky_relu(products, SLOPE)
    logits = clipped * (scale / (_length(clipped, 1) + EPSILON))
    return (logits if mask is None else logits.masked_fill(~mask, -math.inf)).softmax(dim=3)


def over_words(
    products: Float[Tensor, "t l i r"], mask: Bool[Tensor, "i r"] | None, scale: float
) -> Float[Tensor, "t l i r"]:
    """Attention of each region to each word; the products of a word are divided by their length over the regions.

    Args:
        products: (T L I R) of words with regions.
        mask: (I R) which regions exist; None for all.
        scale: Factor of the normalised products, an inverse temperature; 4 to 20 in the papers.

    Returns:
        (T L I R) weights that sum to 1 over words.

    Complexity:
        T L I R.
    """
    clipped = torch.nn.functional.leaky_relu(products, SLOPE)
    if mask is not None:
        clipped = clipped * mask
    return (clipped * (scale / (_length(clipped, 3) + EPSILON))).softmax(dim=1)


def word_cosines(
    products: Float[Tensor, "t l i r"],
    attention: Float[Tensor, "t l i r"],
    lengths: Float[Tensor, "t l"],
    gram: Float[Tensor, "i r r"],
) -> Float[Tensor, "t l i"]:
    """Cosine of every word with its context, the weighted sum of regions.

    Args:
        products: (T L I R) of words with regions.
        attention: (T L I R) weights of the regions.
        lengths: (T L) of the words.
        gram: (I R R) products of each image's regions with each other.

    Returns:
        (T L I) in [-1, 1].

    Complexity:
        T L I R^2; no context is formed.
    """
    along = (attention * products).sum(dim=3)
    return along / (lengths[:, :, None] * region_lengths(attention, gram)).clamp_min(EPSILON)


def region_lengths(attention: Float[Tensor, "t l i r"], gram: Float[Tensor, "i r r"]) -> Float[Tensor, "t l i"]:
    """The length of every word's context.

    Args:
        attention: (T L I R) weights of the regions.
        gram: (I R R) products of each image's regions with each other.

    Returns:
        (T L I), above 0.

    Complexity:
        T L I R^2.
    """
    by_image = attention.flatten(0, 1).transpose(0, 1)
    squares = (torch.bmm(by_image, gram) * by_image).sum(dim=2)
    return _root(squares.T.unflatten(0, attention.shape[:2]))


def region_cosines(
    products: Float[Tensor, "t l i r"],
    attention: Float[Tensor, "t l i r"],
    lengths: Float[Tensor, "i r"],
    gram: Float[Tensor, "t l l"],
) -> Float[Tensor, "t i r"]:
    """Cosine of every region with its context, the weighted sum of words.

    Args:
        products: (T L I R) of words with regions.
        attention: (T L I R) weights of the words.
        lengths: (I R) of the regions.
        gram: (T L L) products of each text's words with each other.

    Returns:
        (T I R) in [-1, 1].

    Complexity:
        T I R L^2; no context is formed.
    """
    along = (attention * products).sum(dim=1)
    flat = attention.flatten(2)
    squares = (torch.bmm(gram, flat) * flat).sum(dim=1).view_as(along)
    return along / (lengths * _root(squares)).clamp_min(EPSILON)


def context_differences(
    words: Float[Tensor, "t l d"],
    attention: Float[Tensor, "t l i r"],
    regions: Float[Tensor, "i r d"],
    gram: Float[Tensor, "i r r"],
    *,
    bf16: bool = False,
) -> Float[Tensor, "i t l d"]:
    """Every word's context at unit length, minus the word.

    The weights are divided by the length that the sum will have, which costs R numbers a word instead of D.

    Args:
        words: (T L D).
        attention: (T L I R) weights of the regions.
        regions: (I R D).
        gram: (I R R) products of each image's regions with each other.
        bf16: Multiply in bfloat16 where the device supports it.

    Returns:
        (I T L D).

    Complexity:
        Time T L I R (D + R), memory T L I D.
    """
    texts, longest = attention.shape[:2]
    weights = attention / (region_lengths(attention, gram) + EPSILON)[..., None]
    by_image = weights.flatten(0, 1).transpose(0, 1)
    queries = words.flatten(0, 1).expand(len(regions), -1, -1)
    return product_minus(by_image, regions, queries, bf16=bf16).unflatten(1, (texts, longest))


def unit_vectors(values: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
    """Vectors over their length, as SGRAF's code has it: the length grows by 1e-8 first.

    Args:
        values: (... D).

    Returns:
        (... D) of length 1, or less for vectors shorter than about 1e-7.
    """
    return values / (_length(values, -1) + EPSILON)


def sigmoid(values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """The logistic function by tanh.

    On a processor torch's own gives another last bit at the end of a run of numbers than inside it; tanh does not.

    Args:
        values: Of any shape.

    Returns:
        Numbers in (0, 1), of the same shape.
    """
    return (values / 2).tanh() / 2 + 0.5


def gram(parts: Float[Tensor, "n p d"]) -> Float[Tensor, "n p p"]:
    """Inner products of each item's parts with each other.

    Args:
        parts: (N P D).

    Returns:
        (N P P).

    Complexity:
        N P^2 D.
    """
    return parts @ parts.mT


def _length(values: Tensor, dim: int) -> Tensor:
    """Euclidean length, kept as an axis. By squares: torch's own norm is slow along any axis but the last."""
    return _root((values * values).sum(dim=dim, keepdim=True))


def _root(squares: Tensor) -> Tensor:
    # Rounding can bring a square below zero; and at zero a root's gradient is infinite.
    return squares.clamp_min(torch.finfo(squares.dtype).tiny).sqrt()


FusionKind = Literal["gated", "mean", "sum", "concat"]


class Fusion(nn.Module):
    """One vector from two of width D.

    Args:
        width: D.
        kind: "gated": t * f + (1 - t) * h, with f = A x, h = B y and t = sigmoid(C f + E h), as DSRAN (Wen et al.
            2020). "mean" and "sum" have no weights. "concat" is a linear map of both side by side.
    """

    def __init__(self, width: int, kind: FusionKind = "gated") -> None:
        super().__init__()
        self.kind = kind
        if kind == "gated":
            self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
            self.gate_first, self.gate_second = nn.Linear(width, width, bias=False), nn.Linear(width, width)
        if kind == "concat":
            self.both = nn.Linear(2 * width, width)
        for layer in self.children():
            assert isinstance(layer, nn.Linear)
            xavier(layer)

    def forward(
        self, first: Float[Tensor, "*batch d"], second: Float[Tensor, "*batch2 d"], *, bf16: bool = False
    ) -> Float[Tensor, "*out d"]:
        """The fused vectors. Leading axes are broadcast; zero padding (`numerics.padded`) stays zero.

        Args:
            first: (... D).
            second: (... D); its leading axes may differ.
            bf16: Multiply in bfloat16 where the device supports it.

        Returns:
            (... D).
        """
        if self.kind == "mean":
            return (first + second) / 2
        if self.kind == "sum":
            return first + second
        mapped = partial(square_linear, bf16=bf16)
        if self.kind == "concat":
            width = self.both.out_features
            first_weight, second_weight = self.both.weight[:, :width], self.both.weight[:, width:]
            return mapped(first, first_weight) + mapped(second, second_weight, self.both.bias)
        first_mapped = mapped(first, self.first.weight, self.first.bias)
        second_mapped = mapped(second, self.second.weight, self.second.bias)
        logits = mapped(first_mapped, self.gate_first.weight)
        gate = sigmoid(logits + mapped(second_mapped, self.gate_second.weight, self.gate_second.bias))
        return gate * first_mapped + (1 - gate) * second_mapped
