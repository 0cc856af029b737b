"""The compiled part of counting ranks: one read of a score matrix serves its rows and its columns.

Threads are Python threads over blocks of rows, with the interpreter's lock released: no threading layer of the compiler
is started, so it lives beside torch's threads and may be called from several threads at once. The machine code is made
when it is first called (about two seconds) and is never written to disk, because nothing may be written outside the
folder that a command was given; small matrices are counted with numpy instead (`rank.py`) and never pay for it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, no_type_check

import numpy as np
import torch
from numpy.typing import NDArray

_TILE = 16384
"""Columns counted together: their counters and thresholds stay in the second-level cache."""
_BAND = 16384
"""Rows between two flushes of the packed counters: each half holds at most 32,767."""


@no_type_check
def _count(
    scores: NDArray[Any],
    row_best: NDArray[Any],
    column_best: NDArray[Any],
    row_counts: NDArray[np.int64],
    column_counts: NDArray[np.int64],
) -> None:
    """Add to row_counts (3 R): at least the row's threshold, above it, not a number; to column_counts (2 C) likewise.

    Rows are taken two at a time (R is even), so that a column's counter is loaded and stored once for both; its two
    counts share 32 bits, "above" in the upper half. Scores that are not a number are told for the two rows together,
    in the place of the first.
    """
    rows, columns = scores.shape
    packed = np.zeros(min(_TILE, columns), np.int32)
    shift = np.int32(16)
    for top in range(0, rows, _BAND):
        bottom = min(rows, top + _BAND)
        for start in range(0, columns, _TILE):
            width = min(columns, start + _TILE) - start
            thresholds = column_best[start : start + width]
            packed[:] = 0
            for row in range(top, bottom, 2):
                first, second = row_best[row], row_best[row + 1]
                upper, lower = scores[row, start : start + width], scores[row + 1, start : start + width]
                reached_first = reached_second = above_first = above_second = invalid = np.int32(0)
                for column in range(width):
                    x, y, z = upper[column], lower[column], thresholds[column]
                    reached_first += np.int32(x >= first)
                    above_first += np.int32(x > first)
                    reached_second += np.int32(y >= second)
                    above_second += np.int32(y > second)
                    invalid += np.int32(x != x) + np.int32(y != y)
                    above = np.int32(x > z) + np.int32(y > z)
                    packed[column] += np.int32(x >= z) + np.int32(y >= z) + (above << shift)
                row_counts[0, row] += reached_first
                row_counts[1, row] += above_first
                row_counts[0, row + 1] += reached_second
                row_counts[1, row + 1] += above_second
                row_counts[2, row] += invalid
            for column in range(width):
                column_counts[0, start + column] += packed[column] & 0xFFFF
                column_counts[1, start + column] += packed[column] >> 16


@functools.cache
def _compiled() -> Callable[..., None]:
    import numba

    return numba.njit(nogil=True)(_count)


def count(
    scores: NDArray[Any], row_best: NDArray[Any], column_best: NDArray[Any], *, threads: int | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Counts of rows (3 R) and of columns (2 C) against their thresholds, as `_count` says.

    scores   (R C) float32 or float64, C-contiguous; thresholds of the same type
    threads  how many; None for as many as torch uses
    """
    rows, columns = scores.shape
    pairs = rows // 2
    parts = max(1, min(threads or torch.get_num_threads(), pairs))
    edges = 2 * np.linspace(0, pairs, parts + 1).astype(np.int64)
    row_counts = np.zeros((3, rows), dtype=np.int64)
    column_counts = np.zeros((parts, 2, columns), dtype=np.int64)
    kernel = _compiled()

    def part(number: int) -> None:
        cut = slice(int(edges[number]), int(edges[number + 1]))
        kernel(scores[cut], row_best[cut], column_best, row_counts[:, cut], column_counts[number])

    if parts == 1:
        part(0)
    else:
        with ThreadPoolExecutor(parts) as pool:
            list(pool.map(part, range(parts)))
    by_column = column_counts.sum(axis=0)
    if rows % 2:
        last = scores[-1]
        row_counts[:, -1] = (last >= row_best[-1]).sum(), (last > row_best[-1]).sum(), np.isnan(last).sum()
        by_column += np.stack([last >= column_best, last > column_best])
    for row in np.flatnonzero(row_counts[2, : 2 * pairs : 2]) * 2:
        row_counts[2, row : row + 2] = np.isnan(scores[row : row + 2]).sum(axis=1)
    return row_counts, by_column
