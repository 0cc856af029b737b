"""Between which lines ASP moves: what a random order is expected to give, and the best that scores without ties can."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt
from numpy.typing import NDArray

from subtext.ops.semantic_rank import RankTies


def chance(best: UInt[np.ndarray, "q c"], ties: RankTies = "ordinal") -> Float[np.ndarray, "q"]:
    """Expected ASP of a random order of the candidates.

    best  `ops.semantic_rank.ranks(relevance, "min")`

    With ordinal ranks this is (C + 1) / 2C; where ties share a rank it depends on them.

    >>> chance(np.array([[1, 2, 3, 4]], dtype=np.uint16)).tolist()
    [0.625]
    """
    candidates = best.shape[1]
    if ties == "ordinal":
        return np.full(len(best), (candidates + 1) / (2 * candidates))
    made: NDArray[np.float64] = _each(best, lambda row: _share(*_runs(row), candidates, ties, whole=True))
    return made


def ceiling(best: UInt[np.ndarray, "q c"], ties: RankTies = "ordinal") -> Float[np.ndarray, "q"]:
    """Expected ASP of scores that put every candidate where its relevance does, and equal ones in any order.

    best  `ops.semantic_rank.ranks(relevance, "min")`

    1 where relevance has no ties. A model whose scores tie where the relevance does can be above it.
    Cost  one read of the ranks, and O(C) a query.

    >>> ceiling(np.array([[1, 2, 2]], dtype=np.uint16)).round(6).tolist()  # (1 + (2/2 + 2/3 + 2/3 + 3/3) / 2) / 3
    [0.888889]
    """
    candidates = best.shape[1]
    made: NDArray[np.float64] = _each(best, lambda row: _share(*_runs(row), candidates, ties, whole=False))
    return made


def among_first(
    best: UInt[np.ndarray, "q c"], semantic: UInt[np.ndarray, "q c"], top: int, ties: RankTies = "ordinal"
) -> tuple[Float[np.ndarray, "q"], Float[np.ndarray, "q"]]:
    """Both lines of ASP over the N most relevant candidates alone (`ASP(top=N)`): chance, and the best order.

    best      `ops.semantic_rank.ranks(relevance, "min")`        semantic  the same with the ranks that ASP is told of
    top       N

    NaN for a query of which no N are meant, as ASP has it.

    >>> ranks = np.array([[1, 2, 3]], dtype=np.uint16)
    >>> among_first(np.array([[1, 2, 2]], dtype=np.uint16), ranks, 2)
    (array([0.75]), array([1.]))
    """
    limit = top * (1 + (ties == "average"))

    # The most relevant are a beginning of the list: among them everybody keeps the rank that they had among all.
    def line(kept: NDArray[np.unsignedinteger], *, whole: bool) -> float:
        return _share(*_runs(kept), len(kept), ties, whole=whole) if len(kept) else np.nan

    def both(query: int) -> tuple[float, float]:
        kept = best[query, semantic[query] <= limit]
        if ties == "ordinal" and len(kept):
            return (len(kept) + 1) / (2 * len(kept)), line(kept, whole=False)
        return line(kept, whole=True), line(kept, whole=False)

    with ThreadPoolExecutor(max(1, torch.get_num_threads())) as pool:
        found = np.array(list(pool.map(both, range(len(best)))), dtype=np.float64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _runs(row: NDArray[np.unsignedinteger]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First place and size of each run of equal relevance."""
    sizes = np.bincount(row)
    starts = np.flatnonzero(sizes)
    return starts, sizes[starts]


def _share(
    starts: NDArray[np.int64], sizes: NDArray[np.int64], candidates: int, ties: RankTies, *, whole: bool
) -> float:
    """Mean of min/max of a run's rank and a place drawn from its own (or, `whole`, from all) places."""
    harmonic = _harmonic(candidates)
    lows = np.ones_like(starts) if whole else starts
    highs = np.full_like(starts, candidates) if whole else starts + sizes - 1
    if ties == "ordinal":
        # Sum of min/max over all pairs of places of the run: 1 for each place with itself, twice the pairs below it.
        pairs = (highs * (highs + 1) - lows * (lows - 1)) / 2 - lows * (lows - 1) * (
            harmonic[highs] - harmonic[lows - 1]
        )
        return float(np.where(sizes == 1, 1.0, pairs / sizes).sum() / candidates)
    rank = starts.astype(np.float64) if ties == "min" else starts + (sizes - 1) / 2
    middle = np.clip(np.floor(rank).astype(np.int64), lows, highs)
    lower = (middle * (middle + 1) - lows * (lows - 1)) / 2 / rank
    upper = rank * (harmonic[highs] - harmonic[middle])
    return float(((lower + upper) * sizes / (highs - lows + 1)).sum() / candidates)


def _each(best: NDArray[np.unsignedinteger], share: Callable[[NDArray[np.unsignedinteger]], float]) -> NDArray[Any]:
    """One number a row, in as many threads as torch uses."""
    with ThreadPoolExecutor(max(1, torch.get_num_threads())) as pool:
        return np.array(list(pool.map(share, best)))


def _harmonic(count: int) -> NDArray[np.float64]:
    """H_0 to H_count."""
    return np.concatenate([[0.0], np.cumsum(1 / np.arange(1, count + 1))])
