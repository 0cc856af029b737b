"""Ranks of positives: the negatives ahead of the best positive, or of each, and those that share its score.

Recall, reciprocal rank and c-way choice follow from a few counts about each query's best positive, so a matrix is read
once for all of them and, when it is stored, once for both directions. Compiled code reads a large matrix; numpy has
read a small one before the compiler is done. R-Precision and average precision follow from the ranks of all positives,
under several truths at once: each row is sorted once for all of them.

A score that is not a number loses to every number; a query whose positives all lack a number stands behind every
negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from subtext.errors import RequirementError, ShapeError
from subtext.ops.compiled.threshold_counts import threshold_counts
from subtext.ops.in_threads import in_threads
from subtext.ops.sparse import CandidateLists

Ints = NDArray[np.int64]
Ties = Literal["pessimistic", "optimistic", "expected", "stable"]
"""Rank of a positive among negatives of equal score: last, first, the mean of all orders, or by column."""


@dataclass(frozen=True)
class Counts:
    """Counts about each query's best positive, (Q) int64 each.

    Args:
        greater: Negatives with a higher score.
        tied: Negatives with the same score.
        level: Positives with that score, at least 1 where there is a positive.
        positives: All positives of the query.
        negatives: Candidates that are neither positive nor ignored.
        invalid: Scores that are not a number, ignored cells left out.
        earlier: Tied negatives that stand before the first best positive in column order; None where they were not
            counted.
    """

    greater: Ints
    tied: Ints
    level: Ints
    positives: Ints
    negatives: Ints
    invalid: Ints
    earlier: Ints | None = None

    def __len__(self) -> int:
        """How many queries."""
        return len(self.greater)

    def rank(self, ties: Ties = "pessimistic") -> NDArray[np.float64]:
        """How many negatives stand before the best positive, from 0.

        Args:
            ties: Order of equal scores. "expected" is the mean over all orders of the tied: of n tied negatives, n /
                (level + 1) stand before the first of the best positives.

        Returns:
            (Q); NaN for a query without positives.

        Raises:
            RequirementError: If ties are "stable" and the column order was not counted.
        """
        if ties == "stable":
            if self.earlier is None:
                raise RequirementError("stable ties need counts made with stable=True; these were made without it")
            before: NDArray[Any] = self.earlier
        elif ties == "expected":
            before = self.tied / (self.level + 1)
        else:
            before = self.tied * float(ties == "pessimistic")
        return np.where(self.positives > 0, self.greater + before, np.nan)

    def hits(self, k: int, ties: Ties = "pessimistic") -> NDArray[np.float64]:
        """Whether a positive is among the first k.

        Args:
            k: How many ranks, 1 or more.
            ties: Order of equal scores. "expected" gives the probability over all orders of the tied.

        Returns:
            (Q) in [0, 1]; NaN for a query without positives.

        Raises:
            RequirementError: If ties are "stable" and the column order was not counted.
        """
        if ties != "expected":
            rank = self.rank(ties)
            return np.where(np.isnan(rank), np.nan, rank < k)
        miss = np.ones(len(self))
        for position in range(k):
            # The next slot after those ahead holds a negative: those are drawn from the tied without replacement.
            negatives = np.maximum(self.tied - position, 0)
            remaining = np.maximum(self.tied + self.level - position, 1)
            miss = np.where(position < k - self.greater, miss * negatives / remaining, miss)
        return np.where(self.positives > 0, 1 - miss, np.nan)

    @staticmethod
    def cat(blocks: Sequence[Counts]) -> Counts:
        """One block of queries after the other.

        Args:
            blocks: Counts of several blocks.

        Returns:
            The counts of all; `earlier` only where every block has it.
        """
        names = ("greater", "tied", "level", "positives", "negatives", "invalid")
        joined = {name: np.concatenate([getattr(block, name) for block in blocks]) for name in names}
        earlier = [block.earlier for block in blocks if block.earlier is not None]
        return Counts(**joined, earlier=np.concatenate(earlier) if len(earlier) == len(blocks) else None)


def best_of(
    scores: Float[Tensor, "q c"],
    positives: CandidateLists,
    ignored: CandidateLists | None = None,
    *,
    stable: bool = False,
    kernel: bool | None = None,
) -> Counts:
    """Counts of every row of a block of scores.

    Args:
        scores: (Q C), in memory by rows or, transposed, by columns.
        positives: The positive candidates of each query.
        ignored: Candidates of each query to leave out; None for none.
        stable: Count tied negatives by column too: rows with ties are read again.
        kernel: Whether compiled code counts; None for where it pays. The counts are the same.

    Returns:
        (Q) each.

    Raises:
        ShapeError: If there is not one entry of truth a row.

    Complexity:
        One read of the block.

    Example:
        >>> scores = torch.tensor([[0.6, 0.5, 0.6], [0.3, 0.4, 0.45]])
        >>> counts = best_of(scores, CandidateLists.of_mask(torch.eye(2, 3, dtype=torch.bool)))
        >>> counts.greater.tolist(), counts.tied.tolist()
        ([0, 1], [1, 0])
    """
    matrix = _array(scores)
    side = _DirectionCounts(matrix, positives, ignored)
    return side.counts(threshold_counts(matrix, side.best, kernel=kernel)[0], stable)


def both_directions(
    scores: Float[Tensor, "i t"],
    image_to_text: CandidateLists,
    text_to_image: CandidateLists,
    *,
    stable: bool = False,
    kernel: bool | None = None,
) -> tuple[Counts, Counts]:
    """Counts of the rows (images as queries) and of the columns (texts as queries) in one read.

    Args:
        scores: (I T).
        image_to_text: The positive texts of each image.
        text_to_image: The positive images of each text.
        stable: Count tied negatives by column too: rows with ties are read again.
        kernel: Whether compiled code counts; None for where it pays. The counts are the same.

    Returns:
        (I) each of the images, and (T) each of the texts.

    Raises:
        ShapeError: If there is not one entry of truth a query.

    Complexity:
        One read of the matrix.
    """
    matrix = np.ascontiguousarray(_array(scores))
    rows, columns = _DirectionCounts(matrix, image_to_text, None), _DirectionCounts(matrix.T, text_to_image, None)
    of_rows, of_columns = threshold_counts(matrix, rows.best, columns.best, kernel=kernel)
    return rows.counts(of_rows, stable), columns.counts(of_columns, stable)


class _DirectionCounts:
    """One direction of counting: thresholds before the matrix is read, corrections after."""

    def __init__(self, matrix: NDArray[Any], positives: CandidateLists, ignored: CandidateLists | None) -> None:
        if len(positives) != matrix.shape[0]:
            raise ShapeError(f"ranks need truth for each of {matrix.shape[0]} queries; it got {len(positives)}")
        self.matrix = matrix
        self.rows, self.columns = positives.expand()
        self.scores = matrix[self.rows, self.columns]
        self.lengths = positives.lengths
        self.ignored = (np.empty(0, np.int64),) * 2 if ignored is None else ignored.expand()
        self.best = np.full(matrix.shape[0], np.inf, dtype=matrix.dtype)
        named = np.flatnonzero(self.lengths)
        if len(named):
            begins = np.concatenate([[0], np.cumsum(self.lengths[named])[:-1]])
            # fmax takes the number where the other is none, so NaN stays only where all positives lack a number.
            self.best[named] = np.fmax.reduceat(self.scores, begins)

    def counts(self, totals: Ints, stable: bool) -> Counts:
        """Counts of negatives alone, from the (3 Q) totals of all cells of each row."""
        reached, above, invalid = totals
        queries, candidates = self.matrix.shape
        level = np.bincount(self.rows[self.scores == self.best[self.rows]], minlength=queries)
        ignored_rows, ignored_columns = self.ignored
        ignored_scores = self.matrix[ignored_rows, ignored_columns]
        threshold = self.best[ignored_rows]
        greater = above - np.bincount(ignored_rows[ignored_scores > threshold], minlength=queries)
        tied = reached - above - level - np.bincount(ignored_rows[ignored_scores == threshold], minlength=queries)
        negatives = candidates - self.lengths - np.bincount(ignored_rows, minlength=queries)
        lost, none = np.isnan(self.best), self.lengths == 0
        greater = np.where(lost, negatives, np.where(none, 0, greater))
        return Counts(
            greater=greater,
            tied=np.where(lost | none, 0, tied),
            level=np.where(lost, 1, level) * ~none,
            positives=self.lengths,
            negatives=negatives,
            invalid=invalid - np.bincount(ignored_rows[np.isnan(ignored_scores)], minlength=queries),
            earlier=self._earlier(np.where(lost | none, 0, tied)) if stable else None,
        )

    def _earlier(self, tied: Ints) -> Ints:
        """Tied negatives before the first best positive: only rows with a tie are read again."""
        earlier = np.zeros(len(tied), dtype=np.int64)
        begins = np.cumsum(self.lengths) - self.lengths
        ignored_rows, ignored_columns = self.ignored
        for row in np.flatnonzero(tied):
            run = slice(begins[row], begins[row] + self.lengths[row])
            first = self.columns[run][self.scores[run] == self.best[row]].min()
            same = self.matrix[row, :first] == self.best[row]
            ignored = ignored_columns[ignored_rows == row]
            same[ignored[ignored < first]] = False
            earlier[row] = same.sum()
        return earlier


def _array(scores: Tensor) -> NDArray[Any]:
    """The scores where numpy reads them; half precision becomes float32, which holds it exactly."""
    scores = scores.detach().cpu()
    return (scores if scores.dtype in (torch.float32, torch.float64) else scores.float()).numpy()


@dataclass(frozen=True)
class PositiveRanks:
    """The positives of each query, best-scored first (equal ones by column), query after query; int64 all.

    Args:
        queries: (P) the query of each positive.
        number: (P) which of its query's positives it is, from 1.
        first: (P) number of the first positive with its score.
        alike: (P) how many positives have its score.
        greater: (P) negatives of the query with a higher score.
        tied: (P) negatives of the query with the same score.
        positives: (Q) positives of each query.
        negatives: (Q) candidates of each query that are neither positive nor ignored.
        earlier: (P) tied negatives that stand before it by column; None where they were not counted.
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
        """The rank of each positive among all candidates, from 1.

        Args:
            ties: Order of equal scores, not "expected".

        Returns:
            (P).

        Raises:
            RequirementError: If ties are "expected", which is no one rank, or "stable" without the column order.
        """
        if ties == "expected":
            raise RequirementError("a place needs an order of ties; it got 'expected'; take the mean over all orders")
        before = self.number + self.greater
        if ties != "stable":
            return before + self.tied if ties == "pessimistic" else before
        if self.earlier is None:
            raise RequirementError("stable ties need ranks counted with stable=True; these were counted without it")
        return before + self.earlier

    def precision(self, ties: Ties) -> NDArray[np.float64]:
        """Share of positives among as many first candidates as there are positives.

        Args:
            ties: Order of equal scores. "expected" gives the mean over all orders.

        Returns:
            (Q) in [0, 1]; NaN for a query without positives.

        Raises:
            RequirementError: If ties are "stable" and the column order was not counted.
        """
        cutoff = self.positives[self.queries]
        if ties == "expected":
            # Of a run of equal scores, the places left for it are filled by any of its members alike.
            run = self.alike + self.tied
            hits = np.clip(cutoff - self.greater - (self.first - 1), 0, run) / run
        else:
            hits = (self.places(ties) <= cutoff).astype(np.float64)
        return self.mean_over_positives(hits)

    def share_of_positives(self) -> NDArray[np.float64]:
        """Positives over all candidates that are not ignored.

        Returns:
            (Q) in [0, 1]; NaN for a query without positives.
        """
        candidates = np.maximum(self.positives + self.negatives, 1)
        return np.where(self.positives > 0, self.positives / candidates, np.nan)

    def each(self) -> Counts:
        """The counts of every positive by itself, as of a query that has it alone.

        Returns:
            (P) each; `invalid` is all 0.
        """
        ones = np.ones(len(self.queries), dtype=np.int64)
        negatives = self.negatives[self.queries]
        return Counts(self.greater, self.tied, ones, ones, negatives, 0 * ones, self.earlier)

    def mean_over_positives(self, values: Float[np.ndarray, "p"]) -> Float[np.ndarray, "q"]:
        """The mean of values over the positives of each query.

        Args:
            values: (P) one per positive.

        Returns:
            (Q); NaN for a query without positives.
        """
        sums = np.bincount(self.queries, values, minlength=len(self))
        return np.where(self.positives > 0, sums / np.maximum(self.positives, 1), np.nan)

    def best(self) -> Counts:
        """The counts of each query's best positive, which recall and reciprocal rank read.

        Returns:
            (Q) each; `invalid` is all 0.
        """
        chosen = self.number == 1
        none = np.zeros(len(self), dtype=np.int64)

        def of(column: Ints) -> Ints:
            best = none.copy()
            best[self.queries[chosen]] = column[chosen]
            return best

        earlier = None if self.earlier is None else of(self.earlier)
        greater, tied, level = of(self.greater), of(self.tied), of(self.alike)
        return Counts(greater, tied, level, self.positives, self.negatives, none, earlier)


def rank_positives(
    scores: Float[Tensor, "q c"],
    truths: Sequence[CandidateLists],
    ignored: CandidateLists | None = None,
    *,
    stable: bool = False,
) -> list[PositiveRanks]:
    """The ranks of the positives of several truths in a block of scores.

    Args:
        scores: (Q C).
        truths: The positive candidates of each query, once per truth.
        ignored: Candidates of each query that all truths leave out; None for none.
        stable: Count tied negatives by column too: rows with ties are read again.

    Returns:
        One result per truth.

    Raises:
        ShapeError: If a truth has not one entry a row.

    Complexity:
        One sort of each row; memory one copy of the block, two where a number is none.

    Example:
        >>> truth = CandidateLists.of_pairs(np.array([0, 0]), np.array([0, 2]), queries=1)
        >>> rank_positives(torch.tensor([[0.5, 0.7, 0.3, 0.3]]), [truth])[0].places("pessimistic").tolist()
        [2, 4]
    """
    for truth in truths:
        if len(truth) != len(scores):
            raise ShapeError(f"ranks need truth for each of {len(scores)} queries; it got {len(truth)}")
    block = np.ascontiguousarray(_array(scores))
    ignored_counts = np.zeros(len(block), dtype=np.int64)
    if ignored is not None:
        block = block.copy()
        block[ignored.expand()] = np.nan
        ignored_counts = ignored.lengths
    rows = _Rows(block)
    return [rows.positive_ranks(truth, ignored_counts, stable) for truth in truths]


class _Rows:
    """Rows sorted for looking up."""

    def __init__(self, block: NDArray[Any]) -> None:
        self.block = block
        lost = np.isnan(block)
        self.lost: Ints = lost.sum(axis=1).astype(np.int64)
        comparable = np.where(lost, -np.inf, block) if self.lost.any() else block
        self.sorted = np.array(comparable)
        in_threads(lambda rows: self.sorted[rows].sort(axis=1), len(block))

    def positive_ranks(self, truth: CandidateLists, ignored: Ints, stable: bool) -> PositiveRanks:
        """The ranks of the positives of one truth; `ignored` (Q) counts ignored cells."""
        rows, columns = truth.expand()
        values = self.block[rows, columns]
        order = np.lexsort((columns, -values, rows))
        rows, columns, values = rows[order], columns[order], values[order]
        lengths = truth.lengths
        none = np.isnan(values)
        # The number of each positive within its query, of the first with its score, and how many have that score.
        number = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + 1
        new = np.ones(len(rows), dtype=bool)
        new[1:] = (rows[1:] != rows[:-1]) | ((values[1:] != values[:-1]) & ~(none[1:] & none[:-1]))
        starts, run = np.flatnonzero(new), np.cumsum(new) - 1
        first, alike = number[starts][run], np.diff(np.append(starts, len(rows)))[run]
        thresholds = np.where(none, -np.inf, values)
        below, up_to = (self._bisect(rows, thresholds, compare) for compare in (np.less, np.less_equal))
        # What is no number was sorted as -inf: it does not tie with a true one.
        up_to_lost = np.where(values == -np.inf, self.lost[rows], 0)
        negatives = self.block.shape[1] - lengths - ignored
        greater = np.where(none, negatives[rows], self.block.shape[1] - up_to - (first - 1))
        tied = np.where(none, 0, up_to - below - up_to_lost - alike)
        if not stable:
            return PositiveRanks(rows, number, first, alike, greater, tied, lengths, negatives)
        earlier = np.zeros(len(rows), dtype=np.int64)
        for index in np.flatnonzero(tied):
            same = self.block[rows[index], : columns[index]] == values[index]
            positive = (rows == rows[index]) & (columns < columns[index]) & (values == values[index])
            earlier[index] = same.sum() - positive.sum()
        return PositiveRanks(rows, number, first, alike, greater, tied, lengths, negatives, earlier)

    def _bisect(self, rows: Ints, thresholds: NDArray[Any], compare: np.ufunc) -> Ints:
        """How many cells of its sorted row compare so with each value, by halving all ranges together."""
        low, high = np.zeros(len(rows), dtype=np.int64), np.full(len(rows), self.sorted.shape[1], dtype=np.int64)
        for _ in range(int(self.sorted.shape[1]).bit_length()):
            middle = (low + high) // 2
            open_ = low < high
            smaller = compare(self.sorted[rows, np.minimum(middle, self.sorted.shape[1] - 1)], thresholds) & open_
            low, high = np.where(smaller, middle + 1, low), np.where(open_ & ~smaller, middle, high)
        return low
