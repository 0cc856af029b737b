"""The experiment on sample weights: what it plans, that it resumes, and what it compares."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made_data
import numpy as np
import pytest

from reproduce import evidence
from reproduce.studies import common
from reproduce.studies.common import Cost

Call = Callable[..., str]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs it with these words; returns what it prints."""

    def run(*words: object) -> str:
        monkeypatch.setattr(sys, "argv", ["evidence", *map(str, words)])
        evidence.main()
        return capsys.readouterr().out

    return run


def finish(out: Path, row: str, seed: int, rate: float, seconds: float) -> None:
    folder = evidence.run_folder(out, row, seed, rate)
    folder.with_name(f"{folder.name}.json").write_text(json.dumps({"seconds": seconds}))


def test_the_plan_lists_every_run_with_its_cost(tmp_path: Path, script: Call) -> None:
    words = ["--out", tmp_path, "--plan", "--rows", "pvse", "diversity", "--seeds", 0, 1, 2]
    lines = script(*words).splitlines()
    assert len(lines) == 2 * (2 + 2) + 1 and lines[0].startswith("pvse, seed 0, rate 0.002: about ")
    finish(tmp_path, "pvse", 0, 2e-3, 100.0)
    finish(tmp_path, "pvse", 1, 1e-3, 300.0)
    lines = script(*words).splitlines()
    assert lines[:4] == [
        "pvse, seed 0, rate 0.002: done in 100 s",
        "pvse, seed 0, rate 0.001: about 200 s",
        "pvse, seed 1, the chosen rate: done in 300 s",
        "pvse, seed 2, the chosen rate: about 200 s",
    ]
    assert lines[-1] == "2 of 8 runs done, about 0.3 hours left"
    assert not any(path.is_dir() for path in tmp_path.iterdir())


def test_every_row_has_a_control_that_could_have_been_better() -> None:
    assert len(script_runs()) == len(evidence.ROWS) * (len(evidence.SEEDS) + 1)
    for name, row in evidence.ROWS.items():
        assert row.control in {*evidence.ROWS} - {name} or name == "pvse", name
        chain = [name]
        while evidence.ROWS[chain[-1]].control:
            chain.append(evidence.ROWS[chain[-1]].control)
            assert len(chain) <= len(evidence.ROWS), "a control of itself"


def script_runs() -> list[evidence.Run]:
    return evidence.runs(list(evidence.ROWS), evidence.SEEDS)


def test_rows_are_compared_with_their_controls_query_by_query() -> None:
    """A row that is better for every query is surely so; one that is its control is not."""
    rng = np.random.default_rng(0)
    ids, base = [f"t{number}" for number in range(60)], rng.random((2, 60)) < 0.5

    def results(values: np.ndarray) -> list[dict[str, Any]]:
        name = "text_to_image/recall@10/abstract"
        return [
            {"values": {name: row.astype(float)}, "ids": {"text_to_image/abstract": ids}, "kept": {}} for row in values
        ]

    rows = {"pvse": results(base), "uniform": results(base), "hal": results(base | (rng.random((2, 60)) < 0.8))}
    images = {name: f"image of {name}" for name in ids}
    same, better = evidence.tests(rows, images)
    assert (same["row"], same["difference"]) == ("uniform", 0.0) and same["p_corrected"] == 1.0
    assert better["row"] == "hal" and better["low"] > 0 and better["p_value"] < better["p_corrected"] < 0.05
    report = {"rows": evidence.summary(rows), "tests": [same, better]}
    assert report["rows"]["pvse"]["text_to_image/recall@10/abstract"] == [100 * row.mean() for row in base]
    assert any(
        line.startswith("| hal | pvse | text_to_image/recall@10/abstract | +") for line in evidence.tables(report)
    )


@pytest.mark.slow
def test_it_trains_evaluates_and_resumes(tmp_path: Path, script: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gensim")
    data, out = tmp_path / "data" / "flickr8k", tmp_path / "out"
    (data / "images").mkdir(parents=True)
    made_data.write_topics(data)
    rows = [json.loads(line) for line in (data / "pairs.jsonl").read_text().splitlines()]
    made_data.write_rows(
        data / "captions.jsonl", [{**row, "split": row["split"].replace("test", "val")} for row in rows]
    )
    for row in rows:
        (data / row["image"]).rename(data / "images" / row["image"])
    with np.load(data / "features.npz") as file:
        names, pooled = file["names"], file["pooled"]
    np.savez(data / "mobilenet_pooled.npz", names=names, pooled=pooled)
    np.savez(tmp_path / "grid.npz", names=names, grid=np.stack([pooled, -pooled], axis=1))
    monkeypatch.setenv("SUBTEXT_DATA", str(data.parent))
    monkeypatch.setattr(common, "in_new_process", lambda function, *rest: (function(*rest), Cost(1.0, 1.0, 1.0)))
    clusters = {"topics": made_data.TOPICS, "visual_clusters": made_data.TOPICS, "neighbours": 20, "seed": 0}
    for name, value in {
        "HELD_OUT": 60,
        "NEIGHBOURS": 20,
        "EPOCHS": 2,
        "CLUSTERS": clusters,
        "C": (5, 20),
    }.items():
        monkeypatch.setattr(evidence, name, value)
    words = ["--out", out, "--grid", tmp_path / "grid.npz", "--seeds", 0, 1, "--rows", "uniform", "diversity permuted"]
    first = script(*words)
    assert "AUC: diversity of images" in first and "6 of 6 runs done, about 0.0 hours left" in first
    report = json.loads((out / "evidence.json").read_text())
    assert report["data"]["accepted"] and report["rows"].keys() == {"uniform", "diversity permuted"}
    figures = report["rows"]["uniform"]
    assert {
        "text_to_image/recall@10/abstract",
        "image_to_text/20_way@1/literal",
        "text/neighbours_kept",
    } <= figures.keys()
    assert all(len(values) == 2 for values in figures.values())
    assert len(report["tests"]) == 2 * 2 * 2 and {test["control"] for test in report["tests"]} == {"uniform"}
    monkeypatch.setattr(common, "in_new_process", lambda *rest: pytest.fail("trained again"))
    again = script(*words)
    assert (
        json.loads((out / "evidence.json").read_text()) == report and again.splitlines()[-1] == first.splitlines()[-1]
    )
