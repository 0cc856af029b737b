"""The data that rows share: pairs with the same splits and subset for all, graphs and text vectors.

It also checks that texts are cut as the paper read them: of Politics only the first sentences of each article.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool
from numpy.typing import NDArray

from reproduce.tables.config import TableConfig
from reproduce.tables.specification import Shared
from subtext.api.load import choose_device, read
from subtext.api.train import TrainingData
from subtext.data.atomic import write_file
from subtext.data.dataset import Dataset
from subtext.data.feature_file import FeatureFile
from subtext.data.prepare import first_sentences
from subtext.data.readers import politics
from subtext.errors import DataError, counted
from subtext.neighbours.build import GraphOptions, build_graph, open_space
from subtext.neighbours.graph import Graph
from subtext.neighbours.spaces import Distance, Features, Places, Progress, Space
from subtext.ops import draw
from subtext.report.progress import meter

SELECTING = 0.1
"""Share of the training images that select the epoch where the validation split is evaluated."""
SUBSET = "pictures of a subset"
"""Purpose of the random numbers that choose a subset."""


@dataclass(frozen=True)
class Loaded:
    """A data set for training and evaluation.

    material  training pairs, pairs that select the epoch, and features        scored  the evaluated split
    """

    material: TrainingData
    scored: Dataset

    def counts(self) -> dict[str, dict[str, int]]:
        """Numbers of images, texts and pairs of each part."""
        parts = {"train": self.material.train, "selection": self.material.val, "scored": self.scored}
        return {
            name: {"pictures": len(pairs.images), "texts": len(pairs.texts), "pairs": len(pairs.links)}
            for name, pairs in parts.items()
            if pairs is not None
        }


def load(config: TableConfig, key: str) -> Loaded:
    """Read a data set and divide it into training, selection and evaluated pairs.

    Raises DataError for a missing split, and for texts longer than those of the paper; what reading raises.
    """
    sources = config.data[key]
    reading = read(sources, quiet=config.quiet)
    require_sentences(config, key, reading, sources.data)
    images = FeatureFile.open(sources.features.expanduser()) if sources.features else reading.features
    texts = FeatureFile.open(sources.text_features.expanduser()) if sources.text_features else None
    train, scored = reading.split("train"), reading.split(config.split)
    if config.selection_split is None:
        count = max(1, round(SELECTING * len(train.images)))
        selecting, train = sample_images(train, count, "pictures that select")
    else:
        selecting = reading.split(config.selection_split)
    if config.subset is not None:
        train = sample_images(train, config.subset, SUBSET)[0]
    for part in (train, selecting, scored):
        for file, items in ((images, part.images), (texts, part.texts)):
            if file is not None:
                file.require(items.ids, items.values)
    return Loaded(TrainingData(train, selecting, images, texts), scored)


def require(config: TableConfig, key: str, kind: Shared, loaded: Loaded) -> None:
    """Build a file that rows share, a graph or the vectors of the training texts, unless it exists."""
    path = config.text_vectors(key) if kind is Shared.TEXT_PLACES else config.graph(key, kind)
    if path.exists():
        return
    train = loaded.material.train
    space = _space(config, key, kind, loaded)
    with meter(f"text vectors of {key}", len(train.texts), quiet=config.quiet) as progress:
        if kind is Shared.TEXT_PLACES:
            vectors = space(train, np.ones(len(train.texts), dtype=bool), progress)
            _save_text_vectors(train.texts.ids, vectors, path)
            return
        source = {**config.sources(key), "split": "train"}
        choice = GraphOptions(config.neighbours, candidate_split="all")
        build_graph(train, space, choice, source=source, placed=progress).save(path)


def graph_of_scored(config: TableConfig, key: str, pairs: Dataset, loaded: Loaded) -> Graph:
    """The graph of the evaluated texts, in the space that was fitted to the training texts.

    It has the settings of the table's graph, also of an existing one; it is built once for all rows and seeds.
    """
    path = config.scored_graph(key)
    if not path.exists():
        space = FittedSpace(_space(config, key, Shared.TEXT_GRAPH, loaded), loaded.material.train)
        graph = config.existing_graph(key)
        choice = GraphOptions(config.neighbours, candidate_split="all") if graph is None else graph.choice
        source = {**config.sources(key), "split": config.split}
        count = len(space.train.texts) + len(pairs.texts)
        with meter(f"vectors of evaluated texts of {key}", count, quiet=config.quiet) as progress:
            build_graph(pairs, space, choice, source=source, placed=progress).save(path)
    scored = Graph.load(path)
    scored.require(pairs.texts)
    return scored


def _save_text_vectors(ids: list[str], vectors: Places, path: Path) -> None:
    """Write a file of features with a row per text; zeros for a text without a vector."""
    rows = np.where(vectors.known[:, None], vectors.vectors, 0).astype(np.float32)

    def fill(target: Path) -> None:
        with target.open("wb") as file:
            np.savez(file, allow_pickle=False, names=np.array(ids), pooled=rows)

    write_file(path, fill)


def one_text_each(pairs: Dataset) -> Dataset:
    """Every image with its first text only, in the same order."""
    order = np.lexsort((pairs.links[:, 1], pairs.links[:, 0]))
    images, first = np.unique(pairs.links[order, 0], return_index=True)
    return pairs.subset(images, pairs.links[order[first], 1])


def sample_images(pairs: Dataset, count: int, purpose: str, *, seed: int = 0) -> tuple[Dataset, Dataset]:
    """Pairs of about `count` sampled images, in complete groups, and the rest; all where there are fewer.

    With the same purpose and seed a smaller sample is part of a larger one.
    """
    groups, first = np.unique(pairs.images.groups, return_index=True)
    order = draw.uniform(pairs.images.keys[first], seed=seed, epoch=0, purpose=purpose)[:, 0].argsort(kind="stable")
    sizes = np.bincount(np.searchsorted(groups, pairs.images.groups), minlength=len(groups))[order]
    chosen = groups[order[: int(np.searchsorted(sizes.cumsum(), count) + 1)]]
    return _of_groups(pairs, chosen, keep=True), _of_groups(pairs, chosen, keep=False)


def _of_groups(pairs: Dataset, groups: NDArray[np.int64], *, keep: bool) -> Dataset:
    rows = [
        np.flatnonzero(np.isin(items.groups, groups) == keep).astype(np.int64) for items in (pairs.images, pairs.texts)
    ]
    return pairs.subset(rows[0], rows[1])


def _space(config: TableConfig, key: str, kind: Shared, loaded: Loaded) -> Space:
    if kind is Shared.IMAGE_GRAPH:
        assert loaded.material.image_features is not None
        return Features(loaded.material.image_features, of="images")
    graph = config.existing_graph(key)
    if graph is None:
        return _configured_space(config)
    return graph.text_space(lambda: _configured_space(config), config.device)


def _configured_space(config: TableConfig) -> Space:
    return open_space(config.space, min_count=config.min_count, device=choose_device(config.device))


@dataclass(frozen=True)
class FittedSpace:
    """A space that is fitted to other texts than those that it gives vectors of."""

    space: Space
    train: Dataset

    @property
    def distance(self) -> Distance:
        """The space's own."""
        return self.space.distance

    def settings(self) -> Mapping[str, Any]:
        """The space's own."""
        return self.space.settings()

    def __call__(self, pairs: Dataset, learn: Bool[np.ndarray, "n"], told: Progress | None = None) -> Places:
        """Vectors of the texts of `pairs`; `learn` is not read."""
        joined = _joined(self.train, pairs)
        count = len(self.train.texts)
        vectors = self.space(joined, np.arange(len(joined.texts)) < count, told)
        return Places(vectors.vectors[count:], vectors.known[count:])


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


POLITICS = "politics"
_SEE = "(docs/datasets.md has the commands)"


def require_prepared(config: TableConfig) -> None:
    """Raise DataError for the original release of Politics, which has complete articles, under any name.

    Only the first line of a data set is read, so the error comes before any work.
    """
    count = config.table.sentences.get(POLITICS)
    for key, sources in config.data.items():
        folder = sources.data
        if count is None or folder is None or not politics.recognises(folder.expanduser()):
            continue
        raise DataError(
            f"{config.table.paper} needs the first {counted(count, 'sentence')} of each article of Politics; {folder} "
            f"has complete articles; cut them once with `subtext data prepare {folder} --sentences {count} "
            f"--out FILE` {_SEE}, and give --data {key}=FILE --images {key}={folder}"
        )


def require_sentences(config: TableConfig, key: str, pairs: Dataset, path: Path | None) -> None:
    """Raise DataError where most texts are longer than those that the table's paper read of this data set.

    Most instead of any: other tools than ours may see other ends of sentences.
    """
    count = config.table.sentences.get(key)
    if count is None:
        return
    texts = [text for text in pairs.texts.values if isinstance(text, str)]
    longer = sum(first_sentences(text, count) != text.strip() for text in texts)
    if 2 * longer > len(texts):
        raise DataError(
            f"{config.table.paper} needs the first {counted(count, 'sentence')} of each text of {key}; of "
            f"{len(texts):,} texts of {path} {longer:,} have more; cut them with `subtext data prepare {path} "
            f"--sentences {count} --out FILE` {_SEE}"
        )
