"""Self-attended head: regions or words in the joint space, and their mean weighted by how each suits the whole."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from subtext.core import Embeddings, Encoded
from subtext.errors import RequirementError
from subtext.models.heads.parts import Parts
from subtext.ops.attention import unit_vectors
from subtext.ops.node_similarity import spread
from subtext.ops.numerics import masked_mean, masked_softmax


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
