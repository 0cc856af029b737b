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
from subtext.data.inputs import Tensors
from subtext.data.pairs import Items, Pairs
from subtext.model import Branch, Model


def embed_pairs(
    model: Model,
    pairs: Pairs,
    *,
    batch_size: int = 128,
    workers: int = 2,
    progress: Callable[[int], None] | None = None,
) -> tuple[Embeddings, Embeddings]:
    """Embeddings of all pictures and all texts, in their order, on the CPU; ids are rows.

    batch_size  items read and embedded together
    workers     threads that read ahead; 0 to read when needed
    progress    hears how many items of pictures and texts together are done

    The model is in eval mode meanwhile. Only what its similarity reads is kept: no residuals, and no parts where
    vectors alone decide.
    """
    was_training = model.training
    model.eval()
    try:
        images = embed_items(
            model, model.image, pairs.images, pairs.root, reading=(batch_size, workers), progress=progress
        )

        def further(done: int) -> None:
            assert progress is not None
            progress(len(pairs.images) + done)

        texts = embed_items(
            model,
            model.text,
            pairs.texts,
            pairs.root,
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
    reading: tuple[int, int] = (128, 2),
    progress: Callable[[int], None] | None = None,
) -> Embeddings:
    """Embeddings of the items of one side, one or more, by a model in eval mode; else as `embed_pairs`.

    reading  items read and embedded together, and threads that read ahead
    """
    batch_size, workers = reading
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    every = np.arange(len(items), dtype=np.int64)
    work = [every[start : start + batch_size] for start in range(0, len(items), batch_size)]

    def read(rows: NDArray[np.int64]) -> Tensors:
        return branch.read(item_batch(items, rows, root))

    pieces: list[Embeddings] = []
    done = 0
    with torch.inference_mode():
        for rows, inputs in zip(work, read_ahead(work, read, workers=workers), strict=True):
            embedded = branch({name: value.to(device) for name, value in inputs.items()})
            pieces.append(_needed(embedded, model.indexable).to("cpu"))
            done += len(rows)
            if progress is not None:
                progress(done)
    return Embeddings.cat(pieces)


def _needed(embedded: Embeddings, indexable: bool) -> Embeddings:
    slim = replace(embedded, residuals=None)
    return replace(slim, parts=None, mask=None) if indexable else slim
