"""Embeddings of a data set, read ahead by threads while the model computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from subtext.core import Embeddings
from subtext.data.batches import item_batch, read_ahead
from subtext.data.dataset import Dataset, Items
from subtext.data.inputs import SeveralInputs, Tensors
from subtext.data.output_cache import OutputCache, user_cache
from subtext.data.text import SubwordInput
from subtext.errors import OutputError
from subtext.models.ensemble import Members
from subtext.models.feature_cache import cached_branch
from subtext.models.heads.gaussian import Gaussian
from subtext.models.model import Branch, Model

Rows = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Of images, and of texts."""


def embed_pairs(
    model: Model,
    pairs: Dataset,
    *,
    rows: Rows | None = None,
    batch_size: int = 128,
    workers: int = 2,
    progress: Callable[[int], None] | None = None,
    note: Callable[[str], None] | None = None,
) -> tuple[Embeddings, Embeddings]:
    """Embeddings of all images and all texts, in their order, on the CPU; ids are rows.

    The model is in eval mode meanwhile. Only what its similarity reads is kept: no residuals, and no parts where
    vectors alone decide. Outputs of frozen encoders are read from the user's cache, and written to it.

    Args:
        model: Embeds images and texts.
        pairs: I images and T texts.
        rows: Of the images and of the texts to embed; None for all. Of one side there may be none: then its embeddings
            have no item, and the shape of the other side.
        batch_size: Items read and embedded together.
        workers: Threads that read ahead; 0 to read when needed.
        progress: Called with how many images and texts together are done.
        note: Called with a sentence where outputs could not be cached.

    Returns:
        Embeddings of the images and of the texts.
    """
    image_rows, text_rows = rows or (None, None)
    reading, root = (batch_size, workers), pairs.root
    embed = partial(embed_items, model, root=root, reading=reading, note=note)
    if not len(pairs.images if image_rows is None else image_rows):
        texts = embed(model.text, pairs.texts, rows=text_rows, progress=progress)
        return texts[:0], texts
    images = embed(model.image, pairs.images, rows=image_rows, progress=progress)
    if not len(pairs.texts if text_rows is None else text_rows):
        return images, images[:0]
    both = None if progress is None else (lambda done: progress(len(images) + done))
    texts = embed(model.text, pairs.texts, rows=text_rows, progress=both)
    return images, texts


def embed_items(
    model: Model,
    branch: Branch,
    items: Items,
    root: Path,
    *,
    rows: NDArray[np.int64] | None = None,
    row_ids: NDArray[np.int64] | None = None,
    reading: tuple[int, int] = (128, 2),
    progress: Callable[[int], None] | None = None,
    cache: OutputCache | None = None,
    note: Callable[[str], None] | None = None,
) -> Embeddings:
    """Embeddings of the items of one side, one or more; else as `embed_pairs`.

    Texts of equal subwords are embedded once: their vectors are equal to the bit, whatever the batch size.

    Args:
        model: Is put in eval mode meanwhile.
        branch: The image or the text branch of the model.
        items: Images, or texts.
        root: Folder that paths of images start from.
        rows: Of the items to embed, in this order; None for all.
        row_ids: Row numbers that the model gets; the true ones by default.
        reading: Items read and embedded together, and threads that read ahead.
        progress: Called with how many are done.
        cache: Of outputs of frozen encoders; that of the user by default.
        note: Called with a sentence where outputs could not be cached.

    Returns:
        (N) embeddings on the CPU.
    """
    batch_size, workers = reading
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    rows = np.arange(len(items), dtype=np.int64) if rows is None else rows
    row_ids = rows if row_ids is None else row_ids
    try:
        reader = _from_cache(branch, (items.take(rows), root), cache, device, progress)
        progress = progress if reader is branch else None
        branch = reader
    except OutputError as problem:
        if note is not None:
            note(f"note: outputs of frozen encoders are not kept: {problem}")
    order = positions = np.arange(len(rows), dtype=np.int64)
    # The noise of a head that samples differs from text to text.
    if isinstance(branch.input_spec, SubwordInput) and not isinstance(branch.head, Gaussian):
        order, positions = branch.input_spec.distinct(item_batch(items, rows, root))
    batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]

    def read(batch: NDArray[np.int64]) -> Tensors:
        return branch.read(replace(item_batch(items, rows[batch], root), rows=row_ids[batch]))

    chunks: list[Embeddings] = []
    done = 0
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            for inputs in read_ahead(batches, read, workers=workers):
                embedded = replace(branch({name: value.to(device) for name, value in inputs.items()}), residuals=None)
                if model.indexable:
                    embedded = replace(embedded, parts=None, mask=None)
                chunks.append(embedded.to("cpu"))
                done += len(embedded)
                if progress is not None:
                    progress(done * len(rows) // len(order))
    finally:
        model.train(was_training)
    embedded = Embeddings.cat(chunks)
    if positions is order:
        return embedded
    return replace(embedded[torch.from_numpy(positions)], ids=torch.from_numpy(row_ids.copy()))


def _from_cache(
    branch: Branch,
    items: tuple[Items, Path],
    cache: OutputCache | None,
    device: torch.device,
    progress: Callable[[int], None] | None,
) -> Branch:
    """The branch, or one that reads what its frozen encoder, or those of an ensemble's members, gives for the items."""
    ensemble = branch.encoder if isinstance(branch.encoder, Members) else None
    members: list[Any] = [branch] if ensemble is None else list(ensemble.members)
    frozen = [member.frozen and not member.input_spec.augments for member in members]
    cache = cache or (user_cache() if any(frozen) else None)
    if cache is None or not any(frozen):
        return branch
    readers = [
        cached_branch(member, [items], cache, device=device, progress=progress) if is_frozen else member
        for member, is_frozen in zip(members, frozen, strict=True)
    ]
    if ensemble is None:
        return readers[0]
    several = SeveralInputs(tuple(reader.input_spec for reader in readers))
    return Branch(several, Members(readers, several), branch.head).train(branch.training)
