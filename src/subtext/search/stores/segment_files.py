"""Segments in folders that are written once; `search.segments` compares them.

SEGMENT/vectors.npy   (R D) float32; an item of K views has K rows
SEGMENT/keys.npy      (R) int64, the item of each row
SEGMENT/offsets.npy   (C + 1) int64 where the rows are sorted by list: list c holds rows offsets[c] to offsets[c + 1]
LISTS/centroids.npy   (C D) float32 of the lists of a side
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from subtext.data.atomic import write_folder
from subtext.ops import draw
from subtext.search.index_files import checksums, mapped
from subtext.search.segments import Segment, SegmentTable

VECTORS, KEYS, OFFSETS, CENTROIDS = "vectors.npy", "keys.npy", "offsets.npy", "centroids.npy"
BLOCK = 8192
"""Rows that are copied at a time."""
Block = tuple[NDArray[np.float32], NDArray[np.int64]]
"""(r D) vectors and (r) keys."""


def open_segment(folder: Path, *, rows: int, width: int, lists: str | None) -> Segment:
    """A segment's files, mapped.

    Raises IndexError_ when a file is missing, or is not of the shape that the store remembers; FileNotFoundError
    when the whole folder is gone, as after a compaction.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is gone")
    offsets = None if lists is None else mapped(folder / OFFSETS, np.dtype(np.int64), (None,))
    vectors = mapped(folder / VECTORS, np.dtype(np.float32), (rows, width))
    return Segment(folder, lists, vectors, mapped(folder / KEYS, np.dtype(np.int64), (rows,)), offsets)


def write_segment(
    folder: Path, blocks: Iterable[Block], *, rows: int, width: int, offsets: NDArray[np.int64] | None = None
) -> dict[str, str]:
    """Write blocks of (r D) vectors and (r) keys as one segment, completely or not at all; the files' checksums.

    Raises OutputError when the disk is full or may not be written.
    """

    def fill(folder: Path) -> None:
        keys = np.empty(rows, dtype=np.int64)
        done = 0
        with (folder / VECTORS).open("wb") as file:
            header = {"descr": "<f4", "fortran_order": False, "shape": (rows, width)}
            np.lib.format.write_array_header_1_0(file, header)
            for vectors, block_keys in blocks:
                file.write(np.ascontiguousarray(vectors, dtype="<f4").data)
                keys[done : done + len(block_keys)] = block_keys
                done += len(block_keys)
        assert done == rows
        np.save(folder / KEYS, keys, allow_pickle=False)
        if offsets is not None:
            np.save(folder / OFFSETS, offsets, allow_pickle=False)

    write_folder(folder, fill)
    return checksums(folder)


class LiveRows:
    """The rows of a side that belong to items in the index, in the order of the items.

    keys  (r) the item of each row        rows  (r) its number among the rows of all segments
    """

    def __init__(self, table: SegmentTable) -> None:
        self.segments = table.segments
        self.starts = np.cumsum([0, *map(len, table.segments)])
        owners = table.owners
        alive = np.flatnonzero(~np.isin(owners, table.deleted))
        # Rows of one item keep their order from one compaction to the next.
        self.rows: NDArray[np.int64] = alive[np.argsort(owners[alive], kind="stable")]
        self.keys = owners[self.rows]

    def blocks(self, order: NDArray[np.int64] | None = None) -> Iterator[Block]:
        """Vectors and keys of all rows, or in another order, block by block."""
        order = np.arange(len(self.rows)) if order is None else order
        for start in range(0, len(order), BLOCK):
            block = order[start : start + BLOCK]
            rows = self.rows[block]
            numbers = np.searchsorted(self.starts, rows, side="right") - 1
            vectors = np.empty((len(block), self.segments[0].vectors.shape[1]), dtype=np.float32)
            for number in np.unique(numbers):
                mine = numbers == number
                vectors[mine] = self.segments[number].vectors[rows[mine] - self.starts[number]]
            yield vectors, self.keys[block]

    def sample(self, count: int, *, seed: int) -> NDArray[np.float32]:
        """At most `count` vectors, sampled by the seed; there has to be one."""
        chosen = draw.permutation(len(self.rows), seed=seed, epoch=0, purpose="compaction: sample")[:count]
        return np.concatenate([vectors for vectors, _ in self.blocks(np.sort(chosen))])
