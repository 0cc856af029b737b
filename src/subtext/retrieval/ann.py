"""Nearest rows by FAISS: inner products with all rows of a matrix, with chosen rows, or with likely lists of rows.

FAISS reads the mapped pages in place: a matrix larger than memory costs no memory of its own. Inverted lists are rows
sorted by the nearest of some centroids, so that a query compares the likeliest lists alone. Their rows are the vectors
themselves, unquantised: what is compared is compared exactly, and recall is lost only by lists that are not searched.
How many lists that takes is measured (`probes_needed`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import faiss
import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray

from subtext.ops import draw

AS_MATRICES = 4096
"""Numbers in all queries together (queries times width) from which on FAISS multiplies matrices: 64 queries on
20,000 x 512 took 23 ms instead of 96. FAISS itself (1.15) begins with 128,000. One query is never a matrix: that took
6.8 ms instead of 1.6."""
ROUNDS = 8
"""Passes of k-means; more of them change recall by less than a point."""
PER_LIST = 40
"""Rows a list that k-means looks at."""
BLOCK = 16_384
"""Rows that are assigned at a time."""
DEPTH = 10
"""Length of the answers that recall is measured on."""

faiss.cvar.distance_compute_blas_threshold = AS_MATRICES


def best_rows(
    queries: Float[np.ndarray, "q d"],
    vectors: Float[np.ndarray, "r d"],
    count: int,
    *,
    dead: Bool[np.ndarray, "r"] | None = None,
) -> Int[np.ndarray, "q t"]:
    """The `count` rows of the largest inner product with each query, in no promised order; -1 where there are fewer.

    Args:
        queries: (Q D) float32.
        vectors: float32 or float16, rows one after the other in memory, R of 1 or more.
        count: Number of rows per query.
        dead: Rows that are passed over.

    Returns:
        (Q T) int64 rows, T the smaller of `count` and R.

    Complexity:
        Time Q R D; memory Q count.

    Example:
        >>> best_rows(np.float32([[0, 1]]), np.float32([[1, 0], [0, 1], [0.6, 0.8]]), 2).tolist()
        [[1, 2]]
    """
    queries = np.ascontiguousarray(queries, dtype=np.float32)
    count = min(count, len(vectors))
    step = len(vectors) if vectors.dtype == np.float32 else BLOCK
    found = []
    for start in range(0, len(vectors), step):
        block = widened(vectors[start : start + step])
        rows, scores = _best_of_block(queries, block, count, None if dead is None else dead[start : start + step])
        found.append((np.where(rows < 0, rows, rows + start), np.where(rows < 0, -np.inf, scores)))
    if len(found) == 1:
        return found[0][0]
    rows, scores = (np.concatenate(own, axis=1) for own in zip(*found, strict=True))
    best: NDArray[np.int64] = np.argpartition(-scores, count - 1, axis=1)[:, :count]
    return np.take_along_axis(rows, best, axis=1)


def _best_of_block(
    queries: NDArray[np.float32], vectors: NDArray[np.float32], count: int, dead: NDArray[np.bool_] | None
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The best rows of each query, -1 where there are fewer, and their products."""
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
    return rows, scores


def widened(vectors: Float[np.ndarray, "r d"]) -> Float[np.ndarray, "r d"]:
    """Rows as float32; of float16, which FAISS does in half the time of NumPy, a copy.

    Args:
        vectors: (R D) float32 or float16, rows one after the other in memory.

    Returns:
        (R D) float32.

    Example:
        >>> widened(np.float16([[0.5, -2]])).tolist()
        [[0.5, -2.0]]
    """
    if vectors.dtype != np.float16 or not vectors.size:
        return np.ascontiguousarray(vectors, dtype=np.float32)
    quantizer: Any = faiss.ScalarQuantizer(vectors.shape[1], faiss.ScalarQuantizer.QT_fp16)
    wide, codes = np.empty(vectors.shape, dtype=np.float32), np.ascontiguousarray(vectors).view(np.uint8)
    quantizer.decode_c(faiss.swig_ptr(codes), faiss.swig_ptr(wide), len(vectors))
    return wide


def scores_of_rows(
    query: Float[np.ndarray, "d"], vectors: Float[np.ndarray, "r d"], rows: Int[np.ndarray, "n"]
) -> Float[np.ndarray, "n"]:
    """(n) inner products of one query with chosen rows. Cost time n D.

    Args:
        query: (D) float32.
        vectors: (R D) float32 or float16, rows one after the other in memory.
        rows: (n) int64 row numbers.

    Returns:
        (n) float32 inner products.

    Example:
        >>> scores_of_rows(np.float32([0, 2]), np.float32([[1, 0], [0, 1]]), np.array([1, 1, 0])).tolist()
        [2.0, 2.0, 0.0]
    """
    if vectors.dtype == np.float16:
        blocks = [widened(vectors[rows[start : start + BLOCK]]) for start in range(0, len(rows), BLOCK)]
        return np.concatenate([np.zeros(0, dtype=np.float32), *(block @ query for block in blocks)])
    scores = np.empty(len(rows), dtype=np.float32)
    if len(rows):
        pointer = faiss.swig_ptr
        query, rows = np.ascontiguousarray(query, dtype=np.float32), np.ascontiguousarray(rows, dtype=np.int64)
        multiply: Any = getattr(faiss, "fvec_inner_products_by_idx")  # noqa: B009  (its type stub lacks it)
        multiply(pointer(scores), pointer(query), pointer(vectors), pointer(rows), vectors.shape[1], 1, len(rows))
    return scores


def rescore_top_k(
    queries: Float[np.ndarray, "l d"],
    vectors: Float[np.ndarray, "n d"],
    keys: Int[np.ndarray, "n"],
    top: int,
) -> tuple[Int[np.ndarray, "t"], Float[np.ndarray, "t"]]:
    """The `top` items among candidate rows: each once, by its best row and the best view of the query, best first.

    Sums are taken in float64, row by row: a score depends on its pair alone, and not on where the row lies.

    Args:
        queries: (L D) float32 views of one query.
        vectors: (n D) float32 candidate rows.
        keys: (n) the item that each row belongs to; equal scores stand in the order of the keys.
        top: Number of hits, 1 or more.

    Returns:
        Keys and float32 scores of at most `top` items, best first.

    Example:
        >>> vectors = np.float32([[1, 0], [0, 1], [0, 0.5]])
        >>> keys, scores = rescore_top_k(np.float32([[0, 1]]), vectors, np.array([7, 7, 3]), 2)
        >>> keys.tolist(), scores.tolist()
        ([7, 3], [1.0, 0.5])
    """
    products = np.einsum("nd,ld->nl", vectors, queries, dtype=np.float64, casting="same_kind")
    scores = products.max(axis=1).astype(np.float32) if len(vectors) else np.empty(0, dtype=np.float32)
    order = np.lexsort((keys, -scores))
    # Of each item the first in this order, which is its best row.
    chosen = order[np.sort(np.unique(keys[order], return_index=True)[1])][:top]
    return keys[chosen], scores[chosen]


def wanted(recall: float) -> float:
    """The share that held-out queries have to find, so that others find a recall: they are few, and measure it nearly.

    Args:
        recall: That is promised.

    Returns:
        A quarter of the way to 1.

    Example:
        >>> round(wanted(0.98), 4)
        0.985
    """
    return recall + (1 - recall) / 4


def list_count(rows: int) -> int:
    """The number of lists: about twice the square root of the rows, so that centroids and lists cost alike.

    Args:
        rows: Number of rows.

    Returns:
        A power of two, 16 or more.

    Example:
        >>> list_count(100), list_count(1_000_000)
        (16, 2048)
    """
    return 2 ** max(4, round(np.log2(2 * np.sqrt(max(1, rows)))))


def train(vectors: Float[np.ndarray, "r d"], count: int, *, seed: int) -> Float[np.ndarray, "c d"]:
    """(C D) centroids of unit length, by spherical k-means on a drawn sample.

    Args:
        vectors: float32; may be memory-mapped: only the sample is read.
        count: C, at most R.
        seed: Of what is sampled; the same seed samples the same.

    Returns:
        (C D) float32 centroids.

    Complexity:
        Time min(R, 40 C) C D, eight times over.
    """
    chosen = draw.permutation(len(vectors), seed=seed, epoch=0, purpose="lists: sample")[: count * PER_LIST]
    sample = np.ascontiguousarray(vectors[np.sort(chosen)], dtype=np.float32)
    start = draw.permutation(len(sample), seed=seed, epoch=0, purpose="lists: start")[:count]
    means = faiss.Kmeans(
        vectors.shape[1], count, niter=ROUNDS, spherical=True, min_points_per_centroid=1,
        max_points_per_centroid=PER_LIST + 1, seed=seed + 1,
    )  # fmt: skip
    means.train(sample, init_centroids=sample[start])
    return np.ascontiguousarray(means.centroids, dtype=np.float32)


def assign(vectors: Float[np.ndarray, "r d"], centroids: Float[np.ndarray, "c d"]) -> Int[np.ndarray, "r"]:
    """(R) int64 list of each row: the centroid of the largest inner product. Cost time R C D.

    Args:
        vectors: (R D) float32.
        centroids: (C D) float32.

    Returns:
        (R) int64 numbers of lists.
    """
    assigned = np.empty(len(vectors), dtype=np.int64)
    for start in range(0, len(vectors), BLOCK):
        block = np.ascontiguousarray(vectors[start : start + BLOCK], dtype=np.float32)
        assigned[start : start + len(block)] = best_rows(block, centroids, 1)[:, 0]
    return assigned


def likeliest(query: Float[np.ndarray, "d"], centroids: Float[np.ndarray, "c d"], probes: int) -> Int[np.ndarray, "p"]:
    """The `probes` lists whose centroids are nearest, in ascending order, as they lie on the disk.

    Args:
        query: (D) float32.
        centroids: (C D) float32.
        probes: Number of lists, at most C.

    Returns:
        (P) numbers of lists, ascending.
    """
    scores = centroids @ query
    return np.sort(np.argpartition(scores, len(scores) - probes)[len(scores) - probes :])


def rows_in(lists: Int[np.ndarray, "p"], offsets: Int[np.ndarray, "c1"]) -> Int[np.ndarray, "n"]:
    """The rows of some lists; list c holds rows offsets[c] to offsets[c + 1].

    Args:
        lists: (P) numbers of lists, ascending.
        offsets: (C + 1) first row of each list.

    Returns:
        (n) int64 row numbers.

    Example:
        >>> rows_in(np.array([0, 2]), np.array([0, 2, 5, 6])).tolist()
        [0, 1, 5]
    """
    starts = offsets[lists]
    lengths = offsets[lists + 1] - starts
    ends = np.cumsum(lengths)
    rows: NDArray[np.int64] = np.arange(ends[-1] if len(ends) else 0, dtype=np.int64)
    return rows + np.repeat(starts - ends + lengths, lengths)


def probes_needed(
    queries: Sequence[NDArray[np.float32]],
    vectors: Float[np.ndarray, "r d"],
    centroids: Float[np.ndarray, "c d"],
    offsets: Int[np.ndarray, "c1"],
    recall: float,
    probes: int | None = None,
) -> tuple[int, list[float]]:
    """The number of lists that find so much of the ten nearest rows for each set of queries; up to 1/16 too large.

    A query that is itself a row is passed over as its own answer.

    Args:
        queries: Sets of (Q D), each with that recall: images and texts lie apart, and their neighbours differ.
        vectors: (R D) float32, sorted by list.
        centroids: (C D) float32.
        offsets: (C + 1) first row of each list.
        recall: Share of the nearest rows, up to 1.
        probes: A number that is set; None to choose it.

    Returns:
        The number and the recall of each set.

    Complexity:
        Time Q R D for the exact answers.
    """
    ranks: list[list[NDArray[np.int64]]] = []
    for group in queries:
        ranks.append([])
        for query, rows in zip(group, best_rows(group, vectors, DEPTH + 1), strict=True):
            rows = rows[rows >= 0]
            rows = rows[np.argsort(-scores_of_rows(query, vectors, rows), kind="stable")]
            neighbours = rows[1:] if np.array_equal(vectors[rows[0]], query) else rows[:DEPTH]
            lists = np.searchsorted(offsets, neighbours, side="right") - 1
            # The rank of a list is the number of lists that a query compares before it.
            ranks[-1].append(np.argsort(np.argsort(-(centroids @ query)))[lists])

    def recalls(probes: int) -> list[float]:
        return [float(np.mean([(own < probes).mean() if len(own) else 1.0 for own in group])) for group in ranks]

    if probes is not None:
        return min(probes, len(centroids)), recalls(probes)
    few, enough = 0, 1
    while enough < len(centroids) and min(recalls(enough), default=1.0) < recall:
        few, enough = enough, min(2 * enough, len(centroids))
    while enough - few > max(1, enough // 16):
        middle = (few + enough) // 2
        few, enough = (few, middle) if min(recalls(middle), default=1.0) >= recall else (middle, enough)
    return enough, recalls(enough)
