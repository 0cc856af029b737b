"""How many others a pair has near it in two modalities at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from subtext.errors import RequirementError
from subtext.ops.numerics import unit

Join = Literal["min", "sum", "product"]


@dataclass(frozen=True)
class Crowding:
    """What counts as dense; the defaults are this project's reading of Amrani et al. 2021.

    neighbours  of how many nearest pairs the likeness counts, 1 or more; 10
    join        of the two modalities' standardised cosines z: the smaller (close in both), their sum, or the product of
                their normal distribution functions
    value       "mean" of the nearest ones' likeness, or that of the "last" of them
    scale       "range": from 0 for the least dense pair to 1 for the densest; "rank": evenly by rank
    """

    neighbours: int = 10
    join: Join = "min"
    value: Literal["mean", "last"] = "mean"
    scale: Literal["range", "rank"] = "range"

    def __post_init__(self) -> None:
        if self.neighbours < 1:
            raise RequirementError(f"a density needs 1 neighbour or more; it got {self.neighbours}")


AS_READ = Crowding()
"""The defaults."""


def density(
    first: Float[Tensor, "n d"],
    second: Float[Tensor, "n e"],
    how: Crowding = AS_READ,
    *,
    groups: Int[Tensor, "n"] | None = None,
    block: int = 1024,
) -> Float[Tensor, "n"]:
    """(N) in [0, 1]: how near each pair's nearest others are, in both modalities at once (Amrani et al. 2021).

    likeness_ij = min(z(cos(v_i, v_j)), z(cos(t_i, t_j))),   z(c) = (c - mean) / deviation over all pairs i != j
    p_i = mean of the largest likenesses of i, then put on a scale over the data set.

    first, second  features of the N pairs in either modality, rows in the same order; of any length
    groups         (N) pairs that share a number do not count as each other's nearest: texts of the same picture, whose
                   cosine of pictures is 1, would crowd every pair. None: every other pair may be near
    block          rows of the N x N likenesses held at a time; changes nothing else

    Mean and deviation, always over all pairs, are exact without any cosine: sum_ij c_ij = |sum_i u_i|^2 and
    sum_ij c_ij^2 = |U^T U|^2 for unit rows u. All equal cosines have deviation 0 and z = 0. Time N^2 (D + E), memory
    block N.

    Raises RequirementError where a pair has fewer others, of other groups, than neighbours.

    >>> line = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8], [-1.0, 0.0]])
    >>> [round(value, 2) for value in density(line, line, Crowding(neighbours=1)).tolist()]
    [0.9, 1.0, 1.0, 0.0]
    """
    count = len(first)
    own = torch.arange(count, device=first.device) if groups is None else groups.to(first.device)
    largest = int(own.unique(return_counts=True)[1].max()) if count else 0
    if count - largest < how.neighbours:
        others = "" if groups is None else f", {largest} of them in one group"
        raise RequirementError(
            f"a density over {how.neighbours} neighbours needs as many other pairs for each, which are of no group of "
            f"its own; it got {count} pairs{others}; take fewer neighbours"
        )
    sides = [unit(side.to(torch.float32) if side.dtype != torch.float64 else side) for side in (first, second)]
    moments = [_moments(side) for side in sides]
    found = []
    for start in range(0, count, block):
        z = [
            (side[start : start + block] @ side.T - mean) * (1 / deviation if deviation > 0 else 0.0)
            for side, (mean, deviation) in zip(sides, moments, strict=True)
        ]
        likeness = _JOINS[how.join](*z)
        likeness.masked_fill_(own[start : start + block, None] == own, float("-inf"))
        nearest = likeness.topk(how.neighbours, dim=1).values
        found.append(nearest.mean(dim=1) if how.value == "mean" else nearest[:, -1])
    return _scaled(torch.cat(found), how.scale)


_JOINS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "min": torch.minimum,
    "sum": torch.add,
    "product": lambda one, other: torch.special.ndtr(one) * torch.special.ndtr(other),
}


def _moments(side: Float[Tensor, "n d"]) -> tuple[float, float]:
    """Mean and standard deviation of the cosines of all ordered pairs of different rows."""
    rows = side.to(torch.float64)
    own = rows.square().sum(dim=1)
    pairs = len(rows) * (len(rows) - 1)
    mean = (rows.sum(dim=0).square().sum() - own.sum()) / pairs
    square = ((rows.T @ rows).square().sum() - own.square().sum()) / pairs
    variance = square - mean.square()
    # Below the rounding of the difference all cosines are the same.
    return float(mean), float(variance.sqrt()) if variance > 1e-12 else 0.0


def _scaled(values: Float[Tensor, "n"], scale: str) -> Float[Tensor, "n"]:
    if scale == "rank":
        # Equal values have equal ranks: the mean of the places that they share.
        ordered = values.sort().values
        places = torch.searchsorted(ordered, values) + torch.searchsorted(ordered, values, right=True) - 1
        return places.to(values.dtype) / 2 / max(1, len(values) - 1)
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else torch.zeros_like(values)
