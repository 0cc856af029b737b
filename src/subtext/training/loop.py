"""A training from top to bottom: `fit` prepares it, and `Trainer.run` is the loop of epochs and steps.

Its state between two steps is a pure function of the past, so that a training that was stopped or killed and is resumed
ends with the same weights. What stands in the folder of a run: `run_folder`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subtext.data.batches import read_ahead
from subtext.data.dataset import Dataset
from subtext.data.inputs import Draw
from subtext.errors import CheckpointError, OutputError, SubtextError
from subtext.evaluation import embed_pairs
from subtext.models.checkpoint import Record
from subtext.models.model import Model
from subtext.training.bank import BankSet
from subtext.training.checkpoints import (
    CACHE,
    Snapshot,
    TrainState,
    newest_snapshot,
    remove_checkpoints,
    write_snapshot,
)
from subtext.training.checks import not_finite, validate_plan
from subtext.training.frozen import working_model
from subtext.training.journal import Journal, Progress
from subtext.training.optimiser import FreezeSchedule, WeightAverage, build_optimiser, lr_factor, set_lr, stage
from subtext.training.plan import RunConfig
from subtext.training.processes import Processes, clip_gradients
from subtext.training.run_folder import (
    NOT_FINITE,
    OpenedFolder,
    RunFolder,
    load_weights,
    open_finished,
    opened_folder,
    prepare_folder,
    start_run,
    starting_record,
    with_results,
)
from subtext.training.setup import Setup, TrainingProgress, TrainResult
from subtext.training.sharding import copy_to_divide, divide
from subtext.training.signals import interruptible
from subtext.training.step import ExtraReader, Stepper, StepReader, batches_of
from subtext.training.stopping import EarlyStopping
from subtext.training.validation import Validator

CHECK_EVERY = 25
"""Steps between two checks for a number that is not finite, on a device where checking means waiting."""
REHEARSED = 32
"""Pairs of the step that a rehearsal tries."""


def fit(
    setup: Setup,
    train: Dataset,
    val: Dataset | None,
    out: Path,
    *,
    record: Record,
    run: RunConfig,
    report: Callable[[TrainingProgress], None] | None = None,
    callbacks: Sequence[object] = (),
) -> TrainResult:
    """Train a setup and leave a run folder: record, kept weights, assets, log and model card.

    The same call with `resume` after any end, a kill among them, goes on from the newest complete checkpoint and ends
    with the same weights, to the bit on a CPU with the same number of threads. SIGINT and SIGTERM end it after the step
    under way, with a checkpoint. A finished training has no checkpoints any more, and `resume` opens it.

    Args:
        setup: Model, objective and plan, as a recipe made them.
        train: Pairs to learn from.
        val: Pairs to select the epoch by; None keeps the last epoch.
        out: The run's folder.
        record: Model, arguments, methods and data of the run; the plan, the seed and the results are filled in here.
        run: How it is run.
        report: Called with the progress, on the first process.
        callbacks: Their `on_step` and `on_epoch` are called with lines of the log, on the first process.

    Returns:
        The model with its kept weights, the record and notes.

    Raises:
        CheckpointError: For a folder that is not empty when not resuming, when what is resumed was another training,
            when another training writes there, and when the folder is renamed, removed or replaced meanwhile.
        OutputError: If the folder cannot be written.
        TrainingError: If it cannot be trained by this plan, and if a loss or gradient is not finite or a process of
            several is lost, the last checkpoint staying as it is.
    """
    processes = Processes(run.device)
    start = prepared(setup, train, val, record=record, run=run, device=processes.device)
    setup, record, notes = start.setup, start.record, list(start.notes)
    extras, banks = start.extras, start.banks
    # The caller's random numbers stay as they were.
    with processes.together(), torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        earlier = start_run(out, record, resume=run.resume)
        processes.wait()  # Until all have looked: the first one writes from here on.
        if earlier is None or earlier.status != "finished":
            notes += validate_plan(setup, train, processes, shard_weights=run.shard_weights)
        with opened_folder(out, processes) as opened:
            # Once more: until the folder was locked, another training may have written there.
            earlier = start_run(opened.inner, record, resume=run.resume)
            if earlier is not None and earlier.status == "finished":
                return open_finished(setup, opened, earlier, processes, report)
            snapshot: Snapshot | None = None
            if earlier is not None:
                record = with_results(record, earlier)
                snapshot, damaged = newest_snapshot(opened.inner)
                notes += damaged
            processes.wait()
            if processes.first:
                prepare_folder(opened.inner, setup.model, record)
            processes.wait()
            # Before frozen encoders are run: their pretrained weights may be new.
            load_weights(opened.inner, setup.model, snapshot)
            inner = setup
            if run.shard_weights:
                # What is divided stays so: the caller gets the model that was copied, with the kept weights.
                inner = replace(setup, model=copy_to_divide(setup.model))
            else:
                setup.model.to(processes.device)
            processes.same_start(inner.model)
            working, cache_notes = working_model(
                inner, (train, val), opened.inner / CACHE, run=run, processes=processes
            )
            if run.shard_weights:
                divide(working, inner, processes)
                inner.model.to(processes.device)
            trainer = Trainer(inner, working, train, val, opened, run, processes, extras, banks, record=record)
            notes += [*trainer.notes, *map(opened.named, cache_notes)]
            notes = list(dict.fromkeys(notes))
            result = trainer.run(snapshot, report=report, notes=notes, callbacks=callbacks)
            weights = trainer.state.weights(changing=True) | trainer.state.kept
            setup.model.load_state_dict(weights, strict=False)
            return replace(result, model=setup.model.eval())


@dataclass(frozen=True)
class Prepared:
    """A training before its first step: what `fit` trains and what `rehearse` tries.

    Attributes:
        setup: Model, objective and plan, as they are trained.
        record: Of the training that is about to run.
        extras: What methods read beside every batch.
        banks: What methods keep between steps.
        notes: Sentences for the user.
    """

    setup: Setup
    record: Record
    extras: list[ExtraReader]
    banks: BankSet
    notes: tuple[str, ...]


def prepared(
    setup: Setup, train: Dataset, val: Dataset | None, *, record: Record, run: RunConfig, device: torch.device
) -> Prepared:
    """Open what a training reads; raises what methods refuse.

    Args:
        setup: As a recipe made it.
        train: Pairs to learn from.
        val: Pairs to select the epoch by; None for none.
        record: Of the run.
        run: How it is run.
        device: Of the banks.

    Returns:
        The training before its first step.
    """
    notes: list[str] = []
    if val is None and setup.plan.select != "last":
        setup = replace(setup, plan=replace(setup.plan, select="last"))
        notes.append("no validation pairs: the last epoch's weights are kept")
    extras = [source.open(train) for source in setup.extras]
    banks = BankSet([source.open(train, device=device) for source in setup.banks])
    notes += [note for extra in extras for note in extra.notes(setup.model)]
    notes += [note for bank in banks.each for note in bank.notes]
    inputs = [*(extra.fingerprint for extra in extras), *(bank.fingerprint for bank in banks.each)]
    record = starting_record(record, setup, train, val, run=run, inputs=inputs)
    return Prepared(setup, record, extras, banks, tuple(notes))


def rehearse(
    setup: Setup, train: Dataset, val: Dataset | None, out: Path, *, record: Record, run: RunConfig
) -> tuple[str, ...]:
    """Refuse whatever `fit` would refuse, without training: the checks of `fit`, and the loss of some pairs.

    Nothing is written, and the weights stay as they are.

    Args:
        setup: As for `fit`.
        train: As for `fit`.
        val: As for `fit`.
        out: As for `fit`.
        record: As for `fit`.
        run: As for `fit`.

    Returns:
        What `fit` would note before its first step.

    Raises:
        SubtextError: What `fit` would raise before its first step, or in it.
    """
    processes = Processes(run.device)
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        start = prepared(setup, train, val, record=record, run=run, device=processes.device)
        start_run(out, start.record, resume=run.resume)
        checked = validate_plan(start.setup, train, processes, shard_weights=run.shard_weights)
        notes = (*start.notes, *checked)
        setup, banks = start.setup, start.banks
        relevance = None if setup.relevance is None else setup.relevance.open(train)
        device = next((weight.device for weight in setup.model.parameters()), torch.device("cpu"))
        was_training, buffers = setup.model.training, {n: it.clone() for n, it in setup.model.named_buffers()}
        stepper = Stepper(setup.model.to(processes.device).train(), setup.objective, setup.plan, processes, banks)
        reader = StepReader(
            setup.model,
            train,
            Draw(run.seed, 0),
            together=setup.plan.caption_sampling == "together",
            processes=processes.count,
            rank=processes.rank,
            related=relevance,
            mixing=setup.mixing,
            extras=start.extras,
        )
        rows = batches_of(train, setup.plan, epoch=0, seed=run.seed, processes=processes.count)[0]
        try:
            for count in (REHEARSED, len(rows)):
                try:
                    stepper(
                        reader(rows[:count]).to(processes.device), banks.epoch(0, run.seed), name="step 0", share=1.0
                    )
                    break
                except SubtextError:
                    # A few pairs may be too few for what a batch is enough for.
                    if count >= len(rows):
                        raise
        finally:
            setup.model.zero_grad(set_to_none=True)
            with torch.no_grad():
                for name, buffer in setup.model.named_buffers():
                    buffer.copy_(buffers[name])
            setup.model.to(device).train(was_training)
    return notes


class Trainer:
    """A training: epochs of steps, and validation after each.

    Args:
        setup: As the recipe made it; its model's weights are what is saved.
        working: The model that is trained: the same modules, or cached outputs in place of frozen encoders.
        train: Pairs to learn from.
        val: Pairs to select the epoch by; None for none.
        opened: The run's folder.
        options: How it is run.
        processes: This process among others.
        extras: What methods read beside every batch.
        banks: What methods keep between steps.
        record: Of the run.

    Attributes:
        notes: Sentences for the user before it begins.
        state: The training between two steps.
        steps: Of the full training.
    """

    def __init__(
        self,
        setup: Setup,
        working: Model,
        train: Dataset,
        val: Dataset | None,
        opened: OpenedFolder,
        options: RunConfig,
        processes: Processes,
        extras: Sequence[ExtraReader],
        banks: BankSet,
        *,
        record: Record,
    ) -> None:
        self.setup, self.plan, self.options, self.processes = setup, setup.plan, options, processes
        self.working, self.train, self.extras = working, train, extras
        self.relevance = None if setup.relevance is None else setup.relevance.open(train)
        self.notes = () if self.relevance is None else tuple(self.relevance.notes)
        self.freezer = FreezeSchedule(working)
        self.stepper = Stepper(working, setup.objective, setup.plan, processes, banks)
        learning, named = self.freezer.ever_learning(setup.plan, setup.phases), working.named_parameters
        changing = {name for name, weight in named(remove_duplicate=False) if id(weight) in learning}
        changing |= {name for name, _ in working.named_buffers(remove_duplicate=False)}
        self.state = TrainState(
            model=setup.model,
            changing=frozenset(changing),
            optimiser=build_optimiser(working, setup.plan),
            average=WeightAverage(working, setup.plan),
            scaler=self.stepper.scaler,
            stopping=EarlyStopping(larger_is_better=val is not None and setup.plan.select != "loss"),
            totals=torch.zeros(len(setup.objective.parts) + 2, dtype=torch.float64, device=processes.device),
            banks=banks,
        )
        self.steps = len(self.batches(0)) * setup.plan.epochs
        self.folder = RunFolder(opened, record, self.state, first=processes.first)
        about = {"model": {"model": record.model, "seed": options.seed}, "split": record.data.val_split}
        self.validator = Validator(
            working,
            val,
            setup,
            self.stepper,
            processes,
            about=about,
            seed=options.seed,
            workers=options.workers,
            together=options.shard_weights,
        )
        self.first_bad = torch.full((), -1, dtype=torch.int64, device=processes.device)

    def run(
        self,
        snapshot: Snapshot | None = None,
        *,
        report: Callable[[TrainingProgress], None] | None = None,
        notes: Sequence[str] = (),
        callbacks: Sequence[object] = (),
    ) -> TrainResult:
        """Train to the end, or until a signal.

        Args:
            snapshot: The checkpoint to go on from; None to begin.
            report: Called with the progress, on the first process.
            notes: Reported before the first step.
            callbacks: As for `fit`.

        Returns:
            The model that was trained, with its last weights, the record and all notes.

        Raises:
            OutputError: If the folder cannot be written.
            TrainingError: If a loss or gradient is not finite.
        """
        state, plan, run, folder, first = self.state, self.plan, self.options, self.folder, self.processes.first
        messages = list(notes)
        if snapshot is not None:
            state.restore(snapshot)
            messages.append(f"going on from step {snapshot.step}")
        on_step, on_epoch = (
            [getattr(each, name) for each in callbacks if first and hasattr(each, name)]
            for name in ("on_step", "on_epoch")
        )
        parts = list(self.setup.objective.parts)
        progress = Progress(state, plan, steps=self.steps, parts=parts, report_to=report if first else None)
        length = 0 if snapshot is None else snapshot.state["log"]
        journal = Journal(folder.path, length=length, tensorboard=run.tensorboard, step=state.step) if first else None
        stopped = False
        try:
            folder.write_frozen()
            for note in messages:
                progress.report(note=note)
            if self.setup.from_start and not state.step and self.validator.pairs is not None:
                self.validate(epoch=0)
                state.stopping.start = dict(state.figures)
                progress.report(ended=float("nan"))
            with interruptible() as stop:
                while not state.ended and not stopped:
                    # The steps of an epoch.
                    last = state.step
                    for stop_now in self.epoch_steps(stop):
                        progress.tick()
                        if first:
                            folder.opened.require()
                        if journal is not None and state.step // run.log_every > last // run.log_every:
                            journal.write("step", progress.line())
                        for call in on_step:
                            call(progress.line())
                        every = run.checkpoint_every
                        if stop_now or (every and state.step // every > last // every):
                            self.checkpoint(journal)
                        if stop_now:
                            stopped = True
                            break
                        last = state.step
                        progress.report_if_due()
                    if stopped:
                        break
                    # Its end: validate, keep the best weights, and write a checkpoint.
                    best = self.end_epoch()
                    progress.tick()
                    if journal is not None:
                        journal.write("epoch", progress.line() | {"figures": state.figures})
                    for call in on_epoch:
                        call(progress.line() | {"figures": dict(state.figures)})
                    loss = state.mean_loss()
                    state.totals.zero_()
                    if best:
                        folder.write_weights(complete=False)
                    if run.save_every_epochs and state.epoch % run.save_every_epochs == 0:
                        folder.write_epoch()
                    self.checkpoint(journal)
                    folder.write_record("training")
                    progress.report(ended=loss)
                    # The first process decides for all: one that left alone would leave the others waiting for it.
                    stopped = bool(self.processes.broadcast([float(stop.is_set())])[0])
            # The end: the folder complete, and the model with its kept weights.
            self.freezer.release()
            if stopped:
                messages.append(f"stopped after step {state.step}; the same command with --resume goes on from there")
            elif state.epoch < plan.epochs:
                waited = state.stopping.epochs_without_improvement
                messages.append(f"stopped early after epoch {state.epoch}: no better for {waited} epochs")
            if stopped or state.epoch < plan.epochs:
                progress.report(note=messages[-1])
            folder.write_weights(complete=True)
            folder.write_record("stopped" if stopped else "finished")
            if first and not stopped:
                remove_checkpoints(folder.path)
            self.processes.wait()
        except SubtextError:
            # A full disk takes no record either, nor does a folder that is gone; the first error is the one to raise.
            with suppress(OutputError, CheckpointError):
                folder.write_record("stopped")
            raise
        finally:
            if journal is not None:
                journal.close()
        return TrainResult(run=folder.opened.path, model=self.setup.model, record=folder.record, notes=tuple(messages))

    def epoch_steps(self, stop: threading.Event) -> Iterator[bool]:
        """Train the rest of the present epoch.

        Args:
            stop: Set when this process is to stop.

        Yields:
            After every update of the weights, whether any process is to stop.
        """
        state, plan = self.state, self.plan
        if state.banks and state.offset == 0:
            self._prepare_banks()
        current = stage(plan, self.setup.phases, state.epoch)
        self.freezer.apply(current)
        learning = [weight for weight in self.freezer.learning if weight.requires_grad]
        batches = self.batches(state.epoch)
        reader = StepReader(
            self.working,
            self.train,
            Draw(self.options.seed, state.epoch),
            together=plan.caption_sampling == "together",
            processes=self.processes.count,
            rank=self.processes.rank,
            related=self.relevance,
            mixing=self.setup.mixing,
            extras=self.extras,
        )
        epoch = state.banks.epoch(state.epoch, self.options.seed)
        # Sums of the loss and of its parts, and the number of batches, since the last update.
        pending = torch.zeros_like(state.totals)
        for batch in read_ahead(batches[state.offset :], reader, workers=self.options.workers):
            start = state.offset - state.offset % plan.accumulation_steps
            group = min(plan.accumulation_steps, len(batches) - start)
            if state.offset == start:
                self._set_rate(current.factor)
            inputs = batch.to(self.processes.device)
            loss, parts = self.stepper(inputs, epoch, name=f"step {state.offset}", share=1 / group)
            pending[0] += loss
            pending[1:-1] += parts
            pending[-1] += 1 / self.processes.count
            state.offset += 1
            state.step += 1
            if state.offset == start + group:
                yield self._update(learning, pending, stop)
                pending = torch.zeros_like(pending)

    def end_epoch(self) -> bool:
        """Validate, and turn to the next epoch.

        Returns:
            Whether this epoch's weights are the ones to keep.

        Raises:
            TrainingError: If a loss or gradient of the epoch was not finite.
        """
        state = self.state
        self.check_finite()
        state.average.after_epoch(state.epoch)
        with state.average.applied():
            keep, stop = self.validate(epoch=state.epoch + 1)
        state.epoch, state.offset = state.epoch + 1, 0
        state.ended = stop or state.epoch >= self.plan.epochs
        return keep

    def validate(self, *, epoch: int) -> tuple[bool, bool]:
        """Measure the present weights, and keep them if they are the best.

        Args:
            epoch: Counted from 1; 0 is the model before training.

        Returns:
            Whether they are kept, and whether the training should end.
        """
        state = self.state
        value, result = self.validator(state)
        keep, stop = state.stopping.update(value, state.figures, epoch=epoch, plan=self.plan)
        if keep:
            weights = state.weights(changing=True)
            state.kept = {name: weight.detach().to("cpu", copy=True) for name, weight in weights.items()}
        if self.setup.from_start and result is not None:
            self.folder.write_validation(result, start=epoch == 0, keep=keep)
        return keep, stop

    def checkpoint(self, journal: Journal | None) -> None:
        """Write a checkpoint, on the first process.

        Args:
            journal: Flushed before; None on other processes.

        Raises:
            TrainingError: If a loss or gradient was not finite since the last check.
        """
        self.check_finite()
        if journal is not None or self.options.shard_weights:
            snapshot = self.state.snapshot(0 if journal is None else journal.flush(), keep=journal is not None)
            if journal is not None:
                write_snapshot(self.folder.path, snapshot, keep=self.options.keep_checkpoints)
        self.processes.wait()

    def check_finite(self) -> None:
        """Refuse to go on after a loss or a gradient that was not finite.

        Raises:
            TrainingError: With the pairs of the batch, or of the batches whose gradients were averaged.
        """
        batch = int(self.first_bad)
        if batch < 0:
            return
        first, epoch = batch - batch % self.plan.accumulation_steps, self.state.epoch
        rows = np.concatenate(self.batches(epoch)[first : batch + 1])
        file = self.folder.path / NOT_FINITE if self.processes.first else None
        raise not_finite(self.train, rows, epoch=epoch + 1, batch=batch + 1, file=file)

    def batches(self, epoch: int) -> list[NDArray[np.int64]]:
        """The batches of an epoch, the same on every process.

        Args:
            epoch: Counted from 0.

        Returns:
            (B 2) image row and text row of the pairs of each batch.
        """
        return batches_of(self.train, self.plan, epoch=epoch, seed=self.options.seed, processes=self.processes.count)

    def _prepare_banks(self) -> None:
        state, plan, options = self.state, self.plan, self.options
        reads = None
        if plan.caption_sampling == "one":
            reads = torch.from_numpy(np.unique(np.concatenate(self.batches(state.epoch))[:, 1]))
        state.banks.on_epoch_start(
            epoch=state.epoch,
            seed=options.seed,
            reads=reads,
            embed=lambda rows=None: embed_pairs(
                self.working, self.train, rows=rows, batch_size=plan.batch_size, workers=options.workers
            ),
        )
        self.folder.write_table(state.banks.epoch(state.epoch, options.seed).table or {})

    def _set_rate(self, factor: float) -> None:
        state, plan = self.state, self.plan
        drops = state.stopping.lr_drops
        share = lr_factor(plan, step=state.step, steps=self.steps, epoch=state.epoch, drops=drops)
        set_lr(state.optimiser, plan.lr * factor * share)

    def _update(self, learning: Sequence[Tensor], pending: Tensor, stop: threading.Event) -> bool:
        """Move the weights by their gradients, and count; True where any process is to stop."""
        state, scaler = self.state, self.stepper.scaler
        stop_now = stop.is_set()
        if self.processes.count > 1:
            sums = torch.cat([pending, pending.new_full((1,), float(stop_now))])
            sums = self.processes.sum_gradients(learning, sums)
            pending, stop_now = sums[:-1].double(), bool(sums[-1] > 0)
        if scaler.is_enabled():
            scaler.unscale_(state.optimiser)
        norm = clip_gradients(learning, self.plan.max_grad_norm or float("inf"))
        finite = torch.isfinite(pending[0]) & (torch.isfinite(norm) | scaler.is_enabled())
        self.first_bad = torch.where((self.first_bad < 0) & ~finite, state.offset - 1, self.first_bad)
        if self.processes.device.type == "cpu" or state.step % CHECK_EVERY == 0:
            self.check_finite()
        scaler.step(state.optimiser)
        scaler.update()
        state.optimiser.zero_grad(set_to_none=True)
        state.average.after_step()
        state.totals += pending
        return stop_now
