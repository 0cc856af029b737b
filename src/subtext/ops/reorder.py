"""Re-ranking of search results: rank fusion, hubness correction, diversity."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

RANK = 60
"""Constant added to ranks before fusion, as its authors have it."""


def fuse_ranks(lists: Sequence[Sequence[int]], *, constant: int = RANK) -> dict[int, float]:
    """Reciprocal rank fusion (Cormack, Clarke and Buettcher 2009): sum over lists of 1 / (constant + rank).

    lists     keys, best first, ranks from 1; a list adds nothing to a key that it lacks
    constant  the larger, the less the first ranks count more than the others

    Gives key -> score, larger is better. The scores of the lists are not read, so they need no common scale.

    >>> fused = fuse_ranks([[7, 8], [8]], constant=1)
    >>> fused[7], round(fused[8], 4)
    (0.5, 0.8333)
    """
    scores: dict[int, float] = {}
    for keys in lists:
        for rank, key in enumerate(keys, start=1):
            scores[key] = scores.get(key, 0.0) + 1 / (constant + rank)
    return scores


def local_scaling(
    scores: Float[np.ndarray, "c"], bank_scores: Float[np.ndarray, "c b"], *, nearest: int = 10
) -> Float[np.ndarray, "c"]:
    """Cross-domain similarity local scaling (CSLS, Lample and others 2018) of one query's scores: 2 s_c - r_c.

    bank_scores  scores of each candidate with a bank of B other queries
    nearest      how many of the largest are averaged for r_c, which is large for a hub

    The query's own mean is the same for all candidates and is left out. Cost time C B.

    >>> local_scaling(np.array([0.5, 0.375]), np.array([[0.5, 0.5], [0.125, 0.125]]), nearest=2).tolist()
    [0.5, 0.625]
    """
    count = min(nearest, bank_scores.shape[1])
    if not count:
        return 2 * scores
    return 2 * scores - np.partition(bank_scores, -count, axis=1)[:, -count:].mean(axis=1)


def inverted_softmax(
    scores: Float[np.ndarray, "c"], bank_scores: Float[np.ndarray, "c b"], *, temperature: float
) -> Float[np.ndarray, "c"]:
    """Inverted softmax (Smith and others 2017) of one query: log of exp(s_c / t) / sum_b exp(s_cb / t).

    The probability that a candidate chooses this query among a bank of B others. Cost time C B.

    >>> inverted_softmax(np.array([0.0, 0.0]), np.array([[0.0], [1.0]]), temperature=1.0).tolist()
    [0.0, -1.0]
    """
    scaled = bank_scores / temperature
    highest = scaled.max(axis=1, keepdims=True)
    total = highest[:, 0] + np.log(np.exp(scaled - highest).sum(axis=1))
    return scores / temperature - total


def spread_out(
    relevance: Float[np.ndarray, "c"], similarity: Float[np.ndarray, "c c"], *, count: int, diversity: float
) -> Int[np.ndarray, "t"]:
    """Maximal marginal relevance (Carbonell and Goldstein 1998): `count` candidates, each the best after those before.

    relevance   of each candidate, larger is better; brought to [0, 1] over the candidates
    similarity  similarity of candidates, as cosines
    diversity   d in [0, 1]: (1 - d) relevance - d * (the largest similarity to a selected one); 0 sorts by relevance

    Equal candidates stay in their order. Cost time count C.

    >>> alike = np.array([[1.0, 0.99, 0.0], [0.99, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> spread_out(np.array([1.0, 0.9, 0.5]), alike, count=2, diversity=0.5).tolist()
    [0, 2]
    """
    span = float(np.ptp(relevance)) if len(relevance) else 0.0
    scaled = (relevance - relevance.min()) / span if span else np.zeros(len(relevance))
    nearest = np.full(len(relevance), -1.0)
    available = np.ones(len(relevance), dtype=np.bool_)
    chosen: list[int] = []
    for _ in range(min(count, len(relevance))):
        # The first has no selected ones to differ from: it is the best.
        value = (1 - diversity) * scaled - (diversity * nearest if chosen else 0)
        best = int(np.argmax(np.where(available, value, -np.inf)))
        chosen.append(best)
        available[best] = False
        nearest = np.maximum(nearest, similarity[best])
    return np.array(chosen, dtype=np.int64)
