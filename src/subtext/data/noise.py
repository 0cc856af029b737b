"""Planted noise: a chosen share of the pairs of a data set gets texts of other pairs, and labels record which.

`plant` exchanges texts, and none is lost or doubled: neither a text's length nor another property of texts alone
reveals the corrupted pairs. Neither do their neighbours: what is exchanged does not depend on what a text means.
The corrupted pairs and their new texts are pure functions of the seed and of the names of texts and images.

Training and weighting must not import this module; `tests/data/test_noise.py` and a contract of import-linter
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
from subtext.errors import DataError, Setting
from subtext.ops import draw
from subtext.text_helpers import json_text
from subtext.version import FORMAT, require_format


@dataclass(frozen=True)
class TextNeighbours:
    """Neighbours of the texts of the same Dataset, nearest first, as `neighbours.graph.Graph` holds them.

    Attributes:
        rows: (T E) text rows, padded with -1.
        distances: (T E) to them.
        first: Ranks from 1, both included, of the neighbours to choose from.
        last: See `first`.
    """

    rows: Int[np.ndarray, "t e"]
    distances: Float[np.ndarray, "t e"]
    first: int
    last: int


@dataclass(frozen=True)
class Planted:
    """A corrupted data set.

    Attributes:
        dataset: The same items under the same names; some texts have the words of another.
        original: The data set before.
        source: (T) the row, in `original`, of the text whose words a text has now; its own where nothing changed.
        kinds: (T) what was done to each text: "neighbour", "mismatch", or "" where nothing changed.
        distances: (T) between the old words and the new ones; NaN except for neighbours.
    """

    dataset: Dataset
    original: Dataset
    source: NDArray[np.int64]
    kinds: NDArray[Any]
    distances: NDArray[np.float64]


def plant(
    dataset: Dataset,
    rates: Mapping[str, float],
    *,
    neighbours: TextNeighbours | None = None,
    splits: tuple[str, ...] = ("train",),
    seed: int = 0,
) -> Planted:
    """Corrupt shares of the pairs of some splits; texts never leave their split.

    "neighbour" swaps the texts of two neighbours. The first text of a swap is sampled uniformly; the second, among
    those within the ranks, in inverse proportion to the number of texts that could choose it: otherwise texts with many
    neighbours would be corrupted more often. "mismatch" is a derangement: each sampled pair gets the text of another
    group.

    Texts of several images, and texts known by features alone, do not change.

    Args:
        dataset: The data set.
        rates: "neighbour" and "mismatch" -> share of the pairs of each split, at most 1 in total.
        neighbours: Of its texts; needed for the rate of "neighbour".
        splits: Splits to corrupt.
        seed: Seed of the random choice.

    Returns:
        The corrupted data set and what was changed.

    Raises:
        DataError: If so many pairs cannot be corrupted.
    """
    total = sum(rates.values())
    if not rates or min(rates.values()) < 0 or not 0 < total <= 1 or set(rates) - {"neighbour", "mismatch"}:
        raise DataError(f"noise needs rates of 'neighbour' and 'mismatch' above 0, at most 1 in total; it got {rates}")
    source = np.arange(len(dataset.texts), dtype=np.int64)
    kinds = np.full(len(dataset.texts), "", dtype="<U9")
    distances = np.full(len(dataset.texts), np.nan)
    image_counts = np.bincount(dataset.links[:, 1], minlength=len(dataset.texts))
    changeable = (image_counts == 1) & [isinstance(value, str) for value in dataset.texts.values]
    for split in splits:
        rows = np.flatnonzero((dataset.texts.splits == split) & changeable)
        if not len(rows):
            raise DataError(
                f"corrupting the split '{split}' needs texts with words, of one image each; it has none; name another"
            )
        rows = rows[np.argsort(dataset.texts.keys[rows], kind="stable")]
        swapped, mismatched = (round(rates.get(kind, 0) * len(rows)) for kind in ("neighbour", "mismatch"))
        if swapped:
            if neighbours is None:
                raise DataError("noise of neighbours needs a graph of neighbours (", Setting("graph"), ")")
            left, right, gaps = _swaps(dataset, rows, neighbours, max(swapped // 2, 1), seed)
            source[left], source[right] = right, left
            kinds[left] = kinds[right] = "neighbour"
            distances[left] = distances[right] = gaps
        if mismatched:
            rows = rows[kinds[rows] == ""]
            chosen = rows[_random_order(dataset, rows, seed, "noise: which mismatch")[:mismatched]]
            source[chosen] = _deranged(dataset, chosen, seed)
            kinds[chosen] = "mismatch"
    metadata = dict(dataset.texts.metadata)
    if "language" in metadata:
        metadata["language"] = [metadata["language"][row] for row in source.tolist()]
    texts = replace(dataset.texts, values=[dataset.texts.values[row] for row in source.tolist()], metadata=metadata)
    return Planted(replace(dataset, texts=texts), dataset, source, kinds, distances)


def _random_order(dataset: Dataset, rows: NDArray[np.int64], seed: int, purpose: str) -> NDArray[np.int64]:
    uniform = draw.uniform(dataset.texts.keys[rows], seed=seed, epoch=0, purpose=purpose)[:, 0]
    return np.argsort(uniform, kind="stable")


def _swaps(
    dataset: Dataset, rows: NDArray[np.int64], neighbours: TextNeighbours, count: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """(S) texts, (S) the texts that they are swapped with, and (S) their distances; S is `count`."""
    texts = dataset.texts
    # The texts that each text may be swapped with (one has the other within the ranks), and their distances.
    partners: dict[int, dict[int, float]] = {row: {} for row in rows.tolist()}
    ranks = slice(neighbours.first - 1, neighbours.last)
    for row, distances in partners.items():
        nearest = zip(neighbours.rows[row, ranks].tolist(), neighbours.distances[row, ranks].tolist(), strict=True)
        for text, distance in nearest:
            if text in partners and texts.groups[text] != texts.groups[row] and texts.values[text] != texts.values[row]:
                distances[text] = distance
                partners[text].setdefault(row, distance)
    free = set(partners)
    swaps: list[tuple[int, int]] = []
    for first in rows[_random_order(dataset, rows, seed, "noise: which")].tolist():
        choices = [text for text in partners[first] if text in free] if first in free else []
        if len(swaps) == count or not choices:
            continue
        mixed = texts.keys[choices] ^ texts.keys[first]
        uniform = draw.uniform(mixed, seed=seed, epoch=0, purpose="noise: partners")[:, 0]
        # The least of exponential times, each with its rate: a weighted choice that does not depend on the order.
        rates = np.array([len(partners[text]) for text in choices], dtype=np.float64)
        second = choices[int(np.argmin(-np.log1p(-uniform) * rates))]
        swaps.append((first, second))
        free -= {first, second}
    if len(swaps) < count:
        raise DataError(
            f"{2 * count:,} pairs cannot get a neighbour's text: within ranks {neighbours.first} to {neighbours.last} "
            f"{2 * len(swaps):,} of them can; use a lower rate or more ranks"
        )
    left, right = np.array(swaps, dtype=np.int64).T
    return left, right, np.array([partners[first][second] for first, second in swaps])


def _deranged(dataset: Dataset, chosen: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """For each chosen text another chosen one, each once, of another group and with other words."""
    keys = dataset.texts.keys[chosen]
    # Groups are ordered by a random number of their least key, so that neither row nor group numbers matter.
    _, number = np.unique(dataset.texts.groups[chosen], return_inverse=True)
    least = np.full(number.max() + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, number, keys)
    of_group = draw.uniform(least, seed=seed, epoch=0, purpose="noise: groups")[:, 0][number]
    order = np.lexsort((draw.uniform(keys, seed=seed, epoch=0, purpose="noise: texts")[:, 0], of_group))
    largest = int(np.bincount(number).max())
    if 2 * largest > len(chosen):
        raise DataError(
            f"a derangement of {len(chosen):,} pairs needs no group of more than half of them; one has {largest:,}; "
            "use a higher rate"
        )
    sources = np.empty_like(chosen)
    sources[order] = np.roll(chosen[order], -largest)

    def fits(target: int, origin: int) -> bool:
        old, new = chosen[target], sources[origin]
        texts = dataset.texts
        return bool(texts.groups[old] != texts.groups[new]) and texts.values[old] != texts.values[new]

    # Where a text would get its own words, exchange sources with the next text for which that corrects both.
    indices = order.tolist()
    for position, index in enumerate(indices):
        if fits(index, index):
            continue
        for partner in indices[position + 1 :] + indices[:position]:
            if fits(index, partner) and fits(partner, index):
                sources[index], sources[partner] = sources[partner], sources[index]
                break
        else:
            raise DataError(
                f"a derangement of {len(chosen):,} pairs needs texts that differ; too many are the same; use a "
                "higher rate, or remove copies first (subtext data dedup)"
            )
    return sources


KIND = "subtext noise labels"
"""Identifies a file of labels."""


@dataclass(frozen=True)
class Labels:
    """The noise labels of a corrupted data set.

    Attributes:
        data: Fingerprint of the corrupted data set.
        settings: How it was corrupted: rate, seed, splits, ranks, graph.
        kinds: Text id -> "neighbour" or "mismatch"; other texts of the corrupted splits did not change.
        distances: Text id -> distance between its old and new words; for neighbours.
    """

    data: str
    settings: Mapping[str, Any]
    kinds: Mapping[str, str]
    distances: Mapping[str, float]

    def of(self, dataset: Dataset) -> NDArray[Any]:
        """Get the kind of each text.

        Args:
            dataset: The corrupted data set, or a split of it.

        Returns:
            (T) the kind; "" for a text that was not corrupted.

        Raises:
            DataError: If none of its texts has a label, as those of another data set.
        """
        kinds = np.array([self.kinds.get(name, "") for name in dataset.texts.ids], dtype="<U9")
        if len(kinds) and not (kinds != "").any():
            raise DataError(
                f"the labels name {len(self.kinds):,} corrupted texts, and none of these {len(kinds):,}; give the "
                "labels that were written with this data set, and a split that was corrupted"
            )
        return kinds

    def require(self, dataset: Dataset) -> None:
        """Require the complete data set that the labels were written with.

        Args:
            dataset: The data set.

        Raises:
            DataError: If it is another.
        """
        digest = fingerprint(dataset)
        if digest != self.data:
            raise DataError(
                f"the labels need the data set that they were written with ({self.data}); it got another ({digest}); "
                "name the unchanged file that `subtext data corrupt` wrote"
            )


def write_labels(planted: Planted, path: Path, settings: Mapping[str, Any]) -> None:
    """Write the labels of a corrupted data set as JSON.

    Args:
        planted: The corrupted data set.
        path: The file.
        settings: How it was corrupted, plain JSON values.

    Raises:
        OutputError: If it cannot be written.
    """
    ids, origins = planted.dataset.texts.ids, planted.original.texts.ids
    entries: list[dict[str, Any]] = []
    for row in np.flatnonzero(planted.kinds != "").tolist():
        entries.append({"text": ids[row], "kind": str(planted.kinds[row]), "from": origins[int(planted.source[row])]})
        if np.isfinite(planted.distances[row]):
            entries[-1]["distance"] = planted.distances[row]
    content = {
        "kind": KIND,
        "format": FORMAT,
        "data": fingerprint(planted.dataset),
        "settings": dict(settings),
        "corrupted": entries,
    }
    atomic.write_text(path, json_text(content, indent=1) + "\n")


def read_labels(path: Path) -> Labels:
    """Read the labels that `write_labels` wrote.

    Args:
        path: The file.

    Returns:
        The labels.

    Raises:
        DataError: If the file is something else, or has another format.
    """
    if not path.is_file():
        raise DataError(f"labels need a file that `subtext data corrupt` wrote; {path} does not exist")
    advice = "name the file that `subtext data corrupt --labels` wrote"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or content.get("kind") != KIND:
            raise DataError(f"{path} has no labels; {advice}")
        require_format(content.get("format"), path, "data corrupt", DataError)
        entries = content["corrupted"]
        kinds = {str(entry["text"]): str(entry["kind"]) for entry in entries}
        distances = {str(entry["text"]): float(entry["distance"]) for entry in entries if "distance" in entry}
        return Labels(str(content["data"]), content["settings"], kinds, distances)
    except DataError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is damaged, or has no labels ({type(error).__name__}: {error}); {advice}") from error
