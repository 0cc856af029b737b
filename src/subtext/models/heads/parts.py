"""Heads of regions or words: Parts gives each of them, Attended adds a weighted mean, Fused makes one vector."""

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
    """Parts head (SCAN, Lee et al. 2018): every region or word by itself, and one vector of the item.

    p = W x + b of every part x, then p / |p|

    width_in   E of the parts; with `halves` of both directions together
    width      D
    project    False: no W and b; then D is E, or E / 2 with `halves`
    halves     average the two halves of x, the directions of a GRU, first
    normalise  False keeps the length of parts and vectors
    vector     the source of `vectors`: the mean of the parts, or a linear map of the pooled vector of `pooled_width`

    Takes   Encoded with parts, and with a pooled vector for vector="pooled".
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
        vector: Literal["mean", "pooled"] = "mean",
        pooled_width: int | None = None,
    ) -> None:
        super().__init__()
        width_of_part = width_in // 2 if halves else width_in
        if not project and width_of_part != width:
            raise RequirementError(
                f"a parts head without projection needs width {width_of_part}, that of the encoder; it got {width}; "
                "set the widths equal or project"
            )
        if vector == "pooled" and pooled_width is None:
            raise RequirementError(
                "a parts head with vector='pooled' needs an encoder with a pooled vector; it has none"
            )
        self.halves = halves
        self.normalise = normalise
        self.project = linear(width_of_part, width) if project else nn.Identity()
        self.pooled: nn.Linear | None = None
        if vector == "pooled" and pooled_width is not None:
            self.pooled = linear(pooled_width, width)
        self.inputs = ("parts", "pooled") if self.pooled is not None else ("parts",)

    def forward(self, encoded: Encoded, ids: Int[Tensor, "n"]) -> Embeddings:
        """The parts of every item, and one vector of it."""
        if encoded.parts is None:
            raise RequirementError("a parts head needs an encoder that gives parts; it gave a pooled vector alone")
        parts = encoded.parts
        if self.halves:
            forward, backward = parts.chunk(2, dim=2)
            parts = (forward + backward) / 2
        parts = self.project(parts)
        if self.normalise:
            parts = unit(parts)
        vectors = self._vectors(parts, encoded)
        return Embeddings(
            vectors=(unit(vectors) if self.normalise else vectors)[:, None], ids=ids, parts=parts, mask=encoded.mask
        )

    def _vectors(self, parts: Float[Tensor, "n p d"], encoded: Encoded) -> Float[Tensor, "n d"]:
        if self.pooled is None:
            return masked_mean(parts, encoded.mask)
        if encoded.pooled is None:
            raise RequirementError("a parts head needs a pooled vector here; the encoder gave parts alone")
        return self.pooled(encoded.pooled)


class Fused(nn.Module):
    """Fused head (AsCL without cross attention, Gong et al. 2024, "w/o MF"): z = Fusion(mean of parts, G), z / |z|.

    parts   the head of the parts, of width D, and of G, its vectors
    fusion  see `ops.fusion`; "none": without G
    keep    whether to keep the parts, for a training that changes them

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
        """One vector per item."""
        items = self.parts(encoded, ids)
        assert items.parts is not None
        mean = masked_mean(items.parts, items.mask)
        vectors = mean if self.fusion is None else self.fusion(mean, items.vectors[:, 0])
        fused = unit(vectors)[:, None]
        return Embeddings(fused, ids, parts=items.parts, mask=items.mask) if self.keep else Embeddings(fused, ids)


class Attended(nn.Module):
    """Self-attention head (SGRAF, Diao et al. 2021): parts of unit length, and their weighted mean.

    a = softmax over parts of w (tanh(A p) * tanh(B mean p));  g = |sum of a p|

    parts      the head of the parts, of width D
    width      D
    dropout    of both tanh, 0.4 in the authors' code
    normalise  a batch norm before each tanh, as for images in the authors' code. Theirs has statistics for each of 36
               regions, which ties a model to that number
    regions    that number; 0: one statistic for all regions, of which images then may have any number

    Takes   Encoded with parts.
    Gives   Embeddings, parts (N P D) with their mask, vectors (N 1 D).
    Raises  RequirementError when there are no parts, or not as many as `regions`.
    """

    inputs = ("parts",)
    """Fields of Encoded that the head reads."""

    def __init__(
        self, parts: Parts, width: int, *, dropout: float = 0.4, normalise: bool = False, regions: int = 0
    ) -> None:
        super().__init__()
        self.parts = parts
        self.places = regions
        self.local, self.whole, self.common = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, 1)
        for layer in (self.local, self.whole, self.common):
            spread(layer)
        self.dropout = nn.Dropout(dropout)
        self.local_norm = nn.BatchNorm1d(regions or 1) if normalise else None
        self.whole_norm = nn.BatchNorm1d(width) if normalise else None

    def forward(self, encoded: Encoded, ids: Int[Tensor, "n"]) -> Embeddings:
        """The parts of every item, and one vector of it."""
        items = self.parts(encoded, ids)
        parts, mask = items.parts, items.mask
        if self.places and self.local_norm is not None and parts.shape[1] != self.places:
            raise RequirementError(
                f"this head needs {self.places} regions per image; it got {parts.shape[1]}; build the model with "
                "num_regions=0 for any number"
            )
        mean = masked_mean(parts, mask)
        local, query = self.local(parts), self.whole(mean)
        if self.local_norm is not None and self.whole_norm is not None:
            local = self._normed(self.local_norm, local, mask)
            query = self._single(self.whole_norm, query)
        local, query = self.dropout(torch.tanh(local)), self.dropout(torch.tanh(query))
        logits = self.common(local * query[:, None])[..., 0]
        weights = masked_softmax(logits, mask)
        vectors = unit_vectors(torch.einsum("np,npd->nd", weights, parts))
        return Embeddings(vectors=vectors[:, None], ids=ids, parts=parts, mask=mask)

    def _normed(
        self, norm: nn.BatchNorm1d, local: Float[Tensor, "n p d"], mask: Bool[Tensor, "n p"] | None
    ) -> Float[Tensor, "n p d"]:
        if self.places:
            return norm(local)
        # One statistic for all regions, without padding.
        present = local[mask] if mask is not None else local.flatten(0, 1)
        normed = norm(present[:, None])[:, 0]
        if mask is None:
            return normed.view_as(local)
        padded = local.new_zeros(local.shape)
        padded[mask] = normed
        return padded

    def _single(self, norm: nn.BatchNorm1d, query: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Batch norm; a single item has no variance and uses the running statistics."""
        if len(query) > 1 or not self.training:
            return norm(query)
        return nn.functional.batch_norm(query, norm.running_mean, norm.running_var, norm.weight, norm.bias)
