"""Some training pairs, embedded anew before every epoch, by which hubs are detected (Liu et al. 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from subtext.core import Embeddings
from subtext.data.dataset import Dataset
from subtext.errors import RequirementError
from subtext.graphs.graph import image_of_text
from subtext.objectives.mining import IMAGES, TEXTS
from subtext.ops import draw
from subtext.training.bank import Embed, TrainingBank


@dataclass(frozen=True)
class PairBank:
    """A bank of some pairs, sampled anew for every epoch, and one at least.

    Attributes:
        rate: The chance of each pair, in (0, 1].

    Raises:
        RequirementError: If the rate is not in this range.
    """

    rate: float = 0.05
    needs_pairs: ClassVar[tuple[str, str]] = ("embeddings in a bank", "turn it off (hal:bank_share=0)")

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise RequirementError(f"a bank needs a rate above 0 and up to 1; it got {self.rate}")

    def open(self, pairs: Dataset, *, device: torch.device) -> PairBankRows:
        """Open the bank, empty.

        Args:
            pairs: Training pairs.
            device: Of the training.

        Returns:
            The bank.
        """
        return PairBankRows(self, pairs, device)


class PairBankRows(TrainingBank):
    """The bank of a training: images under `hubs/image`, and row by row their texts under `hubs/text`.

    Embeddings are those of a pass without augmentation over the sampled pairs, and no others.

    Args:
        options: Share of the pairs.
        pairs: Training pairs.
        device: Of the training.
    """

    def __init__(self, options: PairBank, pairs: Dataset, device: torch.device) -> None:
        super().__init__(f"pairs{options.rate:g}")
        self.options, self.device = options, device
        self._keys, self._images = pairs.texts.keys, image_of_text(pairs)

    def on_epoch_start(self, *, epoch: int, seed: int, embed: Embed, reads: Tensor | None = None) -> None:
        """Sample the pairs of an epoch and embed them; none before the first epoch.

        Args:
            epoch: Counted from 0.
            seed: Of the training.
            embed: Embeds training pairs with the present model.
            reads: (D) training rows of the texts that the epoch will read, ascending; None for all.
        """
        if epoch == 0:
            return
        samples = draw.uniform(self._keys, seed=seed, epoch=epoch, purpose="bank pairs")[:, 0]
        samples = np.where(self._images >= 0, samples, np.inf)
        texts = np.flatnonzero(samples < max(self.options.rate, np.nextafter(samples.min(), 1)))
        # An image of several kept pairs is read once.
        images, indices = np.unique(self._images[texts], return_inverse=True)
        embedded = embed((images, texts))
        self.bank = {
            name: Embeddings(items.vectors.to(self.device), items.ids.to(self.device))
            for name, items in ((IMAGES, embedded[0][torch.from_numpy(indices)]), (TEXTS, embedded[1]))
        }

    def tensors(self) -> dict[str, Tensor]:
        """The state, for a checkpoint.

        Returns:
            Name -> tensor: vectors and rows of either side.
        """
        tensors: dict[str, Tensor] = {}
        for name, items in (self.bank or {}).items():
            tensors |= {f"vectors/{name}": items.vectors, f"rows/{name}": items.ids}
        return tensors

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state returned by `tensors`.

        Args:
            tensors: On any device.
        """
        moved = {name: value.to(self.device) for name, value in tensors.items()}
        names = (IMAGES, TEXTS) if tensors else ()
        self.bank = {name: Embeddings(moved[f"vectors/{name}"], moved[f"rows/{name}"]) for name in names} or None
