"""SGRAF: similarity vectors of a pair, of every word and of the full text, filtered (Saf) or reasoned with (Sgr)."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from subtext.core import Embeddings
from subtext.errors import RequirementError
from subtext.ops import attention
from subtext.ops.attention import sigmoid, unit_vectors
from subtext.ops.numerics import in_inference, linear, padded, padded_to, product, square_linear, xavier
from subtext.ops.pairwise import PairSimilarity, parts_of, vectors_of

ATTENTION_SCALE = 9.0
"""Multiplies what attention makes a softmax of."""


class _Nodes(nn.Module):
    """Similarity vectors of a pair (SGRAF, Diao et al. 2021, eq. 1-6).

    m_w = |W (c_w - w)^2|    m_0 = |U (g_image - g_text)^2|    |.|: of unit length, ^2: of every number

    c_w is what word w gathers of the regions, of unit length; g are the vectors of the whole.

    Args:
        width: D.
        nodes: Width of m, 256 in the paper.
        bf16: Products in bfloat16 where the machine has it, while nothing is learnt.
    """

    def __init__(self, width: int, nodes: int, *, bf16: bool) -> None:
        super().__init__()
        if width < 1 or nodes < 1:
            raise RequirementError(f"similarity vectors need widths of 1 or more; got {width} and {nodes}")
        self.local = nn.Linear(width, nodes)
        self.whole = nn.Linear(width, nodes)
        self.width = width
        self.bf16 = bf16
        for layer in (self.local, self.whole):
            xavier(layer)

    def forward(self, images: Embeddings, gram: Float[Tensor, "i r r"], texts: Embeddings) -> Float[Tensor, "i t n m"]:
        """The node of the pair, then one per word, N = L + 1; texts of one length. M is padded (`numerics.padded`)."""
        bf16 = in_inference(self.bf16)
        words, regions = parts_of(texts), parts_of(images)
        products = attention.products(words, regions, bf16=bf16)
        weights = attention.over_regions(products, images.mask, ATTENTION_SCALE)
        word_squares = self._square(attention.context_differences(words, weights, regions, gram, bf16=bf16))
        global_squares = self._square(vectors_of(images, self.width)[:, None] - vectors_of(texts, self.width)[None])
        global_node, word_nodes = (
            linear(values, padded(layer.weight, 2), padded(layer.bias), bf16=bf16)
            for values, layer in ((global_squares, self.whole), (word_squares, self.local))
        )
        return attention.unit_vectors(torch.cat([global_node[:, :, None], word_nodes], dim=2))

    def _square(self, values: Tensor) -> Tensor:
        return values.square() if torch.is_grad_enabled() else values.square_()


def score_nodes(nodes: Float[Tensor, "*batch m"], layer: nn.Linear) -> Float[Tensor, "*batch"]:
    """Apply a layer of one output to nodes.

    Args:
        nodes: (... M), padded by zeros beyond the layer's width.
        layer: A linear map to one number.

    Returns:
        (...), one number per node.
    """
    weight = padded_to(layer.weight, nodes.shape[-1])
    return torch.nn.functional.linear(nodes, weight, layer.bias)[..., 0]


class _OfNodes(PairSimilarity):
    """A similarity of the similarity vectors of pairs."""

    def __init__(self, width: int, nodes: int, *, bf16: bool) -> None:
        super().__init__()
        self.nodes = _Nodes(width, nodes, bf16=bf16)
        self.width = width

    def prepare(self, images: Embeddings) -> Any:
        """Products of each image's regions with each other (I R R)."""
        return attention.gram(parts_of(images))

    def floats(self, regions: int, words: int) -> int:
        """About how many numbers a pair takes."""
        local = self.nodes.local
        return words * (2 * local.in_features + 4 * local.out_features + 6 * regions)


MOMENTUM = 0.1
"""Share of a text's statistics in the running ones."""


class Saf(_OfNodes):
    """Similarity attention filtration (SGRAF, Diao et al. 2021, eq. 11-13).

    beta = sigmoid(norm(w m)), over their sum;  score = sigmoid(v |sum over nodes of beta m| + b)
    m: the similarity vectors of a pair, global and of every word; see `_Nodes`. The norm is a batch
    norm whose batch is one text's nodes with every image (as in the authors' loop over texts): a score in training
    depends on the batch's images, in eval mode on its pair alone.

    Args:
        width: D of parts and vectors, 1,024 in the paper.
        nodes: Width of m, 256.
        bf16: Whether products are in bfloat16, see `CrossAttention`.

    Raises:
        RequirementError: If items have no parts, or a size is below 1.
        ShapeError: If the widths of parts differ.

    Complexity:
        I T L (R D + D m). Memory I T L (D + m), in blocks that are recomputed in the backward pass beyond 512 MB.

    Example:
        >>> part = Saf(width=2, nodes=3)
        >>> items = Embeddings(torch.ones(1, 1, 2), torch.arange(1), parts=torch.ones(1, 1, 2))
        >>> 0 < part(items, items).item() < 1
        True
    """

    def __init__(self, *, width: int = 1024, nodes: int = 256, bf16: bool = False) -> None:
        super().__init__(width, nodes, bf16=bf16)
        self.attend = nn.Linear(nodes, 1)
        self.norm = nn.BatchNorm1d(1, momentum=MOMENTUM)
        self.decide = nn.Linear(nodes, 1)
        xavier(self.attend)
        xavier(self.decide)

    def forward(self, images: Embeddings, texts: Embeddings, prepared: Tensor | None = None) -> Float[Tensor, "i t"]:
        """Scores of every image with every text, larger is better; in training they update the running statistics.

        Args:
            images: I items with parts and one vector, of width D.
            texts: T items with parts and one vector, of width D.
            prepared: The result of `prepare` for these images; None to compute it here.

        Returns:
            (I T) scores in (0, 1); the gradient reaches parts and vectors.
        """
        scores = super().forward(images, texts, prepared)
        if not self.training:
            return scores
        self._learn(scores[0, :, 1:].detach())
        return scores[:, :, 0]

    def score(self, images: Embeddings, prepared: Tensor, texts: Embeddings) -> Float[Tensor, "i t *three"]:
        """Scores of images with texts of one length; in training also the mean and variance that normalised each text.

        Args:
            images: I items with parts and one vector.
            prepared: The result of `prepare` for these images.
            texts: T items with parts and one vector, none masked.

        Returns:
            (I T) scores; in training (I T 3): score, mean, variance.
        """
        nodes = self.nodes(images, prepared, texts)
        logits = score_nodes(nodes, self.attend)
        if self.training:
            variance, mean = torch.var_mean(logits, dim=(0, 2), correction=0)
        else:
            assert self.norm.running_mean is not None and self.norm.running_var is not None
            mean, variance = (
                statistics.expand(len(texts)) for statistics in (self.norm.running_mean, self.norm.running_var)
            )
        norm = (logits - mean[:, None]) / (variance[:, None] + self.norm.eps).sqrt()
        beta = sigmoid(norm * self.norm.weight + self.norm.bias)
        beta = beta / (beta.sum(dim=2, keepdim=True) + 1e-8)
        filtered = unit_vectors((beta[..., None] * nodes).sum(dim=2))
        scores = sigmoid(score_nodes(filtered, self.decide))
        if not self.training:
            return scores
        # The running variance is the unbiased one.
        count = logits.shape[0] * logits.shape[2]
        statistics = torch.stack([mean, variance * (count / max(count - 1, 1))], dim=1)
        return torch.cat([scores[..., None], statistics.expand(len(images), -1, -1)], dim=2)

    @torch.no_grad()
    def _learn(self, statistics: Float[Tensor, "t two"]) -> None:
        """Update the running statistics by those of every text, in order."""
        assert self.norm.running_mean is not None and self.norm.running_var is not None
        decay = (1 - MOMENTUM) ** torch.arange(len(statistics) - 1, -1, -1, device=statistics.device)
        new = (MOMENTUM * decay[:, None] * statistics).sum(dim=0)
        for running, value in zip((self.norm.running_mean, self.norm.running_var), new, strict=True):
            running.mul_((1 - MOMENTUM) ** len(statistics)).add_(value)


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
            xavier(layer)

    def merged(self) -> tuple[Tensor, Tensor]:
        """Weight and bias of both maps in one: (Q m + q)' K m' = m' (K' Q m + K' q)."""
        turned = self.key.weight.T
        return turned @ self.query.weight, turned @ self.query.bias

    def forward(
        self, nodes: Float[Tensor, "n p m"], maps: tuple[Tensor, Tensor], *, last: bool, bf16: bool = False
    ) -> Float[Tensor, "n q m"]:
        queries = square_linear(nodes[:, :1] if last else nodes, *maps, bf16=bf16)
        edges = product(queries, nodes, bf16=bf16).softmax(dim=2)
        gathered = product(edges, nodes.mT, bf16=bf16)
        return torch.relu(square_linear(gathered, self.graph.weight, self.graph.bias, bf16=bf16))


class Sgr(_OfNodes):
    """Similarity graph reasoning (SGRAF, Diao et al. 2021, eq. 7-10).

    m <- ReLU(W_k E_k m), E_k = softmax of (Q_k m)(K_k m)', for k = 1..steps;  score = sigmoid(w m_0 + b)
    m: the similarity vectors of a pair, global (m_0) and of every word; see `_Nodes`.

    The call takes `Embeddings` with parts and one vector an item, of width D. It returns (I T) scores in (0, 1); the
    gradient reaches parts and vectors.

    Args:
        width: D of parts and vectors, 1,024 in the paper.
        nodes: Width of m, 256.
        steps: Message steps, each with its own weights; 3.
        bf16: Whether products are in bfloat16, see `CrossAttention`.

    Raises:
        RequirementError: If items have no parts, or a size or number of steps is below 1.
        ShapeError: If the widths of parts differ.

    Complexity:
        I T L (R D + D m + 2 steps m m); in the last step only m_0 is computed, and queries and keys are one map. Memory
        I T L (D + m), in blocks that are recomputed in the backward pass beyond 512 MB.

    Example:
        >>> part = Sgr(width=2, nodes=3, steps=1)
        >>> items = Embeddings(torch.ones(1, 1, 2), torch.arange(1), parts=torch.ones(1, 1, 2))
        >>> 0 < part(items, items).item() < 1
        True
    """

    def __init__(self, *, width: int = 1024, nodes: int = 256, steps: int = 3, bf16: bool = False) -> None:
        super().__init__(width, nodes, bf16=bf16)
        if steps < 1:
            raise RequirementError(f"Sgr needs at least one step; it got {steps}")
        self.steps = nn.ModuleList([_Step(nodes) for _ in range(steps)])
        self.decide = nn.Linear(nodes, 1)
        xavier(self.decide)

    def prepare(self, images: Embeddings) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """The terms of images alone, for scoring them with texts in several calls.

        Args:
            images: I items with parts.

        Returns:
            (I R R) products of each image's regions with each other, and the merged maps of every step.
        """
        return super().prepare(images), [step.merged() for step in self.steps if isinstance(step, _Step)]

    def score(
        self, images: Embeddings, prepared: tuple[Tensor, list[tuple[Tensor, Tensor]]], texts: Embeddings
    ) -> Float[Tensor, "i t"]:
        """Scores of images with texts of one length.

        Args:
            images: I items with parts and one vector.
            prepared: The result of `prepare` for these images.
            texts: T items with parts and one vector, none masked.

        Returns:
            (I T) scores in (0, 1).
        """
        gram, merged = prepared
        nodes = self.nodes(images, gram, texts)
        state = nodes.flatten(0, 1)
        for number, (step, maps) in enumerate(zip(self.steps, merged, strict=True)):
            state = step(state, maps, last=number == len(merged) - 1, bf16=in_inference(self.nodes.bf16))
        return sigmoid(score_nodes(state[:, 0], self.decide)).view(nodes.shape[:2])
