"""Stopping and going on: the end is the same to the bit, whatever happened on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import small

from subtext.checkpoint import fingerprint, load_record, load_run
from subtext.errors import CheckpointError
from subtext.training.options import Report, RunOptions
from subtext.training.plan import Phase, Plan

PROGRAM = Path(__file__).parents[1] / "killed.py"


def _program(out: Path, *, kills: int, workers: int, seed: int = 0) -> dict[str, object]:
    command = [sys.executable, str(PROGRAM), str(out), "--kills", str(kills), "--workers", str(workers)]
    done = subprocess.run(
        [*command, "--seed", str(seed)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(PROGRAM.parent)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def _bytes(run: Path) -> bytes:
    return (run / "model.safetensors").read_bytes()


def _log(run: Path) -> list[dict[str, object]]:
    changing = ("seconds", "pairs_per_second")
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in changing} for line in lines]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "undisturbed"
    _program(run, kills=0, workers=0)
    return run


@pytest.mark.parametrize("workers", [0, 2])
def test_killed_at_any_moment_ends_the_same(tmp_path: Path, undisturbed: Path, workers: int) -> None:
    told = _program(tmp_path / "killed", kills=6, workers=workers, seed=workers)
    assert told["killed"] >= 3
    assert _bytes(tmp_path / "killed") == _bytes(undisturbed)
    assert _log(tmp_path / "killed") == _log(undisturbed)
    assert load_record(tmp_path / "killed").best == load_record(undisturbed).best
    assert not list((tmp_path / "killed").rglob(".writing-*"))


@pytest.mark.slow
def test_fifty_kills(tmp_path: Path, undisturbed: Path) -> None:
    for seed in range(5):
        _program(tmp_path / f"killed{seed}", kills=10, workers=2 * (seed % 2), seed=10 + seed)
        assert _bytes(tmp_path / f"killed{seed}") == _bytes(undisturbed)
        assert _log(tmp_path / f"killed{seed}") == _log(undisturbed)


PLANS = {
    "adamw, cosine, swa": Plan(epochs=3, batch_size=16, optimiser="adamw", schedule="cosine", average="swa"),
    "adamp, step": Plan(epochs=3, batch_size=16, optimiser="adamp", schedule="step", step_epochs=1, weight_decay=0.1),
    "sgd, one cycle, chunks": Plan(epochs=3, batch_size=16, optimiser="sgd", schedule="one_cycle", cache_chunk=5),
    "loss selects": Plan(epochs=3, batch_size=16, select="loss", schedule="plateau", plateau_epochs=0),
    "one caption, bf16": Plan(epochs=3, batch_size=16, captions="one", precision="bf16", select="last"),
    "body thaws": Plan(epochs=3, batch_size=16, freeze_epochs=1, layer_decay=0.5, encoder_factor=0.5),
}


class Interrupt:
    """Asks the training to stop once so many steps are done, as Ctrl-C would."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.reports: list[Report] = []

    def __call__(self, report: Report) -> None:
        self.reports.append(report)
        if report.step >= self.step and report.note is None:
            os.kill(os.getpid(), signal.SIGTERM)
            self.step = 10**9


@pytest.mark.parametrize("name", PLANS)
def test_stopped_and_resumed_ends_the_same(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subtext.training.fit.REPORT_EVERY", 0.0)
    options = RunOptions(device="cpu", workers=0)
    whole = small.run(tmp_path / "whole", plan=PLANS[name], options=options, noise=0.1)
    for step in (2, 7):
        hear = Interrupt(step)
        part = small.run(
            tmp_path / "parts", plan=PLANS[name], options=replace(options, resume=True), noise=0.1, report=hear
        )
        assert part.record.status == "stopped"
        assert any("--resume" in note for note in part.notes)
        assert (tmp_path / "parts" / "model.safetensors").is_file()
    end = small.run(tmp_path / "parts", plan=PLANS[name], options=replace(options, resume=True), noise=0.1)
    assert end.record.status == "finished"
    assert _bytes(tmp_path / "parts") == _bytes(tmp_path / "whole")
    assert fingerprint(end.model.state_dict()) == fingerprint(whole.model.state_dict())
    assert fingerprint(load_run(tmp_path / "parts")[1]) == fingerprint(end.model.state_dict())


def test_resuming_what_is_finished_changes_nothing(tmp_path: Path) -> None:
    first = small.run(tmp_path / "run")
    again = small.run(tmp_path / "run", options=RunOptions(device="cpu", workers=0, resume=True))
    assert again.record.status == "finished"
    assert again.record.steps == first.record.steps
    assert fingerprint(again.model.state_dict()) == fingerprint(first.model.state_dict())


def test_a_full_folder_is_refused_without_resume(tmp_path: Path) -> None:
    (tmp_path / "thing.txt").write_text("mine")
    with pytest.raises(CheckpointError, match=r"holds something; name another, or go on with --resume"):
        small.run(tmp_path)
    assert (tmp_path / "thing.txt").read_text() == "mine"
    with pytest.raises(CheckpointError, match=r"holds other things and no run\.json"):
        small.run(tmp_path, options=RunOptions(device="cpu", workers=0, resume=True))


def test_resume_on_an_empty_folder_begins(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    done = small.run(tmp_path / "run", options=RunOptions(device="cpu", workers=0, resume=True))
    assert done.record.status == "finished"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"plan": Plan(epochs=3, batch_size=16, lr=2e-2, warmup=0.1, schedule="one_cycle")}, r"lr: 0\.01 -> 0\.02"),
        ({"options": RunOptions(device="cpu", workers=0, resume=True, seed=3)}, r"seed: 0 -> 3"),
        ({"train": small.pairs(39)}, r"other pairs or other splits"),
        ({"phases": (Phase(1, "heads"),)}, r"phases: "),
    ],
)
def test_resume_of_another_training_names_the_difference(tmp_path: Path, change: dict[str, object], named: str) -> None:
    small.run(tmp_path / "run")
    before = _bytes(tmp_path / "run")
    with pytest.raises(CheckpointError, match=named):
        small.run(tmp_path / "run", **{"options": RunOptions(device="cpu", workers=0, resume=True), **change})
    assert _bytes(tmp_path / "run") == before


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path) -> None:
    whole = small.run(tmp_path / "whole")
    options = RunOptions(device="cpu", workers=0, checkpoint_every=2, keep=3)
    small.run(tmp_path / "run", options=options)
    newest = sorted((tmp_path / "run" / "checkpoints").iterdir())[-1]
    weights = newest / "weights.safetensors"
    spoilt = bytearray(weights.read_bytes())
    spoilt[-3] ^= 1
    weights.write_bytes(bytes(spoilt))
    done = small.run(tmp_path / "run", options=replace(options, resume=True))
    assert any(f"{newest.name} is not used: weights.safetensors is not what was written" in note for note in done.notes)
    assert fingerprint(done.model.state_dict()) == fingerprint(whole.model.state_dict())


def test_a_half_written_checkpoint_is_never_loaded(tmp_path: Path) -> None:
    small.run(tmp_path / "run", options=RunOptions(device="cpu", workers=0, keep=2))
    newest = sorted((tmp_path / "run" / "checkpoints").iterdir())[-1]
    (newest / "manifest.json").unlink()
    half = newest.parent / f".writing-1-{newest.name}"
    half.mkdir()
    (half / "state.json").write_text("{")
    done = small.run(tmp_path / "run", options=RunOptions(device="cpu", workers=0, resume=True))
    assert any("is not used: it is incomplete" in note for note in done.notes)
    assert not half.exists()
    assert done.record.status == "finished"


def test_other_features_are_another_training(tmp_path: Path) -> None:
    out = tmp_path / "run"
    small.run(out)
    record = load_record(out)
    other = replace(record, data=replace(record.data, inputs="something else"))
    assert record.differences(other) == [
        "what pictures and texts are read as: other features or cache precision, or files that have changed"
    ]
    assert record.data.inputs


def test_what_a_finished_run_had_reached_stays_told(tmp_path: Path) -> None:
    out = tmp_path / "run"
    small.run(out)
    before = load_record(out)
    small.run(out, options=RunOptions(device="cpu", workers=0, resume=True))
    after = load_record(out)
    assert (after.best, after.epochs, after.status) == (before.best, before.epochs, "finished")
