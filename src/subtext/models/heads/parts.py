"""Parts head: regions or words in the joint space, for similarities that look at them together.

Fused head: the mean of an item's parts and a vector of the whole become one.

Self-attended head: regions or words in the joint space, and their mean weighted by how each suits the whole.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from subtext.core import Embeddings, Encoded
from subtext.errors import RequirementError
from subtext.models.heads.mean import linear
from subtext.ops.attention import unit_vectors
from subtext.ops.fusion import Fusion, FusionKind
from subtext.ops.node_similarity import spread
from subtext.ops.numerics import masked_mean, masked_softmax, unit


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


class Attended(nn.Module):
    """Self-attended head (SGRAF, Diao et al. 2021): parts of unit length, and one vector of the whole.

    a = softmax over parts of w (tanh(A p) * tanh(B mean p));  g = |sum of a p|

    parts      the head that gives them, of width D
    width      D
    dropout    of both tanh, 0.4 in the authors' code
    normalise  a batch norm before each tanh, as for pictures in the authors' code. Theirs has statistics for each of 36
               places, which ties a model to 36 regions
    places     that number, for it; 0: one statistic for all places, and pictures of any number of regions

    Takes   Encoded with parts.
    Gives   Embeddings, parts (N P D) with their mask, vectors (N 1 D).
    Raises  RequirementError when there are no parts, or not as many as `places`.
    """

    inputs = ("parts",)
    """What it takes of an encoder's output."""

    def __init__(
        self, parts: Parts, width: int, *, dropout: float = 0.4, normalise: bool = False, places: int = 0
    ) -> None:
        super().__init__()
        self.parts = parts
        self.places = places
        self.local, self.whole, self.common = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, 1)
        for layer in (self.local, self.whole, self.common):
            spread(layer)
        self.dropout = nn.Dropout(dropout)
        self.local_norm = nn.BatchNorm1d(places or 1) if normalise else None
        self.whole_norm = nn.BatchNorm1d(width) if normalise else None

    def forward(self, encoded: Encoded, ids: Int[Tensor, "n"]) -> Embeddings:
        """The parts of every item, and one vector of the whole."""
        given = self.parts(encoded, ids)
        parts, mask = given.parts, given.mask
        if self.places and self.local_norm is not None and parts.shape[1] != self.places:
            raise RequirementError(
                f"this head needs {self.places} regions a picture; it got {parts.shape[1]}; build the model with "
                "places=0 for any number"
            )
        mean = masked_mean(parts, mask)
        local, whole = self.local(parts), self.whole(mean)
        if self.local_norm is not None and self.whole_norm is not None:
            local = self._normed(self.local_norm, local, mask)
            whole = self._single(self.whole_norm, whole)
        local, whole = self.dropout(torch.tanh(local)), self.dropout(torch.tanh(whole))
        logits = self.common(local * whole[:, None])[..., 0]
        weights = masked_softmax(logits, mask)
        vectors = unit_vectors(torch.einsum("np,npd->nd", weights, parts))
        return Embeddings(vectors=vectors[:, None], ids=ids, parts=parts, mask=mask)

    def _normed(
        self, norm: nn.BatchNorm1d, local: Float[Tensor, "n p d"], mask: Bool[Tensor, "n p"] | None
    ) -> Float[Tensor, "n p d"]:
        if self.places:
            return norm(local)
        # One statistic for all places: those that are not there have no say in it.
        present = local[mask] if mask is not None else local.flatten(0, 1)
        normed = norm(present[:, None])[:, 0]
        if mask is None:
            return normed.view_as(local)
        whole = local.new_zeros(local.shape)
        whole[mask] = normed
        return whole

    def _single(self, norm: nn.BatchNorm1d, whole: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """A batch of one item has no variance: it goes by what was learnt before."""
        if len(whole) > 1 or not self.training:
            return norm(whole)
        return nn.functional.batch_norm(whole, norm.running_mean, norm.running_var, norm.weight, norm.bias)
