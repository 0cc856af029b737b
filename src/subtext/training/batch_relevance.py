"""How much the images and texts of a batch have to do with each other, for losses that read Truth.relevance.

A method names a relevance in `Setup.relevance`. A training counts its words once; a reader then multiplies out the
cells of each batch, of sparse rows, while the batch before it is learnt from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from subtext.data.dataset import Dataset
from subtext.errors import DataError, RequirementError, counted
from subtext.evaluation.relevance import cider, tfidf
from subtext.evaluation.relevance.products import Products

Words = Literal["tfidf1", "ciderd", "cider"]


@runtime_checkable
class LoadedRelevance(Protocol):
    """The relevance of some pairs: image rows (I), text rows (T) -> (I T) float32, finite."""

    @property
    def name(self) -> str:
        """What it is computed with."""

    @property
    def notes(self) -> Sequence[str]:
        """What there is to say before a training begins."""

    def __call__(self, images: NDArray[np.int64], texts: NDArray[np.int64]) -> Float[Tensor, "i t"]:
        """Every one of these images with every one of these texts."""


@runtime_checkable
class RelevanceSource(Protocol):
    """What `Setup.relevance` holds: a plain description of a relevance."""

    def require(self, pairs: Dataset) -> None:
        """Raise DataError where it cannot be had of these pairs."""

    def open(self, pairs: Dataset) -> LoadedRelevance:
        """The relevance of these pairs, ready to be looked up."""


@dataclass(frozen=True)
class SharedWords:
    """Relevance by the words that a text shares with the texts of an image; documents are those of the pairs given.

    name  tfidf1, the unigram cosine that Li et al. 2022 trained with; or CIDEr-D or CIDEr, up to 10
    """

    name: Words = "tfidf1"

    def __post_init__(self) -> None:
        if self.name not in ("tfidf1", "ciderd", "cider"):
            raise RequirementError(f"words relate by tfidf1, ciderd or cider; it got '{self.name}'; name one of these")

    def require(self, pairs: Dataset) -> None:
        """Raise DataError where texts have no words."""
        missing = sum(not isinstance(value, str) for value in pairs.texts.values)
        if missing:
            raise DataError(
                f"the relevance {self.name} needs the words of every text; {counted(missing, 'text')} of "
                f"{len(pairs.texts):,} {'is' if missing == 1 else 'are'} known by features alone; give data with texts"
            )

    def open(self, pairs: Dataset) -> LoadedRelevance:
        """The words of these pairs, counted."""
        self.require(pairs)
        texts = [str(value) for value in pairs.texts.values]
        group_ids, indices = np.unique(np.concatenate([pairs.images.groups, pairs.texts.groups]), return_inverse=True)
        images, groups = indices[: len(pairs.images)], indices[len(pairs.images) :]
        if self.name == "tfidf1":
            products = tfidf.products(texts, groups, texts, count=len(group_ids))
        else:
            products = cider.products(texts, groups, texts, variant=self.name, count=len(group_ids))
        return _SharedWords(self.name, images, products)


@dataclass(frozen=True)
class _SharedWords:
    """images  (I) the group of each image among those of the products"""

    name: str
    images: NDArray[np.int64]
    products: Products
    notes: tuple[str, ...] = ()

    def __call__(self, images: NDArray[np.int64], texts: NDArray[np.int64]) -> Float[Tensor, "i t"]:
        return torch.from_numpy(self.products.block(self.images[images], texts))
