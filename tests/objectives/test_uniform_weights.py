"""The weighted ranking loss of Thomas and Kovashka 2022 (eq. 1) under its uniform control: a worked value."""

from __future__ import annotations

import pytest
from scenes import S3, scene_of

from subtext.core import DIRECTIONS, Epoch
from subtext.objectives.losses.triplet import Triplet
from subtext.objectives.objective import Objective, Term
from subtext.objectives.weighting import Uniform

pytestmark = pytest.mark.golden


@pytest.mark.parametrize(("total", "wanted"), [(3.0, 0.0361111111), (12.0, 4 * 0.0361111111)])
def test_loss_is_half_weighted_mean_over_cells(total, wanted):
    """Weights of 1 give (0.25 + 0.40) / (2 * 9); four times the total gives four times that."""
    loss = Triplet(margin=0.1)
    terms = {
        direction: Term(loss, direction, weight=0.5, reduction="mean over cells", weighting=Uniform(total=total))
        for direction in DIRECTIONS
    }
    value, _ = Objective(terms)(scene_of(S3), Epoch(number=0, seed=0))
    assert value.item() == pytest.approx(wanted, abs=1e-9)
