"""Averaged weights: an exponential moving average of every step (EMA) or an equal one of epochs (SWA).

    ema   average = d average + (1 - d) weight        after each step, with d = min(decay, (1 + n) / (10 + n)) after n
                                                      of them, so that the first, which know little, are forgotten
    swa   average = (n average + weight) / (n + 1)    after each epoch from `average_from` on (Izmailov et al. 2018)

Running statistics of norms are averaged like weights; they are not counted anew by a pass over the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from subtext.training.plan import Plan


class Average:
    """The average of a model's learning weights and running statistics, in their own type and place."""

    def __init__(self, model: nn.Module, plan: Plan) -> None:
        self._plan = plan
        self._first = int(plan.average_from * plan.epochs)
        self._live: dict[str, Tensor] = {}
        if plan.average != "none":
            self._live.update((name, weight) for name, weight in model.named_parameters() if weight.requires_grad)
            self._live.update((name, held) for name, held in model.named_buffers() if held.is_floating_point())
        self._held: dict[str, Tensor] = {name: value.detach().clone() for name, value in self._live.items()}
        self.count = 0

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The averages by name; empty where the plan wants none."""
        return self._held

    @torch.no_grad()
    def after_step(self) -> None:
        """Count the weights after a step."""
        if self._plan.average == "ema":
            keep = min(self._plan.average_decay, (1 + self.count) / (10 + self.count))
            self._blend(1 - keep)

    @torch.no_grad()
    def after_epoch(self, epoch: int) -> None:
        """Count the weights at the end of an epoch, counted from 0."""
        if self._plan.average == "swa" and epoch >= self._first:
            self._blend(1 / (self.count + 1))

    def restore(self, tensors: Mapping[str, Tensor], count: int) -> None:
        """Go on from a checkpoint."""
        for name, value in self._held.items():
            value.copy_(tensors[name])
        self.count = count

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The model carries the averages inside the block, and its own weights after it."""
        if not self.count:
            yield
            return
        own = {name: value.detach().clone() for name, value in self._live.items()}
        self._put(self._held)
        try:
            yield
        finally:
            self._put(own)

    def _blend(self, share: float) -> None:
        for name, value in self._live.items():
            self._held[name].lerp_(value, share)
        self.count += 1

    @torch.no_grad()
    def _put(self, values: Mapping[str, Tensor]) -> None:
        for name, value in self._live.items():
            value.copy_(values[name])
