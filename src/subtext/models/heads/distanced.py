"""Distanced head: a normal distribution as one vector, whose inner products are expected distances."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from subtext.core import Embeddings, Encoded
from subtext.errors import RequirementError
from subtext.ops.numerics import precise


class Distanced(nn.Module):
    """Distanced head (for PCME++, Chun 2024, eq. 1): with two more numbers the closed-form distance is a product.

    picture: [mu, -v, 1]   text: [mu', 1, -v']   v = (|mu|^2 + sum of std^2 - 1) / 2
    <picture, text> = <mu, mu'> - v - v' = 1 - d / 2, with d the expected squared distance of two draws

    So an index of plain vectors ranks as the model does; of unit means the product is their cosine, less half of both
    sums of variances. One of the two numbers would do for items that are only ever found; the other lets the same
    vector ask. Between items of one kind the product means nothing: compare those by their means (`means_alone`).

    gaussian  the head of mean and deviations
    side      "image" or "text"
    kind      "wasserstein": d = |mu - mu'|^2 + |std - std'|^2, for which [mu, std] takes the place of mu, and its
              length that of |mu|^2 and the variances

    Takes   Encoded as `gaussian` does.
    Gives   Embeddings, vectors (N 1 D+2), or (N 1 2D+2), float32 or better; no deviations: they are in the vectors.
    Raises  RequirementError when the head gives no deviations.
    """

    def __init__(
        self,
        gaussian: nn.Module,
        *,
        side: Literal["image", "text"],
        kind: Literal["sampled", "wasserstein"] = "sampled",
    ) -> None:
        super().__init__()
        self.gaussian, self.side, self.kind = gaussian, side, kind
        self.inputs = getattr(gaussian, "inputs", ())

    def forward(self, encoded: Encoded, ids: Int[Tensor, "n"]) -> Embeddings:
        """One vector of every item."""
        items: Embeddings = self.gaussian(encoded, ids)
        if items.log_std is None:
            raise RequirementError("a distanced head needs the deviations of its items; this one has means alone")
        mean, std = precise(items.vectors).mean(dim=1), precise(items.log_std).mean(dim=1).exp()
        place = torch.cat([mean, std], dim=1) if self.kind == "wasserstein" else mean
        half = (mean.square().sum(dim=1) + std.square().sum(dim=1) - 1)[:, None] / 2
        more = [-half, torch.ones_like(half)]
        vectors = torch.cat([place, *(more if self.side == "image" else more[::-1])], dim=1)
        return Embeddings(vectors[:, None], ids)

    def width(self, vectors: Float[np.ndarray, "n k d"]) -> int:
        """D, of the mean, in vectors that this head gave."""
        return (vectors.shape[2] - 2) // (2 if self.kind == "wasserstein" else 1)

    def means_alone(self, vectors: Float[np.ndarray, "n k d"]) -> Float[np.ndarray, "n k d"]:
        """Vectors that ask for items of their own kind: zeros but for the mean, so that products are those of means."""
        found = np.zeros_like(vectors)
        width = self.width(vectors)
        found[:, :, :width] = vectors[:, :, :width]
        return found

    def uncertainty(self, vectors: Float[np.ndarray, "n k d"]) -> Float[np.ndarray, "n"]:
        """The root mean square of each item's deviations, as `Embeddings.uncertainty` has it, from its vector.

        Exact to rounding where means are of unit length.
        """
        half = -vectors[:, 0, -2 if self.side == "image" else -1]
        return np.sqrt(np.maximum(2 * half, 0) / self.width(vectors))
