"""Planted noise: a known share of the pairs of a data set gets texts of other pairs, and labels record which.

Texts are exchanged, and none is lost or doubled: the corrupted pairs have the same texts as before, so that neither a
text's length nor any other property of texts alone reveals them. Which pairs are corrupted, and which texts they get,
are pure functions of the seed and the texts' names.

Training and weighting must not import this module; `tests/contract/test_planting.py` and a contract of import-linter
check that. Measurements read the labels here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from subtext.data import atomic
from subtext.data.dataset import Dataset, fingerprint
from subtext.errors import DataError
from subtext.ops import draw


@dataclass(frozen=True)
class NeighbourLists:
    """Neighbours of the texts of the same Dataset, nearest first, as `neighbours.graph.Graph` holds them.

    rows         (T E) text rows, padded with -1
    distances    (T E) to them
    first, last  ranks from 1, both included, of the neighbours to choose from
    """

    rows: Int[np.ndarray, "t e"]
    distances: Float[np.ndarray, "t e"]
    first: int
    last: int


@dataclass(frozen=True)
class Planted:
    """A corrupted data set.

    dataset    the same items under the same names; some texts have the words of another
    source     (T) the row whose words a text has now; its own where nothing changed
    kinds      (T) "" | "neighbour" | "mismatch"
    distances  (T) between the old words and the new ones; NaN except for neighbours
    """

    dataset: Dataset
    source: NDArray[np.int64]
    kinds: NDArray[Any]
    distances: NDArray[np.float64]


def plant(
    dataset: Dataset,
    rates: Mapping[str, float],
    *,
    neighbours: NeighbourLists | None = None,
    splits: tuple[str, ...] = ("train",),
    seed: int = 0,
) -> Planted:
    """Corrupt shares of the pairs of some splits; texts never leave their split.

    rates  "neighbour" and "mismatch" -> share of the pairs of each split, at most 1 in total

    "neighbour" swaps the texts of two neighbours. The first text of a swap is sampled uniformly; the second, among
    those within the ranks, in inverse proportion to the number of texts that could choose it: otherwise texts with many
    neighbours would be corrupted more often. "mismatch" is a derangement: each sampled pair gets the text of another
    group.

    Texts of several images, and texts known by features alone, do not change.

    Raises DataError when so many pairs cannot be corrupted.
    """
    total = sum(rates.values())
    if not rates or min(rates.values()) < 0 or not 0 < total <= 1 or set(rates) - {"neighbour", "mismatch"}:
        raise DataError(f"noise needs rates of 'neighbour' and 'mismatch' above 0, at most 1 in total; it got {rates}")
    source = np.arange(len(dataset.texts), dtype=np.int64)
    kinds = np.full(len(dataset.texts), "", dtype="<U9")
    distances = np.full(len(dataset.texts), np.nan)
    for split in splits:
        rows = _corruptible(dataset, split)
        swapped, mismatched = (round(rates.get(kind, 0) * len(rows)) for kind in ("neighbour", "mismatch"))
        if swapped:
            if neighbours is None:
                raise DataError("noise of neighbours needs a graph of neighbours (--graph)")
            left, right, gaps = _swaps(dataset, rows, neighbours, max(swapped // 2, 1), seed)
            source[left], source[right] = right, left
            kinds[left] = kinds[right] = "neighbour"
            distances[left] = distances[right] = gaps
        rows = rows[kinds[rows] == ""]
        if mismatched:
            chosen = rows[
                np.argsort(_uniform(dataset, rows, seed, "loosen: which mismatch"), kind="stable")[:mismatched]
            ]
            source[chosen] = _deranged(dataset, chosen, seed)
            kinds[chosen] = "mismatch"
    values = [dataset.texts.values[row] for row in source]
    languages = {
        name: [column[row] for row in source] for name, column in dataset.texts.metadata.items() if name == "language"
    }
    texts = replace(dataset.texts, values=values, metadata={**dataset.texts.metadata, **languages})
    return Planted(replace(dataset, texts=texts), source, kinds, distances)


def _corruptible(dataset: Dataset, split: str) -> NDArray[np.int64]:
    """The texts of a split that have words and one image, in the order of their keys."""
    image_counts = np.bincount(dataset.links[:, 1], minlength=len(dataset.texts))
    words = np.array([isinstance(value, str) for value in dataset.texts.values], dtype=bool)
    rows = np.flatnonzero((dataset.texts.splits == split) & (image_counts == 1) & words)
    if not len(rows):
        raise DataError(
            f"corrupting the split '{split}' needs texts with words, of one image each; it has none; name another"
        )
    ordered: NDArray[np.int64] = rows[np.argsort(dataset.texts.keys[rows], kind="stable")]
    return ordered


def _uniform(dataset: Dataset, rows: NDArray[np.int64], seed: int, purpose: str) -> NDArray[np.float64]:
    return draw.uniform(dataset.texts.keys[rows], seed=seed, epoch=0, purpose=purpose)[:, 0]


def _swaps(
    dataset: Dataset, rows: NDArray[np.int64], neighbours: NeighbourLists, count: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """(S) texts, (S) the texts that they are swapped with, and (S) their distances; S is `count`."""
    partners = _partners(dataset, rows, neighbours)
    counts = np.array([len(distances) for distances in partners], dtype=np.float64)
    index = np.full(len(dataset.texts), -1, dtype=np.int64)
    index[rows] = np.arange(len(rows))
    free = np.ones(len(rows), dtype=bool)
    swaps: list[tuple[int, int, float]] = []
    for first in np.argsort(_uniform(dataset, rows, seed, "loosen: which"), kind="stable"):
        if len(swaps) == count:
            break
        choices = [(text, gap) for text, gap in partners[first].items() if free[index[text]]] if free[first] else []
        if not choices:
            continue
        texts = np.array([text for text, _ in choices], dtype=np.int64)
        mixed = dataset.texts.keys[texts] ^ dataset.texts.keys[rows[first]]
        uniform = draw.uniform(mixed, seed=seed, epoch=0, purpose="loosen: with whom")[:, 0]
        # The least of exponential times, each with its rate: a weighted choice that does not depend on the order.
        chosen = int(np.argmin(-np.log1p(-uniform) * counts[index[texts]]))
        swaps.append((int(rows[first]), *choices[chosen]))
        free[first] = free[index[texts[chosen]]] = False
    if len(swaps) < count:
        raise DataError(
            f"{2 * count:,} pairs cannot get a neighbour's text: within ranks {neighbours.first} to {neighbours.last} "
            f"{2 * len(swaps):,} of them can; use a lower rate or more ranks"
        )
    left, right = (np.array([swap[side] for swap in swaps], dtype=np.int64) for side in (0, 1))
    return left, right, np.array([gap for _, _, gap in swaps])


def _partners(dataset: Dataset, rows: NDArray[np.int64], lists: NeighbourLists) -> list[dict[int, float]]:
    """The texts that each row may be swapped with (one has the other within the ranks), and their distances."""
    index = {int(row): number for number, row in enumerate(rows)}
    groups, words = dataset.texts.groups, dataset.texts.values
    partners: list[dict[int, float]] = [{} for _ in rows]
    band = slice(lists.first - 1, lists.last)
    for number, row in enumerate(rows):
        for text, gap in zip(lists.rows[row, band].tolist(), lists.distances[row, band].tolist(), strict=True):
            if text in index and groups[text] != groups[row] and words[text] != words[row]:
                partners[number][text] = gap
                partners[index[text]].setdefault(int(row), gap)
    return partners


def _deranged(dataset: Dataset, chosen: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """For each chosen text another chosen one, each once, of another group and with other words."""
    groups = dataset.texts.groups[chosen]
    keys = dataset.texts.keys[chosen]
    # Groups are ordered by a random number of their least key, so that neither row nor group numbers matter.
    _, number = np.unique(groups, return_inverse=True)
    least = np.full(number.max() + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, number, keys)
    of_group = draw.uniform(least, seed=seed, epoch=0, purpose="loosen: groups")[:, 0][number]
    order = np.lexsort((draw.uniform(keys, seed=seed, epoch=0, purpose="loosen: texts")[:, 0], of_group))
    largest = int(np.bincount(number).max())
    if 2 * largest > len(chosen):
        raise DataError(
            f"a derangement of {len(chosen):,} pairs needs no group of more than half of them; one has {largest:,}; "
            "use a higher rate"
        )
    sources = np.empty_like(chosen)
    sources[order] = np.roll(chosen[order], -largest)
    _repair(dataset, chosen, sources, order)
    return sources


def _repair(dataset: Dataset, chosen: NDArray[np.int64], sources: NDArray[np.int64], order: NDArray[np.int64]) -> None:
    """Where a text would get its own words, exchange sources with the next text for which that corrects both."""
    groups, words = dataset.texts.groups, dataset.texts.values

    def fits(target: int, origin: int) -> bool:
        old, new = chosen[target], sources[origin]
        return bool(groups[old] != groups[new]) and words[old] != words[new]

    indices = order.tolist()
    for number, index in enumerate(indices):
        if fits(index, index):
            continue
        for partner in indices[number + 1 :] + indices[:number]:
            if fits(index, partner) and fits(partner, index):
                sources[index], sources[partner] = sources[partner], sources[index]
                break
        else:
            raise DataError(
                f"a derangement of {len(chosen):,} pairs needs texts that differ; too many are the same; use a "
                "higher rate, or remove copies first (subtext data dedup)"
            )


FORMAT = 1
"""Raised when an older Subtext could no longer read what a newer one writes."""


@dataclass(frozen=True)
class Labels:
    """The noise labels of a corrupted data set.

    data       fingerprint of the corrupted data set
    settings   how it was corrupted: rate, seed, splits, ranks, graph
    kinds      text id -> "neighbour" or "mismatch"; other texts of the corrupted splits did not change
    distances  text id -> distance between its old and new words; for neighbours
    """

    data: str
    settings: Mapping[str, Any]
    kinds: Mapping[str, str]
    distances: Mapping[str, float]

    def of(self, dataset: Dataset) -> NDArray[Any]:
        """(T) the kind of each text of a data set or of a split of it, "" for one that was not corrupted.

        Raises DataError when none of its texts has a label, as those of another data set.
        """
        kinds = np.array([self.kinds.get(name, "") for name in dataset.texts.ids], dtype="<U9")
        if len(kinds) and not (kinds != "").any():
            raise DataError(
                f"the labels name {len(self.kinds):,} corrupted texts, and none of these {len(kinds):,}; give the "
                "labels that were written with this data set, and a split that was corrupted"
            )
        return kinds

    def require(self, dataset: Dataset) -> None:
        """Raise DataError unless this is the complete data set that the labels were written with."""
        digest = fingerprint(dataset)
        if digest != self.data:
            raise DataError(
                f"the labels need the data set that they were written with ({self.data}); it got another ({digest}); "
                "name the unchanged file that `subtext data corrupt` wrote"
            )


def write_labels(planted: Planted, path: Path, settings: Mapping[str, Any]) -> None:
    """Write the labels of a corrupted data set as JSON.

    Raises OutputError where it cannot be written.
    """
    ids = planted.dataset.texts.ids
    rows = np.flatnonzero(planted.kinds != "")
    content = {
        "kind": "subtext planted looseness",
        "format": FORMAT,
        "data": fingerprint(planted.dataset),
        "settings": dict(settings),
        "loose": [
            {
                "text": ids[row],
                "kind": str(planted.kinds[row]),
                "from": ids[planted.source[row]],
                **({"distance": planted.distances[row]} if np.isfinite(planted.distances[row]) else {}),
            }
            for row in rows
        ],
    }
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    atomic.write_text(path, text)


def read_labels(path: Path) -> Labels:
    """What `write_labels` wrote.

    Raises DataError when the file is something else, or of a newer Subtext.
    """
    if not path.is_file():
        raise DataError(f"labels need a file that `subtext data corrupt` wrote; {path} does not exist")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or content.get("kind") != "subtext planted looseness":
            raise DataError(f"{path} has no labels; name the file that `subtext data corrupt --labels` wrote")
        if content["format"] > FORMAT:
            raise DataError(
                f"{path} has format {content['format']}; this Subtext reads up to {FORMAT}; use a newer one"
            )
        entries = content["loose"]
        kinds = {str(entry["text"]): str(entry["kind"]) for entry in entries}
        distances = {str(entry["text"]): float(entry["distance"]) for entry in entries if "distance" in entry}
        return Labels(str(content["data"]), content["settings"], kinds, distances)
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"{path} is damaged, or has no labels: {error!r}; name the file that `subtext data corrupt --labels` wrote"
        ) from error
