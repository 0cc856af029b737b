"""Inner products of queries with rows of a matrix that may lie on disk, by FAISS: of all rows, or of chosen ones.

FAISS reads the mapped pages in place: a matrix larger than memory costs no memory of its own.
"""

from __future__ import annotations

from typing import Any

import faiss
import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray

AS_MATRICES = 4096
"""Numbers in all queries together (queries times width) from which on FAISS multiplies matrices: 64 queries on
20,000 x 512 took 23 ms instead of 96. FAISS itself (1.15) begins with 128,000. One query is never a matrix: that took
6.8 ms instead of 1.6."""

faiss.cvar.distance_compute_blas_threshold = AS_MATRICES


def best_rows(
    queries: Float[np.ndarray, "q d"],
    vectors: Float[np.ndarray, "r d"],
    count: int,
    *,
    dead: Bool[np.ndarray, "r"] | None = None,
) -> Int[np.ndarray, "q t"]:
    """The `count` rows of the largest inner product with each query, in no promised order; -1 where there are fewer.

    vectors  float32, rows one after the other in memory, R of 1 or more
    dead     rows that are passed over

    Cost time Q R D; memory Q count.

    >>> best_rows(np.float32([[0, 1]]), np.float32([[1, 0], [0, 1], [0.6, 0.8]]), 2).tolist()
    [[1, 2]]
    """
    queries = np.ascontiguousarray(queries, dtype=np.float32)
    count = min(count, len(vectors))
    scores = np.empty((len(queries), count), dtype=np.float32)
    rows = np.empty((len(queries), count), dtype=np.int64)
    selector: Any = faiss.IDSelectorBitmap
    chosen = None if dead is None else selector(np.packbits(~dead, bitorder="little"))
    pointer = faiss.swig_ptr
    faiss.knn_inner_product(
        pointer(queries), pointer(vectors), vectors.shape[1], len(queries), len(vectors), count,
        pointer(scores), pointer(rows), chosen,
    )  # fmt: skip
    return rows


def scores_of_all(query: Float[np.ndarray, "d"], vectors: Float[np.ndarray, "r d"]) -> Float[np.ndarray, "r"]:
    """(R) inner products of one query with all rows.

    Of few rows, such as centroids, sooner than `best_rows`, which compares each score with the best so far: 2,048 x 512
    took 0.25 ms instead of 0.79. Cost time R D.

    >>> scores_of_all(np.float32([0, 2]), np.float32([[1, 0], [0, 1]])).tolist()
    [0.0, 2.0]
    """
    scores = np.empty(len(vectors), dtype=np.float32)
    if len(vectors):
        pointer = faiss.swig_ptr
        query = np.ascontiguousarray(query, dtype=np.float32)
        multiply: Any = getattr(faiss, "fvec_inner_products_ny")  # noqa: B009  (its type stub lacks it)
        multiply(pointer(scores), pointer(query), pointer(vectors), vectors.shape[1], len(vectors))
    return scores


def scores_of_rows(
    query: Float[np.ndarray, "d"], vectors: Float[np.ndarray, "r d"], rows: Int[np.ndarray, "n"]
) -> Float[np.ndarray, "n"]:
    """(n) inner products of one query with chosen rows. Cost time n D.

    >>> scores_of_rows(np.float32([0, 2]), np.float32([[1, 0], [0, 1]]), np.array([1, 1, 0])).tolist()
    [2.0, 2.0, 0.0]
    """
    scores = np.empty(len(rows), dtype=np.float32)
    if len(rows):
        pointer = faiss.swig_ptr
        query, rows = np.ascontiguousarray(query, dtype=np.float32), np.ascontiguousarray(rows, dtype=np.int64)
        multiply: Any = getattr(faiss, "fvec_inner_products_by_idx")  # noqa: B009  (its type stub lacks it)
        multiply(pointer(scores), pointer(query), pointer(vectors), pointer(rows), vectors.shape[1], 1, len(rows))
    return scores


def settle(
    queries: Float[np.ndarray, "l d"],
    vectors: Float[np.ndarray, "n d"],
    keys: Int[np.ndarray, "n"],
    top: int,
) -> tuple[Int[np.ndarray, "t"], Float[np.ndarray, "t"]]:
    """The `top` items among candidate rows: each once, by its best row and the best view of the query, best first.

    keys  (n) the item that each row belongs to; equal scores stand in the order of the keys

    Sums are taken in float64, row by row: a score depends on its pair alone, and not on where the row lies.

    >>> keys, scores = settle(np.float32([[0, 1]]), np.float32([[1, 0], [0, 1], [0, 0.5]]), np.array([7, 7, 3]), 2)
    >>> keys.tolist(), scores.tolist()
    ([7, 3], [1.0, 0.5])
    """
    products = np.einsum("nd,ld->nl", vectors, queries, dtype=np.float64, casting="same_kind")
    scores = products.max(axis=1).astype(np.float32) if len(vectors) else np.empty(0, dtype=np.float32)
    order = np.lexsort((keys, -scores))
    # Of each item the first in this order, which is its best row.
    best: dict[int, int] = {}
    for row, key in zip(order.tolist(), keys[order].tolist(), strict=True):
        if len(best) == top:
            break
        best.setdefault(key, row)
    best_rows_of_keys: NDArray[np.int64] = np.fromiter(best.values(), dtype=np.int64, count=len(best))
    return keys[best_rows_of_keys], scores[best_rows_of_keys]
