"""The data that rows share: pairs with the same splits and subset for all, graphs and text vectors.

It also checks that texts are cut as the paper read them: of Politics only the first sentences of each article.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool
from numpy.typing import NDArray

import reproduce.readers  # noqa: F401  (registers the readers of the data sets that the papers use)
import subtext as st
from reproduce.tables.config import TableConfig
from reproduce.tables.specification import Shared
from subtext.data import atomic
from subtext.data.feature_file import FeatureFile
from subtext.errors import DataError
from subtext.graphs.build import GraphOptions, build_graph, open_space
from subtext.graphs.graph import Graph
from subtext.graphs.spaces import Space, TextVectors
from subtext.ops import draw
from subtext.report.progress import meter, say
from subtext.text_helpers import counted

SELECTING = 0.1
"""Share of the training images that select the epoch where the validation split is evaluated."""
SUBSET = "pictures of a subset"
"""Purpose of the random numbers that choose a subset."""


@dataclass(frozen=True)
class TableData:
    """A data set for training and evaluation.

    complete  all pairs        train  to train on        selection  selects the epoch        scored  is evaluated
    """

    complete: st.Dataset
    train: st.Dataset
    selection: st.Dataset
    scored: st.Dataset

    def counts(self) -> dict[str, dict[str, int]]:
        """Numbers of images, texts and pairs of each part."""
        return {
            name: {"pictures": len(pairs.images), "texts": len(pairs.texts), "pairs": len(pairs.links)}
            for name, pairs in vars(self).items()
            if name != "complete"
        }


def read(config: TableConfig, key: str) -> TableData:
    """Read a data set and divide it into training, selection and evaluated pairs.

    Raises DataError for a missing split, for items without features, and for texts longer than those of the paper;
    what reading raises.
    """
    paths = config.data[key]
    pixels = paths.features is None
    pairs = st.read(paths.data, **paths.reading, verify=pixels, need_images=pixels)
    if pairs.problems:
        problems = counted(len(pairs.problems), "problem")
        say(f"note: {key} has {problems}; `subtext data check {paths.data}` lists them", quiet=config.quiet)
    require_sentences(config, key, pairs)
    train, scored = pairs.split("train"), pairs.split(config.split)
    if config.selection_split is None:
        count = max(1, round(SELECTING * len(train.images)))
        selection, train = sample_images(train, count, "pictures that select")
    else:
        selection = pairs.split(config.selection_split)
    if config.subset is not None:
        train = sample_images(train, config.subset, SUBSET)[0]
    # Training reads its own features; those of the scored split are checked here, before any training.
    for path, items in (
        (paths.features, scored.images),
        (paths.regions, scored.images),
        (paths.text_features, scored.texts),
    ):
        if path is not None:
            FeatureFile.open(path.expanduser()).require(items.ids, items.values)
    return TableData(pairs, train, selection, scored)


def require(config: TableConfig, key: str, kind: Shared, data: TableData) -> None:
    """Build a file that rows share, a graph or the vectors of the training texts, unless it exists."""
    path = config.text_vectors(key) if kind is Shared.TEXT_VECTORS else config.graph(key, kind)
    if path.exists():
        return
    space = _space(config, key, kind, data)
    with meter(f"text vectors of {key}", len(data.train.texts), quiet=config.quiet) as progress:
        if kind is Shared.TEXT_VECTORS:
            vectors = space(data.train, np.ones(len(data.train.texts), dtype=bool), progress)
            _save_text_vectors(data.train.texts.ids, vectors, path)
            return
        source = {**config.data[key].to_json(), "split": "train"}
        options = GraphOptions(config.neighbours, candidate_split="all")
        build_graph(data.train, space, options, source=source, on_embedded=progress).save(path)


def graph_of_scored(config: TableConfig, key: str, pairs: st.Dataset, data: TableData) -> Path:
    """The graph of the evaluated texts, in the space that was fitted to the training texts.

    It has the settings of the table's graph, also of an existing one; it is built once for all rows and seeds.
    """
    path = config.scored_graph(key)
    if not path.exists():
        space = FittedSpace(_space(config, key, Shared.TEXT_GRAPH, data), data)
        graph = config.existing_graph(key)
        options = GraphOptions(config.neighbours, candidate_split="all") if graph is None else graph.options
        source = {**config.data[key].to_json(), "split": config.split}
        count = len(data.train.texts) + len(pairs.texts)
        with meter(f"vectors of evaluated texts of {key}", count, quiet=config.quiet) as progress:
            build_graph(pairs, space, options, source=source, on_embedded=progress).save(path)
    Graph.load(path).require(pairs.texts)
    return path


def _save_text_vectors(ids: Sequence[str], vectors: TextVectors, path: Path) -> None:
    """Write a file of features with a row per text; zeros for a text without a vector."""
    rows = np.where(vectors.known[:, None], vectors.vectors, 0).astype(np.float32)
    save_arrays(path, np.savez, names=np.array(ids), pooled=rows)


def save_arrays(path: Path, save: Callable[..., None], **arrays: NDArray[Any]) -> None:
    """Write arrays as npz, complete or not at all; `save` is numpy's `savez` or `savez_compressed`."""

    def fill(target: Path) -> None:
        with target.open("wb") as file:
            save(file, allow_pickle=False, **arrays)

    atomic.write_file(path, fill)


def one_text_each(pairs: st.Dataset) -> st.Dataset:
    """Every image with its first text only, in the same order."""
    order = np.lexsort((pairs.links[:, 1], pairs.links[:, 0]))
    images, first = np.unique(pairs.links[order, 0], return_index=True)
    return pairs.subset(images, pairs.links[order[first], 1])


def sample_images(pairs: st.Dataset, count: int, purpose: str, *, seed: int = 0) -> tuple[st.Dataset, st.Dataset]:
    """Pairs of about `count` sampled images, in complete groups, and the rest; all where there are fewer.

    With the same purpose and seed a smaller sample is part of a larger one.
    """
    groups, first = np.unique(pairs.images.groups, return_index=True)
    order = draw.uniform(pairs.images.keys[first], seed=seed, epoch=0, purpose=purpose)[:, 0].argsort(kind="stable")
    sizes = np.bincount(np.searchsorted(groups, pairs.images.groups), minlength=len(groups))[order]
    chosen = groups[order[: int(np.searchsorted(sizes.cumsum(), count) + 1)]]
    return _of_groups(pairs, chosen, inside=True), _of_groups(pairs, chosen, inside=False)


def _of_groups(pairs: st.Dataset, groups: NDArray[np.int64], *, inside: bool) -> st.Dataset:
    rows = [
        np.flatnonzero(np.isin(items.groups, groups) == inside).astype(np.int64)
        for items in (pairs.images, pairs.texts)
    ]
    return pairs.subset(rows[0], rows[1])


def _space(config: TableConfig, key: str, kind: Shared, data: TableData) -> Space:
    if kind is Shared.IMAGE_GRAPH:
        features = data.train.features
        return open_space(f"features:{config.data[key].of_graphs or (features and features.path)}")
    graph = config.existing_graph(key)
    if graph is None:
        return _configured_space(config)
    return graph.text_space(lambda: _configured_space(config), config.torch_device)


def _configured_space(config: TableConfig) -> Space:
    return open_space(config.space, min_count=config.min_count, device=config.torch_device)


@dataclass(frozen=True)
class FittedSpace:
    """A space that is fitted to the training texts and gives the vectors of other texts."""

    space: Space
    data: TableData

    @property
    def distance(self) -> Any:
        """The distance of the space."""
        return self.space.distance

    def settings(self) -> Mapping[str, Any]:
        """The settings of the space."""
        return self.space.settings()

    def __call__(self, pairs: st.Dataset, learn: Bool[np.ndarray, "n"], progress: Any = None) -> TextVectors:
        """Vectors of the texts of `pairs`; `learn` is not read."""
        complete, train = self.data.complete, self.data.train
        rows = []
        for name in ("images", "texts"):
            row_of = {item: row for row, item in enumerate(getattr(complete, name).ids)}
            rows.append(np.array([row_of[item] for part in (train, pairs) for item in getattr(part, name).ids]))
        count = len(train.texts)
        vectors = self.space(complete.subset(*rows), np.arange(len(rows[1])) < count, progress)
        return TextVectors(vectors.vectors[count:], vectors.known[count:])


POLITICS = "politics"
_SEE = "(docs/datasets.md has the commands)"


def require_prepared(config: TableConfig) -> None:
    """Raise DataError for the original release of Politics, which has complete articles, under any name.

    Only the first line of a data set is read, so the error comes before any work.
    """
    count = config.table.sentences.get(POLITICS)
    for key, paths in config.data.items():
        folder = paths.data
        if count is None or not _is_politics_release(folder.expanduser()):
            continue
        raise DataError(
            f"{config.table.paper} needs the first {counted(count, 'sentence')} of each article of Politics; {folder} "
            f"has complete articles; cut them once with `python -m reproduce data prepare {folder} "
            f"--max-sentences {count} "
            f"--out FILE` {_SEE}, and give --data {key}=FILE --images {key}={folder}"
        )


def _is_politics_release(folder: Path) -> bool:
    """Whether the first row of politics.jsonl has the names of the release's columns."""
    file = folder / "politics.jsonl"
    if not file.is_file():
        return False
    with file.open("rb") as lines:
        first = lines.readline(2**16)
    return b'"local_path"' in first or b'"content_text"' in first


def require_sentences(config: TableConfig, key: str, pairs: st.Dataset) -> None:
    """Raise DataError where most texts are longer than those that the table's paper read of this data set.

    Most instead of any: another program may end sentences elsewhere.
    """
    count, paths = config.table.sentences.get(key), config.data[key]
    if count is None:
        return
    cut = st.prepare(paths.data, **paths.reading, max_sentences=count).dataset.texts
    shortened = dict(zip(cut.ids, cut.values, strict=True))
    texts = {name: text for name, text in zip(pairs.texts.ids, pairs.texts.values, strict=True) if text is not None}
    longer = sum(shortened[name] != str(text).strip() for name, text in texts.items())
    if 2 * longer > len(texts):
        raise DataError(
            f"{config.table.paper} needs the first {counted(count, 'sentence')} of each text of {key}; of "
            f"{len(texts):,} texts of {paths.data} {longer:,} have more; cut them with `subtext data prepare "
            f"{paths.data} --max-sentences {count} --out FILE` {_SEE}"
        )
