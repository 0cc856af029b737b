"""How much the images and texts of a batch have to do with each other, for losses that read Truth.relevance.

A method names a relevance in `Setup.relevance`. A training counts its words once; a reader then multiplies out the
cells of each batch, of sparse rows, while the batch before it is learnt from. Images that are mixed with another give a
relevance of their own (`Setup.mixing`): how much of each belongs to which text.
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
from subtext.data.inputs import Draw
from subtext.errors import DataError, RequirementError
from subtext.evaluation.relevance import cider, classes, tfidf
from subtext.objectives.losses.soft_contrastive import MIXED
from subtext.objectives.scene import Relevance
from subtext.ops import draw as draws
from subtext.ops.group_products import Terms
from subtext.text_helpers import counted

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

    Attributes:
        name: tfidf1, the unigram cosine that Li et al. 2022 trained with; or CIDEr-D or CIDEr, up to 10.
    """

    name: Words = "tfidf1"

    def __post_init__(self) -> None:
        if self.name not in ("tfidf1", "ciderd", "cider"):
            raise RequirementError(f"words relate by tfidf1, ciderd or cider; it got '{self.name}'; name one of these")

    def require(self, pairs: Dataset) -> None:
        """Raise DataError where texts have no words."""
        require_words(pairs, f"the relevance {self.name} needs the words of every text")

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
class ClassWords:
    """Relevance by the class of an image, as Li et al. 2022 trained on CUB (`evaluation.relevance.classes`).

    An image has the label of its class in the column "labels", and one alone.
    """

    def require(self, pairs: Dataset) -> None:
        """Raise DataError where texts have no words, or an image has no label or several."""
        require_words(pairs, f"the relevance {classes.NAME} needs the words of every text")
        try:
            classes.of_pairs(pairs)
        except RequirementError as problem:
            raise DataError(f"the relevance {classes.NAME} needs a class of every image: {problem}") from problem

    def open(self, pairs: Dataset) -> LoadedRelevance:
        """Every class with every text of these pairs, computed once: 4 bytes a cell."""
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


def require_words(pairs: Dataset, need: str) -> None:
    """Raise DataError, which begins with the need, where texts have no words."""
    missing = sum(not isinstance(value, str) for value in pairs.texts.values)
    if missing:
        raise DataError(
            f"{need}; {counted(missing, 'text')} of {len(pairs.texts):,} {'is' if missing == 1 else 'are'} known by "
            "features alone; give data with texts"
        )


@dataclass(frozen=True)
class _SharedWords:
    """images  (I) the group of each image among those of the products"""

    name: str
    images: NDArray[np.int64]
    products: Terms
    notes: tuple[str, ...] = ()

    def __call__(self, images: NDArray[np.int64], texts: NDArray[np.int64]) -> Float[Tensor, "i t"]:
        return torch.from_numpy(self.products.block(self.images[images], texts))


@dataclass(frozen=True)
class Mixing:
    """Mixed images (PCME++, Chun 2024, section 3.3): some of a batch are blended with another, or have a part of it.

    x_i = lambda x_i + (1 - lambda) x_j (mixup, Zhang et al. 2018), or a rectangle of x_j of the share 1 - lambda in x_i
    (CutMix, Yun et al. 2019; lambda is what is left after the image's edge has cut it). j counts from the batch's end
    as i does from its start; lambda is drawn from Beta(2, 2).

    What is drawn for an image is a function of seed, epoch and its key; whom it is mixed with is the batch's matter.

    Args:
        share: Of the images that are mixed, in [0, 1]; 0.25 in the paper.
        kind: "mixup", "cutmix", or either by the toss of a coin.
    """

    share: float = 0.25
    kind: Literal["both", "mixup", "cutmix"] = "both"

    def __call__(
        self, pixels: Float[Tensor, "n c h w"], keys: NDArray[np.int64], draw: Draw
    ) -> tuple[Float[Tensor, "n c h w"], Float[Tensor, "n"]]:
        """The images, some of them mixed; and of each how much is its own."""
        samples = draws.uniform(keys, seed=draw.seed, epoch=draw.epoch, purpose="mixing", count=5)
        shares = np.ones(len(keys))
        mixed, partners = pixels.clone(), pixels.flip(0)
        for row in np.flatnonzero(samples[:, 0] < self.share):
            # Of Beta(2, 2): the middle root of 3 x^2 - 2 x^3 = the sample.
            share = 0.5 - float(np.sin(np.arcsin(1 - 2 * samples[row, 2]) / 3))
            if self.kind == "cutmix" or (self.kind == "both" and samples[row, 1] < 0.5):
                height, width = pixels.shape[2:]
                top, bottom = _span(height, share, float(samples[row, 3]))
                left, right = _span(width, share, float(samples[row, 4]))
                mixed[row, :, top:bottom, left:right] = partners[row, :, top:bottom, left:right]
                shares[row] = 1 - (bottom - top) * (right - left) / (height * width)
            else:
                mixed[row] = share * pixels[row] + (1 - share) * partners[row]
                shares[row] = share
        return mixed, torch.from_numpy(shares).to(pixels.dtype)


def mixed_truth(shares: Float[Tensor, "n"], candidates: int) -> Relevance:
    """How much of every image belongs to which text, row i of images with row i of texts.

    Args:
        candidates: Of both sides, own ones first: those of other processes have no part in these images.
    """
    count = len(shares)
    rows = torch.arange(count)
    matrix = shares.new_zeros(count, candidates)
    matrix[rows, rows] += shares
    matrix[rows, count - 1 - rows] += 1 - shares
    to_images = shares.new_zeros(count, candidates)
    to_images[:, :count] = matrix[:, :count].T
    return Relevance(matrix, to_images, MIXED)


def _span(length: int, share: float, position: float) -> tuple[int, int]:
    """From where to where a cut of a side reaches, in pixels, inside the image."""
    half = int(length * (1 - share) ** 0.5) // 2
    middle = int(length * position)
    return max(middle - half, 0), min(middle + half, length)
