"""The compiled part of soft ranks: sums of sigmoids over a row, without looking at every pair.

    sum_j weight_j f((value_j - level_i) / temperature)        f the sigmoid, or its slope

Of a long row the values are spread onto a grid of nodes a quarter of a temperature apart, each onto the eight nodes
about it with the weights of Lagrange's polynomials. On the grid f is a short stencil: beyond 17 temperatures a float32
sigmoid is 0 or 1 to rounding, and what lies beyond is counted. The sums at the nodes are a smooth curve, which the same
polynomials read at the levels. The error of f is below 5e-8, of its slope below 2e-7. Where the nodes would be more
work than the pairs, and in float64, values are sorted, what lies beyond the window is counted, and the rest is summed.

Threads are Python threads over blocks of rows, as in `rank_kernel`; the machine code is made at the first call (some
seconds) and never written to disk.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, no_type_check

import numpy as np
import torch
from numpy.typing import NDArray

NODES = 4
"""Nodes a temperature."""
REACH = 68
"""Nodes from which a float32 sigmoid is 0 or 1 to rounding: 17 temperatures."""
FAR = 40.0
"""Temperatures from which a float64 sigmoid is."""
PAIR_COST = 8
"""What summing a pair costs, in nodes of a stencil."""
BLOCK_CELLS = 2**15
"""Values, or levels, that are worked on at a time: they stay in the cache."""


def sums(
    values: NDArray[Any],
    weights: NDArray[Any],
    levels: NDArray[Any],
    temperature: float,
    *,
    slope: bool,
    threads: int | None = None,
) -> NDArray[Any]:
    """(Q C) weighted sums of sigmoids (or of their slopes) of (Q M) values above each of (Q C) levels.

    All arrays are of one type, float32 or float64; sums are made in float64. A row with a number that is not finite
    gives NaN.

    threads  how many; None for as many as torch uses
    """
    totals = np.zeros_like(levels)
    rows, value_count = values.shape
    if not totals.size or not value_count:
        return totals
    parts = max(1, min(threads or torch.get_num_threads(), rows))
    edges = np.linspace(0, rows, parts + 1).astype(np.int64)
    step = max(1, BLOCK_CELLS // max(value_count, levels.shape[1]))

    def part(number: int) -> None:
        for start in range(int(edges[number]), int(edges[number + 1]), step):
            cut = slice(start, min(start + step, int(edges[number + 1])))
            totals[cut] = _sum_rows(values[cut], weights[cut], levels[cut], temperature, slope)

    if parts == 1:
        part(0)
    else:
        with ThreadPoolExecutor(parts) as pool:
            list(pool.map(part, range(parts)))
    return totals


def _sum_rows(
    values: NDArray[Any], weights: NDArray[Any], levels: NDArray[Any], temperature: float, slope: bool
) -> NDArray[np.float64]:
    """The sums of a few rows, each in the way that is less work for it."""
    exact = levels.dtype == np.float64
    lowest = np.minimum(values.min(axis=1), levels.min(axis=1)).astype(np.float64)
    highest = np.maximum(values.max(axis=1), levels.max(axis=1)).astype(np.float64)
    sound = np.isfinite(lowest) & np.isfinite(highest) & np.isfinite(weights).all(axis=1)
    lowest[~sound], highest[~sound] = 0, 0
    # In temperatures above the lowest, and of one type to compile for.
    scaled_values, scaled_levels = ((array - lowest[:, None]) / temperature for array in (values, levels))
    shares = weights.astype(np.float64)
    nodes = (highest - lowest) / temperature * NODES + 2 * REACH
    pairs = exact | (nodes * (2 * REACH + 1) > PAIR_COST * values.shape[1] * levels.shape[1])
    totals = np.full(levels.shape, np.nan)
    over_pairs, over_grid = _compiled()
    if (rows := np.flatnonzero(sound & pairs)).size:
        order = scaled_values[rows].argsort(axis=1)
        rising, ordered = (np.take_along_axis(array[rows], order, axis=1) for array in (scaled_values, shares))
        over_pairs(rising, ordered, scaled_levels, rows, FAR if exact else REACH / NODES, slope, totals)
    if (rows := np.flatnonzero(sound & ~pairs)).size:
        over_grid(scaled_values, shares, scaled_levels, rows, nodes.astype(np.int64), _stencil(slope), slope, totals)
    return totals


def _stencil(slope: bool) -> NDArray[np.float32]:
    """(REACH + 1) the slope at 0, 1, 2 ... nodes; or the sigmoid there less 1, which is what a whole count misses."""
    shares = 1 / (1 + np.exp(-np.arange(REACH + 1) / NODES))
    return (shares * (1 - shares) if slope else shares - 1).astype(np.float32)


@no_type_check
def _over_pairs(
    values: NDArray[Any],
    weights: NDArray[Any],
    levels: NDArray[Any],
    rows: NDArray[np.int64],
    reach: float,
    slope: bool,
    totals: NDArray[Any],
) -> None:
    """The sums of some rows, whose values rise, over pairs within reach; values beyond count whole or not at all."""
    for line in range(len(rows)):
        row, count = rows[line], values.shape[1]
        beyond = np.zeros(count + 1)
        for index in range(count - 1, -1, -1):
            beyond[index] = beyond[index + 1] + weights[line, index]
        for column in range(levels.shape[1]):
            level = levels[row, column]
            first, last = 0, count
            while first < last:
                middle = (first + last) // 2
                if values[line, middle] < level - reach:
                    first = middle + 1
                else:
                    last = middle
            total, index = 0.0, first
            while index < count and values[line, index] <= level + reach:
                # Of -|x|, so that the exponential never overflows.
                x = values[line, index] - level
                low = math.exp(-abs(x))
                share = 1 / (1 + low)
                if slope:
                    total += weights[line, index] * low * share * share
                else:
                    total += weights[line, index] * (share if x >= 0 else low * share)
                index += 1
            totals[row, column] = total if slope else total + beyond[index]


@no_type_check
def _over_grid(
    values: NDArray[Any],
    weights: NDArray[Any],
    levels: NDArray[Any],
    rows: NDArray[np.int64],
    nodes: NDArray[np.int64],
    stencil: NDArray[Any],
    slope: bool,
    totals: NDArray[Any],
) -> None:
    """The sums of some rows by a grid of so many nodes, REACH empty ones on either side among them."""
    for row in rows:
        grid = np.zeros(nodes[row] + 10)
        _spread(values[row], weights[row], grid[REACH:])
        window = np.zeros(len(grid) - 2 * REACH, np.float32)
        _gather(grid.astype(np.float32), window, stencil, np.float32(1 if slope else -1))
        _read(_summed(grid[REACH:], window, stencil[0], slope), levels[row], totals[row])


@no_type_check
def _shares(at: float) -> tuple[Any, ...]:
    """The first of the eight nodes about a place, and the share that each of them has in it (Lagrange)."""
    node = int(at)
    d = at - node
    a, b, c, e, f, g, h = d + 3, d + 2, d + 1, d - 1, d - 2, d - 3, d - 4
    ab, cd, ef, gh = a * b, c * d, e * f, g * h
    upper, lower = ef * gh, ab * cd
    return (
        node,
        -upper * b * cd * (1 / 5040),
        upper * a * cd * (1 / 720),
        -upper * ab * d * (1 / 240),
        upper * ab * c * (1 / 144),
        -lower * f * gh * (1 / 144),
        lower * e * gh * (1 / 240),
        -lower * ef * h * (1 / 720),
        lower * ef * g * (1 / 5040),
    )


@no_type_check
def _spread(values: NDArray[Any], weights: NDArray[Any], grid: NDArray[Any]) -> None:
    """Add each weight to the eight nodes about its value; the lowest value stands at node 3."""
    for index in range(len(values)):
        node, s0, s1, s2, s3, s4, s5, s6, s7 = _shares(values[index] * NODES)
        weight = weights[index]
        grid[node] += weight * s0
        grid[node + 1] += weight * s1
        grid[node + 2] += weight * s2
        grid[node + 3] += weight * s3
        grid[node + 4] += weight * s4
        grid[node + 5] += weight * s5
        grid[node + 6] += weight * s6
        grid[node + 7] += weight * s7


@no_type_check
def _gather(grid: NDArray[Any], window: NDArray[Any], stencil: NDArray[Any], sign: float) -> None:
    """Add to every node what the nodes within reach count there by the stencil; in float32, lower ones with a sign."""
    nodes = len(window)
    for distance in range(1, REACH + 1):
        share = stencil[distance]
        higher, lower = (
            grid[REACH + distance : REACH + distance + nodes],
            grid[REACH - distance : REACH - distance + nodes],
        )
        for node in range(nodes):
            window[node] += share * (higher[node] + sign * lower[node])


@no_type_check
def _summed(grid: NDArray[Any], window: NDArray[Any], middle: float, slope: bool) -> NDArray[Any]:
    """The sum at every node: what is near, the node itself, and of sigmoids all higher nodes whole."""
    sums, at_node, beyond, total = np.empty(len(window)), middle if slope else 0.5, 0.0 if slope else 1.0, 0.0
    for node in range(len(window) - 1, -1, -1):
        sums[node] = window[node] + at_node * grid[node] + beyond * total
        total += grid[node]
    return sums


@no_type_check
def _read(curve: NDArray[Any], levels: NDArray[Any], result: NDArray[Any]) -> None:
    """What the curve through the nodes is at every level."""
    for index in range(len(levels)):
        node, s0, s1, s2, s3, s4, s5, s6, s7 = _shares(levels[index] * NODES)
        result[index] = (
            (s0 * curve[node] + s1 * curve[node + 1])
            + (s2 * curve[node + 2] + s3 * curve[node + 3])
            + (s4 * curve[node + 4] + s5 * curve[node + 5])
            + (s6 * curve[node + 6] + s7 * curve[node + 7])
        )


@functools.cache
def _compiled() -> tuple[Callable[..., None], Callable[..., None]]:
    """Both ways as machine code; what is called is compiled under the names that callers know it by."""
    import numba

    make = numba.njit(nogil=True, fastmath={"contract", "nsz", "reassoc"})
    names: dict[str, Any] = dict(globals())

    def bound(function: Any) -> Any:
        return type(function)(function.__code__, names, function.__name__)

    for function in (_shares, _spread, _gather, _summed, _read):
        names[function.__name__] = make(bound(function))
    return make(_over_pairs), numba.njit(nogil=True)(bound(_over_grid))
