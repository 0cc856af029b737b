"""Density weights (Amrani et al. 2021): worked values, the loops they stand for, and blocks that change nothing."""

from __future__ import annotations

import math

import pytest
import torch
from scenes import S3, doubles, random_items, scene_of

from subtext.core import DIRECTIONS, Epoch
from subtext.errors import RequirementError
from subtext.objectives.losses.triplet import Triplet
from subtext.objectives.objective import Objective, Term
from subtext.objectives.weighting import Density
from subtext.ops.density import DensityOptions, _moments, density

pytestmark = pytest.mark.golden

V = doubles([[1, 0], [0.8, 0.6], [0.6, 0.8], [-1, 0], [0, -1]])
T = doubles([[1, 0], [0.6, 0.8], [0.8, 0.6], [0, 1], [-0.6, -0.8]])
SUM = [2.09383727, 2.4607971, 2.4461522, 0.05481395, -0.75966908]
LAST = [0.73359788, 0.73359788, 0.99559712, -0.95542807, -1.10039681]


def ranged(values: list[float]) -> list[float]:
    low, high = min(values), max(values)
    return [(value - low) / (high - low) for value in values]


def test_moments_equal_worked_values():
    assert _moments(V) == pytest.approx((-0.144, 0.6866032333))
    assert _moments(T) == pytest.approx((0.04, 0.7633609893))


@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        (DensityOptions(2), [0.88607595, 0.93670886, 1, 0.07711572, 0]),
        (DensityOptions(2, join="sum"), ranged(SUM)),
        (DensityOptions(2, value="last"), ranged(LAST)),
        (DensityOptions(2, scale="rank"), [0.5, 0.75, 1, 0.25, 0]),
    ],
)
def test_densities_of_five_pairs_equal_worked_values(how, wanted):
    assert density(V, T, how).tolist() == pytest.approx(wanted, abs=1e-7)


def loops(
    first: torch.Tensor, second: torch.Tensor, how: DensityOptions, groups: list[int] | None = None
) -> list[float]:
    groups = list(range(len(first))) if groups is None else groups

    def standardised(side: torch.Tensor) -> list[list[float]]:
        rows = [row / row.norm() for row in side]
        cosines = [[float(a @ b) for b in rows] for a in rows]
        others = [c for i, row in enumerate(cosines) for j, c in enumerate(row) if i != j]
        mean = sum(others) / len(others)
        deviation = math.sqrt(sum((c - mean) ** 2 for c in others) / len(others))
        return [[(c - mean) / deviation for c in row] for row in cosines]

    def phi(z: float) -> float:
        return (1 + math.erf(z / math.sqrt(2))) / 2

    joins = {"min": min, "sum": lambda a, b: a + b, "product": lambda a, b: phi(a) * phi(b)}
    a, b = standardised(first), standardised(second)
    values = []
    for i in range(len(first)):
        others = [j for j, group in enumerate(groups) if group != groups[i]]
        like = sorted((joins[how.join](a[i][j], b[i][j]) for j in others), reverse=True)
        near = like[: how.neighbours]
        values.append(sum(near) / len(near) if how.value == "mean" else near[-1])
    return ranged(values)


@pytest.mark.parametrize("join", ["min", "sum", "product"])
@pytest.mark.parametrize("value", ["mean", "last"])
@pytest.mark.parametrize("block", [1, 4, 1024])
def test_density_equals_plain_loop_for_any_block_size(join, value, block):
    first = 3 * random_items(11, views=1, width=4, seed=1).vectors[:, 0]
    second = random_items(11, views=1, width=6, seed=2).vectors[:, 0]
    how = DensityOptions(3, join=join, value=value)
    assert density(first, second, how, block=block).tolist() == pytest.approx(loops(first, second, how), abs=1e-9)


@pytest.mark.parametrize("block", [1, 4, 1024])
def test_pairs_of_one_group_are_no_neighbours(block):
    """Three texts of each of four pictures, but one alone: with the own picture's texts it is other values."""
    groups = [7, 7, 3, 7, 1, 3, 0, 9, 9, 9, 3]
    pictures = random_items(10, views=1, width=4, seed=1).vectors[:, 0]
    first, second = pictures[groups], random_items(11, views=1, width=6, seed=2).vectors[:, 0]
    found = density(first, second, DensityOptions(2), groups=torch.tensor(groups), block=block)
    assert found.tolist() == pytest.approx(loops(first, second, DensityOptions(2), groups), abs=1e-9)
    assert found.tolist() != pytest.approx(loops(first, second, DensityOptions(2)), abs=1e-3)
    alone = density(first, second, DensityOptions(2), groups=torch.arange(11), block=block)
    assert torch.equal(alone, density(first, second, DensityOptions(2), block=block))


def test_float32_and_float64_agree():
    torch.testing.assert_close(
        density(V.float(), T.float(), DensityOptions(2)).double(), density(V, T, DensityOptions(2))
    )


def test_identical_vectors_are_equally_dense():
    same = torch.ones(4, 3, dtype=torch.float64)
    assert density(same, same, DensityOptions(2)).tolist() == [0, 0, 0, 0]
    assert density(same, same, DensityOptions(2, scale="rank")).tolist() == [0.5, 0.5, 0.5, 0.5]
    # One modality that says nothing leaves the other to decide which pairs are sparse.
    assert density(same, V[:4], DensityOptions(1)).max() <= 1


@pytest.mark.parametrize(("count", "neighbours"), [(3, 3), (1, 1)])
def test_too_few_pairs_raise(count, neighbours):
    with pytest.raises(RequirementError, match=f"pair.s group; it got {count} pairs; take fewer neighbours"):
        density(V[:count], T[:count], DensityOptions(neighbours))


def test_too_large_group_raises():
    with pytest.raises(RequirementError, match="it got 5 pairs, 3 of them in one group; take fewer neighbours"):
        density(V, T, DensityOptions(3), groups=torch.tensor([0, 0, 0, 1, 2]))


def test_weighted_loss_equals_worked_value():
    """Weights 1, 0.5, 0 on margins of 0.1: .05 + .075 + 0 in one direction, .15 + .125 + 0 in the other."""
    epoch = Epoch(0, 0, table={"density": doubles([1, 0.5, 0])})
    terms = {
        direction: Term(
            Triplet(margin=0.1), direction, reduction="sum", weighting=Density(1.0, direction, scale="none")
        )
        for direction in DIRECTIONS
    }
    assert Objective(terms)(scene_of(S3), epoch)[0].item() == pytest.approx(0.40)


@pytest.mark.parametrize(
    ("scale", "wanted"),
    [
        ("sum", [4.0, 2.0, 0.0]),
        ("softmax", [6 * math.exp(p) / (math.e + math.exp(0.5) + 1) for p in (1, 0.5, 0)]),
        ("none", [1.0, 0.5, 0.0]),
    ],
)
def test_weight_scales_equal_worked_values(scale, wanted):
    epoch = Epoch(0, 0, table={"density": doubles([1, 0.5, 0])})
    assert Density(6.0, scale=scale)(scene_of(S3), epoch).tolist() == pytest.approx(wanted)


def test_total_follows_batch_size():
    epoch = Epoch(0, 0, table={"density": doubles([1, 0.5, 0])})
    assert Density(6.0, batch=6)(scene_of(S3), epoch).sum().item() == pytest.approx(3.0)


def test_batch_of_zero_densities_is_weighted_equally():
    epoch = Epoch(0, 0, table={"density": doubles([0, 0, 0])})
    assert Density(6.0)(scene_of(S3), epoch).tolist() == pytest.approx([2.0, 2.0, 2.0])


def test_missing_density_table_raises():
    with pytest.raises(RequirementError, match="reads the table 'density'; this epoch has other; train with"):
        Density(1.0)(scene_of(S3), Epoch(0, 0, table={"other": doubles([1])}))
