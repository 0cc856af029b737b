"""A segment: rows of vectors in a folder that is written once, never changed, and named by checksums of its files.

SEGMENT/vectors.npy   (R D) float32; an item of K views has K rows
SEGMENT/keys.npy      (R) int64, the item of each row
SEGMENT/offsets.npy   (C + 1) int64 where the rows are sorted by list: list c holds rows offsets[c] to offsets[c + 1]
LISTS/centroids.npy   (C D) float32, shared by the segments of a side
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.data import atomic
from subtext.errors import IndexError_

VECTORS, KEYS, OFFSETS, CENTROIDS = "vectors.npy", "keys.npy", "offsets.npy", "centroids.npy"
BLOCK = 8192
"""Rows that are copied at a time."""

Piece = tuple[NDArray[np.float32], NDArray[np.int64]]
"""(r D) vectors and (r) keys."""


@dataclass(frozen=True)
class Segment:
    """Rows on disk, mapped.

    folder   where they are          lists  name of the lists that they are sorted by; None where they are not
    vectors  (R D) float32           keys   (R) int64
    offsets  (C + 1) int64, or None
    """

    folder: Path
    lists: str | None
    vectors: NDArray[np.float32]
    keys: NDArray[np.int64]
    offsets: NDArray[np.int64] | None

    def __len__(self) -> int:
        """How many rows."""
        return len(self.keys)

    @cached_property
    def _order(self) -> NDArray[np.int64] | None:
        """The rows in the order of their keys; None where they stand so already."""
        return None if bool((np.diff(self.keys) >= 0).all()) else np.argsort(self.keys, kind="stable")

    @cached_property
    def _sorted(self) -> NDArray[np.int64]:
        return np.asarray(self.keys) if self._order is None else np.asarray(self.keys)[self._order]

    @cached_property
    def _single(self) -> bool:
        """Whether each item has one row."""
        return bool((np.diff(self._sorted) > 0).all())

    def rows_of(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """All rows of these items, ascending for ascending keys where the rows stand so; items not here have none."""
        first = np.searchsorted(self._sorted, keys, side="left")
        if self._single:
            first = first[self._sorted[np.minimum(first, len(self) - 1)] == keys]
            return first if self._order is None else np.sort(self._order[first])
        counts = np.searchsorted(self._sorted, keys, side="right") - first
        first, counts = first[counts > 0], counts[counts > 0]
        if not len(first):
            return np.zeros(0, dtype=np.int64)
        ends = np.cumsum(counts)
        places = np.arange(ends[-1], dtype=np.int64) + np.repeat(first - ends + counts, counts)
        return places if self._order is None else np.sort(self._order[places])


def open_segment(folder: Path, *, rows: int, width: int, lists: str | None) -> Segment:
    """A segment's files, mapped.

    Raises IndexError_ when a file is missing, or is not of the shape that the store remembers; FileNotFoundError when
    the whole folder is gone, as after a compaction.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is gone")
    offsets = None if lists is None else mapped(folder / OFFSETS, np.dtype(np.int64), (None,))
    return Segment(
        folder=folder,
        lists=lists,
        vectors=mapped(folder / VECTORS, np.dtype(np.float32), (rows, width)),
        keys=mapped(folder / KEYS, np.dtype(np.int64), (rows,)),
        offsets=offsets,
    )


def write_segment(
    folder: Path,
    pieces: Iterator[Piece],
    *,
    rows: int,
    width: int,
    offsets: NDArray[np.int64] | None = None,
) -> dict[str, str]:
    """Write blocks of (r D) vectors and (r) keys as one segment, whole or not at all; gives the files' checksums.

    Raises OutputError when the disk is full or may not be written.
    """
    sums: dict[str, str] = {}

    def fill(place: Path) -> None:
        keys = np.empty(rows, dtype=np.int64)
        done = 0
        with (place / VECTORS).open("wb") as file:
            header = {"descr": "<f4", "fortran_order": False, "shape": (rows, width)}
            np.lib.format.write_array_header_1_0(file, header)
            for vectors, own in pieces:
                file.write(np.ascontiguousarray(vectors, dtype="<f4").data)
                keys[done : done + len(own)] = own
                done += len(own)
        assert done == rows
        np.save(place / KEYS, keys, allow_pickle=False)
        if offsets is not None:
            np.save(place / OFFSETS, offsets, allow_pickle=False)
        sums.update(checksums(place))

    atomic.write_folder(folder, fill)
    return sums


def live_rows(segment: Segment, alive: NDArray[np.int64]) -> Iterator[Piece]:
    """Chosen rows of a segment, block by block."""
    for start in range(0, len(alive), BLOCK):
        some = alive[start : start + BLOCK]
        yield segment.vectors[some], np.asarray(segment.keys[some])


def write_lists(folder: Path, centroids: NDArray[np.float32]) -> dict[str, str]:
    """Write centroids, whole or not at all; gives the files' checksums."""
    sums: dict[str, str] = {}

    def fill(place: Path) -> None:
        np.save(place / CENTROIDS, centroids, allow_pickle=False)
        sums.update(checksums(place))

    atomic.write_folder(folder, fill)
    return sums


def checksums(folder: Path) -> dict[str, str]:
    """File name -> 32 hexadecimal digits of its bytes. Cost about a second a gigabyte."""
    found = {}
    for file in sorted(folder.iterdir()):
        with file.open("rb") as opened:
            found[file.name] = hashlib.file_digest(opened, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    return found


def mapped(path: Path, kind: np.dtype[Any], shape: tuple[int | None, ...]) -> NDArray[Any]:
    """An array on disk, mapped for reading. Raises IndexError_ when it is missing, cut or another."""
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as problem:
        raise IndexError_(f"{path} needs to be a whole array; {problem}; restore a backup, or build again") from problem
    wrong = len(found.shape) != len(shape) or any(
        w is not None and w != g for w, g in zip(shape, found.shape, strict=True)
    )
    if wrong or found.dtype != kind:
        raise IndexError_(
            f"{path} needs {kind} of shape {shape} as the store remembers; it has {found.dtype} {found.shape}; restore "
            "a backup, or build again"
        )
    return found
