"""Soft ranks: how many values lie above a level, with sigmoids for steps, and a gradient."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

KERNEL_PAIRS = 2**20
"""Pairs of a value and a level from which compiling the kernel pays; a list of 128 against itself 128 times is more."""
BLOCK_PAIRS = 2**22
"""Pairs whose sigmoids the plain way holds at a time; at least those of one row."""


def soft_rank(
    scores: Float[Tensor, "q c"], temperature: float, *, counted: Bool[Tensor, "q c"] | None = None
) -> Float[Tensor, "q c"]:
    """Soft rank of every candidate in its row: 1 is best.

        rank_qi = 1 + sum_{j not i} sigmoid((s_qj - s_qi) / temperature)

    Equal scores share the middle of the ranks that they take; as the temperature falls other ranks become whole.

    temperature  above 0, in score units. Candidates further apart than about ten temperatures have no gradient
    counted      which candidates stand in the list; others get the rank that they would have. None for all

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

    counted  which values count; None for all
    kernel   whether compiled code sums, on a CPU; None for where it pays (`KERNEL_PAIRS`). In float64 its numbers are
             those of the plain way to rounding; in float32 sums differ by up to 5e-8 a value

    A float32 CUDA tensor is summed by Triton where it is there. The gradient reaches levels and values; there is no
    second one.

    Cost  memory Q C + Q M, forwards and backwards; time Q C M pairs, which long float32 rows on a CPU need not look at
          (`soft_rank_kernel`).

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
        from subtext.ops import soft_rank_triton

        if soft_rank_triton.THERE:
            return soft_rank_triton.sums(values, weights, levels, temperature, slope=slope)
    pairs = levels.numel() * values.shape[1]
    if levels.device.type == "cpu" and (pairs >= KERNEL_PAIRS if kernel is None else kernel):
        from subtext.ops import soft_rank_kernel

        first, second, third = (array.detach().numpy() for array in (values, weights, levels))
        return torch.from_numpy(soft_rank_kernel.sums(first, second, third, temperature, slope=slope))
    return plain_sums(values, weights, levels, temperature, slope=slope)


def plain_sums(
    values: Float[Tensor, "q m"],
    weights: Float[Tensor, "q m"],
    levels: Float[Tensor, "q c"],
    temperature: float,
    *,
    slope: bool,
) -> Float[Tensor, "q c"]:
    """The same sums pair by pair, some rows at a time: what the kernels are checked against."""
    rows = max(1, BLOCK_PAIRS // max(1, values.shape[1] * levels.shape[1]))
    totals = torch.empty_like(levels)
    for start in range(0, len(levels), rows):
        cut = slice(start, start + rows)
        share = torch.sigmoid((values[cut, None, :] - levels[cut, :, None]) / temperature)
        if slope:
            share = share * (1 - share)
        totals[cut] = (share @ weights[cut, :, None])[:, :, 0]
    return totals
