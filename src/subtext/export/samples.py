"""What an exported model is compared on: items of the run's own data where it is still there, and random tensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from subtext.api.load import Run
from subtext.api.loaded import read, remembered
from subtext.data.batches import item_batch
from subtext.data.features import FeatureInput
from subtext.data.inputs import Batch, Tensors
from subtext.data.pixels import PixelInput
from subtext.errors import SubtextError
from subtext.models.model import Branch, Model

COUNT = 8
"""Items of the data that are looked at."""


@dataclass(frozen=True)
class Samples:
    """Inputs of each side, "image" and "text": batches of several sizes; and where they came from, in words."""

    batches: dict[str, list[Tensors]] = field(default_factory=dict)
    source: str = "random inputs"


def gather(run: Run) -> Samples:
    """Batches of the run's data if it can be read, and random ones of one and of three items."""
    generator = torch.Generator().manual_seed(0)
    batches = {
        side: [_random(getattr(run.model, side), count, generator) for count in (1, 3)] for side in ("image", "text")
    }
    try:
        real = _real(run)
    except (SubtextError, OSError):
        # The data may have been moved since the training; random inputs are then all there is.
        return Samples(batches)
    return Samples(
        {side: [*batches[side], real[side]] for side in batches}, f"random inputs and {COUNT} items of the data"
    )


def expected(model: Model, side: str, batch: Tensors) -> Tensor:
    """(N K D) what the model itself makes of a batch."""
    model.eval()
    with torch.inference_mode():
        found: Tensor = getattr(model, side)(batch).vectors.clone()
    return found


def _real(run: Run) -> dict[str, Tensors]:
    sources = remembered(run.record.data)
    pairs = read(sources, quiet=True).pairs
    chosen = {"image": pairs.images, "text": pairs.texts}
    rows = {side: np.arange(min(COUNT, len(items)), dtype=np.int64) for side, items in chosen.items()}
    return {
        side: getattr(run.model, side).read(item_batch(items, rows[side], pairs.root)) for side, items in chosen.items()
    }


def _random(branch: Branch, count: int, generator: torch.Generator) -> Tensors:
    """A batch of the right shapes; texts of unequal lengths."""
    input_spec, ids = branch.input_spec, torch.arange(count)
    if isinstance(input_spec, PixelInput):
        return {"pixels": torch.randn(count, 3, input_spec.size, input_spec.size, generator=generator), "ids": ids}
    if isinstance(input_spec, FeatureInput):
        tensors = {"ids": ids}
        if input_spec.pooled is not None:
            tensors["pooled"] = torch.randn(count, input_spec.pooled, generator=generator)
        if input_spec.grid is not None:
            tensors["grid"] = torch.randn(count, 4 + count, input_spec.grid, generator=generator)
            tensors["mask"] = _mask(count, 4 + count)
        return tensors
    words = ["a", "red dog on the beach", "two old boats and a very small house in the dark 🚣🏽"]
    rows = np.arange(count, dtype=np.int64)
    texts = [words[row % len(words)] for row in range(count)]
    return input_spec(Batch(texts, texts, rows, rows, Path()))


def _mask(count: int, length: int) -> Tensor:
    """Each item shorter than the one before."""
    return torch.arange(length)[None, :] < (length - torch.arange(count))[:, None]
