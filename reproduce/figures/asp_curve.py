"""ASP over the N most relevant candidates, for several N, between its two lines (Li et al. 2022, figure 3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float

from subtext.core import Direction
from subtext.evaluation.metrics.asp import among_first
from subtext.evaluation.relevance.graded import Graded
from subtext.evaluation.scoring import Source
from subtext.ops.semantic_rank import KERNEL_CELLS, RankTies, agreement, ranks


def asp_curve(
    source: Source, graded: Graded, direction: Direction, tops: Sequence[int], *, ties: RankTies = "ordinal"
) -> Float[np.ndarray, "q k"]:
    """ASP of every query over its N most relevant candidates, which are ranked anew among themselves; a column an N.

    Shares of 1; NaN where no N are meant (see `metrics.asp.ASP`).
    Cost   a sort of each row of relevance and of scores, and a pass for each N.
    """
    compiled = source.shape[0] * source.shape[1] >= KERNEL_CELLS
    pieces = []
    for start, stop, scores in source.blocks(direction):
        semantic = ranks(graded.block(direction, start, stop), ties, kernel=compiled)
        matrix = (scores if scores.dtype in (torch.float32, torch.float64) else scores.float()).numpy()
        pieces.append(agreement(matrix, semantic, ties, top=tuple(tops), kernel=compiled))
    return np.concatenate(pieces)


def asp_lines(
    graded: Graded, direction: Direction, tops: Sequence[int], *, ties: RankTies = "ordinal"
) -> tuple[Float[np.ndarray, "k"], Float[np.ndarray, "k"]]:
    """Means over the queries of what a random order is expected to give for each N, and of what the best order is.

    Cost   a sort of each row.
    """
    compiled = graded.values.size >= KERNEL_CELLS
    both = [among_first(ranks(block, "min", kernel=compiled), tops, ties) for _, _, block in graded.blocks(direction)]
    chance, best = (mean_of(np.concatenate(line).T) for line in zip(*both, strict=True))
    return chance, best


def mean_of(values: Float[np.ndarray, "k q"]) -> Float[np.ndarray, "k"]:
    """Mean of each row over the queries that have a value; NaN for a row without any."""
    known = ~np.isnan(values)
    counts = known.sum(axis=1)
    sums = np.where(known, values, 0).sum(axis=1)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
