"""The loop: epochs of steps and what is measured after each; its state is a pure function of its past.

What is told of a batch whose loss or gradient was not finite.

What is measured at the end of an epoch.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from types import FrameType

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subtext.core import Epoch
from subtext.data.atomic import write_text
from subtext.data.batches import read_ahead
from subtext.data.dataset import Dataset
from subtext.data.inputs import Draw
from subtext.errors import OutputError, TrainingError
from subtext.evaluation import Protocol, embed_pairs, evaluate
from subtext.models.checkpoint import TABLES, write_tensors
from subtext.models.model import Model
from subtext.neighbours.sampling import Samplers
from subtext.training.batch_relevance import LoadedRelevance
from subtext.training.memory import Memories
from subtext.training.optimiser import WeightAverage, build_optimiser, lr_factor, set_lr
from subtext.training.phases import Freezer, stage
from subtext.training.plan import Plan
from subtext.training.processes import Processes
from subtext.training.reading import Reader, batches_of
from subtext.training.setup import RunOptions, Setup
from subtext.training.state import State, Watch
from subtext.training.step import Stepper

LOOK_EVERY = 25
"""Steps between two looks for a number that is not finite, on a device where looking means waiting."""


class Training:
    """A training under way.

    setup    as the recipe made it; its model's weights are what is saved
    working  the model that is trained: the same modules, or cached outputs in place of frozen encoders
    out      the run's folder, for the pairs of a batch that went wrong; None writes nothing
    samplers what draws the neighbours that the setup asks for
    """

    def __init__(
        self,
        setup: Setup,
        working: Model,
        train: Dataset,
        val: Dataset | None,
        *,
        options: RunOptions,
        processes: Processes,
        out: Path | None = None,
        samplers: Samplers | None = None,
    ) -> None:
        self.out, self.samplers = out, samplers
        self.related = None if setup.relevance is None else setup.relevance.open(train)
        self.rewriter = None if setup.rewriting is None else setup.rewriting.open(train)
        self.setup, self.plan, self.working = setup, setup.plan, working
        self.train, self.val = train, val
        self.options, self.processes = options, processes
        self.freezer = Freezer(working)
        negatives = "anchors" if samplers is None else samplers.negatives
        self.stepper = Stepper(
            working, setup.objective, setup.plan, processes, negatives=negatives, rewriting=setup.rewriting
        )
        self.learnt = [name for name, weight in working.named_parameters() if weight.requires_grad]
        self.learnt += [name for name, _ in working.named_buffers()]
        self.numbers = len(setup.objective.parts) + 2
        self.state = State(
            model=setup.model,
            optimiser=build_optimiser(working, setup.plan),
            average=WeightAverage(working, setup.plan),
            scaler=self.stepper.scaler,
            watch=Watch(largest=val is not None and setup.plan.select != "loss"),
            totals=torch.zeros(self.numbers, dtype=torch.float64, device=processes.device),
        )
        self.first_bad = torch.full((), -1, dtype=torch.int64, device=processes.device)
        self.steps = len(self.batches(0)) * self.plan.epochs

    def remember(self, memories: Memories) -> None:
        """Take what the methods remember into the training, and into its checkpoints."""
        self.state.memories = self.stepper.memories = memories

    def batches(self, epoch: int) -> list[NDArray[np.int64]]:
        """Rows of every batch of an epoch counted from 0, the same on every process."""
        return batches_of(self.train, self.plan, epoch=epoch, seed=self.options.seed, processes=self.processes.count)

    def epoch_steps(self, stop: Stop) -> Iterator[bool]:
        """Train the rest of the current epoch; gives, after every move of the weights, whether to stop there.

        stop  whether somebody asked this process to; what is given is whether somebody asked any of them
        """
        state = self.state
        if state.memories and state.offset == 0:
            self._begin()
        current = stage(self.plan, self.setup.phases, state.epoch)
        self.freezer.apply(current)
        learning = [weight for weight in self.freezer.learning if weight.requires_grad]
        batches = self.batches(state.epoch)
        draw = Draw(self.options.seed, state.epoch)
        reader = Reader(
            self.working,
            self.train,
            draw,
            together=self.plan.caption_sampling == "together",
            processes=self.processes.count,
            rank=self.processes.rank,
            samplers=self.samplers,
            related=self.related,
            mixing=self.setup.mixing,
            rewriter=self.rewriter,
        )
        epoch = state.memories.epoch(state.epoch, self.options.seed)
        remaining = batches[state.offset :]
        pending = state.totals.new_zeros(self.numbers)
        for batch in read_ahead(remaining, reader, workers=self.options.workers):
            start = state.offset - state.offset % self.plan.accumulation_steps
            group = min(self.plan.accumulation_steps, len(batches) - start)
            if state.offset == start:
                self._set_rate(current.factor)
            loss, parts = self.stepper(
                batch.to(self.processes.device), epoch, name=f"step {state.offset}", share=1 / group
            )
            pending[0] += loss
            pending[1:-1] += parts
            pending[-1] += 1 / self.processes.count
            state.offset += 1
            state.step += 1
            if state.offset == start + group:
                yield self._update(learning, pending, stop)
                pending = torch.zeros_like(pending)

    def end_epoch(self) -> bool:
        """Measure, turn to the next epoch, and give whether this one's weights are the best so far."""
        state = self.state
        self.check()
        state.average.after_epoch(state.epoch)
        with state.average.applied():
            value = self._measure()
            verdict = state.watch.look(value, state.figures, epoch=state.epoch + 1, plan=self.plan)
            if verdict.keep:
                state.keep(self.working, self.learnt)
        state.epoch, state.offset = state.epoch + 1, 0
        state.ended = verdict.stop or state.epoch >= self.plan.epochs
        return verdict.keep

    def check(self) -> None:
        """Raise TrainingError, with ids of the batch, when a loss or a gradient was not finite."""
        batch = int(self.first_bad)
        if batch < 0:
            return
        first = batch - batch % self.plan.accumulation_steps
        rows = np.concatenate(self.batches(self.state.epoch)[first : batch + 1])
        out = self.out if self.processes.first else None
        raise not_finite(self.train, rows, epoch=self.state.epoch + 1, batch=batch + 1, out=out)

    def mean_loss(self) -> float:
        """Of the epoch so far; nan before its first step."""
        totals = self.state.totals
        return float(totals[0] / totals[-1])

    def line(self) -> dict[str, object]:
        """What the log says of the epoch so far."""
        totals = self.state.totals
        means = (totals[1:-1] / totals[-1]).tolist()
        return {
            "epoch": self.state.epoch + (self.state.offset > 0),
            "step": self.state.step,
            "loss": self.mean_loss(),
            "parts": dict(zip(self.setup.objective.parts, means, strict=True)),
            "lr": max(group["lr"] for group in self.state.optimiser.param_groups),
        }

    def _begin(self) -> None:
        """Let the memories look back before an epoch, and keep what they say of every pair."""
        state, options, size = self.state, self.options, self.plan.batch_size
        reads = None
        if self.plan.caption_sampling == "one":
            reads = torch.from_numpy(np.unique(np.concatenate(self.batches(state.epoch))[:, 1]))
        state.memories.begin(
            epoch=state.epoch,
            seed=options.seed,
            reads=reads,
            embed=lambda rows=None: embed_pairs(
                self.working, self.train, rows=rows, batch_size=size, workers=options.workers
            ),
        )
        # One score a pair is worth a file; lists of candidates are not.
        table = {name: value for name, value in state.memories.table().items() if value.ndim == 1}
        if table and self.out is not None and self.processes.first:
            write_tensors(self.out / TABLES / f"epoch-{state.epoch + 1:04d}.safetensors", table)

    @cached_property
    def _related_of_val(self) -> LoadedRelevance | None:
        relevance = self.setup.relevance
        return None if relevance is None or self.val is None else relevance.open(self.val)

    def _set_rate(self, factor: float) -> None:
        state = self.state
        share = lr_factor(self.plan, step=state.step, steps=self.steps, epoch=state.epoch, drops=state.watch.drops)
        set_lr(state.optimiser, self.plan.lr * factor * share)

    def _update(self, learning: Sequence[Tensor], pending: Tensor, stop: Stop) -> bool:
        """Move the weights by their gradients, and count."""
        state, scaler = self.state, self.stepper.scaler
        stop_now = stop.requested
        if self.processes.count > 1:
            sums = torch.cat([pending, pending.new_full((1,), float(stop_now))])
            sums = self.processes.sum_gradients(learning, sums)
            pending, stop_now = sums[:-1].double(), bool(sums[-1] > 0)
        if scaler.is_enabled():
            scaler.unscale_(state.optimiser)
        norm = torch.nn.utils.clip_grad_norm_(learning, self.plan.max_grad_norm or float("inf"))
        self._look(torch.isfinite(pending[0]) & (torch.isfinite(norm) | scaler.is_enabled()))
        scaler.step(state.optimiser)
        scaler.update()
        state.optimiser.zero_grad(set_to_none=True)
        state.average.after_step()
        state.totals += pending
        return stop_now

    def _look(self, fine: Tensor) -> None:
        """Note the first batch that was not fine; look at once where that costs nothing."""
        batch = self.state.offset - 1
        self.first_bad = torch.where((self.first_bad < 0) & ~fine, batch, self.first_bad)
        if self.processes.device.type == "cpu" or self.state.step % LOOK_EVERY == 0:
            self.check()

    def _measure(self) -> float:
        """Validate on the first process, tell all; gives what decides."""
        state = self.state
        names = ["loss", "rsum"]
        if self.val is None:
            state.figures = {}
            return self.processes.broadcast([self.mean_loss()])[0]
        if self.processes.first:
            size, workers = self.plan.batch_size, self.options.workers
            state.figures = figures(self.working, self.val, batch_size=size, workers=workers)
            if self.plan.select == "loss":
                # What is drawn stays that of the first epoch, or no two could be compared.
                epoch = Epoch(number=state.epoch, seed=self.options.seed, drawing=0)
                reader = Reader(
                    self.working,
                    self.val,
                    None,
                    together=self.plan.caption_sampling == "together",
                    related=self._related_of_val,
                )
                state.figures["loss"] = mean_loss(self.stepper, reader, self.plan, epoch, workers=workers)
        values = self.processes.broadcast([state.figures.get(name, float("nan")) for name in names])
        return values[names.index("loss" if self.plan.select == "loss" else "rsum")]


NOT_FINITE = "nan.json"
"""The file of a run's folder with all pairs of that batch."""

SHOWN = 10
"""How many of them the error names."""


def not_finite(train: Dataset, rows: NDArray[np.int64], *, epoch: int, batch: int, out: Path | None) -> TrainingError:
    """The error to raise: what to do, and the first pairs; all of them go to a file in `out`, where there is one.

    rows          (B 2) image row and text row of the batch, or of the batches whose gradients were averaged
    epoch, batch  counted from 1
    """
    images, texts = train.images.ids, train.texts.ids
    pairs = [{"image": images[image], "text": texts[text]} for image, text in rows.tolist()]
    listed = ""
    if out is not None:
        told = json.dumps({"epoch": epoch, "batch": batch, "pairs": pairs}, ensure_ascii=False, indent=1)
        # What went wrong first is what has to be told, also where the disk takes no list.
        with suppress(OutputError):
            write_text(out / NOT_FINITE, told + "\n")
            listed = f" (all of them: {out / NOT_FINITE})"
    shown = ", ".join(f"{pair['image']} / {pair['text']}" for pair in pairs[:SHOWN])
    suffix = f" and {len(pairs) - SHOWN} more" if len(pairs) > SHOWN else ""
    return TrainingError(
        f"training needs finite losses and gradients; batch {batch} of epoch {epoch} gave one that is not, and nothing "
        f"was saved after it; lower --lr, or look at its pairs{listed}: {shown}{suffix}"
    )


PROTOCOL = Protocol(c_way=(), bootstrap=0)
"""Recall at 1, 5 and 10 and ranks, without intervals: an epoch's end should be short."""


def figures(model: Model, val: Dataset, *, batch_size: int, workers: int) -> dict[str, float]:
    """Recall and rank figures of the validation pairs, among them "rsum"."""
    return dict(evaluate(model, val, protocol=PROTOCOL, batch_size=batch_size, workers=workers).figures)


def mean_loss(stepper: Stepper, reader: Reader, plan: Plan, epoch: Epoch, *, workers: int) -> float:
    """The objective on the reader's pairs, mean over batches; always the same batches, without augmentation."""
    model = reader.model
    device = next(model.parameters()).device
    batches = batches_of(reader.pairs, plan, epoch=0, seed=0, processes=1)
    was_training = model.training
    model.eval()
    losses = [stepper.loss(reading.to(device), epoch) for reading in read_ahead(batches, reader, workers=workers)]
    model.train(was_training)
    return float(torch.stack(losses).double().mean())


class Stop:
    """Whether somebody asked to stop."""

    def __init__(self) -> None:
        self.requested = False

    def request(self, number: int, frame: FrameType | None) -> None:
        """What a signal calls: remember it, and give the next Ctrl-C its usual meaning."""
        self.requested = True
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def listening() -> Iterator[Stop]:
    """Hear SIGINT and SIGTERM inside the block; only the main thread can."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, stop.request)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
