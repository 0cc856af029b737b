"""The table of density weights: computed once, when a training opens, from features that training does not change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from subtext.core import Embeddings
from subtext.data.feature_file import FeatureFile
from subtext.data.pairs import Pairs
from subtext.errors import DataError
from subtext.neighbours.given import Features
from subtext.neighbours.graph import pictures_of_texts
from subtext.neighbours.lsa import Lsa
from subtext.ops.density import AS_READ, Crowding, density
from subtext.weighting.density import TABLE


@dataclass(frozen=True)
class CrowdedPairs:
    """What the densities are made from.

    features       file of features of the pictures       text_features  of the texts; None: LSA of the training texts
    how            what counts as dense
    """

    features: Path
    text_features: Path | None = None
    how: Crowding = AS_READ

    def open(self, pairs: Pairs, *, device: torch.device) -> CrowdedMemory:
        """The table of these training pairs.

        Raises DataError where an item has no features, and for fewer pairs than neighbours.
        """
        pictures = pictures_of_texts(pairs)
        paired = np.flatnonzero(pictures >= 0)
        if len(paired) <= self.how.neighbours:
            raise DataError(
                f"densities of {self.how.neighbours} neighbours need more than {self.how.neighbours} pairs; it got "
                f"{len(paired):,}; ask for fewer (neighbours=N)"
            )
        file = FeatureFile.open(self.features.expanduser())
        name = "pooled" if file.pooled is not None else "grid"
        rows = file.rows(
            [pairs.images.ids[row] for row in pictures[paired]], [pairs.images.values[row] for row in pictures[paired]]
        )
        taken = file.take(name, rows)
        images = taken if taken.ndim == 2 else taken.mean(axis=1, dtype=np.float32)
        if self.text_features is None:
            space: Lsa | Features = Lsa()
        else:
            space = Features(FeatureFile.open(self.text_features.expanduser()), of="texts")
        texts = space(pairs, pictures >= 0).vectors[paired]
        values = torch.zeros(len(pairs.texts))
        values[torch.from_numpy(paired)] = density(torch.from_numpy(images), torch.from_numpy(texts), self.how)
        return CrowdedMemory(values.to(device), f"{file.fingerprint}-{sorted(space.settings().items())}")


class CrowdedMemory:
    """The densities of a training, by row of the text; nothing in it ever changes."""

    def __init__(self, values: Tensor, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        self.notes: Sequence[str] = ()
        self.table: Mapping[str, Tensor] | None = {TABLE: values}
        self.bank: Mapping[str, Embeddings] | None = None

    def begin(self, *, epoch: int, seed: int, embed: Callable[[], tuple[Embeddings, Embeddings]]) -> None:
        """Nothing: features stay as they are."""

    def look(self, images: Embeddings, texts: Embeddings) -> None:
        """Nothing."""

    def tensors(self) -> dict[str, Tensor]:
        """None: the same is computed again."""
        return {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Nothing."""
