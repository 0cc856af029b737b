"""Generalised pooling head: the values of each dimension, sorted over the parts and weighted by rank."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from subtext.core import Embeddings, Encoded
from subtext.models.heads.mean import linear, parts_of
from subtext.ops.compiled.ordered_sum import MOST_PARTS, ordered_sum
from subtext.ops.numerics import masked_softmax, parts_first, unit

COUNTED_CELLS = 1 << 20
"""Numbers to sort from which compiling the counting kernel pays."""


class RankWeights(nn.Module):
    """Learnt weight of the k-th largest of n values, from k and n only (GPO, Chen et al. 2021, eq. 4-5).

    theta = softmax over k <= n of W s_k / temperature     s: a bidirectional GRU over sinusoids of k, averaged

    Args:
        width: Width of the sinusoids.
        hidden: Width of each direction of the GRU.
        temperature: 0.1 in the paper's code; towards zero one rank takes all.
    """

    def __init__(self, *, width: int = 32, hidden: int = 32, temperature: float = 0.1) -> None:
        super().__init__()
        self.gru = nn.GRU(width, hidden, batch_first=True, bidirectional=True)
        self.linear = nn.Linear(hidden, 1, bias=False)
        self.width = width
        self.temperature = temperature

    def forward(self, lengths: Int[Tensor, "n"], longest: int) -> Float[Tensor, "n p"]:
        """The weights of ranks, by an item's number of parts.

        Items of one length share their weights: the GRU runs once per length.

        Args:
            lengths: (N) int64, number of parts of each item.
            longest: P, number of ranks.

        Returns:
            (N P), which sum to 1 over an item's ranks; zero beyond its length.
        """
        present, row_of_length = torch.unique(lengths, return_inverse=True)
        positions = _sinusoids(longest, self.width).to(self.linear.weight)
        packed = pack_padded_sequence(
            positions.expand(len(present), -1, -1), present.clamp_min(1).cpu(), batch_first=True, enforce_sorted=False
        )
        states, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True, total_length=longest)
        ahead, back = states.chunk(2, dim=2)
        logits = self.linear((ahead + back) / 2).squeeze(2) / self.temperature
        mask = torch.arange(longest, device=lengths.device) < present[:, None]
        return masked_softmax(logits, mask)[row_of_length]


class Gpo(nn.Module):
    """Generalised pooling head (VSE-infinity, Chen et al. 2021): a learnt combination of mean, max and k-max pooling.

    z_d = sum over k of theta_k (k-th largest of x_:d)     x = W f + b, plus a perceptron of f if `perceptron`
    then z / |z|

    Args:
        width_in: E of the parts.
        width: D.
        perceptron: Whether to add a two-layer perceptron with a batch norm between, as the paper does for regions and
            not for words.
        place_width: Width of the sinusoids and of the GRU over ranks.

    Raises:
        RequirementError: If the encoder gives no parts.

    Complexity:
        O(N P log P D) for the sort; O(N P^2 D) comparisons where ranks are counted.
    """

    inputs = ("parts",)
    """Fields of Encoded that the head reads."""

    def __init__(self, width_in: int, width: int, *, perceptron: bool = False, place_width: int = 32) -> None:
        super().__init__()
        self.project = linear(width_in, width)
        self.places = RankWeights(width=place_width, hidden=place_width)
        self.inner: nn.Linear | None = None
        if perceptron:
            self.inner = linear(width_in, width // 2)
            self.norm = nn.BatchNorm1d(width // 2)
            self.outer = linear(width // 2, width)

    def forward(self, encoded: Encoded, ids: Int[Tensor, "n"]) -> Embeddings:
        """One vector per item.

        Args:
            encoded: With parts.
            ids: (N) The id of each item.

        Returns:
            Embeddings with vectors (N 1 D) of unit length.
        """
        parts = parts_of(encoded, "generalised pooling")
        return Embeddings(vectors=unit(self.project_and_pool(parts, encoded.mask))[:, None], ids=ids)

    def project_and_pool(self, parts: Float[Tensor, "n p e"], mask: Bool[Tensor, "n p"] | None) -> Float[Tensor, "n d"]:
        """The pooled vectors before they are scaled to unit length.

        Args:
            parts: (N P E).
            mask: (N P) bool, True where a part exists; None where all do.

        Returns:
            (N D).
        """
        # Padding is zero, costs nothing and enters no batch statistics.
        present = torch.ones(parts.shape[:2], dtype=torch.bool, device=parts.device) if mask is None else mask
        inside = parts[present]
        lifted = self.project(inside)
        if self.inner is not None:
            hidden = self.inner(inside)
            normed = nn.functional.batch_norm(
                hidden,
                self.norm.running_mean,
                self.norm.running_var,
                self.norm.weight,
                self.norm.bias,
                training=self.training and len(hidden) > 1,
                momentum=0.1,
                eps=self.norm.eps,
            )
            lifted = lifted + self.outer(torch.relu(normed)).to(lifted.dtype)
        padded = lifted.new_zeros(*parts.shape[:2], lifted.shape[1])
        padded[present] = lifted
        return self.pool(padded, mask)[0]

    def pool(
        self, parts: Float[Tensor, "n p d"], mask: Bool[Tensor, "n p"] | None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n p"]]:
        """Pool projected parts by rank.

        Args:
            parts: (N P D), already projected.
            mask: (N P) bool, True where a part exists; None where all do.

        Returns:
            (N D) pooled vectors, and (N P) weights of the ranks.
        """
        items, longest = parts.shape[:2]
        lengths = torch.full((items,), longest, device=parts.device) if mask is None else mask.sum(dim=1)
        weights = self.places(lengths, longest)
        on_cpu = parts.device.type == "cpu" and parts.dtype == torch.float32 and longest <= MOST_PARTS
        if parts.requires_grad and on_cpu and parts.numel() >= COUNTED_CELLS:
            # In training on a CPU, ranks of many values are counted and not sorted.
            return ordered_sum(parts_first(parts, mask)[0], lengths, weights), weights
        if mask is None:
            ordered = parts.sort(dim=1, descending=True).values
        else:
            ordered = parts.masked_fill(~mask[:, :, None], -math.inf).sort(dim=1, descending=True).values
            ordered = ordered.masked_fill(torch.isinf(ordered), 0)
        return torch.einsum("np,npd->nd", weights.to(parts.dtype), ordered), weights


def _sinusoids(count: int, width: int) -> Float[Tensor, "p d"]:
    """Positions as sines and cosines of falling frequency (Vaswani et al. 2017)."""
    position = torch.arange(count, dtype=torch.float64)[:, None]
    angle = position * torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10_000.0) / width))
    return torch.stack([torch.sin(angle), torch.cos(angle)], dim=2).reshape(count, -1)[:, :width]
