"""Gallery: what is evaluated, apart from the scores: who asks, who answers, and what belongs together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.core import DIRECTIONS, Direction
from subtext.data.dataset import Dataset, fingerprint
from subtext.errors import RequirementError, ShapeError
from subtext.evaluation.relevance import match as matching
from subtext.evaluation.relevance.match import Match
from subtext.ops import draw


@dataclass(frozen=True)
class Gallery:
    """Pictures and texts of an evaluation.

    A text of several pictures goes with the first of those that rows of the data name it with; where none does, with
    the first that is right for it.

    Attributes:
        match: What belongs together.
        positives: "groups" or "judgements": where that is known from.
        image_ids: Names.
        text_ids: See `image_ids`.
        owners: (T) int64, the picture row that each text goes with, in folds and when pictures are resampled; -1 for a
            text without a picture.
        split: What data this is.
        fingerprint: Empty for scores that came without.

    Raises:
        RequirementError: If nothing belongs together.
    """

    match: Match
    positives: str
    image_ids: list[str]
    text_ids: list[str]
    owners: NDArray[np.int64]
    split: str = ""
    fingerprint: str = ""

    def __post_init__(self) -> None:
        if not self.match.image_to_text.lengths.any():
            raise RequirementError(
                f"evaluation needs a picture and a text that belong together; none of {len(self.image_ids)} pictures "
                f"and {len(self.text_ids)} texts do; look at the groups, or at the judgements, of this split"
            )

    def ids(self, direction: Direction) -> list[str]:
        """Names of the queries."""
        return self.image_ids if direction == "image_to_text" else self.text_ids

    def clusters(self, direction: Direction) -> NDArray[np.int64]:
        """(Q) picture row of each query: what the bootstrap draws together."""
        return np.arange(len(self.image_ids), dtype=np.int64) if direction == "image_to_text" else self.owners

    @cached_property
    def keys(self) -> dict[Direction, NDArray[np.int64]]:
        """Direction -> (Q) keys of the queries for draws: a function of the name alone."""
        return {direction: draw.keys(self.ids(direction)) for direction in DIRECTIONS}

    def names(self) -> dict[str, NDArray[Any]]:
        """Of the queries of both directions, and of the picture that each text goes with; "" where it has none."""
        ids = {f"{d}/id": np.asarray(self.ids(d), dtype=np.str_) for d in DIRECTIONS}
        owners = [self.image_ids[row] if row >= 0 else "" for row in self.owners]
        return ids | {"text_to_image/image": np.asarray(owners, dtype=np.str_)}

    def folds(self, count: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], Match]]:
        """Picture rows, text rows and truth of each of `count` consecutive blocks of pictures, with their texts.

        With one fold everything is in it, texts without a picture too.

        Raises:
            RequirementError: If there are fewer pictures than folds.
        """
        images = np.arange(len(self.image_ids), dtype=np.int64)
        if count == 1:
            yield images, np.arange(len(self.text_ids), dtype=np.int64), self.match
            return
        if count > len(images):
            raise RequirementError(f"{count} folds need as many pictures; there are {len(images)}; ask for fewer folds")
        for rows in np.array_split(images, count):
            texts = np.flatnonzero((self.owners >= rows[0]) & (self.owners <= rows[-1])).astype(np.int64)
            match = self.match.take(rows, texts)
            if not match.image_to_text.lengths.any():
                raise RequirementError(
                    f"each of {count} folds needs a pair; pictures {rows[0]} to {rows[-1]} have none; ask for fewer"
                )
            yield rows, texts, match


def of_pairs(pairs: Dataset) -> Gallery:
    """The gallery of a data set or of one of its splits."""
    match = matching.of_pairs(pairs)
    return Gallery(
        match=match,
        positives="groups" if pairs.judgements is None else "judgements",
        image_ids=pairs.images.ids,
        text_ids=pairs.texts.ids,
        owners=_owners(match, pairs.links),
        split="+".join(sorted({str(split) for split in pairs.images.splits})),
        fingerprint=fingerprint(pairs),
    )


def of_groups(image_groups: NDArray[np.int64], text_groups: NDArray[np.int64]) -> Gallery:
    """The gallery of a bare score matrix: items are known by their position."""
    for name, groups in (("image_groups", image_groups), ("text_groups", text_groups)):
        if groups.ndim != 1 or not len(groups):
            raise ShapeError(f"{name} needs one group an item, (N); it got shape {groups.shape}")
    image_groups, text_groups = image_groups.astype(np.int64), text_groups.astype(np.int64)
    match = matching.of_groups(image_groups, text_groups)
    return Gallery(
        match=match,
        positives="groups",
        image_ids=[str(row) for row in range(len(image_groups))],
        text_ids=[str(row) for row in range(len(text_groups))],
        owners=_owners(match, np.empty((0, 2), dtype=np.int64)),
    )


def _owners(match: Match, links: NDArray[np.int64]) -> NDArray[np.int64]:
    """(T) the first picture that links name each text with, else the first that is right for it, else -1."""
    right = match.text_to_image
    owners = np.full(len(right), -1, dtype=np.int64)
    query_rows = np.flatnonzero(right.lengths)
    owners[query_rows] = right.candidates[right.starts[query_rows]]
    images = len(match.image_to_text)
    linked = np.full(len(right), images, dtype=np.int64)
    np.minimum.at(linked, links[:, 1], links[:, 0])
    return np.where(linked < images, linked, owners)
