"""Methods that weight pairs, choose negatives or replace the loss: they learn, and a broken-off run ends the same."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import small
import torch

from subtext.core import DIRECTIONS, Embeddings
from subtext.errors import DataError, RecipeError
from subtext.losses.hal import HAL
from subtext.losses.infonce import InfoNCE
from subtext.losses.margin import Margin
from subtext.losses.triplet import Triplet
from subtext.mining.distance import Distance
from subtext.mining.hubs import Hubs
from subtext.model import Model
from subtext.objective import Objective, Penalty, Term
from subtext.recipes.methods.amrani import amrani
from subtext.recipes.methods.distance import distance
from subtext.recipes.methods.hal import hal
from subtext.recipes.methods.mithun import mithun
from subtext.recipes.methods.random import random
from subtext.recipes.methods.uniform import uniform
from subtext.regularisers.mmd import MMD
from subtext.similarity.cosine import Cosine
from subtext.training.kept_pairs import KeptPairs
from subtext.training.options import RunOptions
from subtext.training.plan import Plan
from subtext.training.setup import Setup
from subtext.weighting.density import Density
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
    # Without its bank: with one, the loss of later epochs is another one than the first epoch's.
    "hal": lambda setup: hal(setup, bank=0.0),
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
    margin = distance(replace(made, objective=hardest), loss="margin", boundary=1.1).objective.parts["hard"]
    assert margin == replace(term, loss=Margin(0.2, 1.1), mining=Distance("image_to_text"))


def test_hal_replaces_losses_and_the_learnt_scale() -> None:
    penalised = replace(small.setup(), objective=small.setup_with_penalty().objective)
    made = hal(penalised, gamma=60.0, threshold=0.7, bank=0.0)
    assert set(made.objective.parts) == {*DIRECTIONS, "mmd"}
    assert made.objective.parts["text_to_image"] == Term(HAL(60.0, 0.7), "text_to_image")
    assert not made.model.similarity.learnable and made.model.similarity.scale == 1
    assert hal(small.setup(), diagonal=False, bank=0.0).objective.parts["image_to_text"].loss.diagonal == "none"


def test_hal_turns_to_its_bank_after_an_epoch() -> None:
    made = hal(triplets(), bank=0.5, nearest=7)
    assert made.memories == (KeptPairs(0.5),)
    first, later = (made.objective.parts[name] for name in ("image_to_text, without a bank", "image_to_text"))
    assert first == Term(HAL(), "image_to_text", until_epoch=1)
    hubs = Hubs("image_to_text", nearest=7)
    assert later == Term(HAL(diagonal="one"), "image_to_text", from_epoch=1, mining=hubs)


def test_a_bank_is_drawn_anew_and_is_part_of_a_checkpoint(tmp_path: Path) -> None:
    given = {
        "plan": replace(PLAN, epochs=3, batch_size=16),
        "made": lambda plan: hal(triplets(plan), bank=0.3),
        "val": None,
    }
    small.run(tmp_path / "whole", **given)
    small.run(tmp_path / "halves", report=small.Interrupt(7), **given)
    small.run(tmp_path / "halves", options=RESUMED, **given)
    weights = [(tmp_path / run / "model.safetensors").read_bytes() for run in ("whole", "halves")]
    assert weights[0] == weights[1]
    data = small.pairs()
    memory = KeptPairs(0.3).open(data, device=torch.device("cpu"))
    items = [Embeddings(torch.randn(count, 1, 4), torch.arange(count)) for count in (len(data.images), len(data.texts))]
    memory.begin(epoch=0, seed=0, embed=lambda: pytest.fail("nothing is learnt yet"))
    assert memory.bank is None and memory.tensors() == {}
    rows = []
    for epoch in (1, 2):
        memory.begin(epoch=epoch, seed=0, embed=lambda: (items[0], items[1]))
        texts = memory.bank["hubs/text"]
        rows.append(texts.ids.tolist())
        assert torch.equal(memory.bank["hubs/image"].ids, texts.ids // 2)
        assert torch.equal(texts.vectors, items[1].vectors[texts.ids])
    assert rows[0] != rows[1] and 10 < len(rows[0]) < 40
    again = KeptPairs(0.3).open(data, device=torch.device("cpu"))
    again.restore(memory.tensors())
    assert torch.equal(again.bank["hubs/image"].vectors, memory.bank["hubs/image"].vectors)


def features(folder: Path) -> str:
    names = small.pairs().images.ids
    rows = np.random.default_rng(0).normal(size=(len(names), 6)).astype(np.float32)
    np.savez(folder / "features.npz", names=np.array(names), pooled=rows)
    return str(folder / "features.npz")


def test_amrani_weights_by_a_table_that_stays(tmp_path: Path) -> None:
    file = features(tmp_path)
    made = amrani(triplets(PLAN), features=file, neighbours=3)
    assert made.objective.parts["text_to_image"].weighting == Density(196.0, "sum", "text_to_image", 32)
    (asked,) = made.memories
    table = asked.open(small.pairs(), device=torch.device("cpu")).table["density"]
    assert table.shape == (80,) and table.min() == 0 and table.max() == 1
    fitted = small.run(
        tmp_path / "run",
        plan=replace(PLAN, epochs=1),
        made=lambda plan: amrani(triplets(plan), features=file),
        val=None,
    )
    assert fitted.record.status == "finished"


def test_amrani_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="amrani needs features=FILE"):
        amrani(triplets())
    (asked,) = amrani(triplets(), features=features(tmp_path), neighbours=80).memories
    with pytest.raises(DataError, match="need more than 80 pairs; it got 80; ask for fewer"):
        asked.open(small.pairs(), device=torch.device("cpu"))


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
