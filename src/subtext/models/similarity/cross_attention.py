"""Attention between regions and words: stacked (SCAN), a hard assignment (CHAN), or repeated with a memory (IMRAM)."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from subtext.core import Embeddings
from subtext.errors import RequirementError
from subtext.ops import attention
from subtext.ops.numerics import in_inference, product, square_linear, xavier
from subtext.ops.pairwise import PairSimilarity, parts_of

Attending = Literal["text_to_image", "image_to_text"]


class CrossAttention(PairSimilarity):
    """Stacked cross attention (SCAN, Lee et al. 2018, eq. 1-10): compares words with attended regions or the reverse.

    text_to_image   c_w = sum over r of a_wr v_r;  score = pooling over words of cos(w, c_w)
    image_to_text   c_r = sum over w of a_rw w;    score = pooling over regions of cos(v_r, c_r)
    a is a softmax of attention_scale * s'. s' are the products of words with regions; negative ones count a tenth; then
    they are divided by their length over the queries (as in the authors' code: over words in text_to_image).

    The call takes `Embeddings` with parts of one width, and their masks. It returns (I T) scores; "mean" in [-1, 1].
    The gradient reaches every part.

    Args:
        attending: The side of the queries.
        pooling: "mean", or "lse": ln of the sum of exp(pooling_scale * cos), over pooling_scale.
        attention_scale: Multiplies s'; 0 for the published 9 (words as queries) or 4 (regions).
        pooling_scale: Multiplies the cosines; 0 for the published 6 (words) or 20 (regions; Flickr30K: 5).
        bf16: Whether products are in bfloat16, outside of training and where the device supports it.

    Raises:
        RequirementError: If items have no parts, or a scale is below 0.
        ShapeError: If the widths of parts differ.

    Complexity:
        One product of all words with all regions, I T R L D; c is never formed: its length comes from the products of
        regions (or words) with each other. Memory I T R L in training, bounded otherwise.

    Example:
        >>> import torch
        >>> def items(*parts):
        ...     return Embeddings(torch.zeros(1, 1, 2), torch.arange(1), parts=torch.tensor([parts]))
        >>> scores = CrossAttention(pooling="mean")(items([1.0, 0.0]), items([1.0, 0.0], [0.0, 1.0]))
        >>> scores.tolist()  # both words attend to the one region
        [[0.5]]
    """

    def __init__(
        self,
        *,
        attending: Attending = "text_to_image",
        pooling: Literal["mean", "lse"] = "lse",
        attention_scale: float = 0.0,
        pooling_scale: float = 0.0,
        bf16: bool = False,
    ) -> None:
        super().__init__()
        if attention_scale < 0 or pooling_scale < 0:
            raise RequirementError(
                f"CrossAttention needs scales of 0 or more; it got {attention_scale} and {pooling_scale}; 0 stands for "
                "the published ones"
            )
        by_words = attending == "text_to_image"
        self.attending = attending
        self.pooling = pooling
        self.attention_scale = attention_scale or (9.0 if by_words else 4.0)
        self.pooling_scale = pooling_scale or (6.0 if by_words else 20.0)
        self.bf16 = bf16

    def prepare(self, images: Embeddings) -> Tensor:
        """The terms of images alone, for scoring them with texts in several calls.

        Args:
            images: I items with parts.

        Returns:
            (I R R) products of each image's regions with each other, or (I R) lengths of regions.
        """
        regions = parts_of(images)
        return attention.gram(regions) if self.attending == "text_to_image" else regions.norm(dim=2)

    def floats(self, regions: int, words: int) -> int:
        """About how many numbers a pair takes in memory.

        Args:
            regions: Number of regions of an image.
            words: Number of words of a text.

        Returns:
            The number.
        """
        return 6 * regions * words

    def score(self, images: Embeddings, prepared: Tensor, texts: Embeddings) -> Float[Tensor, "i t"]:
        """Scores of images with texts of one length.

        Args:
            images: I items with parts.
            prepared: The result of `prepare` for these images.
            texts: T items with parts, none masked.

        Returns:
            (I T) scores.
        """
        words = parts_of(texts)
        mask: Tensor | None = None
        products = attention.products(words, parts_of(images), bf16=in_inference(self.bf16))
        if self.attending == "text_to_image":
            weights = attention.over_regions(products, images.mask, self.attention_scale)
            cosines = attention.word_cosines(products, weights, words.norm(dim=2), prepared).permute(2, 0, 1)
        else:
            weights = attention.over_words(products, images.mask, self.attention_scale)
            cosines = attention.region_cosines(products, weights, prepared, attention.gram(words)).transpose(0, 1)
            mask = None if images.mask is None else images.mask[:, None]
        if self.pooling == "lse":
            shown = cosines if mask is None else cosines.masked_fill(~mask, float("-inf"))
            # A soft maximum: near the largest cosine, and above it.
            return torch.logsumexp(shown * self.pooling_scale, dim=-1) / self.pooling_scale
        return cosines.mean(dim=2) if mask is None else (cosines * mask).sum(dim=2) / mask.sum(dim=2)


class Chan(PairSimilarity):
    """Hard assignment coding (CHAN, Pan et al. 2023): the score of a word is the score of its best region.

    A_w = max over r of <v_r, w>;  score = pooling over words of A_w

    The call takes `Embeddings` with unit parts of one width, and their masks. It returns (I T) scores; the gradient
    reaches every word and the best regions.

    Args:
        pooling: "lse": ln of the sum of exp(A_w / temperature), as published for a GRU; "mean", for a BERT.
        temperature: Of the soft maximum, 0.1. As in the authors' code the result is not multiplied by it: "lse" scores
            are about 1 / temperature times as large as cosines.
        bf16: Whether products are in bfloat16, see `CrossAttention`.

    Raises:
        RequirementError: If items have no parts, or the temperature is not above 0.
        ShapeError: If the widths of parts differ.

    Complexity:
        I T R L D for the products, and one pass over them. Memory I T R L while training, bounded otherwise.

    Example:
        >>> import torch
        >>> def items(*parts):
        ...     return Embeddings(torch.zeros(1, 1, 2), torch.arange(1), parts=torch.tensor([parts]))
        >>> Chan(pooling="mean")(items([1.0, 0.0], [0.6, 0.8]), items([1.0, 0.0], [0.0, 1.0])).tolist()
        [[0.8999999761581421]]
    """

    def __init__(
        self, *, pooling: Literal["lse", "mean"] = "lse", temperature: float = 0.1, bf16: bool = False
    ) -> None:
        super().__init__()
        if temperature <= 0:
            raise RequirementError(f"Chan needs a temperature above 0; it got {temperature}")
        self.pooling = pooling
        self.temperature = temperature
        self.bf16 = bf16

    def floats(self, regions: int, words: int) -> int:
        """About how many numbers a pair takes in memory.

        Args:
            regions: Number of regions of an image.
            words: Number of words of a text.

        Returns:
            The number.
        """
        return 2 * regions * words

    def score(self, images: Embeddings, prepared: None, texts: Embeddings) -> Float[Tensor, "i t"]:
        """Scores of images with texts of one length.

        Args:
            images: I items with parts.
            prepared: Not read.
            texts: T items with parts, none masked.

        Returns:
            (I T) scores.
        """
        products = attention.products(parts_of(texts), parts_of(images), bf16=in_inference(self.bf16))
        if images.mask is not None:
            products = products.masked_fill(~images.mask, -math.inf)
        best = products.amax(dim=3).permute(2, 0, 1)
        return best.mean(dim=2) if self.pooling == "mean" else (best / self.temperature).logsumexp(dim=2)


class _Memory(nn.Module):
    """The next queries: q <- g * q + (1 - g) * tanh(W [q; c] + b), g = sigmoid(U [q; c] + d)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.new = nn.Linear(2 * width, width)
        self.gate = nn.Linear(2 * width, width)
        for layer in (self.new, self.gate):
            xavier(layer)

    def maps(self, context: Float[Tensor, "m q d"], *, bf16: bool) -> list[Float[Tensor, "m q d"]]:
        """W c = W sum of a v = sum of a (W v): W v and U v of the parts, instead of W c and U c of every context."""
        return [square_linear(context, layer.weight[:, self.width :], bf16=bf16) for layer in (self.new, self.gate)]

    def forward(
        self,
        queries: Float[Tensor, "#m n d"],
        weights: Float[Tensor, "m n q"],
        maps: list[Float[Tensor, "m q d"]],
        *,
        bf16: bool,
    ) -> Float[Tensor, "m n d"]:
        """The next queries; `maps` are those of the attended parts."""
        new, gate = (
            square_linear(queries, layer.weight[:, : self.width], layer.bias, bf16=bf16)
            + product(weights, mapped.mT, bf16=bf16)
            for layer, mapped in zip((self.new, self.gate), maps, strict=True)
        )
        gate, new = attention.sigmoid(gate), torch.tanh(new)
        return gate * queries + (1 - gate) * new


class _Context(NamedTuple):
    """Attended parts (M Q D), their products with each other, and their maps; no maps for a single step."""

    parts: Tensor
    gram: Tensor
    maps: list[Tensor]


class Imram(PairSimilarity):
    """Iterative matching with a recurrent attention memory (IMRAM, Chen et al. 2020).

    score = sum over steps k of the mean over w of cos(w, c_wk);  c_wk = sum over r of a(q_wk, v_r) v_r;  q_w1 = w
    with attention as in SCAN, and q_w(k+1) from q_wk and c_wk by a gate. Regions can be queries instead, or both.

    The call takes `Embeddings` with parts of width D, and their masks. It returns (I T) scores in [-steps, steps],
    twice that for "full"; the gradient reaches every part.

    Args:
        width: D of the parts, 1,024 in the paper.
        queries: "text" (words), "image" (regions), or "full" (the sum of both).
        steps: Number of steps; 3 (COCO, words as queries), 1 (Flickr30K, regions as queries).
        attention_scale: Above 0; 9, or 11 for words on COCO.
        bf16: Whether products are in bfloat16, see `CrossAttention`.

    Raises:
        RequirementError: If items have no parts, steps is below 1, or the scale is not above 0.

    Complexity:
        I T L R (D + R) a step and side: c is never formed, as in `CrossAttention`. Every step but the last adds 2 I T L
        R D, and every step from the second on 2 I T L D D. Memory I T L R, and I T L D from the second step on, in
        blocks that are recomputed in the backward pass beyond 512 MB.

    Example:
        >>> part = Imram(width=2, steps=2, queries="text")
        >>> items = Embeddings(torch.zeros(1, 1, 2), torch.arange(1), parts=torch.tensor([[[0.6, 0.8]]]))
        >>> round(part(items, items).item(), 6)  # one region: every word attends to it in every step
        2.0
    """

    width: int

    def __init__(
        self,
        *,
        width: int = 1024,
        queries: Literal["text", "image", "full"] = "full",
        steps: int = 3,
        attention_scale: float = 9.0,
        bf16: bool = False,
    ) -> None:
        super().__init__()
        if steps < 1 or attention_scale <= 0:
            raise RequirementError(f"Imram needs a step and a scale above 0; it got {steps} and {attention_scale}")
        sides = ("text", "image") if queries == "full" else (queries,)
        self.memories = nn.ModuleDict({side: _Memory(width) for side in sides if steps > 1})
        self.sides = sides
        self.width = width
        self.steps = steps
        self.attention_scale = attention_scale
        self.bf16 = bf16

    def prepare(self, images: Embeddings) -> _Context | None:
        """The terms of images as context of words, for scoring them with texts in several calls.

        Args:
            images: I items with parts.

        Returns:
            The terms; None where words are no queries.
        """
        return self._context("text", images) if "text" in self.sides else None

    def floats(self, regions: int, words: int) -> int:
        """About how many numbers a pair takes in memory.

        Args:
            regions: Number of regions of an image.
            words: Number of words of a text.

        Returns:
            The number.
        """
        query_count = (words if "text" in self.sides else 0) + (regions if "image" in self.sides else 0)
        return query_count * ((4 * self.width if self.steps > 1 else 0) + 6 * max(regions, words))

    def score(self, images: Embeddings, prepared: _Context | None, texts: Embeddings) -> Float[Tensor, "i t"]:
        """Scores of images with texts of one length.

        Args:
            images: I items with parts.
            prepared: The result of `prepare` for these images.
            texts: T items with parts, none masked.

        Returns:
            (I T) scores.
        """
        scores = []
        if prepared is not None:
            scores.append(self._scores("text", texts, prepared, images.mask).T)
        if "image" in self.sides:
            scores.append(self._scores("image", images, self._context("image", texts), None))
        return torch.stack(scores).sum(dim=0)

    def _context(self, side: str, items: Embeddings) -> _Context:
        """The terms of items as context of the queries of `side`."""
        parts, bf16 = parts_of(items), in_inference(self.bf16)
        return _Context(
            parts, attention.gram(parts), self._memory(side).maps(parts, bf16=bf16) if self.steps > 1 else []
        )

    def _memory(self, side: str) -> _Memory:
        memory = self.memories[side]
        assert isinstance(memory, _Memory)
        return memory

    def _scores(
        self, side: str, items: Embeddings, context: _Context, context_mask: Bool[Tensor, "m q"] | None
    ) -> Float[Tensor, "n m"]:
        """Scores of items as queries with context items. The product in a cosine is that of the first step."""
        parts_of_items, query_mask, bf16 = parts_of(items), items.mask, in_inference(self.bf16)
        count, parts = parts_of_items.shape[:2]
        queries = parts_of_items.flatten(0, 1)[None]
        query_lengths, total = queries.norm(dim=2), parts_of_items.new_zeros(count, len(context.parts))
        products_of_items = products_of_step = (
            attention.products(parts_of_items, context.parts, bf16=bf16).flatten(0, 1).transpose(0, 1).contiguous()
        )
        for step in range(self.steps):
            weights = self._attend(products_of_step.unflatten(1, (count, parts)), query_mask, context_mask).flatten(
                1, 2
            )
            squares = (product(weights, context.gram.mT, bf16=bf16) * weights).sum(dim=2)
            lengths = query_lengths * squares.clamp_min(attention.EPSILON**2).sqrt()
            cosines = (weights * products_of_items).sum(dim=2) / lengths.clamp_min(attention.EPSILON)
            total = total + _mean(cosines.unflatten(1, (count, parts)), query_mask).T
            if step < self.steps - 1:
                queries = self._memory(side)(queries, weights, context.maps, bf16=bf16)
                products_of_step = product(queries, context.parts, bf16=bf16)
        return total

    def _attend(
        self,
        products: Float[Tensor, "m n p q"],
        query_mask: Bool[Tensor, "n p"] | None,
        context_mask: Bool[Tensor, "m q"] | None,
    ) -> Float[Tensor, "m n p q"]:
        """As in SCAN: negative products count a tenth; columns are over their length across queries; softmax."""
        clipped = nn.functional.leaky_relu(products, attention.SLOPE)
        if query_mask is not None:
            clipped = clipped * query_mask[:, :, None]
        logits = self.attention_scale * attention.unit_vectors(clipped.mT).mT
        if context_mask is not None:
            logits = logits.masked_fill(~context_mask[:, None, None], -math.inf)
        return logits.softmax(dim=3)


def _mean(cosines: Float[Tensor, "m n p"], mask: Bool[Tensor, "n p"] | None) -> Float[Tensor, "m n"]:
    return cosines.mean(dim=2) if mask is None else (cosines * mask).sum(dim=2) / mask.sum(dim=1)
