"""How many scores of each row and each column reach a threshold, in one read of the matrix.

Compiled code reads a large matrix; numpy has read a small one before the compiler is done.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, no_type_check

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from subtext.ops.in_threads import in_threads

Ints = NDArray[np.int64]
KERNEL_CELLS = 2**26
"""Scores to be counted from which compiling the kernel pays; below, numpy is done before the compiler is."""
_TILE = 16384
"""Columns counted together: their counters and thresholds stay in the second-level cache."""
_BAND = 16384
"""Rows between two flushes of the packed counters: each half holds at most 32,767."""


@no_type_check
def _count(
    scores: NDArray[Any],
    row_best: NDArray[Any],
    column_best: NDArray[Any],
    row_counts: Ints,
    column_counts: Ints,
) -> None:
    """Add to row_counts (3 R): at least the row's threshold, above it, not a number; to column_counts (2 C) likewise.

    Rows are taken two at a time (R is even), so that a column's counter is loaded and stored once for both; its two
    counts share 32 bits, "above" in the upper half. Scores that are not a number are counted for the two rows together,
    with the first.
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


def threshold_counts(
    matrix: Float[np.ndarray, "r c"],
    row_best: Float[np.ndarray, "r"],
    column_best: Float[np.ndarray, "c"] | None = None,
    *,
    kernel: bool | None = None,
    threads: int | None = None,
) -> tuple[Int[np.ndarray, "three r"], Int[np.ndarray, "three c"]]:
    """Cells that reach a threshold, that exceed it, and that are not a number, of each row and of each column.

    Args:
        matrix: (R C) float32 or float64, in memory by rows or, transposed, by columns.
        row_best: (R) the threshold of each row.
        column_best: (C) that of each column; None where columns need no counts, which are then 0.
        kernel: Whether compiled code counts; None for where it pays (`KERNEL_CELLS`). The counts are the same.
        threads: How many of the kernel; None for as many as torch uses.

    Returns:
        (3 R) int64 of rows, and (3 C) of columns.

    Complexity:
        One read of the matrix; memory R + C for each thread.
    """
    compiled = matrix.size >= KERNEL_CELLS if kernel is None else kernel
    if column_best is None and compiled and not matrix.flags.c_contiguous:
        # The kernel reads along memory: a transposed block is counted by its columns.
        nothing = np.full(matrix.shape[1], np.inf, dtype=matrix.dtype)
        return threshold_counts(np.ascontiguousarray(matrix.T), nothing, row_best, kernel=True, threads=threads)[::-1]
    if compiled:
        rows, columns = _by_kernel(matrix, row_best, column_best, threads)
    else:
        levels = row_best[:, None]
        rows = np.stack([cells.sum(axis=1) for cells in (matrix >= levels, matrix > levels, matrix != matrix)])
        columns = np.zeros((2, matrix.shape[1]), dtype=np.int64)
        if column_best is not None:
            columns = np.stack([(matrix >= column_best).sum(axis=0), (matrix > column_best).sum(axis=0)])
    invalid = np.zeros(matrix.shape[1], dtype=np.int64)
    if column_best is not None and rows[2].any():
        invalid = np.isnan(matrix).sum(axis=0)
    return rows, np.concatenate([columns, invalid[None]])


def _by_kernel(
    matrix: NDArray[Any], row_best: NDArray[Any], column_best: NDArray[Any] | None, threads: int | None
) -> tuple[Ints, Ints]:
    """(3 R) as `threshold_counts` counts rows, and (2 C) the first two counts of columns."""
    rows, columns = matrix.shape
    pairs = rows // 2
    thresholds = np.full(columns, np.inf, dtype=matrix.dtype) if column_best is None else column_best
    row_counts = np.zeros((3, rows), dtype=np.int64)
    kernel = _compiled()

    def count(block: slice) -> Ints:
        cut, column_counts = slice(2 * block.start, 2 * block.stop), np.zeros((2, columns), dtype=np.int64)
        kernel(matrix[cut], row_best[cut], thresholds, row_counts[:, cut], column_counts)
        return column_counts

    by_column = np.sum(in_threads(count, pairs, threads=threads), axis=0)
    if rows % 2:
        last = matrix[-1]
        row_counts[:, -1] = (last >= row_best[-1]).sum(), (last > row_best[-1]).sum(), np.isnan(last).sum()
        by_column += np.stack([last >= thresholds, last > thresholds])
    for row in np.flatnonzero(row_counts[2, : 2 * pairs : 2]) * 2:
        row_counts[2, row : row + 2] = np.isnan(matrix[row : row + 2]).sum(axis=1)
    return row_counts, by_column
