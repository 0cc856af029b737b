"""Similarity attention filtration: a pair's similarity vectors, weighted by how much each one tells."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from subtext.core import Embeddings
from subtext.ops.attention import sigmoid, unit_vectors
from subtext.ops.node_similarity import Nodes, decided, spread
from subtext.ops.pairwise import pairwise

MOMENTUM = 0.1
"""Share of a text's own statistics in the running ones."""


class Saf(nn.Module):
    """Similarity attention filtration (SGRAF, Diao et al. 2021, eq. 11-13).

    beta = sigmoid(norm(w m)), over their sum;  score = sigmoid(v |sum over nodes of beta m| + b)
    m: the similarity vectors of a pair, of the whole and of every word; see `ops.node_similarity`. The norm is a batch
    norm whose batch is one text's nodes with every picture (as in the authors' loop over texts): a score in training
    depends on the batch's pictures, in eval mode on its pair alone.

    width            D of parts and vectors, 1,024 in the paper      nodes  width of m, 256
    attention_scale  9                                               bf16   see `CrossAttention`

    Takes     Embeddings with parts and one vector an item, of width D.
    Gives     (I T) scores in (0, 1); the gradient reaches parts and vectors.
    Raises    RequirementError for items without parts, and sizes below 1; ShapeError for unequal widths.
    Cost      I T L (R D + D m). Memory I T L (D + m), in pieces that are computed a second time in the backward pass
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

    def forward(self, images: Embeddings, texts: Embeddings, made: Tensor | None = None) -> Float[Tensor, "i t"]:
        """Scores of every image with every text, larger is better.

        made  what `prepare` gave for these images, of which there are at most 64 then
        """
        ready = self.prepare if made is None else lambda _: made
        found = pairwise(images, texts, self._score, ready=ready, floats=self.nodes.floats, width=self.nodes.width)
        if not self.training:
            return found
        self._learn(found[0, :, 1:].detach())
        return found[:, :, 0]

    def prepare(self, images: Embeddings) -> Float[Tensor, "i r r"]:
        """What is needed of pictures alone, for scoring them with texts in several calls."""
        return self.nodes.gram(images)

    def _score(self, images: Embeddings, gram: Tensor, texts: Embeddings) -> Float[Tensor, "i t *three"]:
        """Scores; in training beside each the mean and variance that its text was normalised by."""
        nodes = self.nodes(images, gram, texts)
        told = decided(nodes, self.attend)
        if self.training:
            variance, mean = torch.var_mean(told, dim=(0, 2), correction=0)
        else:
            assert self.norm.running_mean is not None and self.norm.running_var is not None
            mean, variance = (kept.expand(len(texts)) for kept in (self.norm.running_mean, self.norm.running_var))
        norm = (told - mean[:, None]) / (variance[:, None] + self.norm.eps).sqrt()
        beta = sigmoid(norm * self.norm.weight + self.norm.bias)
        beta = beta / (beta.sum(dim=2, keepdim=True) + 1e-8)
        filtered = unit_vectors((beta[..., None] * nodes).sum(dim=2))
        scores = sigmoid(decided(filtered, self.decide))
        if not self.training:
            return scores
        # The running variance is that of a sample.
        count = told.shape[0] * told.shape[2]
        kept = torch.stack([mean, variance * (count / max(count - 1, 1))], dim=1)
        return torch.cat([scores[..., None], kept.expand(len(images), -1, -1)], dim=2)

    @torch.no_grad()
    def _learn(self, statistics: Float[Tensor, "t two"]) -> None:
        """Move the running statistics by every text's, one after the other."""
        assert self.norm.running_mean is not None and self.norm.running_var is not None
        left = (1 - MOMENTUM) ** torch.arange(len(statistics) - 1, -1, -1, device=statistics.device)
        new = (MOMENTUM * left[:, None] * statistics).sum(dim=0)
        for kept, value in zip((self.norm.running_mean, self.norm.running_var), new, strict=True):
            kept.mul_((1 - MOMENTUM) ** len(statistics)).add_(value)
