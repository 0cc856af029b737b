"""Small tensor functions that several parts share."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def unit(vectors: Float[Tensor, "*batch d"], *, epsilon: float = 1e-12) -> Float[Tensor, "*batch d"]:
    """Vectors over their Euclidean length; a zero vector stays zero.

    >>> unit(torch.tensor([3.0, 4.0])).tolist()
    [0.6000000238418579, 0.800000011920929]
    """
    return torch.nn.functional.normalize(vectors, dim=-1, eps=epsilon)


def masked_softmax(
    logits: Float[Tensor, "*batch p"], mask: Bool[Tensor, "*batch p"] | None, *, dim: int = -1
) -> Float[Tensor, "*batch p"]:
    """Softmax over the entries where mask is True; zero elsewhere, and zero all along where nothing is True."""
    if mask is None:
        return torch.softmax(logits, dim=dim)
    hidden = logits.masked_fill(~mask, float("-inf"))
    highest = hidden.amax(dim=dim, keepdim=True)
    highest = torch.where(torch.isfinite(highest), highest, torch.zeros_like(highest))
    raised = torch.exp(hidden - highest.detach())
    return raised / raised.sum(dim=dim, keepdim=True).clamp_min(torch.finfo(logits.dtype).tiny)


def masked_mean(parts: Float[Tensor, "n p d"], mask: Bool[Tensor, "n p"] | None) -> Float[Tensor, "n d"]:
    """Mean over the parts that exist; zero for an item without parts."""
    if mask is None:
        return parts.mean(dim=1)
    weight = mask.to(parts.dtype)[:, :, None]
    return (parts * weight).sum(dim=1) / weight.sum(dim=1).clamp_min(1)


def masked_max(scores: Float[Tensor, "q c"], mask: Bool[Tensor, "q c"]) -> Float[Tensor, "q"]:
    """Largest score of each row where mask is True; minus infinity for a row without any."""
    return scores.masked_fill(~mask, float("-inf")).amax(dim=1)


def masked_logsumexp(scores: Float[Tensor, "q c"], mask: Bool[Tensor, "q c"]) -> Float[Tensor, "q"]:
    """Logarithm of the sum of the exponentials of each row where mask is True.

    A row without any gives a very low finite number, not minus infinity: its gradient is zero, not NaN.
    """
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min / 2).logsumexp(dim=1)


def precise(values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Half precision as float32; float32 and float64 stay as they are."""
    return values if values.dtype in (torch.float32, torch.float64) else values.float()


def product(left: Float[Tensor, "*batch n d"], right: Float[Tensor, "*batch m d"]) -> Float[Tensor, "*batch n m"]:
    """Inner products of rows with rows, in float32 or better even where autocast is on.

    Scores cost little beside an encoder, and scales of up to a hundred multiply them: half precision would save nothing
    and change the order of close candidates.
    """
    with torch.autocast(left.device.type, enabled=False):
        return precise(left) @ precise(right).mT


def best_views(left: Float[Tensor, "n k d"], right: Float[Tensor, "m l d"]) -> Float[Tensor, "n m"]:
    """Largest inner product over all pairs of views of two items."""
    count, views, _ = left.shape
    # Views of `right` come before its items: the maximum runs over contiguous rows.
    scores = product(left.flatten(0, 1), right.transpose(0, 1).flatten(0, 1))
    return scores.view(count, views * right.shape[1], len(right)).amax(dim=1)


def at_most(value: Float[Tensor, "*shape"], limit: float) -> Float[Tensor, "*shape"]:
    """Clamp to a maximum, with a gradient that leads back below it.

    A plain clamp has no gradient beyond its limit: a parameter that stepped over it would stay there.
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
    """Pad the last `axes` axes with zeros to a multiple of LANES.

    >>> padded(torch.ones(3)).tolist()
    [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    return padded_to(values, *(-(-size // LANES) * LANES for size in values.shape[values.ndim - axes :]))


def padded_to(values: Float[Tensor, "*shape"], *sizes: int) -> Float[Tensor, "*padded"]:
    """Pad the last axes with zeros to these sizes; an axis that is larger stays as it is."""
    last = values.shape[values.ndim - len(sizes) :]
    missing = [max(size - present, 0) for size, present in zip(sizes, last, strict=True)]
    if not any(missing):
        return values
    return torch.nn.functional.pad(values, [side for size in reversed(missing) for side in (0, size)])
