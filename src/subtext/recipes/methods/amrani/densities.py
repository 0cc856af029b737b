"""Densities of the training pairs, from features that training does not change (Amrani et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch

from subtext.data.dataset import Dataset
from subtext.data.feature_file import FeatureFile
from subtext.errors import DataError
from subtext.graphs.graph import image_of_text
from subtext.graphs.spaces import FeatureSpace, LsaSpace
from subtext.objectives.weighting import TABLE
from subtext.ops.density import AS_READ, DensityOptions, density
from subtext.text_helpers import counted
from subtext.training.bank import TrainingBank


@dataclass(frozen=True)
class DensityTable:
    """Densities of the training pairs.

    Attributes:
        features: File of features of the images.
        text_features: Of the texts; None: LSA of the training texts.
        how: What counts as dense.
        same_image: "drop": texts of one image, whose features are one, are not near each other; "keep": they may be.
    """

    features: Path
    text_features: Path | None = None
    how: DensityOptions = AS_READ
    same_image: Literal["drop", "keep"] = "drop"
    needs_pairs: ClassVar[None] = None

    def open(self, pairs: Dataset, *, device: torch.device) -> TrainingBank:
        """Compute the densities of some pairs; a pair whose text has no features counts as the mean of the others.

        Args:
            pairs: Training pairs.
            device: Of the training.

        Returns:
            A bank whose table never changes.

        Raises:
            DataError: If an item has no features, or if there are fewer pairs than neighbours.
        """
        images = image_of_text(pairs)
        if self.text_features is None:
            space: LsaSpace | FeatureSpace = LsaSpace()
        else:
            space = FeatureSpace(FeatureFile.open(self.text_features.expanduser(), "text"), of="texts")
        positions = space(pairs, images >= 0)
        paired = np.flatnonzero((images >= 0) & positions.known)
        _, texts = np.unique(images[paired], return_counts=True)
        largest = int(texts.max(initial=1)) if self.same_image == "drop" else 1
        if len(paired) - largest < self.how.neighbours:
            hint = f", {largest} of one image" if len(paired) > self.how.neighbours else ""
            raise DataError(
                f"densities of {self.how.neighbours} neighbours need more than {self.how.neighbours} pairs; it got "
                f"{len(paired):,}{hint}; ask for fewer (neighbours=N)"
            )
        file = FeatureFile.open(self.features.expanduser())
        name = "pooled" if file.pooled is not None else "grid"
        rows = file.rows(*([names[row] for row in images[paired]] for names in (pairs.images.ids, pairs.images.values)))
        block = file.take(name, rows)
        features = block if block.ndim == 2 else block.mean(axis=1, dtype=np.float32)
        densities = density(
            torch.from_numpy(features),
            torch.from_numpy(positions.vectors[paired]),
            self.how,
            groups=torch.from_numpy(images[paired]) if self.same_image == "drop" else None,
        )
        values = densities.mean().repeat(len(pairs.texts))
        values[torch.from_numpy(paired)] = densities
        # Which pairs count as near, and how, are options of the run, which its record has.
        source = f"{file.fingerprint}-{sorted(space.settings().items())}"
        without = int((images >= 0).sum()) - len(paired)
        note = f"{counted(without, 'text')} without a place among texts: such a pair counts as the mean one"
        return TrainingBank(source, [note] if without else [], {TABLE: values.to(device)})
