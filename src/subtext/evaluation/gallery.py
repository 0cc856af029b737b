"""Gallery: what is evaluated, apart from the scores: queries, candidates, and every truth that they are judged by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.core import DIRECTIONS, Direction
from subtext.data.dataset import Dataset, Judgements, fingerprint
from subtext.errors import RequirementError, ShapeError
from subtext.evaluation.relevance import match as matching
from subtext.evaluation.relevance.graded import Graded
from subtext.evaluation.relevance.match import Match
from subtext.evaluation.relevance.plausible import Labelled
from subtext.ops import draw


@dataclass(frozen=True)
class Gallery:
    """Images and texts of an evaluation.

    A text of several images goes with the first of those that rows of the data name it with; where none does, with the
    first that is right for it.

    Args:
        match: What belongs together.
        positives: "groups" or "judgements": where that is known from.
        image_ids: Names of the I images.
        text_ids: Names of the T texts.
        owners: (T) int64, the image row that each text goes with, in folds and when images are resampled; -1 for a
            text without an image.
        split: What data this is.
        fingerprint: Of the data; empty for scores that came without.
        relevances: Name -> graded relevance, for metrics that are measured against it.
        truths: Name -> other positives ("eccv", "cxc"), likewise.
        labels: Object classes of the images, for PMRP.
        ratings: People's ratings of pairs.
        lengths: (T) int64, words of each text; None where no metric is reported by length.

    Raises:
        RequirementError: If nothing belongs together.
        ShapeError: If a relevance or a truth is of other images and texts.
    """

    match: Match
    positives: str
    image_ids: Sequence[str]
    text_ids: Sequence[str]
    owners: NDArray[np.int64]
    split: str = ""
    fingerprint: str = ""
    relevances: Mapping[str, Graded] = field(default_factory=dict)
    truths: Mapping[str, Match] = field(default_factory=dict)
    labels: Labelled | None = None
    ratings: Judgements | None = None
    lengths: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if not self.match.image_to_text.lengths.any():
            raise RequirementError(
                f"evaluation needs an image and a text that belong together; none of {len(self.image_ids)} images "
                f"and {len(self.text_ids)} texts do; look at the groups, or at the judgements, of this split"
            )
        for name, graded in self.relevances.items():
            if graded.shape != self.shape:
                raise ShapeError(
                    f"the relevance {name} must be (images, texts) = {self.shape} as the gallery is; it got "
                    f"{graded.shape}; compute it from the split that is evaluated"
                )
        for name, match in self.truths.items():
            got = (len(match.image_to_text), len(match.text_to_image))
            if got != self.shape:
                raise ShapeError(f"the truth {name} must be of {self.shape} images and texts; it got {got}")

    @property
    def shape(self) -> tuple[int, int]:
        """Images and texts."""
        return (len(self.image_ids), len(self.text_ids))

    def ids(self, direction: Direction) -> Sequence[str]:
        """Names of the queries.

        Args:
            direction: Which side asks.

        Returns:
            (Q) names.
        """
        return self.image_ids if direction == "image_to_text" else self.text_ids

    def clusters(self, direction: Direction) -> NDArray[np.int64]:
        """What the bootstrap draws together.

        Args:
            direction: Which side asks.

        Returns:
            (Q) image row of each query.
        """
        return np.arange(len(self.image_ids), dtype=np.int64) if direction == "image_to_text" else self.owners

    def positive_counts(self, direction: Direction) -> NDArray[np.int64]:
        """How many candidates are right for each query.

        Args:
            direction: Which side asks.

        Returns:
            (Q) int64.
        """
        return np.asarray(self.match.cells(direction).lengths, dtype=np.int64)

    @cached_property
    def keys(self) -> dict[Direction, NDArray[np.int64]]:
        """Direction -> (Q) keys of the queries for draws: a function of the name alone."""
        return {direction: draw.keys(self.ids(direction)) for direction in DIRECTIONS}

    def names(self) -> dict[str, NDArray[Any]]:
        """Names that stand beside values per query.

        Returns:
            "<direction>/id" -> (Q) names of the queries, and "text_to_image/image" -> (T) the image that each text goes
            with, "" where it has none.
        """
        ids = {f"{d}/id": np.asarray(self.ids(d), dtype=np.str_) for d in DIRECTIONS}
        owners = [self.image_ids[row] if row >= 0 else "" for row in self.owners]
        return ids | {"text_to_image/image": np.asarray(owners, dtype=np.str_)}

    def fold_rows(self, count: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Consecutive blocks of images, each with its texts.

        With one fold everything is in it, texts without an image too.

        Args:
            count: How many.

        Yields:
            Image rows and text rows of a block.

        Raises:
            RequirementError: If there are fewer images than folds.
        """
        images = np.arange(len(self.image_ids), dtype=np.int64)
        if count == 1:
            yield images, np.arange(len(self.text_ids), dtype=np.int64)
            return
        if count > len(images):
            raise RequirementError(f"{count} folds need as many images; there are {len(images)}; ask for fewer folds")
        for rows in np.array_split(images, count):
            yield rows, np.flatnonzero((self.owners >= rows[0]) & (self.owners <= rows[-1])).astype(np.int64)

    def folds(self, count: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], Gallery]]:
        """The blocks of `fold_rows` as galleries of their own.

        Args:
            count: How many.

        Yields:
            Image rows, text rows, and the gallery of a block.

        Raises:
            RequirementError: If a block has no pair.
        """
        for images, texts in self.fold_rows(count):
            if count == 1:
                yield images, texts, self
                return
            match = self.match.take(images, texts)
            if not match.image_to_text.lengths.any():
                raise RequirementError(
                    f"each of {count} folds needs a pair; images {images[0]} to {images[-1]} have none; ask for fewer"
                )
            yield images, texts, self._part(images, texts, match)

    def _part(self, images: NDArray[np.int64], texts: NDArray[np.int64], match: Match) -> Gallery:
        new_rows = np.full(len(self.image_ids) + 1, -1, dtype=np.int64)
        new_rows[images] = np.arange(len(images))
        return replace(
            self,
            match=match,
            image_ids=[self.image_ids[row] for row in images],
            text_ids=[self.text_ids[row] for row in texts],
            owners=new_rows[self.owners[texts]],
            relevances={name: graded.take(images, texts) for name, graded in self.relevances.items()},
            truths={name: other.take(images, texts) for name, other in self.truths.items()},
            labels=None if self.labels is None else self.labels.take(images, texts),
            ratings=None,
            lengths=None if self.lengths is None else self.lengths[texts],
        )


def gallery_of(
    pairs: Dataset,
    *,
    relevances: Iterable[Graded] = (),
    truths: Mapping[str, Match] | None = None,
    labels: Labelled | None = None,
    ratings: Judgements | None = None,
    lengths: NDArray[np.int64] | None = None,
) -> Gallery:
    """The gallery of a data set or of one of its splits.

    Args:
        pairs: I images, T texts, and what belongs together.
        relevances: As in `Gallery`, each under its own name.
        truths: As in `Gallery`.
        labels: As in `Gallery`.
        ratings: As in `Gallery`.
        lengths: As in `Gallery`.

    Returns:
        The gallery.
    """
    match = matching.of_pairs(pairs)
    return Gallery(
        match=match,
        positives="groups" if pairs.judgements is None else "judgements",
        image_ids=pairs.images.ids,
        text_ids=pairs.texts.ids,
        owners=_owners(match, pairs.links),
        split="+".join(sorted({str(split) for split in pairs.images.splits})),
        fingerprint=fingerprint(pairs),
        relevances={graded.name: graded for graded in relevances},
        truths=truths or {},
        labels=labels,
        ratings=ratings,
        lengths=lengths,
    )


def gallery_of_groups(image_groups: NDArray[np.int64], text_groups: NDArray[np.int64]) -> Gallery:
    """The gallery of a bare score matrix: items are known by their position.

    Args:
        image_groups: (I) an image and a text belong together when their groups are equal.
        text_groups: (T).

    Returns:
        The gallery.

    Raises:
        ShapeError: If a side has no groups, or not one for each item.
    """
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
    """(T) the first image that links name each text with, else the first that is right for it, else -1."""
    right = match.text_to_image
    owners = np.full(len(right), -1, dtype=np.int64)
    query_rows = np.flatnonzero(right.lengths)
    owners[query_rows] = right.candidates[right.starts[query_rows]]
    images = len(match.image_to_text)
    linked = np.full(len(right), images, dtype=np.int64)
    np.minimum.at(linked, links[:, 1], links[:, 0])
    return np.where(linked < images, linked, owners)
