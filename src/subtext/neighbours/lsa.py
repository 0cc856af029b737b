"""Latent semantic analysis (Deerwester and others 1990): the strongest directions of a bag of weighted words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from subtext.data.dataset import Dataset
from subtext.errors import DataError, RequirementError
from subtext.neighbours.space import Distance, Places, Told, unit, words_of
from subtext.neighbours.tfidf import tfidf
from subtext.ops import draw
from subtext.ops.sparse import Sparse

OVERSAMPLE, PASSES = 16, 5
"""Of the randomised search for directions (Halko, Martinsson and Tropp 2011): further columns, and passes."""


@dataclass(frozen=True)
class Lsa:
    """TF-IDF of the words, then the D right singular vectors of the largest singular values; unit rows.

    width  D; fewer where there are fewer words or texts
    seed   of the random search for the directions

    Nothing but PyTorch is needed; any script is read (`data.words`). A text is not placed that has no known word, or
    whose words none of the D directions has: a larger D places more. Gives cosine distances.

    Raises DataError where no text to learn from has a word.
    Cost time of 2 x 5 products of the sparse matrix with D + 16 columns.
    """

    width: int = 200
    seed: int = 0

    def __post_init__(self) -> None:
        if self.width < 1:
            raise RequirementError(f"Lsa needs a width of 1 or more; it got {self.width}")

    @property
    def distance(self) -> Distance:
        """Angles: the length of a row tells how many of its words are known."""
        return "cosine"

    def settings(self) -> Mapping[str, Any]:
        """Everything that the places depend on."""
        return {"name": "lsa", **asdict(self)}

    def __call__(self, pairs: Dataset, learn: Bool[np.ndarray, "n"], told: Told | None = None) -> Places:
        """The places of all texts, learnt from those that `learn` marks."""
        rows = tfidf(words_of(pairs.texts), learn)
        if not rows.width:
            raise DataError(f"lsa needs texts with words; none of the {int(learn.sum()):,} to learn from has one")
        directions = _directions(rows.take(np.flatnonzero(learn).astype(np.int64)), self.width, seed=self.seed)
        vectors = rows.times(directions).numpy()
        if told is not None:
            told(len(rows))
        return Places(unit(vectors), np.abs(vectors).max(axis=1) > 1e-6)


def _directions(rows: Sparse, width: int, *, seed: int) -> Tensor:
    """(V D) the right singular vectors of the largest singular values, by repeated products with the matrix."""
    most = min(len(rows), rows.width)
    columns = min(width + OVERSAMPLE, most)
    names = np.arange(rows.width, dtype=np.int64)
    start = draw.uniform(names, seed=seed, epoch=0, purpose="lsa", count=columns) - 0.5
    back, found = rows.transposed(), torch.from_numpy(start.astype(np.float32))
    for _ in range(PASSES):
        found = torch.linalg.qr(found).Q
        found = back.times(torch.linalg.qr(rows.times(found)).Q)
    found = torch.linalg.qr(found).Q
    turn = torch.linalg.svd(rows.times(found).double(), full_matrices=False).Vh
    return found @ turn[: min(width, most)].T.float()
