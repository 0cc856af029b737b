"""Graph attention head: regions and cells of a picture learn of each other before their mean is taken.

One layer in which the parts of an item attend to each other.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from subtext.core import Embeddings, Encoded
from subtext.errors import RequirementError
from subtext.models.heads.mean import linear
from subtext.ops.fusion import Fusion
from subtext.ops.numerics import masked_mean, masked_softmax, unit


class Graph(nn.Module):
    """Graph attention head (DSRAN, Wen et al. 2020): parts attend to their own kind, then all to all.

    r = graph(W_r regions),  c = graph(W_c cells);  z = Fusion(mean joint_1(r, c), mean joint_2(r, c)), then z / |z|

    width_in  E of the parts          width  D
    cells     how many of the first parts are cells of a grid; the rest are regions. 0: all are of one kind
    joint     graphs of all parts together: 2 with a gate between them as published, 1, or 0 for words, which have one
              graph of their own and the mean of it
    dropout   inside the graphs, 0.2 in the authors' code

    The authors add a map of each region's box and classes to it; here a box can stand beside the features as four more
    numbers of each part (`boxes` of a host), and classes do not.

    Takes   Encoded with parts.
    Gives   Embeddings, vectors (N 1 D).
    Raises  RequirementError for other numbers of joint graphs, without parts, and for no more parts than `cells`.
    Cost    O(N P^2 D + N P D^2) a graph.
    """

    inputs = ("parts",)
    """What it takes of an encoder's output."""

    def __init__(self, width_in: int, width: int, *, cells: int = 0, joint: int = 2, dropout: float = 0.2) -> None:
        super().__init__()
        if joint not in (0, 1, 2) or cells < 0:
            raise RequirementError(
                f"a graph head needs 0, 1 or 2 joint graphs and cells of 0 or more; it got {joint} and {cells}"
            )
        self.cells = cells
        self.project, self.own = linear(width_in, width), GraphLayer(width, dropout=dropout)
        if cells:
            self.project_cells, self.own_cells = linear(width_in, width), GraphLayer(width, dropout=dropout)
        self.joint = nn.ModuleList(GraphLayer(width, dropout=dropout) for _ in range(joint))
        self.fusion = Fusion(width, "gated") if joint == 2 else None

    def forward(self, encoded: Encoded, ids: Int[Tensor, "n"]) -> Embeddings:
        """One vector an item."""
        if encoded.parts is None:
            raise RequirementError("a graph head needs an encoder that gives parts; it gave a pooled vector alone")
        mask = encoded.mask
        nodes = self._nodes(encoded.parts, mask)
        means = [masked_mean(graph(nodes, mask), mask) for graph in self.joint] or [masked_mean(nodes, mask)]
        vectors = means[0] if self.fusion is None else self.fusion(means[0], means[1])
        return Embeddings(vectors=unit(vectors)[:, None], ids=ids)

    def _nodes(self, parts: Float[Tensor, "n p e"], mask: Bool[Tensor, "n p"] | None) -> Float[Tensor, "n p d"]:
        """The parts after the graphs of their own kind."""
        cut = self.cells
        if not cut:
            return self.own(self.project(parts), mask)
        if parts.shape[1] <= cut:
            raise RequirementError(
                f"this head needs {cut} cells and then regions of every picture; it got {parts.shape[1]} parts; set "
                "cells to what the features have, or to 0 where all are of one kind"
            )
        upper, lower = (None, None) if mask is None else (mask[:, :cut], mask[:, cut:])
        cells = self.own_cells(self.project_cells(parts[:, :cut]), upper)
        return torch.cat([cells, self.own(self.project(parts[:, cut:]), lower)], dim=1)


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
