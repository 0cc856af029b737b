"""What every optimiser promises: it learns, its groups are right, and its state goes to disk and back."""

from __future__ import annotations

import copy
import math
from typing import get_args, get_type_hints

import pytest
import small_training
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, get_swa_multi_avg_fn

from subtext.errors import CheckpointError, RecipeError, TrainingError
from subtext.training.optimiser import (
    AdamP,
    EpochSettings,
    FreezeSchedule,
    WeightAverage,
    build_optimiser,
    pack,
    parameter_groups,
    project,
    set_lr,
    stage,
    unpack,
)
from subtext.training.plan import Phase, Plan

pytestmark = pytest.mark.contract

KINDS = get_args(get_type_hints(Plan)["optimiser"])


def _work(model: nn.Module, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    total = torch.zeros(())
    for weight in model.parameters():
        total = total + ((weight - torch.randn(weight.shape, generator=generator)) ** 2).mean()
    return total


@pytest.mark.parametrize("kind", KINDS)
def test_optimiser_reduces_loss(kind: str) -> None:
    model = small_training.setup().model
    optimiser = build_optimiser(model, Plan(optimiser=kind, lr=5e-2))
    set_lr(optimiser, 5e-2)
    before = _work(model, 0).item()
    for _ in range(30):
        optimiser.zero_grad()
        _work(model, 0).backward()
        optimiser.step()
    assert _work(model, 0).item() < 0.8 * before


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("amsgrad", [False, True])
def test_optimiser_state_round_trip_continues_identically(kind: str, amsgrad: bool) -> None:
    if amsgrad and kind in ("adamp", "sgd"):
        with pytest.raises(RecipeError, match=f"amsgrad needs optimiser=adam or adamw; optimiser is {kind}"):
            Plan(optimiser=kind, amsgrad=True)
        return
    plan = Plan(optimiser=kind, lr=1e-2, amsgrad=amsgrad, weight_decay=0.1)
    model = small_training.setup().model
    optimiser = build_optimiser(model, plan)
    for step in range(3):
        optimiser.zero_grad()
        _work(model, step).backward()
        optimiser.step()
    twin = copy.deepcopy(model)
    other = build_optimiser(twin, plan)
    tensors, rest = pack(optimiser)
    assert all(isinstance(value, Tensor) for value in tensors.values())
    unpack(other, {name: value.clone() for name, value in tensors.items()}, rest)
    for mine, moving in ((model, optimiser), (twin, other)):
        moving.zero_grad()
        _work(mine, 9).backward()
        moving.step()
    for (name, one), two in zip(model.named_parameters(), twin.parameters(), strict=True):
        assert torch.equal(one, two), name


def test_state_with_extra_weights_raises() -> None:
    optimiser = build_optimiser(small_training.setup().model, Plan())
    with pytest.raises(CheckpointError, match="has state for 100"):
        unpack(optimiser, {"99/exp_avg": torch.zeros(1)}, {})


def test_decay_skips_biases_and_backbone_rate_is_scaled() -> None:
    model = small_training.setup().model
    plan = Plan(weight_decay=0.5, backbone_lr_scale=0.1, layer_decay=0.5)
    found = {}
    for group in parameter_groups(model, plan):
        for weight in group["params"]:
            found[id(weight)] = (group["factor"], group["weight_decay"])
    body = model.image.encoder.body
    assert found[id(body[0].weight)] == (pytest.approx(0.05), 0.5)
    assert found[id(body[0].bias)] == (pytest.approx(0.05), 0.0)
    assert found[id(body[2].weight)] == (pytest.approx(0.1), 0.5)
    assert found[id(model.image.head.project.weight)] == (1.0, 0.5)
    assert found[id(model.image.head.project.bias)] == (1.0, 0.0)
    assert found[id(model.similarity.log_scale)] == (1.0, 0.0)
    assert len(found) == len(list(model.parameters()))


def test_rates_follow_schedule_factors() -> None:
    model = small_training.setup().model
    optimiser = build_optimiser(model, Plan(backbone_lr_scale=0.1))
    set_lr(optimiser, 2.0)
    assert sorted({round(group["lr"], 9) for group in optimiser.param_groups}) == [0.2, 2.0]


def test_model_without_trainable_weights_raises() -> None:
    with pytest.raises(TrainingError, match="at least one weight that learns"):
        build_optimiser(small_training.setup().model.requires_grad_(False), Plan())


def test_adamp_without_projection_equals_adamw() -> None:
    """delta = 0: no angle is near enough."""
    one, two = nn.Linear(5, 4), nn.Linear(5, 4)
    two.load_state_dict(one.state_dict())
    mine = AdamP(one.parameters(), 1e-2, weight_decay=0.1, delta=0.0)
    theirs = torch.optim.AdamW(two.parameters(), 1e-2, weight_decay=0.1)
    for step in range(5):
        for model, optimiser in ((one, mine), (two, theirs)):
            optimiser.zero_grad()
            _work(model, step).backward()
            optimiser.step()
    torch.testing.assert_close(one.weight, two.weight)
    torch.testing.assert_close(one.bias, two.bias)


def test_adamp_projects_orthogonal_rows() -> None:
    """By a plain loop; a gradient at right angles to every row, and a step along and across."""
    weight = torch.tensor([[3.0, 0.0, 0.0], [0.0, 0.0, 2.0]])
    grad = torch.tensor([[0.0, 1.0, 0.5], [1.0, 2.0, 0.0]])
    move = torch.tensor([[5.0, 1.0, 1.0], [1.0, 1.0, 7.0]])
    found, turned = project(weight, grad, move, delta=0.1)
    assert bool(turned)
    wanted = torch.zeros_like(move)
    for row in range(2):
        w, p = weight[row].tolist(), move[row].tolist()
        along = sum(a * b for a, b in zip(w, p, strict=True)) / sum(a * a for a in w)
        wanted[row] = torch.tensor([b - along * a for a, b in zip(w, p, strict=True)])
    torch.testing.assert_close(found, wanted)
    same, turned = project(weight, weight + 0.0, move, delta=0.1)
    assert not bool(turned)
    assert torch.equal(same, move)


def test_adamp_projects_full_weight_when_rows_are_not_orthogonal() -> None:
    weight = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    grad = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])  # cos = 1 by row, 0 over the tensor
    found, turned = project(weight, grad, torch.tensor([[2.0, 1.0], [4.0, 1.0]]), delta=0.1)
    assert bool(turned)
    torch.testing.assert_close(found, torch.tensor([[-1.0, 1.0], [1.0, 1.0]]))


def test_adamp_does_not_lengthen_scale_invariant_weight() -> None:
    """A loss of the direction alone: Adam's steps lengthen the weight, AdamP's hardly."""
    lengths = {}
    for kind in (AdamP, torch.optim.Adam):
        torch.manual_seed(1)
        weight = nn.Parameter(torch.randn(1, 64))
        goal = torch.nn.functional.normalize(torch.randn(1, 64), dim=1)
        optimiser = kind([weight], lr=0.05)
        start = weight.norm().item()
        for _ in range(60):
            optimiser.zero_grad()
            (-torch.nn.functional.normalize(weight, dim=1) * goal).sum().backward()
            optimiser.step()
        lengths[kind.__name__] = weight.norm().item() / start
    assert lengths["AdamP"] < lengths["Adam"]
    assert lengths["AdamP"] < 1.1


PHASES = (Phase(2, "heads"), Phase(3, "all", factor=0.1))


@pytest.mark.parametrize(
    ("plan", "phases", "wanted"),
    [
        (Plan(epochs=4), (), [(True, 1.0)] * 4),
        (Plan(epochs=4, freeze_epochs=2), (), [(False, 1.0)] * 2 + [(True, 1.0)] * 2),
        (Plan(epochs=3, freeze_epochs=-1), (), [(False, 1.0)] * 3),
        (Plan(epochs=7), PHASES, [(False, 1.0)] * 2 + [(True, 0.1)] * 5),
        (Plan(epochs=4, freeze_epochs=3), PHASES, [(False, 1.0)] * 2 + [(False, 0.1), (True, 0.1)]),
    ],
)
def test_stage_of_each_epoch(plan: Plan, phases: tuple[Phase, ...], wanted: list[tuple[bool, float]]) -> None:
    assert [stage(plan, phases, epoch) for epoch in range(plan.epochs)] == [EpochSettings(*pair) for pair in wanted]


def test_freezing_rests_backbone_and_keeps_recipe_frozen_weights() -> None:
    model = small_training.setup().model
    model.image.head.project.bias.requires_grad_(False)
    freezer = FreezeSchedule(model)
    freezer.apply(EpochSettings(bodies=False, factor=1.0))
    body = model.image.encoder.body
    assert not any(weight.requires_grad for weight in body.parameters())
    assert not body[1].training
    assert model.image.head.training
    assert model.image.head.project.weight.requires_grad
    freezer.apply(EpochSettings(bodies=True, factor=1.0))
    assert all(weight.requires_grad for weight in body.parameters())
    assert body[1].training
    assert not model.image.head.project.bias.requires_grad


def test_frozen_norms_keep_pretrained_batch_norms_in_eval() -> None:
    model = small_training.setup().model
    body = model.image.encoder.body
    body.append(torch.nn.BatchNorm1d(16))
    freezer = FreezeSchedule(model)
    freezer.apply(stage(Plan(), (), 0))
    assert body[-1].training
    freezer.apply(stage(Plan(backbone_norms="frozen"), (), 0))
    assert not body[-1].training
    assert body[1].training
    assert all(weight.requires_grad for weight in body.parameters())


def test_never_learning_encoders_are_detected() -> None:
    model = small_training.setup().model
    freezer = FreezeSchedule(model)
    assert freezer.never_learns(model.image, Plan(freeze_epochs=-1), ())
    assert not freezer.never_learns(model.text, Plan(freeze_epochs=-1), ())
    assert not freezer.never_learns(model.image, Plan(epochs=3, freeze_epochs=2), ())
    assert freezer.never_learns(model.image, Plan(epochs=2), PHASES)
    model.image.encoder.requires_grad_(False)
    assert FreezeSchedule(model).never_learns(model.image, Plan(), ())


def test_moving_average_equals_plain_loop() -> None:
    model = nn.Linear(2, 2)
    average = WeightAverage(model, Plan(weight_average="ema", ema_decay=0.8))
    held = model.weight.detach().clone()
    for step in range(12):
        with torch.no_grad():
            model.weight += 1.0
        average.after_step()
        keep = min(0.8, (1 + step) / (10 + step))
        held = keep * held + (1 - keep) * model.weight.detach()
    torch.testing.assert_close(average.tensors["weight"], held)
    own = model.weight.detach().clone()
    with average.applied():
        torch.testing.assert_close(model.weight.detach(), held)
    assert torch.equal(model.weight.detach(), own)


@pytest.mark.parametrize("kind", ["ema", "swa"])
def test_averages_equal_torch_averages(kind: str) -> None:
    """The updates are the same to the bit; torch's own model averages from the first update on, without a warm-up."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    model[1].num_batches_tracked = None  # An integer, which torch's own model cannot average.
    average = WeightAverage(model, Plan(weight_average=kind, ema_decay=0.5, swa_start=0.0))
    update = get_ema_multi_avg_fn(0.5) if kind == "ema" else get_swa_multi_avg_fn()
    theirs = AveragedModel(model, multi_avg_fn=update, use_buffers=True)
    average.count = 10 if kind == "ema" else 0
    theirs.n_averaged = torch.tensor(average.count)
    for epoch in range(5):
        for weight in model.parameters():
            weight.data += torch.randn_like(weight)
        model(torch.randn(8, 3))
        average.after_step()
        average.after_epoch(epoch)
        theirs.update_parameters(model)
    state = theirs.module.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in average.tensors.items())


def test_equal_average_is_mean_of_last_epochs() -> None:
    model = nn.BatchNorm1d(2)
    average = WeightAverage(model, Plan(weight_average="swa", epochs=10))
    for epoch in range(10):
        with torch.no_grad():
            model.weight.fill_(float(epoch))
            model.running_mean.fill_(2.0 * epoch)
        average.after_step()
        average.after_epoch(epoch)
    assert average.count == 4
    assert average.tensors["weight"].tolist() == pytest.approx([7.5, 7.5])
    assert average.tensors["running_mean"].tolist() == pytest.approx([15.0, 15.0])
    assert math.isclose(model.weight[0].item(), 9.0)
