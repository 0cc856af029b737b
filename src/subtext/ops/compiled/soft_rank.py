"""Soft ranks: how many values lie above a level, with sigmoids for steps, and a gradient.

Compiled code sums sigmoids over a row without looking at every pair:

    sum_j weight_j f((value_j - level_i) / temperature)        f the sigmoid, or its slope

Of a long row the values are spread onto a grid of nodes a quarter of a temperature apart, each onto the eight nodes
about it with the weights of Lagrange's polynomials. On the grid f is a short stencil: beyond 17 temperatures a float32
sigmoid is 0 or 1 to rounding, and what lies beyond is counted. The sums at the nodes are a smooth curve, which the same
polynomials read at the levels. The error of f is below 5e-8, of its slope below 2e-7. Where the nodes would be more
work than the pairs, and in float64, values are sorted, what lies beyond the window is counted, and the rest is summed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, no_type_check

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from subtext.ops.in_threads import in_threads

KERNEL_PAIRS = 2**20
"""Pairs of a value and a level from which compiling the kernel pays; a list of 128 against itself 128 times is more."""
BLOCK_PAIRS = 2**22
"""Pairs whose sigmoids the plain way holds at a time; at least those of one row."""


def soft_rank(
    scores: Float[Tensor, "q c"], temperature: float, *, counted: Bool[Tensor, "q c"] | None = None
) -> Float[Tensor, "q c"]:
    """Soft rank of every candidate in its row; 1 is best.

    With s the scores of a query q::

        rank_qi = 1 + sum_{j not i} sigmoid((s_qj - s_qi) / temperature)

    Equal scores share the middle of the ranks that they take; as the temperature falls other ranks become whole.

    Args:
        scores: (Q C).
        temperature: Above 0, in score units. Candidates further apart than about ten temperatures have no gradient.
        counted: (Q C) which candidates stand in the list; others get the rank that they would have. None for all.

    Returns:
        (Q C) of 1 or more.

    Complexity:
        That of `soft_above`.

    Example:
        >>> soft_rank(torch.tensor([[0.9, 0.5, 0.5]]), 0.01).tolist()
        [[1.0, 2.5, 2.5]]
    """
    above = soft_above(scores, scores, temperature, counted=counted)
    # The candidate itself was counted by half.
    return above + (0.5 if counted is None else 1 - counted.to(scores.dtype) / 2)


def soft_above(
    levels: Float[Tensor, "q c"],
    values: Float[Tensor, "q m"],
    temperature: float,
    *,
    counted: Bool[Tensor, "q m"] | None = None,
    kernel: bool | None = None,
) -> Float[Tensor, "q c"]:
    """How many values of a row lie above each of its levels: sum_j sigmoid((value_j - level_i) / temperature).

    A float32 CUDA tensor is summed by Triton where it is there. The gradient reaches levels and values; there is no
    second one.

    Args:
        levels: (Q C).
        values: (Q M).
        temperature: Above 0, in units of levels and values.
        counted: (Q M) which values count; None for all.
        kernel: Whether compiled code sums, on a CPU; None for where it pays (`KERNEL_PAIRS`). In float64 its numbers
            are those of the plain way to rounding; in float32 sums differ by up to 5e-8 a value.

    Returns:
        (Q C) in [0, M].

    Complexity:
        Memory Q C + Q M, forwards and backwards. Time Q C M pairs, which long float32 rows on a CPU need not look at.

    Example:
        >>> soft_above(torch.tensor([[0.0]]), torch.tensor([[0.0, 9.0, -9.0]]), 0.1).tolist()
        [[1.5]]
    """
    weights = torch.ones_like(values) if counted is None else counted.to(values.dtype)
    return _Above.apply(levels, values, weights, temperature, kernel)


class _Above(torch.autograd.Function):
    """Sums of sigmoids whose backward pass is two sums of slopes; nothing larger than its inputs is kept."""

    @staticmethod
    def forward(
        ctx: Any, levels: Tensor, values: Tensor, weights: Tensor, temperature: float, kernel: bool | None
    ) -> Tensor:
        ctx.save_for_backward(levels, values, weights)
        ctx.temperature, ctx.kernel = temperature, kernel
        return _sums(values, weights, levels, temperature, slope=False, kernel=kernel)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        (gradient,), (levels, values, weights) = gradients, ctx.saved_tensors
        temperature, kernel = ctx.temperature, ctx.kernel
        of_levels = of_values = None
        if ctx.needs_input_grad[0]:
            of_levels = _sums(values, weights, levels, temperature, slope=True, kernel=kernel)
            of_levels = of_levels * gradient / -temperature
        if ctx.needs_input_grad[1]:
            # The slope is the same from both sides: levels and values change places.
            of_values = _sums(levels, gradient, values, temperature, slope=True, kernel=kernel)
            of_values = of_values * weights / temperature
        return of_levels, of_values, None, None, None


def _sums(
    values: Float[Tensor, "q m"],
    weights: Float[Tensor, "q m"],
    levels: Float[Tensor, "q c"],
    temperature: float,
    *,
    slope: bool,
    kernel: bool | None,
) -> Float[Tensor, "q c"]:
    """Weighted sums of the sigmoid, or of its slope, of values above levels; each row by itself."""
    if levels.is_cuda and levels.dtype == torch.float32:
        from subtext.ops.compiled import soft_rank_triton

        if soft_rank_triton.AVAILABLE:
            return soft_rank_triton.sums(values, weights, levels, temperature, slope=slope)
    pairs = levels.numel() * values.shape[1]
    if levels.device.type == "cpu" and (pairs >= KERNEL_PAIRS if kernel is None else kernel):
        first, second, third = (array.detach().numpy() for array in (values, weights, levels))
        return torch.from_numpy(sums(first, second, third, temperature, slope=slope))
    return plain_sums(values, weights, levels, temperature, slope=slope)


def plain_sums(
    values: Float[Tensor, "q m"],
    weights: Float[Tensor, "q m"],
    levels: Float[Tensor, "q c"],
    temperature: float,
    *,
    slope: bool,
) -> Float[Tensor, "q c"]:
    """The same sums pair by pair, some rows at a time: what the kernels are checked against.

    Args:
        values: (Q M).
        weights: (Q M) of the values.
        levels: (Q C).
        temperature: Above 0.
        slope: Sum the slope of the sigmoid instead.

    Returns:
        (Q C).

    Complexity:
        Time Q C M, memory `BLOCK_PAIRS`.
    """
    rows = max(1, BLOCK_PAIRS // max(1, values.shape[1] * levels.shape[1]))
    totals = torch.empty_like(levels)
    for start in range(0, len(levels), rows):
        cut = slice(start, start + rows)
        share = torch.sigmoid((values[cut, None, :] - levels[cut, :, None]) / temperature)
        if slope:
            share = share * (1 - share)
        totals[cut] = (share @ weights[cut, :, None])[:, :, 0]
    return totals


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
    """Weighted sums of sigmoids, or of their slopes, of values above each level, by compiled code.

    All arrays are of one type, float32 or float64; sums are made in float64. A row with a number that is not finite
    gives NaN.

    Args:
        values: (Q M).
        weights: (Q M) of the values.
        levels: (Q C).
        temperature: Above 0.
        slope: Sum the slope of the sigmoid instead.
        threads: How many; None for as many as torch uses.

    Returns:
        (Q C).

    Complexity:
        Of a float32 row: 8 (C + M) and 137 for each of 4 nodes a temperature between its lowest and highest number; or,
        where that is less, its C M pairs within 17 temperatures. Memory of `BLOCK_CELLS` values.
    """
    totals = np.zeros_like(levels)
    rows, value_count = values.shape
    if not totals.size or not value_count:
        return totals

    def sum_block(block: slice) -> None:
        totals[block] = _sum_rows(values[block], weights[block], levels[block], temperature, slope)

    in_threads(sum_block, rows, threads=threads, most=BLOCK_CELLS // max(value_count, levels.shape[1]))
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
        # The slope at 0, 1, 2 ... nodes; or the sigmoid there less 1, which is what a full count misses.
        sigmoids = 1 / (1 + np.exp(-np.arange(REACH + 1) / NODES))
        stencil = (sigmoids * (1 - sigmoids) if slope else sigmoids - 1).astype(np.float32)
        over_grid(scaled_values, shares, scaled_levels, rows, nodes.astype(np.int64), stencil, slope, totals)
    return totals


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
        higher = grid[REACH + distance : REACH + distance + nodes]
        lower = grid[REACH - distance : REACH - distance + nodes]
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
