"""Which semantic neighbours one run has pulled together, relative to another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from subtext.core import Embeddings
from subtext.errors import DataError
from subtext.neighbours.graph import Graph
from subtext.ops import draw

_AT_A_TIME = 512


@dataclass(frozen=True)
class Pulled:
    """Sampled pairs of neighbours.

    left, right  (M) rows of texts, or of pictures
    near         of each run (M): the cosine, in standard deviations above random pairs of the same run
    """

    left: NDArray[np.int64]
    right: NDArray[np.int64]
    near: tuple[NDArray[np.float64], NDArray[np.float64]]


def pulled_pairs(
    graph: Graph,
    runs: Sequence[tuple[nn.Module, Embeddings]],
    *,
    pictures: NDArray[np.int64] | None = None,
    count: int = 10_000,
    seed: int = 0,
) -> Pulled:
    """At most `count` pairs of neighbours of the graph, each once, and how near they lie in two runs.

    runs      similarity and embeddings of the graph's texts, of one run and the other; of the pictures with `pictures`
    pictures  (N) of each text, below 0 for none: pairs are then of pictures whose texts are neighbours

    Raises DataError when the graph knows no neighbours among its texts, or these have no pictures.
    """
    rows, places = np.nonzero(np.asarray(graph.neighbours) >= 0)
    left, right = rows.astype(np.int64), np.asarray(graph.neighbours)[rows, places].astype(np.int64)
    if pictures is not None:
        left, right = pictures[left], pictures[right]
        known = (left >= 0) & (right >= 0) & (left != right)
        left, right = left[known], right[known]
    if not len(left):
        what = "texts" if pictures is None else "texts of different pictures"
        raise DataError(f"this graph knows no neighbours among these {what}; build one of them (--split, --among)")
    # Two items that are each other's neighbours are one pair.
    once = np.unique(np.stack([np.minimum(left, right), np.maximum(left, right)], axis=1), axis=0)
    order = draw.permutation(len(once), seed=seed, epoch=0, purpose="gallery neighbours")[:count]
    left, right = once[order].T
    there = len(runs[0][1])
    some = np.arange(min(count, 4 * there), dtype=np.int64)
    ends = draw.integers(some, there, seed=seed, epoch=0, purpose="gallery random pairs", count=2)
    apart = ends[:, 0] != ends[:, 1]
    near = []
    for similarity, items in runs:
        by_chance = _cosines(similarity, items, ends[apart, 0], ends[apart, 1])
        spread = by_chance.std() or 1.0
        near.append((_cosines(similarity, items, left, right) - by_chance.mean()) / spread)
    return Pulled(left, right, (near[0], near[1]))


def _cosines(
    similarity: nn.Module, items: Embeddings, left: NDArray[np.int64], right: NDArray[np.int64]
) -> NDArray[np.float64]:
    """(M) cosine of each item with its own partner."""
    cosine = getattr(similarity, "cosine", similarity)
    found = []
    with torch.inference_mode():
        for start in range(0, len(left), _AT_A_TIME):
            rows = slice(start, start + _AT_A_TIME)
            one, other = (items[torch.from_numpy(side[rows])] for side in (left, right))
            found.append(cosine(one, other).diagonal().double())
    return torch.cat(found).numpy()
