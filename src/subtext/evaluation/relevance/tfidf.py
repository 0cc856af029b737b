"""Unigram TF-IDF cosine (what Li et al. 2022 computed and called CIDEr): how much two texts share their rare words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from subtext.evaluation.relevance.grams import Corpus, corpus, counted, long_words
from subtext.ops.compiled.group_products import Terms
from subtext.ops.sparse import Sparse

NAME = "tfidf1"


def products(
    references: Sequence[str],
    groups: Sequence[int] | NDArray[np.int64],
    candidates: Sequence[str],
    *,
    count: int | None = None,
) -> Terms:
    """Mean over the references of a group of their cosine with a candidate, (G C) in [0, 1], yet to be multiplied out.

        idf(w) = ln((1 + R) / (1 + df(w))) + 1        R references, df of them have the word
        x(s)   = tf(w, s) idf(w), as a unit vector    words of two characters or more, in lower case
        C[g,c] = mean over r in g of x(r) . x(c)

    These are scikit-learn's defaults, as the released code of Li et al. calls them; their text cites CIDEr, and
    figures under the two cannot be compared. The mean over references is not made a unit vector again.

    Args:
        references: Texts that documents are counted in: the captions of the split that is measured.
        groups: (R) the image of each reference, from 0.
        candidates: Texts; words that no reference has count for nothing.
        count: G; None for as many as groups names.

    Returns:
        The cosines of every group and candidate, block by block.

    Raises:
        DataError: If texts and groups do not agree.

    Example:
        >>> products(["red dog", "red cat"], [0, 1], ["red dog", "a bird"]).all().round(3)
        array([[1.   , 0.   ],
               [0.336, 0.   ]], dtype=float32)
    """
    texts = corpus(references, groups, candidates, count)
    rows = unit_rows(texts)
    sizes = texts.sizes
    mine = rows.take(texts.references)
    lengths = mine.starts[1:] - mine.starts[:-1]
    weighed = (mine.values / np.repeat(sizes[texts.groups], lengths)).astype(np.float32)
    return Terms(
        Sparse(mine.starts, mine.columns, weighed, mine.width), texts.groups, rows.take(texts.candidates), texts.count
    )


def unit_rows(texts: Corpus) -> Sparse:
    """The unit vectors of the different texts; one without a word of the references is a row of nothing.

    Args:
        texts: Counted texts.

    Returns:
        Sparse rows of length 1; a text without known words has length 0.
    """
    (grams,), _ = counted(texts.texts, long_words, longest=1)
    times = np.bincount(texts.references, minlength=len(texts.texts))
    frequency = np.bincount(grams.features, times[grams.rows], minlength=grams.width)
    valid = frequency[grams.features] > 0
    rows, features = grams.rows[valid], grams.features[valid]
    idf = np.log((1 + len(texts.references)) / (1 + frequency)) + 1
    weights = grams.counts[valid] * idf[features]
    norms = np.sqrt(np.bincount(rows, weights**2, minlength=len(texts.texts)))
    return Sparse.of_entries(rows, features, weights / norms[rows], count=len(texts.texts), width=grams.width)
