"""What a training remembers between steps and epochs: embeddings seen, and what is computed of them.

A method that needs such a memory names it in `Setup.memories`; a training opens it for its pairs, shows it the
embeddings of every step, and asks it at each epoch's start what is known then. All of it is a part of a checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from subtext.core import Embeddings, Epoch
from subtext.data.dataset import Dataset
from subtext.errors import CheckpointError
from subtext.evaluation.embedding import Rows
from subtext.training.snapshot import Snapshot


@runtime_checkable
class Embed(Protocol):
    """Gives embeddings of training images and texts as the model is now, in eval mode; ids are rows."""

    def __call__(self, rows: Rows | None = None) -> tuple[Embeddings, Embeddings]:
        """Those of some rows, in their order; None for all images and all texts."""


KIND = "memory"
"""Checkpoints hold memory0.safetensors, memory1.safetensors, and so on."""


@runtime_checkable
class Memory(Protocol):
    """Something remembered of a training; the same on every process.

    fingerprint  of what it was made from     notes  what there is to say before the training begins
    table, bank  as in `core.Epoch`, for the epoch under way; None where nothing is known
    """

    @property
    def fingerprint(self) -> str:
        """A word that changes with whatever it was made from."""

    @property
    def notes(self) -> Sequence[str]:
        """Sentences."""

    @property
    def table(self) -> Mapping[str, Tensor] | None:
        """Name -> scores by training row."""

    @property
    def bank(self) -> Mapping[str, Embeddings] | None:
        """Name -> embeddings kept from before."""

    def begin(self, *, epoch: int, seed: int, embed: Embed, reads: Tensor | None = None) -> None:
        """An epoch, counted from 0, is about to start.

        reads  (D) training rows of the texts that it will read, ascending; None for all
        """

    def look(self, images: Embeddings, texts: Embeddings) -> None:
        """A step's images and texts, of all processes in one order, without gradient; ids are training rows."""

    def tensors(self) -> dict[str, Tensor]:
        """All of it, for a checkpoint."""

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Become what `tensors` gave."""


@runtime_checkable
class MemorySource(Protocol):
    """What `Setup.memories` holds: a plain description of a memory."""

    def open(self, pairs: Dataset, *, device: torch.device) -> Memory:
        """The memory, empty, for these training pairs."""


@dataclass(frozen=True)
class Memories:
    """All memories of a training; none is the usual case."""

    each: Sequence[Memory] = field(default=())

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.each)

    @property
    def fingerprint(self) -> str:
        """Of all of them; empty where there is none."""
        return "-".join(memory.fingerprint for memory in self.each)

    @property
    def notes(self) -> list[str]:
        """What all of them have to say."""
        return [note for memory in self.each for note in memory.notes]

    def begin(self, *, epoch: int, seed: int, embed: Embed, reads: Tensor | None = None) -> None:
        """Tell all that an epoch starts; where one has embedded everything the others need not embed again."""
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

    def table(self) -> dict[str, Tensor]:
        """What is known by training row in the epoch under way."""
        return {name: value for memory in self.each for name, value in (memory.table or {}).items()}

    def epoch(self, number: int, seed: int) -> Epoch:
        """The epoch as a weighting sees it."""
        bank = {name: value for memory in self.each for name, value in (memory.bank or {}).items()}
        return Epoch(number=number, seed=seed, table=self.table() or None, bank=bank or None)

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """Kind -> tensors, for a snapshot."""
        return {f"{KIND}{number}": memory.tensors() for number, memory in enumerate(self.each)}

    def restore(self, snapshot: Snapshot) -> None:
        """Become what a snapshot holds.

        Raises CheckpointError when it holds something else.
        """
        for number, memory in enumerate(self.each):
            try:
                memory.restore(snapshot.tensors.get(f"{KIND}{number}", {}))
            except (KeyError, ValueError) as problem:
                raise CheckpointError(
                    f"the checkpoint of step {snapshot.step} needs what a method remembers; {problem}; train in a new "
                    "folder"
                ) from problem


def open_memories(descriptions: Sequence[MemorySource], pairs: Dataset, *, device: torch.device) -> Memories:
    """The memories of a training. Raises what opening them raises: a graph of other data, say."""
    return Memories(tuple(description.open(pairs, device=device) for description in descriptions))
