"""Products in bfloat16 where the hardware supports it: many times faster there, slower than float32 elsewhere."""

from __future__ import annotations

from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from subtext.ops.numerics import padded_to


@cache
def supported(device: str = "cpu") -> bool:
    """Whether a device type ("cpu", "cuda") has instructions for products of bfloat16 matrices."""
    if device == "cuda":
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    if device != "cpu":
        return False
    # Without these instructions torch computes by way of float32.
    checks = (getattr(torch.cpu, f"_is_{name}_supported", None) for name in ("avx512_bf16", "amx_tile"))
    return any(check is not None and check() for check in checks)


def in_inference(bf16: bool) -> bool:
    """Whether to use bfloat16 now: never while gradients are recorded."""
    return bf16 and not torch.is_grad_enabled()


def product(
    left: Float[Tensor, "*batch n d"], right: Float[Tensor, "*batch m d"], *, bf16: bool
) -> Float[Tensor, "*batch n m"]:
    """Inner products of rows with rows, in bfloat16 where `bf16` is set and the device supports it.

    The result has the input's precision; sums are taken in float32 either way.
    """
    with torch.autocast(left.device.type, enabled=False):
        if bf16 and supported(left.device.type):
            return (left.bfloat16() @ right.bfloat16().mT).to(left.dtype)
        return left @ right.mT


def linear(
    values: Float[Tensor, "*batch d"],
    weight: Float[Tensor, "m d"],
    bias: Float[Tensor, "m"] | None = None,
    *,
    bf16: bool,
) -> Float[Tensor, "*batch m"]:
    """A linear map by `product`; the bias is added in the input's precision."""
    if not (bf16 and supported(values.device.type)):
        return torch.nn.functional.linear(values, weight, bias)
    mapped = product(values.reshape(-1, values.shape[-1]), weight, bf16=True).view(*values.shape[:-1], len(weight))
    return mapped if bias is None else mapped + bias


def square_linear(
    values: Float[Tensor, "*batch d"],
    weight: Float[Tensor, "m m"],
    bias: Float[Tensor, "m"] | None = None,
    *,
    bf16: bool,
) -> Float[Tensor, "*batch d"]:
    """`linear` from a space to itself: zeros that pad values beyond M (`numerics.padded`) stay zeros."""
    width = values.shape[-1]
    return linear(values, padded_to(weight, width, width), None if bias is None else padded_to(bias, width), bf16=bf16)


def product_minus(
    left: Float[Tensor, "b n p"], right: Float[Tensor, "b p d"], subtrahend: Float[Tensor, "b n d"], *, bf16: bool
) -> Float[Tensor, "b n d"]:
    """Left @ right - subtrahend: multiplied as in `product`, subtracted in the input's precision."""
    if bf16 and supported(left.device.type):
        return product(left, right.mT, bf16=True).sub_(subtrahend)
    return torch.baddbmm(subtrahend, left, right, beta=-1)
