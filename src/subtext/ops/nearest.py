"""The nearest rows of every row of a matrix, exactly: the graph of k nearest neighbours.

The score of two rows is the same from both sides, so each pair is taken once and offered to both: half of the work of
asking every row of an index. Nearly all pairs are told to be too far by an upper bound of their score, which costs half
of a product in float32 (`score_bounds.py`); the others are scored as they are, so that the bound costs no neighbour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray

from subtext.errors import ShapeError
from subtext.ops import draw
from subtext.ops.nearest_kernel import (
    BAR,
    FILLED,
    KEPT,
    NAME,
    NO_BAR,
    Lists,
    Pairs,
    Takers,
    empty,
    finish,
    score,
    sift,
)
from subtext.ops.score_bounds import LONGEST, rounded

Metric = Literal["l2", "inner"]
ROWS, COLUMNS = 1024, 8192
"""A block of pairs. Between blocks threads change sides and progress is told."""
SMALL = 4096
"""Rows up to which lists are sorted whole: that is done before a kernel would be compiled."""
SAMPLE = 256
"""Rows of the first band: what they score tells below which score the next need not look."""


@dataclass(frozen=True)
class NearestRows:
    """The nearest rows of each of N rows, nearest first.

    rows    (N E) int32; -1 behind the last of a list that is shorter than E; equal scores by row
    scores  (N E) float32, larger is nearer: the inner product, or minus half of the squared distance; minus infinity
            where there is no row
    """

    rows: Int[np.ndarray, "n e"]
    scores: Float[np.ndarray, "n e"]


def nearest_rows(
    vectors: Float[np.ndarray, "n d"],
    *,
    count: int,
    metric: Metric = "l2",
    candidates: Bool[np.ndarray, "n"] | None = None,
    groups: Int[np.ndarray, "g n"] | None = None,
    progress: Callable[[int], None] | None = None,
) -> NearestRows:
    """For every row the `count` other rows nearest to it, all compared.

        s_ij = <v_i, v_j>  ("inner")    or    -|v_i - v_j|^2 / 2  ("l2")

    vectors     (N D) finite; float32 is what is computed in
    count       E, 1 or more
    candidates  (N) which rows may be neighbours; all of them by default. The others get neighbours, and are none
    groups      (G N) int64: a row that shares its number in one of the G lines is no neighbour (a duplicate, a text of
                the same image)
    progress    hears how many of the N rows are finished

    Scores are sums in float32: rows whose scores agree to its last bits may change places.

    Raises ShapeError for numbers that are not finite or too large, a `count` below 1, or groups of another length.
    Cost time N^2 D / 2 products of 16-bit integers; memory 1.5 E N keys of 8 bytes, and 1.5 copies of the vectors.

    >>> found = nearest_rows(np.float32([[0], [1], [3]]), count=2)
    >>> found.rows.tolist(), found.scores[0].tolist()
    ([[1, 2], [0, 2], [1, 0]], [-0.5, -4.5])
    """
    _check(vectors, count)
    total = len(vectors)
    row_numbers = np.arange(total, dtype=np.int64)[None]
    groups = row_numbers if groups is None else np.concatenate([row_numbers, groups.astype(np.int64)])
    allowed = np.ones(total, dtype=bool) if candidates is None else candidates
    if total <= SMALL:
        result = _sorted(vectors, metric, groups, allowed, count)
        if progress is not None:
            progress(total)
        return result
    order = _order(allowed)
    candidate_count = int(allowed.sum())
    ordered = np.ascontiguousarray(vectors[order], dtype=np.float32)
    pairs = Pairs(ordered, metric == "l2", *rounded(ordered, metric=metric))
    lists = empty(order, np.ascontiguousarray(groups[:, order]), count=count)
    threads = torch.get_num_threads()
    with ThreadPoolExecutor(threads) as pool:
        _sweep(pool, pairs, lists, candidate_count=candidate_count, count=count, progress=progress)
        # A list that fell short of `count` after something was dropped was guessed too short.
        short = np.flatnonzero((lists.state[FILLED] < count) & (lists.state[BAR] != NO_BAR))
        rows, scores = finish(pool, threads, lists, count=count)
    for row in short:
        _ask_again(int(row), pairs, lists, candidate_count, (rows, scores))
    if progress is not None:
        progress(total)
    return NearestRows(rows, scores)


def _sorted(
    vectors: NDArray[np.float32], metric: Metric, groups: NDArray[np.int64], allowed: NDArray[np.bool_], count: int
) -> NearestRows:
    """The same by sorting all scores of a row."""
    total = len(allowed)
    rows = np.full((total, count), -1, dtype=np.int32)
    best = np.full((total, count), -np.inf, dtype=np.float32)
    candidates = np.flatnonzero(allowed)
    # Seen from one of them, distant rows lose nothing to cancellation, and whole numbers stay whole.
    points = vectors.astype(np.float64) - vectors[0] if metric == "l2" else np.ascontiguousarray(vectors, np.float32)
    halves = -0.5 * np.einsum("nd,nd->n", points, points) if metric == "l2" else np.zeros(total, dtype=np.float32)
    for start in range(0, total, 512):
        scores = points[start : start + 512] @ points[candidates].T + halves[start : start + 512, None]
        scores += halves[candidates]
        block_groups = groups[:, start : start + 512, None]
        scores[(block_groups == groups[:, None, candidates]).any(axis=0)] = -np.inf
        order = np.argsort(-scores, axis=1, kind="stable")[:, :count]
        best_scores = np.take_along_axis(scores, order, axis=1)
        block = slice(start, start + len(best_scores)), slice(0, best_scores.shape[1])
        if metric == "l2":
            for line, neighbours in enumerate(candidates[order]):
                # Once more from differences: equal rows have a distance of nought.
                squares = ((points[neighbours] - points[start + line]) ** 2).sum(axis=1)
                best_scores[line] = np.where(best_scores[line] > -np.inf, -0.5 * squares, -np.inf)
        best[block] = best_scores
        rows[block] = np.where(best_scores > -np.inf, candidates[order], -1)
    return NearestRows(rows, best)


def _sweep(
    pool: ThreadPoolExecutor,
    pairs: Pairs,
    lists: Lists,
    *,
    candidate_count: int,
    count: int,
    progress: Callable[[int], None] | None,
) -> None:
    """Take every pair of a row that may be a neighbour with itself and those behind it, once."""
    total, threads = len(lists.keys), torch.get_num_threads()
    for top, bottom in pairwise(_bands(candidate_count)):
        # What a row has seen after this tells how few of its best can matter: those of the band see all of this block.
        lists.state[KEPT, bottom:] = _guess(bottom, candidate_count, count)
        for left, right in _cuts(top, bottom, candidate_count, total):
            lists.state[KEPT, top:bottom] = _guess(min(right, candidate_count), candidate_count, count)
            takers = Takers(rows=left < candidate_count, columns=left != top)
            sift(pool, threads, pairs, lists, (top, bottom, left, right), takers)
        if progress is not None:
            done = bottom / max(candidate_count, 1)
            progress(int(total * done * (2 - done)))


def _bands(candidate_count: int) -> list[int]:
    """Where bands of rows begin, and the end: each as high as all before it, until they are ROWS high."""
    starts = [0, *(SAMPLE * 2**step for step in range(16) if SAMPLE * 2**step < min(ROWS, candidate_count))]
    return [*starts, *range(ROWS, candidate_count, ROWS), candidate_count]


def _cuts(top: int, bottom: int, candidate_count: int, total: int) -> Iterator[tuple[int, int]]:
    """Columns of a band of rows: the band itself, then what lies behind it, apart where candidates end."""
    yield top, bottom
    for start, stop in ((bottom, candidate_count), (candidate_count, total)):
        yield from pairwise([*range(start, stop, COLUMNS), stop])


def _guess(compared: int, candidate_count: int, count: int) -> int:
    """How many of the best among the first `compared` candidates to keep; their worst is then below the true limit.

    Of the `count` nearest about m = count * seen / chosen are among a random sample. More than m + 5 sqrt(m) + 2 are
    there once in a hundred thousand rows or less. A list then ends shorter than `count`, and its row is asked again:
    a wrong guess costs time, and no neighbour.
    """
    expected = count * compared / max(candidate_count, 1)
    return min(count, int(expected + 5 * expected**0.5 + 2))


def _ask_again(
    row: int, pairs: Pairs, lists: Lists, candidate_count: int, result: tuple[NDArray[np.int32], NDArray[np.float32]]
) -> None:
    """Fill one row's list without a guess."""
    names, count = lists.state[NAME], result[0].shape[1]
    scores = score(pairs, row, candidate_count)
    allowed = np.flatnonzero((lists.groups[:, :candidate_count] != lists.groups[:, row, None]).all(axis=0))
    best = allowed[np.lexsort((names[allowed], -scores[allowed]))][:count]
    result[0][names[row], : len(best)] = names[best]
    result[1][names[row], : len(best)] = scores[best]


def _order(allowed: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Rows that may be neighbours first; shuffled, so that the first are a sample of all."""
    shuffled = draw.permutation(len(allowed), seed=0, epoch=0, purpose="nearest rows")
    return shuffled[np.argsort(~allowed[shuffled], kind="stable")]


def _check(vectors: NDArray[np.float32], count: int) -> None:
    if count < 1:
        raise ShapeError(f"nearest_rows needs a count of 1 or more; it got {count}")
    if not np.isfinite(vectors).all():
        bad = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
        raise ShapeError(f"nearest_rows needs finite numbers; row {bad} of the vectors has NaN or infinity")
    longest = float(np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64).max(initial=0)))
    if longest > LONGEST:
        raise ShapeError(f"scores of vectors as long as {longest:.3g} leave float32: scale the vectors")
