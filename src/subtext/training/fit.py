"""fit: train a setup on pairs into a folder, and go on where an earlier training stopped.

The folder of a training: what has to stand in it, what is written into it, and what is left at the end.

While it trains, a run has checkpoints and perhaps cached outputs of its frozen encoders. Once its record says
"finished" neither is wanted again and both are removed; that record is written last, so a kill before it leaves the
checkpoints to go on from, and a kill after it leaves at worst some files that the next --resume removes.

Ctrl-C and SIGTERM ask a training to stop at the next step; a second Ctrl-C does not ask.

RUN/log.jsonl: one line of JSON per logged step and per epoch; and TensorBoard's files where they are asked for.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from subtext.data.atomic import write_text, written_to
from subtext.data.dataset import Dataset, fingerprint
from subtext.errors import CheckpointError, OutputError, RequirementError, SubtextError
from subtext.models.checkpoint import (
    ASSETS,
    RECORD,
    WEIGHTS,
    Record,
    library_versions,
    load_record,
    load_run,
    save_assets,
    save_record,
    save_run,
    write_tensors,
)
from subtext.models.checkpoint import fingerprint as weights_fingerprint
from subtext.models.feature_cache import cached_branch, refusal, write_cache
from subtext.models.model import Branch, Model
from subtext.models.model_card import model_card
from subtext.neighbours.sampling import open_samplers
from subtext.report.progress import Estimate
from subtext.training.loop import NOT_FINITE, Stop, Training, listening
from subtext.training.memory import open_memories
from subtext.training.phases import Freezer
from subtext.training.plan_validation import validate_plan
from subtext.training.processes import Processes
from subtext.training.setup import Fitted, Report, RunOptions, Setup
from subtext.training.snapshot import FOLDER, Snapshot, clean, newest_snapshot, write_snapshot
from subtext.training.state import own_generator, put_weights
from subtext.version import __version__

LOG, BOARD = "log.jsonl", "tensorboard"

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
    record      model, arguments, methods and data of the run; the plan, the seed and the results are filled in here
    report      called with the progress, on the first process

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
        earlier = begun(out, record, resume=run.resume, defaults_before=setup.defaults_before)
        processes.wait()  # until all have looked: the first one writes from here on
        if earlier is not None and earlier.status == "finished":
            return _opened(setup, out, earlier, processes, report)
        notes += validate_plan(setup, train, processes)
        if earlier is not None:
            # What it had reached stays told until there is more to tell.
            reached = ("best", "best_epoch", "epochs", "steps", "seconds")
            record = replace(record, **{name: getattr(earlier, name) for name in reached})
        snapshot, damaged = newest_snapshot(out) if earlier is not None else (None, [])
        processes.wait()
        if processes.first:
            enter(out, record, setup.model)
        processes.wait()
        if snapshot is not None:
            put_weights(setup.model, snapshot)
        setup.model.to(processes.device)
        processes.same_start(setup.model)
        cache = run.cache or out / CACHE
        working, cache_notes = working_model(setup, (train, val), cache, run=run, processes=processes)
        training = Training(setup, working, train, val, options=run, processes=processes, out=out, samplers=samplers)
        training.remember(memories)
        relevance_notes = () if training.related is None else training.related.notes
        notes = list(dict.fromkeys([*notes, *relevance_notes, *damaged, *cache_notes]))
        return _Fit(training, out, record=record, report=report, notes=notes).go(snapshot)


def working_model(
    setup: Setup, sets: Sequence[Dataset | None], cache: Path, *, run: RunOptions, processes: Processes
) -> tuple[Model, list[str]]:
    """The model to train, which shares every learning module with the recipe's, and what there is to say about it.

    An encoder without any weight that learns in any epoch is run once over the pairs and its outputs are read from the
    folder `cache`; where its Input augments it is run every time.
    """
    freezer, notes = Freezer(setup.model), []
    present = [pairs for pairs in sets if pairs is not None]
    branches: dict[str, Branch] = {}
    for modality in ("image", "text"):
        branch: Branch = getattr(setup.model, modality)
        branches[modality] = branch
        if not freezer.never_learns(branch, setup.plan, setup.phases):
            continue
        if modality == "text" and setup.rewriting is not None:
            notes.append("the frozen text encoder runs at every step: it reads texts that are made there")
            continue
        if modality == "image" and setup.mixing is not None:
            notes.append("the frozen image encoder runs at every step: images are mixed, and so others every time")
            continue
        items = [(pairs.images if modality == "image" else pairs.texts, pairs.root) for pairs in present]
        if (reason := refusal(branch, items)) is not None:
            notes.append(f"the frozen {modality} encoder runs at every step: {reason}")
            continue
        weights = weights_fingerprint(branch.encoder.state_dict())
        if processes.first:
            write_cache(branch, items, cache, weights=weights, precision=run.cache_precision, device=processes.device)
        processes.wait()
        branches[modality] = cached_branch(branch, items, cache, weights=weights, precision=run.cache_precision)
        notes.append(f"the frozen {modality} encoder was run once; its outputs are read from {cache}")
    if not notes or branches == {"image": setup.model.image, "text": setup.model.text}:
        return setup.model, notes
    return Model(branches["image"], branches["text"], setup.model.similarity), notes


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
        self.out, self.record, self.report_to, self.notes = out, record, report, notes
        self.journal: Journal | None = None
        self.before, self.first_step = 0.0, 0
        self.started = self.reported = time.monotonic()
        self.estimate = Estimate()

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
        for stop_now in training.epoch_steps(stop):
            self._clock()
            if state.step // self.run.log_every > last // self.run.log_every:
                self._log("step")
            if stop_now or (every and state.step // every > last // every):
                self._checkpoint()
            if stop_now:
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
        return bool(self.processes.broadcast([float(stop.requested)])[0])

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
            tidy(self.out)
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
            describe(self.out, self.record)

    def _write_kept(self) -> None:
        """model.safetensors: the best weights so far; those of now before the first epoch's end."""
        state = self.training.state
        weights = dict(self.setup.model.state_dict())
        weights |= {name: value for name, value in state.kept.items() if name in weights}
        write_tensors(self.out / WEIGHTS, weights)

    def _keep(self, best: bool) -> None:
        """Write weights that are the best so far; and, where it was asked for, the epoch as a run of its own."""
        state, every = self.training.state, self.run.save_every_epochs
        if best:
            self._write_kept()
        if every and state.epoch % every == 0:
            with state.average.applied():
                keep_epoch(self.out, self.setup.model, self.record, epoch=state.epoch, figures=state.figures)

    def _checkpoint(self) -> None:
        self.training.check()
        if self.processes.first and self.journal is not None:
            write_snapshot(
                self.out, self.training.state.snapshot(self.journal.settle()), keep=self.run.keep_checkpoints
            )
        self.processes.wait()

    def _clock(self) -> None:
        self.training.state.seconds = self.before + time.monotonic() - self.started

    def _speed(self) -> float:
        """Pairs per second, over this call."""
        steps = self.training.state.step - self.first_step
        return steps * self.setup.plan.batch_size / max(time.monotonic() - self.started, 1e-9)

    def _log(self, event: str) -> None:
        if self.journal is not None:
            state = self.training.state
            figures = {"figures": state.figures} if event == "epoch" else {}
            times = {"pairs_per_second": round(self._speed(), 1), "seconds": round(state.seconds, 2)}
            self.journal.write(event, {**self.training.line(), **times, **figures})

    def _report(self, *, note: str | None = None, ended: float | None = None) -> None:
        """Tell how it goes; `ended` is the mean loss of an epoch that has just ended."""
        self.reported = time.monotonic()
        if not (self.report_to and self.processes.first):
            return
        state, plan = self.training.state, self.setup.plan
        seconds_left = self.estimate(state.step, self.training.steps)
        epoch = min(state.epoch + 1, plan.epochs)
        loss = self.training.mean_loss() if ended is None else ended
        last = None if ended is None else state.epoch
        steps, figures = self.training.steps, dict(state.figures)
        self.report_to(Report(epoch, plan.epochs, state.step, steps, loss, figures, seconds_left, note, last))


def _opened(
    setup: Setup, out: Path, record: Record, processes: Processes, report: Callable[[Report], None] | None
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
        tidy(out)
        if report is not None:
            report(
                Report(
                    record.epochs, setup.plan.epochs, record.steps, record.steps, float("nan"), record.best, note=note
                )
            )
    processes.wait()
    return Fitted(run=out, model=setup.model, record=record, notes=(note,))


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


CACHE, CARD, EPOCHS = "cache", "README.md", "epochs"

SHOWN = 5
"""How many differences from the training that is to go on a sentence has room for."""


def begun(
    out: Path, record: Record, *, resume: bool, defaults_before: Sequence[Mapping[str, object]] = ()
) -> Record | None:
    """The record of the training that is to go on in a folder; None where one begins.

    defaults_before  what holds for options that an older record lacks: `Record.differences`

    Raises CheckpointError when the folder holds something and `resume` is False, holds things but no training, or
    holds the training of another record.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return None
    if not out.is_dir():
        raise CheckpointError(f"--out needs a folder; {out} is a file; name another")
    if not resume:
        raise CheckpointError(
            f"--out needs a new or an empty folder; {out} holds something; name another, or go on with --resume"
        )
    if not (out / RECORD).is_file():
        if any(path.name != CACHE and not path.name.startswith(".") for path in out.iterdir()):
            raise CheckpointError(f"--resume needs a run or an empty folder; {out} holds other things and no {RECORD}")
        return None
    earlier = load_record(out)
    if differences := earlier.differences(record, defaults_before):
        suffix = f", and {len(differences) - SHOWN} more" if len(differences) > SHOWN else ""
        raise CheckpointError(
            f"--resume needs the training that {out} began; this one differs in "
            f"{', '.join(differences[:SHOWN])}{suffix} (there -> here); give the same options, or train in a new folder"
        )
    return earlier


def enter(out: Path, record: Record, model: Model) -> None:
    """Make the folder ready to be trained in."""
    with written_to(out):
        out.mkdir(parents=True, exist_ok=True)
    clean(out)
    (out / NOT_FINITE).unlink(missing_ok=True)
    # The record comes first: a folder without one is not known as a run by the next --resume.
    save_record(out, record)
    if not (out / ASSETS).is_dir():
        save_assets(out, model)


def describe(out: Path, record: Record) -> None:
    """Write the card, then the record, which says what is to be believed."""
    write_text(out / CARD, model_card(record))
    save_record(out, record)


def keep_epoch(out: Path, model: Model, record: Record, *, epoch: int, figures: Mapping[str, float]) -> None:
    """Write OUT/epochs/EPOCH: a run that every command opens, with the weights of now and their validation figures."""
    folder = out / EPOCHS / str(epoch)
    with written_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
    save_run(folder, model, replace(record, status="finished", epochs=epoch, best=dict(figures), best_epoch=epoch))


def tidy(out: Path) -> None:
    """Remove what a finished training has no more use for."""
    clean(out)
    for name in (FOLDER, CACHE):
        shutil.rmtree(out / name, ignore_errors=True)


@runtime_checkable
class Board(Protocol):
    """What is used of TensorBoard's writer."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        """One number at a step."""

    def close(self) -> None:
        """Write what is left."""


class Journal:
    """Lines that say how a training went.

    When a training goes on, the log is cut back to what it was at the checkpoint: no step stands in it twice.
    Everything here raises OutputError when the file cannot be written.
    """

    def __init__(self, run: Path, *, length: int = 0, tensorboard: bool = False, step: int = 0) -> None:
        self._path = run / LOG
        with written_to(self._path):
            self._path.touch()
            if self._path.stat().st_size > length:
                os.truncate(self._path, length)
            self._file = self._path.open("a", encoding="utf-8")
        self._board = _board(run / BOARD, step) if tensorboard else None

    def write(self, event: str, values: Mapping[str, Any]) -> None:
        """Append {"event": ..., **values}; finite numbers under "step" go to TensorBoard too."""
        with written_to(self._path):
            self._file.write(json.dumps({"event": event, **values}, ensure_ascii=False) + "\n")
            self._file.flush()
        if self._board is not None and "step" in values:
            for name, value in _numbers(values):
                self._board.add_scalar(f"{event}/{name}", value, int(values["step"]))

    def settle(self) -> int:
        """Flush to the disk; gives the length in bytes, which a checkpoint remembers."""
        with written_to(self._path):
            os.fsync(self._file.fileno())
            return self._file.tell()

    def close(self) -> None:
        """Finish both."""
        with written_to(self._path):
            self._file.close()
        if self._board is not None:
            self._board.close()


def _numbers(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    numbers: list[tuple[str, float]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            numbers += _numbers(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool) and name != "step":
            numbers.append((prefix + name, float(value)))
    return numbers


def _board(folder: Path, step: int) -> Board:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as problem:
        raise RequirementError(
            "--tensorboard needs the package tensorboard; it is not installed; pip install 'subtext[tensorboard]'"
        ) from problem
    return SummaryWriter(str(folder), purge_step=step or None)
