"""Ranks of the candidates of a query, and the agreement of two rankings, from which ASP is computed.

Two lists over the same candidates are compared place by place: 1 where both rank a candidate alike, towards 0 where one
has it far above the other. Of equal scores each candidate counts by the mean over the places that they share, which is
the mean over all orders of them: the order of a file means nothing. Numbers are summed as whole multiples of 2^-40, so
the same scores give the same sum to the bit in any order of candidates, size of block or number of threads.

Compiled code turns a score into a 32-bit key that rises as the score falls; key and column share 64 bits and are sorted
in three passes of eleven bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, Literal, no_type_check

import numpy as np
from jaxtyping import Float, UInt
from numpy.typing import NDArray

from subtext.errors import RequirementError, ShapeError
from subtext.ops.in_threads import in_threads

RankTies = Literal["ordinal", "min", "average"]
"""Which ranks equal values get: by column, all the best of them, or all the mean of them."""

KERNEL_CELLS = 2**24
"""Cells of a whole comparison from which compiling the kernel pays."""

_CODES = {"ordinal": 0, "min": 1, "average": 2}
_UNIT = 2.0**40
_LOW, _UP = np.uint64(0xFFFFFFFF), np.uint64(32)


def ranks(
    values: Float[np.ndarray, "q c"], ties: RankTies = "ordinal", *, kernel: bool | None = None
) -> UInt[np.ndarray, "q c"]:
    """Rank of each candidate in its row from 1, the largest value first; "average" gives twice the mean rank.

    Args:
        values: (Q C). A value that is not a number stands behind every number.
        ties: Ranks of equal values: by column, all the best of them, or all the mean of them.
        kernel: Whether compiled code sorts; None for where it pays (`KERNEL_CELLS`). The ranks are the same.

    Returns:
        (Q C) uint16; above 32,767 candidates uint32.

    Complexity:
        One sort of each row; memory 2 bytes (or 4) a cell.

    Example:
        >>> ranks(np.array([[0.9, 0.5, 0.5, 0.2]]), "min").tolist()
        [[1, 2, 2, 4]]
    """
    single = _single(values)
    result = np.empty(values.shape, dtype=np.uint16 if 2 * values.shape[1] < 2**16 else np.uint32)
    if values.size >= KERNEL_CELLS if kernel is None else kernel:
        kernel_rank, bits, code = _kernels()[0], single.view(np.uint32), _CODES[ties]
        in_threads(lambda rows: kernel_rank(bits[rows], code, result[rows]), len(bits))
        return result
    for row, (keys, order) in enumerate(_sorted_rows(single)):
        result[row, order] = _places(keys, ties)
    return result


def agreement(
    scores: Float[np.ndarray, "q c"],
    semantic: UInt[np.ndarray, "r n"],
    ties: RankTies = "ordinal",
    *,
    top: tuple[int, ...] = (),
    within: bool = True,
    kernel: bool | None = None,
) -> Float[np.ndarray, "q l"]:
    """Mean over candidates of min(R_C, R_S) / max(R_C, R_S), with R_S the ranks of the scores, R_C of the relevance.

    Args:
        scores: (Q C). Equal ones have no order: their values are means over all orders of them.
        semantic: (Q C) what `ranks` gave for the relevance with the same ties.
        ties: Ranks of equal relevance.
        top: For each number N a column, over the candidates of semantic rank up to N alone; empty for one column over
            all. Equal relevance stays together: with "min" and "average" more or fewer than N may be meant.
        within: Rank the scores among those N alone; else their ranks among all candidates count.
        kernel: Whether compiled code sorts; None for where it pays (`KERNEL_CELLS`). The means are the same.

    Returns:
        (Q L) in (0, 1], with L the length of `top` or 1; NaN where no candidate is meant.

    Raises:
        ShapeError: If the ranks have another shape.
        RequirementError: If an N is below 1.

    Complexity:
        One sort of each row, and one pass over it for each N.

    Example:
        >>> given = np.array([[4.0, 3.0, 2.0]])
        >>> float(agreement(np.array([[0.1, 0.3, 0.2]]), ranks(given))[0, 0])  # (1/3 + 1/2 + 2/3) / 3
        0.5
        >>> round(float(agreement(np.array([[0.1, 0.1, 0.1]]), ranks(given))[0, 0]), 6)  # the chance of 3 candidates
        0.666667
    """
    if scores.shape != semantic.shape:
        raise ShapeError(f"semantic ranks must be as the scores are, {scores.shape}; it got {semantic.shape}")
    if top and min(top) < 1:
        raise RequirementError(f"the first N in relevance need N of 1 or more; it got {min(top)}")
    factor = 1 + (ties == "average")
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, scores.shape[1] + 1))])
    limits = factor * np.array(top or (scores.shape[1],), dtype=np.int64)
    single = _single(scores)
    sums, counts = np.zeros((2, len(scores), len(limits)), dtype=np.int64)
    if scores.size >= KERNEL_CELLS if kernel is None else kernel:
        agree, bits = _kernels()[1], single.view(np.uint32)
        in_threads(
            lambda rows: agree(bits[rows], semantic[rows], factor, harmonic, limits, within, sums[rows], counts[rows]),
            len(bits),
        )
    else:
        for row, (keys, order) in enumerate(_sorted_rows(single)):
            relevance_ranks = semantic[row, order].astype(np.int64)
            for column, limit in enumerate(limits):
                inside = relevance_ranks <= limit
                starts, stops = _runs(keys[inside]) if within else (ends[inside] for ends in _runs(keys))
                ratio = _ratios(starts, stops, relevance_ranks[inside], factor, harmonic)
                sums[row, column] = (ratio * _UNIT + 0.5).astype(np.int64).sum()
                counts[row, column] = len(ratio)
    with np.errstate(invalid="ignore"):
        means: NDArray[np.float64] = sums / _UNIT / counts
    return means


def _single(values: NDArray[Any]) -> NDArray[np.float32]:
    """Float32 rows in memory with the same order; doubles become their places among the row's different values."""
    if values.dtype != np.float64:
        return np.ascontiguousarray(values, dtype=np.float32)
    single = np.empty(values.shape, dtype=np.float32)
    for row, line in zip(single, values, strict=True):
        row[:] = np.unique(line, return_inverse=True)[1]
        row[np.isnan(line)] = np.nan
    return single


def _sorted_rows(values: NDArray[np.float32]) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.int64]]]:
    """Keys of each row as they rise, which is as its values fall, and the columns that they came from."""
    columns = np.arange(values.shape[1], dtype=np.uint64)
    for row in values:
        bits = (row + np.float32(0)).view(np.uint32)  # -0 becomes 0
        keys = np.where(bits >> 31, bits, np.uint32(0x7FFFFFFF) - bits)
        keys[np.isnan(row)] = 0xFFFFFFFF
        packed = np.sort((keys.astype(np.uint64) << _UP) | columns)
        yield packed >> _UP, (packed & _LOW).astype(np.int64)


def _places(keys: NDArray[np.uint64], ties: RankTies) -> NDArray[np.int64]:
    """Ranks of sorted keys."""
    if ties == "ordinal":
        return np.arange(1, len(keys) + 1)
    starts, stops = _runs(keys)
    return starts + 1 if ties == "min" else starts + 1 + stops


def _runs(keys: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of each sorted key, where the run of keys equal to it begins, and where it has ended."""
    if not len(keys):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    first = np.concatenate([[True], keys[1:] != keys[:-1]])
    starts, run = np.flatnonzero(first), np.cumsum(first) - 1
    return starts[run], np.append(starts[1:], len(keys))[run]


def _ratios(
    starts: NDArray[np.int64],
    stops: NDArray[np.int64],
    ranks: NDArray[np.int64],
    factor: int,
    harmonic: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Mean over the places starts + 1 ... stops of min over max of the place and a rank, which is factor times it.

    The sum over the places up to the rank is a sum of whole numbers, that over the others one of their inverses.
    """
    middles = np.clip(ranks // factor, starts, stops)
    below = factor * (middles * (middles + 1) - starts * (starts + 1)) / (2.0 * ranks)
    above = ranks * (harmonic[stops] - harmonic[middles]) / factor
    means = (below + above) / (stops - starts)
    alone = stops - starts == 1
    places = factor * stops[alone], ranks[alone]
    means[alone] = np.minimum(*places) / np.maximum(*places)
    return means


_BITS = 11
_BUCKETS = 1 << _BITS


@no_type_check
def _sorted(row: NDArray[np.uint32], first: NDArray[np.uint64], second: NDArray[np.uint64]) -> None:
    """Leave (key << 32 | column) of one row of float32 bits in `first`, by rising key, equal keys by column."""
    count = row.size
    tallies = np.zeros((3, _BUCKETS), np.int32)
    mask = np.uint64(_BUCKETS - 1)
    for column in range(count):
        bits = row[column]
        if bits & np.uint32(0x7FFFFFFF) > np.uint32(0x7F800000):
            key = np.uint32(0xFFFFFFFF)  # not a number: behind all
        elif bits > np.uint32(0x80000000):
            key = bits
        else:
            key = np.uint32(0x7FFFFFFF) - (bits & np.uint32(0x7FFFFFFF))  # -0 is 0
        second[column] = np.uint64(key) << np.uint64(32) | np.uint64(column)
        tallies[0, key & np.uint32(_BUCKETS - 1)] += 1
        tallies[1, (key >> np.uint32(_BITS)) & np.uint32(_BUCKETS - 1)] += 1
        tallies[2, key >> np.uint32(2 * _BITS)] += 1
    for digit in range(3):
        total = np.int32(0)
        for bucket in range(_BUCKETS):
            total, tallies[digit, bucket] = total + tallies[digit, bucket], total
    for digit in range(3):
        source, target = (second, first) if digit != 1 else (first, second)
        shift = np.uint64(32 + digit * _BITS)
        starts = tallies[digit]
        for column in range(count):
            packed = source[column]
            bucket = np.int64((packed >> shift) & mask)
            target[starts[bucket]] = packed
            starts[bucket] += 1


@no_type_check
def _rank(sort: Any, bits: NDArray[np.uint32], ties: int, ranks: NDArray[Any]) -> None:
    """Fill ranks (R C): places from 1 (ties = 0), the best place of a run of equals (1), twice its mean place (2)."""
    rows, columns = bits.shape
    first, second = np.empty(columns, np.uint64), np.empty(columns, np.uint64)
    for row in range(rows):
        sort(bits[row], first, second)
        if ties == 0:
            for index in range(columns):
                ranks[row, first[index] & _LOW] = index + 1
            continue
        start = 0
        while start < columns:
            stop = start + 1
            while stop < columns and first[stop] >> _UP == first[start] >> _UP:
                stop += 1
            rank = start + 1 if ties == 1 else start + 1 + stop
            for index in range(start, stop):
                ranks[row, first[index] & _LOW] = rank
            start = stop


@no_type_check
def _agree(
    sort: Any,
    bits: NDArray[np.uint32],
    ranks: NDArray[Any],
    factor: int,
    harmonic: NDArray[np.float64],
    limits: NDArray[np.int64],
    within: bool,
    sums: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> None:
    """Fill sums and counts (R L): min over max of the two ranks, in units of 2^-40, over ranks up to each limit.

    Means over the places of a run of equal scores are those of `_ratios`.
    """
    rows, columns = bits.shape
    first, second = np.empty(columns, np.uint64), np.empty(columns, np.uint64)
    for row in range(rows):
        sort(bits[row], first, second)
        for column in range(limits.size):
            limit = limits[column]
            total, number, before, start = np.int64(0), np.int64(0), np.int64(0), 0
            while start < columns:
                stop, inside = start + 1, np.int64(ranks[row, first[start] & _LOW] <= limit)
                while stop < columns and first[stop] >> _UP == first[start] >> _UP:
                    inside += np.int64(ranks[row, first[stop] & _LOW] <= limit)
                    stop += 1
                size = inside if within else np.int64(stop - start)
                after = before + size
                if inside:
                    place = factor * after
                    for index in range(start, stop):
                        rank = np.int64(ranks[row, first[index] & _LOW])
                        if rank > limit:
                            continue
                        if size == 1:
                            mean = min(place, rank) / max(place, rank)
                        else:
                            middle = min(max(rank // factor, before), after)
                            below = factor * (middle * (middle + 1) - before * (before + 1)) / (2.0 * rank)
                            above = rank * (harmonic[after] - harmonic[middle]) / factor
                            mean = (below + above) / size
                        total += np.int64(mean * _UNIT + 0.5)
                    number += inside
                before = after
                start = stop
            sums[row, column], counts[row, column] = total, number


@functools.cache
def _kernels() -> tuple[Callable[..., None], ...]:
    import numba

    compiled = numba.njit(nogil=True, error_model="numpy")
    sort = compiled(_sorted)
    return tuple(functools.partial(compiled(function), sort) for function in (_rank, _agree))
