"""From the rows of a batch to the tensors of one step, read in threads ahead of need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from subtext.data.batches import epoch_batches, item_batch
from subtext.data.inputs import Draw, Tensors
from subtext.data.pairs import Pairs
from subtext.errors import TrainingError
from subtext.model import Model
from subtext.scene import Groups
from subtext.training.plan import Plan


@dataclass(frozen=True)
class Reading:
    """What one process reads for one step.

    images, texts  tensors of its share: of pairs, row i of one with row i of the other, or of pictures with all their
                   texts
    groups         of each picture and text of its share
    share          part of the step's queries that is here, by comparison
    """

    images: Tensors
    texts: Tensors
    groups: Groups
    share: Mapping[str, float]

    def to(self, device: torch.device) -> Reading:
        """The same on another device, without waiting for it."""
        if device.type == "cpu":
            return self
        groups = Groups(*(value.to(device) for value in self.groups))
        return Reading(_to(self.images, device), _to(self.texts, device), groups, self.share)


@dataclass(frozen=True)
class Reader:
    """Reads the share of one process: rows of a batch -> Reading; `draw` None reads without augmentation.

    together  a picture of several pairs, and a text of several pictures, is read once
    """

    model: Model
    pairs: Pairs
    draw: Draw | None
    together: bool = False
    processes: int = 1
    rank: int = 0

    def __call__(self, rows: NDArray[np.int64]) -> Reading:
        """The tensors of a batch given as (B, 2) picture row and text row."""
        images, texts = rows, rows
        if self.together:
            images, texts = (rows[np.sort(np.unique(rows[:, side], return_index=True)[1])] for side in (0, 1))
        own_images, own_texts = self._own(images), self._own(texts)
        pairs, groups = self.pairs, torch.from_numpy(self.pairs.images.groups)
        return Reading(
            images=self.model.image.reads(item_batch(pairs.images, own_images[:, 0], pairs.root), self.draw),
            texts=self.model.text.reads(item_batch(pairs.texts, own_texts[:, 1], pairs.root), self.draw),
            groups=Groups(*(groups[torch.from_numpy(own[:, 0])] for own in (own_images, own_texts))),
            share={
                "image_to_text": len(own_images) / len(images),
                "text_to_image": len(own_texts) / len(texts),
            },
        )

    def _own(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        whole = len(rows)
        return rows[self.rank * whole // self.processes : (self.rank + 1) * whole // self.processes]


def batches_of(pairs: Pairs, plan: Plan, *, epoch: int, seed: int, processes: int) -> list[NDArray[np.int64]]:
    """The batches of an epoch that every process can have a share of.

    Raises TrainingError when none has two pairs, and one for each process.
    """
    least = max(2, processes)
    found = epoch_batches(pairs, batch_size=plan.batch_size, epoch=epoch, seed=seed, captions=plan.captions)
    together = plan.captions == "together"
    usable = [rows for rows in found if _fewest(rows, together=together) >= least]
    if not usable:
        raise TrainingError(
            f"training needs batches of {least} pairs or more, since what is wrong is learnt from other pairs; it got "
            f"{len(pairs.links)} pairs in batches of {plan.batch_size}; give more data or a larger --batch-size"
        )
    return usable


def _fewest(rows: NDArray[np.int64], *, together: bool) -> int:
    """Pictures or texts of a batch, whichever are fewer."""
    return min(len(np.unique(rows[:, side])) for side in (0, 1)) if together else len(rows)


def _to(tensors: Tensors, device: torch.device) -> Tensors:
    return {name: value.to(device, non_blocking=True) for name, value in tensors.items()}
