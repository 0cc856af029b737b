"""Sigmoid loss (Zhai et al. 2023): values by hand, and torch's binary cross-entropy."""

from __future__ import annotations

import math

import pytest
import torch
from scenes import KINDS, comparison
from torch.nn.functional import binary_cross_entropy_with_logits

from subtext.core import Comparison, Truth
from subtext.objectives.losses.sigmoid import Sigmoid

pytestmark = pytest.mark.golden


def test_by_hand():
    """log(1 + 1/3) for the positive and log(1 + 1/2) for the negative."""
    whole = Comparison(torch.tensor([[3.0, 0.5]]).log(), Truth(torch.tensor([[True, False]])))
    assert Sigmoid()(whole).item() == pytest.approx(math.log(4 / 3) + math.log(3 / 2), abs=1e-6)
    assert Sigmoid(over="mean")(whole).item() == pytest.approx((math.log(4 / 3) + math.log(3 / 2)) / 2, abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_loss_equals_binary_cross_entropy_over_cells(kind):
    whole = comparison(kind)
    cells = binary_cross_entropy_with_logits(whole.scores, whole.truth.match.double(), reduction="none")
    asked = torch.ones_like(cells) if whole.truth.ignored is None else (~whole.truth.ignored).double()
    torch.testing.assert_close(Sigmoid()(whole), (cells * asked).sum(dim=1))
    torch.testing.assert_close(Sigmoid(over="mean")(whole), (cells * asked).sum(dim=1) / asked.sum(dim=1))


def test_square_batch_is_symmetric_in_direction():
    whole = comparison("pairs")
    torch.testing.assert_close(Sigmoid()(whole).sum(), Sigmoid()(whole.flip()).sum())
