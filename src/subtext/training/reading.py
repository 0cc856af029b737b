"""From the rows of a batch to the tensors of one step, read in threads ahead of need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subtext.data.batches import epoch_batches, item_batch
from subtext.data.dataset import Dataset, Items
from subtext.data.inputs import Draw, Tensors
from subtext.errors import TrainingError
from subtext.models.model import Branch, Model
from subtext.neighbours.sampling import Samplers, Side
from subtext.objectives.scene import Groups, Relevance
from subtext.training.batch_relevance import LoadedRelevance
from subtext.training.mixing import Mixing, mixed_truth
from subtext.training.plan import Plan
from subtext.training.processes import part
from subtext.training.rewriting import Rewriter, Rewritten


@dataclass(frozen=True)
class Neighbours:
    """One neighbour an image, a text, or both, read beside a share: row i is that of its row i.

    items   side -> tensors        groups  side -> group of each
    strangers  texts drawn at random, as many as texts; None where they are not asked for
    """

    items: Mapping[Side, Tensors]
    groups: Mapping[Side, Tensor]
    strangers: Tensors | None = None


@dataclass(frozen=True)
class Reading:
    """What one process reads for one step.

    images, texts  tensors of its share: of pairs, row i of one with row i of the other, or of images with all their
                   texts
    groups         of each image and text of its share
    share          part of the step's queries that is here, by comparison
    neighbours     of its images and texts, where they are asked for
    relevance      of its images and texts with those of the whole step, likewise
    rewritten      what is made of its texts, likewise
    """

    images: Tensors
    texts: Tensors
    groups: Groups
    share: Mapping[str, float]
    neighbours: Neighbours | None = None
    relevance: Relevance | None = None
    rewritten: Rewritten | None = None

    def to(self, device: torch.device) -> Reading:
        """The same on another device, without waiting for it."""
        if device.type == "cpu":
            return self
        groups = Groups(*(value.to(device) for value in self.groups))
        neighbours = self.neighbours
        if neighbours is not None:
            neighbours = Neighbours(
                {side: _to(tensors, device) for side, tensors in neighbours.items.items()},
                _to(neighbours.groups, device),
                None if neighbours.strangers is None else _to(neighbours.strangers, device),
            )
        relevance = self.relevance
        if relevance is not None:
            images, texts = (value.to(device, non_blocking=True) for value in relevance[:2])
            relevance = Relevance(images, texts, relevance.scale)
        rewritten = None if self.rewritten is None else self.rewritten.to(device)
        return Reading(
            _to(self.images, device), _to(self.texts, device), groups, self.share, neighbours, relevance, rewritten
        )


@dataclass(frozen=True)
class Reader:
    """Reads the share of one process: rows of a batch -> Reading; `draw` None reads without augmentation.

    together  an image of several pairs, and a text of several images, is read once
    samplers  draw the neighbours that are read beside; an image takes that of its first pair
    related   gives the relevance that is read beside
    mixing    mixes the images of a share, and says in the place of a relevance how much of each is whose
    rewriter  makes further texts of a batch's own
    """

    model: Model
    pairs: Dataset
    draw: Draw | None
    together: bool = False
    processes: int = 1
    rank: int = 0
    samplers: Samplers | None = None
    related: LoadedRelevance | None = None
    mixing: Mixing | None = None
    rewriter: Rewriter | None = None

    def __call__(self, rows: NDArray[np.int64]) -> Reading:
        """The tensors of a batch given as (B, 2) image row and text row."""
        images, texts = rows, rows
        if self.together:
            images, texts = (rows[np.sort(np.unique(rows[:, side], return_index=True)[1])] for side in (0, 1))
        own_images, own_texts = self._own(images), self._own(texts)
        groups = torch.from_numpy(self.pairs.images.groups)
        image_tensors, relevance = self._read("image", own_images[:, 0]), self._relevance(images[:, 0], texts[:, 1])
        if self.mixing is not None and self.draw is not None:
            keys = self.pairs.images.keys[own_images[:, 0]]
            mixed, own = self.mixing(image_tensors["pixels"], keys, self.draw)
            image_tensors, relevance = {**image_tensors, "pixels": mixed}, mixed_truth(own, len(rows))
        text_tensors = self._read("text", own_texts[:, 1])
        return Reading(
            images=image_tensors,
            texts=text_tensors,
            groups=Groups(*(groups[torch.from_numpy(own[:, 0])] for own in (own_images, own_texts))),
            share={
                "image_to_text": len(own_images) / len(images),
                "text_to_image": len(own_texts) / len(texts),
            },
            neighbours=self._neighbours({"image": own_images, "text": own_texts}),
            relevance=relevance,
            rewritten=self._rewritten(own_texts, text_tensors),
        )

    def _rewritten(self, links: NDArray[np.int64], texts: Tensors) -> Rewritten | None:
        if self.rewriter is None or self.draw is None:
            return None
        return self.rewriter(self.model.text.input_spec, links, texts, self.draw)

    def _relevance(self, images: NDArray[np.int64], texts: NDArray[np.int64]) -> Relevance | None:
        """Of the step's images and texts; own ones are queries, and the first of the candidates."""
        if self.related is None:
            return None
        cuts = [part(len(rows), self.rank, self.processes) for rows in (images, texts)]
        first = [
            np.r_[rows[cut], rows[: cut.start], rows[cut.stop :]]
            for rows, cut in zip((images, texts), cuts, strict=True)
        ]
        if self.processes == 1:
            matrix = self.related(*first)
            return Relevance(matrix, matrix.T, self.related.name)
        to_texts, to_images = self.related(images[cuts[0]], first[1]), self.related(first[0], texts[cuts[1]])
        return Relevance(to_texts, to_images.T, self.related.name)

    def _neighbours(self, links: Mapping[Side, NDArray[np.int64]]) -> Neighbours | None:
        if self.samplers is None or self.draw is None:
            return None
        items: dict[Side, Tensors] = {}
        groups: dict[Side, Tensor] = {}
        for side, sampler in self.samplers.by_side.items():
            texts = sampler(links[side], seed=self.draw.seed, epoch=self.draw.epoch)
            rows = sampler.pictures[texts] if side == "image" else texts
            items[side] = self._read(side, rows)
            groups[side] = torch.from_numpy(self._items(side).groups[rows])
        strangers = None
        if self.samplers.strangers is not None:
            drawn = self.samplers.strangers(links["text"], seed=self.draw.seed, epoch=self.draw.epoch)
            strangers = self._read("text", drawn)
        return Neighbours(items, groups, strangers)

    def _items(self, side: Side) -> Items:
        return self.pairs.images if side == "image" else self.pairs.texts

    def _read(self, side: Side, rows: NDArray[np.int64]) -> Tensors:
        branch: Branch = getattr(self.model, side)
        return branch.read(item_batch(self._items(side), rows, self.pairs.root), self.draw)

    def _own(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return rows[part(len(rows), self.rank, self.processes)]


def batches_of(pairs: Dataset, plan: Plan, *, epoch: int, seed: int, processes: int) -> list[NDArray[np.int64]]:
    """The batches of an epoch that every process can have a share of.

    Raises TrainingError when none has two pairs, and one for each process.
    """
    least = max(2, processes)
    batches = epoch_batches(pairs, batch_size=plan.batch_size, epoch=epoch, seed=seed, captions=plan.caption_sampling)
    together = plan.caption_sampling == "together"
    usable = [rows for rows in batches if _fewest(rows, together=together) >= least]
    if plan.drop_last and not together and len(usable) > 1 and len(usable[-1]) < plan.batch_size:
        usable.pop()
    if not usable:
        raise TrainingError(
            f"training needs batches of {least} pairs or more, since what is wrong is learnt from other pairs; it got "
            f"{len(pairs.links)} pairs in batches of {plan.batch_size}; give more data or a larger --batch-size"
        )
    return usable


def _fewest(rows: NDArray[np.int64], *, together: bool) -> int:
    """Images or texts of a batch, whichever are fewer."""
    return min(len(np.unique(rows[:, side])) for side in (0, 1)) if together else len(rows)


def _to(tensors: Mapping[Any, Tensor], device: torch.device) -> dict[Any, Tensor]:
    return {name: value.to(device, non_blocking=True) for name, value in tensors.items()}
