"""CIDEr and CIDEr-D (Vedantam et al. 2015): how much of its references' rare wording a text repeats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from subtext.evaluation.relevance.grams import Corpus, Grams, corpus, counted, treebank_words
from subtext.ops.compiled.group_products import Terms
from subtext.ops.sparse import Sparse

Variant = Literal["ciderd", "cider"]
LONGEST = 4
"""Words of the longest runs that count."""
_SIGMA = 6.0
"""Words by which lengths may differ before a meeting counts for exp(-1/2)."""
_SCALE = 10.0


def products(
    references: Sequence[str],
    groups: Sequence[int] | NDArray[np.int64],
    candidates: Sequence[str],
    *,
    variant: Variant = "ciderd",
    count: int | None = None,
) -> Terms:
    """CIDEr-D, or plain CIDEr, of every candidate against the references of every group, yet to be multiplied out.

        idf(g)   = ln G - ln max(1, df(g))                      df groups have the run of words g in a reference
        w(g, s)  = tf(g, s) idf(g)                              runs of n = 1 to 4 words, each n a vector of its own
        cider    = sum over g of w(g, h) w(g, r) / (|w(h)| |w(r)|)
        ciderd   = the same with min(w(g, h), w(g, r)) for w(g, h), times exp(-(L(h) - L(r))^2 / (2 6^2))
        C[g, h]  = 10 mean over n and over r in g               (G C) in [0, 10]

    L counts runs of two words, as pycocoevalcap does, whose class "Cider" is CIDEr-D without stemming. There df and G
    come from the images that one scores at a time; here from the groups, once, whichever pairs are requested.

    Words are cut as the Penn Treebank tokeniser does (`words.treebank_words`).

    Args:
        references: Texts.
        groups: (R) the image of each, from 0.
        candidates: Texts.
        variant: "ciderd" or "cider".
        count: G; None for as many as groups names; groups without a reference do not count in idf, and are rows of 0.

    Returns:
        The values of every group and candidate, block by block.

    Raises:
        DataError: If texts and groups do not agree.

    Complexity:
        The output and one pass over common words; COCO's 5,000 x 25,000 pairs take about a second on two cores.

    Example:
        >>> products(["a red dog", "two cats"], [0, 1], ["a red dog", "dogs"]).all().tolist()
        [[7.5, 0.0], [0.0, 0.0]]
    """
    texts = corpus(references, groups, candidates, count)
    grams, words = counted(texts.texts, treebank_words, longest=LONGEST)
    clipped = variant == "ciderd"
    weighed = [_weigh(gram, texts) for gram in grams]
    sizes = texts.sizes
    query_vectors, answers = _rows(weighed, len(texts.texts), clipped=clipped)
    mine = query_vectors.take(texts.references)
    lengths = mine.starts[1:] - mine.starts[:-1]
    share = _SCALE / LONGEST / np.repeat(sizes[texts.groups], lengths)
    by_length: tuple[NDArray[Any], ...] = ()
    if clipped:
        # What a meeting of a reference and a candidate of each two lengths counts.
        words = np.maximum(words - 1, 0)
        lengths_of_references, reference_kinds = np.unique(words[texts.references], return_inverse=True)
        lengths_of_candidates, candidate_kinds = np.unique(words[texts.candidates], return_inverse=True)
        decay = np.exp(-((lengths_of_references[:, None] - lengths_of_candidates[None, :]) ** 2) / (2 * _SIGMA**2))
        by_length = reference_kinds.astype(np.int64), candidate_kinds.astype(np.int64), decay.astype(np.float32)
    return Terms(
        Sparse(mine.starts, mine.columns, (mine.values * share).astype(np.float32), mine.width),
        texts.groups,
        answers.take(texts.candidates),
        texts.count,
        *by_length,
    )


@dataclass(frozen=True)
class _Weighed:
    """Grams of one length: rows, features and counts of those that some reference has, idf / norm of each entry."""

    grams: Grams
    values: NDArray[np.float64]


def _weigh(grams: Grams, texts: Corpus) -> _Weighed:
    counts = Sparse.of_entries(
        grams.rows, grams.features, np.ones(len(grams.rows)), count=len(texts.texts), width=grams.width
    ).take(texts.references)
    groups = np.repeat(texts.groups, counts.starts[1:] - counts.starts[:-1])
    pairs = np.sort(groups * np.int64(grams.width) + counts.columns)
    first = np.diff(pairs, prepend=-1) > 0
    frequency = np.bincount(pairs[first] % max(1, grams.width), minlength=grams.width)
    idf = np.log(np.count_nonzero(texts.sizes)) - np.log(np.maximum(frequency, 1))
    weights = grams.counts * idf[grams.features]
    norms = np.sqrt(np.bincount(grams.rows, weights**2, minlength=len(texts.texts)))
    # What no reference has lengthens a vector and meets nothing; what all have weighs nothing.
    valid = (frequency[grams.features] > 0) & (weights > 0)
    rows, features = grams.rows[valid], grams.features[valid]
    return _Weighed(Grams(rows, features, grams.counts[valid], grams.width), idf[features] / norms[rows])


def _rows(weighed: Sequence[_Weighed], count: int, *, clipped: bool) -> tuple[Sparse, Sparse]:
    """All texts as references and as candidates, over the same features.

    min(a, b) of whole numbers is the sum over t of [a >= t] [b >= t]: a run that stands twice in a text is a second
    feature there, so that clipping is a product like any other.
    """
    offsets = np.cumsum([0, *(vectors.grams.width for vectors in weighed)])
    rows = np.concatenate([vectors.grams.rows for vectors in weighed])
    features = np.concatenate([part.grams.features + offset for part, offset in zip(weighed, offsets, strict=False)])
    counts = np.concatenate([vectors.grams.counts for vectors in weighed])
    values = np.concatenate([vectors.values for vectors in weighed])
    width = int(offsets[-1])
    if not clipped:
        both = Sparse.of_entries(rows, features, counts * values, count=count, width=width)
        return both, both
    again = np.flatnonzero(counts > 1)
    times = counts[again] - 1
    entries = np.repeat(again, times)
    levels = np.arange(len(entries)) - np.repeat(np.cumsum(times) - times, times)
    names, repeated = np.unique(features[entries] * np.int64(counts.max(initial=1)) + levels, return_inverse=True)
    rows = np.concatenate([rows, rows[entries]])
    features = np.concatenate([features, width + repeated])
    width += len(names)
    answers = np.concatenate([values, values[entries]])
    query_values = answers * np.concatenate([counts, counts[entries]])
    return (
        Sparse.of_entries(rows, features, query_values, count=count, width=width),
        Sparse.of_entries(rows, features, answers, count=count, width=width),
    )
