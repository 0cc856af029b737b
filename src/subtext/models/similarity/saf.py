"""Similarity attention filtration: the similarity vectors of a pair, weighted by their relevance."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from subtext.core import Embeddings
from subtext.ops.attention import sigmoid, unit_vectors
from subtext.ops.node_similarity import Nodes, decided, spread
from subtext.ops.pairwise import pairwise

MOMENTUM = 0.1
"""Share of a text's statistics in the running ones."""


class Saf(nn.Module):
    """Similarity attention filtration (SGRAF, Diao et al. 2021, eq. 11-13).

    beta = sigmoid(norm(w m)), over their sum;  score = sigmoid(v |sum over nodes of beta m| + b)
    m: the similarity vectors of a pair, global and of every word; see `ops.node_similarity`. The norm is a batch
    norm whose batch is one text's nodes with every image (as in the authors' loop over texts): a score in training
    depends on the batch's images, in eval mode on its pair alone.

    width            D of parts and vectors, 1,024 in the paper      nodes  width of m, 256
    attention_scale  9                                               bf16   see `CrossAttention`

    Takes     Embeddings with parts and one vector an item, of width D.
    Gives     (I T) scores in (0, 1); the gradient reaches parts and vectors.
    Raises    RequirementError for items without parts, and sizes below 1; ShapeError for unequal widths.
    Cost      I T L (R D + D m). Memory I T L (D + m), in blocks that are recomputed in the backward pass
              beyond 512 MB.

    >>> part = Saf(width=2, nodes=3)
    >>> items = Embeddings(torch.ones(1, 1, 2), torch.arange(1), parts=torch.ones(1, 1, 2))
    >>> 0 < part(items, items).item() < 1
    True
    """

    indexable = False

    def __init__(
        self, *, width: int = 1024, nodes: int = 256, attention_scale: float = 9.0, bf16: bool = False
    ) -> None:
        super().__init__()
        self.nodes = Nodes(width, nodes, attention_scale=attention_scale, bf16=bf16)
        self.attend = nn.Linear(nodes, 1)
        self.norm = nn.BatchNorm1d(1, momentum=MOMENTUM)
        self.decide = nn.Linear(nodes, 1)
        spread(self.attend)
        spread(self.decide)

    def forward(self, images: Embeddings, texts: Embeddings, prepared: Tensor | None = None) -> Float[Tensor, "i t"]:
        """Scores of every image with every text, larger is better.

        prepared  the result of `prepare` for these images, at most 64
        """
        ready = self.prepare if prepared is None else lambda _: prepared
        scores = pairwise(images, texts, self._score, ready=ready, floats=self.nodes.floats, width=self.nodes.width)
        if not self.training:
            return scores
        self._learn(scores[0, :, 1:].detach())
        return scores[:, :, 0]

    def prepare(self, images: Embeddings) -> Float[Tensor, "i r r"]:
        """The terms of images alone, for scoring them with texts in several calls."""
        return self.nodes.gram(images)

    def _score(self, images: Embeddings, gram: Tensor, texts: Embeddings) -> Float[Tensor, "i t *three"]:
        """Scores; in training with the mean and variance that normalised their text."""
        nodes = self.nodes(images, gram, texts)
        logits = decided(nodes, self.attend)
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
        scores = sigmoid(decided(filtered, self.decide))
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
