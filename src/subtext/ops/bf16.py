"""bfloat16 where the machine multiplies in it: many times faster there, and slower than float32 anywhere else."""

from __future__ import annotations

from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from subtext.ops.numerics import padded_to


@cache
def supported(device: str = "cpu") -> bool:
    """Whether a kind of device ("cpu", "cuda") multiplies matrices of bfloat16 by itself."""
    if device == "cuda":
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    if device != "cpu":
        return False
    # The processor's own instructions; torch would work without them, by way of float32.
    found = (getattr(torch.cpu, f"_is_{name}_supported", None) for name in ("avx512_bf16", "amx_tile"))
    return any(ask is not None and ask() for ask in found)


def in_inference(half: bool) -> bool:
    """Whether half precision that was asked for is to be used now: never while anything is learnt."""
    return half and not torch.is_grad_enabled()


def product(
    left: Float[Tensor, "*batch n d"], right: Float[Tensor, "*batch m d"], *, half: bool
) -> Float[Tensor, "*batch n m"]:
    """Inner products of rows with rows: in bfloat16 where `half` is asked and the machine has it, else as they are.

    The result is in the precision of what came in; sums are taken in float32 either way.
    """
    with torch.autocast(left.device.type, enabled=False):
        if half and supported(left.device.type):
            return (left.bfloat16() @ right.bfloat16().mT).to(left.dtype)
        return left @ right.mT


def linear(
    values: Float[Tensor, "*batch d"],
    weight: Float[Tensor, "m d"],
    bias: Float[Tensor, "m"] | None = None,
    *,
    half: bool,
) -> Float[Tensor, "*batch m"]:
    """A linear map, whose products are `product`'s; the bias is added in the precision of what came in."""
    if not (half and supported(values.device.type)):
        return torch.nn.functional.linear(values, weight, bias)
    found = product(values.reshape(-1, values.shape[-1]), weight, half=True).view(*values.shape[:-1], len(weight))
    return found if bias is None else found + bias


def square_linear(
    values: Float[Tensor, "*batch d"],
    weight: Float[Tensor, "m m"],
    bias: Float[Tensor, "m"] | None = None,
    *,
    half: bool,
) -> Float[Tensor, "*batch d"]:
    """`linear` from a space to itself: zeros that fill values up beyond M (`numerics.padded`) stay zeros."""
    width = values.shape[-1]
    return linear(values, padded_to(weight, width, width), None if bias is None else padded_to(bias, width), half=half)


def product_minus(
    left: Float[Tensor, "b n p"], right: Float[Tensor, "b p d"], taken: Float[Tensor, "b n d"], *, half: bool
) -> Float[Tensor, "b n d"]:
    """Left @ right - taken: multiplied as in `product`, and subtracted in the precision of what came in."""
    if half and supported(left.device.type):
        return product(left, right.mT, half=True).sub_(taken)
    return torch.baddbmm(taken, left, right, beta=-1)
