"""Scoring: a similarity and two sets of Embeddings become blocks of scores, in bounded memory.

There are two ways. The fast one compares as many items at once as fit; the last bit of a score may then depend on the
block that it was computed in, and scores differ from the exact way by about 1e-6 of their size. The exact way compares
in tiles of one fixed shape, padded where items run out, so that a score depends on its pair alone: the same to the bit
for any block size, order of items or direction. A similarity that looks at regions and words together is always
computed that way, in tiles of items with equally many parts: it costs little beside the scores themselves. Its parts
are padded with zeros to a multiple of eight numbers (`ops.numerics`), as rows of others lie at addresses where matrix
kernels round otherwise. Vectors are not: exact scores of those are equal to the bit for widths of a multiple of four.

Where scores come from: a matrix that is there, or embeddings whose similarity is computed block by block.
"""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import pad

from subtext.core import DIRECTIONS, Direction, Embeddings
from subtext.errors import ShapeError
from subtext.evaluation.relevance.match import Match
from subtext.ops.compiled.threshold_counts import KERNEL_CELLS
from subtext.ops.pairwise import packed
from subtext.ops.rank import Counts, best_of, both_directions

BLOCK_BYTES = 2**26
"""Memory that a block of scores may take while it is made."""
TILE = 64
"""Items a side of the exact way's tiles. A multiple of what matrix kernels compute at once: no item lies on an edge."""
FEW = 16
"""Texts a tile where regions and words are compared: each brings many words, and only texts of one length share a tile.
"""
GPU_FEW = 64
"""The same on a GPU, which a few texts leave idle."""
REGION_STEP = 4
"""In the exact way images are padded to a multiple of so many regions; texts keep their own number of words."""


def blocks(
    similarity: nn.Module,
    queries: Embeddings,
    candidates: Embeddings,
    direction: Direction,
    block_bytes: int = BLOCK_BYTES,
    *,
    exact: bool = False,
) -> Iterator[tuple[int, int, Float[Tensor, "q c"]]]:
    """Scores of all queries with all candidates, some queries at a time: (start, stop, scores), on the CPU.

    A block of texts asking for images lies in memory by candidates: a transposed view, which counting ranks reads as
    it lies.

    Args:
        similarity: Images and texts -> scores.
        queries: Embeddings of Q queries.
        candidates: Embeddings of C candidates.
        direction: Which side the queries are; the similarity is always called with images first.
        block_bytes: Bound on a block and on what its views take before their maximum; one query (one row of tiles in
            the exact way) is computed however little that is.
        exact: Fixed tiles instead of large products: a score then depends on its pair alone. Always so where vectors do
            not decide the score.

    Yields:
        First query, query after the last, and (Q C) scores of each block.

    Raises:
        ShapeError: If there are no queries or no candidates.

    Complexity:
        Time of the similarity over all pairs; memory block_bytes.
    """
    if not len(queries) or not len(candidates):
        raise ShapeError(f"scoring needs queries and candidates; it got {len(queries)} and {len(candidates)}")
    exact = exact or not similarity.indexable
    half = max(block_bytes // 2, 1)
    rows = min(max(half // (4 * len(candidates)), 1), len(queries))
    width = len(candidates)
    views = queries.views * candidates.views
    if views > 1:
        width = min(max(half // (4 * views * rows), 1), width)
    if exact:
        rows = -(-rows // TILE) * TILE
    for start in range(0, len(queries), rows):
        stop = min(start + rows, len(queries))
        query_block = queries[start:stop]
        images, texts = (query_block, candidates) if direction == "image_to_text" else (candidates, query_block)
        if exact:
            scores = _tiled(similarity, images, texts)
        elif direction == "image_to_text":
            scores = in_blocks(similarity, images, texts, len(images), width)
        else:
            scores = in_blocks(similarity, images, texts, width, len(texts))
        yield start, stop, scores if direction == "image_to_text" else scores.T


def matrix(
    similarity: nn.Module,
    images: Embeddings,
    texts: Embeddings,
    block_bytes: int = BLOCK_BYTES,
    *,
    exact: bool = False,
    in_file: bool = False,
) -> Float[Tensor, "i t"]:
    """All scores at once, for sets whose matrix fits in memory.

    Args:
        similarity: Images and texts -> scores.
        images: Embeddings of I images.
        texts: Embeddings of T texts.
        block_bytes: Memory that a block of scores may take while it is made.
        exact: Fixed tiles, so that a score depends on its pair alone; slower.
        in_file: float32 in a temporary file that has no name and ends with the tensor, for pairs that cost more to
            score than to store: both directions then read one matrix, by rows and columns.

    Returns:
        (I T) scores.
    """
    shape = (len(images), len(texts))
    scores_matrix: Tensor | None = None
    if in_file:
        with tempfile.TemporaryFile() as file:
            scores_matrix = torch.from_numpy(np.memmap(file, dtype=np.float32, mode="w+", shape=shape))
    for start, stop, scores in blocks(similarity, images, texts, "image_to_text", block_bytes, exact=exact):
        if scores_matrix is None:
            if stop == len(images):
                return scores
            scores_matrix = scores.new_empty(shape)
        scores_matrix[start:stop] = scores
    assert scores_matrix is not None
    return scores_matrix


@torch.inference_mode()
def in_blocks(similarity: nn.Module, images: Embeddings, texts: Embeddings, height: int, width: int) -> Tensor:
    """All scores, computed in blocks of at most height x width.

    Args:
        similarity: Images and texts -> scores.
        images: Embeddings of I images.
        texts: Embeddings of T texts.
        height: Most images of a block.
        width: Most texts of a block.

    Returns:
        (I T) scores on the CPU.
    """
    device = device_of(similarity, images)
    if len(images) <= height and len(texts) <= width:
        return similarity(images.to(device), texts.to(device)).cpu()
    rows = []
    for top in range(0, len(images), height):
        upper = images[top : top + height].to(device)
        columns = [texts[start : start + width].to(device) for start in range(0, len(texts), width)]
        rows.append(torch.cat([similarity(upper, block).cpu() for block in columns], dim=1))
    return torch.cat(rows)


@torch.inference_mode()
def _tiled(similarity: nn.Module, images: Embeddings, texts: Embeddings) -> Tensor:
    """Scores in tiles of TILE x TILE, or TILE x FEW, padded at the ends; gathered on the device, for a GPU to go on."""
    device = device_of(similarity, images)
    columns = list(_alike(texts, 1))
    few = GPU_FEW if device.type == "cuda" else FEW
    across = TILE if similarity.indexable or texts.parts is None else few
    prepare = getattr(similarity, "prepare", None)
    matrix: Tensor | None = None
    for rows, group in _alike(images, REGION_STEP):
        for top in range(0, len(group), TILE):
            upper = _tile(group, top, TILE).to(device)
            prepared = () if prepare is None else (prepare(upper),)
            target_rows = rows[top : top + TILE, None]
            for target_columns, words in columns:
                for start_column in range(0, len(words), across):
                    block = similarity(upper, _tile(words, start_column, across).to(device), *prepared)
                    there = block.device
                    if matrix is None:
                        matrix = torch.empty(len(images), len(texts), dtype=block.dtype, device=there)
                    block_columns = target_columns[start_column : start_column + across].to(there)
                    matrix[target_rows.to(there), block_columns] = block[: len(target_rows), : len(block_columns)]
    assert matrix is not None
    return matrix.cpu()


def _alike(items: Embeddings, step: int) -> Iterator[tuple[Int[Tensor, "n"], Embeddings]]:
    """Items in groups whose parts are padded to one length, a multiple of `step` that each item decides alone."""
    if items.parts is None:
        yield torch.arange(len(items)), items
        return
    items = packed(items)
    assert items.parts is not None
    present = items.parts.shape[1]
    lengths = torch.full((len(items),), present) if items.mask is None else items.mask.sum(dim=1).cpu()
    padded = (lengths + step - 1) // step * step
    for length in torch.unique(padded).tolist():
        rows = torch.nonzero(padded == length)[:, 0]
        parts = pad(items.parts[rows, :length], (0, 0, 0, max(length - present, 0)))
        mask = torch.arange(length) < lengths[rows, None]
        yield rows, replace(items[rows], parts=parts, mask=mask.to(parts.device))


def _tile(items: Embeddings, start: int, size: int) -> Embeddings:
    """So many items from start; past the end the last one is repeated."""
    if start + size <= len(items):
        return items[start : start + size]
    return items[torch.arange(start, start + size).clamp_max(len(items) - 1).to(items.vectors.device)]


def device_of(similarity: nn.Module, items: Embeddings) -> torch.device:
    """Where the similarity's tensors are; where the items are, if it has none.

    Args:
        similarity: Images and texts -> scores.
        items: Embeddings.

    Returns:
        The device.
    """
    for tensor in (*similarity.parameters(), *similarity.buffers()):
        return tensor.device
    return items.vectors.device


STORED_BYTES = 2**28
"""Up to this size a score matrix is stored and read once for both directions; above, blocks are scored for each."""

Rows = NDArray[np.int64]
Block = tuple[int, int, Tensor]


class ScoreSource(ABC):
    """Scores of some images and some texts, by blocks of either side's queries."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Images and texts."""

    @abstractmethod
    def part(self, images: Rows, texts: Rows) -> ScoreSource:
        """The chosen images and texts.

        Args:
            images: (I) int64 rows.
            texts: (T) int64 rows.

        Returns:
            The scores among them.
        """

    @abstractmethod
    def blocks(self, direction: Direction) -> Iterator[Block]:
        """First and last query of a block, and its scores, (Q C).

        Args:
            direction: Which side asks.

        Returns:
            First query, query after the last, and (Q C) scores of each block.
        """

    def counts(self, match: Match, *, stable: bool) -> tuple[Counts, Counts]:
        """Where the best positive of each image stands, and of each text; nothing larger than a block is held.

        Args:
            match: The positives.
            stable: Also count tied candidates by column.

        Returns:
            Counts of the I images and of the T texts.
        """
        compiled = self.shape[0] * self.shape[1] >= KERNEL_CELLS
        images, texts = (
            Counts.cat(
                [
                    best_of(scores, match.cells(direction)[start:stop], stable=stable, kernel=compiled)
                    for start, stop, scores in self.blocks(direction)
                ]
            )
            for direction in DIRECTIONS
        )
        return images, texts


@dataclass(frozen=True)
class Matrix(ScoreSource):
    """Scores that are there: (images, texts), in memory or mapped from a file.

    Attributes:
        scores: (I T) scores; more is more similar.
    """

    scores: Float[Tensor, "i t"]

    @property
    def shape(self) -> tuple[int, int]:
        """Images and texts."""
        return (self.scores.shape[0], self.scores.shape[1])

    def part(self, images: Rows, texts: Rows) -> Matrix:
        """The chosen images and texts; the matrix itself when those are all, in order.

        Args:
            images: (I) int64 rows.
            texts: (T) int64 rows.

        Returns:
            The scores among them.
        """
        if covers(images, self.shape[0]) and covers(texts, self.shape[1]):
            return self
        return Matrix(self.scores[torch.from_numpy(images)][:, torch.from_numpy(texts)])

    def counts(self, match: Match, *, stable: bool) -> tuple[Counts, Counts]:
        """Both directions from one read.

        Args:
            match: The positives.
            stable: Also count tied candidates by column.

        Returns:
            Counts of the I images and of the T texts.
        """
        return both_directions(self.scores, match.image_to_text, match.text_to_image, stable=stable)

    def blocks(self, direction: Direction) -> Iterator[Block]:
        """Blocks of about 64 MB; those of texts are turned.

        Args:
            direction: Which side asks.

        Yields:
            First query, query after the last, and (Q C) scores of each block.
        """
        queries, candidates = self.shape if direction == "image_to_text" else self.shape[::-1]
        rows = max(1, BLOCK_BYTES // (4 * candidates))
        for start in range(0, queries, rows):
            stop = min(queries, start + rows)
            cut = self.scores[start:stop] if direction == "image_to_text" else self.scores[:, start:stop].T
            yield start, stop, cut.contiguous()


@dataclass(frozen=True)
class Embedded(ScoreSource):
    """Scores that a similarity gives embeddings of images and texts, exactly or fast.

    Attributes:
        similarity: Embeddings of images and of texts -> their scores.
        images: Embeddings of the I images.
        texts: Embeddings of the T texts.
        block_bytes: Size of a block of scores.
        exact: Fixed tiles, so that a score depends on its pair alone; slower.
        stored_bytes: Scores of up to this size are computed once and held in memory; larger ones are scored anew for
            each direction, unless pairs are expensive to score.
    """

    similarity: nn.Module
    images: Embeddings
    texts: Embeddings
    block_bytes: int = BLOCK_BYTES
    exact: bool = False
    stored_bytes: int = STORED_BYTES

    @property
    def shape(self) -> tuple[int, int]:
        """Images and texts."""
        return (len(self.images), len(self.texts))

    def part(self, images: Rows, texts: Rows) -> Matrix | Embedded:
        """The chosen items: their matrix where it is small or pairs are expensive to score, else their embeddings.

        Args:
            images: (I) int64 rows.
            texts: (T) int64 rows.

        Returns:
            The scores among them.
        """
        chosen = replace(
            self,
            images=self.images if covers(images, len(self.images)) else self.images[torch.from_numpy(images)],
            texts=self.texts if covers(texts, len(self.texts)) else self.texts[torch.from_numpy(texts)],
        )
        return chosen.stored() if chosen.small or not self.similarity.indexable else chosen

    @property
    def small(self) -> bool:
        """Whether all scores may be held in memory."""
        return 4 * len(self.images) * len(self.texts) <= self.stored_bytes

    def stored(self) -> Matrix:
        """All scores, made once: in memory where they are few enough, else in a file that ends with them.

        Returns:
            The (I T) scores.
        """
        items, block_bytes = (self.images, self.texts), self.block_bytes
        return Matrix(matrix(self.similarity, *items, block_bytes, exact=self.exact, in_file=not self.small))

    def blocks(self, direction: Direction) -> Iterator[Block]:
        """Blocks of `block_bytes`, scored anew each time.

        Args:
            direction: Which side asks.

        Yields:
            First query, query after the last, and (Q C) scores of each block.
        """
        both = (self.images, self.texts) if direction == "image_to_text" else (self.texts, self.images)
        yield from blocks(self.similarity, *both, direction, self.block_bytes, exact=self.exact)


def scored_once(source: ScoreSource, reads: float) -> ScoreSource:
    """The source itself, or its stored matrix where pairs are expensive and would be scored more often than once each.

    Scores are the same to the bit either way: those of a model of pairs depend on their pair alone.

    Args:
        source: Scores of all images and texts.
        reads: How many times all pairs are read: 1/5 for one set of five folds, 1 1/5 beside the full gallery.

    Returns:
        A source of the same scores.
    """
    if reads > 1 and isinstance(source, Embedded) and not source.similarity.indexable:
        return source.stored()
    return source


def covers(rows: Rows, count: int) -> bool:
    """Whether these rows are all of so many, in order.

    Args:
        rows: (N) int64.
        count: Number of items.

    Returns:
        Whether they are.
    """
    return len(rows) == count and bool((rows == np.arange(count)).all())
