"""Cosine of sentence vectors: how much two texts mean the same to an encoder that was trained for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

from subtext.errors import DataError, ShapeError
from subtext.evaluation.relevance.grams import corpus

Encoder = Callable[[Sequence[str]], Float[np.ndarray, "n d"]]
"""Texts to vectors: a `SentenceEncoder`, or anybody's function."""
_BLOCK = 512
"""Groups that are multiplied at a time."""


def relevance(
    references: Sequence[str],
    groups: Sequence[int] | NDArray[np.int64],
    candidates: Sequence[str],
    *,
    encoder: Encoder,
    count: int | None = None,
    out: Float[np.ndarray, "g c"] | None = None,
) -> Float[np.ndarray, "g c"]:
    """Mean over the references of a group of their cosine with a candidate, (G C) in [-1, 1].

    encoder  reads each different text once; vectors of any length but nought
    The other arguments are those of `tfidf.products`, and of its `all`. A group without references is a row of 0.

    Raises DataError when texts and groups do not agree, or the encoder gives a vector without a direction.
    """
    texts = corpus(references, groups, candidates, count)
    vectors = np.asarray(encoder(texts.texts), dtype=np.float32)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not (np.isfinite(lengths) & (lengths > 0)).all():
        broken = texts.texts[int(np.argmin(np.isfinite(lengths) & (lengths > 0)))]
        raise DataError(f"a cosine needs vectors with a direction; the encoder gave none for {broken[:80]!r}")
    vectors = vectors / lengths
    sizes = texts.sizes
    means = np.zeros((texts.count, vectors.shape[1]), dtype=np.float32)
    np.add.at(means, texts.groups, vectors[texts.references])
    means /= np.maximum(sizes, 1)[:, None]
    shape = (texts.count, len(texts.candidates))
    values = np.empty(shape, dtype=np.float32) if out is None else out
    if values.shape != shape:
        raise ShapeError(f"sentence relevance needs out of (groups, candidates) = {shape}; it got {values.shape}")
    answers = torch.from_numpy(np.ascontiguousarray(vectors[texts.candidates].T))
    for start in range(0, texts.count, _BLOCK):
        values[start : start + _BLOCK] = (torch.from_numpy(means[start : start + _BLOCK]) @ answers).numpy()
    return values
