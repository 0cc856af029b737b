"""Sparse matrices, and lists of candidates a query: by rows, without a dense matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from subtext.errors import ShapeError


@dataclass(frozen=True)
class Sparse:
    """A matrix of N rows and V columns by its entries, row after row.

    Args:
        starts: (N + 1) int64, the start of each row among the entries.
        columns: (L) int64, rising within a row.
        values: (L) float32.
        width: V.
    """

    starts: Int[np.ndarray, "n1"]
    columns: Int[np.ndarray, "l"]
    values: Float[np.ndarray, "l"]
    width: int

    def __len__(self) -> int:
        """N, the number of rows."""
        return len(self.starts) - 1

    @staticmethod
    def of_entries(
        rows: Int[np.ndarray, "l"],
        columns: Int[np.ndarray, "l"],
        values: Float[np.ndarray, "l"],
        *,
        count: int,
        width: int,
    ) -> Sparse:
        """A matrix from its entries in any order of rows.

        Args:
            rows: (L) the row of each entry.
            columns: (L) its column. Columns must rise within a row.
            values: (L) its value.
            count: N, how many rows.
            width: V, how many columns.

        Returns:
            The matrix.
        """
        order = np.argsort(rows, kind="stable")
        starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=count))]).astype(np.int64)
        return Sparse(starts, columns[order], values[order].astype(np.float32), width)

    def take(self, rows: NDArray[np.int64]) -> Sparse:
        """The selected rows, in that order.

        Args:
            rows: (M) rows; one may be there several times.

        Returns:
            A matrix of M rows.
        """
        lengths = (self.starts[1:] - self.starts[:-1])[rows]
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        entries = concatenated_ranges(self.starts[rows], lengths)
        return Sparse(starts, self.columns[entries], self.values[entries], self.width)

    def transposed(self) -> Sparse:
        """The same entries, column after column.

        Returns:
            A matrix of V rows and N columns.
        """
        rows = np.repeat(np.arange(len(self), dtype=np.int64), np.diff(self.starts))
        return Sparse.of_entries(self.columns, rows, self.values, count=self.width, width=len(self))


def concatenated_ranges(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers start, start + 1, ... of every range, one range after the other.

    Args:
        starts: (N) the first number of each range.
        lengths: (N) how many numbers it has.

    Returns:
        As many numbers as the lengths sum to.

    Example:
        >>> concatenated_ranges(np.array([5, 0]), np.array([2, 3])).tolist()
        [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(lengths)
    return np.arange(lengths.sum(), dtype=np.int64) + np.repeat(starts - (ends - lengths), lengths)


@dataclass(frozen=True)
class CandidateLists:
    """For every query a range of one array of candidates: its positives, or candidates to ignore.

    Queries with the same candidates may share a range: the truth of N items in groups takes O(N) memory for groups of
    any size.

    Args:
        candidates: (L) int64, candidate rows.
        starts: (Q) int64, the start of each query's range.
        stops: (Q) int64, its end; equal to starts for a query without candidates.

    Example:
        >>> CandidateLists.of_groups(np.array([7, 8, 7]), np.array([7, 7, 9])).lengths.tolist()
        [2, 0, 2]
    """

    candidates: NDArray[np.int64]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]

    def __len__(self) -> int:
        """Q, the number of queries."""
        return len(self.starts)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(Q) the number of candidates of each query."""
        return self.stops - self.starts

    def __getitem__(self, queries: slice | NDArray[np.int64]) -> CandidateLists:
        """The selected queries; candidate rows stay as they are."""
        return CandidateLists(self.candidates, self.starts[queries], self.stops[queries])

    def expand(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Every entry by itself, ordered by query.

        Returns:
            (L) query rows and (L) candidate rows.
        """
        rows = np.repeat(np.arange(len(self), dtype=np.int64), self.lengths)
        return rows, self.candidates[concatenated_ranges(self.starts, self.lengths)]

    @staticmethod
    def of_groups(query_groups: NDArray[np.int64], candidate_groups: NDArray[np.int64]) -> CandidateLists:
        """The candidates of every query's own group, in rising order.

        Args:
            query_groups: (Q) the group of each query.
            candidate_groups: (C) that of each candidate.

        Returns:
            Lists of Q queries.

        Complexity:
            One sort; memory Q + C.
        """
        order = np.argsort(candidate_groups, kind="stable").astype(np.int64)
        ordered = candidate_groups[order]
        return CandidateLists(
            order,
            np.searchsorted(ordered, query_groups, side="left").astype(np.int64),
            np.searchsorted(ordered, query_groups, side="right").astype(np.int64),
        )

    @staticmethod
    def of_pairs(rows: NDArray[np.int64], candidates: NDArray[np.int64], *, queries: int) -> CandidateLists:
        """Candidate candidates[l] for query rows[l]; duplicate pairs count once.

        Args:
            rows: (L) query rows, in any order.
            candidates: (L) candidate rows.
            queries: Q, how many queries there are.

        Returns:
            Lists of Q queries, each in rising order.

        Raises:
            ShapeError: If the two arrays differ in length.
        """
        if len(rows) != len(candidates):
            raise ShapeError(f"candidate lists need one candidate per row; it got {len(rows)} and {len(candidates)}")
        width = candidates.max(initial=0) + 1
        rows, candidates = np.divmod(np.unique(rows * width + candidates), width)
        query_rows = np.arange(queries)
        starts = np.searchsorted(rows, query_rows, side="left").astype(np.int64)
        stops = np.searchsorted(rows, query_rows, side="right").astype(np.int64)
        return CandidateLists(candidates.astype(np.int64), starts, stops)

    @staticmethod
    def of_mask(mask: Bool[Tensor, "q c"]) -> CandidateLists:
        """The candidates of every query where its row of the mask is True.

        Args:
            mask: (Q C).

        Returns:
            Lists of Q queries, each in rising order.
        """
        rows, candidates = np.nonzero(mask.detach().cpu().numpy())
        return CandidateLists.of_pairs(rows.astype(np.int64), candidates.astype(np.int64), queries=mask.shape[0])
