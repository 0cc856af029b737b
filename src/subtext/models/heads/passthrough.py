"""Passthrough head: an encoder that ends in the joint space needs its length set to one, and nothing else."""

from __future__ import annotations

from jaxtyping import Int
from torch import Tensor, nn

from subtext.core import Embeddings, Encoded
from subtext.errors import RequirementError
from subtext.ops.numerics import unit


class Passthrough(nn.Module):
    """Passthrough head (CLIP, Radford et al. 2021): z = x / |x| of the pooled vector x (N D).

    Takes   Encoded with a pooled vector.
    Gives   Embeddings, vectors (N 1 D).
    Raises  RequirementError when there is no pooled vector.
    """

    inputs = ("pooled",)
    """What it takes of an encoder's output."""

    def forward(self, encoded: Encoded, ids: Int[Tensor, "n"]) -> Embeddings:
        """The pooled vectors, of unit length."""
        if encoded.pooled is None:
            raise RequirementError(
                "a passthrough head needs an encoder that gives a pooled vector; it gave parts alone"
            )
        return Embeddings(vectors=unit(encoded.pooled)[:, None], ids=ids)
