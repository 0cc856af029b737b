"""The compiled part of comparing two rankings: a radix sort of each row, and what is summed while it is read back.

A score becomes a 32-bit key that rises as the score falls; key and column share 64 bits and are sorted in three passes
of eleven bits. Threads are Python threads over blocks of rows, with the interpreter's lock released. The machine code
is made when it is first called and is never written to disk.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, no_type_check

import numpy as np
import torch
from numpy.typing import NDArray

_BITS = 11
_BUCKETS = 1 << _BITS


@no_type_check
def _sorted(
    row: NDArray[np.uint32], first: NDArray[np.uint64], second: NDArray[np.uint64], passes: int
) -> NDArray[np.int32]:
    """Leave (key << 32 | column) of one row of float32 bits in `first`, by rising key, equal keys by column.

    With two passes they are in `second`, and what is given back says where the third would begin to place each bucket.
    """
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
    for digit in range(passes):
        source, target = (second, first) if digit != 1 else (first, second)
        shift = np.uint64(32 + digit * _BITS)
        starts = tallies[digit]
        for column in range(count):
            packed = source[column]
            bucket = np.int64((packed >> shift) & mask)
            target[starts[bucket]] = packed
            starts[bucket] += 1
    return tallies[2]


@no_type_check
def _rank(sort: Any, bits: NDArray[np.uint32], ties: int, ranks: NDArray[Any]) -> None:
    """Fill ranks (R C): places from 1 (ties = 0), the best place of a run of equals (1), twice its mean place (2)."""
    rows, columns = bits.shape
    first, second = np.empty(columns, np.uint64), np.empty(columns, np.uint64)
    low, up = np.uint64(0xFFFFFFFF), np.uint64(32)
    for row in range(rows):
        sort(bits[row], first, second, 3)
        if ties == 0:
            for index in range(columns):
                ranks[row, first[index] & low] = index + 1
            continue
        start = 0
        while start < columns:
            stop = start + 1
            while stop < columns and first[stop] >> up == first[start] >> up:
                stop += 1
            rank = start + 1 if ties == 1 else start + 1 + stop
            for index in range(start, stop):
                ranks[row, first[index] & low] = rank
            start = stop


@no_type_check
def _agree(
    sort: Any,
    bits: NDArray[np.uint32],
    ranks: NDArray[Any],
    ties: int,
    limits: NDArray[np.int64],
    within: bool,
    sums: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> None:
    """Fill sums and counts (R L): min over max of the two ranks, in units of 2^-40, over ranks up to each limit."""
    rows, columns = bits.shape
    first, second = np.empty(columns, np.uint64), np.empty(columns, np.uint64)
    low, up = np.uint64(0xFFFFFFFF), np.uint64(32)
    unit = 2.0**40
    for row in range(rows):
        sort(bits[row], first, second, 3)
        for column in range(limits.size):
            limit = limits[column]
            total, number, before, start = np.int64(0), np.int64(0), np.int64(0), 0
            while start < columns:
                stop, inside = start + 1, np.int64(ranks[row, first[start] & low] <= limit)
                if ties != 0:
                    while stop < columns and first[stop] >> up == first[start] >> up:
                        inside += np.int64(ranks[row, first[stop] & low] <= limit)
                        stop += 1
                if inside:
                    size = inside if within else np.int64(stop - start)
                    score_rank = before + 1 if ties < 2 else 2 * before + 1 + size
                    for index in range(start, stop):
                        relevance_rank = np.int64(ranks[row, first[index] & low])
                        if relevance_rank <= limit:
                            total += np.int64(
                                min(score_rank, relevance_rank) / max(score_rank, relevance_rank) * unit + 0.5
                            )
                    number += inside
                before += inside if within else np.int64(stop - start)
                start = stop
            sums[row, column], counts[row, column] = total, number


@no_type_check
def _agree_wholly(sort: Any, bits: NDArray[np.uint32], ranks: NDArray[Any], sums: NDArray[np.int64]) -> None:
    """`_agree` for places over all candidates: the third pass of the sort is not written, only summed over."""
    rows, columns = bits.shape
    first, second = np.empty(columns, np.uint64), np.empty(columns, np.uint64)
    low, up = np.uint64(0xFFFFFFFF), np.uint64(32 + 2 * _BITS)
    unit = 2.0**40
    for row in range(rows):
        starts = sort(bits[row], first, second, 2)
        total = np.int64(0)
        for column in range(columns):
            packed = second[column]
            bucket = packed >> up
            score_rank = starts[bucket] + np.int32(1)
            starts[bucket] = score_rank
            relevance_rank = np.int32(ranks[row, packed & low])
            total += np.int64(
                np.float64(min(score_rank, relevance_rank)) / np.float64(max(score_rank, relevance_rank)) * unit + 0.5
            )
        sums[row, 0] = total


@functools.cache
def _compiled() -> tuple[Callable[..., None], ...]:
    import numba

    compile_ = numba.njit(nogil=True, error_model="numpy")
    return tuple(compile_(function) for function in (_sorted, _rank, _agree, _agree_wholly))


def rank(bits: NDArray[np.uint32], ties: int, ranks: NDArray[Any]) -> None:
    """Fill ranks as `_rank` says, on as many threads as torch uses."""
    sort, kernel, *_ = _compiled()
    _threaded(len(bits), lambda cut: kernel(sort, bits[cut], ties, ranks[cut]))


def agree(
    bits: NDArray[np.uint32],
    ranks: NDArray[Any],
    ties: int,
    limits: NDArray[np.int64],
    within: bool,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sums and counts as `_agree` says, on as many threads as torch uses."""
    sort, _, kernel, unlimited = _compiled()
    sums, counts = np.zeros((2, len(bits), len(limits)), dtype=np.int64)
    if ties == 0 and len(limits) == 1 and limits[0] >= bits.shape[1]:
        counts[:] = bits.shape[1]
        _threaded(len(bits), lambda cut: unlimited(sort, bits[cut], ranks[cut], sums[cut]))
        return sums, counts
    _threaded(len(bits), lambda cut: kernel(sort, bits[cut], ranks[cut], ties, limits, within, sums[cut], counts[cut]))
    return sums, counts


def _threaded(rows: int, work: Callable[[slice], None]) -> None:
    parts = max(1, min(torch.get_num_threads(), rows))
    edges = np.linspace(0, rows, parts + 1).astype(np.int64)
    cuts = [slice(int(start), int(stop)) for start, stop in pairwise(edges)]
    if parts == 1:
        work(cuts[0])
        return
    with ThreadPoolExecutor(parts) as pool:
        list(pool.map(work, cuts))
