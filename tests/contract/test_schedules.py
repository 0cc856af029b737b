"""What every schedule promises: a pure function of the step, above 0 and at most 1, with a straight warm-up."""

from __future__ import annotations

import math
from typing import get_args, get_type_hints

import pytest

from subtext.errors import RecipeError
from subtext.training.plan import Plan
from subtext.training.schedule import FALL_TO, RISE_FROM, rate

KINDS = get_args(get_type_hints(Plan)["schedule"])


def _rates(plan: Plan, steps: int = 200, per_epoch: int = 10, drops: int = 0) -> list[float]:
    return [rate(plan, step=step, steps=steps, epoch=step // per_epoch, drops=drops) for step in range(steps)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("warmup", [0.0, 0.1, 0.9])
def test_above_zero_at_most_one_and_the_peak_is_reached(kind: str, warmup: float) -> None:
    rates = _rates(Plan(schedule=kind, warmup=warmup, step_epochs=100))
    assert all(0 < value <= 1 for value in rates)
    assert max(rates) == pytest.approx(1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_warm_up_is_a_straight_line(kind: str) -> None:
    rates = _rates(Plan(schedule=kind, warmup=0.25))[:50]
    start = RISE_FROM if kind == "one_cycle" else 0.0
    for step, value in enumerate(rates):
        assert value == pytest.approx(start + (1 - start) * (step + 1) / 50)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_short_trainings_have_a_rate(kind: str, steps: int) -> None:
    assert all(0 < value <= 1 for value in _rates(Plan(schedule=kind, warmup=0.5), steps=steps))
    assert 0 < rate(Plan(schedule=kind), step=steps + 5, steps=steps) <= 1


def test_golden_values() -> None:
    cosine = _rates(Plan(schedule="cosine"), steps=8)
    assert cosine == pytest.approx([0.5 * (1 + math.cos(math.pi * step / 8)) for step in range(8)])
    step = _rates(Plan(schedule="step", step_epochs=5, factor=0.5), steps=200)
    assert [step[place] for place in (0, 49, 50, 100, 199)] == [1.0, 1.0, 0.5, 0.25, 0.125]
    assert set(_rates(Plan(schedule="plateau", factor=0.1), drops=2)) == {0.1**2}
    assert set(_rates(Plan())) == {1.0}


def test_one_cycle_rises_and_falls() -> None:
    rates = _rates(Plan(schedule="one_cycle"), steps=1000)
    top = rates.index(max(rates))
    assert top in (299, 300)
    assert rates[:top] == sorted(rates[:top])
    assert rates[top + 1 :] == sorted(rates[top + 1 :], reverse=True)
    assert rates[0] < 0.05
    assert rates[-1] == pytest.approx(FALL_TO, abs=1e-5)


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("warmup", 1.0, "warmup is a share"),
        ("average_from", 1.0, "average_from is a share"),
        ("average_decay", 1.0, "average_decay needs"),
        ("freeze_epochs", -2, "freeze_epochs needs -1"),
        ("cache_chunk", 999, "cache_chunk needs at most batch_size"),
        ("lr", 0.0, "lr needs a number above 0"),
    ],
)
def test_bad_plans_are_refused(field: str, value: float, named: str) -> None:
    with pytest.raises(RecipeError, match=named):
        Plan(**{field: value})
