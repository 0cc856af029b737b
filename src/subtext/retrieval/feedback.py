"""What liked and disliked items of an index make of a query: one query vector, learnt with the query as its prior.

A user judges results. Of the judged items i with vectors x_i and labels y_i = 1 or -1, the query vector w minimises

    sum over i of c_i log(1 + exp(-y_i (w.x_i + b))) + |w - q|^2 / (2 C)

(logistic regression with the query q as its prior): it stays near the query, however few items are judged. Vectors are
taken from their mean over a sample and divided by the root of their mean square, and q is scaled so that q.x is in
standard deviations over it, whatever space the vectors are of. People judge results, which the query likes already: b
is such that q alone is undecided about the judged items, or liked ones would teach nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subtext.retrieval.confidence import SAMPLES, sample
from subtext.retrieval.stores.item import Side, Space
from subtext.retrieval.stores.store import View

STRENGTH = 4.0
"""C, how far one judged item may lead from the query; see docs/decisions/0198."""


def learn_query(
    query: NDArray[np.float64],
    vectors: NDArray[np.float64],
    labels: NDArray[np.float64],
    *,
    weights: NDArray[np.float64] | None = None,
    strength: float = 1.0,
    bias: float = 0.0,
) -> NDArray[np.float64]:
    """The query vector that judged items lead to; see the module.

    Args:
        query: (D) the prior.
        vectors: (n D) of judged items.
        labels: (n) 1 for liked ones, -1 for others.
        weights: (n) c, 0 or more; None for 1.
        strength: C, above 0.
        bias: b.

    Returns:
        (D) the minimum, which is in the span of query and vectors.

    Complexity:
        n^2 D, and n^3 for each of some ten steps.

    Example:
        >>> learn_query(np.array([2.4, 3.2]), np.array([[1.0, 0.0]]), np.array([1.0])).round(3).tolist()
        [2.477, 3.2]
    """
    counted = np.ones(len(labels)) if weights is None else weights
    prior, gram = vectors @ query + bias, vectors @ vectors.T
    amounts = np.zeros(len(labels))

    def loss(amounts: NDArray[np.float64]) -> float:
        logits = prior + gram @ amounts
        return float(counted @ np.logaddexp(0, -labels * logits) + amounts @ gram @ amounts / (2 * strength))

    value = loss(amounts)
    for _ in range(100):
        shares = 1 / (1 + np.exp(np.clip(labels * (prior + gram @ amounts), -500, 500)))
        # Newton's method; w = q + sum of amounts times vectors.
        gradient = amounts / strength - counted * labels * shares
        curvature = (counted * shares * (1 - shares))[:, None] * gram + np.eye(len(labels)) / strength
        step, size = -np.linalg.solve(curvature, gradient), 1.0
        while (tried := loss(amounts + size * step)) > value and size > 1e-6:
            size /= 2
        if tried > value - 1e-12:
            break
        amounts, value = amounts + size * step, tried
    return query + amounts @ vectors


@dataclass(frozen=True)
class JudgedVectors:
    """The judged items of a query, as they are compared with it in one space.

    Attributes:
        vectors: (n D) float32, of unit length or as the model made them.
        spaces: (n) the space that each is of, whose mean it is taken from.
        labels: (n) 1 for liked ones, -1 for others.
        weights: (n) how much each counts.
    """

    vectors: NDArray[np.float32]
    spaces: Sequence[Space]
    labels: NDArray[np.float64]
    weights: NDArray[np.float64]

    @staticmethod
    def of(rows: Sequence[tuple[NDArray[np.float32], Space, float, float]]) -> JudgedVectors | None:
        """Put judged items together.

        Args:
            rows: (D) vector, space, label and weight of each.

        Returns:
            All of them; None for none.
        """
        if not rows:
            return None
        vectors, spaces, labels, weights = zip(*rows, strict=True)
        return JudgedVectors(np.stack(vectors), spaces, np.array(labels), np.array(weights))


def with_feedback(
    view: View, space: Space, query: NDArray[np.float32], judged: JudgedVectors, *, strength: float
) -> NDArray[np.float32]:
    """A query as judged items have changed it.

    Args:
        view: The index at one moment.
        space: That the query is compared with.
        query: (L D) float32, the views of a query.
        judged: One item or more.
        strength: In units of `STRENGTH`, above 0.

    Returns:
        (L D) float32, on the scale of the query.
    """
    sampled, _, spread = _spread(view, space)
    moments = [_spread(view, of)[1:] for of in judged.spaces]
    examples = np.stack([(own - mean) / root for own, (mean, root) in zip(judged.vectors, moments, strict=True)])
    learnt = []
    for own in query.astype(np.float64):
        scale = spread / (float((sampled @ own).std()) or 1.0)
        prior = scale * own
        bias = -float((examples @ prior).mean())
        vector = learn_query(
            prior, examples, judged.labels, weights=judged.weights, strength=STRENGTH * strength, bias=bias
        )
        learnt.append(vector / scale)
    return np.array(learnt, dtype=np.float32)


def _spread(view: View, space: Space) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """(M D) vectors of a sample of a space, their mean, and the root of their mean square about it."""
    name = f"spread of {space}"
    if name not in view.cache:
        side: Side = "texts" if space == "sentences" else "images" if space == "neighbours" else space
        vectors, there = view.vectors_in(space, sample(view, side, SAMPLES))
        rows = vectors[there].astype(np.float64).mean(axis=1)
        mean = rows.mean(axis=0) if len(rows) else np.zeros(rows.shape[1])
        root = float(np.sqrt(np.mean(np.sum((rows - mean) ** 2, axis=1)))) if len(rows) else 0.0
        view.cache[name] = rows, mean, root or 1.0
    found: tuple[NDArray[np.float64], NDArray[np.float64], float] = view.cache[name]
    return found


def said_by(view: View, space: Space, items: Sequence[tuple[Side, int]]) -> dict[tuple[Side, int], NDArray[np.float32]]:
    """What judged items say: the mean vector of the own texts of an image, or the vector of a text.

    Args:
        view: The index at one moment.
        space: "texts" or "sentences".
        items: Side and key of each.

    Returns:
        (side, key) -> (D); items without texts that have a vector are left out.
    """
    partners = view.partners("images", [key for side, key in items if side == "images"])
    own = {(side, key): partners.get(key, []) if side == "images" else [key] for side, key in items}
    texts = np.unique(np.array([text for some in own.values() for text in some], dtype=np.int64))
    vectors, there = view.vectors_in(space, texts)
    found = {}
    for item, some in own.items():
        rows = np.searchsorted(texts, np.array(some, dtype=np.int64))
        rows = rows[there[rows]]
        if len(rows):
            found[item] = vectors[rows].mean(axis=(0, 1))
    return found
