"""How good a graph is by another measure: how often neighbours count as related, beside random pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from subtext.data.dataset import Items
from subtext.errors import DataError
from subtext.neighbours.graph import Graph
from subtext.neighbours.space import words_of
from subtext.neighbours.tfidf import cosines, tfidf
from subtext.ops import draw

RELATED = 0.3
"""The TF-IDF cosine from which two captions count as related (Li and others 2022 take it for COCO)."""


@runtime_checkable
class Judge(Protocol):
    """Says how related pairs of texts are: TF-IDF here; CIDEr-D, of another room, is brought by who asks."""

    @property
    def name(self) -> str:
        """What it is called in a report."""

    @property
    def related(self) -> float:
        """From which value on two texts count as related."""

    def __call__(self, texts: Items, left: Int[np.ndarray, "m"], right: Int[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
        """A value for each pair of rows."""


@dataclass(frozen=True)
class Tfidf:
    """The cosine of unigram TF-IDF vectors."""

    related: float = RELATED
    name: str = "tfidf"

    def __call__(self, texts: Items, left: Int[np.ndarray, "m"], right: Int[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
        """(M) in [0, 1]."""
        return cosines(tfidf(words_of(texts), np.ones(len(texts), dtype=bool)), left, right)


@dataclass(frozen=True)
class Quality:
    """Shares in per cent of pairs that a judge calls related, and the mean of what it says of them.

    neighbours, random            shares
    neighbours_mean, random_mean  means
    pairs                         how many pairs of each kind were judged
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

    Raises DataError when `texts` are not those of the graph, or have no words.
    """
    graph.require(texts)
    counts = np.asarray(graph.counts)
    rows = np.flatnonzero(counts).astype(np.int64)
    order = draw.permutation(int(counts.sum()), seed=seed, epoch=0, purpose="graph quality")[:pairs]
    ends = np.cumsum(counts[rows])
    which = np.sort(order)
    place = np.searchsorted(ends, which, side="right")
    left = rows[place]
    right = np.asarray(graph.neighbours)[left, which - (ends - counts[rows])[place]].astype(np.int64)
    other = _strangers(graph, left, seed=seed)
    met = other >= 0
    if not met.any():
        raise DataError("judging a graph needs texts that are no neighbours of each other; ask for fewer neighbours")
    near, far = judge(texts, left, right), judge(texts, left[met], other[met])
    return Quality(
        judge=judge.name,
        related=judge.related,
        neighbours=100 * float((near >= judge.related).mean()),
        random=100 * float((far >= judge.related).mean()),
        neighbours_mean=float(near.mean()),
        random_mean=float(far.mean()),
        pairs=len(left),
    )


def _strangers(graph: Graph, left: Int[np.ndarray, "m"], *, seed: int) -> Int[np.ndarray, "m"]:
    """For each row one that may be a neighbour and is none of its own; -1 where eight draws met neighbours alone."""
    neighbours = np.asarray(graph.neighbours)
    pool = np.unique(neighbours[neighbours >= 0])
    keys = np.arange(len(left), dtype=np.int64)
    drawn = pool[draw.integers(keys, len(pool), seed=seed, epoch=0, purpose="stranger", count=8)].astype(np.int64)
    other = np.full(len(left), -1, dtype=np.int64)
    for start in range(0, len(left), 4096):
        part = slice(start, start + 4096)
        own = neighbours[left[part]]
        taken = (drawn[part, :, None] == own[:, None, :]).any(axis=2) | (drawn[part] == left[part, None])
        first = np.argmin(taken, axis=1)
        lines = np.arange(len(first))
        other[part] = np.where(taken[lines, first], -1, drawn[part][lines, first])
    return other


def as_json(quality: Quality) -> Mapping[str, object]:
    """The figures by name."""
    return {name: getattr(quality, name) for name in Quality.__dataclass_fields__}
