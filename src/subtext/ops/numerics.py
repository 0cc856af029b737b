"""Small tensor functions that several parts share."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn


def unit(vectors: Float[Tensor, "*batch d"], *, epsilon: float = 1e-12) -> Float[Tensor, "*batch d"]:
    """Vectors over their Euclidean length; a zero vector stays zero.

    Args:
        vectors: (... D).
        epsilon: Minimum of the length that is divided by.

    Returns:
        (... D).

    Example:
        >>> unit(torch.tensor([3.0, 4.0])).tolist()
        [0.6000000238418579, 0.800000011920929]
    """
    return torch.nn.functional.normalize(vectors, dim=-1, eps=epsilon)


def xavier(layer: nn.Linear) -> None:
    """Initialise a layer uniformly in +-sqrt(6 / (in + out)), with a bias of zero (Glorot and Bengio 2010).

    Args:
        layer: Changed in place.
    """
    nn.init.xavier_uniform_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def masked_softmax(
    logits: Float[Tensor, "*batch p"], mask: Bool[Tensor, "*batch p"] | None, *, dim: int = -1
) -> Float[Tensor, "*batch p"]:
    """Softmax over the entries where a mask is True; zero elsewhere, and zero all along where nothing is True.

    Args:
        logits: (... P).
        mask: (... P); None for all entries.
        dim: The axis that sums to 1.

    Returns:
        (... P) in [0, 1].
    """
    if mask is None:
        return torch.softmax(logits, dim=dim)
    hidden = logits.masked_fill(~mask, float("-inf"))
    highest = hidden.amax(dim=dim, keepdim=True)
    highest = torch.where(torch.isfinite(highest), highest, torch.zeros_like(highest))
    raised = torch.exp(hidden - highest.detach())
    return raised / raised.sum(dim=dim, keepdim=True).clamp_min(torch.finfo(logits.dtype).tiny)


def parts_first(
    parts: Float[Tensor, "n p d"], mask: Bool[Tensor, "n p"] | None
) -> tuple[Float[Tensor, "n p d"], Bool[Tensor, "n p"] | None]:
    """Each item's parts before its padding, and their mask: a dropped region leaves a gap.

    Args:
        parts: (N P D).
        mask: (N P) which parts exist; None for all.

    Returns:
        Parts and mask in that order, the parts of an item in their old order.
    """
    if mask is None or not bool((mask[:, 1:] & ~mask[:, :-1]).any()):
        return parts, mask
    order = torch.argsort((~mask).byte(), dim=1, stable=True)
    return parts.gather(1, order[:, :, None].expand_as(parts)), mask.gather(1, order)


def masked_mean(parts: Float[Tensor, "n p d"], mask: Bool[Tensor, "n p"] | None) -> Float[Tensor, "n d"]:
    """Mean over the parts that exist; zero for an item without parts.

    Args:
        parts: (N P D).
        mask: (N P) which parts exist; None for all.

    Returns:
        (N D).
    """
    if mask is None:
        return parts.mean(dim=1)
    weight = mask.to(parts.dtype)[:, :, None]
    return (parts * weight).sum(dim=1) / weight.sum(dim=1).clamp_min(1)


def masked_max(scores: Float[Tensor, "q c"], mask: Bool[Tensor, "q c"]) -> Float[Tensor, "q"]:
    """Largest score of each row where a mask is True; minus infinity for a row without any.

    Args:
        scores: (Q C).
        mask: (Q C).

    Returns:
        (Q).
    """
    return scores.masked_fill(~mask, float("-inf")).amax(dim=1)


def masked_logsumexp(scores: Float[Tensor, "q c"], mask: Bool[Tensor, "q c"]) -> Float[Tensor, "q"]:
    """Logarithm of the sum of the exponentials of each row where a mask is True.

    A row without any gives a very low finite number, not minus infinity: its gradient is zero, not NaN.

    Args:
        scores: (Q C).
        mask: (Q C).

    Returns:
        (Q).
    """
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min / 2).logsumexp(dim=1)


def precise(values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Half precision as float32; float32 and float64 stay as they are.

    Args:
        values: Of any shape.

    Returns:
        The same numbers in float32 or float64.
    """
    return values if values.dtype in (torch.float32, torch.float64) else values.float()


@cache
def supported(device: str = "cpu") -> bool:
    """Whether a device has instructions for products of bfloat16 matrices.

    Args:
        device: The type, "cpu" or "cuda".

    Returns:
        False for other types.
    """
    if device == "cuda":
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    if device != "cpu":
        return False
    # Without these instructions torch computes by way of float32.
    checks = (getattr(torch.cpu, f"_is_{name}_supported", None) for name in ("avx512_bf16", "amx_tile"))
    return any(check is not None and check() for check in checks)


def in_inference(bf16: bool) -> bool:
    """Whether to use bfloat16 now: never while gradients are recorded.

    Args:
        bf16: Whether bfloat16 is requested.

    Returns:
        Whether it is requested and no gradients are recorded.
    """
    return bf16 and not torch.is_grad_enabled()


def product(
    left: Float[Tensor, "*batch n d"], right: Float[Tensor, "*batch m d"], *, bf16: bool = False
) -> Float[Tensor, "*batch n m"]:
    """Inner products of rows with rows, in float32 or better even where autocast is on.

    Scores cost little beside an encoder, and scales of up to a hundred multiply them: half precision would save nothing
    and change the order of close candidates.

    Args:
        left: (... N D).
        right: (... M D).
        bf16: Multiply in bfloat16 where the device supports it: many times faster there, slower than float32 elsewhere.
            Sums are in float32 either way.

    Returns:
        (... N M).

    Complexity:
        N M D.
    """
    with torch.autocast(left.device.type, enabled=False):
        if bf16 and supported(left.device.type):
            return (left.bfloat16() @ right.bfloat16().mT).to(left.dtype)
        return precise(left) @ precise(right).mT


def best_views(left: Float[Tensor, "n k d"], right: Float[Tensor, "m l d"]) -> Float[Tensor, "n m"]:
    """Largest inner product over all pairs of views of two items.

    Args:
        left: (N K D), K views of each item.
        right: (M L D), L views of each item.

    Returns:
        (N M).

    Complexity:
        Time N M K L D, memory N M K L.
    """
    count, views, _ = left.shape
    # Views of `right` come before its items: the maximum runs over contiguous rows.
    scores = product(left.flatten(0, 1), right.transpose(0, 1).flatten(0, 1))
    return scores.view(count, views * right.shape[1], len(right)).amax(dim=1)


def at_most(value: Float[Tensor, "*shape"], limit: float) -> Float[Tensor, "*shape"]:
    """Clamp to a maximum, with a gradient that leads back below it.

    A plain clamp has no gradient beyond its limit: a parameter that stepped over it would stay there.

    Args:
        value: Of any shape.
        limit: The maximum.

    Returns:
        The smaller of value and limit, of the same shape.
    """
    return _AtMost.apply(value, limit)


class _AtMost(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, limit: float) -> Tensor:
        ctx.save_for_backward(value > limit)
        return value.clamp_max(limit)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (beyond,) = ctx.saved_tensors
        (gradient,) = gradients
        # Descent moves against the gradient: a positive gradient lowers the value, which is always allowed.
        return torch.where(beyond & (gradient < 0), torch.zeros_like(gradient), gradient), None


LANES = 8
"""Padded rows are a multiple of this: 16 bytes in half precision, 32 in single.

Matrix kernels read several numbers at once. They read, and round, a row differently where it starts at an odd address,
so that scores would depend on their neighbours. Zeros at the end of rows prevent that, and change no product, sum or
length.
"""


def padded(values: Float[Tensor, "*shape"], axes: int = 1) -> Float[Tensor, "*padded"]:
    """Pad the last axes with zeros to a multiple of LANES.

    Args:
        values: Of any shape.
        axes: How many axes to pad.

    Returns:
        The values themselves if nothing is missing.

    Example:
        >>> padded(torch.ones(3)).tolist()
        [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    return padded_to(values, *(-(-size // LANES) * LANES for size in values.shape[values.ndim - axes :]))


def padded_to(values: Float[Tensor, "*shape"], *sizes: int) -> Float[Tensor, "*padded"]:
    """Pad the last axes with zeros to these sizes.

    Args:
        values: Of any shape.
        sizes: Size of each of the last axes; an axis that is larger stays as it is.

    Returns:
        The values themselves if nothing is missing.
    """
    last = values.shape[values.ndim - len(sizes) :]
    missing = [max(size - present, 0) for size, present in zip(sizes, last, strict=True)]
    if not any(missing):
        return values
    return torch.nn.functional.pad(values, [side for size in reversed(missing) for side in (0, size)])


def linear(
    values: Float[Tensor, "*batch d"],
    weight: Float[Tensor, "m d"],
    bias: Float[Tensor, "m"] | None = None,
    *,
    bf16: bool,
) -> Float[Tensor, "*batch m"]:
    """A linear map by `product`; the bias is added in the input's precision.

    Args:
        values: (... D).
        weight: (M D).
        bias: (M); None for none.
        bf16: Multiply in bfloat16 where the device supports it.

    Returns:
        (... M).
    """
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
    """`linear` from a space to itself: zeros that pad values beyond M (`numerics.padded`) stay zeros.

    Args:
        values: (... D), with D at least M.
        weight: (M M).
        bias: (M); None for none.
        bf16: Multiply in bfloat16 where the device supports it.

    Returns:
        (... D).
    """
    width = values.shape[-1]
    return linear(values, padded_to(weight, width, width), None if bias is None else padded_to(bias, width), bf16=bf16)


def product_minus(
    left: Float[Tensor, "b n p"], right: Float[Tensor, "b p d"], subtrahend: Float[Tensor, "b n d"], *, bf16: bool
) -> Float[Tensor, "b n d"]:
    """Left @ right - subtrahend: multiplied as in `product`, subtracted in the input's precision.

    Args:
        left: (B N P).
        right: (B P D).
        subtrahend: (B N D).
        bf16: Multiply in bfloat16 where the device supports it.

    Returns:
        (B N D).

    Complexity:
        B N P D.
    """
    if bf16 and supported(left.device.type):
        return product(left, right.mT, bf16=True).sub_(subtrahend)
    return torch.baddbmm(subtrahend, left, right, beta=-1)
