"""Segments of vectors, in memory or mapped, and how queries are compared with all segments of a side.

All rows are compared, or those of the likeliest lists. The best are scored again by `ann.rescore_top_k`, as in every
store.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from subtext.ops.compiled.coded_products import Codes
from subtext.retrieval.ann import BLOCK, best_rows, likeliest, rescore_top_k, rows_in, scores_of_rows, widened
from subtext.retrieval.stores.item import NO_HITS, Hits

MARGIN = 16
"""Rows beyond `top` that are scored again in float64, which settles the order of nearly equal scores."""


CODED = 2048
"""Rows of a segment from which on it is scanned by codes."""
MOST_LISTS = 0.75
"""Share of the lists from which on it takes less time to compare all rows as they lie."""
ROUNDING = 1e-5
"""Error of a product of float32, relative to the length of the query and the largest product."""


class Scan:
    """Compares queries with all rows of a segment; from the second query on by codes, if there are many rows.

    Codes take longer to make than the first query without them, a quarter of the memory of the vectors, and a tenth of
    the time of each later query. A command that asks once makes none.

    Args:
        vectors: (R D) float32 or float16.
    """

    def __init__(self, vectors: NDArray[np.float32] | NDArray[np.float16]) -> None:
        self.vectors = vectors
        self._asked = False
        self._codes: Codes | None = None

    def __call__(self, query: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The products with a query.

        Args:
            query: (L D) float32, the views of a query.

        Returns:
            (R) float32, the largest product of a view, and (R) by how much it may be off.
        """
        if self._codes is None and self._asked and len(self.vectors) >= CODED:
            self._codes = Codes.of(self.vectors)
        self._asked = True
        if self._codes is None:
            # Of float16 there is a copy of a block at a time, and none of float32.
            blocks = (self.vectors[start : start + BLOCK] for start in range(0, len(self.vectors), BLOCK))
            parts = [(widened(block) @ query.T).max(axis=1) for block in blocks]
            products: NDArray[np.float32] = np.concatenate([np.zeros(0, dtype=np.float32), *parts])
            largest = max(float(np.linalg.norm(query, axis=1).max()), float(np.abs(products).max()))
            return products, np.full(len(products), ROUNDING * largest, dtype=np.float32)
        pairs = [self._codes.products(view) for view in query]
        return np.max([own for own, _ in pairs], axis=0), np.max([errors for _, errors in pairs], axis=0)


@dataclass(frozen=True)
class Segment:
    """Rows of vectors.

    Attributes:
        folder: Where they are stored.
        lists: Name of the lists that they are sorted by; None where they are not.
        vectors: (R D) float32 or float16.
        keys: (R) int64.
        offsets: (C + 1) int64, or None.
        sums: Checksums of its files, as the tables have them.
    """

    folder: Path
    lists: str | None
    vectors: NDArray[np.float32] | NDArray[np.float16]
    keys: NDArray[np.int64]
    offsets: NDArray[np.int64] | None
    sums: str = ""

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.keys)

    @cached_property
    def scan(self) -> Scan:
        """Compares queries with all rows."""
        return Scan(self.vectors)

    @cached_property
    def _order(self) -> NDArray[np.int64] | None:
        """The rows in the order of their keys; None where they are in it already."""
        return None if bool((np.diff(self.keys) >= 0).all()) else np.argsort(self.keys, kind="stable")

    @cached_property
    def _sorted(self) -> NDArray[np.int64]:
        return np.asarray(self.keys) if self._order is None else np.asarray(self.keys)[self._order]

    @cached_property
    def _single(self) -> bool:
        """Whether each item has one row."""
        return bool((np.diff(self._sorted) > 0).all())

    def rows_of(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """All rows of these items, ascending; items that are not in the segment have none.

        Args:
            keys: (N) int64 keys, ascending.

        Returns:
            Row numbers, ascending.
        """
        first = np.searchsorted(self._sorted, keys, side="left")
        if self._single:
            rows = first[self._sorted[np.minimum(first, len(self) - 1)] == keys]
        else:
            counts = np.searchsorted(self._sorted, keys, side="right") - first
            starts = np.repeat(first - np.cumsum(counts) + counts, counts)
            rows = np.arange(len(starts), dtype=np.int64) + starts
        return rows if self._order is None else np.sort(self._order[rows])


@dataclass(frozen=True)
class InvertedLists:
    """The lists that rows of a side are sorted by.

    Attributes:
        name: Name of their folder.
        centroids: (C D) float32.
        probes: Number of lists that a query searches.
        sums: Checksums of its files, as the tables have them.
    """

    name: str
    centroids: NDArray[np.float32]
    probes: int
    sums: str = ""

    @property
    def is_worth(self) -> bool:
        """Whether a search of so many lists takes less time than one of all rows."""
        return self.probes <= MOST_LISTS * len(self.centroids)


@dataclass(frozen=True)
class SegmentTable:
    """The segments of one side at one moment; shared by all views of that moment.

    Attributes:
        segments: The segments, oldest first.
        deleted: Keys of deleted items, whose rows are still in the segments.
        lists: That rows of segments are sorted by; None where there are none.
        views: K, rows an item.
        exact_up_to: Rows up to which all are compared.
    """

    segments: tuple[Segment, ...]
    deleted: NDArray[np.int64]
    lists: InvertedLists | None
    views: int
    exact_up_to: int

    @cached_property
    def rows(self) -> int:
        """All rows, including those of deleted items."""
        return sum(len(segment) for segment in self.segments)

    @property
    def owners(self) -> NDArray[np.int64]:
        """The item of each row, deleted ones among them, segment by segment."""
        return np.concatenate([np.zeros(0, dtype=np.int64), *(segment.keys for segment in self.segments)])

    @cached_property
    def dead(self) -> list[NDArray[np.bool_] | None]:
        """The mask of each segment's rows that belong to deleted items; None where none does."""
        masks = [np.isin(segment.keys, self.deleted) for segment in self.segments]
        return [mask if mask.any() else None for mask in masks]

    @property
    def unindexed(self) -> int:
        """Rows that are in no list: every search compares them."""
        return sum(len(segment) for segment in self.segments if not segment.lists)

    @property
    def by_lists(self) -> bool:
        """Whether a query searches only some of the lists, as there are many rows."""
        return self.rows > self.exact_up_to and self.lists is not None and self.lists.is_worth

    def nearest(
        self, queries: NDArray[np.float32], *, top: int, among: NDArray[np.int64] | None = None, exact: bool = False
    ) -> list[Hits]:
        """The best `top` items of each of (Q L D) queries, or of those `among` these keys.

        Never fewer than `top` while there are as many: where the searched lists hold fewer, all rows are compared.

        Args:
            queries: (Q L D) float32.
            top: Number of hits, 1 or more.
            among: (M) int64 keys to search, ascending; None for all items.
            exact: Compares all rows, however many there are.

        Returns:
            Q hits, best first.
        """
        by_lists = self.by_lists and not exact and (among is None or len(among) > self.exact_up_to)
        if among is None and not by_lists:
            return self._exhaustive(queries, top) if len(queries) else []
        allowed = None if among is None else [segment.rows_of(among) for segment in self.segments]
        results = []
        for query in queries:
            rows = allowed if allowed is not None and not by_lists else self._in_lists(query, allowed)
            hits = self._rescored(query, self._best(query, rows, top), top)
            if by_lists and len(hits.keys) < top:
                (hits,) = self.nearest(query[None], top=top, among=among, exact=True)
            results.append(hits)
        return results

    def _exhaustive(self, queries: NDArray[np.float32], top: int) -> list[Hits]:
        """Every row compared."""
        _, views, width = queries.shape
        flat = queries.reshape(-1, width)
        depth = top * max(1, self.views) + MARGIN
        per_segment = [
            best_rows(flat, segment.vectors, depth, dead=dead)
            for segment, dead in zip(self.segments, self.dead, strict=True)
        ]
        results = []
        for number, query in enumerate(queries):
            rows = [np.unique(best[number * views : (number + 1) * views]) for best in per_segment]
            results.append(self._rescored(query, [block[block >= 0] for block in rows], top))
        return results

    def _in_lists(self, query: NDArray[np.float32], allowed: list[NDArray[np.int64]] | None) -> list[NDArray[np.int64]]:
        """Rows of each segment in the lists that are most similar to each view of the query; without lists all rows.

        Args:
            query: (K D) views of one query.
            allowed: Rows of each segment that may be hits; None for all.

        Returns:
            (N) int64 rows of each segment.
        """
        assert self.lists is not None
        centroids = self.lists.centroids
        share = 1.0 if allowed is None else max(1e-3, sum(map(len, allowed)) / self.rows)
        probes = min(len(centroids), int(np.ceil(self.lists.probes / share)))
        per_view = [likeliest(view, centroids, probes) for view in query]
        lists = per_view[0] if len(per_view) == 1 else np.unique(np.concatenate(per_view))
        candidates = []
        for number, (segment, dead) in enumerate(zip(self.segments, self.dead, strict=True)):
            if segment.offsets is None:
                rows = np.arange(len(segment), dtype=np.int64)
            else:
                rows = rows_in(lists, segment.offsets)
            rows = rows if dead is None else rows[~dead[rows]]
            if allowed is not None:
                rows = np.intersect1d(rows, allowed[number], assume_unique=True)
            candidates.append(rows)
        return candidates

    def _best(
        self, query: NDArray[np.float32], candidates: list[NDArray[np.int64]], top: int
    ) -> list[NDArray[np.int64]]:
        """The candidates of each segment that can be among the hits: the best of each view of the query."""
        depth = top * max(1, self.views) + MARGIN
        best = []
        for segment, rows in zip(self.segments, candidates, strict=True):
            if len(rows) > depth:
                per_view = []
                for view in query:
                    scores = scores_of_rows(view, segment.vectors, rows)
                    per_view.append(rows[np.argpartition(scores, len(scores) - depth)[-depth:]])
                rows = np.unique(np.concatenate(per_view))
            best.append(rows)
        return best

    def _rescored(self, query: NDArray[np.float32], candidates: list[NDArray[np.int64]], top: int) -> Hits:
        """The best items among candidate rows of each segment, their scores summed in float64."""
        pairs = [(segment, rows) for segment, rows in zip(self.segments, candidates, strict=True) if len(rows)]
        if not pairs:
            return NO_HITS
        vectors = np.concatenate([segment.vectors[rows] for segment, rows in pairs]).astype(np.float32, copy=False)
        return Hits(
            *rescore_top_k(query, vectors, np.concatenate([segment.keys[rows] for segment, rows in pairs]), top)
        )

    def vectors_of(self, keys: NDArray[np.int64]) -> NDArray[np.float32]:
        """(N K D) vectors of items, one or more, in the order of the keys; each has to be in the index.

        Args:
            keys: (N) int64 keys of items that are in the index, one or more.

        Returns:
            (N K D) float32.
        """
        unique, positions = np.unique(keys, return_inverse=True)
        rows = [(segment, segment.rows_of(unique)) for segment in self.segments]
        owners = np.concatenate([np.zeros(0, np.int64), *(segment.keys[numbers] for segment, numbers in rows)])
        vectors = np.concatenate([segment.vectors[numbers] for segment, numbers in rows]).astype(np.float32, copy=False)
        order = np.argsort(owners, kind="stable")
        return vectors[order].reshape(len(unique), -1, vectors.shape[1])[positions]

    @cached_property
    def live(self) -> NDArray[np.int64]:
        """The keys of all items, ascending. Costs a read of all keys."""
        return np.setdiff1d(self.owners, self.deleted)
