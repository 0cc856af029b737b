"""AsCL with its generated texts, as a user trains it; and captions longer than a model takes, which are told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import made_data
import numpy as np
import pytest
import small_training
import torch
from command import call

from subtext.core import DIRECTIONS, Epoch
from subtext.data.dataset import Dataset
from subtext.data.inputs import Draw
from subtext.data.text import SubwordInput, Vocabulary, WordInput, cut_note, too_long
from subtext.errors import RecipeError
from subtext.models.model import Branch, Model
from subtext.objectives.losses.infonce import InfoNCE
from subtext.objectives.losses.triplet import Triplet
from subtext.objectives.objective import Objective, Term
from subtext.recipes.methods.asymmetry import asymmetry
from subtext.recipes.methods.mithun import mithun
from subtext.recipes.methods.random import random
from subtext.training.checks import validate_plan
from subtext.training.plan import Plan, RunConfig
from subtext.training.processes import Processes
from subtext.training.setup import Setup
from subtext.training.step import Stepper, StepReader

SMALL = [
    "--embed-dim",
    "16",
    "--word-dim",
    "12",
    "--batch-size",
    "16",
    "--lr",
    "5e-3",
    "--epochs",
    "4",
    "--workers",
    "0",
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    made_data.write_regions(folder)
    return folder


def given(made: Path) -> list[object]:
    return ["--data", made / "pairs.jsonl", "--features", made / "regions.npz"]


def parts(run: Path) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [line["parts"] for line in lines if line["event"] == "epoch"]


VARIANTS = {
    "ascl": ([], "asymmetry"),
    "w/o Pos": ([], "asymmetry:positives=none"),
    "w/o Neg": ([], "asymmetry:negatives=none"),
    "w/o MF": (["--no-attention"], "asymmetry"),
    "triplet": (["--loss", "triplet"], "asymmetry:shuffle=embedding"),
    "ratio": (["--loss", "ratio"], "asymmetry:negatives=cutoff,positives=long"),
}
"""Ablations of the paper, by what they add to `subtext train ascl`."""


@pytest.mark.parametrize("host", ["scan", "chan", "imram"])
def test_asymmetry_trains_models_that_compare_words(host: str, made: Path, tmp_path: Path) -> None:
    words = [*SMALL, "--epochs", "1", "--with", "asymmetry:negatives=token_cutoff", "-q"]
    call("train", host, *given(made), "--out", tmp_path / "run", *words)
    methods = json.loads((tmp_path / "run" / "run.json").read_text())["methods"]
    assert [(name, options["negatives"]) for name, options in methods] == [("asymmetry", "token_cutoff")]


LONG = {"w/o Pos", "w/o Neg", "w/o MF", "ratio"}
"""Variants that are left to the slow tests."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in VARIANTS]
)
def test_every_variant_trains_and_evaluates(name: str, made: Path, tmp_path: Path) -> None:
    options, method = VARIANTS[name]
    out = tmp_path / "run"
    call("train", "ascl", *given(made), "--out", out, *SMALL, *options, "--with", method, "-q")
    found = parts(out)
    rewritten = {f"{side}, rewritten" for side in DIRECTIONS}
    assert found[0].keys() == set(DIRECTIONS) | (set() if name == "w/o Pos" else rewritten)
    assert sum(found[-1].values()) < 0.97 * sum(found[0].values())
    told = json.loads(call("evaluate", out, "--by-length", "--alignment-uniformity", "--json", "-", "-q").stdout)
    assert told["rsum"] > 0 and 0 < told["alignment"] < 2 and 0 < told["image/uniformity"] < 2
    assert told["protocol"]["words"]["words 0-9"] == 24
    of_pairs = call("evaluate", out, "--pair-alignment-uniformity", "--json", "-", "-q", code=2 * (name == "w/o MF"))
    if name == "w/o MF":
        assert (
            "--pair-alignment-uniformity needs a model that makes vectors of pairs: ascl with attention"
            in of_pairs.output
        )
    else:
        assert 0 < json.loads(of_pairs.stdout)["own_pair/alignment"] < 2
    if name == "w/o MF":
        call("index", "build", tmp_path / "index", "--run", out, "--split", "all", "-q")


def test_resumed_run_generates_the_same_texts(made: Path, tmp_path: Path) -> None:
    def setup(plan: Plan | None) -> Setup:
        host = (
            small_training.setup_with_parts() if plan is None else replace(small_training.setup_with_parts(), plan=plan)
        )
        return asymmetry(host, negatives="shuffle")

    plan = Plan(epochs=2, batch_size=16, lr=2e-2)
    common = {"plan": plan, "made": setup, "val": None}
    small_training.run(tmp_path / "whole", **common)
    small_training.run(tmp_path / "halves", report=small_training.Interrupt(7), **common)
    small_training.run(tmp_path / "halves", options=RunConfig(device="cpu", workers=0, resume=True), **common)
    weights = [(tmp_path / run / "model.safetensors").read_bytes() for run in ("whole", "halves")]
    assert weights[0] == weights[1]
    small_training.run(tmp_path / "ahead", options=RunConfig(device="cpu", workers=3), **common)
    assert (tmp_path / "ahead" / "model.safetensors").read_bytes() == weights[0]


def test_method_replaces_losses_of_model() -> None:
    host = small_training.setup_with_parts()
    asked = asymmetry(host, negatives="shuffle", positives="short")
    found = asked.objective.parts
    assert found["image"] == Term(InfoNCE(), "image_to_noised", weight=0.5)
    assert found["image, rewritten"] == Term(InfoNCE(), "image_to_rewritten", weight=0.5)
    assert found["text, rewritten"] == Term(Triplet(0.2), "rewritten_to_image", weight=0.25, reduction="sum")
    assert asymmetry(host, negatives="none").objective.parts["image"] == Term(InfoNCE(), "image_to_text", weight=0.5)
    alone = asymmetry(host, negatives="shuffle", positives="none").objective.parts
    assert alone["image"] == Term(InfoNCE(), "image_to_noised") and set(alone) == {"image", "text"}
    # Where no texts are made, as in validation, what is left is the host's own on the batch.
    assert asked.objective.of_pairs().parts["image"] == Term(InfoNCE(), "image_to_text", weight=0.5)
    assert set(asked.objective.of_pairs().parts) == {"image", "text"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda host: asymmetry(host, negatives="none", positives="none"), "makes no text"),
        (lambda host: asymmetry(host), "noise on word vectors needs a model that compares words"),
        (lambda host: asymmetry(asymmetry(host, negatives="shuffle"), negatives="shuffle"), "named twice"),
        (lambda host: asymmetry(random(host), negatives="shuffle"), "has sample weights or sampled negatives"),
        (lambda host: random(asymmetry(host, negatives="shuffle")), "random changes .* asymmetry has extended them"),
        (
            lambda host: mithun(asymmetry(host, negatives="shuffle")),
            "mithun changes .* use one of these methods",
        ),
        (
            lambda host: asymmetry(replace(host, objective=Objective({})), negatives="shuffle"),
            "ranks images and texts by a softmax or a triplet loss",
        ),
    ],
)
def test_unsuitable_options_raise(change: object, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        change(small_training.setup())


def test_shuffling_words_of_bag_raises(made: Path, tmp_path: Path) -> None:
    words = ["train", "dual", *given(made), "--out", tmp_path / "run", "--with", "asymmetry:negatives=shuffle"]
    assert "a bag ignores it; choose text=gru" in call(*words, code=1).output
    scan = ["train", "scan", *given(made), "--text", "bag", "--out", tmp_path / "run", *SMALL, "--with"]
    told = " ".join(call(*scan, "asymmetry", code=1).output.split())
    assert "a bag ignores it; choose text=gru, or other noise" in told and not (tmp_path / "run").exists()
    call(*scan, "asymmetry:negatives=gaussian", "--epochs", "1", "-q")


def test_truncated_captions_give_note(made: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    call("train", "vse", *given(made), "--out", out, *SMALL, "--epochs", "1", "--max-tokens", "6", "-q")
    told = call("evaluate", out, "--split", "val")
    assert "24 texts of 24 are longer than the 6 tokens that the model takes" in told.stderr
    assert json.loads(call("evaluate", out, "--json", "-", "-q").stdout)["texts_cut"] == 24
    loud = call("train", "vse", *given(made), "--out", tmp_path / "loud", *SMALL, "--epochs", "1", "--max-tokens", "6")
    assert "80 texts of 80 are longer than the 6 tokens" in loud.stderr
    call("index", "build", tmp_path / "index", "--run", out, "--split", "all", "-q")
    asked = call("search", tmp_path / "index", "a red and a dog near the house")
    assert "1 text of 1 is longer than the 6 tokens" in asked.stderr


class Letters:
    """A tokeniser of one code a letter, with two marks."""

    mask_token_id, unk_token_id = 1, 0

    def get_vocab(self) -> dict[str, int]:
        return {"a": 97}

    def __call__(self, texts: list[str], *, truncation: bool, verbose: bool) -> dict[str, list[list[int]]]:
        return {"input_ids": [[8, *map(ord, text), 9] for text in texts]}


def test_text_length_is_counted_per_input() -> None:
    words = WordInput(Vocabulary.build(["a b c d e"]), max_tokens=5)
    assert too_long(words, ["a b c", "a b c d", "a, b; c!", None]) == 1
    assert cut_note(words, ["a b c"]) is None
    letters = SubwordInput(Letters(), max_tokens=5)
    assert too_long(letters, ["abc", "abcd", "é", "éé"]) == 1
    assert too_long(small_training.Traits(), ["abc"]) == 0


def test_truncated_joined_texts_give_note() -> None:
    """The small texts have 4 to 6 words and fit; two of them have 8 to 12, and 8 tokens leave room for 6."""
    host, data = small_training.setup(), small_training.pairs()
    long = asymmetry(host, negatives="none", positives="long")
    found = [text for text in notes(long, data) if "tokens" in text]
    assert found == [
        "80 joined texts of 80 are longer than the 8 tokens that the model takes (--max-tokens when it is trained): "
        "what is beyond is not read"
    ]
    assert any("80 joined texts of 80" in note for note in notes(asymmetry(host, negatives="none"), data))
    for made in (
        asymmetry(host, negatives="none", positives="short"),
        asymmetry(host, negatives="shuffle", positives="none"),
    ):
        assert not any("tokens" in note for note in notes(made, data))
    alone = data.subset(np.arange(40), np.flatnonzero((np.arange(80) % 2 == 0) | (np.arange(80) < 20)).astype(np.int64))
    (told,) = [note for note in notes(long, alone) if "tokens" in note]
    assert told.startswith("20 joined texts of 20 are longer"), "a picture's only text stays as it is"
    roomy = asymmetry(with_room(20), negatives="none", positives="long")
    assert not any("tokens" in note for note in notes(roomy, data))


def notes(made: Setup, data: Dataset) -> list[str]:
    """What is said before such a training begins."""
    (rewriting,) = made.extras
    return [*validate_plan(made, data, Processes("cpu")), *rewriting.open(data).notes(made.model)]


def with_room(tokens: int) -> Setup:
    """The small setup whose texts may have so many tokens."""
    host = small_training.setup()
    text = Branch(replace(host.model.text.input_spec, max_tokens=tokens), host.model.text.encoder, host.model.text.head)
    return replace(host, model=Model(host.model.image, text, host.model.similarity))


@pytest.mark.parametrize("method", [{"negatives": "shuffle"}, {"negatives": "none"}])
def test_chunked_gradient_equals_full_batch_gradient(method: dict[str, str]) -> None:
    def gradients(chunk: int) -> dict[str, torch.Tensor]:
        made = asymmetry(small_training.setup_with_parts(), **method)
        model, data = made.model.double().train(), small_training.pairs()
        reading = StepReader(model, data, Draw(0, 0), extras=[made.extras[0].open(data)])(data.links[:14])
        reading.images["pooled"] = reading.images["pooled"].double()
        plan = Plan(batch_size=14, grad_cache_chunk=chunk)
        stepper = Stepper(model, made.objective, plan, Processes("cpu"))
        stepper(reading, Epoch(number=0, seed=0), name="step 0")
        return {name: weight.grad for name, weight in model.named_parameters()}

    whole, chunked = gradients(0), gradients(5)
    for name, grad in whole.items():
        torch.testing.assert_close(chunked[name], grad, rtol=1e-9, atol=1e-12, msg=name)
