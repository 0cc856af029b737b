"""What a training keeps between steps and epochs: earlier embeddings, and what is computed of them.

A method that needs such a bank names it in `Setup.banks`. A training opens it for its pairs, updates it with the
embeddings of every step, and reads its table and embeddings in each epoch. All of it is a part of a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from subtext.core import Embeddings, Epoch
from subtext.data.dataset import Dataset
from subtext.evaluation.embedding import Rows

KIND = "bank"
"""Checkpoints hold bank0.safetensors, bank1.safetensors, and so on."""

Embed = Callable[..., tuple[Embeddings, Embeddings]]
"""Embeddings of training images and texts as the model is now, in eval mode: of `Rows`, in their order, or of all."""


class TrainingBank:
    """What is kept of a training; the same on every process. One whose table never changes needs no subclass.

    Args:
        fingerprint: Of what it was made from.
        notes: Sentences for the user before the training begins.
        table: For the present epoch, by training row, as in `core.Epoch`; None where there is nothing yet.

    Attributes:
        bank: Embeddings of earlier steps, likewise; None where there are none yet.
    """

    def __init__(self, fingerprint: str, notes: Sequence[str] = (), table: Mapping[str, Tensor] | None = None) -> None:
        self.fingerprint, self.notes = fingerprint, tuple(notes)
        self.table: Mapping[str, Tensor] | None = table
        self.bank: Mapping[str, Embeddings] | None = None

    def on_epoch_start(self, *, epoch: int, seed: int, embed: Embed, reads: Tensor | None = None) -> None:
        """Prepare the table and the embeddings of an epoch.

        Args:
            epoch: Counted from 0.
            seed: Of the training.
            embed: Embeds training pairs with the present model.
            reads: (D) training rows of the texts that the epoch will read, ascending; None for all.
        """

    def update(self, images: Embeddings, texts: Embeddings) -> None:
        """Receive the embeddings of a step, of all processes in one order, without gradient.

        Args:
            images: Ids are training rows.
            texts: Likewise.
        """

    def tensors(self) -> dict[str, Tensor]:
        """The state, for a checkpoint.

        Returns:
            Name -> tensor.
        """
        return {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state returned by `tensors`.

        Args:
            tensors: On any device.
        """


@runtime_checkable
class BankSource(Protocol):
    """What `Setup.banks` holds: a plain description of a bank."""

    @property
    def needs_pairs(self) -> tuple[str, str] | None:
        """What needs one text for each image, and how to do without, for a message; None where any batch is fine."""

    def open(self, pairs: Dataset, *, device: torch.device) -> TrainingBank:
        """Open the bank for a training.

        Args:
            pairs: Training pairs.
            device: Of the training.

        Returns:
            The bank, empty.
        """


@dataclass(frozen=True)
class BankSet:
    """All banks of a training; most trainings have none.

    Attributes:
        each: The banks.
    """

    each: Sequence[TrainingBank] = ()

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.each)

    def on_epoch_start(self, *, epoch: int, seed: int, embed: Embed, reads: Tensor | None = None) -> None:
        """Prepare all banks; where one has embedded everything, the others need not embed again.

        Args:
            epoch: Counted from 0.
            seed: Of the training.
            embed: As in `TrainingBank.on_epoch_start`.
            reads: As in `TrainingBank.on_epoch_start`.
        """
        embedded: list[tuple[Embeddings, Embeddings]] = []

        def once(rows: Rows | None = None) -> tuple[Embeddings, Embeddings]:
            if rows is not None and not embedded:
                return embed(rows)
            if not embedded:
                embedded.append(embed())
            if rows is None:
                return embedded[0]
            images, texts = (side[torch.from_numpy(some)] for side, some in zip(embedded[0], rows, strict=True))
            return images, texts

        for bank in self.each:
            bank.on_epoch_start(epoch=epoch, seed=seed, embed=once, reads=reads)

    def update(self, images: Embeddings, texts: Embeddings) -> None:
        """Update all banks with the embeddings of a step.

        Args:
            images: Of all processes; ids are training rows.
            texts: Likewise.
        """
        for bank in self.each:
            bank.update(images.detach(), texts.detach())

    def epoch(self, number: int, seed: int) -> Epoch:
        """The epoch as a weighting reads it.

        Args:
            number: Counted from 0.
            seed: Of the training.

        Returns:
            With the tables and embeddings of all banks.
        """
        tables = {name: value for bank in self.each for name, value in (bank.table or {}).items()}
        embeddings = {name: value for bank in self.each for name, value in (bank.bank or {}).items()}
        return Epoch(number=number, seed=seed, table=tables or None, bank=embeddings or None)

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """The state of all banks, for a checkpoint.

        Returns:
            Kind -> name -> tensor.
        """
        return {f"{KIND}{number}": bank.tensors() for number, bank in enumerate(self.each)}

    def restore(self, tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Restore the state returned by `tensors`.

        Args:
            tensors: Of a checkpoint, which may have other kinds, too.

        Raises:
            KeyError: If something is missing.
            ValueError: If something does not fit.
        """
        for number, bank in enumerate(self.each):
            bank.restore(tensors.get(f"{KIND}{number}", {}))
