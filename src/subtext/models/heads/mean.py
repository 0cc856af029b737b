"""Heads of one vector: Mean maps the pooled vector, or the mean of the parts; Passthrough sets its length to one."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor, nn

from subtext.core import Embeddings, Encoded
from subtext.errors import RequirementError
from subtext.ops.numerics import masked_mean, unit


class Mean(nn.Module):
    """Mean head (VSE++, Faghri et al. 2018): one vector per item.

    z = W dropout(x) + b, then z / |z|     x: pooled (N E), or the mean of the parts (N P E)

    width_in   E         width  D
    source     "pooled" or "parts"
    project    False: no W and b; then D = E (a GRU of the joint width)
    dropout    share of x set to zero in training
    residual   add a two-layer perceptron of x, with D / 2 hidden units, to W x
    normalise  False keeps the length, as VSE0 published (`no_imgnorm`)

    Takes   Encoded with what `source` names.
    Gives   Embeddings, vectors (N 1 D).
    Raises  RequirementError when the source is missing, or when D is not E without a projection.
    W starts Xavier-uniform, b at zero.
    """

    def __init__(
        self,
        width_in: int,
        width: int,
        *,
        source: Literal["pooled", "parts"] = "pooled",
        project: bool = True,
        dropout: float = 0.0,
        residual: bool = False,
        normalise: bool = True,
    ) -> None:
        super().__init__()
        if not project and width_in != width:
            raise RequirementError(
                f"a head without projection needs width {width_in}, that of the encoder; it got {width}; set the "
                "widths equal or project"
            )
        self.source = source
        self.inputs = (source,)
        self.normalise = normalise
        self.dropout = nn.Dropout(dropout)
        self.project = linear(width_in, width) if project else nn.Identity()
        self.residual: nn.Module | None = None
        if residual:
            self.residual = nn.Sequential(linear(width_in, width // 2), nn.ReLU(), linear(width // 2, width))

    def forward(self, encoded: Encoded, ids: Int[Tensor, "n"]) -> Embeddings:
        """One vector per item."""
        pooled = self.dropout(self._pooled(encoded))
        vectors = self.project(pooled)
        if self.residual is not None:
            vectors = vectors + self.residual(pooled)
        return Embeddings(vectors=(unit(vectors) if self.normalise else vectors)[:, None], ids=ids)

    def _pooled(self, encoded: Encoded) -> Float[Tensor, "n e"]:
        if self.source == "parts":
            if encoded.parts is None:
                raise RequirementError("a mean over parts needs an encoder that gives parts; take source='pooled'")
            return masked_mean(encoded.parts, encoded.mask)
        if encoded.pooled is None:
            raise RequirementError("a mean head needs an encoder with a pooled vector; take source='parts'")
        return encoded.pooled


def linear(width_in: int, width: int, *, bias: bool = True) -> nn.Linear:
    """A linear map that starts Xavier-uniform, with a bias of zero."""
    layer = nn.Linear(width_in, width, bias=bias)
    nn.init.xavier_uniform_(layer.weight)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


class Passthrough(nn.Module):
    """Passthrough head (CLIP, Radford et al. 2021): z = x / |x| of the pooled vector x (N D).

    Takes   Encoded with a pooled vector.
    Gives   Embeddings, vectors (N 1 D).
    Raises  RequirementError when there is no pooled vector.
    """

    inputs = ("pooled",)
    """Fields of Encoded that the head reads."""

    def forward(self, encoded: Encoded, ids: Int[Tensor, "n"]) -> Embeddings:
        """The pooled vectors at unit length."""
        if encoded.pooled is None:
            raise RequirementError(
                "a passthrough head needs an encoder that gives a pooled vector; it gave parts alone"
            )
        return Embeddings(vectors=unit(encoded.pooled)[:, None], ids=ids)
