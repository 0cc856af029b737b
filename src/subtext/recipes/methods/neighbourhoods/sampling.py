"""Neighbours and random texts that are read beside every batch (Thomas and Kovashka 2020, section 3.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from subtext.core import Comparison, Embeddings, Scene
from subtext.data.dataset import Dataset
from subtext.data.inputs import Draw, Tensors
from subtext.errors import DataError, RecipeError, RequirementError
from subtext.graphs.graph import Graph, image_of_text
from subtext.models.model import Model
from subtext.objectives.scene import Grouped, Negatives, compare_neighbours, compare_with_random
from subtext.ops import draw as draws
from subtext.text_helpers import counted
from subtext.training.setup import Setup
from subtext.training.step import Extra, ExtraReader, Side, StepReader, TrainBatch, by_side

SIDES: tuple[Side, Side] = ("image", "text")
RANDOM = "random text"
"""The label of the random texts."""


@dataclass(frozen=True)
class SampledNeighbours:
    """Neighbours and random texts, for terms on image_neighbours, text_neighbours or image_to_random.

    Attributes:
        sides: Whose neighbours are read.
        graph: Folder of a `Graph`; None for another text of the same image instead of a neighbour.
        image_graph: Folder of another graph for the images; None for the same neighbour as the text's.
        pool_size: A neighbour is sampled from this many nearest ones; 200 in the paper, 10 in its code.
        negatives: What a query and its neighbour are compared with: the batch's own items (the paper's code), the other
            items' neighbours, or both.
        random_texts: Whether every pair also comes with a text sampled from all: the negatives of images and of texts
            in the paper's code, instead of those of the batch; then `sides` may be empty.

    Raises:
        RequirementError: For sides other than "image" and "text", for a pool below 1, and for images without a graph.
    """

    sides: tuple[Side, ...] = SIDES
    graph: Path | None = None
    image_graph: Path | None = None
    pool_size: int = 200
    negatives: Negatives = "anchors"
    random_texts: bool = False
    generates: ClassVar[tuple[Side, ...]] = ()

    def __post_init__(self) -> None:
        none = not self.sides and not self.random_texts
        if none or not set(self.sides) <= set(SIDES) or len(set(self.sides)) < len(self.sides):
            raise RequirementError(f"neighbours are drawn for 'image', 'text' or both; it got {self.sides}")
        if self.pool_size < 1:
            raise RequirementError(f"a neighbour needs a pool of 1 or more to be drawn from; it got {self.pool_size}")
        if self.graph is None and "image" in self.sides:
            raise RequirementError("an image needs a graph to have neighbours; name one (graph=GRAPH)")

    def open(self, pairs: Dataset) -> NeighbourReader:
        """Prepare to sample the neighbours of a training; its pairs alone are ever sampled.

        Args:
            pairs: Training pairs.

        Returns:
            What reads the neighbours.

        Raises:
            DataError: If a graph cannot be read, was built for other data, or has fewer neighbours than the pool; and
                when no image has two texts, where other texts of the same image are needed.
        """
        random_texts = RandomTextSampler(pairs) if self.random_texts else None
        if not self.sides:
            return NeighbourReader({}, self.negatives, "random", random_texts=random_texts)
        if self.graph is None:
            return NeighbourReader({"text": Sampler(pairs, _captions(pairs))}, self.negatives, "captions")
        paths: dict[Side, Path] = {"image": self.image_graph or self.graph, "text": self.graph}
        samplers: dict[Path, Sampler] = {}
        fingerprints, gaps = [], []
        for path in dict.fromkeys(paths[side] for side in self.sides):
            graph = Graph.load(path.expanduser())
            samplers[path] = Sampler(pairs, _nearest(graph, pairs, self.pool_size, path))
            fingerprints.append(graph.fingerprint)
            if without := samplers[path].without:
                gaps.append(
                    f"{counted(without, 'text')} without a neighbour in {path}: a random other pair stands for it"
                )
        if random_texts is not None:
            fingerprints.append("random")
        by_side = {side: samplers[paths[side]] for side in self.sides}
        return NeighbourReader(by_side, self.negatives, "-".join(fingerprints), gaps, random_texts)


def require_no_neighbours(method: str, setup: Setup) -> None:
    """Refuse a setup in which another method samples neighbours already.

    Args:
        method: The one that samples, for the message.
        setup: As earlier methods left it.

    Raises:
        RecipeError: If another method does.
    """
    if any(isinstance(extra, SampledNeighbours) for extra in setup.extras):
        raise RecipeError(f"{method} samples neighbours, and another method does so already; use one of them alone")


class Sampler:
    """Samples the neighbours of one side; a function of (seed, epoch, pair) alone.

    A pair whose list is empty gets any text of another group.

    Args:
        pairs: Training pairs.
        choices: (T E) rows of texts that may be sampled for each text, nearest first, -1 at the end of a shorter list.

    Attributes:
        images: (T) row of the image of each text; -1 for none.
        without: Number of texts that have an image and no neighbour.

    Raises:
        DataError: If there is no other group.
    """

    def __init__(self, pairs: Dataset, choices: Int[np.ndarray, "t e"]) -> None:
        self._pairs = pairs
        self._choices = choices
        self._counts = (choices >= 0).sum(axis=1).astype(np.int64)
        self.images = image_of_text(pairs)
        # Texts of a group stand together, so that all but them are two stretches of rows.
        linked = np.flatnonzero(self.images >= 0)
        self._ordered = linked[np.argsort(pairs.texts.groups[linked], kind="stable")]
        self._groups = pairs.texts.groups[self._ordered]
        if len(self._groups) == 0 or self._groups[0] == self._groups[-1]:
            raise DataError("drawing neighbours needs texts of two groups or more; all texts are of one")
        # Texts that have an image and no candidates.
        self.without = int((self._counts[self._ordered] == 0).sum())

    def __call__(self, links: Int[np.ndarray, "b two"], *, seed: int, epoch: int) -> Int[np.ndarray, "b"]:
        """Sample a neighbour of each pair.

        Args:
            links: (B 2) image row and text row.
            seed: Of the training.
            epoch: Counted from 0.

        Returns:
            (B) rows of texts.
        """
        texts = links[:, 1]
        samples = _uniform(self._pairs, links, seed=seed, epoch=epoch, purpose="neighbour")
        counts = self._counts[texts]
        index = np.minimum((samples * counts).astype(np.int64), np.maximum(counts - 1, 0))
        rows = np.asarray(self._choices[texts, index]).astype(np.int64)
        if (without := counts == 0).any():
            # Any text of another group: all but the stretch of the own one.
            groups, others = self._pairs.texts.groups[texts[without]], samples[without]
            first = np.searchsorted(self._groups, groups, side="left")
            group_size = np.searchsorted(self._groups, groups, side="right") - first
            remaining = len(self._groups) - group_size
            index = np.minimum((others * remaining).astype(np.int64), remaining - 1)
            rows[without] = self._ordered[index + np.where(index >= first, group_size, 0)]
        return rows


class RandomTextSampler:
    """Samples for each pair one of all texts that have an image, its own among them.

    The sample is a function of (seed, epoch, pair) alone.

    Args:
        pairs: Training pairs.
    """

    def __init__(self, pairs: Dataset) -> None:
        self._pairs = pairs
        self._texts = np.flatnonzero(image_of_text(pairs) >= 0).astype(np.int64)

    def __call__(self, links: Int[np.ndarray, "b two"], *, seed: int, epoch: int) -> Int[np.ndarray, "b"]:
        """Sample a text for each pair.

        Args:
            links: (B 2) image row and text row.
            seed: Of the training.
            epoch: Counted from 0.

        Returns:
            (B) rows of texts.
        """
        samples = _uniform(self._pairs, links, seed=seed, epoch=epoch, purpose="random text")
        return self._texts[np.minimum((samples * len(self._texts)).astype(np.int64), len(self._texts) - 1)]


def _uniform(
    pairs: Dataset, links: Int[np.ndarray, "b two"], *, seed: int, epoch: int, purpose: str
) -> Float[np.ndarray, "b"]:
    """(B) numbers in [0, 1), one a pair."""
    images = draws.uniform(pairs.images.keys[links[:, 0]], seed=seed, epoch=epoch, purpose=f"{purpose}/image")
    texts = draws.uniform(pairs.texts.keys[links[:, 1]], seed=seed, epoch=epoch, purpose=f"{purpose}/text")
    return ((images + texts) % 1.0)[:, 0]


def _nearest(graph: Graph, pairs: Dataset, pool: int, path: Path) -> Int[np.ndarray, "t e"]:
    """The nearest `pool` texts that have an image, among the texts of these pairs."""
    if graph.width < pool:
        raise DataError(
            f"pool_size={pool} needs a graph of {pool} neighbours or more; {path} has {graph.width} for each text; use "
            f"a smaller one (pool_size={graph.width}), or build a wider graph (subtext neighbours build)"
        )
    if len(pairs.texts) <= pool:
        raise DataError(
            f"pool_size={pool} needs more than {pool} texts; it got {len(pairs.texts):,}; use a smaller one"
        )
    cut = graph.restrict_to(pairs.texts)
    images = np.append(image_of_text(pairs), -1)
    choices = np.where(images[cut.neighbours] >= 0, cut.neighbours, -1)
    front = np.argsort(choices < 0, axis=1, kind="stable")
    return np.ascontiguousarray(np.take_along_axis(choices, front, axis=1)[:, :pool], dtype=np.int32)


def _captions(pairs: Dataset) -> Int[np.ndarray, "t e"]:
    """The other texts of each text's image; an image's only text stands for itself."""
    of_image: dict[int, list[int]] = {}
    for image, text in pairs.links.tolist():
        of_image.setdefault(image, []).append(text)
    longest = max(map(len, of_image.values()), default=0)
    if longest < 2:
        raise DataError(
            "other texts of the same image need images with two texts or more; every image has one; draw "
            "neighbours instead (graph=GRAPH)"
        )
    choices = np.full((len(pairs.texts), longest - 1), -1, dtype=np.int32)
    for text, image in enumerate(image_of_text(pairs).tolist()):
        if image >= 0:
            siblings = [sibling for sibling in of_image[image] if sibling != text] or [text]
            choices[text, : len(siblings)] = siblings
    return choices


@dataclass
class NeighbourReader(ExtraReader):
    """Reads one neighbour of every item of a share, row by row, and as many random texts as texts.

    Attributes:
        by_side: Samplers of the sides whose neighbours are read.
        negatives: See `compare_neighbours`.
        fingerprint: Of the graphs; another word where there is none.
        gaps: Sentences on texts without neighbours.
        random_texts: Samples a text beside each pair; None where they are not read.
    """

    by_side: Mapping[Side, Sampler]
    negatives: Negatives
    fingerprint: str
    gaps: Sequence[str] = ()
    random_texts: RandomTextSampler | None = None

    def notes(self, model: Model) -> Sequence[str]:
        """How many texts have no neighbours.

        Args:
            model: Not used.

        Returns:
            A sentence for each graph with such texts.
        """
        return self.gaps

    def __call__(
        self, reader: StepReader, draw: Draw, links: Mapping[Side, NDArray[np.int64]], texts: Tensors
    ) -> Neighbours:
        """Read the neighbours of a share; an image takes that of its first pair.

        Args:
            reader: Reads images and texts of the training pairs.
            draw: Seed and epoch.
            links: Side -> (N 2) image row and text row of each of its items.
            texts: Not used.

        Returns:
            The neighbours and random texts.
        """
        items: dict[str, tuple[Side, Tensors]] = {}
        groups: dict[Side, Tensor] = {}
        for side, sampler in self.by_side.items():
            sampled = sampler(links[side], seed=draw.seed, epoch=draw.epoch)
            rows = sampler.images[sampled] if side == "image" else sampled
            items[f"{side} neighbour"] = (side, reader.read(side, rows))
            groups[side] = torch.from_numpy(reader.items(side).groups[rows])
        if self.random_texts is not None:
            rows = self.random_texts(links["text"], seed=draw.seed, epoch=draw.epoch)
            items[RANDOM] = ("text", reader.read("text", rows))
        return Neighbours(items, groups, self.negatives)


@dataclass(frozen=True)
class Neighbours(Extra):
    """Neighbours of a share, and perhaps random texts.

    Attributes:
        groups: Side -> group of each neighbour.
        negatives: See `scene.compare_neighbours`.
    """

    groups: Mapping[Side, Tensor]
    negatives: Negatives = "anchors"

    def compare(self, batch: TrainBatch, scene: Scene | None) -> Scene:
        """Compare items with neighbours of their modality; and images, and texts with neighbours, with random texts.

        Args:
            batch: Embeddings of the step.
            scene: Of the batch with the extras behind this one; None where there is none.

        Returns:
            The scene.
        """
        scene = scene or batch.pairs()
        device = batch.parts["image"].vectors.device
        neighbours = {
            side: Grouped(batch.parts[f"{side} neighbour"], groups.to(device)) for side, groups in self.groups.items()
        }
        gathered = batch.gather(neighbours) if neighbours else {}
        local = by_side((batch.parts["image"], batch.parts["text"], batch.step_input.groups))
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
