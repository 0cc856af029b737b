"""The structure-preserving objective of Wang, Li and Lazebnik 2016 on the worked example, and by plain loops."""

from __future__ import annotations

import math

import pytest
import torch
from scenes import comparison, doubles

from subtext.core import Comparison, Truth
from subtext.errors import RequirementError
from subtext.objectives.losses.structure import SMALLEST, Structure

pytestmark = pytest.mark.golden

IMAGES = doubles([[1, 0], [0.6, 0.8], [-0.8, 0.6]])
TEXTS = doubles([[0.8, 0.6], [0.6, 0.8], [0, 1], [-0.6, 0.8], [-0.6, -0.8], [0, -1]])
OF = torch.tensor([0, 0, 1, 1, 2, 2])


def _terms(margin: float) -> tuple[float, float, float]:
    to_images = Comparison(TEXTS @ IMAGES.T, Truth.from_groups(OF, torch.arange(3)))
    to_texts = Comparison(IMAGES @ TEXTS.T, Truth.from_groups(torch.arange(3), OF))
    own = torch.eye(6, dtype=torch.bool)
    among = Comparison(TEXTS @ TEXTS.T, Truth((OF[:, None] == OF) & ~own, own))
    each, farthest = Structure(margin, hardest=2), Structure(margin, hardest=2, positives="farthest")
    return each(to_images).mean().item(), each(to_texts).mean().item(), farthest(among).mean().item()


@pytest.mark.parametrize(
    ("margin", "wanted", "total"),
    [
        (0.05, (0.2271378240, 0.6275309235, 0.0041666667), 0.9684459929),
        (0.5, (0.4400467792, 0.9275309235, 0.0740446953), 1.5913033271),
    ],
)
def test_worked_example(margin: float, wanted: tuple[float, float, float], total: float) -> None:
    found = _terms(margin)
    assert found == pytest.approx(wanted, abs=1e-9)
    assert 1.5 * found[0] + found[1] + 0.05 * found[2] == pytest.approx(total, abs=1e-9)


def _by_loops(given: Comparison, loss: Structure) -> list[float]:
    distance = [[math.sqrt(max(0.0, 2 - 2 * score) + SMALLEST) for score in row] for row in given.scores.tolist()]
    values = []
    for row, match, negative in zip(distance, given.truth.match, given.truth.negative, strict=True):
        right = [value for value, here in zip(row, match, strict=True) if here]
        wrong = [value for value, here in zip(row, negative, strict=True) if here]
        if loss.positives == "farthest":
            right = [max(right)] if right else []
        worst = [sorted((max(0.0, loss.margin + p - n) for n in wrong), reverse=True)[: loss.hardest] for p in right]
        means = [sum(each) / len(each) for each in worst if each]
        values.append(sum(means) / len(means) if means else 0.0)
    return values


@pytest.mark.parametrize("positives", ["each", "farthest"])
@pytest.mark.parametrize("kind", ["pairs", "several", "ignored", "all positive", "no positive"])
def test_loss_equals_plain_loops(kind: str, positives: str) -> None:
    given, loss = comparison(kind), Structure(0.4, hardest=2, positives=positives)
    assert loss(given).tolist() == pytest.approx(_by_loops(given, loss), abs=1e-12)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [({"margin": -0.1}, "margin of 0"), ({"hardest": 0}, "1 negative")],
)
def test_invalid_settings_raise(wrong: dict[str, object], told: str) -> None:
    with pytest.raises(RequirementError, match=told):
        Structure(**wrong)
