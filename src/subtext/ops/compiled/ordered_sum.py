"""Sums of sorted values, weighted by rank, without sorting.

Sorting the few parts of an item in every dimension is slow because each sort is tiny and lies across memory. Here the
rank of a value is counted instead: how many others of its item and dimension are larger, a comparison that runs along
memory for all dimensions at once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, no_type_check

import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from subtext.ops.in_threads import in_threads

Array = NDArray[Any]
MOST_PARTS = 255
"""Ranks are kept in a byte."""


def ordered_sum(
    parts: Float[Tensor, "n p d"], lengths: Int[Tensor, "n"], weights: Float[Tensor, "n p"]
) -> Float[Tensor, "n d"]:
    """Weighted sum of the values of each item and dimension, from the largest down.

    Equal values keep the order of their parts. The machine code is made at the first call, about two seconds.

    Args:
        parts: (N P D) float32 on the CPU, P at most `MOST_PARTS`. What lies beyond an item's length is never read.
        lengths: (N) parts of each item.
        weights: (N P) of the ranks: of the largest value, the second largest, and so on.

    Returns:
        (N D). The gradient reaches parts and weights.

    Complexity:
        N P^2 D comparisons, a vector unit's width at a time; memory N P D bytes for the backward pass.
    """
    return _OrderedSum.apply(parts, lengths, weights)


class _OrderedSum(torch.autograd.Function):
    """z_nd = sum over i of w_n,rank(i) x_nid; so dx_nid = w_n,rank(i) g_nd, and dw_nk sums g x where the rank is k."""

    @staticmethod
    def forward(ctx: Any, parts: Tensor, lengths: Tensor, weights: Tensor) -> Tensor:
        parts, weights = parts.detach().contiguous(), weights.detach().contiguous()
        items, longest, width = parts.shape
        out = torch.zeros(items, width)
        ranks = torch.zeros(items, longest, width, dtype=torch.uint8)
        _in_threads(0, parts, lengths, weights, out, ranks)
        ctx.save_for_backward(parts, lengths, weights, ranks)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, Tensor]:
        parts, lengths, weights, ranks = ctx.saved_tensors
        of_parts, of_weights = torch.zeros_like(parts), torch.zeros_like(weights)
        grad = grads[0].contiguous()
        _in_threads(1, parts, lengths, weights, ranks, grad, of_parts, of_weights)
        return of_parts, None, of_weights


def _in_threads(index: int, *tensors: Tensor) -> None:
    """Run a kernel on the items of all tensors."""
    kernel, arrays = _compiled(index), [tensor.numpy() for tensor in tensors]
    in_threads(lambda items: kernel(*(array[items] for array in arrays)), len(arrays[0]))


@functools.cache
def _compiled(index: int) -> Callable[..., None]:
    import numba

    return numba.njit(nogil=True)((_forward, _backward)[index])


@no_type_check
def _forward(parts: Array, lengths: Array, weights: Array, out: Array, ranks: Array) -> None:
    items, _, width = parts.shape
    for item in range(items):
        length = lengths[item]
        for low in range(length):
            low_values, rank = parts[item, low], ranks[item, low]
            for high in range(low + 1, length):
                high_values, high_rank = parts[item, high], ranks[item, high]
                for d in range(width):
                    larger = high_values[d] > low_values[d]
                    rank[d] += larger
                    high_rank[d] += not larger
        total = out[item]
        for part in range(length):
            value, rank = parts[item, part], ranks[item, part]
            for d in range(width):
                total[d] += weights[item, rank[d]] * value[d]


@no_type_check
def _backward(
    parts: Array, lengths: Array, weights: Array, ranks: Array, grad: Array, of_parts: Array, of_weights: Array
) -> None:
    items, _, width = parts.shape
    for item in range(items):
        for part in range(lengths[item]):
            value, rank, slope = parts[item, part], ranks[item, part], of_parts[item, part]
            for d in range(width):
                slope[d] = weights[item, rank[d]] * grad[item, d]
                of_weights[item, rank[d]] += grad[item, d] * value[d]
