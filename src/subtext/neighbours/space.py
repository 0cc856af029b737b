"""What a space is: a place for every text of a data set, learnt from some of them, in which near means alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float

from subtext.data.dataset import Dataset, Items
from subtext.errors import DataError

Distance = Literal["l2", "cosine"]
Told = Callable[[int], None]
"""Hears how many texts are done."""


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

    def __call__(self, pairs: Dataset, learn: Bool[np.ndarray, "n"], told: Told | None = None) -> Places:
        """The places of all texts of `pairs`, learnt from those that `learn` marks."""


def words_of(texts: Items) -> list[str]:
    """The texts themselves.

    Raises DataError that names the first item which has none: such a data set has features in their place.
    """
    found = []
    for name, value in zip(texts.ids, texts.values, strict=True):
        if not isinstance(value, str):
            raise DataError(
                f"this space needs words for every text; '{name}' has none; use a space of features (features:FILE)"
            )
        found.append(value)
    return found


def unit(vectors: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """Rows of length 1 as float32; a row of zeros stays one."""
    lengths = np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64))[:, None]
    scaled: np.ndarray = (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    return scaled
