"""How densely other pairs lie around a pair, in two modalities at once."""

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
class DensityOptions:
    """How density is computed. The defaults are this project's reading of Amrani et al. 2021.

    Args:
        neighbours: The number of nearest pairs, 1 or more.
        join: Similarity of two pairs from the standardised cosines z of both modalities: the smaller one (close in
            both), their sum, or the product of their normal distribution functions.
        value: "mean" similarity of the nearest pairs, or that of the "last" of them.
        scale: "range": 0 for the least dense pair, 1 for the densest. "rank": evenly by rank.

    Raises:
        RequirementError: If `neighbours` is below 1.
    """

    neighbours: int = 10
    join: Join = "min"
    value: Literal["mean", "last"] = "mean"
    scale: Literal["range", "rank"] = "range"

    def __post_init__(self) -> None:
        if self.neighbours < 1:
            raise RequirementError(f"a density needs 1 neighbour or more; it got {self.neighbours}")


AS_READ = DensityOptions()
"""The defaults."""


def density(
    first: Float[Tensor, "n d"],
    second: Float[Tensor, "n e"],
    settings: DensityOptions = AS_READ,
    *,
    groups: Int[Tensor, "n"] | None = None,
    block: int = 1024,
) -> Float[Tensor, "n"]:
    """How close the nearest other pairs are to each pair, in both modalities at once (Amrani et al. 2021).

    With cosines c of the features v of one modality and t of the other, and z the standardised cosine::

        z(c) = (c - mean) / deviation, over all pairs i != j
        similarity_ij = min(z(cos(v_i, v_j)), z(cos(t_i, t_j)))
        p_i = mean of the largest similarities of i, then scaled over the data set

    Mean and deviation, always over all pairs, are exact without any cosine. For rows u of length 1, and U of all rows,
    the sum of all cosines is the squared length of the sum of u; the sum of their squares is that of the entries of U^T
    U. If all cosines are equal, the deviation and every z are 0.

    Args:
        first: (N D) features of the pairs in one modality, of any length.
        second: (N E) features of the same pairs in the other, in the same order.
        settings: Neighbours, join, value and scale.
        groups: (N) pairs of one group are not each other's neighbours: texts of the same image have an image cosine of
            1. None where every other pair may be a neighbour.
        block: Rows of the N x N similarities held at a time. The result does not depend on it.

    Returns:
        (N) in [0, 1].

    Raises:
        RequirementError: If a pair has fewer pairs outside its group than neighbours.

    Complexity:
        Time N^2 (D + E), memory block N.

    Example:
        >>> line = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8], [-1.0, 0.0]])
        >>> [round(value, 2) for value in density(line, line, DensityOptions(neighbours=1)).tolist()]
        [0.9, 1.0, 1.0, 0.0]
    """
    count = len(first)
    group_of_pair = torch.arange(count, device=first.device) if groups is None else groups.to(first.device)
    largest = int(group_of_pair.unique(return_counts=True)[1].max()) if count else 0
    if count - largest < settings.neighbours:
        sharing = "" if groups is None else f", {largest} of them in one group"
        raise RequirementError(
            f"a density over {settings.neighbours} neighbours needs as many other pairs outside each pair's group; "
            f"it got {count} pairs{sharing}; take fewer neighbours"
        )
    sides = [unit(side.to(torch.float32) if side.dtype != torch.float64 else side) for side in (first, second)]
    moments = [_moments(side) for side in sides]
    densities = []
    for start in range(0, count, block):
        z = [
            (side[start : start + block] @ side.T - mean) * (1 / deviation if deviation > 0 else 0.0)
            for side, (mean, deviation) in zip(sides, moments, strict=True)
        ]
        similarity = _JOINS[settings.join](*z)
        similarity.masked_fill_(group_of_pair[start : start + block, None] == group_of_pair, float("-inf"))
        nearest = similarity.topk(settings.neighbours, dim=1).values
        densities.append(nearest.mean(dim=1) if settings.value == "mean" else nearest[:, -1])
    values = torch.cat(densities)
    if settings.scale == "rank":
        # Equal values share the mean of their ranks.
        ordered = values.sort().values
        doubled_ranks = torch.searchsorted(ordered, values) + torch.searchsorted(ordered, values, right=True) - 1
        return doubled_ranks.to(values.dtype) / 2 / max(1, len(values) - 1)
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else torch.zeros_like(values)


_JOINS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "min": torch.minimum,
    "sum": torch.add,
    "product": lambda a, b: torch.special.ndtr(a) * torch.special.ndtr(b),
}


def _moments(side: Float[Tensor, "n d"]) -> tuple[float, float]:
    """Mean and standard deviation of the cosines of all ordered pairs of different rows."""
    rows = side.to(torch.float64)
    squared_norms = rows.square().sum(dim=1)
    pairs = len(rows) * (len(rows) - 1)
    mean = (rows.sum(dim=0).square().sum() - squared_norms.sum()) / pairs
    square = ((rows.T @ rows).square().sum() - squared_norms.square().sum()) / pairs
    variance = square - mean.square()
    # A variance below the rounding error: all cosines are equal.
    return float(mean), float(variance.sqrt()) if variance > 1e-12 else 0.0
