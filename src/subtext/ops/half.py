"""bfloat16 where the machine multiplies in it: many times faster there, and slower than float32 anywhere else."""

from __future__ import annotations

from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor


@cache
def native(device: str = "cpu") -> bool:
    """Whether a kind of device ("cpu", "cuda") multiplies matrices of bfloat16 by itself."""
    if device == "cuda":
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    if device != "cpu":
        return False
    # The processor's own instructions; torch would work without them, by way of float32.
    found = (getattr(torch.cpu, f"_is_{name}_supported", None) for name in ("avx512_bf16", "amx_tile"))
    return any(ask is not None and ask() for ask in found)


def product(
    left: Float[Tensor, "*batch n d"], right: Float[Tensor, "*batch m d"], *, half: bool
) -> Float[Tensor, "*batch n m"]:
    """Inner products of rows with rows: in bfloat16 where `half` is asked and the machine has it, else as they are.

    The result is in the precision of what came in; sums are taken in float32 either way.
    """
    with torch.autocast(left.device.type, enabled=False):
        if half and native(left.device.type):
            return (left.bfloat16() @ right.bfloat16().mT).to(left.dtype)
        return left @ right.mT
