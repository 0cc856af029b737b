"""Spread by generalised pooling: how uncertain an item is, by learnt weights of the ranks of its parts' values."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from subtext.core import Encoded
from subtext.errors import RequirementError
from subtext.models.heads.gpo import Gpo
from subtext.ops.graph_layer import GraphLayer


class PooledSpread(nn.Module):
    """Uncertainty by pooling (PCME++, Chun 2024, section 3.2): layers of attention over the parts, then a pooling.

    log_std = pool(layers(x)) / 2: what is pooled is the logarithm of the variance

    parts_width  E       width  D
    layers       of self-attention before the pooling; 1 in the paper, whose parts are CLIP's tokens
    perceptron   of the pooling, as for the mean
    start        the bias of the logarithm of the variance, where it starts. Variances add up over dimensions: at -9 a
                 thousand of them add 0.1 to a squared distance, which lies between 0 and 4

    Takes   Encoded with parts.
    Gives   (N D), unbounded.
    Raises  RequirementError when there are no parts.
    """

    inputs = ("parts",)
    """What it takes of an encoder's output."""

    def __init__(
        self, parts_width: int, width: int, *, layers: int = 0, perceptron: bool = False, start: float = -9.0
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(GraphLayer(parts_width, norm="layer") for _ in range(layers))
        self.pooling = Gpo(parts_width, width, perceptron=perceptron)
        nn.init.constant_(self.pooling.project.bias, start)

    def forward(self, encoded: Encoded) -> Float[Tensor, "n d"]:
        """The logarithm of every item's standard deviations."""
        if encoded.parts is None:
            raise RequirementError("a spread needs an encoder that gives parts; it gave a pooled vector alone")
        parts = encoded.parts
        for layer in self.layers:
            parts = layer(parts, encoded.mask)
        return self.pooling.pooled(parts, encoded.mask) / 2
