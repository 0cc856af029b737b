"""All that a training depends on from one step to the next, and its checkpoints: folders that are complete or absent.

    RUN/checkpoints/step-00001200/   after that step; "step-00001200-epoch" once the epoch that it ended is measured
        NAME.safetensors   one file per kind of tensor (weights, optimiser, average, kept, memory0 ...)
        state.json         counters and everything else that is no tensor
        manifest.json      size and hash of each of the files above

A folder is filled under a hidden name and renamed once all of it is on the disk. What is read back is checked against
the manifest; a folder that is incomplete or damaged is passed over for the one before it.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from subtext.data.atomic import HIDDEN, write_folder
from subtext.errors import CheckpointError, TrainingError
from subtext.models.checkpoint import put_tensors, read_tensors
from subtext.training.memory import Memories
from subtext.training.optimiser import WeightAverage, pack, unpack
from subtext.training.plan import Plan

FOLDER, STATE, MANIFEST = "checkpoints", "state.json", "manifest.json"
_PREFIX, _ENDED = "step-", "-epoch"


@dataclass(frozen=True)
class Snapshot:
    """What a checkpoint holds: tensors by kind and name, and the plain rest."""

    step: int
    tensors: dict[str, dict[str, Tensor]]
    state: dict[str, Any]


def write_snapshot(run: Path, snapshot: Snapshot, *, keep: int) -> None:
    """Write a checkpoint, then remove all but it and the `keep - 1` before it.

    Later ones are removed too: the training went on from before them because they were damaged.

    Raises OutputError when the disk is full; the checkpoints that were there stay.
    """

    def fill(folder: Path) -> None:
        for kind, tensors in snapshot.tensors.items():
            put_tensors(folder / f"{kind}.safetensors", tensors)
        (folder / STATE).write_text(json.dumps(snapshot.state), encoding="utf-8")
        sizes = {file.name: _description(file) for file in sorted(folder.iterdir())}
        (folder / MANIFEST).write_text(json.dumps(sizes, indent=2), encoding="utf-8")

    # An epoch's end has a name of its own: writing it must not remove the checkpoint of the epoch's last step.
    ended = _ENDED if snapshot.state["offset"] == 0 else ""
    new = run / FOLDER / f"{_PREFIX}{snapshot.step:08d}{ended}"
    write_folder(new, fill)
    folders = _folders(run)
    folder = folders.index(new) + 1
    for old in [*folders[: max(folder - keep, 0)], *folders[folder:]]:
        shutil.rmtree(old, ignore_errors=True)


def newest_snapshot(run: Path) -> tuple[Snapshot | None, list[str]]:
    """The newest checkpoint that is complete, or None; and a sentence for each newer one that is not."""
    notes: list[str] = []
    for folder in reversed(_folders(run)):
        try:
            manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            changed = [name for name, description in manifest.items() if _description(folder / name) != description]
            problems = [f"{name} is not what was written" for name in changed]
            if STATE not in manifest:
                problems.append(f"its manifest has no {STATE}")
        except (OSError, ValueError, AttributeError) as problem:
            problems = [f"it is incomplete ({problem})"]
        if not problems:
            try:
                step = int(folder.name.removeprefix(_PREFIX).removesuffix(_ENDED))
            except ValueError as problem:
                raise CheckpointError(f"{folder} needs a name like {_PREFIX}00000010; rename or remove it") from problem
            tensors = {file.stem: read_tensors(file) for file in sorted(folder.glob("*.safetensors"))}
            return Snapshot(step, tensors, json.loads((folder / STATE).read_text(encoding="utf-8"))), notes
        notes.append(f"checkpoint {folder.name} is not used: {problems[0]}")
    return None, notes


def clean(run: Path) -> None:
    """Remove what a writer that was killed left behind."""
    for parent in (run, run / FOLDER):
        for leftover in parent.glob(f"{HIDDEN}*"):
            if leftover.is_dir():
                shutil.rmtree(leftover, ignore_errors=True)
            else:
                leftover.unlink(missing_ok=True)


def _folders(run: Path) -> list[Path]:
    return sorted(folder for folder in (run / FOLDER).glob(f"{_PREFIX}*") if folder.is_dir())


def _description(file: Path) -> dict[str, Any]:
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, lambda: hashlib.blake2b(digest_size=16))
    return {"size": file.stat().st_size, "blake2b": digest.hexdigest()}


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

    def look(self, value: float, figures: Mapping[str, float], *, epoch: int, plan: Plan) -> tuple[bool, bool]:
        """Count an epoch, from 1: whether its weights are the ones to keep, and whether training should end.

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
        return keep, bool(plan.patience) and self.still >= plan.patience


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
        tensors, plain = pack(self.optimiser)
        state: dict[str, Any] = {
            "epoch": self.epoch,
            "offset": self.offset,
            "ended": self.ended,
            "seconds": self.seconds,
            "figures": self.figures,
            "totals": self.totals.tolist(),
            "watch": asdict(self.watch),
            "average": self.average.count,
            "optimiser": plain,
            "scaler": self.scaler.state_dict(),
            "log": log_length,
        }
        kinds = {"weights": dict(self.model.state_dict()), "optimiser": tensors}
        kinds |= {"average": self.average.tensors, "kept": self.kept, **self.memories.tensors()}
        return Snapshot(
            step=self.step, tensors={kind: tensors for kind, tensors in kinds.items() if tensors}, state=state
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
            self.memories.restore(snapshot.tensors)
        except (RuntimeError, KeyError, TypeError, ValueError) as problem:
            raise _other(snapshot, problem) from problem
        self.kept = snapshot.tensors.get("kept", {})
        self.step = snapshot.step


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
