"""Heads of one vector: Mean maps a pooled vector or the mean of parts, Passthrough keeps it, and Adapter adds to it."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor, nn

from subtext.core import Embeddings, Encoded
from subtext.errors import RequirementError
from subtext.ops.numerics import masked_mean, unit, xavier


class Mean(nn.Module):
    """Mean head (VSE++, Faghri et al. 2018): one vector per item.

    z = W dropout(x) + b, then z / |z|     x: pooled (N E), or the mean of the parts (N P E)

    W starts Xavier-uniform, b at zero.

    Args:
        width_in: E.
        width: D.
        source: "pooled" or "parts".
        project: False: no W and b; then D = E (a GRU of the joint width).
        dropout: Share of x set to zero in training.
        residual: Whether to add a two-layer perceptron of x, with D / 2 hidden units, to W x.
        normalise: Whether vectors have unit length; False keeps the length, as VSE0 published (`no_imgnorm`).

    Raises:
        RequirementError: If the encoder lacks the source, or D is not E without a projection.
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
        """One vector per item.

        Args:
            encoded: With the field that `source` names.
            ids: (N) The id of each item.

        Returns:
            Embeddings with vectors (N 1 D).
        """
        if self.source == "parts":
            pooled = masked_mean(parts_of(encoded, "a mean over parts", "; take source='pooled'"), encoded.mask)
        else:
            pooled = pooled_of(encoded, "a mean head", "; take source='parts'")
        pooled = self.dropout(pooled)
        vectors = self.project(pooled)
        if self.residual is not None:
            vectors = vectors + self.residual(pooled)
        return Embeddings(vectors=(unit(vectors) if self.normalise else vectors)[:, None], ids=ids)


def parts_of(encoded: Encoded, head: str, advice: str = "") -> Float[Tensor, "n p e"]:
    """The parts of an encoder's output.

    Args:
        encoded: Of N items.
        head: Who needs them, for the message.
        advice: What to do, for the message; starts with "; ".

    Returns:
        (N P E).

    Raises:
        RequirementError: If the encoder gives no parts.
    """
    if encoded.parts is None:
        raise RequirementError(f"{head} needs an encoder that gives parts; it gave a pooled vector alone{advice}")
    return encoded.parts


def pooled_of(encoded: Encoded, head: str, advice: str = "") -> Float[Tensor, "n e"]:
    """The pooled vector of an encoder's output.

    Args:
        encoded: Of N items.
        head: Who needs it, for the message.
        advice: What to do, for the message; starts with "; ".

    Returns:
        (N E).

    Raises:
        RequirementError: If the encoder gives no pooled vector.
    """
    if encoded.pooled is None:
        raise RequirementError(f"{head} needs an encoder that gives a pooled vector; it gave parts alone{advice}")
    return encoded.pooled


def norm_rows(norm: nn.Module, rows: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Apply a norm to rows.

    A single row has no variance: a batch norm then uses its running statistics.

    Args:
        norm: A batch norm or a layer norm.
        rows: (N D).

    Returns:
        (N D).
    """
    if isinstance(norm, nn.BatchNorm1d) and len(rows) < 2:
        return nn.functional.batch_norm(rows, norm.running_mean, norm.running_var, norm.weight, norm.bias)
    return norm(rows)


def linear(width_in: int, width: int, *, bias: bool = True) -> nn.Linear:
    """A linear map that starts Xavier-uniform, with a bias of zero.

    Args:
        width_in: Width of the input.
        width: Width of the output.
        bias: Whether there is a bias.

    Returns:
        The layer.
    """
    layer = nn.Linear(width_in, width, bias=bias)
    xavier(layer)
    return layer


class Passthrough(nn.Module):
    """Passthrough head (CLIP, Radford et al. 2021): z = x / |x| of the pooled vector x (N D).

    Raises:
        RequirementError: If the encoder gives no pooled vector.
    """

    inputs = ("pooled",)
    """Fields of Encoded that the head reads."""

    def forward(self, encoded: Encoded, ids: Int[Tensor, "n"]) -> Embeddings:
        """The pooled vectors at unit length.

        Args:
            encoded: With a pooled vector.
            ids: (N) The id of each item.

        Returns:
            Embeddings with vectors (N 1 D) of unit length.
        """
        return Embeddings(vectors=unit(pooled_of(encoded, "a passthrough head"))[:, None], ids=ids)


class Adapter(nn.Module):
    """Residual adapter head (CLIP-Adapter, Gao et al. 2021), which starts as the identity.

    z = u + V relu(U dropout(u)), then z / |z|     u = x / |x| of the pooled vector x (N D)

    The paper mixes u and the perceptron by a fixed share; here V starts at zero and learns it.

    Args:
        width: D.
        hidden: Rows of U.
        dropout: Share of u set to zero in training, before U.

    Raises:
        RequirementError: If the encoder gives no pooled vector.
    """

    inputs = ("pooled",)

    def __init__(self, width: int, hidden: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        last = linear(hidden, width, bias=False)
        nn.init.zeros_(last.weight)
        self.perceptron = nn.Sequential(nn.Dropout(dropout), linear(width, hidden), nn.ReLU(), last)

    def forward(self, encoded: Encoded, ids: Int[Tensor, "n"]) -> Embeddings:
        """The pooled vectors plus the learnt residual, at unit length.

        Args:
            encoded: With a pooled vector.
            ids: (N) The id of each item.

        Returns:
            Embeddings with vectors (N 1 D) of unit length.
        """
        vectors = unit(pooled_of(encoded, "an adapter"))
        return Embeddings(vectors=unit(vectors + self.perceptron(vectors))[:, None], ids=ids)
