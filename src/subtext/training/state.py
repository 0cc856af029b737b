"""All that the rest of a training depends on: what a checkpoint holds, and nothing besides.

What validation decides: which weights are kept, when to drop the rate, and when to stop.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from subtext.errors import CheckpointError, TrainingError
from subtext.training.memory import Memories
from subtext.training.optimiser import WeightAverage, pack, unpack
from subtext.training.plan import Plan
from subtext.training.snapshot import Snapshot


@dataclass(frozen=True)
class Verdict:
    """After an epoch: whether its weights are the ones to keep, and whether training should end."""

    keep: bool
    stop: bool


@dataclass
class Watch:
    """Counters of validation; all of them are part of a checkpoint.

    largest     whether larger is better: rsum, not a loss
    best        best value so far, and its epoch counted from 1
    still       epochs since the best           waiting, drops  of the plateau schedule: epochs since the last drop or
    figures     of the best epoch               best, and drops so far
    """

    largest: bool
    best: float | None = None
    best_epoch: int | None = None
    still: int = 0
    waiting: int = 0
    drops: int = 0
    figures: dict[str, float] | None = None

    def look(self, value: float, figures: Mapping[str, float], *, epoch: int, plan: Plan) -> Verdict:
        """Count an epoch, given from 1, and judge it.

        value  what is watched: rsum, the validation loss, or the training loss where there is no validation

        Raises TrainingError when the value is not a number: a loss that is infinite is one.
        """
        if math.isnan(value):
            raise TrainingError(
                f"epoch {epoch} needs a figure to be judged by; it got one that is not a number; lower the rate"
            )
        better = self.best is None or (value > self.best if self.largest else value < self.best)
        self.still = 0 if better else self.still + 1
        self.waiting = 0 if better else self.waiting + 1
        if plan.schedule == "plateau" and self.waiting > plan.plateau_patience:
            self.drops += 1
            self.waiting = 0
        if better:
            self.best = value
        keep = better or plan.select == "last"
        if keep:
            self.best_epoch, self.figures = epoch, dict(figures)
        return Verdict(keep=keep, stop=bool(plan.patience) and self.still >= plan.patience)

    def plain(self) -> dict[str, Any]:
        """The counters as JSON takes them."""
        return asdict(self)


@dataclass
class State:
    """A training between two steps.

    model, optimiser, average, scaler  hold tensors of their own
    watch    counters of validation         totals   (parts + 2) float64: sums over the epoch's steps of the loss and of
                                                     its parts, and their count
    kept     learnt weights of the best epoch so far, on the CPU; empty before
    epoch, offset  the next step: its epoch, and its batch in it, counted from 0
    step     steps finished                 ended    whether no further epoch will be trained
    seconds  spent so far                   figures  of the latest validation
    memories what the methods remember
    """

    model: nn.Module
    optimiser: Optimizer
    average: WeightAverage
    scaler: torch.amp.GradScaler
    watch: Watch
    totals: Tensor
    kept: dict[str, Tensor] = field(default_factory=dict)
    epoch: int = 0
    offset: int = 0
    step: int = 0
    ended: bool = False
    seconds: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)
    memories: Memories = field(default_factory=Memories)

    def snapshot(self, log_length: int) -> Snapshot:
        """A checkpoint of it; `log_length` is that of log.jsonl in bytes."""
        tensors, rest = pack(self.optimiser)
        state: dict[str, Any] = {
            "epoch": self.epoch,
            "offset": self.offset,
            "ended": self.ended,
            "seconds": self.seconds,
            "figures": self.figures,
            "totals": self.totals.tolist(),
            "watch": self.watch.plain(),
            "average": self.average.count,
            "optimiser": rest,
            "scaler": self.scaler.state_dict(),
            "log": log_length,
        }
        kinds = {"weights": dict(self.model.state_dict()), "optimiser": tensors}
        kinds |= {"average": self.average.tensors, "kept": self.kept, **self.memories.tensors()}
        return Snapshot(
            step=self.step,
            tensors={kind: tensors_of_kind for kind, tensors_of_kind in kinds.items() if tensors_of_kind},
            state=state,
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Become what a checkpoint holds, but for the model, which `put_weights` gives its weights before.

        Raises CheckpointError when it is of another training.
        """
        state = snapshot.state
        try:
            unpack(self.optimiser, snapshot.tensors.get("optimiser", {}), state["optimiser"])
            self.average.restore(snapshot.tensors.get("average", {}), state["average"])
            self.scaler.load_state_dict(state["scaler"])
            self.watch = Watch(**state["watch"])
            self.totals.copy_(torch.tensor(state["totals"], dtype=torch.float64))
            self.epoch, self.offset, self.ended = state["epoch"], state["offset"], state["ended"]
            self.seconds, self.figures = state["seconds"], state["figures"]
        except (RuntimeError, KeyError, TypeError) as problem:
            raise _other(snapshot, problem) from problem
        self.memories.restore(snapshot)
        self.kept = snapshot.tensors.get("kept", {})
        self.step = snapshot.step

    def keep(self, model: nn.Module, names: list[str]) -> None:
        """Remember the named weights of a model as the best so far."""
        weights = model.state_dict()
        self.kept = {name: weights[name].detach().to("cpu", copy=True) for name in names if name in weights}

    @torch.no_grad()
    def put_kept(self) -> None:
        """Give the model the best weights."""
        weights = self.model.state_dict()
        for name, value in self.kept.items():
            weights[name].copy_(value)


def put_weights(model: nn.Module, snapshot: Snapshot) -> None:
    """Give a model the weights of a checkpoint, before its frozen encoders are run: their pretrained ones may be new.

    Raises CheckpointError when it is of another model.
    """
    try:
        model.load_state_dict(snapshot.tensors["weights"])
    except (RuntimeError, KeyError) as problem:
        raise _other(snapshot, problem) from problem


def _other(snapshot: Snapshot, problem: Exception) -> CheckpointError:
    return CheckpointError(
        f"the checkpoint of step {snapshot.step} needs to be of this model; {problem}; train in a new folder"
    )


@contextmanager
def own_generator() -> Iterator[None]:
    """Leave the caller's random numbers as they were."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices):
        yield
