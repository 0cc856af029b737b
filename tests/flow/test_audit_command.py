"""`subtext audit` as a user calls it: what is said and written, when it fails, and what it cannot know."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import drawn
import made_data
import pytest
from drawn import call

from subtext.app.cli.audit import CHECKS
from subtext.data.readers import read_pairs


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audited")
    data, features = made_data.write(folder)
    where = ["--data", data, "--features", features, "--out", folder / "run"]
    small = [
        "--width",
        16,
        "--word-width",
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


def test_a_clean_run_passes_in_text_json_and_on_a_page(run: Path, tmp_path: Path) -> None:
    page = tmp_path / "audit.html"
    answer = call("audit", run, "--split", "test", "--json", tmp_path / "audit.json", "--html", page, "-q")
    assert answer.stdout.startswith("audit of run on split test of pairs.jsonl: 8 pictures, 16 texts")
    assert "none fails" in answer.stdout.splitlines()[-1]
    found = json.loads((tmp_path / "audit.json").read_text())
    assert found["passed"] and tuple(check["name"] for check in found["checks"]) == CHECKS
    outcomes = {check["name"]: check["outcome"] for check in found["checks"]}
    void = {name for name, outcome in outcomes.items() if outcome == "not applicable"}
    assert void == {"captions", "text-overlap"}
    assert found["settings"]["sample"] == 128 and found["split"] == "test" and found["versions"]["torch"]
    html = page.read_text()
    assert all(f"pass: {name}" in html for name in set(CHECKS) - void) and "n/a: captions" in html
    assert "http" not in html.replace("http-equiv", "") and "<script" not in html


def test_the_training_split_fails_as_what_it_is(run: Path) -> None:
    answer = call("audit", run, "--split", "train", "--skip", "repeat", "--json", "-", "-q", code=1)
    found = json.loads(answer.stdout)
    outcomes = {check["name"]: check for check in found["checks"]}
    assert found["verdict"].startswith("1 of 13 checks fail (held-out)")
    assert "the one that the run learnt from" in outcomes["picture-overlap"]["found"]
    assert "--skip" in outcomes["repeat"]["found"] and outcomes["vocabulary"]["outcome"] == "pass"


def test_the_split_that_chose_is_told(run: Path) -> None:
    said = " ".join(call("audit", run, "-q").stdout.split())
    assert "on split val of" in said and "split val chose the epoch" in said


def test_other_data_and_data_that_changed(run: Path, tmp_path: Path) -> None:
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
    assert "it has changed since" in said
    (moved / "pairs.jsonl").unlink()
    said = " ".join(call("audit", moved / "run", "--data", copy, "--split", "test", "-q").stdout.split())
    assert "the training data cannot be read" in said


def test_planted_leaks_are_found(tmp_path: Path) -> None:
    """A picture of training stands in the test split under another name, and the vocabulary knows the test texts."""
    data = drawn.write(tmp_path / "data")
    rows = [json.loads(line) for line in (data / "metadata.jsonl").read_text().splitlines()]
    shutil.copy(data / "red.png", data / "cyan.png")
    honest = drawn.run(data, tmp_path / "honest")
    everything = [{**row, "split": "train"} for row in rows]
    (data / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in everything))
    leaky = drawn.run(data, tmp_path / "leaky")
    (data / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert len(read_pairs(data).pairs.split("train").images) == 8
    told = {
        run.name: call("audit", run, "--split", "test", "-q", "--skip", "ties", code=1).stdout.splitlines()[-1]
        for run in (honest, leaky)
    }
    assert "checks fail (picture-overlap)" in told["honest"]
    assert "checks fail (picture-overlap, vocabulary)" in told["leaky"]


def test_what_it_refuses(run: Path, tmp_path: Path) -> None:
    same = tmp_path / "out"
    assert "a file each" in call("audit", run, "--json", same, "--html", same, code=1).output
    (tmp_path / "taken").mkdir()
    assert "needs to be free for a file" in call("audit", run, "--html", tmp_path / "taken", code=1).output
    assert "'ties'" in call("audit", run, "--skip", "tie", code=2).output
    assert "needs to be the folder of a run" in call("audit", tmp_path, code=1).output
