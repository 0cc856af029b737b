"""Texts as weighted bags of words, sparse: what latent semantic analysis starts from, and what judges a graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag

from subtext.data.words import tokenise

SLAB = 128
"""Columns of a dense matrix that are multiplied at a time: their rows stay in the cache."""


@dataclass(frozen=True)
class Sparse:
    """A matrix of N rows and V columns by its entries, row after row.

    starts   (N + 1) int64, where each row begins among the entries
    columns  (L) int64, rising within a row         values  (L) float32
    width    V
    """

    starts: Int[np.ndarray, "n1"]
    columns: Int[np.ndarray, "l"]
    values: Float[np.ndarray, "l"]
    width: int

    def __len__(self) -> int:
        """N, how many rows."""
        return len(self.starts) - 1

    def take(self, rows: NDArray[np.int64]) -> Sparse:
        """The chosen rows in the order given."""
        lengths = (self.starts[1:] - self.starts[:-1])[rows]
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        within = np.arange(starts[-1], dtype=np.int64) - np.repeat(starts[:-1], lengths)
        entries = np.repeat(self.starts[rows], lengths) + within
        return Sparse(starts, self.columns[entries], self.values[entries], self.width)

    def transposed(self) -> Sparse:
        """The same entries, column after column."""
        order = np.argsort(self.columns, kind="stable")
        rows = np.repeat(np.arange(len(self), dtype=np.int64), self.starts[1:] - self.starts[:-1])
        counts = np.bincount(self.columns, minlength=self.width)
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return Sparse(starts, rows[order], self.values[order], len(self))

    def times(self, dense: Float[Tensor, "v d"]) -> Float[Tensor, "n d"]:
        """The product with a dense matrix."""
        columns, starts = torch.from_numpy(self.columns), torch.from_numpy(self.starts[:-1])
        values = torch.from_numpy(self.values)
        pieces = [
            embedding_bag(columns, slab.contiguous(), starts, mode="sum", per_sample_weights=values)
            for slab in dense.split(SLAB, dim=1)
        ]
        return torch.cat(pieces, dim=1)


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
        places = np.array([code for code, _ in entries], dtype=np.int64)
        weights = np.array([count for _, count in entries]) * idf[places]
        columns.append(places)
        values.append(weights / max(float(np.sqrt((weights**2).sum())), 1e-12))
        starts.append(starts[-1] + len(places))
    return Sparse(
        np.array(starts, dtype=np.int64),
        np.concatenate(columns) if columns else np.zeros(0, dtype=np.int64),
        np.concatenate(values).astype(np.float32) if values else np.zeros(0, dtype=np.float32),
        len(codes),
    )


def cosines(rows: Sparse, left: Int[np.ndarray, "m"], right: Int[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
    """The cosine of each pair of unit rows; pairs of one left row are best given together."""
    found = np.zeros(len(left), dtype=np.float32)
    spread = np.zeros(rows.width, dtype=np.float32)
    last = slice(0, 0)
    for pair, (row, other) in enumerate(zip(left.tolist(), right.tolist(), strict=True)):
        own = slice(int(rows.starts[row]), int(rows.starts[row + 1]))
        if own != last:
            spread[rows.columns[last]] = 0
            spread[rows.columns[own]] = rows.values[own]
            last = own
        span = slice(int(rows.starts[other]), int(rows.starts[other + 1]))
        found[pair] = spread[rows.columns[span]] @ rows.values[span]
    return found
