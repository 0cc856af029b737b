"""The evaluation itself: data -> scores in blocks -> values -> Result."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from subtext.core import Embeddings
from subtext.data.dataset import Dataset
from subtext.errors import ShapeError
from subtext.evaluation import gallery as galleries
from subtext.evaluation import scoring
from subtext.evaluation.embedding import embed_pairs
from subtext.evaluation.folds import measured
from subtext.evaluation.protocol import Further, Protocol
from subtext.evaluation.results import Result
from subtext.evaluation.scoring import STORED_BYTES, Embedded, Matrix
from subtext.models.model import Model


def evaluate(
    model: Model,
    pairs: Dataset,
    *,
    protocol: Protocol | None = None,
    batch_size: int = 128,
    workers: int = 2,
    progress: Callable[[int], None] | None = None,
    further: Further | None = None,
) -> Result:
    """How well a model finds the texts of these pictures and the pictures of these texts.

    pairs     one split; every picture and every text asks, and is a candidate of the other side
    protocol  None for the default one
    progress  hears how many pictures and texts are embedded
    further   what is measured beyond the protocol; None for nothing

    Raises RequirementError when no picture and text of `pairs` belong together, or there are more folds than pictures.
    Cost   embedding, and one similarity of every pair in each direction; memory is bounded by the embeddings and
           blocks of 64 MB (a score matrix of up to 256 MB is kept instead).
    """
    images, texts = embed_pairs(model, pairs, batch_size=batch_size, workers=workers, progress=progress)
    return evaluate_embeddings(model.similarity, images, texts, pairs, protocol=protocol, further=further)


def evaluate_embeddings(
    similarity: nn.Module,
    images: Embeddings,
    texts: Embeddings,
    pairs: Dataset,
    *,
    protocol: Protocol | None = None,
    further: Further | None = None,
    block_bytes: int = scoring.BLOCK_BYTES,
) -> Result:
    """The same from embeddings of all pictures and texts of `pairs`, in their order.

    Raises ShapeError when embeddings and items differ in number.
    """
    if (len(images), len(texts)) != (len(pairs.images), len(pairs.texts)):
        raise ShapeError(
            f"evaluation needs an embedding for each of {len(pairs.images)} pictures and {len(pairs.texts)} texts; it "
            f"got {len(images)} and {len(texts)}; embed the split that is evaluated"
        )
    asked = protocol or Protocol()
    more = further or Further()
    stored = STORED_BYTES if more.empty else 2 * STORED_BYTES
    source = Embedded(similarity, images, texts, block_bytes, asked.exact, stored)
    return measured(source, galleries.of_pairs(pairs), asked, more)


def evaluate_matrix(
    scores: Float[Tensor, "i t"],
    pairs: Dataset,
    *,
    protocol: Protocol | None = None,
    further: Further | None = None,
) -> Result:
    """The same from scores of all pictures with all texts of `pairs`, in their order; larger is better.

    Raises ShapeError when scores and items differ in number.
    """
    wanted = (len(pairs.images), len(pairs.texts))
    if tuple(scores.shape) != wanted:
        raise ShapeError(
            f"scores must be (pictures, texts) = {wanted} as the data is; it got {tuple(scores.shape)}"
            + ("; turn them" if tuple(scores.shape) == wanted[::-1] else "")
        )
    return measured(Matrix(scores), galleries.of_pairs(pairs), protocol or Protocol(), further or Further())


def evaluate_scores(
    scores: Float[Tensor, "i t"],
    image_groups: NDArray[np.int64],
    text_groups: NDArray[np.int64],
    protocol: Protocol | None = None,
) -> Result:
    """The same from a score matrix, larger is better; a picture and a text belong together when their groups agree.

    Raises ShapeError when groups and scores differ in number.
    """
    if tuple(scores.shape) != (len(image_groups), len(text_groups)):
        raise ShapeError(
            f"scores must be (pictures, texts) = {(len(image_groups), len(text_groups))} as the groups are; "
            f"it got {tuple(scores.shape)}"
        )
    gallery = galleries.of_groups(image_groups, text_groups)
    return measured(Matrix(scores), gallery, protocol or Protocol(), Further())
