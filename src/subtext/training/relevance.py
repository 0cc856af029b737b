"""What gives the truth of a batch more than matches: a relevance of its images and texts, or images that are mixed.

A method names a relevance in `Setup.relevance`; a model names a mixing in `Setup.mixing`. A training opens it for its
pairs, and reads it beside every batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from subtext.data.dataset import Dataset
from subtext.data.inputs import Draw
from subtext.objectives.scene import Relevance


@runtime_checkable
class LoadedRelevance(Protocol):
    """The relevance of the images and texts of some pairs, ready to be looked up."""

    @property
    def name(self) -> str:
        """What it is computed with, as a loss checks it (`Truth.scale`)."""

    @property
    def notes(self) -> Sequence[str]:
        """Sentences for the user before a training begins."""

    def __call__(self, images: NDArray[np.int64], texts: NDArray[np.int64]) -> Float[Tensor, "i t"]:
        """Look up a block.

        Args:
            images: (I) rows of images.
            texts: (T) rows of texts.

        Returns:
            (I T) float32, finite: every one of these images with every one of these texts.
        """


@runtime_checkable
class TwoSidedRelevance(LoadedRelevance, Protocol):
    """A relevance that is another one where texts are the queries."""

    def of_texts(self, images: NDArray[np.int64], texts: NDArray[np.int64]) -> Float[Tensor, "i t"]:
        """Look up a block for texts as queries.

        Args:
            images: (I) rows of images.
            texts: (T) rows of texts.

        Returns:
            (I T) float32, finite.
        """


@runtime_checkable
class RelevanceSource(Protocol):
    """What `Setup.relevance` holds: a plain description of a relevance."""

    def require(self, pairs: Dataset) -> None:
        """Refuse pairs that have no such relevance.

        Args:
            pairs: Of the training.

        Raises:
            DataError: If the pairs lack what the relevance is computed from.
        """

    def open(self, pairs: Dataset) -> LoadedRelevance:
        """Load the relevance.

        Args:
            pairs: Of the training, or of the validation.

        Returns:
            The relevance of these pairs.
        """


@runtime_checkable
class ImageMixing(Protocol):
    """What `Setup.mixing` holds: it mixes the images of a batch.

    Attributes:
        needs_pairs: What needs one text for each image, and how to do without, for a message.
    """

    needs_pairs: ClassVar[tuple[str, str]]

    def mix(
        self, pixels: Float[Tensor, "n c h w"], keys: NDArray[np.int64], draw: Draw, *, candidates: int
    ) -> tuple[Float[Tensor, "n c h w"], Relevance]:
        """Mix the images that one process has of a batch.

        Args:
            pixels: (N C H W) its images.
            keys: (N) their keys, of which samples are a function.
            draw: Seed and epoch.
            candidates: Number of images, or texts, of the complete batch; those of this process come first.

        Returns:
            (N C H W) images, and how much of every image belongs to which text.
        """
