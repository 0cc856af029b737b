"""Two vectors become one."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from subtext.ops.attention import sigmoid
from subtext.ops.bf16 import square_linear

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

    def forward(
        self, first: Float[Tensor, "*batch d"], second: Float[Tensor, "*batch2 d"], *, half: bool = False
    ) -> Float[Tensor, "*out d"]:
        """The two together; leading axes are broadcast. Vectors with zeros at their end (`numerics.padded`) keep them.

        half  products in bfloat16 where the machine has it
        """
        if self.kind == "mean":
            return (first + second) / 2
        if self.kind == "sum":
            return first + second
        if self.kind == "concat":
            width = self.both.out_features
            left, right = self.both.weight[:, :width], self.both.weight[:, width:]
            return square_linear(first, left, None, half=half) + square_linear(second, right, self.both.bias, half=half)
        mapped, other = (
            square_linear(values, layer.weight, layer.bias, half=half)
            for values, layer in ((first, self.first), (second, self.second))
        )
        gates = square_linear(mapped, self.gate_first.weight, None, half=half)
        gate = sigmoid(gates + square_linear(other, self.gate_second.weight, self.gate_second.bias, half=half))
        return gate * mapped + (1 - gate) * other
