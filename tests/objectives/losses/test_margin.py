"""Margin loss (Wu et al. 2017): a worked batch, and a loop over its terms."""

from __future__ import annotations

import pytest
import torch
from scenes import doubles

from subtext.core import Comparison, Truth
from subtext.errors import RequirementError
from subtext.objectives.losses.margin import Margin

pytestmark = pytest.mark.golden


def of(distances: list[list[float]]) -> Comparison:
    """Each row's first cell is its positive."""
    match = torch.zeros(len(distances), len(distances[0]), dtype=torch.bool)
    match[:, 0] = True
    return Comparison(1 - doubles(distances) ** 2 / 2, Truth(match))


def test_three_anchors_equal_worked_values():
    values = Margin()(of([[0.9, 1.3], [1.1, 1.0], [1.5, 0.8]]))
    assert values.tolist() == pytest.approx([0 + 0.1, 0.1 + 0.4, 0.5 + 0.6], abs=1e-12)
    active = 5
    assert values.sum().item() / active == pytest.approx(0.34, abs=1e-12), "the value of the authors' code"


def test_loss_equals_loop_over_terms():
    generator = torch.Generator().manual_seed(0)
    scores = (torch.rand(5, 7, generator=generator, dtype=torch.float64) * 2 - 1).requires_grad_()
    match = torch.eye(5, 7, dtype=torch.bool)
    match[2, 5] = True
    ignored = torch.zeros_like(match)
    ignored[0, 3] = ignored[4, 6] = True
    loss = Margin(0.3, 1.1)
    terms = []
    for row in range(5):
        for column in range(7):
            if ignored[row, column]:
                continue
            distance = (2 - 2 * scores[row, column]).sqrt()
            terms.append((distance - 1.1 if match[row, column] else 1.1 - distance) + 0.3)
    wanted = torch.stack([term for term in terms if term > 0]).sum()
    found = loss(Comparison(scores, Truth(match, ignored=ignored))).sum()
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(*(torch.autograd.grad(value, scores, retain_graph=True)[0] for value in (found, wanted)))


def test_loss_without_active_terms_is_zero_with_finite_gradient():
    assert Margin()(of([[0.5, 1.9]])).tolist() == [0]
    scores = torch.tensor([[1.0, 1.0]], requires_grad=True)
    Margin()(Comparison(scores, Truth(torch.tensor([[True, False]])))).sum().backward()
    assert scores.grad is not None and scores.grad.isfinite().all()


@pytest.mark.parametrize("bad", [{"margin": -0.1}, {"boundary": 0.0}, {"margin": float("nan")}])
def test_invalid_bounds_raise(bad):
    with pytest.raises(RequirementError, match="Margin needs a margin of 0 or more and a boundary above 0"):
        Margin(**bad)
