"""Methods that weight pairs, choose negatives or replace the loss: they learn, and a broken-off run ends the same."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import small

from subtext.core import DIRECTIONS
from subtext.errors import RecipeError
from subtext.losses.hal import HAL
from subtext.losses.infonce import InfoNCE
from subtext.losses.triplet import Triplet
from subtext.mining.distance import Distance
from subtext.model import Model
from subtext.objective import Objective, Penalty, Term
from subtext.recipes.methods.distance import distance
from subtext.recipes.methods.hal import hal
from subtext.recipes.methods.mithun import mithun
from subtext.recipes.methods.random import random
from subtext.recipes.methods.uniform import uniform
from subtext.regularisers.mmd import MMD
from subtext.similarity.cosine import Cosine
from subtext.training.options import RunOptions
from subtext.training.plan import Plan
from subtext.training.setup import Setup
from subtext.weighting.random import Random
from subtext.weighting.uniform import Uniform

Method = Callable[[Setup], Setup]
PLAN = Plan(epochs=6, batch_size=8, lr=2e-2, schedule="constant")
RESUMED = RunOptions(device="cpu", workers=0, resume=True)


def triplets(plan: Plan | None = None) -> Setup:
    """The small setup with a triplet loss and plain cosines, as the papers' hosts have them."""
    made = small.setup(plan, dropout=0.0)
    parts = {side: Term(Triplet(0.2), side, reduction="mean over cells") for side in DIRECTIONS}
    model = Model(made.model.image, made.model.text, Cosine())
    return replace(made, model=model, objective=Objective({**parts, "mmd": Penalty(MMD(), 0.01)}))


METHODS: dict[str, Method] = {
    "random": lambda setup: random(setup),
    "distance": lambda setup: distance(setup),
    "hal": lambda setup: hal(setup),
}


def losses(run: Path) -> list[float]:
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line["event"] == "epoch"]


@pytest.mark.parametrize("name", METHODS)
def test_the_loss_falls(name: str, tmp_path: Path) -> None:
    small.run(tmp_path / "run", plan=PLAN, made=lambda plan: METHODS[name](triplets(plan)), val=None)
    found = losses(tmp_path / "run")
    # HAL falls to -log(2) and not to 0.
    floor = -math.log(2) if name == "hal" else 0.0
    assert found[-1] - floor < 0.85 * (found[0] - floor)


def test_a_broken_off_run_draws_the_same(tmp_path: Path) -> None:
    plan = replace(PLAN, epochs=2, batch_size=16)
    given = {"plan": plan, "made": lambda plan: random(distance(triplets(plan))), "val": None}
    small.run(tmp_path / "whole", **given)
    small.run(tmp_path / "halves", report=small.Interrupt(7), **given)
    small.run(tmp_path / "halves", options=RESUMED, **given)
    weights = [(tmp_path / run / "model.safetensors").read_bytes() for run in ("whole", "halves")]
    assert weights[0] == weights[1]


def test_uniform_weights_scale_both_directions() -> None:
    parts = uniform(triplets(), total=96.0).objective.parts
    for side in DIRECTIONS:
        term = parts[side]
        assert term.weighting == Uniform(96.0, side, 32) and term.weight == 0.5 and term.loss == Triplet(0.2)
    assert parts["mmd"] == triplets().objective.parts["mmd"]
    assert uniform(triplets()).plan.drop_last and not uniform(triplets(), drop_last=False).plan.drop_last
    assert uniform(triplets(), half=False).objective.parts["image_to_text"].weight == 1.0


def test_any_loss_can_be_weighted() -> None:
    parts = random(small.setup(), total=32.0, batch=0).objective.parts
    assert isinstance(parts["image"].loss, InfoNCE)
    assert parts["image"].weighting == Random(32.0, "image_to_text", 0)
    assert parts["text"].weighting == Random(32.0, "text_to_image", 0) and parts["text"].weight == 0.25


def test_distance_draws_for_every_triplet_loss() -> None:
    made = triplets()
    hardest = Objective({"hard": Term(Triplet(0.3, "hardest"), "image_to_text")})
    term = distance(replace(made, objective=hardest), nearest=0.4).objective.parts["hard"]
    assert term == Term(
        Triplet(0.3), "image_to_text", weight=0.5, mining=Distance("image_to_text", nearest=0.4, furthest=1.4)
    )
    easy = Objective({**hardest.parts, "easy": Term(Triplet(0.3), "image_to_text", until_epoch=1)})
    assert distance(replace(made, objective=easy)).objective.parts["easy"] == easy.parts["easy"]


def test_hal_replaces_losses_and_the_learnt_scale() -> None:
    made = hal(replace(small.setup(), objective=small.setup_with_penalty().objective), gamma=60.0, threshold=0.7)
    assert set(made.objective.parts) == {*DIRECTIONS, "mmd"}
    assert made.objective.parts["text_to_image"] == Term(HAL(60.0, 0.7), "text_to_image")
    assert not made.model.similarity.learnable and made.model.similarity.scale == 1
    assert hal(small.setup(), diagonal=False).objective.parts["image_to_text"].loss.diagonal == "none"


@pytest.mark.parametrize(
    ("method", "setup", "said"),
    [
        (uniform, lambda: random(triplets()), "uniform weights a loss that has no weights yet; 'image_to_text' has"),
        (random, lambda: mithun(triplets()), "random weights a loss that has no weights yet"),
        (random, lambda: replace(triplets(), objective=Objective({"mmd": Penalty(MMD(), 1.0)})), "objective has mmd;"),
        (distance, lambda: distance(triplets()), "'image_to_text' has them chosen already; take one alone"),
        (distance, lambda: hal(triplets()), r"distance needs a host with a triplet loss .*; this objective has HAL,"),
        (hal, lambda: uniform(triplets()), "'image_to_text' has sample weights .* lost; name hal before the method"),
        (hal, lambda: distance(triplets()), "'image_to_text' has chosen negatives that would be lost; name hal before"),
        (hal, small.setup_with_parts, "hal needs a host .* cosine of their vectors; this one compares by BestWord"),
    ],
)
def test_what_cannot_be_done_is_refused(method: Method, setup: Callable[[], Setup], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        method(setup())


def test_distances_need_their_order() -> None:
    with pytest.raises(RecipeError, match=r"nearest below furthest; it got 1\.5 and 1\.4"):
        distance(triplets(), nearest=1.5)
