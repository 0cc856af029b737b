"""fit: train a setup on pairs into a folder, and go on where an earlier training stopped."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal

from subtext import __version__
from subtext.data.dataset import Dataset
from subtext.data.fingerprint import fingerprint
from subtext.errors import CheckpointError, OutputError, SubtextError
from subtext.models.checkpoint import WEIGHTS, Record, library_versions, load_run, write_tensors
from subtext.neighbours.sampling import open_samplers
from subtext.training import folder
from subtext.training.frozen import working_model
from subtext.training.interrupt import Stop, listening
from subtext.training.journal import Journal
from subtext.training.loop import Training
from subtext.training.memory import open_memories
from subtext.training.options import Fitted, Report, RunOptions
from subtext.training.possible import require_possible
from subtext.training.processes import Processes
from subtext.training.setup import Setup
from subtext.training.snapshot import Snapshot, newest_snapshot, write_snapshot
from subtext.training.state import own_generator, put_weights

REPORT_EVERY = 0.25
"""Seconds between two reports of progress."""


def fit(
    setup: Setup,
    train: Dataset,
    val: Dataset | None,
    out: Path,
    *,
    record: Record,
    run: RunOptions,
    report: Callable[[Report], None] | None = None,
) -> Fitted:
    """Train a setup and leave a run folder: record, kept weights, assets, log and model card.

    train, val  pairs to learn from, and to select the epoch by; without val the last epoch is kept
    record      host, arguments, methods and data of the run; the plan, the seed and all that follows are filled in here
    report      hears how it goes, on the first process

    The same call with `resume` after any end, a kill among them, goes on from the newest whole checkpoint and ends with
    the same weights, to the bit on a CPU with the same number of threads. SIGINT and SIGTERM end it after the step
    under way, with a checkpoint. A training that is finished has no checkpoints any more, and `resume` opens it.

    Raises CheckpointError for a folder that holds something when not resuming, and when what is resumed was another
    training; OutputError when the folder cannot be written; TrainingError when it cannot be trained as asked, and when
    a loss or gradient is not finite, the last checkpoint staying as it is.
    """
    notes: list[str] = []
    if val is None and setup.plan.select != "last":
        setup = replace(setup, plan=replace(setup.plan, select="last"))
        notes.append("no validation pairs: the last epoch's weights are kept")
    samplers = None if setup.neighbours is None else open_samplers(setup.neighbours, train)
    processes = Processes(run.device)
    memories = open_memories(setup.memories, train, device=processes.device)
    notes += [*(() if samplers is None else samplers.notes), *memories.notes]
    graphs = ["" if samplers is None else samplers.fingerprint, memories.fingerprint]
    record = _described(record, setup, (train, val), run, graphs=graphs)
    with own_generator():
        found = folder.begun(out, record, resume=run.resume, unsaid=setup.unsaid)
        processes.wait()  # until all have looked: the first one writes from here on
        if found is not None and found.status == "finished":
            return _opened(setup, out, found, processes, report)
        notes += require_possible(setup, train, processes)
        if found is not None:
            # What it had reached stays told until there is more to tell.
            reached = ("best", "best_epoch", "epochs", "steps", "seconds")
            record = replace(record, **{name: getattr(found, name) for name in reached})
        snapshot, passed_over = newest_snapshot(out) if found is not None else (None, [])
        processes.wait()
        if processes.first:
            folder.enter(out, record, setup.model)
        processes.wait()
        if snapshot is not None:
            put_weights(setup.model, snapshot)
        setup.model.to(processes.device)
        processes.same_start(setup.model)
        cache = run.cache or out / folder.CACHE
        working, told = working_model(setup, (train, val), cache, run=run, processes=processes)
        training = Training(setup, working, train, val, options=run, processes=processes, out=out, samplers=samplers)
        training.remember(memories)
        taught = () if training.related is None else training.related.notes
        notes = list(dict.fromkeys([*notes, *taught, *passed_over, *told]))
        return _Fit(training, out, record=record, report=report, notes=notes).go(snapshot)


class _Fit:
    """A training carried out in its folder."""

    def __init__(
        self,
        training: Training,
        out: Path,
        *,
        record: Record,
        report: Callable[[Report], None] | None,
        notes: list[str],
    ) -> None:
        self.training, self.setup = training, training.setup
        self.processes, self.run = training.processes, training.options
        self.out, self.record, self.tell, self.notes = out, record, report, notes
        self.journal: Journal | None = None
        self.before, self.first_step = 0.0, 0
        self.started = self.reported = time.monotonic()

    def go(self, snapshot: Snapshot | None) -> Fitted:
        """Train to the end, or to where it is stopped; from a checkpoint, or from the beginning."""
        state = self.training.state
        if snapshot is not None:
            state.restore(snapshot)
            self.notes.append(f"going on from step {snapshot.step}")
        self.before, self.first_step = state.seconds, state.step
        if self.processes.first:
            length = snapshot.state["log"] if snapshot is not None else 0
            self.journal = Journal(self.out, length=length, tensorboard=self.run.tensorboard, step=state.step)
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
            with suppress(OutputError):
                self._write_record("stopped")
            raise
        finally:
            if self.journal is not None:
                self.journal.close()

    def _epoch(self, stop: Stop) -> bool:
        """Train and end one epoch; True when somebody asked to stop."""
        training, state = self.training, self.training.state
        last, every = state.step, self.run.checkpoint_every
        for asked in training.epoch_steps(stop):
            self._clock()
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
        if self.processes.first:
            self._keep(best)
        self._checkpoint()
        self._write_record("training")
        self._report(ended=loss)
        # The first process decides for all: one that left alone would leave the others waiting for it.
        return bool(self.processes.tell([float(stop.asked)])[0])

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
        if self.processes.first and not stopped:
            folder.tidy(self.out)
        self.processes.wait()
        return Fitted(run=self.out, model=self.setup.model.eval(), record=self.record, notes=tuple(self.notes))

    def _write_record(self, status: Literal["training", "finished", "stopped"]) -> None:
        """Write the record as of now, and the card."""
        state = self.training.state
        self.record = replace(
            self.record,
            status=status,
            best=state.watch.figures or {},
            best_epoch=state.watch.best_epoch,
            epochs=state.epoch,
            steps=state.step,
            seconds=round(state.seconds, 2),
        )
        if self.processes.first:
            folder.describe(self.out, self.record)

    def _write_kept(self) -> None:
        """model.safetensors: the best weights so far; those of now before the first epoch's end."""
        state = self.training.state
        weights = dict(self.setup.model.state_dict())
        weights |= {name: value for name, value in state.kept.items() if name in weights}
        write_tensors(self.out / WEIGHTS, weights)

    def _keep(self, best: bool) -> None:
        """Write weights that are the best so far; and, where it was asked for, the epoch as a run of its own."""
        state, every = self.training.state, self.run.keep_epochs
        if best:
            self._write_kept()
        if every and state.epoch % every == 0:
            with state.average.applied():
                folder.keep_epoch(self.out, self.setup.model, self.record, epoch=state.epoch, figures=state.figures)

    def _checkpoint(self) -> None:
        self.training.check()
        if self.processes.first and self.journal is not None:
            write_snapshot(self.out, self.training.state.snapshot(self.journal.settle()), keep=self.run.keep)
        self.processes.wait()

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
        if not (self.tell and self.processes.first):
            return
        state, plan, done = self.training.state, self.setup.plan, self.training.state.step - self.first_step
        left = (self.reported - self.started) / done * (self.training.steps - state.step) if done else None
        epoch = min(state.epoch + 1, plan.epochs)
        loss = self.training.mean_loss() if ended is None else ended
        last = None if ended is None else state.epoch
        steps, figures = self.training.steps, dict(state.figures)
        self.tell(Report(epoch, plan.epochs, state.step, steps, loss, figures, left, note, last))


def _opened(
    setup: Setup, out: Path, found: Record, processes: Processes, report: Callable[[Report], None] | None
) -> Fitted:
    """A training that is finished: its model; and what a kill in its last moment left behind is removed."""
    note = f"{out} is finished: nothing is left to train"
    try:
        setup.model.load_state_dict(load_run(out)[1])
    except RuntimeError as problem:
        raise CheckpointError(
            f"{out} needs the weights of its own recipe; {problem}; train in a new folder"
        ) from problem
    setup.model.to(processes.device).eval()
    if processes.first:
        folder.tidy(out)
        if report is not None:
            report(
                Report(found.epochs, setup.plan.epochs, found.steps, found.steps, float("nan"), found.best, note=note)
            )
    processes.wait()
    return Fitted(run=out, model=setup.model, record=found, notes=(note,))


def _described(
    record: Record, setup: Setup, sets: tuple[Dataset, Dataset | None], run: RunOptions, *, graphs: list[str]
) -> Record:
    """The record of what is about to be trained."""
    (train, val), model = sets, setup.model
    cached = "" if run.cache_precision == "float32" else run.cache_precision
    inputs = "-".join(
        filter(None, [model.image.input_spec.fingerprint, model.text.input_spec.fingerprint, cached, *graphs])
    )
    pairs = f"{fingerprint(train)}-{fingerprint(val) if val is not None else 'none'}"
    return replace(
        record,
        plan=asdict(setup.plan),
        phases=tuple(asdict(phase) for phase in setup.phases),
        data=replace(record.data, fingerprint=pairs, inputs=inputs),
        seed=run.seed,
        status="training",
        version=__version__,
        versions=library_versions(),
    )
