"""The objective: which comparison a term reads, how it is reduced, and the sum."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from scenes import comparison, scene
from torch import Tensor

from subtext.core import DIRECTIONS, Comparison, Epoch, Scene
from subtext.errors import RequirementError, ShapeError
from subtext.objectives.losses.triplet import Triplet
from subtext.objectives.objective import Objective, Penalty, Term
from subtext.objectives.regularisers import MMD
from subtext.objectives.weighting import Uniform

pytestmark = pytest.mark.contract

FIRST = Epoch(number=0, seed=0)


@dataclass(frozen=True)
class Ones:
    """A loss of 1 a query, which still depends on the scores."""

    def __call__(self, comparison: Comparison) -> Tensor:
        return 1 + 0 * comparison.scores.sum(dim=1)


@dataclass(frozen=True)
class Places:
    """Weights 0, 1, 2, ... that carry a gradient which must be cut off."""

    count: int

    def __call__(self, scene: Scene, epoch: Epoch) -> Tensor:
        scores = scene.image_to_text.scores
        return torch.arange(self.count, dtype=torch.float64) + (scores - scores.detach()).sum()


def wide() -> Scene:
    """Six queries, nine candidates."""
    return Scene(comparison("several"), comparison("several"))


@pytest.mark.parametrize(("reduction", "wanted"), [("sum", 6.0), ("mean", 1.0), ("mean over cells", 6 / 54)])
def test_term_reduction_modes(reduction, wanted):
    value = Term(Ones(), "image_to_text", reduction=reduction)(wide(), FIRST)
    assert value.item() == pytest.approx(wanted)
    assert Term(Ones(), "image_to_text", weight=0.5, reduction=reduction)(wide(), FIRST).item() == pytest.approx(
        wanted / 2
    )


@pytest.mark.parametrize(("reduction", "wanted"), [("sum", 15.0), ("mean", 15 / 6), ("mean over cells", 15 / 54)])
def test_weights_multiply_before_the_reduction(reduction, wanted):
    value = Term(Ones(), "image_to_text", reduction=reduction, weighting=Places(6))(wide(), FIRST)
    assert value.item() == pytest.approx(wanted)


def test_weighting_of_wrong_size_raises():
    term = Term(Ones(), "text_to_image", weighting=Places(5))
    with pytest.raises(
        ShapeError, match=r"weighting of 'text_to_image' needs one weight a query, \(6,\); it gave \(5,\)"
    ):
        term(wide(), FIRST)


def test_loss_without_one_value_per_query_raises():
    term = Term(lambda comparison: comparison.scores.sum(dim=0), "image_to_text")
    with pytest.raises(ShapeError, match=r"'image_to_text' needs one value per query, \(6,\); it returned \(9,\)"):
        term(wide(), FIRST)


def test_each_direction_has_its_own_share():
    whole, share = scene("pairs"), {"image_to_text": 0.5, "text_to_image": 0.25}
    for direction in DIRECTIONS:
        assert Term(Ones(), direction)(whole, FIRST, share=share).item() == share[direction]
        penalty = Penalty(lambda whole: torch.tensor(8.0), 0.5, share_of=direction)
        assert penalty(whole, FIRST, share=share).item() == 4 * share[direction]


def test_weights_have_no_gradient():
    whole = scene("pairs")
    scores = whole.image_to_text.scores.requires_grad_()
    value = Term(Ones(), "image_to_text", weighting=Places(6))(whole, FIRST)
    (gradient,) = torch.autograd.grad(value, [scores])
    assert gradient.abs().sum() == 0


def test_term_on_missing_comparison_raises():
    with pytest.raises(RequirementError, match="reads the comparison 'image_neighbours'"):
        Term(Ones(), "image_neighbours")(scene("pairs"), FIRST)


def test_total_is_the_sum_of_parts():
    objective = Objective(
        {
            "forward": Term(Triplet(), "image_to_text", weight=2.0),
            "backward": Term(Triplet(negatives="hardest"), "text_to_image"),
            "mmd": Penalty(MMD(), 0.25),
        }
    )
    whole = scene("pairs")
    whole.image_to_text.scores.requires_grad_()
    total, parts = objective(whole, FIRST)
    assert list(parts) == ["forward", "backward", "mmd"]
    torch.testing.assert_close(torch.stack(list(parts.values())).sum(), total.detach())
    torch.testing.assert_close(parts["forward"], 2 * Triplet()(whole.image_to_text).mean().detach())
    torch.testing.assert_close(parts["mmd"], 0.25 * MMD()(whole))
    assert not any(part.requires_grad for part in parts.values())


@pytest.mark.parametrize(("number", "wanted"), [(0, 0.0), (1, 1.0), (2, 1.0), (3, 0.0)])
def test_term_acts_between_its_epochs(number, wanted):
    term = Term(Ones(), "image_to_text", from_epoch=1, until_epoch=3)
    assert term(scene("pairs"), Epoch(number=number, seed=0)).item() == wanted


@pytest.mark.parametrize("share", [1.0, 0.25])
def test_share_scales_means_but_not_sums(share):
    whole = scene("pairs")
    for reduction, factor in (("sum", 1.0), ("mean", share), ("mean over cells", share)):
        term = Term(Triplet(), "image_to_text", reduction=reduction)
        torch.testing.assert_close(term(whole, FIRST, share=share), factor * term(whole, FIRST))
    penalty = Penalty(MMD(), 0.5)
    torch.testing.assert_close(penalty(whole, FIRST, share=share), share * penalty(whole, FIRST))


def test_uniform_weights_scale_mean():
    whole = scene("pairs")
    for direction in DIRECTIONS:
        plain = Term(Triplet(), direction)(whole, FIRST)
        weighted = Term(Triplet(), direction, weighting=Uniform(total=12.0))(whole, FIRST)
        torch.testing.assert_close(weighted, 2 * plain)
