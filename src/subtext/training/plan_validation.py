"""What a training cannot do, refused before anything is written; and what is worth a word before it begins."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from torch.nn.modules.batchnorm import _BatchNorm

from subtext.data.dataset import Dataset
from subtext.data.inputs import Draw
from subtext.data.text import cut_note
from subtext.errors import TrainingError, counted
from subtext.objectives.objective import Term
from subtext.objectives.weighting.neighbourhood import Neighbourhood
from subtext.training.optimiser import parameter_groups
from subtext.training.phases import Freezer, stage
from subtext.training.processes import Processes
from subtext.training.reading import batches_of
from subtext.training.setup import Setup

SHOWN = 3
"""How many names of modules a sentence has room for."""
LARGE = 0.2
"""Share of the pairs in one group from which it is worth a word: so many fewer wrong answers are learnt from."""


def validate_plan(setup: Setup, train: Dataset, processes: Processes) -> list[str]:
    """Refuse what cannot be trained as asked; gives notes on what can, but not as one may think.

    Raises DataError where texts lack the words that a relevance reads; TrainingError for fp16 without a GPU, a model
    without a weight that learns, pairs that make no batch or that are all of one group, and a batch norm in training
    with gradient caching: each chunk would be normed by itself, and the gradient be another one.
    """
    plan = setup.plan
    if setup.relevance is not None:
        setup.relevance.require(train)
    if setup.mixing is not None and plan.caption_sampling == "together":
        raise TrainingError(
            "mixed images need pairs, a text for each (caption_sampling=all or one); caption_sampling is together; "
            "turn mixing off (pcme_plus: --mix-prob 0)"
        )
    if plan.precision == "fp16" and processes.device.type != "cuda":
        raise TrainingError(
            f"precision fp16 needs a GPU, where its loss is scaled; the device is {processes.device.type}; "
            "use bf16, or float32"
        )
    parameter_groups(setup.model, plan)
    batches_of(train, plan, epoch=0, seed=0, processes=processes.count)
    notes = [*_groups(train), *_weights(setup), *_texts(setup, train)]
    norms = batch_norms(setup)
    if norms and plan.grad_cache_chunk:
        raise TrainingError(
            "gradient caching (--grad-cache-chunk) needs items that do not depend on each other; this model normalises "
            f"over the batch while training (in {_named(norms)}); leave these norms out (vse_infinity: --no-mlp), "
            "freeze their statistics (--backbone-norms frozen) or the encoder (--freeze-epochs -1), or train without "
            "--grad-cache-chunk"
        )
    if norms and processes.count > 1:
        notes.append(
            f"batch norms ({_named(norms)}) see the share of the batch that each of the {processes.count} processes "
            "has: the weights will not be those that one process would give"
        )
    return notes


def _texts(setup: Setup, train: Dataset) -> list[str]:
    """Notes on texts that are cut, and on what cannot be made of them; raises DataError where nothing can."""
    input_spec = setup.model.text.input_spec
    notes = [cut_note(input_spec, train.texts.values)]
    if setup.rewriting is not None:
        rewriter = setup.rewriting.open(train)
        # Other texts are joined in every epoch: those of one tell how many are too long.
        notes += [cut_note(input_spec, rewriter.joined(Draw(seed=0, epoch=0)), of="joined text"), *rewriter.notes]
    return [note for note in notes if note is not None]


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


@runtime_checkable
class _Totalled(Protocol):
    """A weighting whose weights have a known sum over a batch, by its `total` and the batch that this is for."""

    batch: int

    def total_for(self, pairs: int) -> float:
        """That sum."""


def _weights(setup: Setup) -> list[str]:
    """A note on sample weights of less than one a pair."""
    size = setup.plan.batch_size
    for part in setup.objective.parts.values():
        weighting: object = part.weighting if isinstance(part, Term) else None
        if not isinstance(weighting, _Totalled) or (total := weighting.total_for(size)) >= size:
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
    freezer = Freezer(setup.model)
    was_training = setup.model.training
    found: dict[str, None] = {}
    for current in {stage(setup.plan, setup.phases, epoch) for epoch in range(setup.plan.epochs)}:
        freezer.apply(current)
        modules = setup.model.named_modules()
        found |= {name: None for name, module in modules if isinstance(module, _BatchNorm) and module.training}
    freezer.release()
    setup.model.train(was_training)
    return list(found)


def _named(modules: list[str]) -> str:
    more = f" and {len(modules) - SHOWN} more" if len(modules) > SHOWN else ""
    return ", ".join(modules[:SHOWN]) + more
