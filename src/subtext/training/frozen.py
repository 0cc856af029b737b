"""Frozen encoders are run once, and their outputs read from a cache."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from subtext.data.dataset import Dataset
from subtext.data.given import is_given
from subtext.data.output_cache import OutputCache, user_cache
from subtext.errors import OutputError
from subtext.models.feature_cache import cached_branch, why_not_cacheable
from subtext.models.model import Branch, Model
from subtext.text_helpers import size
from subtext.training.optimiser import FreezeSchedule
from subtext.training.plan import RunConfig
from subtext.training.processes import Processes
from subtext.training.setup import Setup


def working_model(
    setup: Setup, sets: Sequence[Dataset | None], own: Path, *, run: RunConfig, processes: Processes
) -> tuple[Model, list[str]]:
    """The model to train, which shares every learning module with the recipe's, and notes on it.

    An encoder without any weight that learns in any epoch is run once over the pairs, and its outputs are read from the
    cache. Where its Input augments, or a method makes items of its own, it runs at every step.

    Args:
        setup: Model, plan, phases, and what methods read beside a batch.
        sets: Training pairs and validation pairs, where there are any.
        own: Folder of this training for the outputs of frozen encoders, where the user's cache does not take them.
        run: Its cache, where it names one, and the precision.
        processes: The first one writes the cache.

    Returns:
        The setup's model, or one with cached branches; and notes for the user.
    """
    freezer, notes = FreezeSchedule(setup.model), []
    present = [pairs for pairs in sets if pairs is not None]
    branches: dict[str, Branch] = {"image": setup.model.image, "text": setup.model.text}
    for modality, branch in list(branches.items()):
        if not freezer.never_learns(branch, setup.plan, setup.phases):
            continue
        items = [(pairs.images if modality == "image" else pairs.texts, pairs.root) for pairs in present]
        reason = why_not_cacheable(branch, items)
        if any(modality in source.generates for source in setup.extras):
            reason = f"it reads {modality}s that are made there"
        elif modality == "image" and setup.mixing is not None:
            reason = "images are mixed, and so others every time"
        if reason is not None:
            notes.append(f"the frozen {modality} encoder runs at every step: {reason}")
            continue
        # A large training, or a full disk, need not end for want of a cache that others share.
        caches = [user_cache(), OutputCache(own)] if run.cache is None else [OutputCache(Path(run.cache))]
        if is_given(branch.input_spec):
            # Another training may give another object of the same name.
            caches = [OutputCache(own)]
        for cache in filter(None, caches):
            problem: OutputError | None = None
            try:
                if processes.first:
                    read = cached_branch(branch, items, cache, device=processes.device, precision=run.cache_precision)
            except OutputError as error:
                problem = error
            if not processes.broadcast([float(problem is not None)])[0]:
                break
            if problem is not None and cache is not caches[-1]:
                notes.append(f"{problem}; until then, the outputs of this training are in its own folder, {own}")
        else:
            raise problem or OutputError(f"{caches[-1]} could not be written by the first process")
        if not processes.first:
            read = cached_branch(branch, items, cache, device=processes.device, precision=run.cache_precision)
        branches[modality] = read
        limit = "" if cache.limit is None else f" of at most {size(cache.limit)}"
        notes.append(
            f"the frozen {modality} encoder was run once; its outputs are read from {cache.folder} "
            f"({size(cache.size)}{limit})"
        )
    if (branches["image"], branches["text"]) == (setup.model.image, setup.model.text):
        return setup.model, notes
    return Model(branches["image"], branches["text"], setup.model.similarity), notes
