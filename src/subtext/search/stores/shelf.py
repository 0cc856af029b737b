"""The vectors of one side of an index at one moment, and the nearest of them: exactly, among some, or by lists."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from subtext.ops import draw
from subtext.search.ann.lists import likeliest, rows_in
from subtext.search.ann.rows import best_rows, scores_of_rows, settle
from subtext.search.stores.segment import Segment

MARGIN = 16
"""Rows beyond those asked for that are compared again in float64, so that near-equal scores are told apart there."""
SOME = "index: some items"
"""The purpose that keys are drawn for."""


@dataclass(frozen=True)
class Found:
    """The best items of one query, best first: (t) keys, and (t) float32 scores."""

    keys: NDArray[np.int64]
    scores: NDArray[np.float32]


@dataclass(frozen=True)
class Shelf:
    """The vectors of one side at one moment; shared by all views of that moment.

    segments   their rows, one after the other, are numbered through
    deleted    keys of items whose rows are still there
    centroids  of the lists that the rows are sorted by; None where all rows are compared
    probes     lists that a query looks at
    views      K, rows an item; 0 where there is no item yet
    """

    segments: tuple[Segment, ...]
    deleted: NDArray[np.int64]
    centroids: dict[str, NDArray[np.float32]]
    probes: dict[str, int]
    views: int
    exact_up_to: int

    @cached_property
    def rows(self) -> int:
        """All rows, those of deleted items among them."""
        return sum(len(segment) for segment in self.segments)

    @cached_property
    def dead(self) -> list[NDArray[np.bool_] | None]:
        """Of each segment, which rows belong to deleted items; None where none does."""
        found: list[NDArray[np.bool_] | None] = []
        for segment in self.segments:
            rows = segment.rows_of(self.deleted)
            mask = np.zeros(len(segment), dtype=np.bool_)
            mask[rows] = True
            found.append(mask if len(rows) else None)
        return found

    @property
    def loose(self) -> int:
        """Rows that stand in no list: every search compares them."""
        return sum(len(segment) for segment in self.segments if not segment.lists)

    @property
    def by_lists(self) -> bool:
        """Whether there are so many rows that only the likeliest lists are compared."""
        return self.rows > self.exact_up_to and any(segment.lists for segment in self.segments)

    def nearest(
        self, queries: NDArray[np.float32], *, top: int, among: NDArray[np.int64] | None = None, exact: bool = False
    ) -> list[Found]:
        """The best `top` items of each of (Q L D) queries, or of those `among` these keys.

        exact  compares all rows, however many there are

        Never fewer than `top` while there are as many: where lists do not give them, all rows are compared.
        """
        lists = self.by_lists and not exact and (among is None or len(among) > self.exact_up_to)
        if among is not None and not lists:
            chosen = [(segment, segment.rows_of(among)) for segment in self.segments]
            return [self._settled(query, self._best(query, chosen, top), top) for query in queries]
        found: list[Found | None] = [None] * len(queries)
        if lists:
            kept = None if among is None else [segment.rows_of(among) for segment in self.segments]
            for place, query in enumerate(queries):
                settled = self._settled(query, self._best(query, self._likeliest(query, kept), top), top)
                found[place] = settled if len(settled.keys) == top else None
        missing = [place for place, each in enumerate(found) if each is None]
        if missing and lists:
            everything = self.nearest(queries[missing], top=top, among=among, exact=True)
        else:
            everything = self._all(queries[missing], top) if missing else []
        for place, each in zip(missing, everything, strict=True):
            found[place] = each
        return [each for each in found if each is not None]

    def _all(self, queries: NDArray[np.float32], top: int) -> list[Found]:
        """Every row compared."""
        _, views, width = queries.shape
        flat = queries.reshape(-1, width)
        wanted = top * max(1, self.views) + MARGIN
        per_segment = [
            best_rows(flat, segment.vectors, wanted, dead=dead)
            for segment, dead in zip(self.segments, self.dead, strict=True)
        ]
        found = []
        for place, query in enumerate(queries):
            lines = slice(place * views, (place + 1) * views)
            rows = [np.unique(best[lines]) for best in per_segment]
            pieces = [(s, own[own >= 0]) for s, own in zip(self.segments, rows, strict=True)]
            found.append(self._settled(query, pieces, top))
        return found

    def _likeliest(
        self, query: NDArray[np.float32], kept: list[NDArray[np.int64]] | None
    ) -> list[tuple[Segment, NDArray[np.int64]]]:
        """Rows of the likeliest lists of each view of the query; of segments without lists all. Of those kept alone."""
        pieces = []
        share = 1.0 if kept is None else max(1e-3, sum(map(len, kept)) / self.rows)
        near: dict[str, list[NDArray[np.int64]]] = {}
        for number, segment in enumerate(self.segments):
            if segment.lists is None or segment.offsets is None:
                rows = np.arange(len(segment), dtype=np.int64)
            else:
                centroids = self.centroids[segment.lists]
                if segment.lists not in near:
                    probes = min(len(centroids), int(np.ceil(self.probes[segment.lists] / share)))
                    near[segment.lists] = [likeliest(view, centroids, probes) for view in query]
                lists = near[segment.lists]
                rows = rows_in(lists[0] if len(lists) == 1 else np.unique(np.concatenate(lists)), segment.offsets)
            dead = self.dead[number]
            rows = rows if dead is None else rows[~dead[rows]]
            pieces.append((segment, rows if kept is None else np.intersect1d(rows, kept[number], assume_unique=True)))
        return pieces

    def _best(
        self, query: NDArray[np.float32], pieces: list[tuple[Segment, NDArray[np.int64]]], top: int
    ) -> list[tuple[Segment, NDArray[np.int64]]]:
        """Of chosen rows those that can be among the answer: the best of each view of the query."""
        wanted = top * max(1, self.views) + MARGIN
        kept = []
        for segment, rows in pieces:
            if len(rows) > wanted:
                best = []
                for view in query:
                    scores = scores_of_rows(view, segment.vectors, rows)
                    best.append(rows[np.argpartition(scores, len(scores) - wanted)[-wanted:]])
                rows = np.unique(np.concatenate(best))
            kept.append((segment, rows))
        return kept

    def _settled(self, query: NDArray[np.float32], pieces: list[tuple[Segment, NDArray[np.int64]]], top: int) -> Found:
        vectors = [segment.vectors[rows] for segment, rows in pieces if len(rows)]
        keys = [segment.keys[rows] for segment, rows in pieces if len(rows)]
        if not keys:
            return Found(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32))
        return Found(*settle(query, np.concatenate(vectors), np.concatenate(keys), top))

    def vectors_of(self, keys: NDArray[np.int64]) -> NDArray[np.float32]:
        """(N K D) vectors of items, in the order of the keys; each has to be there."""
        wanted, place = np.unique(keys, return_inverse=True)
        rows = [segment.rows_of(wanted) for segment in self.segments]
        owners = np.concatenate([np.zeros(0, np.int64), *(s.keys[r] for s, r in zip(self.segments, rows, strict=True))])
        if not len(owners):
            return np.zeros((len(keys), self.views, 0), dtype=np.float32)
        vectors = np.concatenate([s.vectors[r] for s, r in zip(self.segments, rows, strict=True)])
        order = np.argsort(owners, kind="stable")
        found: NDArray[np.float32] = vectors[order].reshape(len(wanted), -1, vectors.shape[1])[place]
        return found

    @cached_property
    def live(self) -> NDArray[np.int64]:
        """The keys of all items that are there, ascending. Cost a read of all keys."""
        parts = [
            segment.keys if dead is None else segment.keys[~dead]
            for segment, dead in zip(self.segments, self.dead, strict=True)
        ]
        return np.unique(np.concatenate([np.zeros(0, np.int64), *parts]))

    @property
    def count(self) -> int:
        """Items that are there."""
        return len(self.live)

    def up_to(self, key: int) -> int:
        """How many items have this key or a smaller one."""
        return int(np.searchsorted(self.live, key, side="right"))

    def drawn(self, count: int, *, seed: int = 0) -> NDArray[np.int64]:
        """At most `count` keys of items that are there, ascending; which ones hangs on their keys and the seed alone.

        Items that come or go change few of them.
        """
        return some_of(self.live, count, seed=seed)


def some_of(keys: NDArray[np.int64], count: int, *, seed: int) -> NDArray[np.int64]:
    """At most `count` of ascending keys, ascending; which ones hangs on the keys and the seed alone."""
    if len(keys) <= count:
        return keys
    order = draw.uniform(keys, seed=seed, epoch=0, purpose=SOME)[:, 0]
    return np.sort(keys[np.argpartition(order, count)[:count]])
