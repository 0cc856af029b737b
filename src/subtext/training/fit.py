"""fit: train a setup on pairs into a folder, and go on where an earlier training stopped."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import torch

from subtext import __version__
from subtext.checkpoint import (
    ASSETS,
    RECORD,
    WEIGHTS,
    Record,
    load_record,
    save_assets,
    save_record,
    write_tensors,
    write_text,
)
from subtext.data.fingerprint import fingerprint
from subtext.data.pairs import Pairs
from subtext.errors import CheckpointError, SubtextError
from subtext.model import Model
from subtext.report.model_card import model_card
from subtext.training.frozen import working_model
from subtext.training.interrupt import Stop, listening
from subtext.training.journal import Journal
from subtext.training.loop import Training
from subtext.training.options import Fitted, Report, RunOptions
from subtext.training.processes import Processes
from subtext.training.setup import Setup
from subtext.training.snapshot import Snapshot, clean, newest_snapshot, write_snapshot

REPORT_EVERY = 0.25
"""Seconds between two reports of progress."""


def fit(
    setup: Setup,
    train: Pairs,
    val: Pairs | None,
    out: Path,
    *,
    record: Record,
    run: RunOptions,
    report: Callable[[Report], None] | None = None,
) -> Fitted:
    """Train a setup and leave a run folder: record, kept weights, assets, log, checkpoints, model card.

    train, val  pairs to learn from, and to select the epoch by; without val the last epoch is kept
    record      host, arguments, methods and data of the run; the plan, the seed and all that follows are filled in here
    report      hears how it goes, on the first process

    The same call with `resume` after any end, a kill among them, goes on from the newest whole checkpoint and ends with
    the same weights, to the bit on a CPU with the same number of threads. SIGINT and SIGTERM end it after the step
    under way, with a checkpoint.

    Raises CheckpointError for a folder that holds something when not resuming, and when what is resumed was another
    training; TrainingError when a loss or gradient is not finite, the last checkpoint staying as it is.
    """
    with _own_generator():
        return _Fit(setup, train, val, out, record=record, run=run, report=report).go()


class _Fit:
    """One call of `fit`."""

    def __init__(
        self,
        setup: Setup,
        train: Pairs,
        val: Pairs | None,
        out: Path,
        *,
        record: Record,
        run: RunOptions,
        report: Callable[[Report], None] | None,
    ) -> None:
        self.out, self.run, self.tell = out, run, report
        self.notes: list[str] = []
        self.processes = Processes(run.device)
        if val is None and setup.plan.select != "last":
            setup = replace(setup, plan=replace(setup.plan, select="last"))
            self.notes.append("no validation pairs: the last epoch's weights are kept")
        self.setup = setup
        cached = "" if run.cache_precision == "float32" else f"-{run.cache_precision}"
        inputs = f"{setup.model.image.reads.fingerprint}-{setup.model.text.reads.fingerprint}{cached}"
        data = replace(record.data, fingerprint=_data_fingerprint(train, val), inputs=inputs)
        plan, phases = asdict(setup.plan), tuple(asdict(phase) for phase in setup.phases)
        new = replace(record, plan=plan, phases=phases, data=data, seed=run.seed, status="training")
        self.record = replace(new, version=__version__, versions=_versions())
        snapshot = self._opened()
        setup.model.to(self.processes.device)
        self.processes.same_start(setup.model)
        working = self._working(train, val)
        self.training = Training(setup, working, train, val, options=run, processes=self.processes)
        if snapshot is not None:
            self.training.state.restore(snapshot)
            self.notes.append(f"going on from step {snapshot.step}")
        self.before = self.training.state.seconds
        self.first_step = self.training.state.step
        self.started = self.reported = time.monotonic()
        length = snapshot.state["log"] if snapshot is not None else 0
        self.journal: Journal | None = None
        if self.processes.first:
            self.journal = Journal(out, length=length, tensorboard=run.tensorboard, step=self.first_step)

    def go(self) -> Fitted:
        """Train to the end, or to where it is stopped."""
        state = self.training.state
        for note in self.notes:
            self._report(note=note)
        try:
            with listening() as stop:
                stopped = False
                while not state.ended and not stopped:
                    stopped = self._epoch(stop)
            return self._finish(stopped)
        except SubtextError:
            # A full disk takes no record either; what went wrong first is what has to be told.
            with suppress(CheckpointError):
                self._write_record("stopped")
            raise
        finally:
            if self.journal is not None:
                self.journal.close()

    def _epoch(self, stop: Stop) -> bool:
        """Train and end one epoch; True when somebody asked to stop."""
        training, state = self.training, self.training.state
        asked, last = False, state.step
        for asked in training.epoch_steps(stop):
            self._clock()
            every = self.run.checkpoint_every
            if state.step // self.run.log_every > last // self.run.log_every:
                self._log("step")
            if asked or (every and state.step // every > last // every):
                self._checkpoint()
            if asked:
                return True
            last = state.step
            if time.monotonic() - self.reported >= REPORT_EVERY:
                self._report()
        best = training.end_epoch()
        self._clock()
        self._log("epoch")
        loss = training.mean_loss()
        training.state.totals.zero_()
        if best and self.processes.first:
            self._write_kept()
        self._checkpoint()
        self._write_record("training")
        self._report(ended=loss)
        return asked or stop.asked

    def _finish(self, stopped: bool) -> Fitted:
        """Leave the folder complete, and the model with its kept weights."""
        state = self.training.state
        self.training.freezer.release()
        if stopped:
            self.notes.append(f"stopped after step {state.step}; the same command with --resume goes on from there")
            self._report(note=self.notes[-1])
        elif state.epoch < self.setup.plan.epochs:
            self.notes.append(f"stopped early after epoch {state.epoch}: no better for {state.watch.still} epochs")
            self._report(note=self.notes[-1])
        if self.processes.first:
            self._write_kept()
        state.put_kept()
        self._write_record("stopped" if stopped else "finished")
        self.processes.wait()
        model = self.setup.model.eval()
        return Fitted(run=self.out, model=model, record=self.record, notes=tuple(self.notes))

    def _write_record(self, status: Literal["training", "finished", "stopped"]) -> None:
        """Write the record as of now, and the card."""
        self.record = self._current(status)
        if self.processes.first:
            save_record(self.out, self.record)
            write_text(self.out / "README.md", model_card(self.record))

    def _write_kept(self) -> None:
        """model.safetensors: the best weights so far; those of now before the first epoch's end."""
        state = self.training.state
        weights = dict(self.setup.model.state_dict())
        weights |= {name: value for name, value in state.kept.items() if name in weights}
        write_tensors(self.out / WEIGHTS, weights)

    def _checkpoint(self) -> None:
        self.training.check()
        if self.processes.first and self.journal is not None:
            write_snapshot(self.out, self.training.state.snapshot(self.journal.settle()), keep=self.run.keep)
        self.processes.wait()

    def _opened(self) -> Snapshot | None:
        """Make the folder ready; gives the checkpoint to go on from, None to start from the beginning."""
        out = self.out
        holds = out.exists() and (not out.is_dir() or any(out.iterdir()))
        if holds and not self.run.resume:
            raise CheckpointError(
                f"--out needs a new or an empty folder; {out} holds something; name another, or go on with --resume"
            )
        snapshot = None
        if holds and (out / RECORD).is_file():
            found = load_record(out)
            if differences := found.differences(self.record):
                raise CheckpointError(
                    f"--resume needs the training that {out} began; this one differs in {'; '.join(differences)}; "
                    "give the same options, or train in a new folder"
                )
            snapshot, notes = newest_snapshot(out)
            self.notes += notes
            # What it had reached stays told until there is more to tell.
            reached = ("best", "best_epoch", "epochs", "steps", "seconds")
            self.record = replace(self.record, **{name: getattr(found, name) for name in reached})
        elif holds and any(path.name not in ("cache",) and not path.name.startswith(".") for path in out.iterdir()):
            raise CheckpointError(f"--resume needs a run or an empty folder; {out} holds other things and no {RECORD}")
        self.processes.wait()
        if self.processes.first:
            out.mkdir(parents=True, exist_ok=True)
            clean(out)
            # The record comes first: a folder without one is not known as a run by the next --resume.
            save_record(out, self.record)
            if not (out / ASSETS).is_dir():
                save_assets(out, self.setup.model)
        self.processes.wait()
        return snapshot

    def _working(self, train: Pairs, val: Pairs | None) -> Model:
        model, notes = working_model(
            self.setup, (train, val), self.run.cache or self.out / "cache", run=self.run, processes=self.processes
        )
        self.notes += notes
        return model

    def _current(self, status: Literal["training", "finished", "stopped"]) -> Record:
        state = self.training.state
        return replace(
            self.record,
            status=status,
            best=state.watch.figures or {},
            best_epoch=state.watch.best_epoch,
            epochs=state.epoch,
            steps=state.step,
            seconds=round(state.seconds, 2),
        )

    def _clock(self) -> None:
        self.training.state.seconds = self.before + time.monotonic() - self.started

    def _speed(self) -> float:
        """Pairs a second, over this call."""
        steps = self.training.state.step - self.first_step
        return steps * self.setup.plan.batch_size / max(time.monotonic() - self.started, 1e-9)

    def _log(self, event: str) -> None:
        if self.journal is not None:
            state = self.training.state
            more = {"figures": state.figures} if event == "epoch" else {}
            times = {"pairs_per_second": round(self._speed(), 1), "seconds": round(state.seconds, 2)}
            self.journal.write(event, {**self.training.line(), **times, **more})

    def _report(self, *, note: str | None = None, ended: float | None = None) -> None:
        """Tell how it goes; `ended` is the mean loss of an epoch that has just ended."""
        self.reported = time.monotonic()
        if self.tell is None or not self.processes.first:
            return
        state, plan = self.training.state, self.setup.plan
        done = state.step - self.first_step
        left = (self.reported - self.started) / done * (self.training.steps - state.step) if done else None
        epoch = min(state.epoch + 1, plan.epochs)
        loss = self.training.mean_loss() if ended is None else ended
        last = None if ended is None else state.epoch
        steps, figures = self.training.steps, dict(state.figures)
        self.tell(Report(epoch, plan.epochs, state.step, steps, loss, figures, left, note, last))


def _data_fingerprint(train: Pairs, val: Pairs | None) -> str:
    return f"{fingerprint(train)}-{fingerprint(val) if val is not None else 'none'}"


def _versions() -> dict[str, str]:
    found = {name: version(name) for name in ("torch", "transformers", "accelerate", "numpy", "safetensors")}
    return {"python": platform.python_version(), **found}


@contextmanager
def _own_generator() -> Iterator[None]:
    """Leave the caller's random numbers as they were."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices):
        yield
