"""The compiled part of the nearest rows: each pair is looked at once, for its row and for its column.

Every row keeps a list of keys. A key is a score and a row in 64 bits, so that one comparison of whole numbers orders by
score and settles ties by row. A list that is full is cut to its best, and the worst of these becomes the limit below
which nothing enters: the bound of nearly every pair stays below it (`score_bounds.py`), 64 of them at a time, and only
the others are scored.

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

from subtext.ops.score_bounds import HIGH, WIDE, lowest, reached

_LOW = 0x7FFFFFFF
"""A key's lower half: this less the row, so that among equal scores the first row has the largest key. Its upper half
is the score's bits; those of a negative score with all but their sign turned over, so that they order as numbers do."""
NO_BAR = np.iinfo(np.int64).min
"""The bar of a list from which nothing was dropped for being too small."""
NEAR = 64
"""Panels of columns that all rows of a block meet before the next: they stay in a processor's second cache."""
FILLED, BAR, NAME, KEPT = range(4)
"""Lines of Lists.state."""


class Lists(NamedTuple):
    """The best candidates so far of N rows.

    keys    (N S) int64, score and name of each candidate, in no order; S is room for them
    state   (4 N) int64: how many keys of a row count, the key that a new one has to pass, what the row is called in
            keys, and how many a full list is cut to
    limits  (M) float32, the score of the key to pass: nothing below it is looked at; filled up with infinity to whole
            panels; limit_bits are the same numbers as int32
    groups  (G N) int64: a candidate that shares one of them with the row is no neighbour of it
    """

    keys: NDArray[np.int64]
    state: NDArray[np.int64]
    limits: NDArray[np.float32]
    limit_bits: NDArray[np.int32]
    groups: NDArray[np.int64]


class Pairs(NamedTuple):
    """What pairs of N rows are scored by.

    vectors         (N D) float32
    squared         scores are minus half of squared distances, not inner products
    panels, terms   the rows as `score_bounds.rounded` gives them
    """

    vectors: NDArray[np.float32]
    squared: bool
    panels: NDArray[np.int16]
    terms: NDArray[np.float32]


class Takers(NamedTuple):
    """Which sides of a block take candidates."""

    rows: bool
    columns: bool


def empty(names: NDArray[np.int64], groups: NDArray[np.int64], *, count: int) -> Lists:
    """Lists that hold nothing yet, for `count` neighbours a row."""
    rows = len(names)
    limits = np.full(-(-rows // WIDE) * WIDE, np.inf, dtype=np.float32)
    limits[:rows] = -np.inf
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
def _score(vectors: Any, row: int, column: int, squared: bool) -> float:
    """The score of two rows: the same from both sides, and in L2 nought for equal rows."""
    total = np.float32(0)
    if squared:
        for d in range(vectors.shape[1]):
            difference = vectors[row, d] - vectors[column, d]
            total += difference * difference
        return np.float32(-0.5) * total
    for d in range(vectors.shape[1]):
        total += vectors[row, d] * vectors[column, d]
    return total


@no_type_check
def _sift(
    reached: Any, lowest: Any, score: Any, cut: Any, pairs: Any, limits: Any, lists: Any, block: tuple[int, ...]
) -> None:
    """Offer the pairs of a block to the lists of its rows and of its columns.

    pairs   (N D) vectors; whether scores are squared distances; their panels and terms as in `score_bounds`
    limits  two lines of N limits, of rows and of columns: those of the lists, or infinite for a side that takes nothing
    block   the first and the last row and column; whether rows and whether columns take

    One function, because a call that hands over eight arrays costs more than an offer: half of the whole time.
    """
    vectors, squared, panels, terms = pairs
    keys, state, _, limit_bits, groups = lists
    lengths, bar, name, capacities = state[FILLED], state[BAR], state[NAME], state[KEPT]
    top, bottom, left, right, rows_take, columns_take = block
    rounded = (panels.ctypes.data, panels.shape[1], terms.ctypes.data, terms.shape[1])
    addresses = (*rounded, limits[0].ctypes.data, limits[1].ctypes.data)
    unit = np.uint64(1)
    for start in range(left // WIDE * WIDE, right, NEAR * WIDE):
        columns = min(NEAR, (right - start + WIDE - 1) // WIDE)
        for panel in range(top // WIDE * WIDE, bottom, WIDE):
            # Four tiles high, then a panel of columns further.
            for tile in range(columns * (WIDE // HIGH)):
                row_tile, column_tile = panel + tile * HIGH % WIDE, start + tile * HIGH // WIDE * WIDE
                hits = reached(addresses, row_tile, column_tile)
                while hits != 0:
                    bit = lowest(hits)
                    hits &= hits - unit
                    across, down = row_tile + bit // WIDE, column_tile + bit % WIDE
                    # Tiles reach over the edges of a block.
                    if across < top or across >= bottom or down < left or down >= right:
                        continue
                    allowed = True
                    for group in range(groups.shape[0]):
                        allowed = allowed and groups[group, across] != groups[group, down]
                    if not allowed:
                        continue
                    # Nought has one sign: -0 would order below 0.
                    value = np.float32(score(vectors, across, down, squared) + np.float32(0))
                    bits = np.int64(value.view(np.int32))
                    high = bits if bits >= 0 else bits ^ _LOW
                    for side in range(2):
                        row, candidate = (down, across) if side else (across, down)
                        if not (columns_take if side else rows_take):
                            continue
                        key = (high << 32) | (_LOW - name[candidate])
                        if key <= bar[row]:
                            continue
                        count, capacity = lengths[row], capacities[row]
                        keys[row, count] = key
                        count += 1
                        if count >= capacity + max(16, capacity // 2):
                            cut(keys[row], count, capacity)
                            count = capacity
                            bar[row] = keys[row, capacity - 1]
                            worst = bar[row] >> 32
                            limit_bits[row] = worst if worst >= 0 else worst ^ _LOW
                        lengths[row] = count


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
        for rank in range(length):
            key = best[length - 1 - rank]
            high = key >> 32
            rows[name, rank] = _LOW - (key & _LOW)
            bits[name, rank] = high if high >= 0 else high ^ _LOW


@no_type_check
def _score_first(score: Any, pairs: Any, row: int, scores: Any) -> None:
    """The scores of a row with the first rows, as many as there is room for."""
    for column in range(len(scores)):
        scores[column] = score(pairs[0], row, column, pairs[1]) + np.float32(0)


@functools.cache
def _compiled() -> dict[str, Callable[..., None]]:
    import numba

    jit = numba.njit(nogil=True)
    score = numba.njit(nogil=True, fastmath={"contract", "reassoc"})(_score)
    cut = jit(_cut)
    return {
        "sift": functools.partial(jit(_sift), reached(), lowest(), score, cut),
        "finish": functools.partial(jit(_finish), cut),
        "score": functools.partial(jit(_score_first), score),
    }


def score(pairs: Pairs, row: int, count: int) -> NDArray[np.float32]:
    """The (count) scores of a row with the first `count` rows."""
    scores = np.empty(count, dtype=np.float32)
    _compiled()["score"](pairs, row, scores)
    return scores


def sift(
    pool: ThreadPoolExecutor, threads: int, pairs: Pairs, lists: Lists, block: tuple[int, int, int, int], takers: Takers
) -> None:
    """Offer the pairs of a block, with its first and last row and column, to the lists of its rows and its columns.

    takers  which of them take; with both, the block's rows and columns must be different ones
    """
    kernel = _compiled()["sift"]
    infinite = np.full(0 if takers.rows and takers.columns else len(lists.limits), np.inf, dtype=np.float32)
    limits = tuple(lists.limits if takes else infinite for takes in takers)
    tops = np.linspace(block[0], block[1], threads + 1).astype(np.int64).tolist()
    lefts = np.linspace(block[2], block[3], threads + 1).astype(np.int64).tolist()

    def part(number: int, step: int) -> None:
        side = (number + step) % threads
        edges = (tops[number], tops[number + 1], lefts[side], lefts[side + 1], int(takers.rows), int(takers.columns))
        kernel(pairs, limits, lists, edges)

    for step in range(threads):
        # In one step no two threads share a row or a column, so that each list has one writer.
        list(pool.map(part, range(threads), [step] * threads))


def finish(
    pool: ThreadPoolExecutor, threads: int, lists: Lists, *, count: int
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """(N E) names and scores of the best, best first, in the order of names; -1 and minus infinity behind the last."""
    kernel = _compiled()["finish"]
    total = len(lists.keys)
    rows = np.full((total, count), -1, dtype=np.int32)
    scores = np.full((total, count), -np.inf, dtype=np.float32)
    bits = scores.view(np.int32)
    cuts = np.linspace(0, total, threads + 1).astype(np.int64).tolist()
    list(pool.map(lambda part: kernel(lists, rows, bits, part), pairwise(cuts)))
    return rows, scores
