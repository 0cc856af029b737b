"""Fused head: the mean of an item's parts and a vector of the whole become one."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Int
from torch import Tensor, nn

from subtext.core import Embeddings, Encoded
from subtext.models.heads.parts import Parts
from subtext.ops.fusion import Fusion, FusionKind
from subtext.ops.numerics import masked_mean, unit


class Fused(nn.Module):
    """Fused head (AsCL without cross attention, Gong et al. 2024, "w/o MF"): z = Fusion(mean of the parts, G), z / |z|.

    parts   gives parts of width D, and G as its vectors
    fusion  see `ops.fusion`; "none" leaves G out
    keep    whether the parts are given beside their mean, for a training that changes them

    Takes   Encoded as `parts` does.
    Gives   Embeddings, vectors (N 1 D); with `keep` parts (N P D) and their mask.
    Raises  what `parts` raises.
    """

    def __init__(self, parts: Parts, width: int, fusion: FusionKind | Literal["none"], *, keep: bool = False) -> None:
        super().__init__()
        self.keep = keep
        self.parts = parts
        self.fusion = Fusion(width, fusion) if fusion != "none" else None
        self.inputs = parts.inputs

    def forward(self, encoded: Encoded, ids: Int[Tensor, "n"]) -> Embeddings:
        """One vector an item."""
        given = self.parts(encoded, ids)
        assert given.parts is not None
        mean = masked_mean(given.parts, given.mask)
        vectors = mean if self.fusion is None else self.fusion(mean, given.vectors[:, 0])
        whole = unit(vectors)[:, None]
        return Embeddings(whole, ids, parts=given.parts, mask=given.mask) if self.keep else Embeddings(whole, ids)
