"""Similarity graph reasoning: the similarity vectors of a pair exchange messages; the global one gives the score."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from subtext.core import Embeddings
from subtext.errors import RequirementError
from subtext.ops.attention import sigmoid
from subtext.ops.bf16 import in_inference, product, square_linear
from subtext.ops.node_similarity import Nodes, decided, spread
from subtext.ops.pairwise import pairwise


class _Merged(NamedTuple):
    """Queries and keys of a step as one map: E = softmax of rows of (M m + b) m'."""

    weight: Tensor
    bias: Tensor


class _ImageTerms(NamedTuple):
    """Terms without texts: products of regions with each other, and the maps of the steps."""

    gram: Tensor
    steps: list[_Merged]


class _Step(nn.Module):
    """One message step: m <- ReLU(W E m), E = softmax over nodes of (Q m)(K m)'.

    A bias of K would add the same to a whole row of E's logits, which a softmax does not see: there is none.
    """

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self.query = nn.Linear(nodes, nodes)
        self.key = nn.Linear(nodes, nodes, bias=False)
        self.graph = nn.Linear(nodes, nodes)
        nn.init.xavier_uniform_(self.key.weight)
        for layer in (self.query, self.graph):
            spread(layer)

    def merged(self) -> _Merged:
        """Both maps in one: (Q m + q)' K m' = m' (K' Q m + K' q)."""
        turned = self.key.weight.T
        return _Merged(turned @ self.query.weight, turned @ self.query.bias)

    def forward(
        self, nodes: Float[Tensor, "n p m"], maps: _Merged, *, last: bool, bf16: bool = False
    ) -> Float[Tensor, "n q m"]:
        queries = square_linear(nodes[:, :1] if last else nodes, *maps, bf16=bf16)
        edges = product(queries, nodes, bf16=bf16).softmax(dim=2)
        gathered = product(edges, nodes.mT, bf16=bf16)
        return torch.relu(square_linear(gathered, self.graph.weight, self.graph.bias, bf16=bf16))


class Sgr(nn.Module):
    """Similarity graph reasoning (SGRAF, Diao et al. 2021, eq. 7-10).

    m <- ReLU(W_k E_k m), E_k = softmax of (Q_k m)(K_k m)', for k = 1..steps;  score = sigmoid(w m_0 + b)
    m: the similarity vectors of a pair, global (m_0) and of every word; see `ops.node_similarity`.

    width            D of parts and vectors, 1,024 in the paper      nodes  width of m, 256
    steps            message steps, each with its own weights; 3
    attention_scale  9                                               bf16   see `CrossAttention`

    Takes     Embeddings with parts and one vector an item, of width D.
    Gives     (I T) scores in (0, 1); the gradient reaches parts and vectors.
    Raises    RequirementError for items without parts, and sizes below 1; ShapeError for unequal widths.
    Cost      I T L (R D + D m + 2 steps m m); in the last step only m_0 is computed, and queries and keys are one map.
              Memory I T L (D + m), in blocks that are recomputed in the backward pass beyond 512 MB.

    >>> part = Sgr(width=2, nodes=3, steps=1)
    >>> items = Embeddings(torch.ones(1, 1, 2), torch.arange(1), parts=torch.ones(1, 1, 2))
    >>> 0 < part(items, items).item() < 1
    True
    """

    indexable = False

    def __init__(
        self,
        *,
        width: int = 1024,
        nodes: int = 256,
        steps: int = 3,
        attention_scale: float = 9.0,
        bf16: bool = False,
    ) -> None:
        super().__init__()
        if steps < 1:
            raise RequirementError(f"Sgr needs at least one step; it got {steps}")
        self.nodes = Nodes(width, nodes, attention_scale=attention_scale, bf16=bf16)
        self.steps = nn.ModuleList([_Step(nodes) for _ in range(steps)])
        self.decide = nn.Linear(nodes, 1)
        spread(self.decide)

    def forward(
        self, images: Embeddings, texts: Embeddings, prepared: _ImageTerms | None = None
    ) -> Float[Tensor, "i t"]:
        """Scores of every image with every text, larger is better.

        prepared  the result of `prepare` for these images, at most 64
        """
        ready = self.prepare if prepared is None else lambda _: prepared
        return pairwise(images, texts, self._score, ready=ready, floats=self.nodes.floats, width=self.nodes.width)

    def prepare(self, images: Embeddings) -> _ImageTerms:
        """The terms of images alone, for scoring them with texts in several calls."""
        return _ImageTerms(self.nodes.gram(images), [step.merged() for step in self.steps if isinstance(step, _Step)])

    def _score(self, images: Embeddings, prepared: _ImageTerms, texts: Embeddings) -> Float[Tensor, "i t"]:
        nodes = self.nodes(images, prepared.gram, texts)
        state = nodes.flatten(0, 1)
        for number, (step, maps) in enumerate(zip(self.steps, prepared.steps, strict=True)):
            state = step(state, maps, last=number == len(prepared.steps) - 1, bf16=in_inference(self.nodes.bf16))
        return sigmoid(decided(state[:, 0], self.decide)).view(nodes.shape[:2])
