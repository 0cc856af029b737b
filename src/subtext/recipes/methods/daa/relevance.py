"""Relevance of the images and texts of a batch by their words, for losses that read Truth.relevance (Li et al. 2022).

The words of all training texts are counted once; a reader then multiplies out the cells of each batch, of sparse rows,
while the batch before it is learnt from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from subtext.data.dataset import Dataset
from subtext.data.text import require_words
from subtext.errors import DataError, RequirementError
from subtext.evaluation.relevance import cider, classes, tfidf
from subtext.ops.compiled.group_products import Terms
from subtext.training.relevance import LoadedRelevance

Words = Literal["tfidf1", "ciderd", "cider"]


@dataclass(frozen=True)
class SharedWords:
    """Relevance by the words that a text shares with the texts of an image; documents are those of the pairs.

    Attributes:
        name: tfidf1, the unigram cosine that Li et al. 2022 trained with; or CIDEr-D or CIDEr, up to 10.

    Raises:
        RequirementError: For another name.
    """

    name: Words = "tfidf1"

    def __post_init__(self) -> None:
        if self.name not in ("tfidf1", "ciderd", "cider"):
            raise RequirementError(f"words relate by tfidf1, ciderd or cider; it got '{self.name}'; name one of these")

    def require(self, pairs: Dataset) -> None:
        """Refuse texts without words.

        Args:
            pairs: Of the training.

        Raises:
            DataError: If a text has no words.
        """
        require_words(pairs.texts.values, f"the relevance {self.name} needs the words of every text")

    def open(self, pairs: Dataset) -> LoadedRelevance:
        """Count the words of some pairs.

        Args:
            pairs: Of the training, or of the validation.

        Returns:
            Their relevance.

        Raises:
            DataError: If a text has no words.
        """
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
class ClassWords:
    """Relevance by the class of an image, as Li et al. 2022 trained on CUB (`evaluation.relevance.classes`).

    An image has the label of its class in the column "labels", and one alone.
    """

    def require(self, pairs: Dataset) -> None:
        """Refuse texts without words, and images without a label or with several.

        Args:
            pairs: Of the training.

        Raises:
            DataError: If there are such.
        """
        require_words(pairs.texts.values, f"the relevance {classes.NAME} needs the words of every text")
        try:
            classes.of_pairs(pairs)
        except RequirementError as problem:
            raise DataError(f"the relevance {classes.NAME} needs a class of every image: {problem}") from problem

    def open(self, pairs: Dataset) -> LoadedRelevance:
        """Compute the relevance of every class and every text, once: 4 bytes a cell.

        Args:
            pairs: Of the training, or of the validation.

        Returns:
            Their relevance.

        Raises:
            DataError: As `require`.
        """
        self.require(pairs)
        labels, text_labels = classes.of_pairs(pairs)
        codes = {label: code for code, label in enumerate(dict.fromkeys(labels))}
        of_image, of_text = (np.array([codes[label] for label in side]) for side in (labels, text_labels))
        texts = [str(value) for value in pairs.texts.values]
        return _ClassWords(of_image, classes.relevance(texts, of_text, texts, of_text, count=len(codes)))


@dataclass(frozen=True)
class _ClassWords:
    """images  (I) the class of each image        relevance  (G T) of classes with texts"""

    images: NDArray[np.int64]
    relevance: NDArray[np.float32]
    name: str = classes.NAME
    notes: tuple[str, ...] = ()

    def __call__(self, images: NDArray[np.int64], texts: NDArray[np.int64]) -> Float[Tensor, "i t"]:
        return torch.from_numpy(self.relevance[self.images[images]][:, texts])


@dataclass(frozen=True)
class _SharedWords:
    """images  (I) the group of each image among those of the products"""

    name: str
    images: NDArray[np.int64]
    products: Terms
    notes: tuple[str, ...] = ()

    def __call__(self, images: NDArray[np.int64], texts: NDArray[np.int64]) -> Float[Tensor, "i t"]:
        return torch.from_numpy(self.products.block(self.images[images], texts))
