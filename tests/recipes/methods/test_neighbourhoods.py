"""Training with sampled neighbours: it learns, goes on exactly, in chunks too, and says what it cannot."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import made_data
import numpy as np
import pytest
import small_training
import word_graph
from command import call

from subtext.data.inputs import Draw
from subtext.errors import CheckpointError, DataError
from subtext.models.checkpoint import fingerprint, load_record
from subtext.recipes.methods.neighbourhoods.sampling import SampledNeighbours
from subtext.recipes.methods.struc import struc
from subtext.training.plan import Plan, RunConfig
from subtext.training.setup import Setup, TrainResult
from subtext.training.step import StepReader

PLAN = Plan(epochs=3, batch_size=12, lr=1e-2)
LONG = Plan(epochs=10, batch_size=16, lr=2e-2, schedule="cosine")


def _epochs(run: Path) -> list[dict[str, object]]:
    lines = map(json.loads, (run / "log.jsonl").read_text().splitlines())
    return [line for line in lines if line["event"] == "epoch"]


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    return word_graph.save(small_training.pairs(), tmp_path / "graph")


@pytest.mark.parametrize(
    "form", ["angular", "triplet", *(pytest.param(form, marks=pytest.mark.slow) for form in ("hinge", "reference"))]
)
def test_losses_fall_and_recall_rises(tmp_path: Path, graph: Path, form: str) -> None:
    # At 45 degrees hardly a negative is inside the hinge's ball at all.
    degrees = 30.0 if form == "hinge" else 45.0
    small_training.run(
        tmp_path / "run", plan=LONG, val=small_training.pairs(), made=word_graph.made(graph, form=form, angle=degrees)
    )
    epochs = _epochs(tmp_path / "run")
    names = {"image_to_text", "text_to_image", "image neighbours", "text neighbours"}
    assert set(epochs[0]["parts"]) == names
    # What weighs a tenth, or is zero from the beginning, may give way to the rest.
    fell = names if form in ("angular", "reference") else {"image_to_text", "text_to_image"}
    for name in fell:
        assert epochs[-1]["parts"][name] < epochs[0]["parts"][name], name
    assert epochs[-1]["loss"] < 0.9 * epochs[0]["loss"]
    assert epochs[-1]["figures"]["rsum"] > epochs[0]["figures"]["rsum"] + 30


@pytest.mark.parametrize(
    "structure", ["texts", *(pytest.param(side, marks=pytest.mark.slow) for side in ("captions", "images"))]
)
def test_structure_method_learns(tmp_path: Path, graph: Path, structure: str) -> None:
    def made(plan: Plan) -> Setup:
        source = "" if structure == "captions" else str(graph)
        return struc(
            small_training.setup(plan), structure=structure, graph=source, pool_size=4, margin=0.2, hard_negatives=99
        )

    small_training.run(tmp_path / "run", plan=LONG, val=small_training.pairs(), made=made)
    epochs = _epochs(tmp_path / "run")
    assert epochs[-1]["loss"] < 0.8 * epochs[0]["loss"]
    assert epochs[0]["parts"]["structure"] > 0
    assert epochs[-1]["figures"]["rsum"] > epochs[0]["figures"]["rsum"] + 30


CASES = {
    "all": PLAN,
    "one": replace(PLAN, caption_sampling="one"),
    "together, in chunks": replace(PLAN, caption_sampling="together", grad_cache_chunk=5, accumulation_steps=2),
    "by the loss": replace(PLAN, select="loss", caption_sampling="together"),
    "random texts, by the loss": replace(PLAN, select="loss", grad_cache_chunk=5),
}


SLOW = ("one", "by the loss")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in CASES]
)
def test_resumed_training_gives_equal_weights(
    tmp_path: Path, graph: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("subtext.training.journal.REPORT_EVERY", 0.0)
    data = {"train": small_training.pairs(24), "val": small_training.pairs(8, "val")}

    def fitted(out: str, workers: int, report: object = None) -> TrainResult:
        options = RunConfig(device="cpu", workers=workers, resume=True, log_every=1)
        made = word_graph.made(graph, form="reference" if "random" in name else "angular")
        return small_training.run(tmp_path / out, plan=CASES[name], made=made, options=options, report=report, **data)

    whole = fitted("whole", 0)
    assert fitted("parts", 2, small_training.Interrupt(4)).record.status == "stopped"
    end = fitted("parts", 2)
    assert end.record.status == "finished"
    assert fingerprint(end.model.state_dict()) == fingerprint(whole.model.state_dict())
    assert end.record.best == whole.record.best


def test_resume_with_another_graph_raises(tmp_path: Path, graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subtext.training.journal.REPORT_EVERY", 0.0)
    options = RunConfig(device="cpu", workers=0, resume=True)
    run = partial(small_training.run, tmp_path / "run", plan=PLAN, options=options)
    run(made=word_graph.made(graph), report=small_training.Interrupt(2))
    other = word_graph.save(small_training.pairs(), tmp_path / "other", 5)
    with pytest.raises(CheckpointError, match="how images and texts are read"):
        run(made=word_graph.made(other))
    for wrong, told in (
        (small_training.pairs(12, "val"), "it knows 0 of 24"),
        (small_training.pairs(2), "pool_size=4 needs more than 4 texts; it got 4"),
    ):
        with pytest.raises(DataError, match=told):
            small_training.run(tmp_path / "new", plan=PLAN, made=word_graph.made(graph), train=wrong)
        assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("together", [False, True])
def test_batch_reads_neighbour_of_each_pair(graph: Path, together: bool) -> None:
    """Row by row the neighbour of each pair; a picture with several texts has that of its first in the batch."""
    pairs = small_training.pairs()
    samplers = SampledNeighbours(graph=graph, pool_size=4).open(pairs)
    reader = StepReader(small_training.setup().model, pairs, Draw(1, 2), together=together, extras=[samplers])
    rows = pairs.links[[3, 2, 9, 8, 20]]
    reading = reader(rows)
    (neighbours,) = reading.extras
    drawn = samplers.by_side["text"](rows, seed=1, epoch=2)
    images = drawn if not together else drawn[[0, 2, 4]]
    assert neighbours.items["text neighbour"][1]["ids"].tolist() == drawn.tolist()
    assert neighbours.items["image neighbour"][1]["ids"].tolist() == (images // 2).tolist()
    assert neighbours.groups["text"].tolist() == pairs.texts.groups[drawn].tolist()
    assert StepReader(small_training.setup().model, pairs, None, extras=[samplers])(rows).extras == ()


def test_images_without_text_are_skipped(tmp_path: Path) -> None:
    whole = small_training.pairs()
    pairs = whole.subset(np.arange(40), np.flatnonzero(whole.texts.groups != 5).astype(np.int64))
    folder = word_graph.save(pairs, tmp_path / "without")
    fitted = small_training.run(tmp_path / "run", plan=PLAN, made=word_graph.made(folder), train=pairs)
    assert fitted.record.status == "finished"


def test_command_line_trains_on_several_views(tmp_path: Path) -> None:
    data, features = made_data.write(tmp_path)
    graph = tmp_path / "graph"
    call("neighbours", "build", graph, "--data", data, "--space", "lsa", "--dim", 8, "--neighbours", 10, "-q")
    words = ["train", "pvse", "--data", data, "--features", features, "--embed-dim", 8, "--word-dim", 8, "--views", 2]
    words += ["--batch-size", 16, "--epochs", 2, "--workers", 0, "--device", "cpu", "-q"]
    refused = call(*words, "--out", tmp_path / "no", "--with", f"neighbourhoods:graph={graph}", code=1)
    assert "pool_size=200 needs a graph of 200 neighbours or more" in refused.output
    call(*words, "--out", tmp_path / "run", "--with", f"neighbourhoods:graph={graph},pool_size=8")
    (method,) = load_record(tmp_path / "run").methods
    assert method[0] == "neighbourhoods"
    assert method[1]["pool_size"] == 8
    graph.rename(tmp_path / "moved")
    assert "rsum" in call("evaluate", tmp_path / "run", "-q", "--bootstrap", 0).output
