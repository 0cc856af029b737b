"""What a training remembers between steps and epochs: earlier embeddings, and what is computed of them.

A method that needs such a memory names it in `Setup.memories`. A training opens it for its pairs, shows it the
embeddings of every step, and reads its table and bank in each epoch. All of it is a part of a checkpoint.
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

KIND = "memory"
"""Checkpoints hold memory0.safetensors, memory1.safetensors, and so on."""

Embed = Callable[..., tuple[Embeddings, Embeddings]]
"""Embeddings of training images and texts as the model is now, in eval mode: of `Rows`, in their order, or of all."""


class TrainingBank:
    """Something remembered of a training; the same on every process. One whose table never changes needs no subclass.

    Args:
        fingerprint: Of what it was made from.
        notes: What there is to say before the training begins.
        table: For the epoch under way, by training row, as in `core.Epoch`; None where nothing is known.
        bank: Embeddings of earlier steps, likewise.
    """

    def __init__(self, fingerprint: str, notes: Sequence[str] = (), table: Mapping[str, Tensor] | None = None) -> None:
        self.fingerprint, self.notes = fingerprint, tuple(notes)
        self.table: Mapping[str, Tensor] | None = table
        self.bank: Mapping[str, Embeddings] | None = None

    def begin(self, *, epoch: int, seed: int, embed: Embed, reads: Tensor | None = None) -> None:
        """An epoch, counted from 0, is about to start.

        Args:
            reads: (D) training rows of the texts that it will read, ascending; None for all.
        """

    def look(self, images: Embeddings, texts: Embeddings) -> None:
        """A step's images and texts, of all processes in one order, without gradient; ids are training rows."""

    def tensors(self) -> dict[str, Tensor]:
        """All that a checkpoint needs."""
        return {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Become what `tensors` gave."""


@runtime_checkable
class BankSource(Protocol):
    """What `Setup.memories` holds: a plain description of a memory."""

    def open(self, pairs: Dataset, *, device: torch.device) -> TrainingBank:
        """The memory, empty, for these training pairs."""


@dataclass(frozen=True)
class BankSet:
    """All memories of a training; none is the usual case."""

    each: Sequence[TrainingBank] = ()

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.each)

    def begin(self, *, epoch: int, seed: int, embed: Embed, reads: Tensor | None = None) -> None:
        """An epoch starts; where one memory has embedded everything the others need not embed again."""
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

        for memory in self.each:
            memory.begin(epoch=epoch, seed=seed, embed=once, reads=reads)

    def look(self, images: Embeddings, texts: Embeddings) -> None:
        """Show all the embeddings of a step."""
        for memory in self.each:
            memory.look(images.detach(), texts.detach())

    def epoch(self, number: int, seed: int) -> Epoch:
        """The epoch as a weighting sees it."""
        table = {name: value for memory in self.each for name, value in (memory.table or {}).items()}
        bank = {name: value for memory in self.each for name, value in (memory.bank or {}).items()}
        return Epoch(number=number, seed=seed, table=table or None, bank=bank or None)

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """Kind -> tensors, for a snapshot."""
        return {f"{KIND}{number}": memory.tensors() for number, memory in enumerate(self.each)}

    def restore(self, tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Become what a snapshot holds.

        Raises:
            KeyError: If it holds something else.
            ValueError: If it holds something else.
        """
        for number, memory in enumerate(self.each):
            memory.restore(tensors.get(f"{KIND}{number}", {}))
