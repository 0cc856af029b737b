"""The folder of a training: whether it may be used, and what is written of the model into it.

    RUN/run.json, model.safetensors, assets/, README.md   the run, as every command opens it
    RUN/frozen.safetensors                                 while it trains: the weights that never learn, which neither
                                                           model.safetensors nor a checkpoint then has
    RUN/log.jsonl, tensorboard/                            `journal`
    RUN/checkpoints/, cache/                               while it trains: `checkpoints`, `frozen`
    RUN/tables/                                            scores of all pairs that sample weights read, epoch by epoch
    RUN/epochs/EPOCH/                                      runs, with `save_every_epochs`
    RUN/nan.json                                           the pairs of a batch whose loss was not finite
    RUN/start.json, start.npz, kept.json, kept.npz         validation before training, and with the kept weights, for
                                                           `subtext compare`, where epoch 0 takes part in the selection
    RUN/.lock                                              while it trains: locked against other trainings

At the end model.safetensors has all weights. Once the record says "finished", checkpoints, frozen.safetensors and cache
are not needed, and are removed. That record is written last: a kill before it leaves the checkpoints, from which the
training can be resumed; a kill after it leaves at worst some files that the next --resume removes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from subtext.data.atomic import write_text, written_to
from subtext.data.dataset import Dataset, fingerprint
from subtext.data.folder_handle import FolderHandle
from subtext.data.locks import acquire
from subtext.errors import CheckpointError, Setting, SubtextError
from subtext.evaluation import Result
from subtext.models.checkpoint import (
    ASSETS,
    FROZEN,
    RECORD,
    TABLES,
    WEIGHTS,
    Record,
    library_versions,
    load_record,
    load_run,
    read_tensors,
    save_assets,
    save_record,
    save_run,
    write_tensors,
)
from subtext.models.model import Model
from subtext.models.model_card import model_card
from subtext.text_helpers import listed
from subtext.training.checkpoints import CACHE, Snapshot, TrainState, clean, remove_checkpoints, wrong_model
from subtext.training.plan import RunConfig
from subtext.training.processes import Processes
from subtext.training.setup import Setup, TrainingProgress, TrainResult
from subtext.version import __version__, require_same_draws

CARD, EPOCHS, NOT_FINITE, LOCK = "README.md", "epochs", "nan.json", ".lock"
START, KEPT = "start", "kept"
"""Names of the validation before training, and of that with the kept weights."""


class OpenedFolder(FolderHandle):
    """The folder of a training as it was opened: what another folder at its path later holds is never touched."""

    @property
    def inner(self) -> Path:
        """The folder itself, wherever it is now; its path on a system that has no such name."""
        return self.path if self.through is None else self.through

    def require(self) -> None:
        """Require that the folder is still at its path.

        Raises:
            CheckpointError: If it was renamed, removed or replaced.
        """
        if not self.is_there:
            now = "something else is there now" if os.path.lexists(self._absolute) else "nothing is there now"
            raise CheckpointError(
                f"{self.path} needs to stay at its path while it trains; it was renamed or removed, and {now}, which "
                "stays as it is; if the run was renamed, go on with ",
                Setting("resume"),
                " and its new path",
            )


@contextmanager
def opened_folder(path: Path, processes: Processes) -> Iterator[OpenedFolder]:
    """Open the folder of a training and lock it against others; it is made where it is missing.

    The system frees the lock of a process that ends, however it ends.

    Args:
        path: The folder.
        processes: The first one makes and locks the folder for all.

    Yields:
        The folder. Errors of the block name it by its path, and say so where it was renamed, removed or replaced.

    Raises:
        CheckpointError: If another training is writing there, if the folder does not stay at its path, and if a process
            of several does not see it.
        OutputError: If the folder cannot be written, or its disk has no locks.
    """
    busy, lock = "", -1
    failed: SubtextError | None = None
    if processes.first:
        try:
            with written_to(path):
                path.mkdir(parents=True, exist_ok=True)
            lock, busy = _locked(path)
        except SubtextError as problem:
            failed = problem
    outcome = processes.broadcast([float(bool(busy)) + 2 * float(failed is not None)])[0]
    if outcome:
        raise failed or CheckpointError(
            f"{path} takes one training at a time; {busy or 'another process is writing'}; wait until it is done, or "
            "train in another folder"
        )
    if not processes.first and not (path / LOCK).exists():
        raise CheckpointError(
            f"process {processes.rank + 1} of {processes.count} needs {path}, where the first process writes, and does "
            "not see its files; give ",
            Setting("out"),
            " a folder on a disk that all machines share",
        )
    opened = OpenedFolder(path)
    try:
        yield opened
        opened.require()
    except (SubtextError, OSError) as problem:
        opened.require()
        if isinstance(problem, SubtextError):
            problem.args = tuple(opened.named(part) if isinstance(part, str) else part for part in problem.args)
        raise
    finally:
        if processes.first:
            with suppress(OSError):
                os.unlink(LOCK, dir_fd=opened.descriptor)
            os.close(lock)
        opened.close()


def _locked(path: Path) -> tuple[int, str]:
    """The descriptor of the locked file, or who has the lock."""
    file = path / LOCK
    while True:
        with ExitStack() as closing:
            with written_to(file):
                descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
            closing.callback(os.close, descriptor)
            busy = acquire(
                descriptor, file, verb="subtext train", advice="train in a folder on another disk, such as a local one"
            )
            if busy:
                return -1, busy
            # A training that ended meanwhile has removed the file that was opened here.
            if file.exists() and os.path.samestat(file.stat(), os.fstat(descriptor)):
                closing.pop_all()
                return descriptor, ""


def starting_record(
    record: Record, setup: Setup, train: Dataset, val: Dataset | None, *, run: RunConfig, inputs: Sequence[str]
) -> Record:
    """The record of a training that is about to run.

    Args:
        record: Model, arguments, methods and data.
        setup: Its plan and phases.
        train: Training pairs.
        val: Validation pairs; None for none.
        run: Its seed, and the precision of the cache.
        inputs: Fingerprints of what methods read beside the pairs.

    Returns:
        The record with plan, fingerprints, seed and versions.
    """
    every_input = [
        setup.model.image.input_spec.fingerprint,
        setup.model.text.input_spec.fingerprint,
        "" if run.cache_precision == "float32" else run.cache_precision,
        *inputs,
    ]
    pairs = f"{fingerprint(train)}-{'none' if val is None else fingerprint(val)}"
    return replace(
        record,
        plan=asdict(setup.plan),
        phases=tuple(asdict(phase) for phase in setup.phases),
        fingerprint=pairs,
        inputs="-".join(filter(None, every_input)),
        seed=run.seed,
        status="training",
        version=__version__,
        versions=library_versions(),
    )


def start_run(out: Path, record: Record, *, resume: bool) -> Record | None:
    """Check that a training may write into a folder.

    Args:
        out: The folder.
        record: Of the training that is to run.
        resume: Whether a training that is there goes on.

    Returns:
        The record of the training that goes on; None where a new one begins.

    Raises:
        CheckpointError: If the folder holds something and `resume` is False, holds things but no training, or holds the
            training of another record.
    """
    if not out.exists() or (out.is_dir() and all(path.name == LOCK for path in out.iterdir())):
        return None
    if not out.is_dir():
        raise CheckpointError(Setting("out"), f" needs a folder; {out} is a file; name another")
    if not resume:
        raise CheckpointError(
            Setting("out"),
            f" needs a new or an empty folder; {out} holds something; name another, or go on with ",
            Setting("resume"),
        )
    if not (out / RECORD).is_file():
        if any(path.name != CACHE and not path.name.startswith(".") for path in out.iterdir()):
            raise CheckpointError(
                Setting("resume"), f" needs a run or an empty folder; {out} holds other things and no {RECORD}"
            )
        return None
    earlier = load_record(out)
    require_same_draws([(str(out), earlier.draws), ("what --resume trains", record.draws)], CheckpointError)
    if differences := earlier.differences(record):
        raise CheckpointError(
            Setting("resume"),
            f" needs the training that {out} began; this one differs in "
            f"{listed(differences, 5, conjunction=', and')} (there -> here); give the same options, or train in a new "
            "folder",
        )
    return earlier


def with_results(record: Record, earlier: Record) -> Record:
    """The record of a resumed training, with the results so far: they stay until there are new ones.

    Args:
        record: Of the training.
        earlier: What its folder has.

    Returns:
        The record with the results of the earlier one.
    """
    names = ("best", "best_epoch", "start", "epochs", "steps", "seconds")
    return replace(record, **{name: getattr(earlier, name) for name in names})


def prepare_folder(out: Path, model: Model, record: Record) -> None:
    """Write what makes a folder a run, before the first step.

    Args:
        out: The folder; it exists.
        model: Its assets are written where there are none.
        record: Written first: a folder without a record is not recognised as a run by the next --resume.

    Raises:
        OutputError: If the folder cannot be written.
    """
    clean(out)
    (out / NOT_FINITE).unlink(missing_ok=True)
    save_record(out, record)
    if not (out / ASSETS).is_dir():
        save_assets(out, model)


def load_weights(out: Path, model: Model, snapshot: Snapshot | None) -> None:
    """Load the weights from which a training starts: those that never learn, and those of the checkpoint.

    Args:
        out: The run's folder.
        model: As the recipe made it.
        snapshot: The checkpoint; None where a training begins.

    Raises:
        CheckpointError: If they are of another model.
    """
    present = model.state_dict()
    saved = {name: present[name] for name in model.installed}
    saved |= read_tensors(out / FROZEN) if (out / FROZEN).is_file() else {}
    try:
        saved |= {} if snapshot is None else snapshot.tensors["weights"]
        model.load_state_dict(saved, strict=snapshot is not None)
    except (RuntimeError, KeyError) as problem:
        raise wrong_model(0 if snapshot is None else snapshot.step, problem) from problem


def open_finished(
    setup: Setup,
    opened: OpenedFolder,
    record: Record,
    processes: Processes,
    report: Callable[[TrainingProgress], None] | None,
) -> TrainResult:
    """Open the run of a finished training, and remove what a kill in its last moment left behind.

    Args:
        setup: As the recipe made it.
        opened: The run's folder.
        record: Of the run.
        processes: The first one removes and reports.
        report: Called once.

    Returns:
        The model with its kept weights.

    Raises:
        CheckpointError: If the weights are of another recipe.
    """
    note = f"{opened.path} is finished: nothing is left to train"
    try:
        present = setup.model.state_dict()
        weights = load_run(opened.inner)[1]
        setup.model.load_state_dict({name: present[name] for name in setup.model.installed} | weights)
    except RuntimeError as problem:
        raise CheckpointError(
            f"{opened.path} needs the weights of its own recipe; {problem}; train in a new folder"
        ) from problem
    setup.model.to(processes.device).eval()
    if processes.first:
        remove_checkpoints(opened.inner)
        if report is not None:
            epochs, steps = setup.plan.epochs, record.steps
            report(TrainingProgress(record.epochs, epochs, steps, steps, float("nan"), record.best, note=note))
    processes.wait()
    return TrainResult(run=opened.path, model=setup.model, record=record, notes=(note,))


class RunFolder:
    """What the first process writes while a training runs.

    Args:
        opened: The run's folder.
        record: Of the training; each `write_record` brings it up to date.
        state: The training.
        first: Whether this is the first process; the others write nothing.
    """

    def __init__(self, opened: OpenedFolder, record: Record, state: TrainState, *, first: bool) -> None:
        self.opened, self.record = opened, record
        self._state, self._first = state, first

    @property
    def path(self) -> Path:
        """The run's folder, to be written into; it was at its path just now."""
        self.opened.require()
        return self.opened.inner

    def write_record(self, status: Literal["training", "finished", "stopped"]) -> None:
        """Write the model card, then the record, with the results so far.

        Args:
            status: How far the rest of the folder can be trusted.
        """
        state = self._state
        self.record = replace(
            self.record,
            status=status,
            best=state.stopping.figures or {},
            best_epoch=state.stopping.best_epoch,
            start=state.stopping.start or {},
            epochs=state.epoch,
            steps=state.step,
            seconds=round(state.seconds, 2),
        )
        if self._first:
            write_text(self.path / CARD, model_card(self.record))
            save_record(self.path, self.record)

    def write_frozen(self) -> None:
        """Write the weights that never learn, once."""
        frozen = self._frozen()
        if self._first and frozen and not (self.path / FROZEN).is_file():
            write_tensors(self.path / FROZEN, frozen)

    def write_weights(self, *, complete: bool) -> None:
        """Write model.safetensors: the best weights so far, or the present ones before the end of the first epoch.

        Args:
            complete: With those that never learn, which otherwise are in a file of their own.
        """
        best, weights = self._state.kept, self._state.weights(changing=True, keep=self._first)
        weights = {name: best.get(name, value) for name, value in weights.items()}
        weights |= self._frozen() if complete else {}
        if self._first:
            write_tensors(self.path / WEIGHTS, weights)

    def _frozen(self) -> dict[str, Tensor]:
        """The weights that never learn, but those that an installed package holds."""
        installed = getattr(self._state.model, "installed", {})
        weights = self._state.weights(changing=False, keep=self._first)
        return {name: it for name, it in weights.items() if name not in installed}

    def write_epoch(self) -> None:
        """Write the model of the epoch that has just ended as a run of its own."""
        state = self._state
        with state.average.applied():
            weights = state.weights(changing=True, keep=self._first) | self._frozen()
            if not self._first:
                return
            folder = self.path / EPOCHS / str(state.epoch)
            with written_to(folder):
                folder.mkdir(parents=True, exist_ok=True)
            results: dict[str, Any] = {"best": dict(state.figures), "best_epoch": state.epoch, "epochs": state.epoch}
            save_run(folder, state.model, replace(self.record, status="finished", **results), weights)

    def write_table(self, table: Mapping[str, Tensor]) -> None:
        """Write what sample weights read of every pair in the epoch that begins.

        Args:
            table: Name -> values. Lists of candidates are left out: one number a pair is worth a file.
        """
        scores = {name: value for name, value in table.items() if value.ndim == 1}
        if self._first and scores:
            write_tensors(self.path / TABLES / f"epoch-{self._state.epoch + 1:04d}.safetensors", scores)

    def write_validation(self, result: Result, *, start: bool, keep: bool) -> None:
        """Write a validation for `subtext compare`.

        Args:
            result: The validation.
            start: Whether it was before training.
            keep: Whether its weights are kept.
        """
        for name, due in ((START, start), (KEPT, keep)):
            if due:
                result.save(self.path / f"{name}.json")
                result.save_queries(self.path / f"{name}.npz")
