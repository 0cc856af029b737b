"""Rank weights (Mithun et al. 2018) on the triplet loss: worked values."""

from __future__ import annotations

import pytest
from scenes import S3, scene_of

from subtext.core import DIRECTIONS, Epoch
from subtext.objectives.losses.triplet import Triplet
from subtext.objectives.objective import Objective, Term
from subtext.objectives.weighting import Rank

pytestmark = pytest.mark.golden

OTHER = [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [0.7, 0.9, 0.8]]
FIRST = Epoch(number=0, seed=0)


def weighted(negatives: str) -> Objective:
    loss = Triplet(margin=0.2, negatives=negatives)
    return Objective(
        {
            direction: Term(loss, direction, reduction="sum", weighting=Rank(direction=direction))
            for direction in DIRECTIONS
        }
    )


@pytest.mark.parametrize(
    ("scores", "negatives", "wanted"),
    [(S3, "hardest", 1.6666666667), (OTHER, "hardest", 4.2), (OTHER, "all", 6.1)],
)
def test_weighted_sum_equals_worked_value(scores, negatives, wanted):
    total, _ = weighted(negatives)(scene_of(scores), FIRST)
    assert total.item() == pytest.approx(wanted, abs=1e-10)


def test_weights_equal_worked_values():
    assert Rank(direction="image_to_text")(scene_of(OTHER), FIRST).tolist() == pytest.approx([2, 1.5, 1.5])
    assert Rank(direction="text_to_image")(scene_of(OTHER), FIRST).tolist() == pytest.approx([2, 1.5, 4 / 3])


@pytest.mark.parametrize(("rank", "wanted"), [(1, 1.03125), (2, 1.03226), (31, 1.5), (32, 2.0)])
def test_weights_are_nearly_flat_except_last_ranks(rank, wanted):
    size = 32
    scores = [[0.5 if row == column else 0.0 for column in range(size)] for row in range(size)]
    scores[0] = [0.5] + [0.9] * (rank - 1) + [0.1] * (size - rank)
    assert Rank(direction="image_to_text")(scene_of(scores), FIRST)[0].item() == pytest.approx(wanted, abs=5e-6)
