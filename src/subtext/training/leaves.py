"""Embeddings cut off from the graph that made them, and their gradients sent back through it (`step`)."""

from __future__ import annotations

from dataclasses import fields, replace

import torch
from torch import Tensor

from subtext.core import Embeddings


def _differentiable(items: Embeddings) -> dict[str, Tensor]:
    values = {f.name: getattr(items, f.name) for f in fields(items)}
    return {name: value for name, value in values.items() if value is not None and value.requires_grad}


def send_back(piece: Embeddings, whole: Embeddings, rows: slice) -> None:
    """Send the gradients that the whole batch's embeddings have got through the graph of a piece, its `rows`."""
    outputs: list[Tensor] = []
    grads: list[Tensor] = []
    for name, value in _differentiable(piece).items():
        grad = getattr(whole, name).grad
        if grad is not None:
            outputs.append(value)
            grads.append(grad[rows, : value.shape[1]])
    if outputs:
        torch.autograd.backward(outputs, grads)


def leaf(items: Embeddings) -> Embeddings:
    """The same items without their graph; what is a number of them takes a gradient."""
    floating = {
        f.name: value.detach().requires_grad_()
        for f in fields(items)
        if (value := getattr(items, f.name)) is not None and value.is_floating_point()
    }
    return replace(items, **floating)


def at_least_single(items: Embeddings) -> Embeddings:
    """The same items in float32 where they came in half precision."""
    halves = {
        f.name: value.float()
        for f in fields(items)
        if (value := getattr(items, f.name)) is not None and value.dtype in (torch.bfloat16, torch.float16)
    }
    return replace(items, **halves) if halves else items
