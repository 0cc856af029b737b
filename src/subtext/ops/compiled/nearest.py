"""The nearest rows of every row of a matrix, exactly: the graph of k nearest neighbours.

The score of two rows is the same from both sides, so each pair is scored once and offered to both: half of the work of
searching an index for every row. Products of whole blocks in float32 give an upper bound of every score. It rules out
nearly all pairs; the others are scored exactly, so that the bound costs no neighbour.

Every row keeps a list of keys. A key is a score and a row in 64 bits, so that one comparison of whole numbers orders by
score and breaks ties by row. A list that is full is cut to its best, and the worst of these becomes the limit below
which nothing enters.

For the bound, let w be the width, p the product of u and v in float32, and e = 2^-24. Rounding takes at most
(w + 16) e |u||v| from p, and |u||v| is at most (|u|^2 + |v|^2) / 2. So the score is at most p + o_u + o_v, where
each row has an offset o_u = (2 (w + 16) e - 1/2) |u|^2; what is left of it covers the rounding of scores and of sums.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, no_type_check

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray

from subtext.errors import ShapeError
from subtext.ops import draw
from subtext.ops.in_threads import in_threads

LONGEST = 9e18
"""A norm up to which float32 holds every score."""
_LOW = 0x7FFFFFFF
"""The lower half of a key is this less the row, so that among equal scores the first row has the largest key. The upper
half is the bits of the score; of a negative score all bits but the sign are inverted, so that they order as numbers do.
"""
NO_BAR = np.iinfo(np.int64).min
"""The bar of a list from which nothing was dropped for being too small."""
STRIDE = 64
"""Columns whose bounds are compared together."""
FILLED, BAR, NAME, CAPACITY = range(4)
"""Lines of Lists.state."""


class Lists(NamedTuple):
    """The best candidates so far of N rows.

    Args:
        keys: (N S) int64, score and name of each candidate, in no order; S is the room for them.
        state: (4 N) int64. How many keys of a row count; the key that a new one has to pass; what the row is called in
            keys; how many keys a full list is cut to.
        limits: (N) float32, the score of the key to pass. A pair whose bound is below is not scored.
        limit_bits: (N) int32, the memory of `limits`.
        groups: (G N) int64. A candidate that shares one of them with the row is no neighbour of it.
    """

    keys: NDArray[np.int64]
    state: NDArray[np.int64]
    limits: NDArray[np.float32]
    limit_bits: NDArray[np.int32]
    groups: NDArray[np.int64]


def score_offsets(vectors: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n"]:
    """What a row adds to the bounds of its scores: product + offset_u + offset_v is never below the score.

    Args:
        vectors: (N D) float32, none longer than `LONGEST`.

    Returns:
        (N) float32: about minus half of each squared length.
    """
    room = vectors.shape[1] + 16
    squares = np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64)
    # Below the smallest normal number float32 loses digits, or all.
    return ((2 * room * 2.0**-24 - 0.5) * squares + room * 2.0**-126).astype(np.float32)


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
def _score(vectors: Any, row: int, column: int) -> float:
    """The score of two rows: the same from both sides, and 0 for equal rows."""
    total = np.float32(0)
    for d in range(vectors.shape[1]):
        difference = vectors[row, d] - vectors[column, d]
        total += difference * difference
    return np.float32(-0.5) * total


@no_type_check
def _reached(products: Any, offset: float, offsets: Any, limit: float, limits: Any) -> bool:
    """Whether a bound of some pairs of a row reaches a limit; without a branch, so that the compiler makes vectors."""
    hit = False
    for index in range(len(products)):
        bound = products[index] + (offset + offsets[index])
        hit |= (bound >= limit) | (bound >= limits[index])
    return hit


@no_type_check
def _sift(
    reached: Any,
    score: Any,
    cut: Any,
    vectors: Any,
    offsets: Any,
    products: Any,
    limits: Any,
    lists: Any,
    block: tuple[int, ...],
) -> None:
    """Offer the pairs of a block to the lists of its rows and of its columns.

    `products` are those of rows from `first_row` and columns from `first_column`. `limits` has (N) of rows and (N) of
    columns: those of the lists, or infinite for a side that takes nothing. A block is the first and the last row and
    column; whether rows and whether columns take; first_row and first_column. All in one function, because a call that
    hands over these arrays costs more than an offer.
    """
    row_limits, column_limits = limits
    keys, state, _, limit_bits, groups = lists
    lengths, bar, name, capacities = state[FILLED], state[BAR], state[NAME], state[CAPACITY]
    top, bottom, left, right, rows_take, columns_take, first_row, first_column = block
    for start in range(left, right, STRIDE):
        stop = min(start + STRIDE, right)
        column_offsets, stride_limits = offsets[start:stop], column_limits[start:stop]
        for across in range(top, bottom):
            row_products = products[across - first_row, start - first_column : stop - first_column]
            if not reached(row_products, offsets[across], column_offsets, row_limits[across], stride_limits):
                continue
            for index in range(stop - start):
                down = start + index
                bound = row_products[index] + (offsets[across] + column_offsets[index])
                if bound < row_limits[across] and bound < stride_limits[index]:
                    continue
                allowed = True
                for group in range(groups.shape[0]):
                    allowed = allowed and groups[group, across] != groups[group, down]
                if not allowed:
                    continue
                # Zero has one sign: -0 would order below 0.
                value = np.float32(score(vectors, across, down) + np.float32(0))
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
def _score_first(score: Any, vectors: Any, row: int, scores: Any) -> None:
    """The scores of a row with the first rows, as many as there is room for."""
    for column in range(len(scores)):
        scores[column] = score(vectors, row, column) + np.float32(0)


@functools.cache
def _compiled() -> dict[str, Callable[..., None]]:
    import numba

    jit = numba.njit(nogil=True)
    score = numba.njit(nogil=True, fastmath={"contract", "reassoc"})(_score)
    cut = jit(_cut)
    return {
        "sift": functools.partial(jit(_sift), jit(_reached), score, cut),
        "finish": functools.partial(jit(_finish), cut),
        "score": functools.partial(jit(_score_first), score),
    }


ROWS, COLUMNS = 1024, 2048
"""A block of pairs: its products stay in the processor's last cache. Between blocks threads change sides."""
SMALL = 4096
"""Rows up to which lists are sorted whole: that is done before a kernel would be compiled."""
SAMPLE = 256
"""Rows of the first band: their scores set the first limits."""


@dataclass(frozen=True)
class NearestRows:
    """The nearest rows of each of N rows, nearest first.

    Args:
        rows: (N E) int32; -1 behind the last of a list that is shorter than E. Equal scores by row.
        scores: (N E) float32, larger is nearer: minus half of the squared distance; minus infinity without a row.
    """

    rows: Int[np.ndarray, "n e"]
    scores: Float[np.ndarray, "n e"]


def nearest_rows(
    vectors: Float[np.ndarray, "n d"],
    *,
    count: int,
    candidates: Bool[np.ndarray, "n"] | None = None,
    groups: Int[np.ndarray, "g n"] | None = None,
    progress: Callable[[int], None] | None = None,
) -> NearestRows:
    """For every row the `count` other rows nearest to it, all compared: s_ij = -|v_i - v_j|^2 / 2.

    Scores are sums in float32: rows whose scores agree to its last bits may change places.

    Args:
        vectors: (N D), finite. float32 is what is computed in.
        count: E, the neighbours of a row, 1 or more.
        candidates: (N) which rows may be neighbours; all by default. The others get neighbours, and are none.
        groups: (G N) int64. A row that shares its number in one of the G lines is no neighbour: a duplicate, or a text
            of the same image.
        progress: Called with the number of rows, of N, that are finished.

    Returns:
        The rows and their scores.

    Raises:
        ShapeError: If numbers are not finite or too large, or `count` is below 1.

    Complexity:
        Time N^2 D / 2 products in float32. Memory 1.5 E N keys of 8 bytes, a copy of the vectors, and 8 MB.

    Example:
        >>> found = nearest_rows(np.float32([[0], [1], [3]]), count=2)
        >>> found.rows.tolist(), found.scores[0].tolist()
        ([[1, 2], [0, 2], [1, 0]], [-0.5, -4.5])
    """
    if count < 1:
        raise ShapeError(f"nearest_rows needs a count of 1 or more; it got {count}")
    if not np.isfinite(vectors).all():
        bad = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
        raise ShapeError(f"nearest_rows needs finite numbers; row {bad} of the vectors has NaN or infinity")
    longest = float(np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64).max(initial=0)))
    if longest > LONGEST:
        raise ShapeError(f"scores of vectors as long as {longest:.3g} leave float32: scale the vectors")
    total = len(vectors)
    row_numbers = np.arange(total, dtype=np.int64)[None]
    groups = row_numbers if groups is None else np.concatenate([row_numbers, groups.astype(np.int64)])
    allowed = np.ones(total, dtype=bool) if candidates is None else candidates
    if total <= SMALL:
        result = _sorted(vectors, groups, allowed, count)
        if progress is not None:
            progress(total)
        return result
    # Rows that may be neighbours first; shuffled, so that the first are a sample of all.
    shuffled = draw.permutation(total, seed=0, epoch=0, purpose="nearest rows")
    order = shuffled[np.argsort(~allowed[shuffled], kind="stable")]
    candidate_count = int(allowed.sum())
    ordered = np.ascontiguousarray(vectors[order], dtype=np.float32)
    limits = np.full(total, -np.inf, dtype=np.float32)
    state = np.zeros((4, total), dtype=np.int64)
    state[BAR], state[NAME], state[CAPACITY] = NO_BAR, order, count
    # Half as much again as is kept: most keys enter without a cut.
    keys = np.empty((total, count + max(16, count // 2)), dtype=np.int64)
    lists = Lists(keys, state, limits, limits.view(np.int32), np.ascontiguousarray(groups[:, order]))
    _sweep(ordered, lists, candidate_count=candidate_count, count=count, progress=progress)
    rows = np.full((total, count), -1, dtype=np.int32)
    scores = np.full((total, count), -np.inf, dtype=np.float32)
    finish, score = _compiled()["finish"], _compiled()["score"]
    in_threads(lambda part: finish(lists, rows, scores.view(np.int32), (part.start, part.stop)), total)
    # A list that fell short of `count` after something was dropped was guessed too short: it is filled without a guess.
    names = lists.state[NAME]
    for row in np.flatnonzero((lists.state[FILLED] < count) & (lists.state[BAR] != NO_BAR)):
        row_scores = np.empty(candidate_count, dtype=np.float32)
        score(ordered, row, row_scores)
        others = np.flatnonzero((lists.groups[:, :candidate_count] != lists.groups[:, row, None]).all(axis=0))
        best = others[np.lexsort((names[others], -row_scores[others]))][:count]
        rows[names[row], : len(best)], scores[names[row], : len(best)] = names[best], row_scores[best]
    if progress is not None:
        progress(total)
    return NearestRows(rows, scores)


def _sorted(
    vectors: NDArray[np.float32], groups: NDArray[np.int64], allowed: NDArray[np.bool_], count: int
) -> NearestRows:
    """The same by sorting all scores of a row."""
    total = len(allowed)
    rows = np.full((total, count), -1, dtype=np.int32)
    best = np.full((total, count), -np.inf, dtype=np.float32)
    candidates = np.flatnonzero(allowed)
    # Seen from one of them, distant rows lose nothing to cancellation, and whole numbers stay whole.
    points = vectors.astype(np.float64) - vectors[0]
    halves = -0.5 * np.einsum("nd,nd->n", points, points)
    for start in range(0, total, 512):
        scores = points[start : start + 512] @ points[candidates].T + halves[start : start + 512, None]
        scores += halves[candidates]
        block_groups = groups[:, start : start + 512, None]
        scores[(block_groups == groups[:, None, candidates]).any(axis=0)] = -np.inf
        order = np.argsort(-scores, axis=1, kind="stable")[:, :count]
        best_scores = np.take_along_axis(scores, order, axis=1)
        block = slice(start, start + len(best_scores)), slice(0, best_scores.shape[1])
        for line, neighbours in enumerate(candidates[order]):
            # Once more from differences: equal rows have a distance of 0.
            squares = ((points[neighbours] - points[start + line]) ** 2).sum(axis=1)
            best_scores[line] = np.where(best_scores[line] > -np.inf, -0.5 * squares, -np.inf)
        best[block] = best_scores
        rows[block] = np.where(best_scores > -np.inf, candidates[order], -1)
    return NearestRows(rows, best)


def _sweep(
    vectors: NDArray[np.float32],
    lists: Lists,
    *,
    candidate_count: int,
    count: int,
    progress: Callable[[int], None] | None,
) -> None:
    """Offer every pair of a row that may be a neighbour with itself and those behind it to the lists of both, once."""
    total, threads, kernel = len(lists.keys), torch.get_num_threads(), _compiled()["sift"]
    offsets, tensor, room = score_offsets(vectors), torch.from_numpy(vectors), torch.empty(ROWS * COLUMNS)
    # Bands of rows: each as high as all before it, until they are ROWS high.
    growing = [SAMPLE * 2**step for step in range(16) if SAMPLE * 2**step < min(ROWS, candidate_count)]
    bands = [0, *growing, *range(ROWS, candidate_count, ROWS), candidate_count]
    with ThreadPoolExecutor(threads) as pool:
        for top, bottom in pairwise(bands):
            # What a row was compared with tells how few of its best can matter: those of the band see all of it.
            lists.state[CAPACITY, bottom:] = _guess(bottom, candidate_count, count)
            # Columns of the band: the band itself, then what lies behind it, apart where candidates end.
            ends = ((bottom, candidate_count), (candidate_count, total))
            behind = [cut for start, stop in ends for cut in pairwise([*range(start, stop, COLUMNS), stop])]
            for left, right in [(top, bottom), *behind]:
                lists.state[CAPACITY, top:bottom] = _guess(min(right, candidate_count), candidate_count, count)
                # Whether rows of the block take, and whether columns do; with both, they are different ones.
                takers = (left < candidate_count, left != top)
                infinite = np.full(0 if all(takers) else total, np.inf, dtype=np.float32)
                limits = tuple(lists.limits if takes else infinite for takes in takers)
                products = room[: (bottom - top) * (right - left)].view(bottom - top, right - left)
                torch.mm(tensor[top:bottom], tensor[left:right].T, out=products)
                offer = functools.partial(kernel, vectors, offsets, products.numpy(), limits, lists)
                tops = np.linspace(top, bottom, threads + 1).astype(np.int64).tolist()
                lefts = np.linspace(left, right, threads + 1).astype(np.int64).tolist()
                for step in range(threads):
                    # In one step no two threads share a row or a column, so that each list has one writer.
                    sides = [(number + step) % threads for number in range(threads)]
                    edges = [
                        (tops[number], tops[number + 1], lefts[side], lefts[side + 1], *map(int, takers), top, left)
                        for number, side in enumerate(sides)
                    ]
                    list(pool.map(offer, edges))
            if progress is not None:
                done = bottom / max(candidate_count, 1)
                progress(int(total * done * (2 - done)))


def _guess(compared: int, candidate_count: int, count: int) -> int:
    """How many of the best among the first `compared` candidates to keep; their worst is then below the true limit.

    Of the `count` nearest about m = count * compared / candidates are among a random sample. More than m + 5 sqrt(m)
    + 2 are there once in a hundred thousand rows or less. A list then ends shorter than `count`, and is filled again: a
    wrong guess costs time, and no neighbour.
    """
    expected = count * compared / max(candidate_count, 1)
    return min(count, int(expected + 5 * expected**0.5 + 2))
