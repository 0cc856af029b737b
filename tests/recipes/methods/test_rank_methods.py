"""Methods that learn ranks: they stand beside a host's loss, learn, and a broken-off run ends the same."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import small_training
import torch
from scenes import random_items

from subtext.core import DIRECTIONS, Epoch
from subtext.errors import DataError, RecipeError
from subtext.evaluation.relevance import classes
from subtext.models.checkpoint import load_run
from subtext.models.model import Model
from subtext.models.similarity.cosine import Cosine
from subtext.models.similarity.probabilistic import MatchProbability
from subtext.objectives.losses.daa import DAA
from subtext.objectives.losses.smooth_ap import SmoothAP
from subtext.objectives.mining import Cosines
from subtext.objectives.objective import Objective, Penalty
from subtext.objectives.regularisers import MMD
from subtext.objectives.scene import compose
from subtext.recipes.methods.daa import daa
from subtext.recipes.methods.daa.relevance import SharedWords
from subtext.recipes.methods.smooth_ap import smooth_ap
from subtext.training.plan import Plan, RunConfig

PLAN = Plan(epochs=6, batch_size=16, lr=2e-2, schedule="constant", select="loss")


def terms(setup, method):
    return {side: setup.objective.parts[f"{method} {side}"] for side in DIRECTIONS}


def parts(run: Path, name: str) -> list[float]:
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [line["parts"][name] for line in lines if line["event"] == "epoch"]


@pytest.mark.parametrize(
    "host", [small_training.setup, lambda plan: replace(small_training.setup_with_parts(), plan=plan)]
)
def test_rank_methods_learn_beside_model_loss(host, tmp_path):
    """Of vectors, and of words that vectors cannot be had of; validation pairs come with a relevance of their own."""
    both = {"made": lambda plan: smooth_ap(daa(host(plan), weight=1.0), weight=20.0, temperature=0.1)}
    small_training.run(tmp_path / "run", plan=PLAN, val=small_training.pairs(12, "val"), **both)
    for side in DIRECTIONS:
        found = parts(tmp_path / "run", f"smooth_ap {side}")
        assert 0 < found[-1] < found[0]
        assert all(0 < value < 1 for value in parts(tmp_path / "run", f"daa {side}"))


@pytest.mark.parametrize("captions", ["all", "together"])
def test_resumed_run_gives_equal_weights(captions, tmp_path):
    plan = replace(PLAN, epochs=2, batch_size=32, caption_sampling=captions, grad_cache_chunk=8, select="rsum")
    given = {"plan": plan, "made": lambda plan: smooth_ap(daa(small_training.setup(plan)), weight=0.2), "val": None}
    small_training.run(tmp_path / "whole", **given)
    small_training.run(tmp_path / "halves", report=small_training.Interrupt(1), **given)
    small_training.run(tmp_path / "halves", options=RunConfig(device="cpu", workers=2, resume=True), **given)
    first, second = (load_run(tmp_path / name)[1] for name in ("whole", "halves"))
    assert all(torch.equal(value, second[name]) for name, value in first.items())


def test_weights_and_temperatures_follow_model():
    """50 to a sum over 128 pairs is 50/128 a query; a similarity of words has scores and no cosines."""
    cosines, words = small_training.setup(), small_training.setup_with_parts()
    summed = replace(cosines, objective=Objective({"text": replace(cosines.objective.parts["text"], reduction="sum")}))
    for setup, reduction, loss, mined in (
        (summed, "sum", DAA(0.01), True),
        (cosines, "mean", DAA(0.01), True),
        (words, "mean", DAA(0.001), False),
    ):
        for side, term in terms(daa(setup), "daa").items():
            assert (term.on, term.loss, term.reduction) == (side, loss, reduction)
            assert term.weight == pytest.approx(50 / 128)
            assert term.mining == (Cosines(side) if mined else None)
    drawn = terms(daa(summed, per_sample=True, variant="released"), "daa")["image_to_text"]
    assert (drawn.weight, drawn.loss) == (1000 / 128, DAA(0.01, "released", draws=True))
    assert daa(summed, relevance="ciderd").relevance == SharedWords("ciderd")
    term = terms(smooth_ap(summed, temperature=0.1, weight=3.0), "smooth_ap")["text_to_image"]
    assert (term.weight, term.reduction, term.loss) == (3.0, "mean", SmoothAP(0.1))


@pytest.mark.parametrize("pairs", [16, 32, 128])
@pytest.mark.parametrize("reduction", ["sum", "mean", "mean over cells"])
def test_added_loss_share_does_not_depend_on_batch(reduction, pairs):
    """Beside a sum over any number of pairs, DAA has the share that 50 has beside a sum over 128."""
    own = small_training.setup().objective.parts["text"]
    host = replace(
        small_training.setup(),
        objective=Objective({"text_to_image": replace(own, loss=ones, reduction=reduction, weight=1.0)}),
    )
    added = terms(daa(host), "daa")["text_to_image"]
    items = [random_items(pairs, seed=seed) for seed in (1, 2)]
    scene = compose(Cosine(), *items, torch.arange(pairs))
    epoch = Epoch(0, 0)
    both = [term(scene, epoch) for term in (replace(added, loss=ones), host.objective.parts["text_to_image"])]
    assert float(both[0] / both[1]) == pytest.approx(50 / 128)


def ones(comparison):
    """A loss of 1 for every query."""
    return torch.ones(len(comparison.scores), dtype=comparison.scores.dtype)


def test_smooth_ap_defaults_equal_release():
    """Weight 25 at 0.001 beside scores, half of the weight of DAA; samples where items have some."""
    summed = replace(
        small_training.setup(), objective=Objective({"text": small_training.setup().objective.parts["text"]})
    )
    drawn = replace(summed, model=replace_similarity(summed.model, MatchProbability(scale=15.0, shift=15.0)))
    for setup, options, weight, loss in (
        (small_training.setup_with_parts(), {}, 25, SmoothAP(0.001)),
        (summed, {}, 25, SmoothAP(0.01)),
        (drawn, {"variant": "released"}, 500, SmoothAP(0.01, "released", draws=True)),
        (drawn, {"form": "scores"}, 25, SmoothAP(0.001)),
    ):
        for term in terms(smooth_ap(setup, **options), "smooth_ap").values():
            assert (term.weight, term.loss) == (pytest.approx(weight / 128), loss)


def replace_similarity(model, similarity):
    return Model(model.image, model.text, similarity)


def test_smooth_ap_can_replace_model_loss():
    made = smooth_ap(
        replace(
            small_training.setup(),
            objective=Objective({**small_training.setup().objective.parts, "mmd": Penalty(MMD(), 0.1)}),
        ),
        replace_loss=True,
    )
    assert list(made.objective.parts) == [*DIRECTIONS, "mmd"]
    assert all(made.objective.parts[side].weight == 0.5 for side in DIRECTIONS)
    assert made.model.similarity.scale == 1


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: daa(daa(small_training.setup())),
            "daa gives a batch its relevance, and another method does so already",
        ),
        (lambda: smooth_ap(smooth_ap(small_training.setup())), "smooth_ap is named twice: .*; name it once"),
        (
            lambda: smooth_ap(small_training.setup_with_parts(), replace_loss=True),
            r"replace_loss needs a model .* compares by BestWord",
        ),
        (
            lambda: daa(replace(small_training.setup(), objective=Objective({"mmd": Penalty(MMD(), 0.1)}))),
            "daa is added to a loss between images and texts; this objective has mmd",
        ),
    ],
)
def test_incompatible_options_raise(make, said):
    with pytest.raises(RecipeError, match=said):
        make()


def test_texts_without_words_raise_before_writing(tmp_path):
    data = small_training.pairs()
    texts = replace(data.texts, values=[None, *data.texts.values[1:]])
    with pytest.raises(DataError, match=r"tfidf1 needs the words of every text; 1 text of 80 is known by features"):
        small_training.run(
            tmp_path / "run",
            made=lambda plan: daa(small_training.setup(plan)),
            train=replace(data, texts=texts),
            val=None,
        )
    assert not (tmp_path / "run" / "run.json").exists()


def test_class_relevance_trains(tmp_path):
    """As released for CUB: a class is as near to a text as its texts are; a training reads it batch by batch."""
    data = small_training.pairs(6)
    labels = ["wren", "tern", "wren", "tern", "gull", "gull"]
    birds = replace(data, images=replace(data.images, metadata={**data.images.metadata, "labels": labels}))
    source = daa(small_training.setup(), relevance="class_tfidf1").relevance
    related = source.open(birds)
    images, texts = np.array([4, 0, 2]), np.array([11, 3, 0])
    words = [str(value) for value in birds.texts.values]
    of_text = np.repeat([0, 1, 0, 1, 2, 2], 2)
    whole = classes.relevance(words, of_text, words, of_text, count=3)
    np.testing.assert_array_equal(related(images, texts), whole[[2, 0, 0]][:, texts])
    assert related.name == "class_tfidf1"
    with pytest.raises(DataError, match=r"class_tfidf1 needs a class of every image: .* has 0"):
        source.require(data)
    small_training.run(
        tmp_path / "run",
        plan=replace(PLAN, epochs=1),
        made=lambda plan: daa(small_training.setup(plan), relevance="class_tfidf1"),
        train=birds,
        val=None,
    )
    assert 0 < parts(tmp_path / "run", "daa text_to_image")[0] < 1


@pytest.mark.parametrize("name", ["tfidf1", "ciderd", "cider"])
def test_word_relevance_is_higher_within_groups(name):
    data = small_training.pairs(6)
    related = SharedWords(name).open(data)
    every = torch.arange(6).numpy(), torch.arange(12).numpy()
    found = related(*every)
    assert related.name == name and found.shape == (6, 12) and found.dtype == torch.float32
    own = torch.from_numpy(data.images.groups)[:, None] == torch.from_numpy(data.texts.groups)
    assert found[own].min() > found[~own].max() > 0
