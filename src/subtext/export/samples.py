"""Inputs on which an exported model is compared with the model: random tensors and items of the run's data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from subtext.data.batches import item_batch
from subtext.data.features import FeatureInput
from subtext.data.inputs import Batch, Tensors
from subtext.data.pixels import PixelInput
from subtext.models.model import Branch, Model

if TYPE_CHECKING:
    from subtext.data.dataset import Dataset

COUNT = 8
"""Items of the data that are compared."""
SIDES = ("image", "text")


@dataclass(frozen=True)
class Samples:
    """Batches of several sizes for each of "image" and "text", and a phrase that says where they come from."""

    batches: dict[str, list[Tensors]]
    source: str


def sample_inputs(model: Model, dataset: Dataset | None) -> Samples:
    """Random batches of one and of three items, and the first items of the data set where there is one."""
    generator = torch.Generator().manual_seed(0)
    batches = {side: [_random(getattr(model, side), count, generator) for count in (1, 3)] for side in SIDES}
    if dataset is None:
        return Samples(batches, "random inputs")
    for side, items in (("image", dataset.images), ("text", dataset.texts)):
        rows = np.arange(min(COUNT, len(items)), dtype=np.int64)
        batches[side].append(getattr(model, side).read(item_batch(items, rows, dataset.root)))
    return Samples(batches, f"random inputs and {COUNT} items of the data")


def vectors_of(model: Model, side: str, batch: Tensors) -> Tensor:
    """(N K D) the model's own vectors of a batch."""
    model.eval()
    with torch.inference_mode():
        vectors: Tensor = getattr(model, side)(batch).vectors.clone()
    return vectors


def _random(branch: Branch, count: int, generator: torch.Generator) -> Tensors:
    """A batch of the shapes that the branch reads; texts have different lengths."""
    input_spec, ids = branch.input_spec, torch.arange(count)
    if isinstance(input_spec, PixelInput):
        return {"pixels": torch.randn(count, 3, input_spec.size, input_spec.size, generator=generator), "ids": ids}
    if isinstance(input_spec, FeatureInput):
        tensors = {"ids": ids}
        if input_spec.pooled is not None:
            tensors["pooled"] = torch.randn(count, input_spec.pooled, generator=generator)
        if input_spec.grid is not None:
            regions = 4 + count
            tensors["grid"] = torch.randn(count, regions, input_spec.grid, generator=generator)
            # Each item has one region fewer than the one before.
            tensors["mask"] = torch.arange(regions)[None, :] < (regions - torch.arange(count))[:, None]
        return tensors
    captions = ["a", "red dog on the beach", "two old boats and a very small house in the dark 🚣🏽"]
    rows = np.arange(count, dtype=np.int64)
    texts = [captions[row % len(captions)] for row in range(count)]
    return input_spec(Batch(texts, texts, rows, rows, Path()))
