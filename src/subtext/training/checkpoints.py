"""Checkpoints of a training: what they hold, how they are written, and which one a training is resumed from.

    RUN/checkpoints/step-00001200/   a snapshot after that step; "step-00001200-epoch" after the validation of its epoch
        NAME.safetensors             one file per kind of tensor (weights, optimiser, kept ...)
        state.json                   counters and everything else that is no tensor
        manifest.json                size and hash of each of the files above

A snapshot is filled under a hidden name and renamed once all of it is on the disk; one that is incomplete or damaged is
skipped for the one before it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from subtext.data.atomic import HIDDEN, write_folder
from subtext.errors import CheckpointError
from subtext.models.checkpoint import FROZEN, put_tensors, read_tensors
from subtext.training.bank import BankSet
from subtext.training.optimiser import WeightAverage, pack, unpack
from subtext.training.processes import whole
from subtext.training.stopping import EarlyStopping

FOLDER, STATE, MANIFEST, CACHE = "checkpoints", "state.json", "manifest.json", "cache"
_PREFIX, _ENDED = "step-", "-epoch"


@dataclass(frozen=True)
class Snapshot:
    """The content of a checkpoint.

    Attributes:
        step: Steps that were finished.
        tensors: Kind -> name -> tensor: the weights that change, optimiser, average, kept weights, banks.
        state: Everything else, as JSON takes it.
    """

    step: int
    tensors: dict[str, dict[str, Tensor]]
    state: dict[str, Any]


def write_snapshot(run: Path, snapshot: Snapshot, *, keep: int) -> None:
    """Write a checkpoint, then remove all but it and the `keep - 1` before it.

    Later ones are removed too: the training was resumed from before them because they were damaged.

    Args:
        run: The run's folder.
        snapshot: Its content.
        keep: Checkpoints that remain, 1 or more.

    Raises:
        OutputError: If the disk is full; the checkpoints that were there stay.
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
    before = [folder for folder in _folders(run) if folder < new]
    after = [folder for folder in _folders(run) if folder > new]
    for old in [*before[: max(len(before) + 1 - keep, 0)], *after]:
        shutil.rmtree(old, ignore_errors=True)


def newest_snapshot(run: Path) -> tuple[Snapshot | None, list[str]]:
    """Read the newest checkpoint that is complete.

    Args:
        run: The run's folder.

    Returns:
        The checkpoint, or None; and a sentence for each newer one that is incomplete or damaged.

    Raises:
        CheckpointError: If a complete checkpoint has a name without its step.
    """
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
    """Remove what a writer that was killed left behind.

    Args:
        run: The run's folder.
    """
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
class TrainState:
    """A training between two steps.

    Attributes:
        model: The model that is saved.
        changing: Names of the model's weights that learn in some epoch, and of its running statistics.
        optimiser: With its state.
        average: Average of the weights, for validation and saving.
        scaler: Scale of the loss in fp16.
        stopping: The best epoch so far.
        totals: (parts + 2) float64: sums over the epoch's steps of the loss and of its parts, and their count.
        kept: Learnt weights of the best epoch so far, on the CPU; empty before.
        epoch: Epoch of the next step, counted from 0.
        offset: Batch of the next step in its epoch, counted from 0.
        step: Steps finished.
        ended: Whether no further epoch will be trained.
        seconds: Spent so far.
        figures: Of the latest validation.
        banks: What the methods remember.
    """

    model: nn.Module
    changing: frozenset[str]
    optimiser: Optimizer
    average: WeightAverage
    scaler: torch.amp.GradScaler
    stopping: EarlyStopping
    totals: Tensor
    kept: dict[str, Tensor] = field(default_factory=dict)
    epoch: int = 0
    offset: int = 0
    step: int = 0
    ended: bool = False
    seconds: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)
    banks: BankSet = field(default_factory=BankSet)

    def weights(self, *, changing: bool, keep: bool = True) -> dict[str, Tensor]:
        """The model's weights that change, or those that never do; every process asks for them.

        Args:
            changing: Which of the two.
            keep: Whether this process wants them; see `processes.whole`.

        Returns:
            Name -> tensor, not copied unless it was divided.
        """
        state = self.model.state_dict()
        chosen = {name: value for name, value in state.items() if (name in self.changing) == changing}
        return whole(chosen, keep=keep)

    def mean_loss(self) -> float:
        """The loss of the epoch so far.

        Returns:
            Mean over its steps; nan before the first.
        """
        return float(self.totals[0] / self.totals[-1])

    def snapshot(self, log_length: int, *, keep: bool = True) -> Snapshot:
        """The content of a checkpoint.

        Args:
            log_length: Length of log.jsonl in bytes.
            keep: Whether this process wants the tensors; see `processes.whole`.

        Returns:
            The snapshot; its tensors are not copied. Every process asks for it where towers are divided.
        """
        tensors, plain = pack(self.optimiser, keep=keep)
        state: dict[str, Any] = {
            "epoch": self.epoch,
            "offset": self.offset,
            "ended": self.ended,
            "seconds": self.seconds,
            "figures": self.figures,
            "totals": self.totals.tolist(),
            "stopping": asdict(self.stopping),
            "average": self.average.count,
            "optimiser": plain,
            "rates": [group["lr"] for group in self.optimiser.param_groups],
            "scaler": self.scaler.state_dict(),
            "log": log_length,
        }
        kinds = {"weights": self.weights(changing=True, keep=keep), "optimiser": tensors}
        kinds |= {"average": whole(self.average.tensors, keep=keep), "kept": self.kept, **self.banks.tensors()}
        return Snapshot(
            step=self.step, tensors={kind: tensors for kind, tensors in kinds.items() if tensors}, state=state
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Restore the state of a checkpoint, except for the model, which has its weights already.

        Args:
            snapshot: What `snapshot` returned.

        Raises:
            CheckpointError: If it is of another training.
        """
        state = snapshot.state
        try:
            unpack(self.optimiser, snapshot.tensors.get("optimiser", {}), state["optimiser"])
            # Only the log reads them, where no step of the epoch is left.
            for group, rate in zip(self.optimiser.param_groups, state["rates"], strict=True):
                group["lr"] = rate
            self.average.restore(snapshot.tensors.get("average", {}), state["average"])
            self.scaler.load_state_dict(state["scaler"])
            self.stopping = EarlyStopping(**state["stopping"])
            self.totals.copy_(torch.tensor(state["totals"], dtype=torch.float64))
            self.epoch, self.offset, self.ended = state["epoch"], state["offset"], state["ended"]
            self.seconds, self.figures = state["seconds"], state["figures"]
            self.banks.restore(snapshot.tensors)
        except (RuntimeError, KeyError, TypeError, ValueError) as problem:
            raise wrong_model(snapshot.step, problem) from problem
        self.kept = snapshot.tensors.get("kept", {})
        self.step = snapshot.step


def wrong_model(step: int, problem: Exception) -> CheckpointError:
    """The error for a checkpoint that does not fit the model.

    Args:
        step: Of the checkpoint.
        problem: What failed.

    Returns:
        The error, to be raised.
    """
    return CheckpointError(f"the checkpoint of step {step} needs to be of this model; {problem}; train in a new folder")


def remove_checkpoints(out: Path) -> None:
    """Remove checkpoints, frozen weights and cache, which a finished training does not need.

    Args:
        out: The run's folder.
    """
    clean(out)
    (out / FROZEN).unlink(missing_ok=True)
    for name in (FOLDER, CACHE):
        shutil.rmtree(out / name, ignore_errors=True)
