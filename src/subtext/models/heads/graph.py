"""Graph attention head: regions and cells of a picture learn of each other before their mean is taken."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from subtext.core import Embeddings, Encoded
from subtext.errors import RequirementError
from subtext.models.heads.mean import linear
from subtext.ops.fusion import Fusion
from subtext.ops.graph_layer import GraphLayer
from subtext.ops.numerics import masked_mean, unit


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
