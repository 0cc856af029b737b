"""The first candidates of each query: is a partner among them, and their relevance (Li et al. 2022, figure 1c)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from subtext.core import DIRECTIONS, Direction
from subtext.errors import RequirementError
from subtext.evaluation.metrics.recall import Recall
from subtext.evaluation.relevance.graded import Graded
from subtext.evaluation.relevance.match import Match
from subtext.evaluation.scoring import Source
from subtext.ops.top_k import gains


@dataclass(frozen=True)
class Firsts:
    """What a system finds for the queries of one direction.

    hits  (Q K) recall at each k, 0 or 1; NaN for a query without a partner       worth  (Q) mean relevance of the first
    """

    hits: Float[np.ndarray, "q k"]
    worth: Float[np.ndarray, "q"]


def firsts(
    source: Source,
    graded: Graded,
    match: Match,
    direction: Direction,
    *,
    ks: Sequence[int] = (1, 5, 10),
    top: int = 100,
) -> Firsts:
    """Recall at each k and the mean relevance of the first `top` candidates, or of all where there are fewer.

    Ties count against the system: partners behind all of their score, and the least relevant first.
    Cost   two reads of the scores.
    """
    counts = source.counts(match, stable=False)[DIRECTIONS.index(direction)]
    shown = min(top, source.shape[1 if direction == "image_to_text" else 0])
    worth = [
        gains(scores, torch.from_numpy(graded.block(direction, start, stop)), shown).mean(axis=1)
        for start, stop, scores in source.blocks(direction)
    ]
    return Firsts(np.stack([Recall(k).of(counts) for k in ks], axis=1), np.concatenate(worth))


def alike(first: Firsts, second: Firsts) -> Int[np.ndarray, "n"]:
    """Queries that two systems answer equally well for recall: found at 1 by both, or at the same k by both.

    Those for which both find a partner first, where there are some; else all of equal recall at every k.
    """
    same = (first.hits == second.hits).all(axis=1)
    found = same & (first.hits[:, 0] == 1)
    return np.flatnonzero(found if found.any() else same)


@dataclass(frozen=True)
class List:
    """The first candidates of one query, best first: rows, scores and relevance, (N) each."""

    candidates: NDArray[np.int64]
    scores: NDArray[np.float64]
    relevance: NDArray[np.float64]


def first_of(source: Source, graded: Graded, direction: Direction, query: int, top: int) -> List:
    """The list of one query; among equal scores the least relevant stands first, as `firsts` counts.

    Raises RequirementError for a query that there is not.
    """
    scores = _row(source, direction, query)
    values = np.where(np.isnan(scores), -np.inf, scores)
    relevance = graded.block(direction, query, query + 1)[0].astype(np.float64)
    order = np.lexsort((relevance, -values))[:top]
    return List(order.astype(np.int64), scores[order], relevance[order])


def _row(source: Source, direction: Direction, query: int) -> NDArray[np.float64]:
    for start, stop, scores in source.blocks(direction):
        if start <= query < stop:
            row: Tensor = scores[query - start]
            return row.double().numpy()
    raise RequirementError(
        f"there are {source.shape} pictures and texts; {direction} has no query {query}; name another"
    )
