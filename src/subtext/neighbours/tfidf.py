"""Texts as weighted bags of words, sparse: what latent semantic analysis starts from, and what judges a graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from subtext.data.words import tokenise
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
