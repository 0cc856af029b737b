"""DAA (Li et al. 2022): worked values, the loop it stands for, and the metric that it becomes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from scenes import comparison

from subtext.core import Comparison, Embeddings, Truth
from subtext.errors import RequirementError
from subtext.objectives.losses.daa import DAA

pytestmark = pytest.mark.golden


def waves(*shape: int, phase: float, step: float = 0.7) -> torch.Tensor:
    """sin(phase + step k), k counting the cells row after row."""
    places = torch.arange(math.prod(shape), dtype=torch.float64)
    return torch.sin(phase + step * places).reshape(shape)


def vectors_of(scores: torch.Tensor, relevance: torch.Tensor) -> Comparison:
    truth = Truth(torch.eye(*scores.shape, dtype=torch.bool), relevance=relevance, scale="made")
    return Comparison(scores, truth)


FOUR = vectors_of(0.5 + 0.5 * waves(4, 4, phase=0.3), 0.6 * waves(4, 4, phase=1.1, step=0.9).abs())


@pytest.mark.parametrize(
    ("variant", "temperature", "forward", "backward"),
    [
        ("rows", 0.001, 0.364576616354075, 0.353745482081198),
        ("rows", 0.01, 0.359501253087273, 0.349428845900713),
        ("released", 0.001, 0.349407200122038, 0.393359368221541),
        ("released", 0.01, 0.366737978143678, 0.421412695380805),
    ],
)
def test_loss_of_scores_equals_worked_values(variant, temperature, forward, backward):
    loss = DAA(temperature, variant)
    assert loss(FOUR).mean().item() == pytest.approx(forward, abs=1e-12)
    assert loss(FOUR.flip()).mean().item() == pytest.approx(backward, abs=1e-12)


@pytest.mark.parametrize(("variant", "wanted"), [("rows", 0.389912993449366), ("released", 0.414172169753332)])
@pytest.mark.parametrize("stretch", [1.0, 7.0])
def test_loss_of_samples_equals_worked_values(variant, wanted, stretch):
    """The released form never looks at the other modality: stretching that changes nothing."""
    images, texts = (
        Embeddings(waves(3, 2, 4, phase=phase) * factor, torch.arange(3))
        for phase, factor in ((0.2, 1), (0.9, stretch))
    )
    given = vectors_of(torch.zeros(3, 3, dtype=torch.float64), waves(3, 3, phase=0.5).abs())
    value = DAA(0.01, variant, draws=True)(replace(given, queries=images, candidates=texts)).mean().item()
    assert (value == pytest.approx(wanted, abs=1e-12)) is (variant == "released" or stretch == 1.0)


@pytest.mark.parametrize("kind", ["pairs", "several", "ignored", "one"])
@pytest.mark.parametrize("temperature", [1.0, 0.03])
def test_loss_equals_plain_loop(kind, temperature):
    whole, wanted = comparison(kind), []
    kept = torch.ones_like(whole.truth.match) if whole.truth.ignored is None else ~whole.truth.ignored
    for scores, relevance, inside in zip(whole.scores, whole.truth.relevance, kept, strict=True):
        lists = [
            (s, r) for s, r, keep in zip(scores.tolist(), relevance.tolist(), inside.tolist(), strict=True) if keep
        ]
        total = 0.0
        for place, own in enumerate(lists):
            others = lists[:place] + lists[place + 1 :]
            given, asked = (
                1 + sum(1 / (1 + math.exp((own[side] - other[side]) / temperature)) for other in others)
                for side in (0, 1)
            )
            total += min(given, asked) / max(given, asked)
        wanted.append(1 - total / len(lists))
    assert DAA(temperature)(whole).tolist() == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("kind", ["pairs", "several", "one"])
def test_loss_approaches_1_minus_asp_as_temperature_falls(kind):
    """1 - ASP with whole ranks; nothing is tied."""
    whole = comparison(kind)
    ranks, wanted = (1 + (-each).argsort(dim=1).argsort(dim=1) for each in (whole.scores, whole.truth.relevance))
    asp = (torch.minimum(ranks, wanted) / torch.maximum(ranks, wanted).double()).mean(dim=1)
    errors = [(DAA(t)(whole) - (1 - asp)).abs().max().item() for t in (0.1, 0.01, 1e-3, 1e-6)]
    assert errors[-1] < 1e-12
    assert errors[0] >= errors[1] >= errors[2] >= errors[-1]


def test_relevance_order_has_zero_loss():
    whole = comparison("several")
    assert DAA(1e-4)(replace(whole, scores=whole.truth.relevance)).max() < 1e-9


def test_gradient_descent_learns_relevance_order():
    whole = comparison("several")
    scores = whole.scores.clone().requires_grad_()
    optimiser, before = torch.optim.Adam([scores], lr=0.02), DAA()(whole).mean()
    for _ in range(200):
        optimiser.zero_grad()
        DAA(0.05)(replace(whole, scores=scores)).sum().backward()
        optimiser.step()
    assert DAA()(replace(whole, scores=scores.detach())).mean() < 0.2 * before


def test_missing_input_raises():
    scores = torch.zeros(2, 3)
    bare = Comparison(scores, Truth(torch.eye(2, 3, dtype=torch.bool)))
    with pytest.raises(RequirementError, match=r"DAA needs a relevance .*; this comparison has none; train with the"):
        DAA()(bare)
    with pytest.raises(RequirementError, match=r"'released' needs as many candidates as queries; it got 2 x 3; take"):
        DAA(variant="released")(vectors_of(scores, scores))
    with pytest.raises(RequirementError, match="DAA with draws needs the embeddings behind the scores"):
        DAA(draws=True)(vectors_of(scores, scores))
