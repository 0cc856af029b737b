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
import small_training
import torch
from find_parts import HELPERS, SOURCE
from torch import nn

from subtext.errors import CheckpointError, TrainingError
from subtext.models.checkpoint import Record, fingerprint, load_record, load_run, read_tensors, save_record
from subtext.training import loop
from subtext.training.plan import Phase, Plan, RunConfig
from subtext.training.processes import Processes
from subtext.training.setup import Setup, TrainingProgress
from subtext.version import DRAWS

FROZEN = Plan(epochs=2, batch_size=16, freeze_epochs=-1)
RESUMED = RunConfig(device="cpu", workers=0, resume=True)
PROGRAM = HELPERS / "killed_training.py"


def _program(out: Path, *, kills: int, workers: int, seed: int = 0) -> dict[str, object]:
    command = [sys.executable, str(PROGRAM), str(out), "--kills", str(kills), "--workers", str(workers)]
    done = subprocess.run(
        [*command, "--seed", str(seed)],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": f"{PROGRAM.parent}{os.pathsep}{SOURCE.parent}",
        },
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


@pytest.mark.slow
@pytest.mark.parametrize(("kills", "workers"), [(2, 0), (6, 2)])
def test_killed_training_resumes_to_equal_weights(tmp_path: Path, undisturbed: Path, kills: int, workers: int) -> None:
    told = _program(tmp_path / "killed", kills=kills, workers=workers, seed=workers)
    assert told["killed"] >= kills // 2
    assert _bytes(tmp_path / "killed") == _bytes(undisturbed)
    assert _log(tmp_path / "killed") == _log(undisturbed)
    assert load_record(tmp_path / "killed").best == load_record(undisturbed).best
    assert not list((tmp_path / "killed").rglob(".writing-*"))


@pytest.mark.slow
def test_training_survives_fifty_kills(tmp_path: Path, undisturbed: Path) -> None:
    for seed in range(5):
        _program(tmp_path / f"killed{seed}", kills=10, workers=2 * (seed % 2), seed=10 + seed)
        assert _bytes(tmp_path / f"killed{seed}") == _bytes(undisturbed)
        assert _log(tmp_path / f"killed{seed}") == _log(undisturbed)


PLANS = {
    "adamw, cosine, swa": Plan(epochs=3, batch_size=16, optimiser="adamw", schedule="cosine", weight_average="swa"),
    "adamp, step": Plan(epochs=3, batch_size=16, optimiser="adamp", schedule="step", step_epochs=1, weight_decay=0.1),
    "sgd, one cycle, chunks": Plan(epochs=3, batch_size=16, optimiser="sgd", schedule="one_cycle", grad_cache_chunk=5),
    "loss selects": Plan(epochs=3, batch_size=16, select="loss", schedule="plateau", plateau_patience=0),
    "one caption, bf16": Plan(epochs=3, batch_size=16, caption_sampling="one", precision="bf16", select="last"),
    "body learns late": Plan(epochs=3, batch_size=16, freeze_epochs=1, layer_decay=0.5, backbone_lr_scale=0.5),
}


@pytest.fixture(autouse=True)
def every_step_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subtext.training.journal.REPORT_EVERY", 0.0)


@pytest.mark.parametrize("name", PLANS)
def test_stopped_training_resumes_to_equal_weights(tmp_path: Path, name: str) -> None:
    options = RunConfig(device="cpu", workers=0)
    whole = small_training.run(tmp_path / "whole", plan=PLANS[name], options=options, noise=0.1)
    for step in (2, 7):
        hear = small_training.Interrupt(step)
        part = small_training.run(
            tmp_path / "parts", plan=PLANS[name], options=replace(options, resume=True), noise=0.1, report=hear
        )
        assert part.record.status == "stopped"
        assert any("--resume" in note for note in part.notes)
        assert (tmp_path / "parts" / "model.safetensors").is_file()
    end = small_training.run(tmp_path / "parts", plan=PLANS[name], options=replace(options, resume=True), noise=0.1)
    assert end.record.status == "finished"
    assert _bytes(tmp_path / "parts") == _bytes(tmp_path / "whole")
    assert fingerprint(end.model.state_dict()) == fingerprint(whole.model.state_dict())
    assert fingerprint(load_run(tmp_path / "parts")[1]) == fingerprint(end.model.state_dict())


def test_stop_reaches_all_processes_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that alone was asked at an epoch's end must not leave: the others would wait for it in the next."""
    monkeypatch.setattr(Processes, "broadcast", lambda self, values: list(values) if len(values) > 1 else [0.0])

    def ask(report: TrainingProgress) -> None:
        if report.ended == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    part = small_training.run(tmp_path / "run", report=ask)
    assert part.record.status == "stopped"
    assert part.record.epochs == 1
    assert part.record.steps == 6, "five steps are an epoch; the next one's sum is where all hear of it"


def test_resuming_finished_training_changes_nothing(tmp_path: Path) -> None:
    first = small_training.run(tmp_path / "run")
    again = small_training.run(tmp_path / "run", options=RunConfig(device="cpu", workers=0, resume=True))
    assert again.record.status == "finished"
    assert again.record.steps == first.record.steps
    assert fingerprint(again.model.state_dict()) == fingerprint(first.model.state_dict())


def test_non_empty_folder_without_resume_raises(tmp_path: Path) -> None:
    (tmp_path / "thing.txt").write_text("mine")
    with pytest.raises(CheckpointError, match=r"holds something; name another, or go on with resume"):
        small_training.run(tmp_path)
    assert (tmp_path / "thing.txt").read_text() == "mine"
    with pytest.raises(CheckpointError, match=r"holds other things and no run\.json"):
        small_training.run(tmp_path, options=RunConfig(device="cpu", workers=0, resume=True))


def test_resume_on_empty_folder_starts_training(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    done = small_training.run(tmp_path / "run", options=RunConfig(device="cpu", workers=0, resume=True))
    assert done.record.status == "finished"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"plan": Plan(epochs=3, batch_size=16, lr=2e-2, warmup=0.1, schedule="one_cycle")}, r"--lr 0\.01 -> 0\.02"),
        ({"options": RunConfig(device="cpu", workers=0, resume=True, seed=3)}, r"--seed 0 -> 3"),
        ({"train": small_training.pairs(39)}, r"other pairs or other splits"),
        ({"phases": (Phase(1, "heads"),)}, r"phases \[\] -> "),
    ],
)
def test_resume_with_other_settings_names_the_difference(tmp_path: Path, change: dict[str, object], named: str) -> None:
    small_training.run(tmp_path / "run")
    before = _bytes(tmp_path / "run")
    with pytest.raises(CheckpointError, match=named):
        small_training.run(tmp_path / "run", **{"options": RunConfig(device="cpu", workers=0, resume=True), **change})
    assert _bytes(tmp_path / "run") == before


def test_resume_with_other_random_draws_raises(tmp_path: Path) -> None:
    small_training.run(tmp_path / "run", report=small_training.Interrupt(2))
    record = load_record(tmp_path / "run")
    assert record.draws == DRAWS
    save_record(tmp_path / "run", replace(record, draws=DRAWS + 1))
    with pytest.raises(CheckpointError, match="run and what --resume trains need the same random draws"):
        small_training.run(tmp_path / "run", options=RunConfig(device="cpu", workers=0, resume=True))


def test_damaged_checkpoint_is_skipped(tmp_path: Path) -> None:
    whole = small_training.run(tmp_path / "whole")
    options = RunConfig(device="cpu", workers=0, checkpoint_every=2, keep_checkpoints=3)
    small_training.run(tmp_path / "run", options=options, report=small_training.Interrupt(8))
    newest = sorted((tmp_path / "run" / "checkpoints").iterdir())[-1]
    weights = newest / "weights.safetensors"
    spoilt = bytearray(weights.read_bytes())
    spoilt[-3] ^= 1
    weights.write_bytes(bytes(spoilt))
    done = small_training.run(tmp_path / "run", options=replace(options, resume=True))
    assert any(f"{newest.name} is not used: weights.safetensors is not what was written" in note for note in done.notes)
    assert fingerprint(done.model.state_dict()) == fingerprint(whole.model.state_dict())


def test_incomplete_checkpoint_is_never_loaded(tmp_path: Path) -> None:
    small_training.run(
        tmp_path / "run",
        options=RunConfig(device="cpu", workers=0, keep_checkpoints=2),
        report=small_training.Interrupt(8),
    )
    newest = sorted((tmp_path / "run" / "checkpoints").iterdir())[-1]
    (newest / "manifest.json").unlink()
    half = newest.parent / f".writing-1-{newest.name}"
    half.mkdir()
    (half / "state.json").write_text("{")
    done = small_training.run(tmp_path / "run", options=RunConfig(device="cpu", workers=0, resume=True))
    assert any("is not used: it is incomplete" in note for note in done.notes)
    assert not half.exists()
    assert done.record.status == "finished"


def test_other_features_count_as_a_difference(tmp_path: Path) -> None:
    out = tmp_path / "run"
    small_training.run(out)
    record = load_record(out)
    other = replace(record, inputs="something else")
    assert record.differences(other) == [
        "how images and texts are read: other features or cache precision, or files that have changed"
    ]
    assert record.inputs


def test_resume_with_another_model_names_only_the_model(tmp_path: Path) -> None:
    small_training.run(tmp_path / "run", report=small_training.Interrupt(2))
    record = load_record(tmp_path / "run")
    save_record(tmp_path / "run", replace(record, model="large", arguments={"depth": 3}, plan={}))
    with pytest.raises(CheckpointError) as caught:
        small_training.run(tmp_path / "run", options=RESUMED)
    assert "differs in the model: large -> small (there -> here); give the same" in str(caught.value)


def test_many_differences_are_counted(tmp_path: Path) -> None:
    small_training.run(tmp_path / "run", report=small_training.Interrupt(2))
    other = Plan(epochs=9, batch_size=8, lr=2e-2, warmup=0.2, schedule="cosine", amsgrad=True, max_grad_norm=0.0)
    with pytest.raises(CheckpointError, match=r"--amsgrad, --batch-size 16 -> 8, .*, and 2 more \(there"):
        small_training.run(tmp_path / "run", plan=other, options=RESUMED)


def test_finished_run_has_no_checkpoints(tmp_path: Path) -> None:
    done = small_training.run(tmp_path / "run", plan=FROZEN)
    assert any("was run once" in note for note in done.notes)
    kept = {"run.json", "model.safetensors", "log.jsonl", "README.md", "assets"}
    assert {path.name for path in (tmp_path / "run").iterdir()} == kept


def test_stopped_run_keeps_checkpoints_and_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBTEXT_CACHE_LIMIT", "0")  # Where the user has no cache, the run has its own.
    small_training.run(tmp_path / "run", plan=FROZEN, report=small_training.Interrupt(2))
    assert list((tmp_path / "run" / "checkpoints").iterdir()) and list((tmp_path / "run" / "cache").iterdir())


class Killed(BaseException):
    """What nothing catches, as a kill is."""


@pytest.mark.parametrize("noise", [0.0, 0.1], ids=["run once", "run at every step"])
@pytest.mark.parametrize("average", ["none", "swa"])
def test_frozen_weights_are_saved_once_and_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noise: float, average: str
) -> None:
    """Killed after each checkpoint; the encoder that comes with the recipe is another one each time."""
    plan = replace(FROZEN, epochs=3, weight_average=average, swa_start=0.0)
    whole = small_training.run(tmp_path / "whole", plan=plan, noise=noise)
    run, plain = tmp_path / "run", loop.write_snapshot

    def other(plan: Plan | None) -> Setup:
        made = small_training.setup(plan, noise=noise)
        nn.init.uniform_(made.model.image.encoder.body[0].weight)
        return made

    def die(*given: object, **options: object) -> None:
        plain(*given, **options)
        raise Killed

    monkeypatch.setattr(loop, "write_snapshot", die)
    stamps: set[int] = set()
    for epoch in range(1, 4):
        made = {"made": other} if epoch > 1 else {"noise": noise}
        with pytest.raises(Killed):
            small_training.run(run, plan=plan, options=RESUMED, **made)
        frozen = read_tensors(run / "frozen.safetensors")
        assert set(frozen) == {f"image.encoder.body.{layer}.{kind}" for layer in (0, 2) for kind in ("weight", "bias")}
        for file in (run / "checkpoints" / f"step-{5 * epoch:08d}-epoch").glob("*.safetensors"):
            assert frozen.keys().isdisjoint(read_tensors(file)) or file.stem == "average"
        assert frozen.keys().isdisjoint(read_tensors(run / "model.safetensors"))
        opened = load_run(run)[1]
        assert opened.keys() == whole.model.state_dict().keys()
        assert all(torch.equal(opened[name], value) for name, value in frozen.items())
        stamps.add((run / "frozen.safetensors").stat().st_mtime_ns)
    assert len(stamps) == 1
    monkeypatch.setattr(loop, "write_snapshot", plain)
    spoilt = (run / "frozen.safetensors").read_bytes()
    (run / "frozen.safetensors").write_bytes(spoilt[:-1] + bytes([spoilt[-1] ^ 1]))
    with pytest.raises(CheckpointError, match=r"frozen\.safetensors needs the tensors that were written .* damaged"):
        small_training.run(run, plan=plan, options=RESUMED, noise=noise)
    (run / "frozen.safetensors").write_bytes(spoilt)
    small_training.run(run, plan=plan, options=RESUMED, made=other)
    assert _bytes(run) == _bytes(tmp_path / "whole") and not (run / "frozen.safetensors").exists()


def test_kill_while_removing_checkpoints_leaves_finished_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = small_training.run(tmp_path / "whole")

    def half(out: Path) -> None:
        next(file for file in (out / "checkpoints").rglob("*") if file.is_file()).unlink()
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr("subtext.training.loop.remove_checkpoints", half)
        small_training.run(tmp_path / "run")
    assert (tmp_path / "run" / "checkpoints").is_dir()
    before = _bytes(tmp_path / "run")
    end = small_training.run(tmp_path / "run", options=RESUMED)
    assert any("nothing is left to train" in note for note in end.notes)
    assert not (tmp_path / "run" / "checkpoints").exists()
    assert _bytes(tmp_path / "run") == before == _bytes(tmp_path / "whole")
    assert fingerprint(end.model.state_dict()) == fingerprint(whole.model.state_dict())
    assert not end.model.training


def test_kill_before_final_record_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = small_training.run(tmp_path / "whole")
    plain = save_record

    def die(out: Path, record: Record) -> None:
        if record.status == "finished":
            raise Killed
        plain(out, record)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr("subtext.training.run_folder.save_record", die)
        small_training.run(tmp_path / "run")
    (tmp_path / "run" / "model.safetensors").unlink()
    end = small_training.run(tmp_path / "run", options=RESUMED)
    assert any("going on from step 15" in note for note in end.notes)
    assert _bytes(tmp_path / "run") == _bytes(tmp_path / "whole")
    assert fingerprint(end.model.state_dict()) == fingerprint(whole.model.state_dict())


def test_damaged_checkpoints_do_not_replace_new_ones(tmp_path: Path) -> None:
    every = replace(RESUMED, checkpoint_every=3, keep_checkpoints=9)
    small_training.run(tmp_path / "run", options=every, report=small_training.Interrupt(7))
    place = tmp_path / "run" / "checkpoints"
    for folder in sorted(place.iterdir())[1:]:
        (folder / "manifest.json").unlink()
    small_training.run(
        tmp_path / "run",
        options=replace(every, checkpoint_every=1, keep_checkpoints=2),
        report=small_training.Interrupt(4),
    )
    assert [path.name for path in sorted(place.iterdir())] == ["step-00000004", "step-00000005"]


def test_untrainable_plan_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="fp16 needs a GPU"):
        small_training.run(tmp_path / "run", plan=Plan(precision="fp16"))
    assert not (tmp_path / "run").exists()


def test_record_keeps_results_while_resuming(tmp_path: Path) -> None:
    out = tmp_path / "run"
    small_training.run(out)
    before = load_record(out)
    small_training.run(out, options=RunConfig(device="cpu", workers=0, resume=True))
    after = load_record(out)
    assert (after.best, after.epochs, after.status) == (before.best, before.epochs, "finished")
