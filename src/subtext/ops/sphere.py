"""How far apart points on a sphere are by chance."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def log_rarity(distances: Float[Tensor, "*shape"], width: int, *, least: float = 0.5) -> Float[Tensor, "*shape"]:
    """-log q of distances between points on the unit sphere, up to a constant (Wu et al. 2017, section 3).

    q(d) = d^(D-2) (1 - d^2 / 4)^((D-3)/2)
    is how often two random points of D dimensions are d apart: nearly always about sqrt(2) where D is large.

    distances  0 to 2; smaller ones than `least` are taken for it, since noise would decide among them
    width      D, 2 or more

    >>> [round(value, 4) for value in log_rarity(torch.tensor([0.1, 0.5, 1.2]), 4).tolist()]
    [1.4186, 1.4186, -0.1415]
    """
    held = distances.clamp_min(least)
    # Two points are 2 apart in one way only: the floor keeps its logarithm a number.
    rest = (1 - held.square() / 4).clamp_min(torch.finfo(held.dtype).eps)
    return (2 - width) * held.log() - (width - 3) / 2 * rest.log()
