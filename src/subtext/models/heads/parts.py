"""Heads of parts: Parts keeps them, SelfAttention adds a weighted mean, FusedMean joins them, Pie makes K vectors."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from subtext.core import Embeddings, Encoded
from subtext.errors import RequirementError
from subtext.models.heads.mean import linear, norm_rows, parts_of, pooled_of
from subtext.ops.attention import Fusion, FusionKind, unit_vectors
from subtext.ops.numerics import masked_mean, masked_softmax, unit, xavier


class Parts(nn.Module):
    """Parts head (SCAN, Lee et al. 2018): a vector for every region or word, and one vector for the item.

    p = W x + b of every part x, then p / |p|

    Args:
        width_in: E of the parts; with `halves` the width of both directions together.
        width: D.
        project: False: no W and b; then D is E, or E / 2 with `halves`.
        halves: Whether to average the two halves of x, the directions of a GRU, first.
        normalise: Whether parts and vectors have unit length.
        vector: The source of `vectors`: the mean of the parts, or a linear map of the pooled vector of `pooled_width`.
        pooled_width: Width of the pooled vector; read with vector="pooled" alone.

    Raises:
        RequirementError: If the encoder lacks what is read, or widths do not fit without a projection.
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
        self.halves, self.normalise = halves, normalise
        self.project = linear(width_of_part, width) if project else nn.Identity()
        self.pooled = linear(pooled_width, width) if vector == "pooled" and pooled_width is not None else None
        self.inputs = ("parts", "pooled") if self.pooled is not None else ("parts",)

    def forward(self, encoded: Encoded, ids: Int[Tensor, "n"]) -> Embeddings:
        """The parts of every item, and one vector.

        Args:
            encoded: With parts, and with a pooled vector for vector="pooled".
            ids: (N) The id of each item.

        Returns:
            Embeddings with parts (N P D) and their mask, and vectors (N 1 D).
        """
        parts = parts_of(encoded, "a parts head")
        if self.halves:
            forward, backward = parts.chunk(2, dim=2)
            parts = (forward + backward) / 2
        parts = self.project(parts)
        if self.normalise:
            parts = unit(parts)
        if self.pooled is None:
            vectors = masked_mean(parts, encoded.mask)
        else:
            vectors = self.pooled(pooled_of(encoded, "a parts head with vector='pooled'"))
        return Embeddings(
            vectors=(unit(vectors) if self.normalise else vectors)[:, None], ids=ids, parts=parts, mask=encoded.mask
        )


class FusedMean(nn.Module):
    """Fused head (AsCL without cross attention, Gong et al. 2024, "w/o MF"): z = Fusion(mean of parts, G), z / |z|.

    Raises what `parts` raises.

    Args:
        parts: The head of the parts, of width D, and of G, its vectors.
        width: D.
        fusion: How G is added, see `ops.attention.Fusion`; "none": without G.
        keep: Whether to keep the parts, for a training that changes them.
    """

    def __init__(self, parts: Parts, width: int, fusion: FusionKind | Literal["none"], *, keep: bool = False) -> None:
        super().__init__()
        self.keep = keep
        self.parts = parts
        self.fusion = Fusion(width, fusion) if fusion != "none" else None
        self.inputs = parts.inputs

    def forward(self, encoded: Encoded, ids: Int[Tensor, "n"]) -> Embeddings:
        """One vector per item.

        Args:
            encoded: As `parts` needs it.
            ids: (N) The id of each item.

        Returns:
            Embeddings with vectors (N 1 D) of unit length; with `keep` also parts (N P D) and their mask.
        """
        items = self.parts(encoded, ids)
        assert items.parts is not None
        mean = masked_mean(items.parts, items.mask)
        vectors = mean if self.fusion is None else self.fusion(mean, items.vectors[:, 0])
        fused = unit(vectors)[:, None]
        return Embeddings(fused, ids, parts=items.parts, mask=items.mask) if self.keep else Embeddings(fused, ids)


class SelfAttention(nn.Module):
    """Self-attention head (SGRAF, Diao et al. 2021): parts of unit length, and their weighted mean.

    a = softmax over parts of w (tanh(A p) * tanh(B mean p));  g = |sum of a p|

    Args:
        parts: The head of the parts, of width D.
        width: D.
        dropout: Of both tanh terms; 0.4 in the authors' code.
        normalise: Whether a batch norm precedes each tanh, as for images in the authors' code. Theirs has statistics
            for each of 36 regions, which ties a model to that number.
        regions: Number of regions with statistics of their own; 0: one statistic for all regions, of which images then
            may have any number.

    Raises:
        RequirementError: If the encoder gives no parts, or not as many as `regions`.
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
            xavier(layer)
        self.dropout = nn.Dropout(dropout)
        self.local_norm = nn.BatchNorm1d(regions or 1) if normalise else None
        self.whole_norm = nn.BatchNorm1d(width) if normalise else None

    def forward(self, encoded: Encoded, ids: Int[Tensor, "n"]) -> Embeddings:
        """The parts of every item, and their weighted mean.

        Args:
            encoded: With parts.
            ids: (N) The id of each item.

        Returns:
            Embeddings with parts (N P D) and their mask, and vectors (N 1 D) of unit length.

        Raises:
            RequirementError: See the class.
        """
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
            # Without a fixed number of regions there is one statistic for all of them, without padding.
            if self.places:
                local = self.local_norm(local)
            elif mask is None:
                local = self.local_norm(local.flatten(0, 1)[:, None]).view_as(local)
            else:
                present = self.local_norm(local[mask][:, None])[:, 0]
                local = local.new_zeros(local.shape)
                local[mask] = present
            query = norm_rows(self.whole_norm, query)
        local, query = self.dropout(torch.tanh(local)), self.dropout(torch.tanh(query))
        logits = self.common(local * query[:, None])[..., 0]
        weights = masked_softmax(logits, mask)
        vectors = unit_vectors(torch.einsum("np,npd->nd", weights, parts))
        return Embeddings(vectors=vectors[:, None], ids=ids, parts=parts, mask=mask)


class Pie(nn.Module):
    """PIE-Net head (Song and Soleymani 2019, section 3.2): K diverse vectors for an item with several meanings.

    A = softmax over parts of W2 tanh(W1 x)     x: parts (N P E), A: (N P K)
    r_k = dropout(sigmoid(W A_k^T x + b))       e_k = layer_norm(g + r_k), then e_k / |e_k|

    W1 and W2 have no bias and E // 2 rows between them. Everything starts Xavier-uniform, biases at zero; the authors'
    code omits that for W_g.

    An item with a single part has K equal views: take one.

    Args:
        parts_width: E.
        pooled_width: Width of the encoder's pooled vector; g is dropout(W_g pooled + b_g), or dropout(pooled) where
            `project` is False.
        width: D.
        views: K.
        project: Whether to map the pooled vector; False: D is its width.
        dropout: On g and on r.
        base: Source of g. "parts": g is the mean over the parts of relu(p / |p|), p = W_g x + b_g, as PCME-bert has it
            (Li et al. 2022, code); W_g then reads parts. The authors' mean runs over padding as well.

    Raises:
        RequirementError: If views is below 1, the encoder lacks what is read, or D is not the pooled width without a
            projection.
    """

    def __init__(
        self,
        parts_width: int,
        pooled_width: int,
        width: int,
        *,
        views: int = 1,
        project: bool = True,
        dropout: float = 0.0,
        base: Literal["pooled", "parts"] = "pooled",
    ) -> None:
        super().__init__()
        if views < 1:
            raise RequirementError(f"a PIE-Net head needs at least one view; it got {views}")
        if not project and pooled_width != width:
            raise RequirementError(
                f"PIE-Net without projection needs a pooled vector of the joint width {width}; it got {pooled_width}"
            )
        hidden = max(parts_width // 2, 1)
        self.inner = linear(parts_width, hidden, bias=False)
        self.outer = linear(hidden, views, bias=False)
        self.lift = linear(parts_width, width)
        self.norm = nn.LayerNorm(width)
        self.whole = base
        self.inputs = ("parts", "pooled") if base == "pooled" else ("parts",)
        self.project = linear(pooled_width, width) if project else nn.Identity()
        self.dropout = nn.Dropout(dropout)

    def forward(self, encoded: Encoded, ids: Int[Tensor, "n"]) -> Embeddings:
        """K vectors per item, and their residuals.

        Args:
            encoded: With parts and a pooled vector.
            ids: (N) The id of each item.

        Returns:
            Embeddings with vectors and residuals (N K D).

        Raises:
            RequirementError: See the class.
        """
        pooled = encoded.pooled
        if encoded.parts is None or (pooled is None and self.whole == "pooled"):
            missing = "parts" if encoded.parts is None else "a pooled vector"
            raise RequirementError(f"a PIE-Net head needs an encoder with parts and a pooled vector; {missing} missing")
        if self.whole == "parts":
            base = masked_mean(torch.relu(unit(self.project(encoded.parts))), encoded.mask)
        else:
            base = self.project(pooled)
        vectors, residuals, _ = self.views(self.dropout(base), encoded.parts, encoded.mask)
        return Embeddings(vectors=vectors, ids=ids, residuals=residuals)

    def views(
        self, base: Float[Tensor, "n d"], parts: Float[Tensor, "n p e"], mask: Bool[Tensor, "n p"] | None
    ) -> tuple[Float[Tensor, "n k d"], Float[Tensor, "n k d"], Float[Tensor, "n p k"]]:
        """The views of a global vector.

        Args:
            base: (N D), the global vector in the joint space.
            parts: (N P E).
            mask: (N P) bool, True where a part exists; None where all do.

        Returns:
            (N K D) views of unit length, (N K D) residuals, and (N P K) attention to parts.
        """
        logits = self.outer(torch.tanh(self.inner(parts))).transpose(1, 2)
        shown = None if mask is None else mask[:, None, :].expand_as(logits)
        attention = masked_softmax(logits, shown).transpose(1, 2)
        residuals = self.dropout(torch.sigmoid(self.lift(attention.transpose(1, 2) @ parts)))
        return unit(self.norm(base[:, None] + residuals)), residuals, attention
