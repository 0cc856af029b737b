"""`subtext audit` as a user calls it: what is said and written, when it fails, and what it cannot know."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import get_args

import coloured_images
import made_data
import numpy as np
import pytest
import tiny_models
from command import call

from subtext.api.audit import CheckName
from subtext.data.read import read


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audited")
    data, features = made_data.write(folder)
    where = ["--data", data, "--features", features, "--out", folder / "run"]
    small = [
        "--embed-dim",
        16,
        "--word-dim",
        8,
        "--batch-size",
        16,
        "--epochs",
        1,
        "--workers",
        0,
        "--min-count",
        1,
        "-q",
    ]
    call("train", "vse", *where, *small)
    return folder / "run"


def test_clean_run_passes_in_text_json_and_html(run: Path, tmp_path: Path) -> None:
    page = tmp_path / "audit.html"
    answer = call("audit", run, "--split", "test", "--json", tmp_path / "audit.json", "--html", page, "-q")
    assert answer.stdout.startswith("audit of run on split test of pairs.jsonl: 8 images, 16 texts")
    assert "none fails" in answer.stdout.splitlines()[-1]
    found = json.loads((tmp_path / "audit.json").read_text())
    assert found["passed"] and tuple(check["name"] for check in found["checks"]) == get_args(CheckName)
    outcomes = {check["name"]: check["outcome"] for check in found["checks"]}
    void = {name for name, outcome in outcomes.items() if outcome == "not applicable"}
    assert void == {"captions", "text-overlap"}
    assert found["settings"]["sample"] == 128 and found["split"] == "test" and found["versions"]["torch"]
    html = page.read_text()
    assert all(f"pass: {name}" in html for name in set(get_args(CheckName)) - void) and "n/a: captions" in html
    assert "http" not in html.replace("http-equiv", "") and "<script" not in html


def test_training_split_fails_held_out_check(run: Path) -> None:
    answer = call("audit", run, "--split", "train", "--skip", "repeat", "--json", "-", "-q", code=1)
    found = json.loads(answer.stdout)
    outcomes = {check["name"]: check for check in found["checks"]}
    assert found["verdict"].startswith("1 of 13 checks fail (held-out)")
    assert "the one that the run was trained on" in outcomes["image-overlap"]["found"]
    assert "--skip" in outcomes["repeat"]["found"] and outcomes["vocabulary"]["outcome"] == "pass"


def test_selection_split_gives_note(run: Path) -> None:
    said = " ".join(call("audit", run, "-q").stdout.split())
    assert "on split val of" in said and "split val selected the epoch" in said


def test_other_or_changed_data_gives_note(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.jsonl"
    shutil.copy(run.parent / "pairs.jsonl", copy)
    said = " ".join(call("audit", run, "--data", copy, "--split", "train", "-q", "--skip", "truth").stdout.split())
    assert "the audited data is not the run's own" in said
    moved = tmp_path / "moved"
    shutil.copytree(run.parent, moved)
    record = json.loads((moved / "run" / "run.json").read_text())
    record["data"]["data"] = str(moved / "pairs.jsonl")
    (moved / "run" / "run.json").write_text(json.dumps(record))
    lines = (moved / "pairs.jsonl").read_text().replace("red", "crimson")
    (moved / "pairs.jsonl").write_text(lines)
    said = " ".join(call("audit", moved / "run", "--split", "test", "-q").stdout.split())
    assert "has changed since" in said
    (moved / "pairs.jsonl").unlink()
    said = " ".join(call("audit", moved / "run", "--data", copy, "--split", "test", "-q").stdout.split())
    assert "the training data cannot be read" in said


def test_planted_leaks_fail(tmp_path: Path) -> None:
    """A picture of training stands in the test split under another name, and the vocabulary knows the test texts."""
    data = coloured_images.write(tmp_path / "data")
    rows = [json.loads(line) for line in (data / "metadata.jsonl").read_text().splitlines()]
    shutil.copy(data / "red.png", data / "cyan.png")
    honest = coloured_images.run(data, tmp_path / "honest")
    everything = [{**row, "split": "train"} for row in rows]
    (data / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in everything))
    leaky = coloured_images.run(data, tmp_path / "leaky")
    (data / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert len(read(data).split("train").images) == 8
    told = {
        run.name: call("audit", run, "--split", "test", "-q", "--skip", "ties", code=1).stdout.splitlines()[-1]
        for run in (honest, leaky)
    }
    assert "checks fail (image-overlap)" in told["honest"]
    assert "checks fail (image-overlap, vocabulary)" in told["leaky"]


MODELS_ALONE = {"repeat", "order", "blocks", "neighbours", "names", "truth", "vocabulary"}


def test_external_scores_and_vectors_are_audited(run: Path, tmp_path: Path) -> None:
    """What needs the model is named as not possible; the rest is checked, with and without a training split."""
    pairs = read(run.parent / "pairs.jsonl", need_images=False, verify=False).split("test")
    scores = np.random.default_rng(0).standard_normal((len(pairs.images), len(pairs.texts))).astype(np.float32)
    ids = {"image_ids": np.array(pairs.images.ids), "text_ids": np.array(pairs.texts.ids)}
    np.savez(tmp_path / "mine.npz", scores=scores, **ids)
    call("embed", run, "--split", "test", "--out", tmp_path / "vectors.npz", "-q")
    data = ["--data", run.parent / "pairs.jsonl", "--split", "test", "-q"]
    both = ["--image-embeddings", tmp_path / "vectors.npz", "--text-embeddings", tmp_path / "vectors.npz"]
    for words, of, name in (
        (["--scores", tmp_path / "mine.npz"], "score matrix", "mine.npz"),
        (both, "set of vectors", "vectors.npz"),
    ):
        page = tmp_path / "page.html"
        found = json.loads(call("audit", *words, *data, "--json", "-", "--html", page).stdout)
        checks = {check["name"]: check for check in found["checks"]}
        assert tuple(checks) == get_args(CheckName) and found["audited"] == name and found["passed"]
        for check in MODELS_ALONE:
            assert checks[check]["outcome"] == "not applicable"
            assert checks[check]["found"].startswith(f"not possible for a {of}: ")
        assert checks["ties"]["outcome"] == checks["finite"]["outcome"] == "pass"
        assert f"a {of} has no record" in checks["held-out"]["found"]
        assert "the training split is not known" in checks["image-overlap"]["found"]
        assert f"Audit of {name}" in page.read_text() and "n/a: repeat" in page.read_text()
        told = call("evaluate", *words, *data[:4], "--bootstrap", 0, "--json", "-", "-q").stdout
        assert found["figures"]["text_to_image/recall@1"] == json.loads(told)["text_to_image/recall@1"]
        said = call("audit", *words, *data, "--train-split", "train").stdout
        assert f"audit of {name} on split test" in said and "trained on split train, not on test" in " ".join(
            said.split()
        )
    # No picture of the made data is on disk, and no text is long enough.
    text = " ".join(said.split())
    assert "no image is on disk" in text and "no texts of 10 words or more" in text
    failed = call("audit", *words, *data, "--train-split", "test", code=1).stdout
    assert "checks fail (held-out)" in failed


def test_tied_external_scores_fail(run: Path, tmp_path: Path) -> None:
    pairs = read(run.parent / "pairs.jsonl", need_images=False, verify=False).split("test")
    np.save(tmp_path / "flat.npy", np.zeros((len(pairs.images), len(pairs.texts)), dtype=np.float32))
    (tmp_path / "flat.image_ids.json").write_text(json.dumps(pairs.images.ids))
    (tmp_path / "flat.text_ids.json").write_text(json.dumps(pairs.texts.ids))
    words = ["--scores", tmp_path / "flat.npy", "--data", run.parent / "pairs.jsonl", "--split", "test", "-q"]
    assert "checks fail (ties)" in call("audit", *words, code=1).stdout.splitlines()[-1]


def test_pretrained_model_is_audited(tmp_path: Path) -> None:
    """All that a run is asked, but for its record; a copied picture is found once the training split is named."""
    data = coloured_images.write(tmp_path / "data")
    shutil.copy(data / "red.png", data / "cyan.png")
    words = ["--model", tiny_models.clip(tmp_path / "clip"), "--data", data, "--split", "test", "-q", "--json", "-"]
    words += ["--workers", 0, "--skip", "ties"]
    found = json.loads(call("audit", *words).stdout)
    outcomes = {check["name"]: check["outcome"] for check in found["checks"]}
    assert found["kind"] == "pretrained model" and found["model"]["fingerprint"]
    assert all(outcomes[name] == "pass" for name in MODELS_ALONE - {"truth", "vocabulary"})
    assert outcomes["held-out"] == outcomes["image-overlap"] == "not applicable"
    found = json.loads(call("audit", *words, "--train-split", "train", code=1).stdout)
    checks = {check["name"]: check for check in found["checks"]}
    assert found["verdict"].startswith("1 of 13 checks fail (image-overlap)")
    assert "no vocabulary made from this data" in checks["vocabulary"]["found"]


def test_invalid_arguments_raise(run: Path, tmp_path: Path) -> None:
    same = tmp_path / "out"
    assert "a file of its own" in call("audit", run, "--json", same, "--html", same, code=2).output
    (tmp_path / "taken").mkdir()
    assert "needs to be free for a file" in call("audit", run, "--html", tmp_path / "taken", code=1).output
    assert "'ties'" in call("audit", run, "--skip", "tie", code=2).output
    assert "needs to be the folder of a run" in call("audit", tmp_path, code=1).output
    assert "give one of these" in call("audit", code=2).output
    assert "give one of these" in call("audit", run, "--scores", "x.npz", code=2).output
    assert "--model needs --data" in call("audit", "--model", "clip", code=2).output
    assert f"for a run: subtext audit {run}" in call("audit", "--model", run, "--data", "x", code=2).output
    assert "RUN records what it was trained on" in call("audit", run, "--train-split", "train", code=2).output
