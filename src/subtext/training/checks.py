"""What is refused before a training begins, and while it runs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.nn.modules.batchnorm import _BatchNorm

from subtext.data.atomic import write_text
from subtext.data.dataset import Dataset
from subtext.data.text import cut_note
from subtext.errors import OutputError, Setting, TrainingError
from subtext.objectives.objective import Term
from subtext.objectives.weighting import Neighbourhood
from subtext.text_helpers import counted, json_text, listed
from subtext.training.optimiser import FreezeSchedule, parameter_groups, stage
from subtext.training.processes import Processes
from subtext.training.setup import Setup
from subtext.training.sharding import require_divisible
from subtext.training.step import batches_of

LARGE = 0.2
"""Share of the pairs in one group from which a note is due: so many fewer wrong answers are learnt from."""


def validate_plan(setup: Setup, train: Dataset, processes: Processes, *, shard_weights: bool = False) -> list[str]:
    """Refuse what cannot be trained by its plan, before anything is written.

    Args:
        setup: Model, objective and plan.
        train: Training pairs.
        processes: Of the training.
        shard_weights: Whether towers are divided over the processes.

    Returns:
        Notes on what can be trained, but not as one may think.

    Raises:
        DataError: If texts lack the words that a relevance reads.
        TrainingError: For fp16 without a GPU, a model without a weight that learns, pairs that make no batch or that
            are all of one group, and a batch norm in training with gradient caching: each chunk would be normed by
            itself, and the gradient be another one. For towers that cannot be divided.
    """
    plan = setup.plan
    if shard_weights:
        require_divisible(setup, processes)
    if setup.relevance is not None:
        setup.relevance.require(train)
    pairwise = [] if setup.mixing is None else [setup.mixing.needs_pairs]
    if any(len(np.unique(rows)) < len(rows) for rows in train.links.T):
        pairwise += [bank.needs_pairs for bank in setup.banks if bank.needs_pairs is not None]
    if pairwise and plan.caption_sampling == "together":
        what, alternative = pairwise[0]
        raise TrainingError(
            f"{what} need pairs, a text for each image (",
            Setting("caption_sampling", "all or one"),
            "); ",
            Setting("caption_sampling"),
            f" is together; change it, or {alternative}",
        )
    if plan.precision == "fp16" and processes.device.type != "cuda":
        raise TrainingError(
            f"precision fp16 needs a GPU, where its loss is scaled; the device is {processes.device.type}; "
            "use bf16, or float32"
        )
    parameter_groups(setup.model, plan)
    batches_of(train, plan, epoch=0, seed=0, processes=processes.count)
    cut = cut_note(setup.model.text.input_spec, train.texts.values)
    note = getattr(setup.model.text.input_spec, "note", "")
    notes = [*_groups(train), *_weights(setup), *filter(None, [cut, note])]
    norms = batch_norms(setup)
    if norms and plan.grad_cache_chunk:
        raise TrainingError(
            "gradient caching (",
            Setting("grad_cache_chunk"),
            ") needs items that do not depend on each other; this model normalises "
            f"over the batch while training (in {listed(norms)}); leave these norms out (vse_infinity: ",
            Setting("mlp", "False"),
            "), freeze their statistics (",
            Setting("backbone_norms", "frozen"),
            ") or the encoder (",
            Setting("freeze_epochs", "-1"),
            "), or train without ",
            Setting("grad_cache_chunk"),
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
    """The batch norms that use the statistics of the batch in some epoch of the training.

    Args:
        setup: Model, plan and phases.

    Returns:
        Names of the modules.
    """
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


def not_finite(train: Dataset, rows: NDArray[np.int64], *, epoch: int, batch: int, file: Path | None) -> TrainingError:
    """The error for a loss or gradient that is not finite, with the first pairs; all of them are written to a file.

    Args:
        train: Training pairs.
        rows: (B 2) image row and text row of the pairs of the batch, or of the batches whose gradients were averaged.
        epoch: Counted from 1.
        batch: Of the epoch, counted from 1.
        file: Where the pairs are written; None on a process that does not write.

    Returns:
        The error, to be raised.
    """
    images, texts = train.images.ids, train.texts.ids
    pairs = [{"image": images[image], "text": texts[text]} for image, text in rows.tolist()]
    names_file = ""
    if file is not None:
        facts = {"epoch": epoch, "batch": batch, "pairs": pairs}
        # The loss is the error to raise, also where the disk is full.
        with suppress(OutputError):
            write_text(file, json_text(facts, indent=1) + "\n")
            names_file = f" (all of them: {file})"
    shown = listed([f"{pair['image']} / {pair['text']}" for pair in pairs], 10)
    return TrainingError(
        f"training needs finite losses and gradients; batch {batch} of epoch {epoch} gave one that is not, and nothing "
        "was saved after it; lower ",
        Setting("lr"),
        f", or look at its pairs{names_file}: {shown}",
    )
