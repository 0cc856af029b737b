"""`subtext evaluate` and `subtext embed` as a user calls them: what is said, what is written, and what is refused."""

from __future__ import annotations

import inspect
import json
import os
from pathlib import Path
from typing import Any

import made_data
import numpy as np
import pytest
import tiny_models
from command import call
from PIL import Image

import subtext as st
from subtext.api.load import load
from subtext.errors import ArgumentError, DataError, RequirementError
from subtext.evaluation.metrics import ASP, AlignmentUniformity, Recall
from subtext.retrieval.build import model_fingerprint


def measured(*words: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(call("evaluate", *words, "--json", "-", "-q").stdout)
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluated")
    data, features = made_data.write(folder)
    where = ["--data", data, "--features", features, "--out", folder / "run"]
    small = ["--embed-dim", 16, "--word-dim", 8, "--batch-size", 16, "--epochs", 2, "--workers", 0, "--seed", 7, "-q"]
    call("train", "vse", *where, "--with", "mithun:strength=0.5", *small)
    return folder / "run"


def test_json_describes_model_and_protocol(run: Path) -> None:
    found = measured(run)
    model, record = found["model"], json.loads((run / "run.json").read_text())
    assert (model["model"], model["seed"], model["epochs"]) == ("vse", 7, 2)
    assert model["methods"] == [["mithun", {"strength": 0.5, "hardest_only": True, "average_directions": True}]]
    assert model["epoch"] == record["best_epoch"] and model["arguments"]["embed_dim"] == 16
    assert model["fingerprint"] == model_fingerprint(load(run))
    assert found["data"]["data"] == str(run.parent / "pairs.jsonl")
    assert found["protocol"]["versions"].keys() == {"python", "subtext", "torch", "transformers", "numpy"}
    assert found["protocol"]["gallery"] == {"images": 12, "texts": 24}


def test_selection_split_gives_note(run: Path) -> None:
    screen = call("evaluate", run, "-q").stdout
    assert screen.startswith("split val of pairs.jsonl: 12 images, 24 texts")
    assert "note: split val selected the epoch" in screen
    found = measured(run)
    assert (found["split"], found["split_role"]) == ("val", "selection")
    assert any("selected the epoch" in note for note in found["notes"])


def test_split_role_is_reported(run: Path, tmp_path: Path) -> None:
    held_out = measured(run, "--split", "test")
    assert held_out["split_role"] == "held out" and not any("epoch" in note for note in held_out["notes"])
    assert measured(run, "--data", run.parent / "pairs.jsonl", "--split", "test")["split_role"] == "held out"
    for split in ("train", "all"):
        learnt = measured(run, "--split", split)
        assert learnt["split_role"] == "training" and any("what the run was trained on" in n for n in learnt["notes"])
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes((run.parent / "pairs.jsonl").read_bytes())
    assert measured(run, "--data", copy)["split_role"] == "unknown"
    redrawn = measured(run, "--split-seed", "5")
    assert redrawn["split_role"] == "unknown" and any(
        "--split-seed 5 is not the run's, 0" in n for n in redrawn["notes"]
    )


def test_unused_validation_split_is_held_out(run: Path, tmp_path: Path) -> None:
    for name in ("model.safetensors", "assets"):
        (tmp_path / name).symlink_to(run / name)
    record = json.loads((run / "run.json").read_text())
    for plan, role in (
        ({"select": "last", "schedule": "constant", "patience": 0}, "held out"),
        ({"select": "last", "schedule": "plateau", "patience": 0}, "selection"),
        ({"select": "loss"}, "selection"),
    ):
        (tmp_path / "run.json").write_text(json.dumps(record | {"plan": record["plan"] | plan}))
        assert measured(tmp_path)["split_role"] == role, plan


def test_missing_figures_are_dashes_with_note(run: Path) -> None:
    screen = call("evaluate", run, "--split", "test", "--c-way", "5,12,100", "-q").stdout
    assert "nan" not in screen and "12 way@1" in screen and "100 way@1" not in screen
    assert "note: 12-way choice of texts among images is left out" in screen
    assert "there are at most 14" in screen
    assert screen.count("the queries belong to 8") == 1
    lines = [line.split() for line in screen.splitlines() if line.startswith("  95 %")]
    assert lines and all(set(line[2:]) == {"-"} for line in lines)


def no_work(*_: object) -> None:
    raise AssertionError("the work began")


def in_the_way(place: Path) -> Path:
    (place / "there.npz").mkdir()
    return place / "there.npz"


def below_a_file(place: Path) -> Path:
    (place / "file").touch()
    return place / "file" / "inner" / "there.npz"


def closed(place: Path) -> Path:
    (place / "closed").mkdir(mode=0o500)
    return place / "closed" / "there.npz"


def of_the_system(place: Path) -> Path:
    return Path("/proc/there.npz")


@pytest.mark.parametrize("command", ["evaluate --json", "evaluate --per-query", "embed --out"])
@pytest.mark.parametrize("spoil", [in_the_way, below_a_file, closed, of_the_system])
def test_unwritable_output_raises_before_work(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, spoil: Any
) -> None:
    if spoil is closed and os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    out = spoil(tmp_path)
    monkeypatch.setattr("subtext.api.evaluate.open_subject", no_work)
    name, option = command.split()
    answer = call(name, run, option, out, "-q", code=1)
    assert answer.output.startswith("error: ") and str(out) in answer.output and len(answer.output.splitlines()) == 1


def test_missing_output_folder_is_created(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "deep"
    call("evaluate", run, "--json", out / "figures.json", "--per-query", out / "queries.npz", "-q")
    call("embed", run, "--split", "val", "--out", out / "vectors.npz", "-q")
    assert sorted(path.name for path in out.iterdir()) == ["figures.json", "queries.npz", "vectors.npz"]


def test_two_outputs_to_one_file_raise(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "figures"
    assert "a file of its own" in call("evaluate", run, "--json", out, "--per-query", out, code=2).output
    assert not out.exists()


def test_no_note_without_warning(run: Path) -> None:
    """Without anything to beware of there is no note: every line counts."""
    found = measured(run, "--split", "test", "--bootstrap", "0")
    assert found["notes"] == [] or all(note.startswith("ties") for note in found["notes"])


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve pictures with two texts each, on disk."""
    folder = tmp_path_factory.mktemp("pictures")
    g = np.random.default_rng(0)
    rows: list[dict[str, object]] = []
    for number in range(12):
        pixels = g.integers(0, 255, size=(40, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        texts = [f"a dog and {number} red boats", f"the {number} cat sleeps"]
        rows.append({"image": f"{number}.png", "captions": texts, "split": "test"})
    made_data.write_rows(folder / "pairs.jsonl", rows)
    return folder


@pytest.mark.parametrize("family", [tiny_models.clip, tiny_models.siglip])
def test_pretrained_model_is_evaluated_unchanged(family: Any, pictures: Path, tmp_path: Path) -> None:
    found = measured("--model", family(tmp_path), "--data", pictures / "pairs.jsonl", "--split", "test")
    assert found["model"]["pretrained"] == str(tmp_path) and len(found["model"]["fingerprint"]) == 32
    assert found["protocol"]["gallery"] == {"images": 12, "texts": 24}
    assert found["split_role"] == "unknown"
    again = measured("--model", tmp_path, "--data", pictures / "pairs.jsonl", "--split", "test", "--batch-size", 5)
    assert again["rsum"] == found["rsum"] and again["model"] == found["model"]


def test_unavailable_pretrained_model_raises(pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    where = ["--data", pictures / "pairs.jsonl", "--split", "test", "-q"]
    for name in (tmp_path, tmp_path / "gone", "nobody/no-such-model"):
        output = call("evaluate", "--model", name, *where, code=1).output
        assert output.startswith("error: ") and f"{name} needs " in output and len(output.splitlines()) == 1, output
    (tmp_path / "f.npz").touch()
    call("evaluate", "--model", tmp_path, *where, "--features", tmp_path / "f.npz", code=2)


def test_run_as_model_option_raises(run: Path) -> None:
    output = call("evaluate", "--model", run, "--data", run.parent / "pairs.jsonl", code=2).output
    assert f"subtext evaluate {run}" in output


@pytest.mark.parametrize(
    ("option", "needed"),
    [
        ("--references 2", "--relevance NAME"),
        ("--cache matrices", "--relevance NAME"),
        ("--asp-ties min", "--relevance NAME"),
        ("--asp-top 3", "--relevance NAME"),
        ("--gain 3", "--relevance NAME"),
        ("--ndcg 3", "--relevance NAME"),
        ("--positive-rating 3", "--human-ratings TABLE"),
        ("--candidates 3", "--rerank RUN"),
        ("--plot sweep.svg", "--rerank RUN"),
    ],
)
def test_unused_option_raises(run: Path, option: str, needed: str) -> None:
    told = call("evaluate", run, "-q", *option.split(), code=2).output
    assert f"{option.split()[0]} is for {needed}; give that, or leave it out" in told


def test_metrics_and_protocol_objects_equal_flags(run: Path) -> None:
    """In Python they are objects or names; the command makes them of flat options, with the same figures."""
    metrics: list[Any] = [Recall(1, 5, 10), "20-way", ASP("tfidf"), "r-precision", AlignmentUniformity()]
    result = st.evaluate(run, split="val", metrics=metrics, protocol=st.Protocol(folds=2, bootstrap=0), quiet=True)
    words = "--split val --c-way 20 --relevance tfidf1 --r-precision --alignment-uniformity --folds 2 --bootstrap 0"
    flat = measured(run, *words.split())
    names = {"image_to_text/recall@5", "text_to_image/asp(tfidf1)", "image_to_text/r_precision", "alignment", "rsum"}
    assert names <= result.figures.keys() and all(flat[name] == value for name, value in result.figures.items())
    assert "text_to_image/mean_rank" not in result.figures and "text_to_image/map@r" in flat
    # What every long function has is not its own.
    assert len(inspect.signature(st.evaluate).parameters.keys() - {"quiet", "progress"}) <= 11
    with pytest.raises(ArgumentError, match="similarity is that of vectors in files; there are none"):
        st.evaluate(run, external=st.ExternalConfig(similarity="dot"))
    with pytest.raises(RequirementError, match="needs a table of ratings, as in against=PATH"):
        st.evaluate(run, metrics=["human"], quiet=True)


def test_array_without_split_or_ids_raises(run: Path) -> None:
    data, scores = run.parent / "pairs.jsonl", np.zeros((3, 4))
    with pytest.raises(ArgumentError, match="split needs the name of one for scores or vectors: test, train, val"):
        st.evaluate(data=data, scores=scores)
    with pytest.raises(DataError, match=r"^scores needs 'image_ids', .* it got an array of shape \(3, 4\); give ext"):
        st.evaluate(data=data, scores=scores, split="val")
