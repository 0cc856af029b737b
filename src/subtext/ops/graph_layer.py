"""One layer in which the parts of an item attend to each other."""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from subtext.ops.numerics import masked_softmax

MOST_HEADS = 8
"""Heads as published, where the width can be divided so."""


class GraphLayer(nn.Module):
    """Self-attention over a complete graph of parts, and a perceptron, each added to what came in and normed.

    h = norm(x + dropout(W_o concat_heads(softmax(Q K' / sqrt(D / H)) V)))
    y = norm(h + dropout(W_2 relu(W_1 h)))

    width    D, of what comes in and goes out       heads    0 for 8, or the largest divisor of D below
    dropout  of attention, and before both sums     norm     "batch" as DSRAN has it, or "layer"

    Parts that are not there are attended to by none, enter no statistics and come out as zeros.
    """

    def __init__(
        self, width: int, *, heads: int = 0, dropout: float = 0.0, norm: Literal["batch", "layer"] = "batch"
    ) -> None:
        super().__init__()
        self.heads = heads or max(count for count in range(1, MOST_HEADS + 1) if width % count == 0)
        self.query, self.value = nn.Linear(width, width), nn.Linear(width, width)
        # A bias of keys would be the same for a whole row of the softmax.
        self.key = nn.Linear(width, width, bias=False)
        self.out, self.first, self.second = (nn.Linear(width, width) for _ in range(3))
        self.dropout = nn.Dropout(dropout)
        kind = nn.BatchNorm1d if norm == "batch" else nn.LayerNorm
        self.inner_norm, self.outer_norm = kind(width), kind(width)

    def forward(self, parts: Float[Tensor, "n p d"], mask: Bool[Tensor, "n p"] | None = None) -> Float[Tensor, "n p d"]:
        """The parts, each knowing the others."""
        hidden = _normed(self.inner_norm, parts + self.dropout(self.out(self._attended(parts, mask))), mask)
        further = self.second(torch.relu(self.first(hidden)))
        return _normed(self.outer_norm, hidden + self.dropout(further), mask)

    def _attended(self, parts: Float[Tensor, "n p d"], mask: Bool[Tensor, "n p"] | None) -> Float[Tensor, "n p d"]:
        query, key, value = (
            layer(parts).unflatten(2, (self.heads, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        fits = query @ key.mT / math.sqrt(query.shape[3])
        shown = None if mask is None else mask[:, None, None].expand_as(fits)
        weights = self.dropout(masked_softmax(fits, shown))
        return (weights @ value).transpose(1, 2).flatten(2)


def _normed(
    norm: nn.Module, values: Float[Tensor, "n p d"], mask: Bool[Tensor, "n p"] | None
) -> Float[Tensor, "n p d"]:
    """Normed over the parts that are there; zeros elsewhere."""
    if mask is None or not (norm.training and isinstance(norm, nn.BatchNorm1d)):
        normed = _rows(norm, values.flatten(0, 1)).view_as(values)
        return normed if mask is None else normed * mask[:, :, None]
    present = _rows(norm, values[mask])
    whole = present.new_zeros(values.shape)
    whole[mask] = present
    return whole


def _rows(norm: nn.Module, rows: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    if isinstance(norm, nn.BatchNorm1d) and len(rows) < 2:
        # One part has no variance: it goes by what was learnt before.
        return nn.functional.batch_norm(rows, norm.running_mean, norm.running_var, norm.weight, norm.bias)
    return norm(rows)
