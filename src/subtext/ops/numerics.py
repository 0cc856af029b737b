"""Small tensor functions that several parts share."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def unit(vectors: Float[Tensor, "*batch d"], *, epsilon: float = 1e-12) -> Float[Tensor, "*batch d"]:
    """Vectors over their Euclidean length; a zero vector stays zero."""
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
