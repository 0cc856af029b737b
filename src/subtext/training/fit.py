"""fit: train a setup on pairs into a folder, and go on where an earlier training stopped.

    RUN/run.json, model.safetensors, assets/, README.md   the run, as every command opens it
    RUN/frozen.safetensors                                 while it trains: the weights that never learn, which neither
                                                           model.safetensors nor a checkpoint then has
    RUN/log.jsonl                                          one line of JSON per logged step and per epoch
    RUN/tensorboard/                                       the same for TensorBoard, with `tensorboard`
    RUN/tables/                                            what memories know of every pair, epoch by epoch
    RUN/checkpoints/step-00001200/                         while it trains: a snapshot after that step;
                                                           "step-00001200-epoch" once its epoch is measured
        NAME.safetensors                                   one file per kind of tensor (weights, optimiser, kept ...)
        state.json                                         counters and everything else that is no tensor
        manifest.json                                      size and hash of each of the files above
    RUN/cache/                                             while it trains: outputs of frozen encoders
    RUN/epochs/EPOCH/                                      runs, with `save_every_epochs`
    RUN/nan.json                                           the pairs of a batch whose loss was not finite
    RUN/start.json, start.npz, kept.json, kept.npz         validation before training, and with the kept weights, for
                                                           `subtext compare`, where epoch 0 takes part in the selection

At the end model.safetensors has all weights. Once the record says "finished" checkpoints, frozen.safetensors and cache
are not needed, and are removed. That record is written last: a kill before it leaves the checkpoints to go on from; a
kill after it leaves at worst some files that the next --resume removes. A snapshot is filled under a hidden name and
renamed once all of it is on the disk; one that is incomplete or damaged is passed over for the one before it. Ctrl-C
and SIGTERM stop a training at the next step; a second Ctrl-C ends it at once.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from subtext.core import Epoch
from subtext.data.atomic import HIDDEN, write_folder, write_text, written_to
from subtext.data.batches import read_ahead
from subtext.data.dataset import Dataset, fingerprint
from subtext.data.inputs import Draw
from subtext.data.text import cut_note
from subtext.errors import (
    CheckpointError,
    OutputError,
    RequirementError,
    SubtextError,
    TrainingError,
    counted,
    listed,
)
from subtext.evaluation import Protocol, Result, embed_pairs, evaluate
from subtext.models.checkpoint import (
    ASSETS,
    FROZEN,
    RECORD,
    TABLES,
    WEIGHTS,
    Record,
    fingerprint as weights_fingerprint,
    library_versions,
    load_record,
    load_run,
    put_tensors,
    read_tensors,
    save_assets,
    save_record,
    save_run,
    write_tensors,
)
from subtext.models.feature_cache import cached_branch, refusal, write_cache
from subtext.models.model import Branch, Model
from subtext.models.model_card import model_card
from subtext.objectives.objective import Term
from subtext.objectives.weighting import Neighbourhood
from subtext.report.progress import Estimate
from subtext.training.memory import BankSet
from subtext.training.optimiser import (
    FreezeSchedule,
    WeightAverage,
    build_optimiser,
    lr_factor,
    pack,
    parameter_groups,
    set_lr,
    stage,
    unpack,
)
from subtext.training.plan import Plan, RunConfig
from subtext.training.processes import Processes
from subtext.training.setup import Report, Setup, TrainResult
from subtext.training.step import ExtraReader, Stepper, StepReader, batches_of
from subtext.training.tables import NeighbourScores, PairBank
from subtext.version import __version__, require_same_draws

LOG, BOARD, CACHE, CARD, EPOCHS, NOT_FINITE = "log.jsonl", "tensorboard", "cache", "README.md", "epochs", "nan.json"
FOLDER, STATE, MANIFEST = "checkpoints", "state.json", "manifest.json"
_PREFIX, _ENDED = "step-", "-epoch"
REPORT_EVERY = 0.25
"""Seconds between two reports of progress."""
CHECK_EVERY = 25
"""Steps between two checks for a number that is not finite, on a device where checking means waiting."""
LARGE = 0.2
"""Share of the pairs in one group from which a note is due: so many fewer wrong answers are learnt from."""
START, KEPT = "start", "kept"
"""Names of the validation before training, and of that with the kept weights."""
PROTOCOL = Protocol(c_way=(), bootstrap=0)
"""Recall at 1, 5 and 10 and ranks, without intervals: an epoch's end should be short."""


def fit(
    setup: Setup,
    train: Dataset,
    val: Dataset | None,
    out: Path,
    *,
    record: Record,
    run: RunConfig,
    report: Callable[[Report], None] | None = None,
) -> TrainResult:
    """Train a setup and leave a run folder: record, kept weights, assets, log and model card.

    The same call with `resume` after any end, a kill among them, goes on from the newest complete checkpoint and ends
    with the same weights, to the bit on a CPU with the same number of threads. SIGINT and SIGTERM end it after the step
    under way, with a checkpoint. A training that is finished has no checkpoints any more, and `resume` opens it.

    Args:
        train: Pairs to learn from, and to select the epoch by; without val the last epoch is kept.
        val: See `train`.
        record: Model, arguments, methods and data of the run; the plan, the seed and the results are filled in here.
        report: Called with the progress, on the first process.

    Raises:
        CheckpointError: For a folder that holds something when not resuming, and when what is resumed was another
            training.
        OutputError: If the folder cannot be written.
        TrainingError: If it cannot be trained by this plan, and if a loss or gradient is not finite, the last
            checkpoint staying as it is.
    """
    notes: list[str] = []
    if val is None and setup.plan.select != "last":
        setup = replace(setup, plan=replace(setup.plan, select="last"))
        notes.append("no validation pairs: the last epoch's weights are kept")
    processes = Processes(run.device)
    extras = [source.open(train) for source in setup.extras]
    memories = BankSet([source.open(train, device=processes.device) for source in setup.memories])
    notes += [note for extra in extras for note in extra.notes(setup.model)]
    notes += [note for memory in memories.each for note in memory.notes]
    inputs = [
        setup.model.image.input_spec.fingerprint,
        setup.model.text.input_spec.fingerprint,
        "" if run.cache_precision == "float32" else run.cache_precision,
        *(extra.fingerprint for extra in extras),
        *(memory.fingerprint for memory in memories.each),
    ]
    pairs = f"{fingerprint(train)}-{'none' if val is None else fingerprint(val)}"
    record = replace(
        record,
        plan=asdict(setup.plan),
        phases=tuple(asdict(phase) for phase in setup.phases),
        fingerprint=pairs,
        inputs="-".join(filter(None, inputs)),
        seed=run.seed,
        status="training",
        version=__version__,
        versions=library_versions(),
    )
    # The caller's random numbers stay as they were.
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        earlier = start_run(out, record, resume=run.resume)
        processes.wait()  # until all have looked: the first one writes from here on
        if earlier is not None and earlier.status == "finished":
            return _opened(setup, out, earlier, processes, report)
        notes += validate_plan(setup, train, processes)
        snapshot: Snapshot | None = None
        if earlier is not None:
            # Its results stay in the record until there are new ones.
            results = ("best", "best_epoch", "start", "epochs", "steps", "seconds")
            record = replace(record, **{name: getattr(earlier, name) for name in results})
            snapshot, damaged = newest_snapshot(out)
            notes += damaged
        processes.wait()
        if processes.first:
            with written_to(out):
                out.mkdir(parents=True, exist_ok=True)
            clean(out)
            (out / NOT_FINITE).unlink(missing_ok=True)
            # The record comes first: a folder without one is not known as a run by the next --resume.
            save_record(out, record)
            if not (out / ASSETS).is_dir():
                save_assets(out, setup.model)
        processes.wait()
        # Before its frozen encoders are run: their pretrained weights may be new.
        saved = read_tensors(out / FROZEN) if (out / FROZEN).is_file() else {}
        try:
            saved |= {} if snapshot is None else snapshot.tensors["weights"]
            setup.model.load_state_dict(saved, strict=snapshot is not None)
        except (RuntimeError, KeyError) as problem:
            raise _of_another_model(0 if snapshot is None else snapshot.step, problem) from problem
        setup.model.to(processes.device)
        processes.same_start(setup.model)
        working, cache_notes = working_model(
            setup, (train, val), Path(run.cache or out / CACHE), run=run, processes=processes
        )
        training = Training(setup, working, train, val, out, run, processes, extras, memories, record=record)
        relevance_notes = () if training.related is None else training.related.notes
        notes = list(dict.fromkeys([*notes, *relevance_notes, *cache_notes]))
        return training.go(snapshot, report=report, notes=notes)


def start_run(out: Path, record: Record, *, resume: bool) -> Record | None:
    """The record of the training that is to go on in a folder; None where one begins.

    Raises:
        CheckpointError: If the folder holds something and `resume` is False, holds things but no training, or holds the
            training of another record.
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
    require_same_draws([(str(out), earlier.draws), ("what --resume trains", record.draws)], CheckpointError)
    if differences := earlier.differences(record):
        raise CheckpointError(
            f"--resume needs the training that {out} began; this one differs in "
            f"{listed(differences, 5, conjunction=', and')} (there -> here); give the same options, or train in a new "
            "folder"
        )
    return earlier


def remove_checkpoints(out: Path) -> None:
    """Remove what a finished training has no more use for."""
    clean(out)
    (out / FROZEN).unlink(missing_ok=True)
    for name in (FOLDER, CACHE):
        shutil.rmtree(out / name, ignore_errors=True)


def _opened(
    setup: Setup, out: Path, record: Record, processes: Processes, report: Callable[[Report], None] | None
) -> TrainResult:
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
        remove_checkpoints(out)
        if report is not None:
            epochs, steps = setup.plan.epochs, record.steps
            report(Report(record.epochs, epochs, steps, steps, float("nan"), record.best, note=note))
    processes.wait()
    return TrainResult(run=out, model=setup.model, record=record, notes=(note,))


def validate_plan(setup: Setup, train: Dataset, processes: Processes) -> list[str]:
    """Refuse what cannot be trained by its plan, before anything is written.

    Returns:
        Notes on what can be trained, but not as one may think.

    Raises:
        DataError: If texts lack the words that a relevance reads.
        TrainingError: For fp16 without a GPU, a model without a weight that learns, pairs that make no batch or that
            are all of one group, and a batch norm in training with gradient caching: each chunk would be normed by
            itself, and the gradient be another one.
    """
    plan = setup.plan
    if setup.relevance is not None:
        setup.relevance.require(train)
    pairwise = [] if setup.mixing is None else [("mixed images", "turn mixing off (pcme_plus: --mix-prob 0)")]
    if any(len(np.unique(rows)) < len(rows) for rows in train.links.T):
        for memory in setup.memories:
            if isinstance(memory, PairBank):
                pairwise.append(("embeddings in a bank", "turn it off (hal:bank_share=0)"))
            elif isinstance(memory, NeighbourScores) and memory.current:
                pairwise.append(("weights from present embeddings", "leave use_current out"))
    if pairwise and plan.caption_sampling == "together":
        raise TrainingError(
            f"{pairwise[0][0]} need pairs, a text for each image (caption_sampling=all or one); caption_sampling is "
            f"together; change it, or {pairwise[0][1]}"
        )
    if plan.precision == "fp16" and processes.device.type != "cuda":
        raise TrainingError(
            f"precision fp16 needs a GPU, where its loss is scaled; the device is {processes.device.type}; "
            "use bf16, or float32"
        )
    parameter_groups(setup.model, plan)
    batches_of(train, plan, epoch=0, seed=0, processes=processes.count)
    cut = cut_note(setup.model.text.input_spec, train.texts.values)
    notes = [*_groups(train), *_weights(setup), *filter(None, [cut])]
    norms = batch_norms(setup)
    if norms and plan.grad_cache_chunk:
        raise TrainingError(
            "gradient caching (--grad-cache-chunk) needs items that do not depend on each other; this model normalises "
            f"over the batch while training (in {listed(norms)}); leave these norms out (vse_infinity: "
            "--no-mlp), freeze their statistics (--backbone-norms frozen) or the encoder (--freeze-epochs -1), or "
            "train without --grad-cache-chunk"
        )
    if norms and processes.count > 1:
        notes.append(
            f"batch norms ({listed(norms)}) see the share of the batch that each of the "
            f"{processes.count} processes has: the weights will not be those that one process would give"
        )
    return notes


def _groups(train: Dataset) -> list[str]:
    """A note on a group so large that little is left to be wrong; texts of several images join all of them."""
    _, sizes = np.unique(train.images.groups[train.links[:, 0]], return_counts=True)
    if len(sizes) == 1:
        raise TrainingError(
            f"training needs pairs of two groups or more, since what is wrong is learnt from other groups; all "
            f"{counted(len(train.links), 'pair')} are of one: a text of several images, or an image of several "
            "texts, joins them; give other data, or groups of its own (a column 'group')"
        )
    share = sizes.max() / len(train.links)
    if len(sizes) < 3 or share < LARGE:
        return []
    return [
        f"{share:.0%} of the pairs hang together in one group, by texts of several images or a column 'group', and "
        "never count as wrong for each other: little is learnt from them"
    ]


def _weights(setup: Setup) -> list[str]:
    """A note on sample weights of less than one a pair, where their sum over a batch is known."""
    size = setup.plan.batch_size
    for part in setup.objective.parts.values():
        weighting: Any = part.weighting if isinstance(part, Term) else None
        if not hasattr(weighting, "total_for") or (total := weighting.total_for(size)) >= size:
            continue
        why = f"lambda below the batch size; use total_weight={weighting.batch or size} or more"
        if isinstance(weighting, Neighbourhood) and weighting.sums_to_one:
            why = "total_placement=inner puts lambda into the softmax alone; use both, outer or scores"
        return [
            f"sample weights sum to {total:g} over a batch of {size} pairs, less than one each: what they weight "
            f"counts less beside the rest of the objective ({why})"
        ]
    return []


def batch_norms(setup: Setup) -> list[str]:
    """Names of the modules that norm over the batch in some epoch of the training."""
    freezer = FreezeSchedule(setup.model)
    was_training = setup.model.training
    names: dict[str, None] = {}
    for current in {stage(setup.plan, setup.phases, epoch) for epoch in range(setup.plan.epochs)}:
        freezer.apply(current)
        modules = setup.model.named_modules()
        names |= {name: None for name, module in modules if isinstance(module, _BatchNorm) and module.training}
    freezer.release()
    setup.model.train(was_training)
    return list(names)


def working_model(
    setup: Setup, sets: Sequence[Dataset | None], cache: Path, *, run: RunConfig, processes: Processes
) -> tuple[Model, list[str]]:
    """The model to train, which shares every learning module with the recipe's, and notes on it.

    An encoder without any weight that learns in any epoch is run once over the pairs and its outputs are read from the
    folder `cache`; where its Input augments, or a method makes items of its own, it is run every time.
    """
    freezer, notes = FreezeSchedule(setup.model), []
    present = [pairs for pairs in sets if pairs is not None]
    branches: dict[str, Branch] = {"image": setup.model.image, "text": setup.model.text}
    for modality, branch in list(branches.items()):
        if not freezer.never_learns(branch, setup.plan, setup.phases):
            continue
        items = [(pairs.images if modality == "image" else pairs.texts, pairs.root) for pairs in present]
        reason = refusal(branch, items)
        if any(modality in source.generates for source in setup.extras):
            reason = f"it reads {modality}s that are made there"
        elif modality == "image" and setup.mixing is not None:
            reason = "images are mixed, and so others every time"
        if reason is not None:
            notes.append(f"the frozen {modality} encoder runs at every step: {reason}")
            continue
        weights = weights_fingerprint(branch.encoder.state_dict())
        if processes.first:
            write_cache(branch, items, cache, weights=weights, precision=run.cache_precision, device=processes.device)
        processes.wait()
        branches[modality] = cached_branch(branch, items, cache, weights=weights, precision=run.cache_precision)
        notes.append(f"the frozen {modality} encoder was run once; its outputs are read from {cache}")
    if (branches["image"], branches["text"]) == (setup.model.image, setup.model.text):
        return setup.model, notes
    return Model(branches["image"], branches["text"], setup.model.similarity), notes


@dataclass(frozen=True)
class Snapshot:
    """What a checkpoint holds: tensors by kind and name, and the plain rest."""

    step: int
    tensors: dict[str, dict[str, Tensor]]
    state: dict[str, Any]


def write_snapshot(run: Path, snapshot: Snapshot, *, keep: int) -> None:
    """Write a checkpoint, then remove all but it and the `keep - 1` before it.

    Later ones are removed too: the training went on from before them because they were damaged.

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
class EarlyStopping:
    """Counters of validation; all of them are part of a checkpoint.

    Attributes:
        largest: Whether larger is better: rsum, not a loss.
        best: Best value so far, and its epoch counted from 1.
        still: Epochs since the best.
        waiting: Of the plateau schedule: epochs since the last drop or.
        drops: See `waiting`.
        figures: Of the best epoch, best, and drops so far.
        start: Figures before the first step, where they take part in the selection.
    """

    largest: bool
    best: float | None = None
    best_epoch: int | None = None
    still: int = 0
    waiting: int = 0
    drops: int = 0
    figures: dict[str, float] | None = None
    start: dict[str, float] | None = None

    def look(self, value: float, figures: Mapping[str, float], *, epoch: int, plan: Plan) -> tuple[bool, bool]:
        """Count an epoch, from 1: whether its weights are the ones to keep, and whether training should end.

        Args:
            value: What is watched: rsum, the validation loss, or the training loss where there is no validation.

        Raises:
            TrainingError: If the value is not a number: a loss that is infinite is one.
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

    Attributes:
        model: Hold tensors of their own.
        changing: Names of the model's weights that learn in some epoch, and of its running statistics.
        optimiser: See `model`.
        average: See `model`.
        scaler: See `model`.
        watch: Counters of validation.
        totals: (parts + 2) float64: sums over the epoch's steps of the loss and of its parts, and their count.
        kept: Learnt weights of the best epoch so far, on the CPU; empty before.
        epoch: The next step: its epoch.
        offset: Its batch in it, counted from 0.
        step: Steps finished.
        ended: Whether no further epoch will be trained.
        seconds: Spent so far.
        figures: Of the latest validation.
        memories: What the methods remember.
    """

    model: nn.Module
    changing: frozenset[str]
    optimiser: Optimizer
    average: WeightAverage
    scaler: torch.amp.GradScaler
    watch: EarlyStopping
    totals: Tensor
    kept: dict[str, Tensor] = field(default_factory=dict)
    epoch: int = 0
    offset: int = 0
    step: int = 0
    ended: bool = False
    seconds: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)
    memories: BankSet = field(default_factory=BankSet)

    def weights(self, *, changing: bool) -> dict[str, Tensor]:
        """The model's weights that change, or those that never do, by name."""
        return {name: value for name, value in self.model.state_dict().items() if (name in self.changing) == changing}

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
            "rates": [group["lr"] for group in self.optimiser.param_groups],
            "scaler": self.scaler.state_dict(),
            "log": log_length,
        }
        kinds = {"weights": self.weights(changing=True), "optimiser": tensors}
        kinds |= {"average": self.average.tensors, "kept": self.kept, **self.memories.tensors()}
        return Snapshot(
            step=self.step, tensors={kind: tensors for kind, tensors in kinds.items() if tensors}, state=state
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Become what a checkpoint holds, but for the model, which has its weights already.

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
            self.watch = EarlyStopping(**state["watch"])
            self.totals.copy_(torch.tensor(state["totals"], dtype=torch.float64))
            self.epoch, self.offset, self.ended = state["epoch"], state["offset"], state["ended"]
            self.seconds, self.figures = state["seconds"], state["figures"]
            self.memories.restore(snapshot.tensors)
        except (RuntimeError, KeyError, TypeError, ValueError) as problem:
            raise _of_another_model(snapshot.step, problem) from problem
        self.kept = snapshot.tensors.get("kept", {})
        self.step = snapshot.step


def _of_another_model(step: int, problem: Exception) -> CheckpointError:
    return CheckpointError(f"the checkpoint of step {step} needs to be of this model; {problem}; train in a new folder")


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set inside the block; only the main thread hears them."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def request(number: int, frame: FrameType | None) -> None:
        stop.set()
        if number == signal.SIGINT:
            # The next Ctrl-C has its usual meaning.
            signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


class Training:
    """A training under way: epochs of steps, and validation after each. Its state is a pure function of its past.

    Args:
        setup: As the recipe made it; its model's weights are what is saved.
        working: The model that is trained: the same modules, or cached outputs in place of frozen encoders.
        out: The run's folder, for tables and for the pairs of a batch that went wrong.
        extras: What methods read beside every batch.
        memories: What they remember.
    """

    def __init__(
        self,
        setup: Setup,
        working: Model,
        train: Dataset,
        val: Dataset | None,
        out: Path,
        options: RunConfig,
        processes: Processes,
        extras: Sequence[ExtraReader],
        memories: BankSet,
        *,
        record: Record,
    ) -> None:
        self.setup, self.plan, self.working = setup, setup.plan, working
        self.train, self.val, self.out = train, val, out
        self.options, self.processes, self.extras = options, processes, extras
        self.related = None if setup.relevance is None else setup.relevance.open(train)
        self.related_of_val = None
        if setup.relevance is not None and val is not None and setup.plan.select == "loss" and processes.first:
            self.related_of_val = setup.relevance.open(val)
        self.freezer = FreezeSchedule(working)
        self.stepper = Stepper(working, setup.objective, setup.plan, processes, memories)
        learning, named = self.freezer.ever_learning(setup.plan, setup.phases), working.named_parameters
        changing = {name for name, weight in named(remove_duplicate=False) if id(weight) in learning}
        changing |= {name for name, _ in working.named_buffers(remove_duplicate=False)}
        self.numbers = len(setup.objective.parts) + 2
        self.state = State(
            model=setup.model,
            changing=frozenset(changing),
            optimiser=build_optimiser(working, setup.plan),
            average=WeightAverage(working, setup.plan),
            scaler=self.stepper.scaler,
            watch=EarlyStopping(largest=val is not None and setup.plan.select != "loss"),
            totals=torch.zeros(self.numbers, dtype=torch.float64, device=processes.device),
            memories=self.stepper.memories,
        )
        self.first_bad = torch.full((), -1, dtype=torch.int64, device=processes.device)
        self.steps = len(self.batches(0)) * self.plan.epochs
        self.measured: Result | None = None
        self.record = record

    def batches(self, epoch: int) -> list[NDArray[np.int64]]:
        """Rows of every batch of an epoch counted from 0, the same on every process."""
        return batches_of(self.train, self.plan, epoch=epoch, seed=self.options.seed, processes=self.processes.count)

    def epoch_steps(self, stop: threading.Event) -> Iterator[bool]:
        """Train the rest of the current epoch; gives, after every update of the weights, whether to stop there.

        Args:
            stop: Whether this process was told to stop; what is given is whether any of them was.
        """
        state = self.state
        if state.memories and state.offset == 0:
            self._begin()
        current = stage(self.plan, self.setup.phases, state.epoch)
        self.freezer.apply(current)
        learning = [weight for weight in self.freezer.learning if weight.requires_grad]
        batches = self.batches(state.epoch)
        reader = StepReader(
            self.working,
            self.train,
            Draw(self.options.seed, state.epoch),
            together=self.plan.caption_sampling == "together",
            processes=self.processes.count,
            rank=self.processes.rank,
            related=self.related,
            mixing=self.setup.mixing,
            extras=self.extras,
        )
        epoch = state.memories.epoch(state.epoch, self.options.seed)
        pending = state.totals.new_zeros(self.numbers)
        for batch in read_ahead(batches[state.offset :], reader, workers=self.options.workers):
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
            keep, stop = self._judge(state.epoch + 1)
        state.epoch, state.offset = state.epoch + 1, 0
        state.ended = stop or state.epoch >= self.plan.epochs
        return keep

    def measure_start(self) -> None:
        """Measure the model before its first step; its weights take part in the selection as epoch 0."""
        self._judge(0)
        self.state.watch.start = dict(self.state.figures)

    def _judge(self, epoch: int) -> tuple[bool, bool]:
        """Measure the weights of an epoch, and keep them if they are the best; gives what `EarlyStopping.look` does."""
        state = self.state
        keep, stop = state.watch.look(self._measure(), state.figures, epoch=epoch, plan=self.plan)
        if keep:
            weights = state.weights(changing=True)
            state.kept = {name: value.detach().to("cpu", copy=True) for name, value in weights.items()}
        if self.setup.from_start and self.measured is not None:
            for name, due in ((START, epoch == 0), (KEPT, keep)):
                if due:
                    self.measured.save(self.out / f"{name}.json")
                    self.measured.save_queries(self.out / f"{name}.npz")
        return keep, stop

    def check(self) -> None:
        """Raise TrainingError when a loss or a gradient was not finite: with the first pairs of the batch, or of the
        batches whose gradients were averaged; all of them go to a file.
        """
        batch = int(self.first_bad)
        if batch < 0:
            return
        first = batch - batch % self.plan.accumulation_steps
        rows = np.concatenate(self.batches(self.state.epoch)[first : batch + 1])
        images, texts = self.train.images.ids, self.train.texts.ids
        pairs = [{"image": images[image], "text": texts[text]} for image, text in rows.tolist()]
        facts = {"epoch": self.state.epoch + 1, "batch": batch + 1, "pairs": pairs}
        names_file = ""
        if self.processes.first:
            # The loss is the error to raise, also where the disk takes no list.
            with suppress(OutputError):
                write_text(self.out / NOT_FINITE, json.dumps(facts, ensure_ascii=False, indent=1) + "\n")
                names_file = f" (all of them: {self.out / NOT_FINITE})"
        shown = listed([f"{pair['image']} / {pair['text']}" for pair in pairs], 10)
        raise TrainingError(
            f"training needs finite losses and gradients; batch {batch + 1} of epoch {self.state.epoch + 1} gave one "
            f"that is not, and nothing was saved after it; lower --lr, or look at its pairs{names_file}: {shown}"
        )

    def mean_loss(self) -> float:
        """Of the epoch so far; nan before its first step."""
        totals = self.state.totals
        return float(totals[0] / totals[-1])

    def _begin(self) -> None:
        """Let the memories look back before an epoch, and write what they know of every pair."""
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
        known = state.memories.epoch(state.epoch, options.seed).table or {}
        table = {name: value for name, value in known.items() if value.ndim == 1}
        if table and self.processes.first:
            write_tensors(self.out / TABLES / f"epoch-{state.epoch + 1:04d}.safetensors", table)

    def _set_rate(self, factor: float) -> None:
        state = self.state
        share = lr_factor(self.plan, step=state.step, steps=self.steps, epoch=state.epoch, drops=state.watch.drops)
        set_lr(state.optimiser, self.plan.lr * factor * share)

    def _update(self, learning: Sequence[Tensor], pending: Tensor, stop: threading.Event) -> bool:
        """Move the weights by their gradients, and count."""
        state, scaler = self.state, self.stepper.scaler
        stop_now = stop.is_set()
        if self.processes.count > 1:
            sums = torch.cat([pending, pending.new_full((1,), float(stop_now))])
            sums = self.processes.sum_gradients(learning, sums)
            pending, stop_now = sums[:-1].double(), bool(sums[-1] > 0)
        if scaler.is_enabled():
            scaler.unscale_(state.optimiser)
        norm = torch.nn.utils.clip_grad_norm_(learning, self.plan.max_grad_norm or float("inf"))
        finite = torch.isfinite(pending[0]) & (torch.isfinite(norm) | scaler.is_enabled())
        self.first_bad = torch.where((self.first_bad < 0) & ~finite, state.offset - 1, self.first_bad)
        if self.processes.device.type == "cpu" or state.step % CHECK_EVERY == 0:
            self.check()
        scaler.step(state.optimiser)
        scaler.update()
        state.optimiser.zero_grad(set_to_none=True)
        state.average.after_step()
        state.totals += pending
        return stop_now

    def _measure(self) -> float:
        """Validate on the first process, tell all; gives what decides."""
        state, plan = self.state, self.plan
        if self.val is None:
            state.figures = {}
            return self.processes.broadcast([self.mean_loss()])[0]
        if self.processes.first:
            size, workers = plan.batch_size, self.options.workers
            measured = evaluate(self.working, self.val, protocol=PROTOCOL, batch_size=size, workers=workers)
            state.figures = dict(measured.figures)
            about = {"model": {"host": self.record.model, "seed": self.options.seed}}
            self.measured = replace(measured, about={**about, "split": self.record.data.val_split})
            if plan.select == "loss":
                state.figures["loss"] = self._validation_loss(self.val)
        name = "loss" if plan.select == "loss" else "rsum"
        return self.processes.broadcast([state.figures.get(name, float("nan"))])[0]

    def _validation_loss(self, val: Dataset) -> float:
        """The objective, mean over batches; always the same batches, without augmentation."""
        together = self.plan.caption_sampling == "together"
        reader = StepReader(self.working, val, None, together=together, related=self.related_of_val)
        # What is drawn stays that of the first epoch, or no two could be compared.
        epoch = Epoch(number=self.state.epoch, seed=self.options.seed, drawing=0)
        batches = batches_of(val, self.plan, epoch=0, seed=0, processes=1)
        was_training = self.working.training
        self.working.eval()
        readings = read_ahead(batches, reader, workers=self.options.workers)
        losses = [self.stepper.loss(reading.to(self.processes.device), epoch) for reading in readings]
        self.working.train(was_training)
        return float(torch.stack(losses).double().mean())

    def go(
        self, snapshot: Snapshot | None, *, report: Callable[[Report], None] | None, notes: list[str]
    ) -> TrainResult:
        """Train to the end, or to where it is stopped; from a checkpoint, or from the beginning."""
        state = self.state
        self.report_to, self.notes = report, notes
        self.journal: Journal | None = None
        self.started = self.reported = time.monotonic()
        self.estimate = Estimate()
        if snapshot is not None:
            state.restore(snapshot)
            self.notes.append(f"going on from step {snapshot.step}")
        self.before, self.first_step = state.seconds, state.step
        if self.processes.first:
            length = snapshot.state["log"] if snapshot is not None else 0
            self.journal = Journal(self.out, length=length, tensorboard=self.options.tensorboard, step=state.step)
            frozen = state.weights(changing=False)
            if frozen and not (self.out / FROZEN).is_file():
                write_tensors(self.out / FROZEN, frozen)
        for note in self.notes:
            self._report(note=note)
        try:
            if self.setup.from_start and self.val is not None and not state.step:
                self.measure_start()
                self._report(ended=float("nan"))
            with interruptible() as stop:
                stopped = False
                while not state.ended and not stopped:
                    stopped = self._epoch(stop)
            return self._finish(stopped)
        except SubtextError:
            # A full disk takes no record either; the first error is the one to raise.
            with suppress(OutputError):
                self._write_record("stopped")
            raise
        finally:
            if self.journal is not None:
                self.journal.close()

    def _epoch(self, stop: threading.Event) -> bool:
        """Train and end one epoch; True where a stop was requested."""
        state, run = self.state, self.options
        last, every = state.step, run.checkpoint_every
        for stop_now in self.epoch_steps(stop):
            self._clock()
            if state.step // run.log_every > last // run.log_every:
                self._log("step")
            if stop_now or (every and state.step // every > last // every):
                self._checkpoint()
            if stop_now:
                return True
            last = state.step
            if time.monotonic() - self.reported >= REPORT_EVERY:
                self._report()
        best = self.end_epoch()
        self._clock()
        self._log("epoch")
        loss = self.mean_loss()
        state.totals.zero_()
        if self.processes.first and best:
            self._write_kept(complete=False)
        if self.processes.first and run.save_every_epochs and state.epoch % run.save_every_epochs == 0:
            folder = self.out / EPOCHS / str(state.epoch)
            with written_to(folder):
                folder.mkdir(parents=True, exist_ok=True)
            results: dict[str, Any] = {"best": dict(state.figures), "best_epoch": state.epoch, "epochs": state.epoch}
            with state.average.applied():
                save_run(folder, self.setup.model, replace(self.record, status="finished", **results))
        self._checkpoint()
        self._write_record("training")
        self._report(ended=loss)
        # The first process decides for all: one that left alone would leave the others waiting for it.
        return bool(self.processes.broadcast([float(stop.is_set())])[0])

    def _finish(self, stopped: bool) -> TrainResult:
        """Leave the folder complete, and the model with its kept weights."""
        state = self.state
        self.freezer.release()
        if stopped:
            self.notes.append(f"stopped after step {state.step}; the same command with --resume goes on from there")
        elif state.epoch < self.plan.epochs:
            self.notes.append(f"stopped early after epoch {state.epoch}: no better for {state.watch.still} epochs")
        if stopped or state.epoch < self.plan.epochs:
            self._report(note=self.notes[-1])
        if self.processes.first:
            self._write_kept(complete=True)
        self.setup.model.load_state_dict(state.kept, strict=False)
        self._write_record("stopped" if stopped else "finished")
        if self.processes.first and not stopped:
            remove_checkpoints(self.out)
        self.processes.wait()
        return TrainResult(run=self.out, model=self.setup.model.eval(), record=self.record, notes=tuple(self.notes))

    def _write_record(self, status: Literal["training", "finished", "stopped"]) -> None:
        """Write the card, then the record as of now, which says how far the rest can be trusted."""
        state = self.state
        self.record = replace(
            self.record,
            status=status,
            best=state.watch.figures or {},
            best_epoch=state.watch.best_epoch,
            start=state.watch.start or {},
            epochs=state.epoch,
            steps=state.step,
            seconds=round(state.seconds, 2),
        )
        if self.processes.first:
            write_text(self.out / CARD, model_card(self.record))
            save_record(self.out, self.record)

    def _write_kept(self, *, complete: bool) -> None:
        """model.safetensors: the best weights so far; those of now before the first epoch's end.

        Args:
            complete: With those that never learn, which otherwise are in a file of their own.
        """
        best, weights = self.state.kept, self.state.weights(changing=True)
        weights = {name: best.get(name, value) for name, value in weights.items()}
        write_tensors(self.out / WEIGHTS, weights | (self.state.weights(changing=False) if complete else {}))

    def _checkpoint(self) -> None:
        self.check()
        if self.processes.first and self.journal is not None:
            snapshot = self.state.snapshot(self.journal.settle())
            write_snapshot(self.out, snapshot, keep=self.options.keep_checkpoints)
        self.processes.wait()

    def _clock(self) -> None:
        self.state.seconds = self.before + time.monotonic() - self.started

    def _log(self, event: str) -> None:
        """A line on the epoch so far."""
        if self.journal is None:
            return
        state = self.state
        means = (state.totals[1:-1] / state.totals[-1]).tolist()
        pairs = (state.step - self.first_step) * self.plan.batch_size
        line = {
            "epoch": state.epoch + (state.offset > 0),
            "step": state.step,
            "loss": self.mean_loss(),
            "parts": dict(zip(self.setup.objective.parts, means, strict=True)),
            "lr": max(group["lr"] for group in state.optimiser.param_groups),
            "pairs_per_second": round(pairs / max(time.monotonic() - self.started, 1e-9), 1),
            "seconds": round(state.seconds, 2),
        }
        self.journal.write(event, line | ({"figures": state.figures} if event == "epoch" else {}))

    def _report(self, *, note: str | None = None, ended: float | None = None) -> None:
        """Report the progress; `ended` is the mean loss of an epoch that has just ended."""
        self.reported = time.monotonic()
        if not (self.report_to and self.processes.first):
            return
        state, steps = self.state, self.steps
        self.report_to(
            Report(
                epoch=min(state.epoch + 1, self.plan.epochs),
                epochs=self.plan.epochs,
                step=state.step,
                steps=steps,
                loss=self.mean_loss() if ended is None else ended,
                figures=dict(state.figures),
                seconds_left=self.estimate(state.step, steps),
                note=note,
                ended=None if ended is None else state.epoch,
            )
        )


class Journal:
    """RUN/log.jsonl, and TensorBoard's files.

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
        self._board: Any = None
        if tensorboard:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as problem:
                raise RequirementError(
                    "--tensorboard needs the package tensorboard; it is not installed; pip install "
                    "'subtext[tensorboard]'"
                ) from problem
            self._board = SummaryWriter(str(run / BOARD), purge_step=step or None)

    def write(self, event: str, values: Mapping[str, Any]) -> None:
        """Append {"event": ..., **values}; the numbers go to TensorBoard too, at their "step"."""
        with written_to(self._path):
            self._file.write(json.dumps({"event": event, **values}, ensure_ascii=False) + "\n")
            self._file.flush()
        if self._board is not None:
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


def _numbers(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Name -> number, of nested values too."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and name != "step":
            yield prefix + name, float(value)
