"""How many pairs of a picture and a text are above each threshold of a relevance (Li et al. 2022, figure 1b)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subtext.evaluation.relevance.graded import Graded
from subtext.evaluation.relevance.match import Match


@dataclass(frozen=True)
class Above:
    """Counts over all pictures and texts of a gallery.

    thresholds  (K) rising
    pairs       (K) int64, pairs whose relevance is greater than each of them
    own         (K) int64, of those, pairs that belong together
    pictures    how many there are
    """

    thresholds: NDArray[np.float32]
    pairs: NDArray[np.int64]
    own: NDArray[np.int64]
    pictures: int


def above(graded: Graded, match: Match, thresholds: Sequence[float]) -> Above:
    """Count pairs above each threshold, in float32 as the relevance is kept.

    Cost   one read of the relevance, and a search among the thresholds for each pair.

    >>> from subtext.evaluation.relevance.match import of_groups
    >>> graded = Graded("made", np.array([[1.0, 0.4], [0.0, 0.4]], dtype=np.float32))
    >>> found = above(graded, of_groups(np.array([0, 1]), np.array([0, 1])), (0.0, 0.5))
    >>> found.pairs.tolist(), found.own.tolist()
    ([3, 1], [2, 1])
    """
    levels = np.unique(np.asarray(thresholds, dtype=np.float32))
    pairs, own = np.zeros((2, len(levels)), dtype=np.int64)
    for start, stop, block in graded.blocks("image_to_text"):
        pairs += _counts(block.ravel(), levels)
        rows, columns = match.image_to_text[start:stop].expand()
        own += _counts(block[rows, columns], levels)
    return Above(levels, pairs, own, graded.shape[0])


def _counts(values: NDArray[np.floating], levels: NDArray[np.float32]) -> NDArray[np.int64]:
    """(K) how many values are greater than each level."""
    passed = np.bincount(np.searchsorted(levels, values, side="left"), minlength=len(levels) + 1)
    found: NDArray[np.int64] = passed[:0:-1].cumsum()[::-1]
    return found
