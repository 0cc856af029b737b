"""Attention in several steps, with a memory: what was gathered once changes what is asked for next."""

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
    """What is asked for next: q <- g * q + (1 - g) * tanh(W [q; c] + b), g = sigmoid(U [q; c] + d)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.new = nn.Linear(2 * width, width)
        self.gate = nn.Linear(2 * width, width)
        for layer in (self.new, self.gate):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def maps(self, others: Float[Tensor, "m q d"], *, bf16: bool) -> list[Float[Tensor, "m q d"]]:
        """W c = W sum of a v = sum of a (W v): W v and U v of what is attended to, instead of each context's."""
        return [square_linear(others, layer.weight[:, self.width :], bf16=bf16) for layer in (self.new, self.gate)]

    def forward(
        self,
        asked: Float[Tensor, "#m n d"],
        weights: Float[Tensor, "m n q"],
        maps: list[Float[Tensor, "m q d"]],
        *,
        bf16: bool,
    ) -> Float[Tensor, "m n d"]:
        """The next questions; `maps` of what these attend to."""
        new, gate = (
            square_linear(asked, layer.weight[:, : self.width], layer.bias, bf16=bf16)
            + product(weights, known.mT, bf16=bf16)
            for layer, known in zip((self.new, self.gate), maps, strict=True)
        )
        gate, new = sigmoid(gate), torch.tanh(new)
        return gate * asked + (1 - gate) * new


class _Answering(NamedTuple):
    """What is attended to, (M Q D), products of its parts with each other, and their maps; none for a single step."""

    parts: Tensor
    gram: Tensor
    maps: list[Tensor]


class Imram(nn.Module):
    """Iterative matching with a recurrent attention memory (IMRAM, Chen et al. 2020).

    score = sum over steps k of the mean over w of cos(w, c_wk);  c_wk = sum over r of a(q_wk, v_r) v_r;  q_w1 = w
    with attention as in SCAN, and q_w(k+1) made of q_wk and c_wk by a gate. The same with regions asking, or both.

    width            D of the parts, 1,024 in the paper
    asking           "text": words ask; "image": regions ask; "full": the sum of both
    steps            3 (COCO, words asking), 1 (Flickr30K, regions asking)
    attention_scale  9; 11 for words on COCO
    bf16             see `CrossAttention`

    Takes     Embeddings with parts of width D, and their masks.
    Gives     (I T) scores in [-steps, steps], twice that for "full"; the gradient reaches every part.
    Raises    RequirementError for items without parts, fewer than one step, and a scale of 0 or less.
    Cost      I T L R (D + R) a step and side: c is never formed, as in `CrossAttention`. Every step but the last has
              2 I T L R D more, and from the second on 2 I T L D D. Memory I T L R, and I T L D from the second step on,
              in pieces that are computed a second time in the backward pass beyond 512 MB.

    >>> part = Imram(width=2, steps=2, asking="text")
    >>> items = Embeddings(torch.zeros(1, 1, 2), torch.arange(1), parts=torch.tensor([[[0.6, 0.8]]]))
    >>> round(part(items, items).item(), 6)  # one region: every word gathers it in every step
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

    def forward(self, images: Embeddings, texts: Embeddings, made: _Answering | None = None) -> Float[Tensor, "i t"]:
        """Scores of every image with every text, larger is better.

        made  what `prepare` gave for these images, of which there are at most 64 then
        """
        ready = self.prepare if made is None else lambda _: made
        return pairwise(images, texts, self._score, ready=ready, floats=self._floats, width=self.width)

    def prepare(self, images: Embeddings) -> _Answering | None:
        """What is needed of pictures alone, for scoring them with texts in several calls."""
        return self._answering("text", images) if "text" in self.sides else None

    def _floats(self, regions: int, words: int) -> int:
        asking = (words if "text" in self.sides else 0) + (regions if "image" in self.sides else 0)
        return asking * ((4 * self.width if self.steps > 1 else 0) + 6 * max(regions, words))

    def _score(self, images: Embeddings, seen: _Answering | None, texts: Embeddings) -> Float[Tensor, "i t"]:
        found = []
        if seen is not None:
            found.append(self._ask("text", texts, seen, images.mask).T)
        if "image" in self.sides:
            found.append(self._ask("image", images, self._answering("image", texts), None))
        return torch.stack(found).sum(dim=0)

    def _answering(self, side: str, items: Embeddings) -> _Answering:
        """The items as those that `side` asks."""
        parts, bf16 = parts_of(items), in_inference(self.bf16)
        return _Answering(parts, gram(parts), self._memory(side).maps(parts, bf16=bf16) if self.steps > 1 else [])

    def _memory(self, side: str) -> _Memory:
        memory = self.memories[side]
        assert isinstance(memory, _Memory)
        return memory

    def _ask(
        self, side: str, items: Embeddings, others: _Answering, other_mask: Bool[Tensor, "m q"] | None
    ) -> Float[Tensor, "n m"]:
        """Scores of items that ask with items that are asked; a cosine's product comes from those of the first step."""
        own, own_mask, bf16 = parts_of(items), items.mask, in_inference(self.bf16)
        count, parts = own.shape[:2]
        asked = own.flatten(0, 1)[None]
        own_lengths, total = asked.norm(dim=2), own.new_zeros(count, len(others.parts))
        known = fits = products(own, others.parts, bf16=bf16).flatten(0, 1).transpose(0, 1).contiguous()
        for step in range(self.steps):
            weights = self._attend(fits.unflatten(1, (count, parts)), own_mask, other_mask).flatten(1, 2)
            squares = (product(weights, others.gram.mT, bf16=bf16) * weights).sum(dim=2)
            lengths = own_lengths * squares.clamp_min(EPSILON**2).sqrt()
            cosines = (weights * known).sum(dim=2) / lengths.clamp_min(EPSILON)
            total = total + _mean(cosines.unflatten(1, (count, parts)), own_mask).T
            if step < self.steps - 1:
                asked = self._memory(side)(asked, weights, others.maps, bf16=bf16)
                fits = product(asked, others.parts, bf16=bf16)
        return total

    def _attend(
        self,
        fits: Float[Tensor, "m n p q"],
        own_mask: Bool[Tensor, "n p"] | None,
        other_mask: Bool[Tensor, "m q"] | None,
    ) -> Float[Tensor, "m n p q"]:
        """As in SCAN: what is below zero counts a tenth, each column over its length across what asks, softmax."""
        clipped = nn.functional.leaky_relu(fits, SLOPE)
        if own_mask is not None:
            clipped = clipped * own_mask[:, :, None]
        logits = self.attention_scale * unit_vectors(clipped.mT).mT
        if other_mask is not None:
            logits = logits.masked_fill(~other_mask[:, None, None], -math.inf)
        return logits.softmax(dim=3)


def _mean(cosines: Float[Tensor, "m n p"], mask: Bool[Tensor, "n p"] | None) -> Float[Tensor, "m n"]:
    return cosines.mean(dim=2) if mask is None else (cosines * mask).sum(dim=2) / mask.sum(dim=1)
