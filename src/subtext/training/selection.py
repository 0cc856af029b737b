"""What validation decides: which weights are kept, when to drop the rate, and when to stop."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from subtext.errors import TrainingError
from subtext.training.plan import Plan


@dataclass(frozen=True)
class Verdict:
    """After an epoch: whether its weights are the ones to keep, and whether training should end."""

    keep: bool
    stop: bool


@dataclass
class Watch:
    """Counters of validation; all of them are part of a checkpoint.

    largest     whether larger is better: rsum, not a loss
    best        best value so far, and its epoch counted from 1
    still       epochs since the best           waiting, drops  of the plateau schedule: epochs since the last drop or
    figures     of the best epoch               best, and drops so far
    """

    largest: bool
    best: float | None = None
    best_epoch: int | None = None
    still: int = 0
    waiting: int = 0
    drops: int = 0
    figures: dict[str, float] | None = None

    def look(self, value: float, figures: Mapping[str, float], *, epoch: int, plan: Plan) -> Verdict:
        """Count an epoch, given from 1, and judge it.

        value  what is watched: rsum, the validation loss, or the training loss where there is no validation

        Raises TrainingError when the value is not a number: a loss that is infinite is one.
        """
        if math.isnan(value):
            raise TrainingError(
                f"epoch {epoch} needs a figure to be judged by; it got one that is not a number; lower the rate"
            )
        better = self.best is None or (value > self.best if self.largest else value < self.best)
        self.still = 0 if better else self.still + 1
        self.waiting = 0 if better else self.waiting + 1
        if plan.schedule == "plateau" and self.waiting > plan.plateau_epochs:
            self.drops += 1
            self.waiting = 0
        if better:
            self.best = value
        keep = better or plan.select == "last"
        if keep:
            self.best_epoch, self.figures = epoch, dict(figures)
        return Verdict(keep=keep, stop=bool(plan.patience) and self.still >= plan.patience)

    def plain(self) -> dict[str, Any]:
        """The counters as JSON takes them."""
        return asdict(self)
