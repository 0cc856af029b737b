"""Graded: how much every picture and every text have to do with each other, under one named reading."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

from subtext.core import Direction, Truth
from subtext.data.dataset import Judgements
from subtext.errors import DataError, ShapeError
from subtext.evaluation.relevance.match import Match

BLOCK_BYTES = 2**26
"""About as much of a matrix is read at a time."""


@dataclass(frozen=True)
class Graded:
    """Relevance in degrees between I pictures and T texts; one matrix serves both directions.

    name    what it was computed with ("tfidf1", "ciderd", ...): part of the name of every metric that reads it, because
            figures under two relevances cannot be compared
    values  (I T) float16 or float32, finite, larger is more; in memory or mapped from a file, and never transposed

    Raises ShapeError when the values are no such matrix.

    >>> graded = Graded("made", np.array([[1.0, 0.5, 0.0], [0.0, 0.5, 1.0]], dtype=np.float32))
    >>> graded.block("text_to_image", 1, 3).tolist()
    [[0.5, 0.5], [0.0, 1.0]]
    """

    name: str
    values: Float[np.ndarray, "i t"]

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.dtype not in (np.float16, np.float32):
            raise ShapeError(
                f"Graded.values needs (pictures, texts) of float16 or float32; it got {self.values.shape} of "
                f"{self.values.dtype}"
            )

    @property
    def shape(self) -> tuple[int, int]:
        """I and T."""
        return (self.values.shape[0], self.values.shape[1])

    def queries(self, direction: Direction) -> int:
        """How many queries one direction has."""
        return self.shape[0] if direction == "image_to_text" else self.shape[1]

    def block(self, direction: Direction, start: int, stop: int) -> Float[np.ndarray, "q c"]:
        """Queries start to stop against all candidates, float32 row after row.

        Raises DataError that names the first value which is no finite number.
        """
        cut = self.values[start:stop] if direction == "image_to_text" else self.values[:, start:stop].T
        block = np.ascontiguousarray(cut, dtype=np.float32)
        # A sum is finite where all are, but for an overflow that float32 values of any known relevance never reach.
        if not np.isfinite(block.sum(dtype=np.float64)):
            query, candidate = np.argwhere(~np.isfinite(block))[0]
            raise DataError(
                f"the relevance {self.name} needs finite numbers; {direction} query {start + query}, candidate "
                f"{candidate} has {block[query, candidate]}"
            )
        return block

    def blocks(
        self, direction: Direction, block_bytes: int = BLOCK_BYTES
    ) -> Iterator[tuple[int, int, Float[np.ndarray, "q c"]]]:
        """All queries of a direction in order: start, stop and their block."""
        queries = self.queries(direction)
        candidates = max(1, self.values.size // max(1, queries))
        rows = max(1, block_bytes // (4 * candidates))
        for start in range(0, queries, rows):
            stop = min(queries, start + rows)
            yield start, stop, self.block(direction, start, stop)

    def take(self, image_rows: NDArray[np.int64], text_rows: NDArray[np.int64]) -> Graded:
        """The chosen pictures and texts, as one fold of a gallery needs them; what was learnt from all stays so."""
        return replace(self, values=np.ascontiguousarray(self.values[image_rows][:, text_rows]))

    def truth(self, direction: Direction, start: int, stop: int, match: Match) -> Truth:
        """Queries start to stop as a Comparison needs them: who belongs together, and how much all others do."""
        matches = match.truth(direction, start, stop)
        relevance = torch.from_numpy(self.block(direction, start, stop))
        return Truth(match=matches.match, ignored=matches.ignored, relevance=relevance, scale=self.name)

    def above(self, threshold: float) -> int:
        """How many pairs of a picture and a text have a value above the threshold."""
        return sum(int((block > threshold).sum()) for _, _, block in self.blocks("image_to_text"))


def of_judgements(judgements: Judgements, *, images: int, texts: int, name: str = "judged") -> Graded:
    """Judgements of a data set in degrees, as nDCG reads them; what nobody judged is 0."""
    values = np.zeros((images, texts), dtype=np.float32)
    values[judgements.images, judgements.texts] = judgements.scores
    return Graded(name, values)
