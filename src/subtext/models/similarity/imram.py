"""Iterative cross attention with a memory: the context of one step changes the queries of the next."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from subtext.core import Embeddings
from subtext.errors import RequirementError
from subtext.ops.attention import EPSILON, SLOPE, gram, products, sigmoid, unit_vectors
from subtext.ops.bf16 import in_inference, product, square_linear
from subtext.ops.pairwise import pairwise, parts_of


class _Memory(nn.Module):
    """The next queries: q <- g * q + (1 - g) * tanh(W [q; c] + b), g = sigmoid(U [q; c] + d)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.new = nn.Linear(2 * width, width)
        self.gate = nn.Linear(2 * width, width)
        for layer in (self.new, self.gate):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

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
        gate, new = sigmoid(gate), torch.tanh(new)
        return gate * queries + (1 - gate) * new


class _Context(NamedTuple):
    """Attended parts (M Q D), their products with each other, and their maps; no maps for a single step."""

    parts: Tensor
    gram: Tensor
    maps: list[Tensor]


class Imram(nn.Module):
    """Iterative matching with a recurrent attention memory (IMRAM, Chen et al. 2020).

    score = sum over steps k of the mean over w of cos(w, c_wk);  c_wk = sum over r of a(q_wk, v_r) v_r;  q_w1 = w
    with attention as in SCAN, and q_w(k+1) from q_wk and c_wk by a gate. Regions can be queries instead, or both.

    width            D of the parts, 1,024 in the paper
    asking           the queries: "text" (words), "image" (regions), or "full" (the sum of both)
    steps            3 (COCO, words as queries), 1 (Flickr30K, regions as queries)
    attention_scale  9; 11 for words on COCO
    bf16             see `CrossAttention`

    Takes     Embeddings with parts of width D, and their masks.
    Gives     (I T) scores in [-steps, steps], twice that for "full"; the gradient reaches every part.
    Raises    RequirementError for items without parts, fewer than one step, and a scale of 0 or less.
    Cost      I T L R (D + R) a step and side: c is never formed, as in `CrossAttention`. Every step but the last adds
              2 I T L R D, and every step from the second on 2 I T L D D. Memory I T L R, and I T L D from the second
              step on, in blocks that are recomputed in the backward pass beyond 512 MB.

    >>> part = Imram(width=2, steps=2, asking="text")
    >>> items = Embeddings(torch.zeros(1, 1, 2), torch.arange(1), parts=torch.tensor([[[0.6, 0.8]]]))
    >>> round(part(items, items).item(), 6)  # one region: every word attends to it in every step
    2.0
    """

    indexable = False

    def __init__(
        self,
        *,
        width: int = 1024,
        asking: Literal["text", "image", "full"] = "full",
        steps: int = 3,
        attention_scale: float = 9.0,
        bf16: bool = False,
    ) -> None:
        super().__init__()
        if steps < 1 or attention_scale <= 0:
            raise RequirementError(f"Imram needs a step and a scale above 0; it got {steps} and {attention_scale}")
        sides = ("text", "image") if asking == "full" else (asking,)
        self.memories = nn.ModuleDict({side: _Memory(width) for side in sides if steps > 1})
        self.sides = sides
        self.width = width
        self.steps = steps
        self.attention_scale = attention_scale
        self.bf16 = bf16

    def forward(self, images: Embeddings, texts: Embeddings, prepared: _Context | None = None) -> Float[Tensor, "i t"]:
        """Scores of every image with every text, larger is better.

        prepared  the result of `prepare` for these images, at most 64
        """
        ready = self.prepare if prepared is None else lambda _: prepared
        return pairwise(images, texts, self._score, ready=ready, floats=self._floats, width=self.width)

    def prepare(self, images: Embeddings) -> _Context | None:
        """The terms of images alone, for scoring them with texts in several calls."""
        return self._context("text", images) if "text" in self.sides else None

    def _floats(self, regions: int, words: int) -> int:
        query_count = (words if "text" in self.sides else 0) + (regions if "image" in self.sides else 0)
        return query_count * ((4 * self.width if self.steps > 1 else 0) + 6 * max(regions, words))

    def _score(self, images: Embeddings, image_side: _Context | None, texts: Embeddings) -> Float[Tensor, "i t"]:
        scores = []
        if image_side is not None:
            scores.append(self._scores("text", texts, image_side, images.mask).T)
        if "image" in self.sides:
            scores.append(self._scores("image", images, self._context("image", texts), None))
        return torch.stack(scores).sum(dim=0)

    def _context(self, side: str, items: Embeddings) -> _Context:
        """The terms of items as context of the queries of `side`."""
        parts, bf16 = parts_of(items), in_inference(self.bf16)
        return _Context(parts, gram(parts), self._memory(side).maps(parts, bf16=bf16) if self.steps > 1 else [])

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
            products(parts_of_items, context.parts, bf16=bf16).flatten(0, 1).transpose(0, 1).contiguous()
        )
        for step in range(self.steps):
            weights = self._attend(products_of_step.unflatten(1, (count, parts)), query_mask, context_mask).flatten(
                1, 2
            )
            squares = (product(weights, context.gram.mT, bf16=bf16) * weights).sum(dim=2)
            lengths = query_lengths * squares.clamp_min(EPSILON**2).sqrt()
            cosines = (weights * products_of_items).sum(dim=2) / lengths.clamp_min(EPSILON)
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
        clipped = nn.functional.leaky_relu(products, SLOPE)
        if query_mask is not None:
            clipped = clipped * query_mask[:, :, None]
        logits = self.attention_scale * unit_vectors(clipped.mT).mT
        if context_mask is not None:
            logits = logits.masked_fill(~context_mask[:, None, None], -math.inf)
        return logits.softmax(dim=3)


def _mean(cosines: Float[Tensor, "m n p"], mask: Bool[Tensor, "n p"] | None) -> Float[Tensor, "m n"]:
    return cosines.mean(dim=2) if mask is None else (cosines * mask).sum(dim=2) / mask.sum(dim=1)
