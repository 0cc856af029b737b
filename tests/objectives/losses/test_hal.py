"""HAL without a bank (Liu et al. 2020): worked values, and the loop it stands for."""

from __future__ import annotations

import math

import pytest
from scenes import S3, comparison, scene_of

from subtext.core import DIRECTIONS, Comparison, Epoch
from subtext.objectives.losses.hal import HAL
from subtext.objectives.objective import Objective, Term

pytestmark = pytest.mark.golden


def total(loss: HAL) -> float:
    objective = Objective({direction: Term(loss, direction) for direction in DIRECTIONS})
    return objective(scene_of(S3), Epoch(number=0, seed=0))[0].item()


@pytest.mark.parametrize(
    ("gamma", "threshold", "diagonal", "wanted"),
    [
        (30.0, 0.3, "shifted", 0.0741503859),
        (60.0, 0.7, "shifted", -0.4451600701),
        (30.0, 0.3, "none", 0.0741503662),
        (2.0, 0.3, "shifted", 1.0378221856),
        (2.0, 0.3, "none", 0.9044823996),
    ],
)
def test_three_pairs_equal_worked_values(gamma, threshold, diagonal, wanted):
    assert total(HAL(gamma, threshold, diagonal)) == pytest.approx(wanted, abs=1e-9)


def loops(whole: Comparison, loss: HAL) -> list[float]:
    values = []
    for row, match, negative in zip(
        whole.scores.tolist(), whole.truth.match.tolist(), whole.truth.negative.tolist(), strict=True
    ):
        push = sum(math.exp(loss.gamma * (s - loss.threshold)) for s, n in zip(row, negative, strict=True) if n)
        positives = [s for s, m in zip(row, match, strict=True) if m]
        if positives:
            push += {"shifted": math.exp(-loss.gamma * loss.threshold), "one": 1.0, "none": 0.0}[loss.diagonal]
        pull = sum(math.log(1 + max(0.0, s)) for s in positives) / max(1, len(positives))
        values.append(math.log(1 + push) / loss.gamma - pull / 2)
    return values


@pytest.mark.parametrize("kind", ["pairs", "several", "ignored", "one", "no positive", "all positive"])
@pytest.mark.parametrize("diagonal", ["shifted", "one", "none"])
def test_loss_equals_plain_loop(kind, diagonal):
    loss, whole = HAL(gamma=5.0, threshold=0.2, diagonal=diagonal), comparison(kind)
    assert loss(whole).tolist() == pytest.approx(loops(whole, loss), abs=1e-12)
