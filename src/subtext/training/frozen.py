"""Which model is trained: the recipe's, with cached outputs in the place of encoders that never learn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from subtext.data.dataset import Dataset
from subtext.models.checkpoint import fingerprint
from subtext.models.feature_cache import cached_branch, refusal, write_cache
from subtext.models.model import Branch, Model
from subtext.training.options import RunOptions
from subtext.training.phases import Freezer
from subtext.training.processes import Processes
from subtext.training.setup import Setup


def working_model(
    setup: Setup, sets: Sequence[Dataset | None], cache: Path, *, run: RunOptions, processes: Processes
) -> tuple[Model, list[str]]:
    """The model to train, which shares every learning module with the recipe's, and what there is to say about it.

    An encoder without any weight that learns in any epoch is run once over the pairs and its outputs are read from the
    folder `cache`; where its Input augments it is run every time.
    """
    freezer, notes = Freezer(setup.model), []
    present = [pairs for pairs in sets if pairs is not None]
    branches: dict[str, Branch] = {}
    for modality in ("image", "text"):
        branch: Branch = getattr(setup.model, modality)
        branches[modality] = branch
        if not freezer.never_learns(branch, setup.plan, setup.phases):
            continue
        if modality == "text" and setup.rewriting is not None:
            notes.append("the frozen text encoder runs at every step: it reads texts that are made there")
            continue
        if modality == "image" and setup.mixing is not None:
            notes.append("the frozen image encoder runs at every step: pictures are mixed, and so others every time")
            continue
        items = [(pairs.images if modality == "image" else pairs.texts, pairs.root) for pairs in present]
        if (reason := refusal(branch, items)) is not None:
            notes.append(f"the frozen {modality} encoder runs at every step: {reason}")
            continue
        weights = fingerprint(branch.encoder.state_dict())
        if processes.first:
            write_cache(branch, items, cache, weights=weights, precision=run.cache_precision, device=processes.device)
        processes.wait()
        branches[modality] = cached_branch(branch, items, cache, weights=weights, precision=run.cache_precision)
        notes.append(f"the frozen {modality} encoder was run once; its outputs are read from {cache}")
    if not notes or branches == {"image": setup.model.image, "text": setup.model.text}:
        return setup.model, notes
    return Model(branches["image"], branches["text"], setup.model.similarity), notes
