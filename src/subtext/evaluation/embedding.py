"""Embeddings of a data set, read ahead by threads while the model computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from subtext.core import Embeddings
from subtext.data.batches import item_batch, read_ahead
from subtext.data.dataset import Dataset, Items
from subtext.data.inputs import Tensors
from subtext.models.model import Branch, Model

Rows = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Of pictures, and of texts."""


def embed_pairs(
    model: Model,
    pairs: Dataset,
    *,
    rows: Rows | None = None,
    batch_size: int = 128,
    workers: int = 2,
    progress: Callable[[int], None] | None = None,
) -> tuple[Embeddings, Embeddings]:
    """Embeddings of all pictures and all texts, in their order, on the CPU; ids are rows.

    rows        of the pictures and of the texts that are wanted, one or more of either; None for all
    batch_size  items read and embedded together
    workers     threads that read ahead; 0 to read when needed
    progress    hears how many items of pictures and texts together are done

    The model is in eval mode meanwhile. Only what its similarity reads is kept: no residuals, and no parts where
    vectors alone decide.
    """
    was_training = model.training
    model.eval()
    of_images, of_texts = (None, None) if rows is None else rows
    try:
        images = embed_items(
            model,
            model.image,
            pairs.images,
            pairs.root,
            rows=of_images,
            reading=(batch_size, workers),
            progress=progress,
        )

        def further(done: int) -> None:
            assert progress is not None
            progress(len(images) + done)

        texts = embed_items(
            model,
            model.text,
            pairs.texts,
            pairs.root,
            rows=of_texts,
            reading=(batch_size, workers),
            progress=None if progress is None else further,
        )
    finally:
        model.train(was_training)
    return images, texts


def embed_items(
    model: Model,
    branch: Branch,
    items: Items,
    root: Path,
    *,
    rows: NDArray[np.int64] | None = None,
    reading: tuple[int, int] = (128, 2),
    progress: Callable[[int], None] | None = None,
) -> Embeddings:
    """Embeddings of the items of one side, one or more, by a model in eval mode; else as `embed_pairs`.

    rows     of the items that are wanted, in this order; None for all
    reading  items read and embedded together, and threads that read ahead
    """
    batch_size, workers = reading
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    every = np.arange(len(items), dtype=np.int64) if rows is None else rows
    work = [every[start : start + batch_size] for start in range(0, len(every), batch_size)]

    def read(some: NDArray[np.int64]) -> Tensors:
        return branch.read(item_batch(items, some, root))

    chunks: list[Embeddings] = []
    done = 0
    with torch.inference_mode():
        for some, inputs in zip(work, read_ahead(work, read, workers=workers), strict=True):
            embedded = branch({name: value.to(device) for name, value in inputs.items()})
            chunks.append(_needed(embedded, model.indexable).to("cpu"))
            done += len(some)
            if progress is not None:
                progress(done)
    return Embeddings.cat(chunks)


def _needed(embedded: Embeddings, indexable: bool) -> Embeddings:
    slim = replace(embedded, residuals=None)
    return replace(slim, parts=None, mask=None) if indexable else slim
