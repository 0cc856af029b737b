"""Neighbours by a graph that is walked instead of by comparing all (HNSW, Malkov and Yashunin 2018; FAISS)."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int

from subtext.ops.nearest import NearestRows

LINKS, BUILD = 32, 200
"""Links a node, and how many candidates are looked at for them."""


def approximate_rows(
    vectors: Float[np.ndarray, "n d"],
    *,
    count: int,
    candidates: Bool[np.ndarray, "n"],
    groups: Int[np.ndarray, "g n"],
) -> NearestRows:
    """As `ops.nearest.nearest_rows` in L2, faster on large sets, without a promise: some neighbours are missed.

    The walk looks at 2 `count` candidates or more for each row, and asks for as many more than `count` as the largest
    of a row's groups has members, at most `count`; lists may stay shorter than `count`.
    """
    import faiss

    index = faiss.IndexHNSWFlat(vectors.shape[1], LINKS)
    index.hnsw.efConstruction = BUILD
    rows = np.flatnonzero(candidates)
    index.add(np.ascontiguousarray(vectors[rows], dtype=np.float32))
    barred = sum(int(np.bincount(np.unique(line, return_inverse=True)[1]).max()) for line in groups)
    asked = min(len(rows), count + min(count, barred + 1))
    index.hnsw.efSearch = 2 * asked
    squared, found = index.search(np.ascontiguousarray(vectors, dtype=np.float32), asked)
    missing = found < 0
    names = rows[np.where(missing, 0, found)]
    own = np.arange(len(vectors))[:, None]
    for line in groups:
        missing |= line[names] == line[:, None]
    missing |= names == own
    front = np.argsort(missing, axis=1, kind="stable")[:, :count]
    gone = np.take_along_axis(missing, front, axis=1)
    result = np.where(gone, -1, np.take_along_axis(names, front, axis=1)).astype(np.int32)
    scores = np.where(gone, -np.inf, -0.5 * np.take_along_axis(squared, front, axis=1)).astype(np.float32)
    short = ((0, 0), (0, count - result.shape[1]))
    return NearestRows(np.pad(result, short, constant_values=-1), np.pad(scores, short, constant_values=-np.inf))
