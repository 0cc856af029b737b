"""Ranks of the candidates of a query, and the agreement of two rankings, from which ASP is computed.

Two lists over the same candidates are compared place by place: 1 where both rank a candidate alike, towards 0 where one
has it far above the other. Numbers are summed as whole multiples of 2^-40, so the same scores give the same sum to the
bit in any order of candidates, size of block or number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, UInt
from numpy.typing import NDArray

from subtext.errors import RequirementError, ShapeError

RankTies = Literal["ordinal", "min", "average"]
"""Which ranks equal values get: by column, all the best of them, or all the mean of them."""

KERNEL_CELLS = 2**24
"""Cells of a whole comparison from which compiling the kernel pays."""

_CODES = {"ordinal": 0, "min": 1, "average": 2}
_UNIT = 2.0**40
_LOW, _UP = np.uint64(0xFFFFFFFF), np.uint64(32)


def ranks(
    values: Float[np.ndarray, "q c"], ties: RankTies = "ordinal", *, kernel: bool | None = None
) -> UInt[np.ndarray, "q c"]:
    """Place of each candidate in its row from 1, the largest value first; "average" gives twice the mean place.

    kernel  whether compiled code sorts; None for where it pays. The ranks are the same

    A value that is not a number stands behind every number. Kept as 16 bits where that is enough.
    Cost   one sort of each row; memory 2 bytes (above 32,767 candidates 4) a cell.

    >>> ranks(np.array([[0.9, 0.5, 0.5, 0.2]]), "min").tolist()
    [[1, 2, 2, 4]]
    """
    single = _single(values)
    result = np.empty(values.shape, dtype=np.uint16 if 2 * values.shape[1] < 2**16 else np.uint32)
    if _compiled(kernel, values.size):
        from subtext.ops import semantic_rank_kernel

        semantic_rank_kernel.rank(single.view(np.uint32), _CODES[ties], result)
        return result
    for row, (keys, order) in enumerate(_sorted_rows(single)):
        result[row, order] = _places(keys, ties)
    return result


def agreement(
    scores: Float[np.ndarray, "q c"],
    semantic: UInt[np.ndarray, "r n"],
    ties: RankTies = "ordinal",
    *,
    top: tuple[int, ...] = (),
    within: bool = True,
    kernel: bool | None = None,
) -> Float[np.ndarray, "q l"]:
    """Mean over candidates of min(R_C, R_S) / max(R_C, R_S), with R_S the ranks of the scores, R_C of the relevance.

    semantic  what `ranks` gave for the relevance with the same ties
    top       for each number N a column, over the candidates of semantic rank up to N alone; none for one column over
              all. Equal relevance stays together: with "min" and "average" more or fewer than N may be meant
    within    rank the scores among those N alone; else their places among all candidates count

    Raises ShapeError for ranks of another shape, RequirementError for N below 1.
    Cost   one sort of each row, and one pass over it for each N.

    >>> given = np.array([[4.0, 3.0, 2.0]])
    >>> float(agreement(np.array([[0.1, 0.3, 0.2]]), ranks(given))[0, 0])  # (1/3 + 1/2 + 2/3) / 3
    0.5
    """
    if scores.shape != semantic.shape:
        raise ShapeError(f"semantic ranks must be as the scores are, {scores.shape}; it got {semantic.shape}")
    if top and min(top) < 1:
        raise RequirementError(f"the first N in relevance need N of 1 or more; it got {min(top)}")
    factor = 1 + (ties == "average")
    limits = factor * np.array(top or (scores.shape[1],), dtype=np.int64)
    single = _single(scores)
    if _compiled(kernel, scores.size):
        from subtext.ops import semantic_rank_kernel

        sums, counts = semantic_rank_kernel.agree(single.view(np.uint32), semantic, _CODES[ties], limits, within)
    else:
        sums, counts = np.zeros((2, len(scores), len(limits)), dtype=np.int64)
        for row, (keys, order) in enumerate(_sorted_rows(single)):
            relevance_ranks = semantic[row, order].astype(np.int64)
            for column, limit in enumerate(limits):
                inside = relevance_ranks <= limit
                score_ranks = _places(keys[inside], ties) if within else _places(keys, ties)[inside]
                ratio = np.minimum(score_ranks, relevance_ranks[inside]) / np.maximum(
                    score_ranks, relevance_ranks[inside]
                )
                sums[row, column] = (ratio * _UNIT + 0.5).astype(np.int64).sum()
                counts[row, column] = len(ratio)
    with np.errstate(invalid="ignore"):
        means: NDArray[np.float64] = sums / _UNIT / counts
    return means


def _compiled(kernel: bool | None, cells: int) -> bool:
    return cells >= KERNEL_CELLS if kernel is None else kernel


def _single(values: NDArray[Any]) -> NDArray[np.float32]:
    """Float32 rows in memory with the same order; doubles become their places among the row's different values."""
    if values.dtype != np.float64:
        return np.ascontiguousarray(values, dtype=np.float32)
    single = np.empty(values.shape, dtype=np.float32)
    for row, line in zip(single, values, strict=True):
        row[:] = np.unique(line, return_inverse=True)[1]
        row[np.isnan(line)] = np.nan
    return single


def _sorted_rows(values: NDArray[np.float32]) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.int64]]]:
    """Keys of each row as they rise, which is as its values fall, and the columns that they came from."""
    columns = np.arange(values.shape[1], dtype=np.uint64)
    for row in values:
        bits = (row + np.float32(0)).view(np.uint32)  # -0 becomes 0
        keys = np.where(bits >> 31, bits, np.uint32(0x7FFFFFFF) - bits)
        keys[np.isnan(row)] = 0xFFFFFFFF
        packed = np.sort((keys.astype(np.uint64) << _UP) | columns)
        yield packed >> _UP, (packed & _LOW).astype(np.int64)


def _places(keys: NDArray[np.uint64], ties: RankTies) -> NDArray[np.int64]:
    """Ranks of sorted keys."""
    count = len(keys)
    if ties == "ordinal" or not count:
        return np.arange(1, count + 1)
    first = np.concatenate([[True], keys[1:] != keys[:-1]])
    starts = np.flatnonzero(first)
    stops = np.append(starts[1:], count)
    run = np.cumsum(first) - 1
    shared: NDArray[np.int64] = (starts + 1 if ties == "min" else starts + 1 + stops)[run]
    return shared
