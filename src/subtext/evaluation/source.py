"""Where scores come from: a matrix that is there, or embeddings whose similarity is computed block by block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from subtext.core import DIRECTIONS, Direction, Embeddings
from subtext.evaluation import scoring
from subtext.evaluation.relevance.match import Match
from subtext.ops.rank import KERNEL_CELLS, Counts, best_of, both_directions

STORED_BYTES = 2**28
"""Up to this size a score matrix is kept and read once for both directions; above, blocks are scored for each."""

Rows = NDArray[np.int64]
Block = tuple[int, int, Tensor]


@runtime_checkable
class Source(Protocol):
    """Scores of some pictures and some texts, by blocks of either side's queries."""

    @property
    def shape(self) -> tuple[int, int]:
        """Pictures and texts."""

    def part(self, images: Rows, texts: Rows) -> Source:
        """The chosen pictures and texts."""

    def counts(self, match: Match, *, stable: bool) -> tuple[Counts, Counts]:
        """Where the best partner of each picture stands, and of each text."""

    def blocks(self, direction: Direction) -> Iterator[Block]:
        """First and last query of a block, and its scores, (Q C)."""


@dataclass(frozen=True)
class Matrix:
    """Scores that are there: (pictures, texts), in memory or mapped from a file."""

    scores: Float[Tensor, "i t"]

    @property
    def shape(self) -> tuple[int, int]:
        """Pictures and texts."""
        return (self.scores.shape[0], self.scores.shape[1])

    def part(self, images: Rows, texts: Rows) -> Matrix:
        """The chosen pictures and texts; the matrix itself when those are all, in order."""
        if covers(images, self.shape[0]) and covers(texts, self.shape[1]):
            return self
        return Matrix(self.scores[torch.from_numpy(images)][:, torch.from_numpy(texts)])

    def counts(self, match: Match, *, stable: bool) -> tuple[Counts, Counts]:
        """Both directions from one read."""
        return both_directions(self.scores, match.image_to_text, match.text_to_image, stable=stable)

    def blocks(self, direction: Direction) -> Iterator[Block]:
        """Blocks of about 64 MB; those of texts are turned."""
        queries, candidates = self.shape if direction == "image_to_text" else self.shape[::-1]
        rows = max(1, scoring.BLOCK_BYTES // (4 * candidates))
        for start in range(0, queries, rows):
            stop = min(queries, start + rows)
            cut = self.scores[start:stop] if direction == "image_to_text" else self.scores[:, start:stop].T
            yield start, stop, cut.contiguous()


@dataclass(frozen=True)
class Embedded:
    """Scores that a similarity gives embeddings of pictures and texts, exactly or fast (see `scoring`)."""

    similarity: nn.Module
    images: Embeddings
    texts: Embeddings
    block_bytes: int = scoring.BLOCK_BYTES
    exact: bool = False
    stored_bytes: int = STORED_BYTES

    @property
    def shape(self) -> tuple[int, int]:
        """Pictures and texts."""
        return (len(self.images), len(self.texts))

    def part(self, images: Rows, texts: Rows) -> Matrix | Embedded:
        """The chosen items: their whole matrix where it may be stored, else their embeddings.

        Where pairs are dear to score the matrix is made once, whatever its size, and kept in a file.
        """
        mine = self.images if covers(images, len(self.images)) else self.images[torch.from_numpy(images)]
        theirs = self.texts if covers(texts, len(self.texts)) else self.texts[torch.from_numpy(texts)]
        chosen = replace(self, images=mine, texts=theirs)
        return chosen.kept() if chosen.small or not self.similarity.indexable else chosen

    @property
    def small(self) -> bool:
        """Whether all scores may be kept in memory."""
        return 4 * len(self.images) * len(self.texts) <= self.stored_bytes

    def kept(self) -> Matrix:
        """All scores, made once: in memory where they are few enough, else in a file that ends with them."""
        make = scoring.matrix if self.small else scoring.stored
        return Matrix(make(self.similarity, self.images, self.texts, self.block_bytes, exact=self.exact))

    def counts(self, match: Match, *, stable: bool) -> tuple[Counts, Counts]:
        """Each direction from blocks of its own queries: nothing larger than a block is held."""
        compiled = len(self.images) * len(self.texts) >= KERNEL_CELLS

        def of(direction: Direction) -> Counts:
            positives = match.cells(direction)
            return Counts.cat(
                [
                    best_of(scores, positives[start:stop], stable=stable, kernel=compiled)
                    for start, stop, scores in self.blocks(direction)
                ]
            )

        images, texts = (of(direction) for direction in DIRECTIONS)
        return images, texts

    def blocks(self, direction: Direction) -> Iterator[Block]:
        """Blocks of `block_bytes`, scored anew each time."""
        both = (self.images, self.texts) if direction == "image_to_text" else (self.texts, self.images)
        yield from scoring.blocks(self.similarity, *both, direction, self.block_bytes, exact=self.exact)


def scored_once(source: Source, reads: float) -> Source:
    """The source itself, or its whole matrix, kept: where pairs are dear and would be scored more often than once each.

    reads  how many times all pairs are asked for: 1/5 for one set of five folds, 1 1/5 beside the whole gallery

    Scores are the same to the bit either way: those of a model of pairs depend on their pair alone.
    """
    if reads > 1 and isinstance(source, Embedded) and not source.similarity.indexable:
        return source.kept()
    return source


def covers(rows: Rows, count: int) -> bool:
    """Whether these rows are all of so many, in order."""
    return len(rows) == count and bool((rows == np.arange(count)).all())
