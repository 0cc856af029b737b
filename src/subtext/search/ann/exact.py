"""Exact nearest items of arrays in memory: every vector is compared, in blocks, and the best are kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from subtext.errors import ShapeError

BLOCK_BYTES = 2**26
"""Scores that are held at a time."""


@dataclass(frozen=True)
class Nearest:
    """The best candidates of each query, best first.

    rows    (Q T) int64, rows of the candidates; equal scores stand in the order of the rows
    scores  (Q T) float32, the largest inner product over the views of both; T is `top` or all there are
    """

    rows: Int[np.ndarray, "q t"]
    scores: Float[np.ndarray, "q t"]


def nearest(
    queries: Float[np.ndarray, "q l d"],
    candidates: Float[np.ndarray, "n k _d"],
    *,
    top: int,
    block_bytes: int = BLOCK_BYTES,
) -> Nearest:
    """The `top` candidates of each query by the inner product of the views that fit best.

    s_qn = max_{l,k} <u_ql, v_nk>: an item of several views is found once, by the best of them. Vectors of unit length
    make it the cosine.

    queries      (Q L D); L views each
    candidates   (N K D); may be memory-mapped: each block is read once
    top          1 or more; all candidates are given, best first, when it is N or more
    block_bytes  of scores that are held at a time; the same rows come out for any value, and scores to the last bit or
                 two of float32

    Raises ShapeError for another number of axes, unequal widths, or a `top` below 1.
    Cost time Q N L K D; memory block_bytes + Q top.

    >>> found = nearest(np.float32([[[0, 1]]]), np.float32([[[1, 0]], [[0.6, 0.8]]]), top=1)
    >>> found.rows.tolist(), round(float(found.scores[0, 0]), 6)
    ([[1]], 0.8)
    """
    _check(queries, candidates, top)
    count, views, width = queries.shape
    per_row = 4 * max(1, count * views) * candidates.shape[1]
    block = max(1, block_bytes // per_row)
    rows = np.zeros((count, 0), dtype=np.int64)
    scores = np.zeros((count, 0), dtype=np.float32)
    flat = np.ascontiguousarray(queries, dtype=np.float32).reshape(-1, width)
    for start in range(0, len(candidates), block):
        found = _block_scores(flat, candidates[start : start + block], views)
        columns = np.broadcast_to(np.arange(start, start + found.shape[1]), found.shape)
        rows, scores = _best(np.concatenate([rows, columns], axis=1), np.concatenate([scores, found], axis=1), top)
    return Nearest(rows, scores)


def _block_scores(flat: NDArray[np.float32], block: NDArray[np.float32], views: int) -> NDArray[np.float32]:
    """(Q n) best scores over the views of both."""
    count, chosen_count, width = block.shape
    products = np.asarray(block, dtype=np.float32).reshape(count * chosen_count, width) @ flat.T
    best: NDArray[np.float32] = products.reshape(count, chosen_count, -1, views).max(axis=(1, 3)).T
    return best


def _best(
    rows: NDArray[np.int64], scores: NDArray[np.float32], top: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The `top` of each line by score; equal scores by row, which `rows` holds in ascending order among equals."""
    if scores.shape[1] > top:
        # Everything as good as the last that is kept comes along, so that ties are settled by row and not by chance.
        last = np.partition(scores, scores.shape[1] - top, axis=1)[:, -top]
    else:
        last = np.full(len(scores), -np.inf, dtype=np.float32)
    kept_rows = np.empty((len(scores), min(top, scores.shape[1])), dtype=np.int64)
    kept_scores = np.empty(kept_rows.shape, dtype=np.float32)
    for line, limit in enumerate(last):
        columns = np.flatnonzero(scores[line] >= limit)
        order = columns[np.argsort(-scores[line, columns], kind="stable")][:top]
        kept_rows[line], kept_scores[line] = rows[line, order], scores[line, order]
    return kept_rows, kept_scores


def _check(queries: NDArray[np.float32], candidates: NDArray[np.float32], top: int) -> None:
    for name, value in (("queries", queries), ("candidates", candidates)):
        if value.ndim != 3:
            raise ShapeError(f"nearest needs {name} of three axes (items, views, width); it got shape {value.shape}")
    if queries.shape[2] != candidates.shape[2]:
        raise ShapeError(
            f"nearest needs queries and candidates of one width; it got {queries.shape[2]} and {candidates.shape[2]}; "
            "embed both with the same model"
        )
    if top < 1:
        raise ShapeError(f"nearest needs top of 1 or more; it got {top}")
