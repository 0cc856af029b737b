"""Methods that weight pairs, choose negatives or replace the loss: they learn, and a broken-off run ends the same."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import small_training
import torch
from scenes import random_items

from subtext.core import DIRECTIONS, Embeddings, Epoch
from subtext.errors import DataError, RecipeError
from subtext.evaluation.embedding import embed_pairs
from subtext.graphs.spaces import LsaSpace
from subtext.models.model import Model
from subtext.models.similarity.cosine import Cosine
from subtext.objectives.losses.hal import HAL
from subtext.objectives.losses.infonce import InfoNCE
from subtext.objectives.losses.margin import Margin
from subtext.objectives.losses.triplet import Triplet
from subtext.objectives.mining import DistanceSampling, Hubs
from subtext.objectives.objective import Objective, Penalty, Term
from subtext.objectives.regularisers import MMD
from subtext.objectives.scene import compose
from subtext.objectives.weighting import Density, Random, Uniform
from subtext.ops import draw
from subtext.ops.density import DensityOptions, density
from subtext.recipes.methods.amrani import amrani
from subtext.recipes.methods.amrani.densities import DensityTable
from subtext.recipes.methods.distance import distance
from subtext.recipes.methods.diversity import diversity
from subtext.recipes.methods.hal import hal
from subtext.recipes.methods.hal.bank import PairBank, PairBankRows
from subtext.recipes.methods.mithun import mithun
from subtext.recipes.methods.random import random
from subtext.recipes.methods.uniform import uniform
from subtext.recipes.options import NeighbourOptions, WeightOptions
from subtext.training.bank import BankSet, Embed
from subtext.training.checks import validate_plan
from subtext.training.plan import Plan, RunConfig
from subtext.training.processes import Processes
from subtext.training.setup import Setup

Method = Callable[[Setup], Setup]
PLAN = Plan(epochs=6, batch_size=8, lr=2e-2, schedule="constant")
RESUMED = RunConfig(device="cpu", workers=0, resume=True)


def triplets(plan: Plan | None = None) -> Setup:
    """The small setup with a triplet loss and plain cosines, as the papers' hosts have them."""
    made = small_training.setup(plan, dropout=0.0)
    parts = {side: Term(Triplet(0.2), side, reduction="mean over cells") for side in DIRECTIONS}
    model = Model(made.model.image, made.model.text, Cosine())
    return replace(made, model=model, objective=Objective({**parts, "mmd": Penalty(MMD(), 0.01)}))


METHODS: dict[str, Method] = {
    "random": lambda setup: random(setup),
    "distance": lambda setup: distance(setup),
    # Without its bank: with one, the loss of later epochs is another one than the first epoch's.
    "hal": lambda setup: hal(setup, bank_share=0.0),
}


def losses(run: Path) -> list[float]:
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line["event"] == "epoch"]


@pytest.mark.parametrize("name", METHODS)
def test_training_loss_falls(name: str, tmp_path: Path) -> None:
    small_training.run(tmp_path / "run", plan=PLAN, made=lambda plan: METHODS[name](triplets(plan)), val=None)
    found = losses(tmp_path / "run")
    # HAL falls to -log(2) and not to 0.
    floor = -math.log(2) if name == "hal" else 0.0
    assert found[-1] - floor < 0.85 * (found[0] - floor)


def test_resumed_run_samples_equally(tmp_path: Path) -> None:
    plan = replace(PLAN, epochs=2, batch_size=16)
    given = {"plan": plan, "made": lambda plan: random(distance(triplets(plan))), "val": None}
    small_training.run(tmp_path / "whole", **given)
    small_training.run(tmp_path / "halves", report=small_training.Interrupt(7), **given)
    small_training.run(tmp_path / "halves", options=RESUMED, **given)
    weights = [(tmp_path / run / "model.safetensors").read_bytes() for run in ("whole", "halves")]
    assert weights[0] == weights[1]


def test_selection_loss_uses_equal_samples_in_every_epoch(tmp_path: Path) -> None:
    """Of a model that hardly changes it hardly changes; that of training is of other draws each time."""
    plan = Plan(epochs=3, batch_size=16, lr=1e-9, optimiser="sgd", schedule="constant", select="loss")
    small_training.run(tmp_path / "run", plan=plan, made=lambda plan: random(distance(triplets(plan))))
    told = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    found = [line["figures"]["loss"] for line in told if line["event"] == "epoch"]
    assert found == pytest.approx([found[0]] * 3, rel=1e-5)
    learnt = losses(tmp_path / "run")
    assert abs(learnt[1] - learnt[0]) > 1e-3 * learnt[0]


def test_uniform_weights_scale_both_directions() -> None:
    parts = uniform(triplets(), total_weight=96.0).objective.parts
    for side in DIRECTIONS:
        term = parts[side]
        assert term.weighting == Uniform(96.0, side, 32) and term.weight == 0.5 and term.loss == Triplet(0.2)
    assert parts["mmd"] == triplets().objective.parts["mmd"]
    assert uniform(triplets()).plan.drop_last and not uniform(triplets(), drop_last=False).plan.drop_last
    assert uniform(triplets(), average_directions=False).objective.parts["image_to_text"].weight == 1.0


@pytest.mark.parametrize("total", [7.9, 8.0])
@pytest.mark.parametrize("name", ["uniform", "random", "amrani", "softmax", "diversity"])
def test_mean_weight_below_one_gives_note(name: str, total: float) -> None:
    """The small batches have 8 pairs; a total for 32 of them is a quarter of it here."""
    made: Mapping[str, Callable[[Setup, float, int], Setup]] = {
        "uniform": lambda setup, total, batch: uniform(setup, total_weight=total, reference_batch=batch),
        "random": lambda setup, total, batch: random(setup, total_weight=total, reference_batch=batch),
        "amrani": lambda setup, total, batch: amrani(setup, features="some", total_weight=total, reference_batch=batch),
        "softmax": lambda setup, total, batch: amrani(
            setup, features="some", normalise="softmax", total_weight=total, reference_batch=batch
        ),
        "diversity": lambda setup, total, batch: diversity(
            setup,
            neighbours=NeighbourOptions(graph="some"),
            weights=WeightOptions(total_weight=total, reference_batch=batch),
        ),
    }
    for batch, sure in ((0, total), (32, 4 * total)):
        said = validate_plan(made[name](triplets(PLAN), sure, batch), small_training.pairs(), Processes("cpu"))
        assert [f"sum to {total:g} over a batch of 8 pairs" in note for note in said] == [True] * (total < 8)
        assert all(f"use total_weight={batch or 8} or more" in note for note in said)


def test_total_inside_softmax_alone_gives_note() -> None:
    def said(**common: object) -> list[str]:
        made = diversity(triplets(PLAN), neighbours=NeighbourOptions(graph="some"), weights=WeightOptions(**common))
        return validate_plan(made, small_training.pairs(), Processes("cpu"))

    (inner,) = said(total_placement="inner")
    assert "sum to 1 over a batch of 8 pairs" in inner and "use both, outer or scores" in inner
    # One softmax has no inner place: total is its sum.
    assert said(total_placement="both") == said(total_placement="inner", combine="mean") == []
    assert (
        validate_plan(
            amrani(triplets(PLAN), features="some", normalise="none"), small_training.pairs(), Processes("cpu")
        )
        == []
    )


def test_any_loss_can_be_weighted() -> None:
    parts = random(small_training.setup(), total_weight=32.0, reference_batch=0).objective.parts
    assert isinstance(parts["image"].loss, InfoNCE)
    assert parts["image"].weighting == Random(32.0, "image_to_text", 0)
    assert parts["text"].weighting == Random(32.0, "text_to_image", 0) and parts["text"].weight == 0.25


def test_distance_sampling_applies_to_every_triplet_loss() -> None:
    made = triplets()
    hardest = Objective({"hard": Term(Triplet(0.3, "hardest"), "image_to_text")})
    term = distance(replace(made, objective=hardest), min_distance=0.4).objective.parts["hard"]
    assert term == Term(
        Triplet(0.3), "image_to_text", weight=0.5, mining=DistanceSampling("image_to_text", nearest=0.4, furthest=1.4)
    )
    easy = Objective({**hardest.parts, "easy": Term(Triplet(0.3), "image_to_text", until_epoch=1)})
    assert distance(replace(made, objective=easy)).objective.parts["easy"] == easy.parts["easy"]
    margin = distance(replace(made, objective=hardest), loss="margin", boundary=1.1).objective.parts["hard"]
    assert margin == replace(term, loss=Margin(0.2, 1.1), mining=DistanceSampling("image_to_text"))


def test_hal_replaces_losses_and_learnt_scale() -> None:
    penalised = replace(small_training.setup(), objective=small_training.setup_with_penalty().objective)
    made = hal(penalised, gamma=60.0, threshold=0.7, bank_share=0.0)
    assert set(made.objective.parts) == {*DIRECTIONS, "mmd"}
    assert made.objective.parts["text_to_image"] == Term(HAL(60.0, 0.7), "text_to_image")
    assert not made.model.similarity.learnable and made.model.similarity.scale == 1
    assert (
        hal(small_training.setup(), diagonal=False, bank_share=0.0).objective.parts["image_to_text"].loss.diagonal
        == "none"
    )


def test_hal_uses_bank_after_first_epoch() -> None:
    made = hal(triplets(), bank_share=0.5, bank_neighbours=7)
    assert made.banks == (PairBank(0.5),)
    first, later = (made.objective.parts[name] for name in ("image_to_text, without a bank", "image_to_text"))
    assert first == Term(HAL(), "image_to_text", until_epoch=1)
    hubs = Hubs("image_to_text", nearest=7)
    assert later == Term(HAL(diagonal="one"), "image_to_text", from_epoch=1, mining=hubs, unmined=HAL())
    sharp = hal(
        triplets(),
        gamma=2.0,
        alpha=3.0,
        epsilon1=0.4,
        beta=5.0,
        epsilon2=0.6,
        scale_epsilon2=True,
        exclude_same_image=False,
    )
    assert sharp.objective.parts["text_to_image"].mining == Hubs(
        "text_to_image", 0.3, 3.0, 0.4, 5.0, 0.6, inside=True, exclude_same_image=False
    )


@pytest.mark.parametrize("diagonal", [True, False])
def test_hal_validation_loss_is_equal_in_every_epoch(diagonal: bool) -> None:
    """There is no bank in validation: what the code adds for the pair itself is then exp(-gamma threshold), not 1."""
    objective = hal(triplets(), bank_share=0.5, diagonal=diagonal).objective.of_pairs()
    images, texts = random_items(6, seed=1), random_items(6, seed=2)
    scene = compose(Cosine(), images, texts, torch.arange(6))
    found = [objective(scene, Epoch(number=number, seed=0))[0].item() for number in (0, 1, 7)]
    assert found[0] == found[1] == found[2]
    # With a bank of other pairs it is another function.
    kept = {name: replace(items, ids=items.ids + 50) for name, items in (("hubs/image", images), ("hubs/text", texts))}
    assert objective(scene, Epoch(1, 0, bank=kept))[0].item() != found[0]


def test_bank_is_resampled_and_checkpointed(tmp_path: Path) -> None:
    given = {
        "plan": replace(PLAN, epochs=3, batch_size=16),
        "made": lambda plan: hal(triplets(plan), bank_share=0.3),
        "val": None,
    }
    small_training.run(tmp_path / "whole", **given)
    small_training.run(tmp_path / "halves", report=small_training.Interrupt(7), **given)
    small_training.run(tmp_path / "halves", options=RESUMED, **given)
    weights = [(tmp_path / run / "model.safetensors").read_bytes() for run in ("whole", "halves")]
    assert weights[0] == weights[1]
    data = small_training.pairs()
    memory = PairBank(0.3).open(data, device=torch.device("cpu"))
    items = [Embeddings(torch.randn(count, 1, 4), torch.arange(count)) for count in (len(data.images), len(data.texts))]
    memory.on_epoch_start(epoch=0, seed=0, embed=lambda: pytest.fail("nothing is learnt yet"))
    assert memory.bank is None and memory.tensors() == {}
    rows = []
    for epoch in (1, 2):
        memory.on_epoch_start(epoch=epoch, seed=0, embed=lambda rows: (items[0][_of(rows[0])], items[1][_of(rows[1])]))
        texts = memory.bank["hubs/text"]
        rows.append(texts.ids.tolist())
        assert torch.equal(memory.bank["hubs/image"].ids, texts.ids // 2)
        assert torch.equal(texts.vectors, items[1].vectors[texts.ids])
        assert torch.equal(memory.bank["hubs/image"].vectors, items[0].vectors[texts.ids // 2])
    assert rows[0] != rows[1] and 10 < len(rows[0]) < 40
    again = PairBank(0.3).open(data, device=torch.device("cpu"))
    again.restore(memory.tensors())
    assert torch.equal(again.bank["hubs/image"].vectors, memory.bank["hubs/image"].vectors)


def _of(rows: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(rows)


def test_bank_embeds_only_its_pairs() -> None:
    """The pairs are those whose draw is below the rate; vectors are those of a pass over everything."""
    data, model = small_training.pairs(), triplets().model
    drawn = draw.uniform(data.texts.keys, seed=4, epoch=2, purpose="bank pairs")[:, 0]
    for rate, wanted in ((0.2, np.flatnonzero(drawn < 0.2)), (1e-9, np.array([drawn.argmin()])), (1.0, np.arange(80))):
        memory = PairBank(rate).open(data, device=torch.device("cpu"))
        whole = embed_pairs(model, data, workers=0)
        traits = model.image.input_spec
        traits.read = 0
        memory.on_epoch_start(epoch=2, seed=4, embed=lambda rows: embed_pairs(model, data, rows=rows, workers=0))
        assert traits.read == len(set((wanted // 2).tolist()))
        images, texts = memory.bank["hubs/image"], memory.bank["hubs/text"]
        assert texts.ids.tolist() == wanted.tolist() and images.ids.tolist() == (wanted // 2).tolist()
        torch.testing.assert_close(texts.vectors, whole[1].vectors[texts.ids])
        torch.testing.assert_close(images.vectors, whole[0].vectors[images.ids])


def test_banks_share_one_embedding_pass() -> None:
    data, model, asked = small_training.pairs(), triplets().model, []
    whole = embed_pairs(model, data, workers=0)

    def embed(rows: tuple[np.ndarray, np.ndarray] | None = None) -> tuple[Embeddings, Embeddings]:
        asked.append(None if rows is None else len(rows[1]))
        return whole if rows is None else embed_pairs(model, data, rows=rows, workers=0)

    class Everything(PairBankRows):
        def on_epoch_start(self, *, epoch: int, seed: int, embed: Embed, reads: torch.Tensor | None = None) -> None:
            assert embed() is whole

    bank, every = (made(PairBank(0.2), data, torch.device("cpu")) for made in (PairBankRows, Everything))
    BankSet((bank, every, every)).on_epoch_start(epoch=1, seed=0, embed=embed)
    alone = bank.bank["hubs/text"]
    assert asked == [len(alone), None]
    BankSet((every, bank)).on_epoch_start(epoch=1, seed=0, embed=embed)
    assert asked == [len(alone), None, None]
    assert torch.equal(bank.bank["hubs/text"].ids, alone.ids)
    torch.testing.assert_close(bank.bank["hubs/text"].vectors, alone.vectors)


def features(folder: Path) -> str:
    names = small_training.pairs().images.ids
    rows = np.random.default_rng(0).normal(size=(len(names), 6)).astype(np.float32)
    np.savez(folder / "features.npz", names=np.array(names), pooled=rows)
    return str(folder / "features.npz")


def test_amrani_weights_use_fixed_table(tmp_path: Path) -> None:
    file = features(tmp_path)
    made = amrani(triplets(PLAN), features=file, neighbours=3)
    assert made.objective.parts["text_to_image"].weighting == Density(196.0, "text_to_image", 32, "sum")
    (asked,) = made.banks
    table = asked.open(small_training.pairs(), device=torch.device("cpu")).table["density"]
    assert table.shape == (80,) and table.min() == 0 and table.max() == 1
    fitted = small_training.run(
        tmp_path / "run",
        plan=replace(PLAN, epochs=1),
        made=lambda plan: amrani(triplets(plan), features=file),
        val=None,
    )
    assert fitted.record.status == "finished"


def test_amrani_excludes_other_texts_of_image_by_default(tmp_path: Path) -> None:
    """Two texts of a picture have its features both: were they near each other, the nearest pair would be that one."""
    data, file = small_training.pairs(), features(tmp_path)
    pictures = torch.from_numpy(np.load(file)["pooled"])[torch.arange(80) // 2]
    texts = torch.from_numpy(LsaSpace()(data, np.ones(80, dtype=bool)).vectors)
    how, own = DensityOptions(1), torch.arange(80) // 2
    with_own, without = density(pictures, texts, how), density(pictures, texts, how, groups=own)
    for same_picture, wanted in (("drop", without), ("keep", with_own)):
        (asked,) = amrani(triplets(), features=file, neighbours=1, same_image=same_picture).banks
        torch.testing.assert_close(asked.open(data, device=torch.device("cpu")).table["density"], wanted)
    assert amrani(triplets(), features=file).banks == (DensityTable(Path(file)),)
    (asked,) = amrani(triplets(), features=file, density="last", rescale="rank").banks
    assert asked.how == DensityOptions(10, value="last", scale="rank")


def test_amrani_gives_text_without_vector_mean_weight(tmp_path: Path) -> None:
    """A text with no word at all is near nobody, and its pair counts as the mean one."""
    whole, file = small_training.pairs(), features(tmp_path)
    data = replace(whole, texts=replace(whole.texts, values=["...", *whole.texts.values[1:]]))
    (asked,) = amrani(triplets(), features=file, neighbours=3).banks
    memory = asked.open(data, device=torch.device("cpu"))
    assert memory.notes == ("1 text without a place among texts: such a pair counts as the mean one",)
    table = memory.table["density"]
    assert table[0] == pytest.approx(table[1:].mean().item())
    own = torch.arange(1, 80) // 2
    pictures = torch.from_numpy(np.load(file)["pooled"])[own]
    texts = torch.from_numpy(LsaSpace()(data, np.ones(80, dtype=bool)).vectors[1:])
    torch.testing.assert_close(table[1:], density(pictures, texts, DensityOptions(3), groups=own))
    assert asked.open(whole, device=torch.device("cpu")).notes == ()


def test_amrani_without_features_or_enough_pairs_raises(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="amrani needs features=FILE"):
        amrani(triplets())
    (asked,) = amrani(triplets(), features=features(tmp_path), neighbours=80).banks
    with pytest.raises(DataError, match="need more than 80 pairs; it got 80; ask for fewer"):
        asked.open(small_training.pairs(), device=torch.device("cpu"))
    (asked,) = amrani(triplets(), features=features(tmp_path), neighbours=79).banks
    with pytest.raises(DataError, match="it got 80, 2 of one image; ask for fewer"):
        asked.open(small_training.pairs(), device=torch.device("cpu"))
    (asked,) = amrani(triplets(), features=features(tmp_path), neighbours=79, same_image="keep").banks
    assert asked.open(small_training.pairs(), device=torch.device("cpu")).table is not None


@pytest.mark.parametrize(
    ("method", "setup", "said"),
    [
        (uniform, lambda: random(triplets()), "uniform weights a loss that has no weights yet; 'image_to_text' has"),
        (random, lambda: mithun(triplets()), "random weights a loss that has no weights yet"),
        (random, lambda: replace(triplets(), objective=Objective({"mmd": Penalty(MMD(), 1.0)})), "objective has mmd;"),
        (distance, lambda: distance(triplets()), "those of 'image_to_text' are sampled already; use one"),
        (distance, lambda: hal(triplets()), r"distance needs a model with a triplet loss .*; this objective has HAL,"),
        (hal, lambda: uniform(triplets()), "'image_to_text' has sample weights .* lost; name hal before the method"),
        (
            hal,
            lambda: distance(triplets()),
            "'image_to_text' has sampled negatives that would be lost; name hal before",
        ),
        (
            hal,
            small_training.setup_with_parts,
            "hal needs a model .* cosine of their vectors; this one compares by BestWord",
        ),
    ],
)
def test_incompatible_options_raise(method: Method, setup: Callable[[], Setup], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        method(setup())


def test_reversed_distances_raise() -> None:
    with pytest.raises(RecipeError, match=r"min_distance below max_distance; it got 1\.5 and 1\.4"):
        distance(triplets(), min_distance=1.5)
