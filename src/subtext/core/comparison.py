"""Queries against candidates, and what is right."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

import torch
from torch import Tensor

from subtext.core.embeddings import Embeddings
from subtext.core.shapes import dimensions, exact
from subtext.errors import RequirementError, ShapeError


class Origin(IntEnum):
    """Where a candidate of a Comparison came from."""

    PAIR = 0
    GENERATED = 1
    NEIGHBOUR = 2
    BANK = 3
    GATHERED = 4


@dataclass(frozen=True)
class Truth:
    """What is right: for every query and candidate, whether they belong together.

    match      (Q C) bool, positives
    ignored    (Q C) bool, neither positive nor negative; never True where match is
    relevance  (Q C) float, graded and finite; `scale` names what it was computed with
    """

    match: Tensor
    ignored: Tensor | None = None
    relevance: Tensor | None = None
    scale: str | None = None

    def __post_init__(self) -> None:
        dimensions("Truth.match", self.match, "queries, candidates")
        shape = tuple(self.match.shape)
        for name in ("match", "ignored"):
            value = getattr(self, name)
            if value is not None:
                exact(f"Truth.{name}", value, shape, "queries, candidates")
                if value.dtype != torch.bool:
                    raise ShapeError(f"Truth.{name} needs bool; it got {value.dtype}; compare with > 0 first")
        if self.relevance is not None:
            exact("Truth.relevance", self.relevance, shape, "queries, candidates")
            if self.scale is None:
                raise RequirementError("Truth.relevance needs the name of its scale ('tfidf1', ...); it got none")

    @staticmethod
    def from_groups(query_groups: Tensor, candidate_groups: Tensor) -> Truth:
        """A query and a candidate belong together when their group ids are equal."""
        return Truth(match=query_groups[:, None] == candidate_groups[None, :])

    @staticmethod
    def of_pairs(query_groups: Tensor, candidate_groups: Tensor) -> Truth:
        """Row i belongs to column i alone; others of the same group are ignored rather than taken for wrong.

        Raises ShapeError when there are fewer candidates than queries: the first Q columns are the partners.
        """
        queries, candidates = len(query_groups), len(candidate_groups)
        if candidates < queries:
            raise ShapeError(f"Truth.of_pairs needs a partner for each of {queries} queries; it got {candidates}")
        own = torch.eye(queries, candidates, dtype=torch.bool, device=query_groups.device)
        same = query_groups[:, None] == candidate_groups[None, :]
        return Truth(match=own, ignored=same & ~own)

    @property
    def negative(self) -> Tensor:
        """(Q C) bool: neither positive nor ignored."""
        return ~self.match if self.ignored is None else ~(self.match | self.ignored)

    def flip(self) -> Truth:
        """The same truth asked from the other side."""
        return replace(
            self,
            match=self.match.T,
            ignored=None if self.ignored is None else self.ignored.T,
            relevance=None if self.relevance is None else self.relevance.T,
        )


@dataclass(frozen=True)
class Comparison:
    """Queries against candidates: what a loss and a metric both read.

    scores      (Q C), larger is better
    truth       what is right
    queries     the embeddings behind the rows; None where only scores are known
    candidates  the embeddings behind the columns
    origin      (C) uint8 of Origin; None where every candidate is of a pair
    """

    scores: Tensor
    truth: Truth
    queries: Embeddings | None = None
    candidates: Embeddings | None = None
    origin: Tensor | None = None

    def __post_init__(self) -> None:
        dimensions("Comparison.scores", self.scores, "queries, candidates")
        rows, columns = self.scores.shape
        wanted = tuple(self.truth.match.shape)
        if wanted != (rows, columns):
            hint = "; flip() turns it" if wanted == (columns, rows) else ""
            raise ShapeError(
                f"Comparison.scores must be (queries, candidates) = {wanted} as its truth is; "
                f"it got {(rows, columns)}{hint}"
            )
        if self.queries is not None and len(self.queries) != rows:
            raise ShapeError(f"Comparison.queries needs {rows} items, one a row of scores; it got {len(self.queries)}")
        if self.candidates is not None and len(self.candidates) != columns:
            raise ShapeError(f"Comparison.candidates needs {columns} items, one a column; got {len(self.candidates)}")
        if self.origin is not None:
            exact("Comparison.origin", self.origin, (columns,), "candidates")

    def flip(self) -> Comparison:
        """The same pairs asked from the other side.

        Raises ShapeError when the comparison is not square, or was widened by candidates that are no pairs: those have
        no row of their own to become.
        """
        rows, columns = self.scores.shape
        origins = [] if self.origin is None else sorted({Origin(code).name for code in self.origin.tolist()})
        if rows != columns or origins not in ([], ["PAIR"]):
            raise ShapeError(
                f"Comparison.flip needs a square comparison of pairs alone; it got {rows} x {columns} with origins "
                f"{origins or ['PAIR']}; build the other direction from its own candidates"
            )
        return replace(
            self, scores=self.scores.T, truth=self.truth.flip(), queries=self.candidates, candidates=self.queries
        )
