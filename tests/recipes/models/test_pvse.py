"""PVSE (Song and Soleymani 2019): worked values of the loss, its two penalties and their sum."""

from __future__ import annotations

import pytest
import torch
from scenes import S3, doubles, items, q2, scene_of

from subtext.core import DIRECTIONS, Epoch, Scene
from subtext.models.similarity.cosine import Cosine
from subtext.objectives.losses.triplet import Triplet
from subtext.objectives.objective import Objective, Penalty, Term
from subtext.objectives.regularisers import MMD, ViewDiversity
from subtext.objectives.scene import compose

pytestmark = pytest.mark.golden

FIRST = Epoch(number=0, seed=0)


def ranking(negatives: str, reduction: str) -> Objective:
    loss = Triplet(margin=0.1, negatives=negatives)
    return Objective({direction: Term(loss, direction, reduction=reduction) for direction in DIRECTIONS})


def whole(negatives: str, reduction: str) -> Objective:
    penalties = {"mmd": Penalty(MMD(), 0.01), "diversity": Penalty(ViewDiversity(), 0.1)}
    return Objective({**ranking(negatives, reduction).parts, **penalties})


@pytest.mark.parametrize(
    ("negatives", "reduction", "wanted"),
    [
        ("all", "mean over cells", 0.0722222222),
        ("hardest", "mean", 0.2),
        ("all", "sum", 0.65),
        ("hardest", "sum", 0.6),
    ],
)
def test_three_pairs_with_one_view_equal_worked_values(negatives, reduction, wanted):
    total, _ = ranking(negatives, reduction)(scene_of(S3), FIRST)
    assert total.item() == pytest.approx(wanted, abs=1e-10)


@pytest.mark.parametrize(
    ("negatives", "reduction", "rank", "total"),
    [("all", "mean over cells", 0.26, 0.3082697801), ("hardest", "mean", 0.52, 0.5682697801)],
)
def test_two_pairs_with_two_views_equal_worked_values(negatives, reduction, rank, total):
    value, parts = whole(negatives, reduction)(q2(), FIRST)
    assert (parts["image_to_text"] + parts["text_to_image"]).item() == pytest.approx(rank, abs=1e-10)
    assert parts["mmd"].item() == pytest.approx(0.01 * 0.2307839306, abs=1e-11)
    assert parts["diversity"].item() == pytest.approx(0.1 * (0.2828427125 + 0.1767766953), abs=1e-10)
    assert value.item() == pytest.approx(total, abs=1e-10)


@pytest.mark.parametrize("negatives", ["all", "hardest"])
def test_sum_reduction_equals_worked_values(negatives):
    """Reduced by sums, the penalties are their means times their sizes: B for diversity, (B K)^2 for MMD."""
    terms = ranking(negatives, "sum").parts
    penalties = {"mmd": Penalty(MMD(), 0.01 * 16), "diversity": Penalty(ViewDiversity(), 0.1 * 2)}
    total, parts = Objective({**terms, **penalties})(q2(), FIRST)
    assert (parts["image_to_text"] + parts["text_to_image"]).item() == pytest.approx(1.04, abs=1e-10)
    assert parts["diversity"].item() == pytest.approx(0.1 * 0.9192388155, abs=1e-10)
    assert parts["mmd"].item() == pytest.approx(0.01 * 3.6925428903, abs=1e-10)
    assert total.item() == pytest.approx(1.1688493105, abs=1e-10)


def test_pooled_scores_equal_worked_values():
    assert q2().image_to_text.scores.flatten().tolist() == pytest.approx([0.80, 0.96, 0.96, 0.80])


def four_points() -> Scene:
    images, texts = items(doubles([[0, 0], [1, 0]])), items(doubles([[0, 1], [1, 1]]))
    return compose(Cosine(), images, texts, torch.arange(2))


def test_discrepancy_by_hand():
    assert MMD()(four_points()).item() == pytest.approx(0.5069313086, abs=1e-10)
    assert MMD(squared=True)(four_points()).item() == pytest.approx(0.6321205588, abs=1e-10)
    assert MMD(squared=True)(q2()).item() == pytest.approx(0.2894332007, abs=1e-10)


def discrepancy_by_loops(x, y, gamma=0.5):
    def mean(left, right):
        values = [(-gamma * (a - b).norm()).exp() for a in left for b in right]
        return torch.stack(values).mean()

    return mean(x, x) - 2 * mean(x, y) + mean(y, y)


def diversity_by_loops(residuals):
    values = []
    for item in residuals:
        squares = 0.0
        for k in range(len(item)):
            for other in range(len(item)):
                if k != other:
                    squares += torch.cosine_similarity(item[k], item[other], dim=0).item() ** 2
        values.append(squares**0.5 / len(item) ** 2)
    return sum(values) / len(values)


def test_penalties_equal_plain_loops():
    generator = torch.Generator().manual_seed(3)
    images, texts = (
        items(
            torch.randn(5, 3, 4, generator=generator, dtype=torch.float64),
            residuals=torch.rand(5, 3, 4, generator=generator, dtype=torch.float64),
        )
        for _ in range(2)
    )
    scene = compose(Cosine(), images, texts, torch.arange(5))
    loops = discrepancy_by_loops(images.vectors.flatten(0, 1), texts.vectors.flatten(0, 1))
    torch.testing.assert_close(MMD()(scene), loops)
    by_loops = diversity_by_loops(images.residuals) + diversity_by_loops(texts.residuals)
    assert ViewDiversity()(scene).item() == pytest.approx(by_loops, abs=1e-12)
