"""The shape of a joint space: how near partners are, and how far apart all others (Wang and Isola 2020)."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import normalize

_ROWS = 1024
"""Vectors compared with all others at a time."""


def alignment(first: Float[Tensor, "l d"], second: Float[Tensor, "l d"]) -> float:
    """Mean Euclidean distance of the unit vectors of partners, row by row; NaN for none.

    Lower is nearer; vectors at right angles are sqrt(2) = 1.414 apart. Wang and Isola's alignment is its square's mean.

    >>> alignment(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 3.0]]))
    1.4142135623730951
    """
    if not len(first):
        return math.nan
    gaps = normalize(first.double(), dim=1) - normalize(second.double(), dim=1)
    return float(gaps.norm(dim=1).mean())


def uniformity(vectors: Float[Tensor, "n d"], groups: Int[Tensor, "n"]) -> dict[str, float]:
    """Distances of the unit vectors of all pairs of items that are of different groups.

    "mean" and "variance" are of Euclidean distances, the variance of the population (right angles are sqrt(2) apart);
    "potential" is log mean exp(-2 d^2) (Wang and Isola 2020, eq. 5), lower is more uniform; "pairs" is how many
    distances there are, and the others are NaN where that is 0.

    groups  (N), equal for items that belong together, such as the texts of one picture; those are left out

    Cost  N^2 D, in blocks of 1,024 rows.

    >>> spread = uniformity(torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]), torch.arange(3))
    >>> round(spread["mean"], 6), spread["pairs"]  # (sqrt 2 + sqrt 2 + 2) / 3
    (1.609476, 3)
    """
    unit = normalize(vectors.float(), dim=1)
    total = squares = potential = 0.0
    count = 0
    for start in range(0, len(unit), _ROWS):
        rows = slice(start, start + _ROWS)
        apart = torch.triu(groups[rows, None] != groups[None, start:], diagonal=1)
        squared = (2 - 2 * (unit[rows] @ unit[start:].T)).clamp_min(0)[apart].double()
        count += len(squared)
        total += float(squared.sqrt().sum())
        squares += float(squared.sum())
        potential += float(torch.exp(-2 * squared).sum())
    if not count:
        return dict.fromkeys(("mean", "variance", "potential"), math.nan) | {"pairs": 0}
    mean = total / count
    variance = max(squares / count - mean**2, 0.0)
    return {"mean": mean, "variance": variance, "potential": math.log(potential / count), "pairs": count}
