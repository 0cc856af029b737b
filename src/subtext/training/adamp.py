"""AdamP (Heo et al. 2021, algorithm 1 with Adam inside): Adam whose steps do not lengthen weights that have no scale.

A weight that a normalisation follows has no effect through its length, yet Adam's momentum keeps lengthening it, which
slows its turning. Where gradient and weight are nearly at right angles, as they are for such weights, the step's share
along the weight is taken away:

    p      = m' / (sqrt(v') + eps)                           Adam's step, m' and v' corrected for their start
    if  max over rows |cos(w, g)| < delta / sqrt(width):     first row by row, then the tensor as one row
        p  = p - (w . p) w / |w|^2                           and weight decay is multiplied by decay_ratio
    w      = w - lr (p + decay w)

Tensors of fewer than two axes are moved as by AdamW.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class AdamP(Optimizer):
    """Adam with the projection of Heo et al. 2021.

    lr            above 0                      betas         of the running means of gradient and its square
    eps           beside the square root       weight_decay  decoupled, as in AdamW
    delta         how near to a right angle counts; the paper's value is 0.1
    decay_ratio   what weight decay is multiplied by where the step was projected; the paper's value is 0.1
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        delta: float = 0.1,
        decay_ratio: float = 0.1,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "delta": delta,
            "decay_ratio": decay_ratio,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move every weight that has a gradient; gives what the closure gave."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._move(weight, weight.grad, group)
        return loss

    def _move(self, weight: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state = self.state[weight]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"] = torch.zeros_like(weight)
            state["exp_avg_sq"] = torch.zeros_like(weight)
        state["step"] += 1
        count = int(state["step"].item())
        first, second = group["betas"]
        state["exp_avg"].lerp_(grad, 1 - first)
        state["exp_avg_sq"].mul_(second).addcmul_(grad, grad, value=1 - second)
        below = state["exp_avg_sq"].sqrt().div_(math.sqrt(1 - second**count)).add_(group["eps"])
        move = state["exp_avg"] / (1 - first**count) / below
        kept: Tensor | float = 1.0
        if weight.ndim > 1:
            move, turned = project(weight, grad, move, delta=group["delta"])
            kept = torch.where(turned, group["decay_ratio"], 1.0)
        if group["weight_decay"]:
            weight.mul_(1 - group["lr"] * group["weight_decay"] * kept)
        weight.add_(move, alpha=-group["lr"])


def project(weight: Tensor, grad: Tensor, move: Tensor, *, delta: float) -> tuple[Tensor, Tensor]:
    """The step without its share along the weight where gradient and weight are nearly at right angles.

    Gives the step, and () bool whether it was changed. Both tests are made on the device, without waiting for it.
    """
    result, turned = move, torch.zeros((), dtype=torch.bool, device=weight.device)
    for rows in (weight.shape[0], 1):
        w, g, p = weight.reshape(rows, -1), grad.reshape(rows, -1), move.reshape(rows, -1)
        direction = torch.nn.functional.normalize(w, dim=1, eps=1e-8)
        cosine = (direction * torch.nn.functional.normalize(g, dim=1, eps=1e-8)).sum(1).abs()
        hit = (cosine.max() < delta / math.sqrt(w.shape[1])) & ~turned
        flat = (p - (direction * p).sum(1, keepdim=True) * direction).reshape(move.shape)
        result = torch.where(hit, flat, result)
        turned = turned | hit
    return result, turned
