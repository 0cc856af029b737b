"""Rank of the best positive: the number of candidates ahead of it, and of those that share its score.

Everything that depends on the rank of the best positive (recall, reciprocal rank, c-way choice) follows from a few
counts per query, so a matrix is read once for all of them and, when it is stored, once for both directions. A score
that is not a number loses to every number; a query whose positives all lack a number stands behind every negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from subtext.core import Comparison
from subtext.errors import RequirementError, ShapeError
from subtext.ops.candidate_lists import CandidateLists

Ties = Literal["pessimistic", "optimistic", "expected", "stable"]
"""Rank of a positive among negatives of equal score: last, first, the mean of all orders, or by column."""

KERNEL_CELLS = 2**26
"""Scores to be counted from which compiling the kernel pays; below, numpy is done before the compiler is."""


@dataclass(frozen=True)
class Counts:
    """Counts about each query's best positive, (Q) int64 each.

    greater    negatives with a higher score
    tied       negatives with the same score
    level      positives with that score, at least 1 where there is a positive
    positives  all positives of the query
    negatives  candidates that are neither positive nor ignored
    invalid    scores that are not a number, ignored cells left out
    earlier    tied negatives that stand before the first best positive in column order; None unless asked for
    """

    greater: NDArray[np.int64]
    tied: NDArray[np.int64]
    level: NDArray[np.int64]
    positives: NDArray[np.int64]
    negatives: NDArray[np.int64]
    invalid: NDArray[np.int64]
    earlier: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        """How many queries."""
        return len(self.greater)

    def rank(self, ties: Ties = "pessimistic") -> NDArray[np.float64]:
        """(Q) how many negatives stand before the best positive, from 0; NaN for a query without positives.

        "expected" is the mean over all orders of the tied: of n tied negatives, n / (level + 1) stand before the first
        of the best positives.

        Raises RequirementError for "stable" when the column order was not counted.
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
        """(Q) whether a positive is among the first k; for "expected" its probability over all orders of the tied."""
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
        """One block of queries after the other."""
        names = ("greater", "tied", "level", "positives", "negatives", "invalid")
        joined = {name: np.concatenate([getattr(block, name) for block in blocks]) for name in names}
        earlier = [block.earlier for block in blocks if block.earlier is not None]
        return Counts(**joined, earlier=np.concatenate(earlier) if len(earlier) == len(blocks) else None)


def compared(comparison: Comparison, *, stable: bool = False) -> Counts:
    """Counts of every query of a Comparison."""
    return best_positive(comparison.scores, comparison.truth.match, comparison.truth.ignored, stable=stable)


def best_positive(
    scores: Float[Tensor, "q c"],
    match: Bool[Tensor, "q c"],
    ignored: Bool[Tensor, "q c"] | None = None,
    *,
    stable: bool = False,
) -> Counts:
    """Counts of every row of a block of scores whose truth is given cell by cell.

    >>> scores = torch.tensor([[0.6, 0.5, 0.6], [0.3, 0.4, 0.45]])
    >>> counts = best_positive(scores, torch.eye(2, 3, dtype=torch.bool))
    >>> counts.greater.tolist(), counts.tied.tolist()
    ([0, 1], [1, 0])
    """
    leave_out = None if ignored is None else CandidateLists.of_mask(ignored)
    return best_of(scores, CandidateLists.of_mask(match), leave_out, stable=stable)


def best_of(
    scores: Float[Tensor, "q c"],
    positives: CandidateLists,
    ignored: CandidateLists | None = None,
    *,
    stable: bool = False,
    kernel: bool | None = None,
) -> Counts:
    """Counts of every row of a block of scores; the block may lie in memory by rows or, transposed, by columns.

    kernel  whether compiled code counts; None for where it pays (`KERNEL_CELLS`). The counts are the same.

    Raises ShapeError when there is not one entry of truth a row.
    """
    matrix = _array(scores)
    side = _Side(matrix, positives, ignored)
    (reached, above, invalid), _ = _totals(matrix, side.best, None, kernel)
    return side.counts(reached, above, invalid, stable)


def both_directions(
    scores: Float[Tensor, "i t"],
    image_to_text: CandidateLists,
    text_to_image: CandidateLists,
    *,
    stable: bool = False,
    kernel: bool | None = None,
) -> tuple[Counts, Counts]:
    """Counts of the rows (images asking for texts) and the columns (texts asking for images) in one read."""
    matrix = np.ascontiguousarray(_array(scores))
    rows, columns = _Side(matrix, image_to_text, None), _Side(matrix.T, text_to_image, None)
    (reached, above, invalid), (column_reached, column_above) = _totals(matrix, rows.best, columns.best, kernel)
    column_invalid = _invalid_columns(matrix, invalid)
    return rows.counts(reached, above, invalid, stable), columns.counts(
        column_reached, column_above, column_invalid, stable
    )


class _Side:
    """One direction of counting: thresholds before the matrix is read, corrections after."""

    def __init__(self, matrix: NDArray[Any], positives: CandidateLists, ignored: CandidateLists | None) -> None:
        if len(positives) != matrix.shape[0]:
            raise ShapeError(f"ranks need truth for each of {matrix.shape[0]} queries; it got {len(positives)}")
        self.matrix = matrix
        self.rows, self.columns = positives.expand()
        self.found = matrix[self.rows, self.columns]
        self.lengths = positives.lengths
        self.ignored = (np.empty(0, np.int64),) * 2 if ignored is None else ignored.expand()
        self.best = np.full(matrix.shape[0], np.inf, dtype=matrix.dtype)
        named = np.flatnonzero(self.lengths)
        if len(named):
            begins = np.concatenate([[0], np.cumsum(self.lengths[named])[:-1]])
            # fmax takes the number where the other is none, so NaN stays only where all positives lack a number.
            self.best[named] = np.fmax.reduceat(self.found, begins)

    def counts(
        self, reached: NDArray[np.int64], above: NDArray[np.int64], invalid: NDArray[np.int64], stable: bool
    ) -> Counts:
        """Counts of negatives alone, from counts of all cells of each row."""
        queries, candidates = self.matrix.shape
        level = np.bincount(self.rows[self.found == self.best[self.rows]], minlength=queries)
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

    def _earlier(self, tied: NDArray[np.int64]) -> NDArray[np.int64]:
        """Tied negatives before the first best positive: only rows with a tie are read again."""
        earlier = np.zeros(len(tied), dtype=np.int64)
        begins = np.cumsum(self.lengths) - self.lengths
        ignored_rows, ignored_columns = self.ignored
        for row in np.flatnonzero(tied):
            run = slice(begins[row], begins[row] + self.lengths[row])
            first = self.columns[run][self.found[run] == self.best[row]].min()
            same = self.matrix[row, :first] == self.best[row]
            ignored = ignored_columns[ignored_rows == row]
            same[ignored[ignored < first]] = False
            earlier[row] = same.sum()
        return earlier


def _array(scores: Tensor) -> NDArray[Any]:
    """The scores where numpy reads them; half precision becomes float32, which holds it exactly."""
    scores = scores.detach().cpu()
    return (scores if scores.dtype in (torch.float32, torch.float64) else scores.float()).numpy()


def _totals(
    matrix: NDArray[Any], row_best: NDArray[Any], column_best: NDArray[Any] | None, kernel: bool | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(3 R) cells reaching, above, not a number of each row; (2 C) cells reaching, above of each column."""
    if matrix.size >= KERNEL_CELLS if kernel is None else kernel:
        return _compiled_totals(matrix, row_best, column_best)
    rows = [cells.sum(axis=1) for cells in (matrix >= row_best[:, None], matrix > row_best[:, None], matrix != matrix)]
    if column_best is None:
        return np.stack(rows), np.zeros((2, matrix.shape[1]), dtype=np.int64)
    return np.stack(rows), np.stack([(matrix >= column_best).sum(axis=0), (matrix > column_best).sum(axis=0)])


def _compiled_totals(
    matrix: NDArray[Any], row_best: NDArray[Any], column_best: NDArray[Any] | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """`_totals` by the kernel, which reads along memory: a transposed block is counted by its columns."""
    from subtext.ops import rank_kernel

    def nothing(length: int) -> NDArray[Any]:
        return np.full(length, np.inf, dtype=matrix.dtype)

    if matrix.flags.c_contiguous or column_best is not None:
        thresholds = nothing(matrix.shape[1]) if column_best is None else column_best
        return rank_kernel.count(np.ascontiguousarray(matrix), row_best, thresholds)
    turned = np.ascontiguousarray(matrix.T)
    (_, _, invalid), columns = rank_kernel.count(turned, nothing(turned.shape[0]), row_best)
    return np.concatenate([columns, _invalid_columns(turned, invalid)[None]]), np.zeros((2, matrix.shape[1]), np.int64)


def _invalid_columns(matrix: NDArray[Any], row_invalid: NDArray[np.int64]) -> NDArray[np.int64]:
    """Scores of each column that are not a number; nothing is read where the rows have none."""
    if not row_invalid.any():
        return np.zeros(matrix.shape[1], dtype=np.int64)
    return np.isnan(matrix).sum(axis=0).astype(np.int64)
