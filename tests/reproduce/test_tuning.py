"""`python -m reproduce.weights tune`: nine ratios on one subset, one choice by validation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import made_data
import numpy as np
import pytest
from command import call, invoke
from dying_process import killed_at_flush

from reproduce.tables.specification import RATIOS
from reproduce.tables.trainings import best_ratio, validation_score
from subtext.models.checkpoint import Record, load_record


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    data, _ = made_data.write(folder)
    near = ["--space", "lsa", "--dim", 4, "--neighbours", 6, "-q"]
    call("neighbours", "build", folder / "graph", "--data", data, *near)
    return folder


def words(made: Path, out: Path, *more: object) -> list[object]:
    data = ["--data", made / "pairs.jsonl", "--features", made / "features.npz"]
    small = ["--embed-dim", 8, "--word-dim", 8, "--epochs", 2, "--batch-size", 8, "--lr", 0.01, "--workers", 0]
    told = ["--with", f"combined:graph={made / 'graph'},total_weight=96", "--device", "cpu", "-q", "--subset", 20]
    return ["weights", "tune", "vse", *data, *small, *told, "--out", out, *more]


@pytest.fixture(scope="module")
def whole(made: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("sweeps") / "whole"
    return out, call(*words(made, out, "--json", out.parent / "sweep.json")).stdout


def told(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def fewer(monkeypatch: pytest.MonkeyPatch, *ratios: tuple[float, float]) -> None:
    """A smaller grid, for what needs no nine trainings."""
    monkeypatch.setattr("reproduce.weights.tune.RATIOS", ratios)
    monkeypatch.setattr("reproduce.tables.trainings.RATIOS", ratios)


def test_nine_ratios_share_one_subset_and_best_is_named(made: Path, whole: tuple[Path, str]) -> None:
    out, text = whole
    found = told(out.parent / "sweep.json")
    assert [(row["beta"], row["gamma"]) for row in found["ratios"]] == list(RATIOS)
    values = [row["rsum"] for row in found["ratios"]]
    best = RATIOS[values.index(max(values))]
    assert (found["chosen"]["beta"], found["chosen"]["gamma"]) == best and len(set(values)) > 1
    line = f"combined:graph={made / 'graph'},total_weight=96,beta={best[0]:g},gamma={best[1]:g}"
    assert found["chosen"]["with"] == line and text.strip().endswith(f"--with {line}")
    assert "after training on 20 of 40 images (seed 0)" in text
    assert found["subset"]["pictures"] == 20 and 0 < found["subset"]["neighbours"]["in the subset"] < 6
    records = [load_record(Path(row["run"])) for row in found["ratios"]]
    assert len({record.fingerprint for record in records}) == 1
    for record, (beta, gamma), row in zip(records, RATIOS, found["ratios"], strict=True):
        assert record.methods[0][1]["beta"] == beta and record.methods[0][1]["gamma"] == gamma
        assert record.best["rsum"] == row["rsum"] and record.best_epoch == row["epoch"] and record.seed == 0


def test_sweep_run_equals_train_on_same_pairs(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of a training is the sweep's own but the subset: all pictures, and it is `subtext train`."""
    fewer(monkeypatch, (5, 1))
    every, alone = tmp_path / "every", tmp_path / "alone"
    call(*words(made, every, "--subset", 40))
    same = ["train", *words(made, alone)[2:]]
    place = same.index("--subset")
    same = [*same[:place], *same[place + 2 :]]
    same[same.index("--with") + 1] = f"{same[same.index('--with') + 1]},beta=5,gamma=1"
    call(*same)
    assert load_record(alone).best == load_record(every / "beta5-gamma1").best


def files(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_finished_sweep_is_not_retrained(made: Path, whole: tuple[Path, str]) -> None:
    out, text = whole
    before = files(out)
    assert call(*words(made, out)).stdout == text and files(out) == before


def test_killed_sweep_resumes(
    made: Path, whole: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fewer(monkeypatch, *RATIOS[:3])
    again, file = tmp_path / "killed", tmp_path / "again.json"
    assert killed_at_flush(lambda: call(*words(made, again)), 25)
    begun = [path for path in again.iterdir() if path.name.startswith("beta")]
    assert 0 < len(begun) < 3
    call(*words(made, again, "--json", file))
    mine, theirs = (
        [[row[key] for key in ("beta", "gamma", "rsum", "epoch")] for row in told(each)["ratios"]]
        for each in (file, whole[0].parent / "sweep.json")
    )
    assert mine == theirs[:3]


def test_other_sweep_in_same_folder_raises(made: Path, whole: tuple[Path, str]) -> None:
    answer = invoke(*words(made, whole[0], "--subset", 18))
    assert answer.exit_code == 1 and "needs the training that" in answer.output


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (["--with", "diversity:graph=g"], "it needs one --with combined:graph=GRAPH; it got diversity"),
        ([], "it needs one --with combined:graph=GRAPH; it got none"),
        (["--with", "combined:graph={g},mode=stats"], "needs mode=val; mode=stats reads no beta and gamma"),
        (["--with", "combined:graph={g},beta=2"], "beta cannot be given"),
        (["--with", "combined:graph={g},sign=0"], "needs a sign other than 0"),
        (["--with", "combined"], "combined needs graph=FOLDER"),
        (["--with", "combined:graph={g}", "--subset", 3], "need a subset of more than 6 texts; it has 6"),
        (["--with", "combined:graph={g},neighbours=7"], "needs a graph of as many"),
        (["--with", "combined:graph={g}", "--val-split", "none"], "chooses by validation"),
        (["--with", "combined:graph={g},views=mean"], "several views"),
    ],
)
def test_invalid_sweep_raises_before_training(made: Path, tmp_path: Path, change: list[object], sentence: str) -> None:
    plain = words(made, tmp_path / "out")
    place = plain.index("--with")
    changed = [str(word).replace("{g}", str(made / "graph")) for word in change]
    answer = invoke(*plain[:place], *plain[place + 2 :], *changed)
    assert answer.exit_code == 1 and sentence in " ".join(answer.output.split()), answer.output
    assert not (tmp_path / "out").exists()


def test_unknown_model_gets_suggestions() -> None:
    answer = invoke("weights", "tune", "pvs", "--help")
    assert answer.exit_code == 2 and "did you mean pvse" in answer.output


def record(select: str, **best: float) -> Record:
    return Record("vse", {}, (), plan={"select": select}, best=best)


def test_ties_take_first_ratio_and_losses_are_minimised() -> None:
    assert best_ratio([record("rsum", rsum=100.0)] * 9) == (1, 1)
    assert best_ratio([record("rsum", rsum=value) for value in (1, 2, 5, 4, 5, 1, 1, 1, 1)]) == (2, 1)
    losses = [record("loss", loss=value, rsum=9 - value) for value in (3, 2, 2, 3, 4, 5, 6, 7, 8)]
    assert best_ratio(losses) == (1, 2) and validation_score(losses[0]) == -3
    assert validation_score(record("rsum")) == -np.inf


def test_equal_trainings_give_note(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One epoch has uniform weights: each time the same."""
    fewer(monkeypatch, *RATIOS[:2])
    text = call(*words(made, tmp_path / "out", "--epochs", 1)).stdout
    assert "all are equal: this says nothing" in text and "beta=1,gamma=1" in text
