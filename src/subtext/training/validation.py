"""What is measured at the end of an epoch."""

from __future__ import annotations

import torch

from subtext.core import Epoch
from subtext.data.batches import read_ahead
from subtext.data.dataset import Dataset
from subtext.evaluation import Protocol, evaluate
from subtext.models.model import Model
from subtext.training.plan import Plan
from subtext.training.reading import Reader, batches_of
from subtext.training.step import Stepper

PROTOCOL = Protocol(c_way=(), bootstrap=0)
"""Recall at 1, 5 and 10 and ranks, without intervals: an epoch's end should be short."""


def figures(model: Model, val: Dataset, *, batch_size: int, workers: int) -> dict[str, float]:
    """Recall and rank figures of the validation pairs, among them "rsum"."""
    return dict(evaluate(model, val, protocol=PROTOCOL, batch_size=batch_size, workers=workers).figures)


def mean_loss(stepper: Stepper, reader: Reader, plan: Plan, epoch: Epoch, *, workers: int) -> float:
    """The objective on the reader's pairs, mean over batches; always the same batches, without augmentation."""
    model = reader.model
    device = next(model.parameters()).device
    batches = batches_of(reader.pairs, plan, epoch=0, seed=0, processes=1)
    was_training = model.training
    model.eval()
    losses = [stepper.loss(reading.to(device), epoch) for reading in read_ahead(batches, reader, workers=workers)]
    model.train(was_training)
    return float(torch.stack(losses).double().mean())
