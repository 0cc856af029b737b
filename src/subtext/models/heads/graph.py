"""Graph attention head: regions and cells of an image attend to each other before their mean is taken."""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from subtext.core import Embeddings, Encoded
from subtext.errors import RequirementError
from subtext.models.heads.mean import linear, norm_rows, parts_of
from subtext.ops.attention import Fusion
from subtext.ops.numerics import masked_mean, masked_softmax, unit


class GraphAttention(nn.Module):
    """Graph attention head (DSRAN, Wen et al. 2020): attention among parts of the same kind, then among all parts.

    r = graph(W_r regions),  c = graph(W_c cells);  z = Fusion(mean joint_1(r, c), mean joint_2(r, c)), then z / |z|

    The authors' BERT version adds a map of each region's box and classes. Here a box can be four more numbers of each
    part (option `boxes`); classes are not read.

    Args:
        width_in: E of the parts.
        width: D.
        cells: Number of first parts that are cells of a grid; the others are regions. 0: all are of one kind.
        joint: Graphs over all parts: 2 with a gate between them as published, 1, or 0 for words: their own graph alone.
        dropout: Inside the graphs, 0.2 in the authors' code.

    Raises:
        RequirementError: If the number of joint graphs is another, the encoder gives no parts, or no more parts than
            `cells`.

    Complexity:
        O(N P^2 D + N P D^2) per graph.
    """

    inputs = ("parts",)
    """Fields of Encoded that the head reads."""

    def __init__(self, width_in: int, width: int, *, cells: int = 0, joint: int = 2, dropout: float = 0.2) -> None:
        super().__init__()
        if joint not in (0, 1, 2) or cells < 0:
            raise RequirementError(
                f"a graph head needs 0, 1 or 2 joint graphs and cells of 0 or more; it got {joint} and {cells}"
            )
        self.cells = cells
        self.project, self.own = linear(width_in, width), GraphAttentionLayer(width, dropout=dropout)
        if cells:
            self.project_cells, self.own_cells = linear(width_in, width), GraphAttentionLayer(width, dropout=dropout)
        self.joint = nn.ModuleList(GraphAttentionLayer(width, dropout=dropout) for _ in range(joint))
        self.fusion = Fusion(width, "gated") if joint == 2 else None

    def forward(self, encoded: Encoded, ids: Int[Tensor, "n"]) -> Embeddings:
        """One vector per item.

        Args:
            encoded: With parts.
            ids: (N) The id of each item.

        Returns:
            Embeddings with vectors (N 1 D) of unit length.

        Raises:
            RequirementError: See the class.
        """
        parts, mask, cut = parts_of(encoded, "a graph head"), encoded.mask, self.cells
        if cut and parts.shape[1] <= cut:
            raise RequirementError(
                f"this head needs {cut} cells and then regions per image; it got {parts.shape[1]} parts; give "
                "the number of cells in the features, or 0 where all parts are of one kind"
            )
        # Each part after the graph of its kind.
        if cut:
            upper, lower = (None, None) if mask is None else (mask[:, :cut], mask[:, cut:])
            cells = self.own_cells(self.project_cells(parts[:, :cut]), upper)
            nodes = torch.cat([cells, self.own(self.project(parts[:, cut:]), lower)], dim=1)
        else:
            nodes = self.own(self.project(parts), mask)
        means = [masked_mean(graph(nodes, mask), mask) for graph in self.joint] or [masked_mean(nodes, mask)]
        vectors = means[0] if self.fusion is None else self.fusion(means[0], means[1])
        return Embeddings(vectors=unit(vectors)[:, None], ids=ids)


MOST_HEADS = 8
"""Number of heads as published, where it divides the width."""


class GraphAttentionLayer(nn.Module):
    """Self-attention over a complete graph of parts, then a perceptron; each with a residual connection and a norm.

    h = norm(x + dropout(W_o concat_heads(softmax(Q K' / sqrt(D / H)) V)))
    y = norm(h + dropout(W_2 relu(W_1 h)))

    Padding is not attended to, enters no statistics and gives zeros.

    Args:
        width: D, of input and output.
        heads: Number of heads; 0 for the largest divisor of D up to 8.
        dropout: Share dropped of attention weights, and of both sums before they are added.
        norm: "batch" as DSRAN has it, or "layer".
    """

    def __init__(
        self, width: int, *, heads: int = 0, dropout: float = 0.0, norm: Literal["batch", "layer"] = "batch"
    ) -> None:
        super().__init__()
        self.heads = heads or max(count for count in range(1, MOST_HEADS + 1) if width % count == 0)
        self.query, self.value = nn.Linear(width, width), nn.Linear(width, width)
        # A bias of keys would add the same number to a full row of the softmax.
        self.key = nn.Linear(width, width, bias=False)
        self.out, self.first, self.second = (nn.Linear(width, width) for _ in range(3))
        self.dropout = nn.Dropout(dropout)
        kind = nn.BatchNorm1d if norm == "batch" else nn.LayerNorm
        self.inner_norm, self.outer_norm = kind(width), kind(width)

    def forward(self, parts: Float[Tensor, "n p d"], mask: Bool[Tensor, "n p"] | None = None) -> Float[Tensor, "n p d"]:
        """The parts after attention to each other.

        Args:
            parts: (N P D).
            mask: (N P) bool, True where a part exists; None where all do.

        Returns:
            (N P D), zero where no part exists.
        """
        query, key, value = (
            layer(parts).unflatten(2, (self.heads, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        logits = query @ key.mT / math.sqrt(query.shape[3])
        shown = None if mask is None else mask[:, None, None].expand_as(logits)
        weights = self.dropout(masked_softmax(logits, shown))
        attended = (weights @ value).transpose(1, 2).flatten(2)
        hidden = _normed(self.inner_norm, parts + self.dropout(self.out(attended)), mask)
        lifted = self.second(torch.relu(self.first(hidden)))
        return _normed(self.outer_norm, hidden + self.dropout(lifted), mask)


def _normed(
    norm: nn.Module, values: Float[Tensor, "n p d"], mask: Bool[Tensor, "n p"] | None
) -> Float[Tensor, "n p d"]:
    """Norm over the parts; padding is zero."""
    if mask is None or not (norm.training and isinstance(norm, nn.BatchNorm1d)):
        normed = norm_rows(norm, values.flatten(0, 1)).view_as(values)
        return normed if mask is None else normed * mask[:, :, None]
    present = norm_rows(norm, values[mask])
    padded = present.new_zeros(values.shape)
    padded[mask] = present
    return padded
