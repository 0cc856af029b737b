"""Validation at the end of an epoch: the figures, and the one that selects."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from subtext.core import Epoch
from subtext.data.batches import read_ahead
from subtext.data.dataset import Dataset
from subtext.evaluation import Protocol, Result, evaluate_model
from subtext.models.model import Model
from subtext.training.checkpoints import TrainState
from subtext.training.plan import Plan
from subtext.training.processes import Processes
from subtext.training.relevance import LoadedRelevance
from subtext.training.setup import Setup
from subtext.training.step import Stepper, StepReader, batches_of

PROTOCOL = Protocol(bootstrap=0)
"""Recall at 1, 5 and 10 and ranks, without intervals: an epoch's end should be short."""


class Validator:
    """Measures the model on the validation pairs, on the first process.

    Args:
        model: The model that is trained.
        pairs: Validation pairs; None where the training loss takes the place of a validation.
        setup: Its plan selects rsum or the loss; its relevance is read by the loss.
        stepper: Computes the loss.
        processes: All get the value that selects.
        about: What the saved result says of the model and the split.
        seed: Of the training.
        workers: Threads that read batches ahead.
        together: Whether all processes measure, since each has a share of the towers alone.
    """

    def __init__(
        self,
        model: Model,
        pairs: Dataset | None,
        setup: Setup,
        stepper: Stepper,
        processes: Processes,
        *,
        about: dict[str, Any],
        seed: int,
        workers: int,
        together: bool = False,
    ) -> None:
        self._model, self.pairs, self._stepper, self._processes = model, pairs, stepper, processes
        self._plan: Plan = setup.plan
        self._about, self._seed, self._workers, self._together = about, seed, workers, together
        self._relevance: LoadedRelevance | None = None
        if (
            setup.relevance is not None
            and pairs is not None
            and setup.plan.select == "loss"
            and (processes.first or together)
        ):
            self._relevance = setup.relevance.open(pairs)

    def __call__(self, state: TrainState) -> tuple[float, Result | None]:
        """Measure the model as it is, and set the state's figures.

        Args:
            state: The training.

        Returns:
            The value that selects, the same on all processes; and the result, on the first one where there are
            validation pairs.
        """
        result: Result | None = None
        if self.pairs is None:
            state.figures = {}
            return self._processes.broadcast([state.mean_loss()])[0], None
        # Where towers are divided, all processes run them together.
        if self._processes.first or self._together:
            size, workers = self._plan.batch_size, self._workers
            result = evaluate_model(self._model, self.pairs, protocol=PROTOCOL, batch_size=size, workers=workers)
            result = replace(result, about=self._about)
            state.figures = dict(result.figures)
            if self._plan.select == "loss":
                state.figures["loss"] = self._loss(self.pairs, state)
        name = "loss" if self._plan.select == "loss" else "rsum"
        value = self._processes.broadcast([state.figures.get(name, float("nan"))])[0]
        return value, result if self._processes.first else None

    def _loss(self, pairs: Dataset, state: TrainState) -> float:
        """The objective, mean over batches; always the same batches, without augmentation."""
        together = self._plan.caption_sampling == "together"
        reader = StepReader(self._model, pairs, None, together=together, related=self._relevance)
        # Samples stay those of the first epoch, or no two epochs could be compared.
        epoch = Epoch(number=state.epoch, seed=self._seed, drawing=0)
        batches = batches_of(pairs, self._plan, epoch=0, seed=0, processes=1)
        was_training = self._model.training
        self._model.eval()
        inputs = read_ahead(batches, reader, workers=self._workers)
        losses = [self._stepper.loss(batch.to(self._processes.device), epoch) for batch in inputs]
        self._model.train(was_training)
        return float(torch.stack(losses).double().mean())
