"""Latent semantic analysis (Deerwester and others 1990): the strongest directions of a bag of weighted words.

Texts as weighted bags of words, sparse: what latent semantic analysis starts from, and what judges a graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from subtext.data.dataset import Dataset
from subtext.data.words import tokenise
from subtext.errors import DataError, RequirementError
from subtext.neighbours.spaces import Distance, Places, Progress, unit, words_of
from subtext.ops import draw
from subtext.ops.sparse import Sparse


def tfidf(texts: Sequence[str], learn: Bool[np.ndarray, "n"]) -> Sparse:
    """Unit rows of term count times inverse document frequency; the words are those of the texts to learn from.

        tf * (ln((1 + T) / (1 + df)) + 1)        T texts to learn from, df of them have the word

    A text of unknown words alone is a row of nothing.

    >>> found = tfidf(["a dog", "a cat"], np.array([True, True]))
    >>> found.width, [round(float(value), 3) for value in found.values[:2]]
    (3, [0.58, 0.815])
    """
    bags = [Counter(tokenise(text)) for text in texts]
    frequency: Counter[str] = Counter(word for row in np.flatnonzero(learn) for word in bags[row])
    codes = {word: code for code, word in enumerate(sorted(frequency))}
    idf = np.array([np.log((1 + learn.sum()) / (1 + frequency[word])) + 1 for word in codes], dtype=np.float64)
    starts, columns, values = [0], [], []
    for bag in bags:
        entries = sorted((codes[word], count) for word, count in bag.items() if word in codes)
        columns_of = np.array([code for code, _ in entries], dtype=np.int64)
        weights = np.array([count for _, count in entries]) * idf[columns_of]
        columns.append(columns_of)
        values.append(weights / max(float(np.sqrt((weights**2).sum())), 1e-12))
        starts.append(starts[-1] + len(columns_of))
    return Sparse(
        np.array(starts, dtype=np.int64),
        np.concatenate(columns) if columns else np.zeros(0, dtype=np.int64),
        np.concatenate(values).astype(np.float32) if values else np.zeros(0, dtype=np.float32),
        len(codes),
    )


def cosines(rows: Sparse, left: Int[np.ndarray, "m"], right: Int[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
    """The cosine of each pair of unit rows; pairs of one left row are best given together."""
    values = np.zeros(len(left), dtype=np.float32)
    spread = np.zeros(rows.width, dtype=np.float32)
    last = slice(0, 0)
    for pair, (row, second) in enumerate(zip(left.tolist(), right.tolist(), strict=True)):
        span_of = slice(int(rows.starts[row]), int(rows.starts[row + 1]))
        if span_of != last:
            spread[rows.columns[last]] = 0
            spread[rows.columns[span_of]] = rows.values[span_of]
            last = span_of
        span = slice(int(rows.starts[second]), int(rows.starts[second + 1]))
        values[pair] = spread[rows.columns[span]] @ rows.values[span]
    return values


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

    def __call__(self, pairs: Dataset, learn: Bool[np.ndarray, "n"], progress: Progress | None = None) -> Places:
        """The places of all texts, learnt from those that `learn` marks."""
        rows = tfidf(words_of(pairs.texts), learn)
        if not rows.width:
            raise DataError(f"lsa needs texts with words; none of the {int(learn.sum()):,} to learn from has one")
        directions = _directions(rows.take(np.flatnonzero(learn).astype(np.int64)), self.width, seed=self.seed)
        vectors = rows.times(directions).numpy()
        if progress is not None:
            progress(len(rows))
        return Places(unit(vectors), np.abs(vectors).max(axis=1) > 1e-6)


def _directions(rows: Sparse, width: int, *, seed: int) -> Tensor:
    """(V D) the right singular vectors of the largest singular values, by repeated products with the matrix."""
    most = min(len(rows), rows.width)
    columns = min(width + OVERSAMPLE, most)
    names = np.arange(rows.width, dtype=np.int64)
    start = draw.uniform(names, seed=seed, epoch=0, purpose="lsa", count=columns) - 0.5
    back, basis = rows.transposed(), torch.from_numpy(start.astype(np.float32))
    for _ in range(PASSES):
        basis = torch.linalg.qr(basis).Q
        basis = back.times(torch.linalg.qr(rows.times(basis)).Q)
    basis = torch.linalg.qr(basis).Q
    turn = torch.linalg.svd(rows.times(basis).double(), full_matrices=False).Vh
    return basis @ turn[: min(width, most)].T.float()
