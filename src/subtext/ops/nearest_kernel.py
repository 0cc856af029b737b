"""The compiled part of the nearest rows: one read of a block of scores serves its rows and its columns.

Every row keeps a list of keys. A key is a score and a row in 64 bits, so that one comparison of whole numbers orders by
score and settles ties by row. A list that is full is cut to its best, and the worst of these becomes the limit below
which nothing enters: nearly every score fails two comparisons, eight of them at a time, and is done.

Threads are Python threads with the interpreter's lock released, as in `rank_kernel.py`; the machine code is made when
it is first called and is never written to disk.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple, no_type_check

import numpy as np
from numpy.typing import NDArray

_LOW = 0x7FFFFFFF
"""A key's lower half: this less the row, so that among equal scores the first row has the largest key. Its upper half
is the score's bits; those of a negative score with all but their sign turned over, so that they order as numbers do."""
NO_BAR = np.iinfo(np.int64).min
"""The bar of a list from which nothing was dropped for being too small."""


FILLED, BAR, NAME, KEPT = range(4)
"""Lines of Lists.state."""


class Lists(NamedTuple):
    """The best candidates so far of N rows.

    keys    (N S) int64, score and name of each candidate, in no order; S is room for them
    state   (4 N) int64: how many keys of a row count, the key that a new one has to pass, what the row is called in
            keys, and how many a full list is cut to
    limits  (N) float32, the score of the key to pass: nothing below it is looked at; limit_bits are the same numbers
            as int32
    groups  (G N) int64: a candidate that shares one of them with the row is no neighbour of it
    """

    keys: NDArray[np.int64]
    state: NDArray[np.int64]
    limits: NDArray[np.float32]
    limit_bits: NDArray[np.int32]
    groups: NDArray[np.int64]


class Takers(NamedTuple):
    """Which sides of a block take candidates."""

    rows: bool
    columns: bool


def empty(names: NDArray[np.int64], groups: NDArray[np.int64], *, count: int) -> Lists:
    """Lists that hold nothing yet, for `count` neighbours a row."""
    rows = len(names)
    limits = np.full(rows, -np.inf, dtype=np.float32)
    state = np.zeros((4, rows), dtype=np.int64)
    state[BAR], state[NAME], state[KEPT] = NO_BAR, names, count
    # Half as much again as is kept: most keys enter without a cut.
    keys = np.empty((rows, _room(count)), dtype=np.int64)
    return Lists(keys, state, limits, limits.view(np.int32), groups)


def _room(count: int) -> int:
    return count + max(16, count // 2)


@no_type_check
def _cut(keys: Any, length: int, count: int) -> None:
    """Put the `count` largest of the first `length` keys in front, the smallest of these last (Hoare's selection)."""
    left, right, last = 0, length - 1, count - 1
    while left < right:
        pivot = keys[(left + right) >> 1]
        i, j = left, right
        while i <= j:
            while keys[i] > pivot:
                i += 1
            while keys[j] < pivot:
                j -= 1
            if i <= j:
                keys[i], keys[j] = keys[j], keys[i]
                i += 1
                j -= 1
        if last <= j:
            right = j
        elif last >= i:
            left = i
        else:
            break


@no_type_check
def _seek(eights: Any, start: int) -> int:
    """The first place from `start` on that is not nought; the length when all are."""
    for place in range(start, eights.shape[0]):
        if eights[place] != 0:
            return place
    return eights.shape[0]


@no_type_check
def _mark(line: Any, limit: float, edge: Any, marks: Any) -> None:
    """One where a score reaches the limit of its row or of its column; alone, so that it compiles to a few vectors."""
    for j in range(edge.shape[0]):
        marks[j] = np.uint8(line[j] >= limit) | np.uint8(line[j] >= edge[j])


@no_type_check
def _sift(mark: Any, seek: Any, cut: Any, block: Any, lists: Any, place: tuple[int, ...]) -> None:
    """Offer the scores of a part of a block to its rows, and to its columns.

    block   scores (R C); the same numbers as int32; limits (C) of the columns, infinite where they take nothing
    place   the row and the column where the block begins; the part's first and last row and column; whether rows take

    One function, because a call that hands over eight arrays costs more than an offer: half of the whole time.
    """
    scores, bits, edges = block
    keys, state, limits, limit_bits, groups = lists
    filled, bar, name, keep = state[FILLED], state[BAR], state[NAME], state[KEPT]
    first_row, first_column, top, bottom, left, right, rows_take = place
    # One byte a score, read eight at a time: nearly all of them are nought.
    marks = np.zeros((right - left + 7) // 8 * 8, dtype=np.uint8)
    eights = marks.view(np.uint64)
    edge = edges[left:right]
    for i in range(top, bottom):
        limit = limits[first_row + i] if rows_take else np.float32(np.inf)
        line = scores[i, left:right]
        mark(line, limit, edge, marks)
        eight = seek(eights, 0)
        while eight < eights.shape[0]:
            for j in range(8 * eight, 8 * eight + 8):
                if marks[j] == 0:
                    continue
                score = np.int64(bits[i, left + j])
                high = score if score >= 0 else score ^ _LOW
                for side in range(2):
                    if line[j] < (edge[j] if side else limit):
                        continue
                    row, candidate = first_row + i, first_column + left + j
                    if side:
                        row, candidate = candidate, row
                    key = (high << 32) | (_LOW - name[candidate])
                    if key <= bar[row]:
                        continue
                    stranger = True
                    for group in range(groups.shape[0]):
                        stranger = stranger and groups[group, row] != groups[group, candidate]
                    if not stranger:
                        continue
                    length, kept = filled[row], keep[row]
                    keys[row, length] = key
                    length += 1
                    if length >= kept + max(16, kept // 2):
                        cut(keys[row], length, kept)
                        length = kept
                        bar[row] = keys[row, kept - 1]
                        worst = bar[row] >> 32
                        limit_bits[row] = worst if worst >= 0 else worst ^ _LOW
                    filled[row] = length
            eight = seek(eights, eight + 1)


@no_type_check
def _finish(cut: Any, lists: Any, rows: Any, bits: Any, part: tuple[int, int]) -> None:
    """Write each row's best candidates and the bits of their scores, best first, in the place of its name."""
    count = rows.shape[1]
    for row in range(part[0], part[1]):
        name = lists.state[NAME, row]
        length = lists.state[FILLED, row]
        if length > count:
            cut(lists.keys[row], length, count)
            length = count
        best = np.sort(lists.keys[row, :length])
        for place in range(length):
            key = best[length - 1 - place]
            high = key >> 32
            rows[name, place] = _LOW - (key & _LOW)
            bits[name, place] = high if high >= 0 else high ^ _LOW


@functools.cache
def _compiled() -> tuple[Callable[..., None], Callable[..., None]]:
    import numba

    jit = numba.njit(nogil=True)
    mark, seek, cut, sift, finish = (jit(each) for each in (_mark, _seek, _cut, _sift, _finish))
    return functools.partial(sift, mark, seek, cut), functools.partial(finish, cut)


def sift(
    pool: ThreadPoolExecutor,
    threads: int,
    scores: NDArray[np.float32],
    lists: Lists,
    corner: tuple[int, int],
    takers: Takers,
) -> None:
    """Offer a block of scores to the lists of its rows and of its columns.

    corner  the row and the column of the lists where the block begins
    takers  which of them take; with both, the block's rows and columns must be different ones
    """
    kernel, _ = _compiled()
    rows, columns = scores.shape
    infinite = np.full(0 if takers.columns else columns, np.inf, dtype=np.float32)
    edges = lists.limits[corner[1] : corner[1] + columns] if takers.columns else infinite
    block = (scores, scores.view(np.int32), edges)
    tops = np.linspace(0, rows, threads + 1).astype(np.int64).tolist()
    lefts = np.linspace(0, columns, threads + 1).astype(np.int64).tolist()

    def part(number: int, step: int) -> None:
        side = (number + step) % threads
        place = (*corner, tops[number], tops[number + 1], lefts[side], lefts[side + 1], int(takers.rows))
        kernel(block, lists, place)

    for step in range(threads):
        # In one step no two threads share a row or a column, so that each list has one writer.
        list(pool.map(part, range(threads), [step] * threads))


def finish(
    pool: ThreadPoolExecutor, threads: int, lists: Lists, *, count: int
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """(N E) names and scores of the best, best first, in the order of names; -1 and minus infinity behind the last."""
    _, kernel = _compiled()
    total = len(lists.limits)
    rows = np.full((total, count), -1, dtype=np.int32)
    scores = np.full((total, count), -np.inf, dtype=np.float32)
    bits = scores.view(np.int32)
    cuts = np.linspace(0, total, threads + 1).astype(np.int64).tolist()
    list(pool.map(lambda part: kernel(lists, rows, bits, part), pairwise(cuts)))
    return rows, scores
