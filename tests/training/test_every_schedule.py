"""What every schedule promises: a pure function of the step, above 0 and at most 1, with a straight warm-up."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, get_args, get_type_hints

import pytest
import small_training
import torch
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, StepLR

from subtext.errors import RecipeError
from subtext.training.loop import Trainer
from subtext.training.optimiser import FALL_TO, RISE_FROM, lr_factor
from subtext.training.plan import Plan
from subtext.training.validation import Validator

pytestmark = pytest.mark.contract

KINDS = get_args(get_type_hints(Plan)["schedule"])


def _rates(plan: Plan, steps: int = 200, per_epoch: int = 10, drops: int = 0) -> list[float]:
    return [lr_factor(plan, step=step, steps=steps, epoch=step // per_epoch, drops=drops) for step in range(steps)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("warmup", [0.0, 0.1, 0.9])
def test_factor_is_in_unit_interval_and_reaches_one(kind: str, warmup: float) -> None:
    rates = _rates(Plan(schedule=kind, warmup=warmup, step_epochs=100))
    assert all(0 < value <= 1 for value in rates)
    assert max(rates) == pytest.approx(1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_warmup_is_linear(kind: str) -> None:
    rates = _rates(Plan(schedule=kind, warmup=0.25))[:50]
    start = RISE_FROM if kind == "one_cycle" else 0.0
    for step, value in enumerate(rates):
        assert value == pytest.approx(start + (1 - start) * (step + 1) / 50)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_short_training_has_positive_rate(kind: str, steps: int) -> None:
    assert all(0 < value <= 1 for value in _rates(Plan(schedule=kind, warmup=0.5), steps=steps))
    assert 0 < lr_factor(Plan(schedule=kind), step=steps + 5, steps=steps) <= 1


def test_golden_values() -> None:
    cosine = _rates(Plan(schedule="cosine"), steps=8)
    assert cosine == pytest.approx([0.5 * (1 + math.cos(math.pi * step / 8)) for step in range(8)])
    step = _rates(Plan(schedule="step", step_epochs=5, lr_factor=0.5), steps=200)
    assert [step[place] for place in (0, 49, 50, 100, 199)] == [1.0, 1.0, 0.5, 0.25, 0.125]
    assert set(_rates(Plan(schedule="plateau", lr_factor=0.1), drops=2)) == {0.1**2}
    assert set(_rates(Plan())) == {1.0}


def test_torch_schedules_agree_up_to_rounding() -> None:
    """Why they are not used: each is computed from the one before, so a resumed training would need their state."""
    weight = torch.nn.Parameter(torch.zeros(1))

    def theirs(make: Callable[[Optimizer], LRScheduler], steps: int) -> list[float]:
        optimiser = SGD([weight], lr=1.0)
        schedule, factors = make(optimiser), []
        for _ in range(steps):
            factors.append(optimiser.param_groups[0]["lr"])
            optimiser.step()
            schedule.step()
        return factors

    cosine = theirs(lambda optimiser: CosineAnnealingLR(optimiser, 1000), 1000)
    ours = _rates(Plan(schedule="cosine"), steps=1000)
    assert cosine == pytest.approx(ours, abs=1e-9) and cosine != ours
    step = theirs(lambda optimiser: StepLR(optimiser, 50, 0.1), 200)
    assert step == pytest.approx(_rates(Plan(schedule="step", step_epochs=5, lr_factor=0.1), steps=200), rel=1e-9)


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
        ("warmup", 1.0, r"warmup needs a number in \[0, 1\)"),
        ("swa_start", 1.0, r"swa_start needs a number in \[0, 1\)"),
        ("ema_decay", 1.0, "ema_decay needs"),
        ("freeze_epochs", -2, "freeze_epochs needs -1"),
        ("grad_cache_chunk", 999, "grad_cache_chunk needs at most batch_size"),
        ("momentum", 1.0, r"momentum needs a number in \[0, 1\)"),
        ("momentum", -0.5, r"momentum needs a number in \[0, 1\)"),
        ("lr", 0.0, "lr needs a number above 0"),
        ("lr", math.inf, "lr needs a number above 0"),
        *(
            (name, math.nan, f"{name} needs 0 or more")
            for name in ("max_grad_norm", "weight_decay", "backbone_lr_scale")
        ),
    ],
)
def test_bad_plan_raises(field: str, value: float, named: str) -> None:
    with pytest.raises(RecipeError, match=named):
        Plan(**{"batch_size": 128, field: value})


class Trained(NamedTuple):
    """The rate that each move of the weights had, and the epoch (from 0) and the batch that it began with."""

    rates: list[float]
    epochs: list[int]
    steps: list[int]


def _trained(out: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> Trained:
    """Train on 40 pictures, one text each: batches of 16, 16 and 8, the last of them a move alone."""
    found = Trained([], [], [])
    plain = Trainer._set_rate

    def noted(self: Trainer, factor: float) -> None:
        plain(self, factor)
        found.rates.append(max(group["lr"] for group in self.state.optimiser.param_groups))
        found.epochs.append(self.state.epoch)
        found.steps.append(self.state.step)

    monkeypatch.setattr(Trainer, "_set_rate", noted)
    small_training.run(out, plan=plan, val=None)
    return found


def _by_hand(plan: Plan, step: int, steps: int, epoch: int) -> float:
    """The rate as the formulas have it, a case at a time."""
    warm = round((0.3 if plan.schedule == "one_cycle" and plan.warmup == 0 else plan.warmup) * steps)
    low = 0.04 if plan.schedule == "one_cycle" else 0.0
    if step < warm:
        return plan.lr * (low + (step + 1) * (1 - low) / warm)
    angle = math.pi * (step - warm) / (steps - warm)
    if plan.schedule == "cosine":
        return plan.lr * (1 + math.cos(angle)) / 2
    if plan.schedule == "one_cycle":
        return plan.lr * (4e-6 + (1 - 4e-6) * (1 + math.cos(angle)) / 2)
    value = plan.lr
    if plan.schedule == "step":
        for past in range(1, epoch + 1):
            value *= plan.lr_factor if past % plan.step_epochs == 0 else 1.0
    return value


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "plateau"])
@pytest.mark.parametrize("warmup", [0.0, 0.25])
def test_training_lr_follows_formula(tmp_path: Path, kind: str, warmup: float, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(
        epochs=5, batch_size=16, caption_sampling="one", accumulation_steps=2, lr=1e-3, schedule=kind, warmup=warmup
    )
    plan = replace(plan, step_epochs=2, lr_factor=0.5) if kind == "step" else plan
    found = _trained(tmp_path / "run", plan, monkeypatch)
    assert found.steps == [3 * epoch + offset for epoch in range(5) for offset in (0, 2)]
    assert found.epochs == [epoch for epoch in range(5) for _ in (0, 2)]
    wanted = [_by_hand(plan, step, 15, epoch) for step, epoch in zip(found.steps, found.epochs, strict=True)]
    assert found.rates == pytest.approx(wanted, rel=1e-12)


def test_plateau_patience_counts_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is watched is played here: better in epochs 1, 2 and 6, so two epochs without are over after 5, 9 and 12."""
    values = iter([5.0, 4.0, 4.0, 4.5, 4.0, 3.0, 3.5, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0])
    monkeypatch.setattr(Validator, "__call__", lambda self, state: (next(values), None))
    plan = Plan(epochs=13, batch_size=16, caption_sampling="one", accumulation_steps=2, lr=1e-3, warmup=0.0)
    plan = replace(plan, schedule="plateau", plateau_patience=2, lr_factor=0.5)
    found = _trained(tmp_path / "run", plan, monkeypatch)
    drops = [sum(epoch >= after for after in (5, 9, 12)) for epoch in found.epochs]
    assert found.rates == pytest.approx([1e-3 * 0.5**drop for drop in drops])
