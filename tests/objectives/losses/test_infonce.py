"""InfoNCE: values by hand, torch's cross-entropy, and a plain loop for several positives."""

from __future__ import annotations

import math

import pytest
import torch
from scenes import KINDS, comparison
from torch.nn.functional import cross_entropy

from subtext.core import Comparison, Truth
from subtext.objectives.losses.infonce import InfoNCE

pytestmark = pytest.mark.golden


def loops(whole: Comparison, compete: bool, smoothing: float) -> list[float]:
    values = []
    for row, match, negative in zip(
        whole.scores.tolist(), whole.truth.match.tolist(), whole.truth.negative.tolist(), strict=True
    ):
        positives = [score for score, own in zip(row, match, strict=True) if own]
        negatives = [score for score, other in zip(row, negative, strict=True) if other]
        of_positives = []
        for positive in positives:
            against = negatives + (positives if compete else [positive])
            total = math.log(sum(math.exp(score) for score in against))
            spread = sum(total - score for score in against) / len(against)
            of_positives.append((1 - smoothing) * (total - positive) + smoothing * spread)
        values.append(sum(of_positives) / len(of_positives) if of_positives else 0.0)
    return values


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("compete", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_loss_equals_plain_loop(kind, compete, smoothing):
    whole = comparison(kind)
    values = InfoNCE(compete=compete, label_smoothing=smoothing)(whole)
    assert values.tolist() == pytest.approx(loops(whole, compete, smoothing), abs=1e-12)


@pytest.mark.parametrize("compete", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_single_positive_equals_cross_entropy(compete, smoothing):
    scores = 20 * torch.randn(6, 9, dtype=torch.float64)
    target = torch.tensor([3, 1, 8, 0, 0, 5])
    match = torch.zeros(6, 9, dtype=torch.bool).scatter(1, target[:, None], True)
    values = InfoNCE(compete=compete, label_smoothing=smoothing)(Comparison(scores, Truth(match)))
    torch.testing.assert_close(values, cross_entropy(scores, target, reduction="none", label_smoothing=smoothing))


def test_two_positives_by_hand():
    """Weights 1, 3 and 2, the first two right: log(1 + 2/1) and log(1 + 2/3), or both against the sum of 6."""
    whole = Comparison(torch.tensor([[1.0, 3.0, 2.0]]).log(), Truth(torch.tensor([[True, True, False]])))
    assert InfoNCE()(whole).item() == pytest.approx((math.log(3) + math.log(5 / 3)) / 2, abs=1e-6)
    assert InfoNCE(compete=True)(whole).item() == pytest.approx((math.log(6) + math.log(2)) / 2, abs=1e-6)


def test_confident_positive_keeps_precision():
    whole = Comparison(torch.tensor([[40.0, 0.0]]), Truth(torch.tensor([[True, False]])))
    assert InfoNCE()(whole).item() == pytest.approx(math.exp(-40), rel=1e-5)
