"""Cells: which candidates each query names, without a matrix of queries by candidates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool
from numpy.typing import NDArray
from torch import Tensor

from subtext.errors import ShapeError


@dataclass(frozen=True)
class CandidateLists:
    """For every query a run of one list of candidates: positives, or cells to leave out.

    Queries that name the same candidates may share a run, so the truth of N items in groups costs O(N) memory however
    large the groups are.

    candidates  (L) int64, candidate rows
    starts      (Q) int64, where each query's run begins
    stops       (Q) int64, where it ends; equal to starts for a query that names nothing

    >>> CandidateLists.of_groups(np.array([7, 8, 7]), np.array([7, 7, 9])).lengths.tolist()
    [2, 0, 2]
    """

    candidates: NDArray[np.int64]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]

    def __len__(self) -> int:
        """How many queries."""
        return len(self.starts)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(Q) how many candidates each query names."""
        return self.stops - self.starts

    def __getitem__(self, queries: slice | NDArray[np.int64]) -> CandidateLists:
        """The chosen queries; candidate rows stay as they are."""
        return CandidateLists(self.candidates, self.starts[queries], self.stops[queries])

    def expand(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Query row and candidate row of every named cell, ordered by query."""
        lengths = self.lengths
        rows = np.repeat(np.arange(len(self), dtype=np.int64), lengths)
        ends = np.cumsum(lengths)
        within = np.arange(len(rows), dtype=np.int64) - np.repeat(ends - lengths, lengths)
        return rows, self.candidates[np.repeat(self.starts, lengths) + within]

    @staticmethod
    def of_groups(query_groups: NDArray[np.int64], candidate_groups: NDArray[np.int64]) -> CandidateLists:
        """Every query names the candidates of its own group, in rising order."""
        order = np.argsort(candidate_groups, kind="stable").astype(np.int64)
        ordered = candidate_groups[order]
        return CandidateLists(
            order,
            np.searchsorted(ordered, query_groups, side="left").astype(np.int64),
            np.searchsorted(ordered, query_groups, side="right").astype(np.int64),
        )

    @staticmethod
    def of_pairs(rows: NDArray[np.int64], candidates: NDArray[np.int64], *, queries: int) -> CandidateLists:
        """Query rows[l] names candidates[l]; a pair named twice counts once.

        Raises ShapeError when the two lists differ in length.
        """
        if len(rows) != len(candidates):
            raise ShapeError(f"Cells.of_pairs needs a candidate a row; it got {len(rows)} and {len(candidates)}")
        order = np.lexsort((candidates, rows))
        rows, candidates = rows[order], candidates[order]
        first = np.ones(len(rows), dtype=bool)
        first[1:] = (rows[1:] != rows[:-1]) | (candidates[1:] != candidates[:-1])
        rows, candidates = rows[first], candidates[first]
        every = np.arange(queries)
        starts = np.searchsorted(rows, every, side="left").astype(np.int64)
        stops = np.searchsorted(rows, every, side="right").astype(np.int64)
        return CandidateLists(candidates.astype(np.int64), starts, stops)

    @staticmethod
    def of_mask(mask: Bool[Tensor, "q c"]) -> CandidateLists:
        """Every query names the candidates where its row of the mask is True."""
        rows, candidates = np.nonzero(mask.detach().cpu().numpy())
        return CandidateLists.of_pairs(rows.astype(np.int64), candidates.astype(np.int64), queries=mask.shape[0])
