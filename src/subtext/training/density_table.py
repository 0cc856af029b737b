"""The table of density weights: computed once, when a training opens, from features that training does not change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subtext.core import Embeddings
from subtext.data.dataset import Dataset
from subtext.data.feature_file import FeatureFile
from subtext.errors import DataError, counted
from subtext.neighbours.graph import pictures_of_texts
from subtext.neighbours.lsa import Lsa
from subtext.neighbours.spaces import Features
from subtext.objectives.weighting.density import TABLE
from subtext.ops.density import AS_READ, DensityOptions, density
from subtext.training.memory import Embed


@dataclass(frozen=True)
class DensityTable:
    """What the densities are made from.

    features       file of features of the images       text_features  of the texts; None: LSA of the training texts
    how            what counts as dense
    same_picture   "drop": texts of one image, whose features are one, are not near each other; "keep": they may be
    """

    features: Path
    text_features: Path | None = None
    how: DensityOptions = AS_READ
    same_picture: Literal["drop", "keep"] = "drop"

    def open(self, pairs: Dataset, *, device: torch.device) -> DensityMemory:
        """The table of these training pairs; one whose text has no place counts as the mean of the others.

        Raises DataError where an item has no features, and for fewer pairs than neighbours.
        """
        images = pictures_of_texts(pairs)
        if self.text_features is None:
            space: Lsa | Features = Lsa()
        else:
            space = Features(FeatureFile.open(self.text_features.expanduser()), of="texts")
        positions = space(pairs, images >= 0)
        paired = np.flatnonzero((images >= 0) & positions.known)
        self._require_enough(images[paired])
        file = FeatureFile.open(self.features.expanduser())
        name = "pooled" if file.pooled is not None else "grid"
        rows = file.rows(
            [pairs.images.ids[row] for row in images[paired]], [pairs.images.values[row] for row in images[paired]]
        )
        block = file.take(name, rows)
        features = block if block.ndim == 2 else block.mean(axis=1, dtype=np.float32)
        densities = density(
            torch.from_numpy(features),
            torch.from_numpy(positions.vectors[paired]),
            self.how,
            groups=torch.from_numpy(images[paired]) if self.same_picture == "drop" else None,
        )
        values = densities.mean().repeat(len(pairs.texts))
        values[torch.from_numpy(paired)] = densities
        # Which pairs count as near, and how, are options of the run, which its record has.
        source = f"{file.fingerprint}-{sorted(space.settings().items())}"
        return DensityMemory(values.to(device), source, int((images >= 0).sum()) - len(paired))

    def _require_enough(self, images: NDArray[np.int64]) -> None:
        """Raise DataError where a pair, given by its image, has fewer others than neighbours."""
        _, texts = np.unique(images, return_counts=True)
        same_image = int(texts.max(initial=1)) if self.same_picture == "drop" else 1
        if len(images) - same_image < self.how.neighbours:
            hint = f", {same_image} of one image" if len(images) > self.how.neighbours else ""
            raise DataError(
                f"densities of {self.how.neighbours} neighbours need more than {self.how.neighbours} pairs; it got "
                f"{len(images):,}{hint}; ask for fewer (neighbours=N)"
            )


class DensityMemory:
    """The densities of a training, by row of the text; nothing in it ever changes."""

    def __init__(self, values: Tensor, fingerprint: str, unplaced: int) -> None:
        self.fingerprint = fingerprint
        self.notes: Sequence[str] = ()
        if unplaced:
            self.notes = (
                f"{counted(unplaced, 'text')} without a place among texts: such a pair counts as the mean one",
            )
        self.table: Mapping[str, Tensor] | None = {TABLE: values}
        self.bank: Mapping[str, Embeddings] | None = None

    def begin(self, *, epoch: int, seed: int, embed: Embed, reads: Tensor | None = None) -> None:
        """Nothing: features stay as they are."""

    def look(self, images: Embeddings, texts: Embeddings) -> None:
        """Nothing."""

    def tensors(self) -> dict[str, Tensor]:
        """None: the same is computed again."""
        return {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Nothing."""
