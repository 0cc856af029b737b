"""Two vectors become one."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from subtext.ops.attention import sigmoid

FusionKind = Literal["gated", "mean", "sum", "concat"]


class Fusion(nn.Module):
    """One vector of two, of width D each.

    gated   t * f + (1 - t) * h, f = A x, h = B y, t = sigmoid(C f + E h) (as DSRAN, Wen et al. 2020)
    mean, sum  without weights         concat  a linear map of both side by side
    """

    def __init__(self, width: int, kind: FusionKind = "gated") -> None:
        super().__init__()
        self.kind = kind
        if kind == "gated":
            self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
            self.gate_first, self.gate_second = nn.Linear(width, width, bias=False), nn.Linear(width, width)
        if kind == "concat":
            self.both = nn.Linear(2 * width, width)
        for layer in self.children():
            assert isinstance(layer, nn.Linear)
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

    def forward(self, first: Float[Tensor, "*batch d"], second: Float[Tensor, "*batch2 d"]) -> Float[Tensor, "*out d"]:
        """The two together; leading axes are broadcast."""
        if self.kind == "mean":
            return (first + second) / 2
        if self.kind == "sum":
            return first + second
        if self.kind == "concat":
            first, second = torch.broadcast_tensors(first, second)
            return self.both(torch.cat([first, second], dim=-1))
        mapped, other = self.first(first), self.second(second)
        gate = sigmoid(self.gate_first(mapped) + self.gate_second(other))
        return gate * mapped + (1 - gate) * other
