"""Gaussian head: where an item lies, how far that is uncertain, and draws from both."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from subtext.core import Embeddings, Encoded
from subtext.errors import RequirementError
from subtext.ops import draw


class Gaussian(nn.Module):
    """Gaussian head (PCME, Chun et al. 2021, section 3.2): an item is a normal distribution, known by K draws from it.

    z_k = mu + exp(log_std) * noise_k

    mean    a head of one unit vector an item: mu
    spread  Encoded -> (N D), the natural logarithm of the standard deviation in each dimension
    draws   K; 0 for a model that reads mean and spread alone, as PCME++ does
    drawn   "always", or while learning alone: then mu stands for an item wherever items are ranked
    side    "image" or "text": the two draw apart
    seed    of the draws where nothing is learnt; while learning they are drawn from the run's seed and the epoch

    Noise comes with the tensors of a batch (`Branch.read`), a pure function of seed, epoch and the item's key: the same
    for an item in any batch, order or company. Without noise the vector is mu.

    Takes   Encoded as both parts do.
    Gives   Embeddings, vectors (N K D), of no fixed length, or mu (N 1 D); log_std (N 1 D).
    Raises  RequirementError for fewer than 0 draws, and what both parts raise.
    """

    def __init__(
        self,
        mean: nn.Module,
        spread: nn.Module,
        width: int,
        *,
        draws: int = 0,
        drawn: Literal["always", "learning"] = "always",
        side: str = "image",
        seed: int = 0,
    ) -> None:
        super().__init__()
        if draws < 0:
            raise RequirementError(f"a gaussian head needs draws of 0 or more; it got {draws}")
        self.mean, self.spread = mean, spread
        self.width, self.draws, self.drawn = width, draws, drawn
        self.side, self.seed = side, seed
        names: list[str] = [name for part in (mean, spread) for name in getattr(part, "inputs", ())]
        self.inputs = tuple(dict.fromkeys(names))

    def forward(
        self, encoded: Encoded, ids: Int[Tensor, "n"], noise: Float[Tensor, "n k d"] | None = None
    ) -> Embeddings:
        """Draws of every item, or its mean."""
        vectors: Tensor = self.mean(encoded, ids).vectors
        log_std: Tensor = self.spread(encoded)[:, None]
        if noise is not None:
            vectors = vectors + log_std.exp() * noise.to(vectors.dtype)
        return Embeddings(vectors=vectors, ids=ids, log_std=log_std)

    def noise(self, keys: NDArray[np.int64], *, seed: int | None, epoch: int) -> Float[Tensor, "n k d"] | None:
        """Standard normal numbers for the items of these keys; None where nothing is to be drawn.

        seed  of the run; None where nothing is learnt
        """
        if not self.draws or (seed is None and self.drawn == "learning"):
            return None
        purpose = f"{self.side} draws" if seed is not None else f"{self.side} draws of evaluation"
        own = self.seed if seed is None else seed
        count = self.draws * self.width
        found = draw.normal(keys, seed=own, epoch=epoch if seed is not None else 0, purpose=purpose, count=count)
        return torch.from_numpy(np.ascontiguousarray(found)).view(len(keys), self.draws, self.width)

    def by_mean(self) -> Gaussian:
        """The same weights without draws."""
        return Gaussian(self.mean, self.spread, self.width, side=self.side, seed=self.seed).train(self.training)
