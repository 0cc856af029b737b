"""A bank of some training pairs, embedded anew before every epoch but the first (Liu et al. 2020)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from subtext.core import Embeddings
from subtext.data.dataset import Dataset
from subtext.errors import RequirementError
from subtext.neighbours.graph import pictures_of_texts
from subtext.objectives.mining.hubs import IMAGES, TEXTS
from subtext.ops import draw
from subtext.training.memory import Embed


@dataclass(frozen=True)
class PairBank:
    """What a bank holds: each pair with a chance of `rate`, in (0, 1], drawn anew for every epoch, and one at least."""

    rate: float = 0.05

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise RequirementError(f"a bank needs a rate above 0 and up to 1; it got {self.rate}")

    def open(self, pairs: Dataset, *, device: torch.device) -> PairBankMemory:
        """The bank, empty, for these training pairs."""
        return PairBankMemory(self, pairs, device)


class PairBankMemory:
    """The bank of a training: images under `hubs/image`, and row by row their texts under `hubs/text`.

    Embeddings are those of a pass without augmentation over the pairs that are drawn, and no others.
    """

    def __init__(self, options: PairBank, pairs: Dataset, device: torch.device) -> None:
        self.options, self.device = options, device
        self.fingerprint = f"pairs{options.rate:g}"
        self.notes: Sequence[str] = ()
        self.table: Mapping[str, Tensor] | None = None
        self.bank: Mapping[str, Embeddings] | None = None
        self._keys, self._images = pairs.texts.keys, pictures_of_texts(pairs)

    def begin(self, *, epoch: int, seed: int, embed: Embed, reads: Tensor | None = None) -> None:
        """Draw the pairs of an epoch and embed them; none before anything is learnt."""
        if epoch == 0:
            return
        samples = draw.uniform(self._keys, seed=seed, epoch=epoch, purpose="kept pairs")[:, 0]
        samples = np.where(self._images >= 0, samples, np.inf)
        texts = np.flatnonzero(samples < max(self.options.rate, np.nextafter(samples.min(), 1)))
        # An image of several kept pairs is read once.
        images, indices = np.unique(self._images[texts], return_inverse=True)
        embedded = embed((images, texts))
        self.bank = {
            name: Embeddings(items.vectors.to(self.device), items.ids.to(self.device))
            for name, items in ((IMAGES, embedded[0][torch.from_numpy(indices)]), (TEXTS, embedded[1]))
        }

    def look(self, images: Embeddings, texts: Embeddings) -> None:
        """Nothing: steps are not kept."""

    def tensors(self) -> dict[str, Tensor]:
        """The bank: vectors and rows of either side."""
        bank = self.bank or {}
        return {f"vectors/{name}": items.vectors for name, items in bank.items()} | {
            f"rows/{name}": items.ids for name, items in bank.items()
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Become what `tensors` gave."""
        bank = {
            name: Embeddings(tensors[f"vectors/{name}"].to(self.device), tensors[f"rows/{name}"].to(self.device))
            for name in (IMAGES, TEXTS)
            if tensors
        }
        self.bank = bank or None
