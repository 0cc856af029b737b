"""Dataset: pictures, texts and which of them belong together, as columns.

A picture and a text belong together when they share a group: truth is a group id, never a position. `links` are the
pairs that the rows of the file named, which is what training draws from; the truth of evaluation is the whole group, or
graded judgements where the data set brings its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.errors import DataError
from subtext.ops import draw


@dataclass(frozen=True)
class Items:
    """The pictures, or the texts, of a data set, one entry an item in every column.

    ids     names, unique within the modality
    values  picture: str path relative to Dataset.root, or bytes; text: str; None for an item known by features alone
    groups  (N) int64, equal for what belongs together
    splits  (N) of "train", "val", "test", or what the data set calls them
    metadata  name -> (N) further columns: labels, language, and any metadata of the row
    """

    ids: list[str]
    values: list[str | bytes | None]
    groups: NDArray[np.int64]
    splits: NDArray[Any]
    metadata: Mapping[str, list[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        """How many items."""
        return len(self.ids)

    @cached_property
    def keys(self) -> NDArray[np.int64]:
        """(N) keys for draws: a function of the id alone."""
        return draw.keys(self.ids)

    def take(self, rows: NDArray[np.int64]) -> Items:
        """The chosen items in the order given."""
        return Items(
            ids=[self.ids[row] for row in rows],
            values=[self.values[row] for row in rows],
            groups=self.groups[rows],
            splits=self.splits[rows],
            metadata={name: [column[row] for row in rows] for name, column in self.metadata.items()},
        )


@dataclass(frozen=True)
class Judgements:
    """Graded truth that a data set brings: score of (text row, picture row), as in an MTEB qrels table."""

    texts: NDArray[np.int64]
    images: NDArray[np.int64]
    scores: NDArray[np.float32]


@dataclass(frozen=True)
class Dataset:
    """A data set of pictures and texts.

    images, texts  the items
    links          (L, 2) int64, picture row and text row of every pair that the data names
    root           the folder that relative picture paths start from
    judgements     graded truth, where the data set brings it
    """

    images: Items
    texts: Items
    links: NDArray[np.int64]
    root: Path
    judgements: Judgements | None = None

    def split(self, name: str) -> Dataset:
        """The pictures and texts of one split; "all" is the whole set.

        Raises DataError when the split has no pair.
        """
        if name == "all":
            return self
        chosen = self.subset(
            np.flatnonzero(self.images.splits == name).astype(np.int64),
            np.flatnonzero(self.texts.splits == name).astype(np.int64),
        )
        if not len(chosen.links):
            have = ", ".join(f"{part} ({count})" for part, count in self.counts().items())
            raise DataError(
                f"split '{name}' needs at least one pair; this data set has {have or 'none'}; name one of these"
            )
        return chosen

    def counts(self) -> dict[str, int]:
        """Pictures in each split, by name."""
        names, counts = np.unique(self.images.splits, return_counts=True)
        return {str(name): int(count) for name, count in zip(names, counts, strict=True)}

    def subset(self, image_rows: NDArray[np.int64], text_rows: NDArray[np.int64]) -> Dataset:
        """The chosen pictures and texts, with the links and judgements that stay whole."""
        image_to = _renumber(image_rows, len(self.images))
        text_to = _renumber(text_rows, len(self.texts))
        links = np.stack([image_to[self.links[:, 0]], text_to[self.links[:, 1]]], axis=1)
        judgements = self.judgements
        if judgements is not None:
            images, texts = image_to[judgements.images], text_to[judgements.texts]
            kept = (images >= 0) & (texts >= 0)
            judgements = Judgements(texts=texts[kept], images=images[kept], scores=judgements.scores[kept])
        return replace(
            self,
            images=self.images.take(image_rows),
            texts=self.texts.take(text_rows),
            links=links[(links >= 0).all(axis=1)],
            judgements=judgements,
        )


def _renumber(rows: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Old row -> new row, -1 for a row left out."""
    new = np.full(length, -1, dtype=np.int64)
    new[rows] = np.arange(len(rows))
    return new
