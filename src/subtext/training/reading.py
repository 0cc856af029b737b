"""From the rows of a batch to the tensors of one step, read in threads ahead of need."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subtext.data.batches import epoch_batches, item_batch
from subtext.data.inputs import Draw, Tensors
from subtext.data.pairs import Pairs
from subtext.errors import TrainingError
from subtext.model import Model
from subtext.training.plan import Plan


@dataclass(frozen=True)
class Reading:
    """What one process reads for one step.

    images, texts  tensors of its share, row i of one with row i of the other
    groups         (N) int64 of its share        whole  pairs of the step over all processes
    """

    images: Tensors
    texts: Tensors
    groups: Tensor
    whole: int

    def to(self, device: torch.device) -> Reading:
        """The same on another device, without waiting for it."""
        if device.type == "cpu":
            return self
        return Reading(_to(self.images, device), _to(self.texts, device), self.groups.to(device), self.whole)

    def part(self, rows: slice) -> tuple[Tensors, Tensors]:
        """Tensors of some of the pairs."""
        return (
            {name: value[rows] for name, value in self.images.items()},
            {name: value[rows] for name, value in self.texts.items()},
        )


@dataclass(frozen=True)
class Reader:
    """Reads the share of one process: rows of a batch -> Reading; `draw` None reads without augmentation."""

    model: Model
    pairs: Pairs
    draw: Draw | None
    processes: int = 1
    rank: int = 0

    def __call__(self, rows: NDArray[np.int64]) -> Reading:
        """The tensors of a batch given as (B, 2) picture row and text row."""
        whole = len(rows)
        own = rows[self.rank * whole // self.processes : (self.rank + 1) * whole // self.processes]
        pictures = item_batch(self.pairs.images, own[:, 0], self.pairs.root)
        texts = item_batch(self.pairs.texts, own[:, 1], self.pairs.root)
        return Reading(
            images=self.model.image.reads(pictures, self.draw),
            texts=self.model.text.reads(texts, self.draw),
            groups=torch.from_numpy(self.pairs.images.groups[own[:, 0]]),
            whole=whole,
        )


def batches_of(pairs: Pairs, plan: Plan, *, epoch: int, seed: int, processes: int) -> list[NDArray[np.int64]]:
    """The batches of an epoch that every process can have a share of.

    Raises TrainingError when none has two pairs, and one for each process.
    """
    least = max(2, processes)
    found = epoch_batches(pairs, batch_size=plan.batch_size, epoch=epoch, seed=seed, captions=plan.captions)
    usable = [rows for rows in found if len(rows) >= least]
    if not usable:
        raise TrainingError(
            f"training needs batches of {least} pairs or more, since what is wrong is learnt from other pairs; it got "
            f"{len(pairs.links)} pairs in batches of {plan.batch_size}; give more data or a larger --batch-size"
        )
    return usable


def _to(tensors: Tensors, device: torch.device) -> Tensors:
    return {name: value.to(device, non_blocking=True) for name, value in tensors.items()}
