"""VSE0 and VSE++ (Faghri et al. 2018): worked values, and a plain loop for every kind of negatives."""

from __future__ import annotations

import pytest
import torch
from regions_and_words import det
from scenes import S3, comparison, scene_of

from subtext.core import DIRECTIONS, Comparison, Epoch, Truth
from subtext.objectives.losses.triplet import Triplet
from subtext.objectives.objective import Objective, Term

pytestmark = pytest.mark.golden


@pytest.mark.parametrize(("negatives", "wanted"), [("all", 1.5), ("hardest", 1.15)])
def test_three_pairs_equal_worked_values(negatives, wanted):
    loss = Triplet(margin=0.2, negatives=negatives)
    objective = Objective({direction: Term(loss, direction, reduction="sum") for direction in DIRECTIONS})
    total, parts = objective(scene_of(S3), Epoch(number=0, seed=0))
    assert total.item() == pytest.approx(wanted, abs=1e-12)
    if negatives == "all":
        assert [part.item() for part in parts.values()] == pytest.approx([0.75, 0.75])


@pytest.mark.parametrize(
    ("negatives", "margin", "wanted"),
    [("hardest", 0.2, 5.132355404498), ("all", 0.2, 9.687443408907), ("hardest", 0.05, 3.932355404498)],
)
def test_sgraf_and_chan_hinges_equal_worked_values(negatives, margin, wanted):
    """Card B3: scores 0.5 + 0.5 det((4, 4), .3), a sum over the batch."""
    loss = Triplet(margin=margin, negatives=negatives)
    objective = Objective({direction: Term(loss, direction, reduction="sum") for direction in DIRECTIONS})
    total, _ = objective(scene_of((0.5 + 0.5 * det((4, 4), 0.3)).tolist()), Epoch(number=0, seed=0))
    assert total.item() == pytest.approx(wanted, abs=1e-11)


def test_semi_hard_by_hand():
    """Rows of S3 at a margin of 0.1: .55 is below .60; .45 is not below .40, and .30 is; .65 is below .70."""
    values = Triplet(margin=0.1, negatives="semi-hard")(scene_of(S3).image_to_text)
    assert values.tolist() == pytest.approx([0.05, 0.0, 0.05])


def test_semi_hard_falls_back_to_lowest():
    scores = torch.tensor([[0.1, 0.5, 0.3]])
    values = Triplet(margin=0.2, negatives="semi-hard")(Comparison(scores, Truth(torch.tensor([[True, False, False]]))))
    assert values.tolist() == pytest.approx([0.4])


def loops(whole: Comparison, margin: float, negatives: str) -> list[float]:
    values = []
    for row, match, negative in zip(
        whole.scores.tolist(), whole.truth.match.tolist(), whole.truth.negative.tolist(), strict=True
    ):
        of_positives = []
        for positive in (score for score, own in zip(row, match, strict=True) if own):
            others = [score for score, other in zip(row, negative, strict=True) if other]
            if negatives == "hardest" and others:
                others = [max(others)]
            elif negatives == "semi-hard" and others:
                below = [score for score in others if score < positive]
                others = [max(below) if below else min(others)]
            of_positives.append(sum(max(0.0, margin + score - positive) for score in others))
        values.append(sum(of_positives) / len(of_positives) if of_positives else 0.0)
    return values


@pytest.mark.parametrize("kind", ["pairs", "several", "ignored", "no positive", "all positive"])
@pytest.mark.parametrize("negatives", ["all", "hardest", "semi-hard"])
def test_loss_equals_plain_loop(kind, negatives):
    whole = comparison(kind)
    assert Triplet(margin=0.3, negatives=negatives)(whole).tolist() == pytest.approx(loops(whole, 0.3, negatives))
