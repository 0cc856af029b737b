"""What a space is: a place for every text of a data set, learnt from some of them, in which near means alike.

Places that somebody else has computed: features of the images ("Img NNs"), or of the texts.

Any sentence encoder of `transformers`, as it is: the mean of a text's last hidden states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float

from subtext.data.dataset import Dataset, Items
from subtext.data.feature_file import FeatureFile
from subtext.errors import DataError
from subtext.models.encoders.language import SentenceEncoder
from subtext.neighbours.graph import pictures_of_texts

Distance = Literal["l2", "cosine"]
Progress = Callable[[int], None]
"""Called with the number of finished texts."""


@dataclass(frozen=True)
class Places:
    """Where the texts of a data set are.

    vectors  (N D) float32, finite
    known    (N) bool: False for a text that the space cannot place (it has none of the words that the space knows); it
             gets no neighbours and is nobody's
    """

    vectors: Float[np.ndarray, "n d"]
    known: Bool[np.ndarray, "n"]


@runtime_checkable
class Space(Protocol):
    """Places texts; whoever asks says which of them it may learn from."""

    @property
    def distance(self) -> Distance:
        """How its distances are taken where nobody says otherwise."""

    def settings(self) -> Mapping[str, Any]:
        """Its "name", and what its places depend on, as JSON."""

    def __call__(self, pairs: Dataset, learn: Bool[np.ndarray, "n"], progress: Progress | None = None) -> Places:
        """The places of all texts of `pairs`, learnt from those that `learn` marks."""


def words_of(texts: Items) -> list[str]:
    """The texts themselves.

    Raises DataError that names the first item which has none: such a data set has features in their place.
    """
    words = []
    for name, value in zip(texts.ids, texts.values, strict=True):
        if not isinstance(value, str):
            raise DataError(
                f"this space needs words for every text; '{name}' has none; use a space of features (features:FILE)"
            )
        words.append(value)
    return words


def unit(vectors: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """Rows of length 1 as float32; a row of zeros stays one."""
    lengths = np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64))[:, None]
    scaled: np.ndarray = (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    return scaled


@dataclass(frozen=True)
class Features:
    """Rows of a file of features, joined by name; a grid is averaged over its cells.

    of  "images": each text stands where its image does, so that neighbours are images that look alike, and their
        texts with them (the "Img NNs" of Thomas and Kovashka 2020, Table 2); "texts": the file names texts

    Distances are L2 on the features as they are.

    Raises DataError when an item has no row, or a text has no image.
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

    def __call__(self, pairs: Dataset, learn: Bool[np.ndarray, "n"], progress: Progress | None = None) -> Places:
        """The places of all texts; nothing is learnt."""
        items = pairs.images if self.of == "images" else pairs.texts
        rows = self.file.rows(items.ids, items.values)
        name = "pooled" if self.file.pooled is not None else "grid"
        taken = self.file.take(name, rows)
        vectors = taken if taken.ndim == 2 else taken.mean(axis=1, dtype=np.float32)
        if self.of == "images":
            pictures = pictures_of_texts(pairs)
            if (pictures < 0).any():
                missing = pairs.texts.ids[int(np.flatnonzero(pictures < 0)[0])]
                raise DataError(f"features of images need an image for every text; {missing!r} has none")
            vectors = vectors[pictures]
        if progress is not None:
            progress(len(vectors))
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

    def __call__(self, pairs: Dataset, learn: Bool[np.ndarray, "n"], progress: Progress | None = None) -> Places:
        """The array, once its rows are counted. Raises DataError when they are not as many as the texts."""
        if len(self.vectors) != len(pairs.texts):
            raise DataError(f"an array needs a row a text, {len(pairs.texts):,}; it got {len(self.vectors):,}")
        return Places(self.vectors.astype(np.float32), np.ones(len(self.vectors), dtype=bool))


@dataclass(frozen=True)
class Sentence:
    """The vectors of a `SentenceEncoder`, whose fields these are, as unit rows. Gives cosine distances.

    Raises RequirementError when the model or its tokeniser cannot be had.
    """

    model: str
    pooling: Literal["mean", "cls"] = "mean"
    max_tokens: int = 128
    batch_size: int = 64
    device: str = "cpu"

    @property
    def distance(self) -> Distance:
        """Angles, which sentence encoders are trained for."""
        return "cosine"

    def settings(self) -> Mapping[str, Any]:
        """Everything that the places depend on."""
        return {"name": "sentence"} | {k: v for k, v in asdict(self).items() if k not in ("batch_size", "device")}

    def __call__(self, pairs: Dataset, learn: Bool[np.ndarray, "n"], progress: Progress | None = None) -> Places:
        """The places of all texts."""
        encoder = SentenceEncoder(self.model, self.pooling, self.max_tokens, self.batch_size, self.device)
        return Places(unit(encoder(words_of(pairs.texts), progress)), np.ones(len(pairs.texts), dtype=bool))
