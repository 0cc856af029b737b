"""Gallery: what is evaluated, apart from the scores: who asks, who answers, and what belongs together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subtext.core import Direction
from subtext.data.fingerprint import fingerprint
from subtext.data.pairs import Pairs
from subtext.errors import RequirementError, ShapeError
from subtext.ops import draw
from subtext.relevance import match as matching
from subtext.relevance.match import Match


@dataclass(frozen=True)
class Gallery:
    """Pictures and texts of an evaluation.

    match                 what belongs together
    positives             "groups" or "judgements": where that is known from
    image_ids, text_ids   names
    image_groups, ...     (N) int64: items of one group are drawn together by the bootstrap
    split, fingerprint    what data this is; empty for scores that came without
    """

    match: Match
    positives: str
    image_ids: list[str]
    text_ids: list[str]
    image_groups: NDArray[np.int64]
    text_groups: NDArray[np.int64]
    split: str = ""
    fingerprint: str = ""

    def ids(self, direction: Direction) -> list[str]:
        """Names of the queries."""
        return self.image_ids if direction == "image_to_text" else self.text_ids

    def groups(self, direction: Direction) -> NDArray[np.int64]:
        """(Q) groups of the queries."""
        return self.image_groups if direction == "image_to_text" else self.text_groups

    def keys(self, direction: Direction) -> NDArray[np.int64]:
        """(Q) keys of the queries for draws: a function of the name alone."""
        return draw.keys(self.ids(direction))

    def folds(self, count: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], Match]]:
        """Picture rows, text rows and truth of each of `count` consecutive blocks of pictures.

        A text goes with its first picture. With one fold everything is in it, texts without a picture too.

        Raises RequirementError when there are fewer pictures than folds.
        """
        images = np.arange(len(self.image_ids), dtype=np.int64)
        if count == 1:
            yield images, np.arange(len(self.text_ids), dtype=np.int64), self.match
            return
        if count > len(images):
            raise RequirementError(f"{count} folds need as many pictures; there are {len(images)}; ask for fewer folds")
        cells = self.match.text_to_image
        asked = np.flatnonzero(cells.lengths)
        first = cells.candidates[cells.starts[asked]]
        for rows in np.array_split(images, count):
            texts = asked[(first >= rows[0]) & (first <= rows[-1])].astype(np.int64)
            if not len(texts):
                raise RequirementError(
                    f"each of {count} folds needs a text; pictures {rows[0]} to {rows[-1]} have none; ask for fewer"
                )
            yield rows, texts, self.match.take(rows, texts)


def of_pairs(pairs: Pairs) -> Gallery:
    """The gallery of a data set or of one of its splits."""
    return Gallery(
        match=matching.of_pairs(pairs),
        positives="groups" if pairs.judgements is None else "judgements",
        image_ids=pairs.images.ids,
        text_ids=pairs.texts.ids,
        image_groups=pairs.images.groups,
        text_groups=pairs.texts.groups,
        split="+".join(sorted({str(split) for split in pairs.images.splits})),
        fingerprint=fingerprint(pairs),
    )


def of_groups(image_groups: NDArray[np.int64], text_groups: NDArray[np.int64]) -> Gallery:
    """The gallery of a bare score matrix: items are known by their position."""
    for name, groups in (("image_groups", image_groups), ("text_groups", text_groups)):
        if groups.ndim != 1 or not len(groups):
            raise ShapeError(f"{name} needs one group an item, (N); it got shape {groups.shape}")
    image_groups, text_groups = image_groups.astype(np.int64), text_groups.astype(np.int64)
    return Gallery(
        match=matching.of_groups(image_groups, text_groups),
        positives="groups",
        image_ids=[str(row) for row in range(len(image_groups))],
        text_ids=[str(row) for row in range(len(text_groups))],
        image_groups=image_groups,
        text_groups=text_groups,
    )
