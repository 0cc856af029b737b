"""Soft ranks on a CUDA GPU: the sums of `soft_rank`, pair by pair in tiles that never leave the chip.

Triton comes with PyTorch's CUDA builds; elsewhere `AVAILABLE` is False, and nothing here is called.
"""

from __future__ import annotations

from typing import Any, no_type_check

import torch
from jaxtyping import Float
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = tl = None

AVAILABLE = triton is not None
"""Whether there is a Triton to compile with."""
_BLOCK = 64
"""Levels of a program, and values that it looks at together."""


@no_type_check
def _tile(values, weights, levels, totals, value_count, level_count, SLOPE: tl.constexpr, BLOCK: tl.constexpr):  # noqa: ANN001, ANN202
    """The sums of BLOCK levels of one row over all of its values; both come divided by the temperature.

    Without types: Triton compiles annotations too, and knows no names but its own.
    """
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    level = tl.load(levels + row * level_count + columns, mask=columns < level_count, other=0.0)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, value_count, BLOCK):
        positions = start + tl.arange(0, BLOCK)
        inside = positions < value_count
        value = tl.load(values + row * value_count + positions, mask=inside, other=0.0)
        weight = tl.load(weights + row * value_count + positions, mask=inside, other=0.0)
        share = tl.sigmoid(value[None, :] - level[:, None])
        if SLOPE:
            share = share * (1.0 - share)
        total += tl.sum(share * weight[None, :], axis=1)
    tl.store(totals + row * level_count + columns, total, mask=columns < level_count)


_KERNEL: Any = triton.jit(_tile) if AVAILABLE else None


def sums(
    values: Float[Tensor, "q m"],
    weights: Float[Tensor, "q m"],
    levels: Float[Tensor, "q c"],
    temperature: float,
    *,
    slope: bool,
) -> Float[Tensor, "q c"]:
    """Weighted sums of sigmoids, or of their slopes, of values above each level; all float32 on one GPU.

    Args:
        values: (Q M).
        weights: (Q M) of the values.
        levels: (Q C).
        temperature: Above 0.
        slope: Sum the slope of the sigmoid instead.

    Returns:
        (Q C).

    Complexity:
        Time Q C M, memory Q C + Q M.
    """
    totals = torch.zeros(levels.shape, dtype=levels.dtype, device=levels.device)
    (rows, count), value_count = levels.shape, values.shape[1]
    if totals.numel() and value_count:
        scaled = ((values / temperature).contiguous(), weights.contiguous(), (levels / temperature).contiguous())
        with torch.cuda.device_of(levels):
            _KERNEL[(rows, triton.cdiv(count, _BLOCK))](*scaled, totals, value_count, count, SLOPE=slope, BLOCK=_BLOCK)
    return totals
