"""The compiled part of sums of sparse products over groups.

Threads are Python threads with the interpreter's lock released, as in `rank_kernel.py`; the machine code is made when
it is first called and is never written to disk.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, no_type_check

import numpy as np
from numpy.typing import NDArray

_GROUPS = 32
"""Groups that a thread takes at a time."""


class Group(NamedTuple):
    """Entries of groups: starts (G + 1), and of each entry its feature, weight and kind; features rise in a group."""

    starts: NDArray[np.int64]
    features: NDArray[np.int64]
    weights: NDArray[np.float32]
    kinds: NDArray[np.int64]


class Posting(NamedTuple):
    """Features: starts (V + 1), and of each candidate that has the feature its row, weight and kind.

    Rows without a sign need no test for being counted from the end, which takes a third of the time.
    """

    starts: NDArray[np.int64]
    rows: NDArray[np.uint32]
    weights: NDArray[np.float32]
    kinds: NDArray[Any]


@no_type_check
def _fill(
    first: int,
    last: int,
    group: Group,
    posting: Posting,
    decay: NDArray[np.float32],
    out: NDArray[np.float32],
) -> None:
    """Rows first to last of the products into the same number of rows of out, float32."""
    width = decay.shape[1]
    factors = np.zeros(width, np.float32)
    for number in range(first, last):
        row = out[number - first]
        row[:] = np.float32(0)
        entry, end = group.starts[number], group.starts[number + 1]
        while entry < end:
            feature = group.features[entry]
            begin, stop = posting.starts[feature], posting.starts[feature + 1]
            rows, weights, kinds = posting.rows[begin:stop], posting.weights[begin:stop], posting.kinds[begin:stop]
            factors[:] = np.float32(0)
            while entry < end and group.features[entry] == feature:
                weight, kind = group.weights[entry], group.kinds[entry]
                for column in range(width):
                    factors[column] += weight * decay[kind, column]
                entry += 1
            if width == 1:
                factor = factors[0]
                for index in range(len(rows)):
                    row[rows[index]] += factor * weights[index]
            else:
                for index in range(len(rows)):
                    row[rows[index]] += factors[kinds[index]] * weights[index]


@functools.cache
def _compiled() -> Callable[..., None]:
    import numba

    return numba.njit(nogil=True)(_fill)


def fill(group: Group, posting: Posting, decay: NDArray[np.float32], out: NDArray[Any], threads: int) -> None:
    """The products of all groups with all candidates into out (G C), which may be of another precision."""
    run = _compiled()
    count, candidates = out.shape
    direct = out.dtype == np.float32

    def part(first: int) -> None:
        last = min(count, first + _GROUPS)
        block = np.asarray(out[first:last]) if direct else np.empty((last - first, candidates), np.float32)
        run(first, last, group, posting, decay, block)
        if not direct:
            out[first:last] = block

    firsts = range(0, count, _GROUPS)
    if threads == 1:
        for first in firsts:
            part(first)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(part, firsts))
