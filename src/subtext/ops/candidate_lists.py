"""Lists of candidates per query, without a matrix of queries by candidates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool
from numpy.typing import NDArray
from torch import Tensor

from subtext.errors import ShapeError
from subtext.ops.sparse import concatenated_ranges


@dataclass(frozen=True)
class CandidateLists:
    """For every query a range of one array of candidates: its positives, or candidates to ignore.

    Queries with the same candidates may share a range: the truth of N items in groups takes O(N) memory for groups of
    any size.

    candidates  (L) int64, candidate rows
    starts      (Q) int64, the start of each query's range
    stops       (Q) int64, its end; equal to starts for a query without candidates

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
        """Query row and candidate row of every entry, ordered by query."""
        rows = np.repeat(np.arange(len(self), dtype=np.int64), self.lengths)
        return rows, self.candidates[concatenated_ranges(self.starts, self.lengths)]

    @staticmethod
    def of_groups(query_groups: NDArray[np.int64], candidate_groups: NDArray[np.int64]) -> CandidateLists:
        """The candidates of every query's own group, in rising order."""
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

        Raises ShapeError when the two lists differ in length.
        """
        if len(rows) != len(candidates):
            raise ShapeError(f"Cells.of_pairs needs one candidate per row; it got {len(rows)} and {len(candidates)}")
        order = np.lexsort((candidates, rows))
        rows, candidates = rows[order], candidates[order]
        first = np.ones(len(rows), dtype=bool)
        first[1:] = (rows[1:] != rows[:-1]) | (candidates[1:] != candidates[:-1])
        rows, candidates = rows[first], candidates[first]
        query_rows = np.arange(queries)
        starts = np.searchsorted(rows, query_rows, side="left").astype(np.int64)
        stops = np.searchsorted(rows, query_rows, side="right").astype(np.int64)
        return CandidateLists(candidates.astype(np.int64), starts, stops)

    @staticmethod
    def of_mask(mask: Bool[Tensor, "q c"]) -> CandidateLists:
        """The candidates of every query where its row of the mask is True."""
        rows, candidates = np.nonzero(mask.detach().cpu().numpy())
        return CandidateLists.of_pairs(rows.astype(np.int64), candidates.astype(np.int64), queries=mask.shape[0])
