"""Places that somebody else has computed: features of the pictures ("Img NNs"), or of the texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float

from subtext.data.dataset import Dataset
from subtext.data.feature_file import FeatureFile
from subtext.errors import DataError
from subtext.neighbours.graph import pictures_of_texts
from subtext.neighbours.space import Distance, Places, Told


@dataclass(frozen=True)
class Features:
    """Rows of a file of features, joined by name; a grid is averaged over its cells.

    of  "images": each text stands where its picture does, so that neighbours are pictures that look alike, and their
        texts with them (the "Img NNs" of Thomas and Kovashka 2020, Table 2); "texts": the file names texts

    Distances are L2 on the features as they are.

    Raises DataError when an item has no row, or a text has no picture.
    """

    file: FeatureFile
    of: Literal["images", "texts"] = "images"

    @property
    def distance(self) -> Distance:
        """L2, as in the authors' code."""
        return "l2"

    def settings(self) -> Mapping[str, Any]:
        """Everything that the places depend on."""
        return {"name": "features", "of": self.of, "features": self.file.fingerprint}

    def __call__(self, pairs: Dataset, learn: Bool[np.ndarray, "n"], told: Told | None = None) -> Places:
        """The places of all texts; nothing is learnt."""
        items = pairs.images if self.of == "images" else pairs.texts
        rows = self.file.rows(items.ids, items.values)
        name = "pooled" if self.file.pooled is not None else "grid"
        taken = self.file.take(name, rows)
        vectors = taken if taken.ndim == 2 else taken.mean(axis=1, dtype=np.float32)
        if self.of == "images":
            pictures = pictures_of_texts(pairs)
            if (pictures < 0).any():
                alone = pairs.texts.ids[int(np.flatnonzero(pictures < 0)[0])]
                raise DataError(f"features of pictures need a picture for every text; {alone!r} has none")
            vectors = vectors[pictures]
        if told is not None:
            told(len(vectors))
        return Places(vectors, np.ones(len(vectors), dtype=bool))


@dataclass(frozen=True)
class Array:
    """An array of any embedding, a row a text of the data set in its order.

    vectors   (N D)     name  what it is called in the graph     distance  how it is compared
    """

    vectors: Float[np.ndarray, "n d"]
    name: str = "array"
    distance: Distance = "l2"

    def settings(self) -> Mapping[str, Any]:
        """Its name: the array itself is not known to the graph."""
        return {"name": self.name}

    def __call__(self, pairs: Dataset, learn: Bool[np.ndarray, "n"], told: Told | None = None) -> Places:
        """The array, once its rows are counted. Raises DataError when they are not as many as the texts."""
        if len(self.vectors) != len(pairs.texts):
            raise DataError(f"an array needs a row a text, {len(pairs.texts):,}; it got {len(self.vectors):,}")
        return Places(self.vectors.astype(np.float32), np.ones(len(self.vectors), dtype=bool))
