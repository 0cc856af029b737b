"""Which images and texts match in an evaluation: by group, or by the judgements of the data set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from subtext.core import Direction, Truth
from subtext.data.dataset import Dataset, Judgements
from subtext.ops.sparse import CandidateLists


@dataclass(frozen=True)
class Match:
    """The positives of every query in both directions, block by block and never stored whole.

    Attributes:
        image_to_text: For each image, the rows of its texts.
        text_to_image: For each text, the rows of its images.
    """

    image_to_text: CandidateLists
    text_to_image: CandidateLists

    def cells(self, direction: Direction) -> CandidateLists:
        """The positives of one direction's queries.

        Args:
            direction: Which side asks.

        Returns:
            For each of Q queries the rows of its positives.
        """
        return self.image_to_text if direction == "image_to_text" else self.text_to_image

    def truth(self, direction: Direction, start: int, stop: int) -> Truth:
        """Queries start to stop against all candidates, as a Comparison needs it.

        Args:
            direction: Which side asks.
            start: First query.
            stop: Query after the last.

        Returns:
            (Q C) positives of these queries.
        """
        candidates = len(self.text_to_image if direction == "image_to_text" else self.image_to_text)
        rows, columns = self.cells(direction)[start:stop].expand()
        match = torch.zeros(min(stop, len(self.cells(direction))) - start, candidates, dtype=torch.bool)
        match[torch.from_numpy(rows), torch.from_numpy(columns)] = True
        return Truth(match=match)

    def take(self, image_rows: NDArray[np.int64], text_rows: NDArray[np.int64]) -> Match:
        """The truth among the chosen images and texts, which are numbered anew.

        Args:
            image_rows: (I) int64.
            text_rows: (T) int64.

        Returns:
            The positives among them.
        """
        new = np.full(len(self.text_to_image), -1, dtype=np.int64)
        new[text_rows] = np.arange(len(text_rows))
        images, texts = self.image_to_text[image_rows].expand()
        retained = new[texts] >= 0
        images, texts = images[retained], new[texts[retained]]
        return Match(
            CandidateLists.of_pairs(images, texts, queries=len(image_rows)),
            CandidateLists.of_pairs(texts, images, queries=len(text_rows)),
        )


def of_pairs(pairs: Dataset) -> Match:
    """The truth of a data set: its judgements where it brings them, else its groups.

    Args:
        pairs: I images and T texts.

    Returns:
        The positives.
    """
    if pairs.judgements is not None:
        return of_judgements(pairs.judgements, images=len(pairs.images), texts=len(pairs.texts))
    return of_groups(pairs.images.groups, pairs.texts.groups)


def of_groups(image_groups: NDArray[np.int64], text_groups: NDArray[np.int64]) -> Match:
    """An image and a text belong together when their groups are equal.

    Args:
        image_groups: (I) int64.
        text_groups: (T) int64.

    Returns:
        The positives.
    """
    return Match(
        CandidateLists.of_groups(image_groups, text_groups), CandidateLists.of_groups(text_groups, image_groups)
    )


def of_judgements(judgements: Judgements, *, images: int, texts: int) -> Match:
    """An image and a text belong together when they were judged above 0; what was not judged is a negative.

    Args:
        judgements: Judged pairs.
        images: Number of images.
        texts: Number of texts.

    Returns:
        The positives.
    """
    above = judgements.scores > 0
    image_rows, text_rows = judgements.images[above], judgements.texts[above]
    return Match(
        CandidateLists.of_pairs(image_rows, text_rows, queries=images),
        CandidateLists.of_pairs(text_rows, image_rows, queries=texts),
    )


def positions_in_groups(groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """(N) how many items of the same group stand before each.

    Args:
        groups: (N) int64.

    Returns:
        (N) int64.

    Example:
        >>> positions_in_groups(np.array([4, 7, 4, 4])).tolist()
        [0, 0, 1, 2]
    """
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    positions = np.empty(len(groups), dtype=np.int64)
    positions[order] = np.arange(len(groups)) - np.searchsorted(ordered, ordered, side="left")
    return positions
