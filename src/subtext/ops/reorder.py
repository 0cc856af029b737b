"""Other orders of what was found: ranks fused, hubs held back, near-copies spread out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

RANK = 60
"""What is added to ranks before they are fused, as its authors have it."""


def fuse_ranks(lists: Sequence[Sequence[int]], *, constant: int = RANK) -> dict[int, float]:
    """Reciprocal rank fusion (Cormack, Clarke and Buettcher 2009): sum over lists of 1 / (constant + rank).

    lists     keys, best first, ranks from 1; a key that a list lacks gets nothing from it
    constant  the larger, the less the first places count beside the others

    Gives key -> score, larger is better; scores of the lists themselves play no part, so they need no common scale.

    >>> fused = fuse_ranks([[7, 8], [8]], constant=1)
    >>> fused[7], round(fused[8], 4)
    (0.5, 0.8333)
    """
    found: dict[int, float] = {}
    for each in lists:
        for rank, key in enumerate(each, start=1):
            found[key] = found.get(key, 0.0) + 1 / (constant + rank)
    return found


def local_scaling(
    scores: Float[np.ndarray, "c"], crowd: Float[np.ndarray, "c b"], *, nearest: int = 10
) -> Float[np.ndarray, "c"]:
    """Cross-domain similarity local scaling (CSLS, Lample and others 2018) of one query's scores: 2 s_c - r_c.

    crowd    scores of each candidate with a bank of B other queries
    nearest  of them whose mean is r_c: a hub, which is near to many, has a large one

    The query's own mean is the same for all candidates, and is left out. Cost time C B.

    >>> local_scaling(np.array([0.5, 0.375]), np.array([[0.5, 0.5], [0.125, 0.125]]), nearest=2).tolist()
    [0.5, 0.625]
    """
    count = min(nearest, crowd.shape[1])
    if not count:
        return 2 * scores
    found: NDArray[np.float64] = 2 * scores - np.partition(crowd, -count, axis=1)[:, -count:].mean(axis=1)
    return found


def inverted_softmax(
    scores: Float[np.ndarray, "c"], crowd: Float[np.ndarray, "c b"], *, temperature: float
) -> Float[np.ndarray, "c"]:
    """Inverted softmax (Smith and others 2017) of one query: log of exp(s_c / t) / sum_b exp(crowd_cb / t).

    How likely a candidate would choose this query, among a bank of B others. Cost time C B.

    >>> inverted_softmax(np.array([0.0, 0.0]), np.array([[0.0], [1.0]]), temperature=1.0).tolist()
    [0.0, -1.0]
    """
    scaled = crowd / temperature
    most = scaled.max(axis=1, keepdims=True)
    total = most[:, 0] + np.log(np.exp(scaled - most).sum(axis=1))
    found: NDArray[np.float64] = scores / temperature - total
    return found


def spread_out(
    worth: Float[np.ndarray, "c"], alike: Float[np.ndarray, "c c"], *, count: int, diversity: float
) -> Int[np.ndarray, "t"]:
    """Maximal marginal relevance (Carbonell and Goldstein 1998): `count` places, each the best beside those before it.

    worth      of each candidate, larger is better; brought to [0, 1] over the candidates
    alike      similarity of candidates, as cosines
    diversity  d in [0, 1]: (1 - d) worth - d * (the greatest similarity to one that is chosen); 0 sorts by worth

    Equal ones stay in their order. Cost time count C.

    >>> alike = np.array([[1.0, 0.99, 0.0], [0.99, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> spread_out(np.array([1.0, 0.9, 0.5]), alike, count=2, diversity=0.5).tolist()
    [0, 2]
    """
    span = float(np.ptp(worth)) if len(worth) else 0.0
    scaled = (worth - worth.min()) / span if span else np.zeros(len(worth))
    nearest = np.full(len(worth), -1.0)
    left = np.ones(len(worth), dtype=np.bool_)
    chosen: list[int] = []
    for _ in range(min(count, len(worth))):
        # Nothing is alike to nothing: the first is the best.
        value = (1 - diversity) * scaled - (diversity * nearest if chosen else 0)
        place = int(np.argmax(np.where(left, value, -np.inf)))
        chosen.append(place)
        left[place] = False
        nearest = np.maximum(nearest, alike[place])
    return np.array(chosen, dtype=np.int64)
