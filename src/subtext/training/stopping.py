"""Which epoch's weights are kept, and when a training ends before its last epoch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from subtext.errors import TrainingError
from subtext.training.plan import Plan


@dataclass
class EarlyStopping:
    """The best epoch so far, and how long ago it was; all of it is a part of a checkpoint.

    Attributes:
        larger_is_better: True for rsum, False for a loss.
        best: The best value so far; None before the first.
        best_epoch: The epoch whose weights are kept, counted from 1; 0 is the model before training.
        epochs_without_improvement: Since the best.
        plateau_count: Epochs without improvement since the best or since the last drop of the learning rate.
        lr_drops: Drops of the learning rate so far, by the plateau schedule.
        figures: Validation of the kept epoch.
        start: Validation before the first step, where it takes part in the selection.
    """

    larger_is_better: bool
    best: float | None = None
    best_epoch: int | None = None
    epochs_without_improvement: int = 0
    plateau_count: int = 0
    lr_drops: int = 0
    figures: dict[str, float] | None = None
    start: dict[str, float] | None = None

    def update(self, value: float, figures: Mapping[str, float], *, epoch: int, plan: Plan) -> tuple[bool, bool]:
        """Count an epoch.

        Args:
            value: What selects: rsum, the validation loss, or the training loss where there is no validation.
            figures: All figures of its validation.
            epoch: Counted from 1; 0 is the model before training.
            plan: Its selection, patience and schedule.

        Returns:
            Whether the weights of this epoch are to be kept, and whether the training should end.

        Raises:
            TrainingError: If the value is not a number. An infinite loss is one.
        """
        if math.isnan(value):
            raise TrainingError(
                f"epoch {epoch} needs a figure to be judged by; it got one that is not a number; lower the rate"
            )
        better = self.best is None or (value > self.best if self.larger_is_better else value < self.best)
        self.epochs_without_improvement = 0 if better else self.epochs_without_improvement + 1
        self.plateau_count = 0 if better else self.plateau_count + 1
        if plan.schedule == "plateau" and self.plateau_count > plan.plateau_patience:
            self.lr_drops += 1
            self.plateau_count = 0
        if better:
            self.best = value
        keep = better or plan.select == "last"
        if keep:
            self.best_epoch, self.figures = epoch, dict(figures)
        return keep, bool(plan.patience) and self.epochs_without_improvement >= plan.patience
