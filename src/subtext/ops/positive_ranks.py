"""Ranks of all positives, not only of the best: the negatives ahead of each, and those that share its score.

R-Precision and average precision follow from it, under several readings of what is right at once: a row is sorted once
and asked for the positives of all of them. A score that is not a number loses to every number.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from subtext.core import Comparison
from subtext.errors import RequirementError, ShapeError
from subtext.ops.candidate_lists import CandidateLists
from subtext.ops.rank import Counts, Ties

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class PositiveRanks:
    """The positives of each query, best-scored first (equal ones by column), query after query; int64 all.

    queries    (P) the query of each positive           number  (P) which of its query's positives it is, from 1
    first      (P) number of the first positive with its score       alike  (P) how many positives have it
    greater    (P) negatives of the query with a higher score        tied   (P) negatives with the same score
    positives  (Q) of each query                        negatives  (Q) candidates neither positive nor ignored
    earlier    (P) tied negatives that stand before it by column; None unless asked for
    """

    queries: Ints
    number: Ints
    first: Ints
    alike: Ints
    greater: Ints
    tied: Ints
    positives: Ints
    negatives: Ints
    earlier: Ints | None = None

    def __len__(self) -> int:
        """How many queries."""
        return len(self.positives)

    def places(self, ties: Ties) -> Ints:
        """(P) the place of each positive among all candidates, from 1.

        Raises RequirementError for "expected", which is no one place, and for "stable" without the column order.
        """
        if ties == "expected":
            raise RequirementError("a place needs an order of ties; it got 'expected'; take the mean over all orders")
        before = self.number + self.greater
        if ties != "stable":
            return before + self.tied if ties == "pessimistic" else before
        if self.earlier is None:
            raise RequirementError("stable ties need a standing made with stable=True; this was made without it")
        return before + self.earlier

    def precision(self, ties: Ties) -> NDArray[np.float64]:
        """(Q) share of positives among as many first candidates as there are positives; NaN for a query without any."""
        cutoff = self.positives[self.queries]
        if ties == "expected":
            # Of a run of equal scores, the places left for it are filled by any of its members alike.
            run = self.alike + self.tied
            hits = np.clip(cutoff - self.greater - (self.first - 1), 0, run) / run
        else:
            hits = (self.places(ties) <= cutoff).astype(np.float64)
        hit_counts = np.bincount(self.queries, hits, minlength=len(self))
        return np.where(self.positives > 0, hit_counts / np.maximum(self.positives, 1), np.nan)

    def share_of_positives(self) -> NDArray[np.float64]:
        """(Q) positives over all candidates that are not ignored; NaN for a query without positives."""
        candidates = np.maximum(self.positives + self.negatives, 1)
        return np.where(self.positives > 0, self.positives / candidates, np.nan)

    def best(self) -> Counts:
        """The counts of each query's best positive, which recall and reciprocal rank read; `invalid` is all 0."""
        chosen = self.number == 1
        none = np.zeros(len(self), dtype=np.int64)

        def of(column: Ints) -> Ints:
            best = none.copy()
            best[self.queries[chosen]] = column[chosen]
            return best

        earlier = None if self.earlier is None else of(self.earlier)
        greater, tied, level = of(self.greater), of(self.tied), of(self.alike)
        return Counts(greater, tied, level, self.positives, self.negatives, none, earlier)

    @staticmethod
    def cat(blocks: Sequence[PositiveRanks]) -> PositiveRanks:
        """One block of queries after the other."""
        starts = np.cumsum([0, *(len(block) for block in blocks[:-1])])
        joined: dict[str, Any] = {}
        for field in fields(PositiveRanks):
            columns = [getattr(block, field.name) for block in blocks]
            if field.name == "queries":
                columns = [column + start for column, start in zip(columns, starts, strict=True)]
            joined[field.name] = None if columns[0] is None else np.concatenate(columns)
        return PositiveRanks(**joined)


def positive_ranks(comparison: Comparison, *, stable: bool = False) -> PositiveRanks:
    """The ranks of all positives of a Comparison."""
    truth = comparison.truth
    ignored = None if truth.ignored is None else CandidateLists.of_mask(truth.ignored)
    return rank_positives(comparison.scores, [CandidateLists.of_mask(truth.match)], ignored, stable=stable)[0]


def rank_positives(
    scores: Float[Tensor, "q c"],
    truths: Sequence[CandidateLists],
    ignored: CandidateLists | None = None,
    *,
    stable: bool = False,
) -> list[PositiveRanks]:
    """The ranks of the positives of several truths in a block of scores.

    ignored  cells left out of all of them
    stable   count tied negatives by column too: rows with ties are read again

    Raises ShapeError when a truth has not one entry a row.
    Cost   one sort of each row; memory one copy of the block, two where a number is none.

    >>> truth = CandidateLists.of_pairs(np.array([0, 0]), np.array([0, 2]), queries=1)
    >>> rank_positives(torch.tensor([[0.5, 0.7, 0.3, 0.3]]), [truth])[0].places("pessimistic").tolist()
    [2, 4]
    """
    for truth in truths:
        if len(truth) != len(scores):
            raise ShapeError(f"standing needs truth for each of {len(scores)} queries; it got {len(truth)}")
    scores = scores.detach().cpu()
    block = np.ascontiguousarray((scores if scores.dtype in (torch.float32, torch.float64) else scores.float()).numpy())
    ignored_counts = np.zeros(len(block), dtype=np.int64)
    if ignored is not None:
        block = block.copy()
        block[ignored.expand()] = np.nan
        ignored_counts = ignored.lengths
    results = []
    rows = _Rows(block)
    for truth in truths:
        results.append(rows.positive_ranks(truth, ignored_counts, stable))
    return results


class _Rows:
    """Rows sorted for looking up."""

    def __init__(self, block: NDArray[Any]) -> None:
        self.block = block
        lost = np.isnan(block)
        self.lost: Ints = lost.sum(axis=1).astype(np.int64)
        self.sorted = _sorted(np.where(lost, -np.inf, block) if self.lost.any() else block)

    def positive_ranks(self, truth: CandidateLists, ignored: Ints, stable: bool) -> PositiveRanks:
        """Where the positives of one truth stand; left (Q) counts ignored cells."""
        rows, columns = truth.expand()
        values = self.block[rows, columns]
        order = np.lexsort((columns, -values, rows))
        rows, columns, values = rows[order], columns[order], values[order]
        number, first, alike = _runs(rows, values, truth.lengths)
        below, up_to = self._found(rows, values)
        # What is no number was sorted as -inf: it does not tie with a true one.
        up_to_lost = np.where(values == -np.inf, self.lost[rows], 0)
        lengths = truth.lengths
        negatives = self.block.shape[1] - lengths - ignored
        none = np.isnan(values)
        greater = np.where(none, negatives[rows], self.block.shape[1] - up_to - (first - 1))
        tied = np.where(none, 0, up_to - below - up_to_lost - alike)
        earlier = self._earlier(rows, columns, values, tied) if stable else None
        return PositiveRanks(rows, number, first, alike, greater, tied, lengths, negatives, earlier)

    def _found(self, rows: Ints, values: NDArray[Any]) -> tuple[Ints, Ints]:
        """(P) how many cells of its row are below each value, and how many are not above it."""
        thresholds = np.where(np.isnan(values), -np.inf, values)
        below, up_to = (self._bisect(rows, thresholds, compare) for compare in (np.less, np.less_equal))
        return below, up_to

    def _bisect(self, rows: Ints, thresholds: NDArray[Any], compare: np.ufunc) -> Ints:
        """How many cells of its sorted row compare so with each value, by halving all ranges together."""
        low, high = np.zeros(len(rows), dtype=np.int64), np.full(len(rows), self.sorted.shape[1], dtype=np.int64)
        for _ in range(int(self.sorted.shape[1]).bit_length()):
            middle = (low + high) // 2
            open_ = low < high
            smaller = compare(self.sorted[rows, np.minimum(middle, self.sorted.shape[1] - 1)], thresholds) & open_
            low, high = np.where(smaller, middle + 1, low), np.where(open_ & ~smaller, middle, high)
        return low

    def _earlier(self, rows: Ints, columns: Ints, values: NDArray[Any], tied: Ints) -> Ints:
        earlier = np.zeros(len(rows), dtype=np.int64)
        for index in np.flatnonzero(tied):
            same = self.block[rows[index], : columns[index]] == values[index]
            positive = (rows == rows[index]) & (columns < columns[index]) & (values == values[index])
            earlier[index] = same.sum() - positive.sum()
        return earlier


def _sorted(block: NDArray[Any]) -> NDArray[Any]:
    """Each row by rising value, in as many threads as torch uses."""
    parts = max(1, min(torch.get_num_threads(), len(block)))
    if parts == 1:
        return np.sort(block, axis=1)
    with ThreadPoolExecutor(parts) as pool:
        return np.concatenate(list(pool.map(lambda piece: np.sort(piece, axis=1), np.array_split(block, parts))))


def _runs(rows: Ints, values: NDArray[Any], lengths: Ints) -> tuple[Ints, Ints, Ints]:
    """Number of each positive within its query, number of the first with its score, and how many have it."""
    count = len(rows)
    number = np.arange(count) - np.repeat(np.cumsum(lengths) - lengths, lengths) + 1
    none = np.isnan(values)
    new = np.ones(count, dtype=bool)
    new[1:] = (rows[1:] != rows[:-1]) | ((values[1:] != values[:-1]) & ~(none[1:] & none[:-1]))
    starts = np.flatnonzero(new)
    run = np.cumsum(new) - 1
    return number, number[starts][run], np.diff(np.append(starts, count))[run]
