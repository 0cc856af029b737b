"""The quality of a graph by another measure: how often neighbours count as related, beside random pairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from subtext.data.dataset import Items
from subtext.errors import DataError
from subtext.evaluation.relevance.cider import products
from subtext.graphs.graph import Graph
from subtext.graphs.spaces import cosines, tfidf, words_of
from subtext.ops import draw

_BLOCK = 256
"""Pairs that are scored at a time, each left text with each right one."""

Values = Callable[[Items, Int[np.ndarray, "m"], Int[np.ndarray, "m"]], Float[np.ndarray, "m"]]
"""Texts, and rows of the left and of the right text of each pair -> a value a pair, larger for more related ones."""


@dataclass(frozen=True)
class Judge:
    """A measure of how related pairs of texts are.

    Attributes:
        name: In a report.
        related: The value at which two texts count as related.
        values: Texts, and (M) rows of the left and of the right text of each pair -> (M) values, larger for more
            related ones.
    """

    name: str
    related: float
    values: Values


def _ciderd(texts: Items, left: Int[np.ndarray, "m"], right: Int[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
    words = words_of(texts)
    scored = products(words, np.arange(len(words), dtype=np.int64), words)
    order = np.argsort(left, kind="stable")
    values = np.empty(len(left))
    for start in range(0, len(left), _BLOCK):
        block = order[start : start + _BLOCK]
        groups, row = np.unique(left[block], return_inverse=True)
        candidates, column = np.unique(right[block], return_inverse=True)
        values[block] = scored.block(groups, candidates)[row, column]
    return values


TFIDF = Judge("tfidf", 0.3, lambda texts, *pairs: cosines(tfidf(words_of(texts), np.ones(len(texts), bool)), *pairs))
"""The cosine of unigram TF-IDF vectors, in [0, 1]. Li and others 2022 use 0.3 for COCO."""
CIDERD = Judge("ciderd", 1.0, _ciderd)
"""CIDEr-D of the right text against the left one as its only reference, in [0, 10]; all texts count how rare words are.

About as many of COCO's 5,000 x 25,000 test pairs reach 1 as reach a TF-IDF cosine of 0.3: 146,476 and 128,043.
"""


@dataclass(frozen=True)
class Quality:
    """Percentages of pairs that a judge calls related, and the means of its values.

    Attributes:
        judge: Name of the measure.
        related: The value at which two texts count as related.
        neighbours: Percentages.
        random: See `neighbours`.
        neighbours_mean: Means.
        random_mean: See `neighbours_mean`.
        pairs: Number of pairs of each kind.
    """

    judge: str
    related: float
    neighbours: float
    random: float
    neighbours_mean: float
    random_mean: float
    pairs: int


def graph_quality(graph: Graph, texts: Items, judge: Judge, *, pairs: int = 10_000, seed: int = 0) -> Quality:
    """Judge a sample of neighbour pairs, and as many pairs of the same texts with a random one that is no neighbour.

    A random text is drawn from those that are somebody's neighbour, is not the text itself nor in its list.

    Args:
        graph: Neighbours of texts.
        texts: Those of the graph.
        judge: Another measure of how related texts are.
        pairs: Number of neighbour pairs.
        seed: Of the sample.

    Returns:
        The values of neighbours and of random pairs.

    Raises:
        DataError: If `texts` are not those of the graph, or have no words.
    """
    graph.require(texts)
    counts = np.asarray(graph.counts)
    rows = np.flatnonzero(counts).astype(np.int64)
    order = draw.permutation(int(counts.sum()), seed=seed, epoch=0, purpose="graph quality")[:pairs]
    ends = np.cumsum(counts[rows])
    positions = np.sort(order)
    index = np.searchsorted(ends, positions, side="right")
    left = rows[index]
    right = np.asarray(graph.neighbours)[left, positions - (ends - counts[rows])[index]].astype(np.int64)
    random = _random_texts(graph, left, seed=seed)
    exists = random >= 0
    if not exists.any():
        raise DataError("judging a graph needs texts that are no neighbours of each other; use fewer neighbours")
    near_values = judge.values(texts, left, right)
    random_values = judge.values(texts, left[exists], random[exists])
    return Quality(
        judge=judge.name,
        related=judge.related,
        neighbours=100 * float((near_values >= judge.related).mean()),
        random=100 * float((random_values >= judge.related).mean()),
        neighbours_mean=float(near_values.mean()),
        random_mean=float(random_values.mean()),
        pairs=len(left),
    )


def _random_texts(graph: Graph, left: Int[np.ndarray, "m"], *, seed: int) -> Int[np.ndarray, "m"]:
    """For each row a candidate that is not its neighbour; -1 where eight samples met neighbours only."""
    neighbours = np.asarray(graph.neighbours)
    pool = np.unique(neighbours[neighbours >= 0])
    keys = np.arange(len(left), dtype=np.int64)
    samples = pool[draw.integers(keys, len(pool), seed=seed, epoch=0, purpose="random text", count=8)].astype(np.int64)
    random = np.full(len(left), -1, dtype=np.int64)
    for start in range(0, len(left), 4096):
        block = slice(start, start + 4096)
        lists = neighbours[left[block]]
        is_neighbour = (samples[block, :, None] == lists[:, None, :]).any(axis=2)
        is_neighbour |= samples[block] == left[block, None]
        first = np.argmin(is_neighbour, axis=1)
        lines = np.arange(len(first))
        random[block] = np.where(is_neighbour[lines, first], -1, samples[block][lines, first])
    return random
