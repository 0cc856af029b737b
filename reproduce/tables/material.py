"""What the rows on one data set share: its pairs, cut the same way for all, and its graphs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool
from numpy.typing import NDArray

from reproduce.tables.prepared import require_sentences
from reproduce.tables.request import Asked
from reproduce.tables.specification import Shared
from subtext.api.load import choose_device, read
from subtext.api.train import TrainingData
from subtext.data.atomic import write_file
from subtext.data.dataset import Dataset
from subtext.data.feature_file import FeatureFile
from subtext.neighbours.build import GraphOptions, build_graph, open_space
from subtext.neighbours.graph import Graph
from subtext.neighbours.spaces import Distance, Features, Places, Progress, Space
from subtext.ops import draw
from subtext.report.progress import meter

SELECTING = 0.1
"""Share of the training pictures that select the epoch where the validation split is what is scored."""
SUBSET = "pictures of a subset"
"""What the pictures of a subset are drawn for."""


@dataclass(frozen=True)
class Loaded:
    """A data set as the rows learn it.

    material  training pairs, those that select the epoch, and features        scored  the split that is scored
    """

    material: TrainingData
    scored: Dataset

    def counts(self) -> dict[str, dict[str, int]]:
        """Pictures, texts and pairs of each part."""
        parts = {"train": self.material.train, "selection": self.material.val, "scored": self.scored}
        return {
            name: {"pictures": len(pairs.images), "texts": len(pairs.texts), "pairs": len(pairs.links)}
            for name, pairs in parts.items()
            if pairs is not None
        }


def load(asked: Asked, key: str) -> Loaded:
    """Read a data set and cut it: what is scored, what selects the epoch, what is learnt from.

    Raises DataError for a split that it does not have, and for texts longer than the paper reads; what reading raises.
    """
    sources = asked.data[key]
    reading = read(sources, quiet=asked.quiet)
    require_sentences(asked, key, reading, sources.data)
    images = FeatureFile.open(sources.features.expanduser()) if sources.features else reading.features
    texts = FeatureFile.open(sources.text_features.expanduser()) if sources.text_features else None
    train, scored = reading.split("train"), reading.split(asked.split)
    if asked.selects is None:
        count = max(1, round(SELECTING * len(train.images)))
        selecting, train = drawn(train, count, "pictures that select")
    else:
        selecting = reading.split(asked.selects)
    if asked.subset is not None:
        train = drawn(train, asked.subset, SUBSET)[0]
    for part in (train, selecting, scored):
        for file, items in ((images, part.images), (texts, part.texts)):
            if file is not None:
                file.require(items.ids, items.values)
    return Loaded(TrainingData(train, selecting, images, texts), scored)


def require(asked: Asked, key: str, kind: Shared, loaded: Loaded) -> None:
    """Build what rows share of the training texts, a graph or their places, unless it is there."""
    place = asked.places(key) if kind is Shared.TEXT_PLACES else asked.graph(key, kind)
    if place.exists():
        return
    train = loaded.material.train
    space = _space(asked, key, kind, loaded)
    with meter(f"placing texts of {key}", len(train.texts), quiet=asked.quiet) as placed:
        if kind is Shared.TEXT_PLACES:
            _save_places(train.texts.ids, space(train, np.ones(len(train.texts), dtype=bool), placed), place)
            return
        source = {**asked.sources(key), "split": "train"}
        choice = GraphOptions(asked.neighbours, candidate_split="all")
        build_graph(train, space, choice, source=source, placed=placed).save(place)


def graph_of_scored(asked: Asked, key: str, pairs: Dataset, loaded: Loaded) -> Graph:
    """The neighbours among the texts that are scored, in the space that was learnt from the training texts.

    It is that of the table's graph, of one that was given, too; it is built once for all rows and seeds.
    """
    place = asked.scored_graph(key)
    if not place.exists():
        space = _Learnt(_space(asked, key, Shared.TEXT_GRAPH, loaded), loaded.material.train)
        found = asked.given(key)
        choice = GraphOptions(asked.neighbours, candidate_split="all") if found is None else found.choice
        source = {**asked.sources(key), "split": asked.split}
        count = len(space.learnt.texts) + len(pairs.texts)
        with meter(f"placing scored texts of {key}", count, quiet=asked.quiet) as placed:
            build_graph(pairs, space, choice, source=source, placed=placed).save(place)
    graph = Graph.load(place)
    graph.require(pairs.texts)
    return graph


def _save_places(ids: list[str], places: Places, place: Path) -> None:
    """A file of features, a row a text; zeros for a text that the space cannot place."""
    vectors = np.where(places.known[:, None], places.vectors, 0).astype(np.float32)

    def fill(path: Path) -> None:
        with path.open("wb") as file:
            np.savez(file, allow_pickle=False, names=np.array(ids), pooled=vectors)

    write_file(place, fill)


def one_text_each(pairs: Dataset) -> Dataset:
    """Every picture with the first of its texts alone, row by row."""
    order = np.lexsort((pairs.links[:, 1], pairs.links[:, 0]))
    images, first = np.unique(pairs.links[order, 0], return_index=True)
    return pairs.subset(images, pairs.links[order[first], 1])


def drawn(pairs: Dataset, count: int, purpose: str, *, seed: int = 0) -> tuple[Dataset, Dataset]:
    """Pairs of about `count` drawn pictures, whole groups of them, and the others; all where there are no more.

    Of one purpose and seed a smaller draw is part of a larger one.
    """
    groups, first = np.unique(pairs.images.groups, return_index=True)
    order = draw.uniform(pairs.images.keys[first], seed=seed, epoch=0, purpose=purpose)[:, 0].argsort(kind="stable")
    sizes = np.bincount(np.searchsorted(groups, pairs.images.groups), minlength=len(groups))[order]
    chosen = groups[order[: int(np.searchsorted(sizes.cumsum(), count) + 1)]]
    return _of_groups(pairs, chosen, inside=True), _of_groups(pairs, chosen, inside=False)


def _of_groups(pairs: Dataset, groups: NDArray[np.int64], *, inside: bool) -> Dataset:
    rows = [
        np.flatnonzero(np.isin(items.groups, groups) == inside).astype(np.int64)
        for items in (pairs.images, pairs.texts)
    ]
    return pairs.subset(rows[0], rows[1])


def _space(asked: Asked, key: str, kind: Shared, loaded: Loaded) -> Space:
    if kind is Shared.IMAGE_GRAPH:
        assert loaded.material.image_features is not None
        return Features(loaded.material.image_features, of="images")
    found = asked.given(key)
    return _asked_space(asked) if found is None else found.again(lambda: _asked_space(asked), asked.device)


def _asked_space(asked: Asked) -> Space:
    return open_space(asked.space, min_count=asked.min_count, device=choose_device(asked.device))


@dataclass(frozen=True)
class _Learnt:
    """A space that learns from other pairs than those whose texts it places."""

    space: Space
    learnt: Dataset

    @property
    def distance(self) -> Distance:
        """The space's own."""
        return self.space.distance

    def settings(self) -> Mapping[str, Any]:
        """The space's own."""
        return self.space.settings()

    def __call__(self, pairs: Dataset, learn: Bool[np.ndarray, "n"], told: Progress | None = None) -> Places:
        """The places of the texts of `pairs`; `learn` is not read."""
        both = _joined(self.learnt, pairs)
        count = len(self.learnt.texts)
        found = self.space(both, np.arange(len(both.texts)) < count, told)
        return Places(found.vectors[count:], found.known[count:])


def _joined(first: Dataset, second: Dataset) -> Dataset:
    """The texts of both, for a space that reads words or text features."""
    from dataclasses import replace

    items = {}
    for name in ("images", "texts"):
        mine, theirs = getattr(first, name), getattr(second, name)
        items[name] = type(mine)(
            ids=[*mine.ids, *theirs.ids],
            values=[*mine.values, *theirs.values],
            groups=np.concatenate([mine.groups, theirs.groups]),
            splits=np.concatenate([mine.splits, theirs.splits]),
        )
    shift = np.array([[len(first.images), len(first.texts)]], dtype=np.int64)
    links = np.concatenate([first.links, second.links + shift])
    return replace(first, **items, links=links, judgements=None)
