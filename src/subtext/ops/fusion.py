"""Fusion of two vectors into one."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from subtext.ops.attention import sigmoid
from subtext.ops.bf16 import square_linear

FusionKind = Literal["gated", "mean", "sum", "concat"]


class Fusion(nn.Module):
    """One vector from two of width D.

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
        self, first: Float[Tensor, "*batch d"], second: Float[Tensor, "*batch2 d"], *, bf16: bool = False
    ) -> Float[Tensor, "*out d"]:
        """The fused vectors. Leading axes are broadcast; zero padding (`numerics.padded`) stays zero.

        bf16  products in bfloat16 where the device supports it
        """
        if self.kind == "mean":
            return (first + second) / 2
        if self.kind == "sum":
            return first + second
        if self.kind == "concat":
            width = self.both.out_features
            first_weight, second_weight = self.both.weight[:, :width], self.both.weight[:, width:]
            return square_linear(first, first_weight, None, bf16=bf16) + square_linear(
                second, second_weight, self.both.bias, bf16=bf16
            )
        first_mapped, second_mapped = (
            square_linear(values, layer.weight, layer.bias, bf16=bf16)
            for values, layer in ((first, self.first), (second, self.second))
        )
        logits = square_linear(first_mapped, self.gate_first.weight, None, bf16=bf16)
        gate = sigmoid(logits + square_linear(second_mapped, self.gate_second.weight, self.gate_second.bias, bf16=bf16))
        return gate * first_mapped + (1 - gate) * second_mapped
