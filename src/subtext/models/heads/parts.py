"""Parts head: regions or words in the joint space, for similarities that look at them together."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor, nn

from subtext.core import Embeddings, Encoded
from subtext.errors import RequirementError
from subtext.models.heads.mean import linear
from subtext.ops.numerics import masked_mean, unit


class Parts(nn.Module):
    """Parts head (SCAN, Lee et al. 2018): every region or word on its own, and a vector of the whole beside them.

    p = W x + b of every part x, then p / |p|

    width_in   E of the parts; with `halves` that of both directions together
    width      D
    project    False leaves W and b out; then D is E, or half of it with `halves`
    halves     the two halves of x, a GRU's directions, are averaged first
    normalise  False keeps the length of parts and vectors
    whole      what `vectors` are: the mean of the parts, or a linear map of the pooled vector of width `pooled_width`

    Takes   Encoded with parts, and with a pooled vector where `whole` says so.
    Gives   Embeddings, parts (N P D) with their mask, vectors (N 1 D).
    Raises  RequirementError when either is missing, or when widths do not fit without a projection.
    """

    def __init__(
        self,
        width_in: int,
        width: int,
        *,
        project: bool = True,
        halves: bool = False,
        normalise: bool = True,
        whole: Literal["mean", "pooled"] = "mean",
        pooled_width: int | None = None,
    ) -> None:
        super().__init__()
        given = width_in // 2 if halves else width_in
        if not project and given != width:
            raise RequirementError(
                f"a parts head without projection gives parts of the encoder's width, {given}; it was asked for "
                f"{width}; set the widths equal or project"
            )
        if whole == "pooled" and pooled_width is None:
            raise RequirementError("a parts head needs an encoder with a pooled vector for whole='pooled'; it has none")
        self.halves = halves
        self.normalise = normalise
        self.project = linear(given, width) if project else nn.Identity()
        self.pooled: nn.Linear | None = None
        if whole == "pooled" and pooled_width is not None:
            self.pooled = linear(pooled_width, width)
        self.inputs = ("parts", "pooled") if self.pooled is not None else ("parts",)

    def forward(self, encoded: Encoded, ids: Int[Tensor, "n"]) -> Embeddings:
        """The parts of every item, and one vector of the whole."""
        if encoded.parts is None:
            raise RequirementError("a parts head needs an encoder that gives parts; it gave a pooled vector alone")
        parts = encoded.parts
        if self.halves:
            ahead, back = parts.chunk(2, dim=2)
            parts = (ahead + back) / 2
        parts = self.project(parts)
        if self.normalise:
            parts = unit(parts)
        vectors = self._whole(parts, encoded)
        return Embeddings(
            vectors=(unit(vectors) if self.normalise else vectors)[:, None], ids=ids, parts=parts, mask=encoded.mask
        )

    def _whole(self, parts: Float[Tensor, "n p d"], encoded: Encoded) -> Float[Tensor, "n d"]:
        if self.pooled is None:
            return masked_mean(parts, encoded.mask)
        if encoded.pooled is None:
            raise RequirementError("a parts head needs a pooled vector here; the encoder gave parts alone")
        return self.pooled(encoded.pooled)
