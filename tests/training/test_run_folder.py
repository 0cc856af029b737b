"""The folder of a training: one training at a time, and never another folder than the one that was opened."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import small_training
from find_parts import HELPERS, SOURCE

from subtext.errors import CheckpointError, OutputError
from subtext.models.checkpoint import load_record
from subtext.training.plan import Plan, RunConfig
from subtext.training.setup import TrainingProgress

PLAN = Plan(epochs=2, batch_size=16)
NEW = RunConfig(device="cpu", workers=0, checkpoint_every=2, log_every=1, save_every_epochs=1)
RESUMED = RunConfig(device="cpu", workers=0, checkpoint_every=2, log_every=1, save_every_epochs=1, resume=True)
PAIRS = small_training.pairs(20, captions=1), small_training.pairs(8, "val", captions=1)


def train(out: Path, options: RunConfig = NEW, report: Callable[[TrainingProgress], None] | None = None) -> None:
    train, val = PAIRS
    small_training.run(out, plan=PLAN, options=options, train=train, val=val, report=report)


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


class AtOperation:
    """Calls `act` before the n-th time that the training makes, flushes or renames something."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, run: Path, number: int, act: Callable[[], None]) -> None:
        self.count, self.done = 0, False
        for name in ("mkdir", "fsync", "replace", "rename", "unlink"):
            plain = getattr(os, name)

            def counted(*args: object, plain: Callable[..., object] = plain, **options: object) -> object:
                if run.is_dir() and not self.done:
                    self.count += 1
                    if self.count == number:
                        self.done = True
                        act()
                return plain(*args, **options)

            monkeypatch.setattr(os, name, counted)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "whole"
    train(run)
    return run


def operations(tmp_path: Path) -> int:
    with pytest.MonkeyPatch.context() as patch:
        counter = AtOperation(patch, tmp_path / "counted", -1, lambda: None)
        train(tmp_path / "counted")
    return counter.count


def assert_run_ends_when_swapped(tmp_path: Path, whole: Path, kind: str, number: int) -> None:
    """Train while something happens to the folder before an operation of that number, and look at what is left."""
    run, moved = tmp_path / f"{kind}{number}", tmp_path / f"{kind}{number}moved"

    def act() -> None:
        if kind == "removed":
            shutil.rmtree(run)
            return
        run.rename(moved)
        if kind == "replaced":
            shutil.copytree(whole, run)

    with pytest.MonkeyPatch.context() as patch:
        watch = AtOperation(patch, run, number, act)
        with pytest.raises((CheckpointError, OutputError)) as caught:
            train(run)
    assert watch.done, number
    told = str(caught.value)
    assert f"{run} needs to stay at its path while it trains" in told and "/proc" not in told, (number, told)
    assert run.exists() == (kind == "replaced"), number
    if kind == "replaced":
        assert content(run) == content(whole), number
    if kind != "removed":
        train(moved, RESUMED)
        assert load_record(moved).status == "finished"
        assert (moved / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes(), number
        assert not (moved / ".lock").exists() and not list(moved.rglob(".writing-*"))


@pytest.mark.parametrize("kind", ["renamed", "removed", "replaced"])
def test_a_run_that_leaves_its_path_ends_the_training(tmp_path: Path, whole: Path, kind: str) -> None:
    count = operations(tmp_path)
    for number in {"renamed": (3, count // 2), "removed": (2, count - 1), "replaced": (9, count // 3)}[kind]:
        assert_run_ends_when_swapped(tmp_path, whole, kind, number)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["renamed", "removed", "replaced"])
def test_a_run_may_leave_its_path_at_every_moment(tmp_path: Path, whole: Path, kind: str) -> None:
    count = operations(tmp_path)
    assert count > 40
    for number in range(1, count):
        assert_run_ends_when_swapped(tmp_path, whole, kind, number)


@pytest.mark.parametrize("options", [NEW, RESUMED], ids=["new", "resume"])
def test_a_second_training_in_a_folder_is_refused(tmp_path: Path, options: RunConfig) -> None:
    """The second one begins while the first one has made its folder and written nothing yet, and after a checkpoint."""
    run = tmp_path / "run"
    run.mkdir()
    refused: list[str] = []

    def second(report: TrainingProgress | None = None) -> None:
        with pytest.raises(CheckpointError) as caught:
            train(run, options)
        refused.append(str(caught.value))

    with (run / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        second()
    assert not [path.name for path in run.iterdir() if path.name != ".lock"]
    train(run, NEW, second)
    busy = f"{run} takes one training at a time; another process is writing; wait until it is done"
    assert refused[0].startswith(busy) and len(refused) > 2
    told = f"`subtext train` (process {os.getpid()}" if options.resume else "holds something; name another, or go on"
    assert all(told in sentence for sentence in refused[1:])
    assert load_record(run).status == "finished" and not (run / ".lock").exists()
    steps = [line["step"] for line in map(json.loads, (run / "log.jsonl").read_text().splitlines())]
    assert len(steps) == len(set(steps)) + 2  # The last step of each of two epochs, and the epoch.


def test_a_training_that_finished_meanwhile_is_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another training begins and ends between the first look at the folder and its lock."""
    from subtext.training import loop

    plain, run = loop.validate_plan, tmp_path / "run"

    def late(*given: object, **named: object) -> list[str]:
        monkeypatch.setattr(loop, "validate_plan", plain)
        train(run)
        return plain(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "validate_plan", late)
    with pytest.raises(CheckpointError, match=r"run holds something; name another, or go on with resume"):
        train(run)
    assert load_record(run).status == "finished"


def test_a_lock_that_a_killed_training_left_is_free(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").write_text('{"verb": "subtext train", "process": 1, "host": "a", "since": "b"}')
    train(tmp_path / "run")
    assert not (tmp_path / "run" / ".lock").exists()


def test_a_disk_without_locks_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(descriptor: int, operation: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    with pytest.raises(OutputError, match=r"needs a disk with locks.*\(No locks available\); train in a folder on an"):
        train(tmp_path / "run")


@pytest.mark.slow
def test_of_processes_that_resume_one_run_one_trains(tmp_path: Path) -> None:
    """Four processes begin at once, four times; each ends trained or with the sentence, and no line is logged twice."""
    program = (
        "import sys; from pathlib import Path; import small_training; from subtext.errors import CheckpointError\n"
        "from subtext.training.plan import Plan, RunConfig\n"
        "options = RunConfig(device='cpu', workers=0, log_every=1, checkpoint_every=2, resume=True)\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "try: small_training.run(Path(sys.argv[1]), plan=Plan(epochs=4, batch_size=8), options=options)\n"
        "except CheckpointError as error: sys.exit(str(error))\n"
    )
    path = {"PYTHONPATH": f"{HELPERS}{os.pathsep}{SOURCE.parent}"}
    for turn in range(4):
        run = tmp_path / f"run{turn}"
        command = [sys.executable, "-c", program, str(run)]
        pipe = subprocess.PIPE
        each = [
            subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=os.environ | path)
            for _ in range(4)
        ]
        for process in each:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
        for process in each:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        killed = None
        while turn % 2 and killed is None and any(process.poll() is None for process in each):
            # The one that trains is killed: the system frees its lock.
            with suppress(FileNotFoundError, ValueError):
                killed = json.loads((run / ".lock").read_text())["process"]
                os.kill(killed, signal.SIGKILL)
        for process in each:
            told = process.communicate()[1]
            ended = 0 if process.pid != killed else -signal.SIGKILL
            assert process.returncode == ended or "takes one training at a time" in told.splitlines()[-1], told
        lines = (run / "log.jsonl").read_text().splitlines() if (run / "log.jsonl").exists() else []
        keys = [(line["event"], line["step"]) for line in map(json.loads, lines)]
        assert len(keys) == len(set(keys)) and (turn % 2 or load_record(run).status == "finished")
