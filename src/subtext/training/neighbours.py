"""Neighbours and random texts that are read beside every batch (Thomas and Kovashka 2020)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from subtext.core import Comparison, Embeddings, Scene
from subtext.data.dataset import Dataset
from subtext.data.inputs import Tensors
from subtext.models.model import Model
from subtext.neighbours.sampling import SIDES, NeighbourDraw, Samplers, Side, open_samplers
from subtext.objectives.scene import Grouped, Negatives, compare_neighbours, compare_with_random
from subtext.training.step import Batch, Extra, ExtraReader, Share, by_side

RANDOM = "stranger"
"""The label of the random texts."""


@dataclass(frozen=True)
class SampledNeighbours(NeighbourDraw):
    """What `Setup.extras` holds, for terms on image_neighbours, text_neighbours or image_to_random."""

    generates: ClassVar[tuple[Side, ...]] = ()

    def open(self, pairs: Dataset) -> NeighbourReader:
        """What draws the neighbours of these pairs."""
        return NeighbourReader(open_samplers(self, pairs))


class NeighbourReader(ExtraReader):
    """Reads one neighbour of every item of a share, row by row, and as many random texts as texts."""

    def __init__(self, samplers: Samplers) -> None:
        self._samplers, self.fingerprint = samplers, samplers.fingerprint

    def notes(self, model: Model) -> Sequence[str]:
        """How many texts have no neighbours."""
        return self._samplers.notes

    def __call__(self, share: Share) -> Neighbours:
        """The neighbours of a share; an image takes that of its first pair."""
        seed, epoch, reader = share.draw.seed, share.draw.epoch, share.reader
        items: dict[str, tuple[Side, Tensors]] = {}
        groups: dict[Side, Tensor] = {}
        for side, sampler in self._samplers.by_side.items():
            texts = sampler(share.links[side], seed=seed, epoch=epoch)
            rows = sampler.pictures[texts] if side == "image" else texts
            items[f"{side} neighbour"] = (side, reader.read(side, rows))
            groups[side] = torch.from_numpy(reader.items(side).groups[rows])
        if self._samplers.strangers is not None:
            texts = self._samplers.strangers(share.links["text"], seed=seed, epoch=epoch)
            items[RANDOM] = ("text", reader.read("text", texts))
        return Neighbours(items, groups, self._samplers.negatives)


@dataclass(frozen=True)
class Neighbours(Extra):
    """Neighbours of a share, and perhaps random texts.

    groups     side -> group of each neighbour
    negatives  see `scene.compare_neighbours`
    """

    groups: Mapping[Side, Tensor]
    negatives: Negatives = "anchors"

    def compare(self, batch: Batch, scene: Scene | None) -> Scene:
        """Items against neighbours of their modality; images, and texts with their neighbours, against random texts."""
        scene = scene or batch.pairs()
        device = batch.parts["image"].vectors.device
        neighbours = {
            side: Grouped(batch.parts[f"{side} neighbour"], groups.to(device)) for side, groups in self.groups.items()
        }
        gathered = batch.gather(neighbours) if neighbours else {}
        local = by_side((batch.parts["image"], batch.parts["text"], batch.reading.groups))
        others: tuple[Grouped | None, Grouped | None] = (None, None)
        if batch.others is not None:
            others = by_side(batch.others)
        comparisons: dict[Side, Comparison | None] = dict.fromkeys(SIDES)
        for side, items, other_items in zip(SIDES, local, others, strict=True):
            if side in neighbours:
                comparisons[side] = compare_neighbours(
                    batch.similarity,
                    items,
                    neighbours[side],
                    negatives=self.negatives,
                    gathered=None if other_items is None else (other_items, gathered[side]),
                )
        within_texts, edited = comparisons["text"], dict(scene.edited)
        if RANDOM in self.items:
            texts = batch.parts[RANDOM]
            theirs = batch.gather({RANDOM: Grouped(texts, texts.ids)})
            texts = Embeddings.cat([texts, *(group.items for group in theirs.values())])
            edited["image_to_random"] = compare_with_random(batch.similarity, scene.image_to_text, texts)
            if within_texts is not None:
                within_texts = compare_with_random(batch.similarity, within_texts, texts)
        return replace(scene, image_neighbours=comparisons["image"], text_neighbours=within_texts, edited=edited)
