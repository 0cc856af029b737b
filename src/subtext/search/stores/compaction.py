"""Compaction: one segment a side, without what was deleted, and sorted by lists where there are many rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subtext.ops import draw
from subtext.search.ann import lists
from subtext.search.stores import tables
from subtext.search.stores.item import SIDES, Side
from subtext.search.stores.segment import BLOCK, Piece, Segment, open_segment, write_lists, write_segment
from subtext.search.stores.shelf import Shelf
from subtext.search.stores.writer import Writer

QUERIES = 512
"""Vectors of each side that the number of lists to look at is measured with: 128 told recall to a point, and asked for
13 lists where 10 were enough."""


@dataclass(frozen=True)
class Compacted:
    """What a compaction did: sides written anew, segments that became one each, items whose vectors are gone for good.

    recalls  of each side that is searched by lists: how many a query looks at, and what recall@10 that measured
    """

    sides: tuple[Side, ...]
    segments: int
    dropped: int
    recalls: dict[Side, dict[str, float | int]]


@dataclass(frozen=True)
class _Sorted:
    """Rows of a side in the order that they are to be written in."""

    order: NDArray[np.int64]
    offsets: NDArray[np.int64] | None
    centroids: NDArray[np.float32] | None


def compact(writer: Writer, *, seed: int = 0) -> Compacted:
    """Write the live rows of each side as one segment, take deleted ones away, and put the tables in order.

    seed  of the sample that the lists of a large side are trained on

    Readers go on with what they have open. Needs as much free space as the vectors take. Raises OutputError when that
    is not there; then nothing has changed.
    """
    shelves = {side: writer.shelf(side) for side in SIDES}
    sides = tuple(side for side in SIDES if _worth_it(shelves[side]))
    made = {side: _written(writer, side, shelves, seed) for side in sides}
    with writer.changing():
        for side in sides:
            number = SIDES.index(side)
            for table in ("segments", "lists", "tombstones"):
                writer.connection.execute(f"DELETE FROM {table} WHERE side = ?", (number,))
            segment, listed = made[side]
            if segment is not None:
                writer.add_segment(*segment)
            if listed is not None:
                row = (listed.name, number, listed.probes, json.dumps(listed.recalls), json.dumps(listed.sums))
                writer.connection.execute("INSERT INTO lists VALUES (?, ?, ?, ?, ?)", row)
        writer.connection.execute("INSERT INTO words (words) VALUES ('optimize')")
    with tables.told(writer.tables):
        writer.connection.execute("VACUUM")
        tables.empty_log(writer.connection)
    old = [segment.folder for side in sides for segment in shelves[side].segments]
    writer.remove([*old, *(writer.store / name for side in sides for name in shelves[side].centroids)])
    return Compacted(
        sides=sides,
        segments=len(old),
        dropped=sum(len(shelves[side].deleted) for side in sides),
        recalls={side: {"probes": m[1].probes, **m[1].recalls} for side, m in made.items() if m[1] is not None},
    )


@dataclass(frozen=True)
class _Listed:
    name: str
    probes: int
    recalls: dict[str, float]
    sums: dict[str, str]


def _worth_it(shelf: Shelf) -> bool:
    """Whether there is anything to do: rows to drop, segments to join, or lists to make or to leave."""
    listed = bool(shelf.segments) and all(segment.lists for segment in shelf.segments)
    return len(shelf.segments) > 1 or len(shelf.deleted) > 0 or listed != (shelf.rows > shelf.exact_up_to)


def _written(
    writer: Writer, side: Side, shelves: dict[Side, Shelf], seed: int
) -> tuple[tuple[str, Side, int, str | None, dict[str, str]] | None, _Listed | None]:
    """Write one side's segment, and its lists where it has so many rows; nothing for a side without any."""
    shelf = shelves[side]
    live = _Live(shelf)
    if not len(live):
        return None, None
    name, _ = writer.new_name(side)
    width = writer.manifest.width
    if len(live) <= shelf.exact_up_to:
        sums = write_segment(writer.store / name, live.pieces(np.arange(len(live))), rows=len(live), width=width)
        return (name, side, len(live), None, sums), None
    found = _sorted(live, shelf, seed)
    assert found.centroids is not None and found.offsets is not None
    listed, _ = writer.new_name(side, ".lists")
    list_sums = write_lists(writer.store / listed, found.centroids)
    sums = write_segment(
        writer.store / name, live.pieces(found.order), rows=len(live), width=width, offsets=found.offsets
    )
    segment = open_segment(writer.store / name, rows=len(live), width=width, lists=listed)
    asked = {own: _Live(shelves[own]).sample(QUERIES, seed=seed) for own in SIDES}
    sets = {own: vectors for own, vectors in asked.items() if len(vectors)}
    probes, recalls = lists.probes_needed(list(sets.values()), segment.vectors, found.centroids, found.offsets)
    told = {f"recall_of_{own}": round(recall, 4) for own, recall in zip(sets, recalls, strict=True)}
    return (name, side, len(live), listed, sums), _Listed(listed, probes, told, list_sums)


def _sorted(live: _Live, shelf: Shelf, seed: int) -> _Sorted:
    """The rows by list: of the centroids that there are, where they are as many as they should be; else of new ones."""
    count = lists.list_count(len(live))
    kept = [centroids for centroids in shelf.centroids.values() if len(centroids) == count]
    centroids = kept[0] if kept else lists.train(live.sample(count * lists.PER_LIST, seed=seed), count, seed=seed)
    own = np.concatenate([lists.assign(vectors, centroids) for vectors, _ in live.pieces(np.arange(len(live)))])
    offsets = np.concatenate([[0], np.cumsum(np.bincount(own, minlength=count))]).astype(np.int64)
    return _Sorted(np.argsort(own, kind="stable"), offsets, centroids)


class _Live:
    """The rows of a side that belong to items which are still there."""

    def __init__(self, shelf: Shelf) -> None:
        self.segments: tuple[Segment, ...] = shelf.segments
        alive = [
            np.arange(len(segment), dtype=np.int64) if dead is None else np.flatnonzero(~dead)
            for segment, dead in zip(shelf.segments, shelf.dead, strict=True)
        ]
        self.starts = np.concatenate([[0], np.cumsum([len(segment) for segment in shelf.segments])]).astype(np.int64)
        parts = [start + rows for start, rows in zip(self.starts, alive, strict=False)]
        rows = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
        # In the order of the items: equal ones keep their places from one compaction to the next.
        keys = [segment.keys[own] for segment, own in zip(shelf.segments, alive, strict=True)]
        self.rows: NDArray[np.int64] = rows[np.argsort(np.concatenate(keys), kind="stable")] if parts else rows

    def __len__(self) -> int:
        return len(self.rows)

    def pieces(self, order: NDArray[np.int64]) -> Iterator[Piece]:
        """Vectors and keys in that order, block by block."""
        for start in range(0, len(order), BLOCK):
            yield self._take(self.rows[order[start : start + BLOCK]])

    def sample(self, count: int, *, seed: int) -> NDArray[np.float32]:
        """At most `count` drawn vectors."""
        chosen = draw.permutation(len(self), seed=seed, epoch=0, purpose="compaction: sample")[:count]
        found = [vectors for vectors, _ in self.pieces(np.sort(chosen))]
        return np.concatenate(found) if found else np.zeros((0, 1), dtype=np.float32)

    def _take(self, rows: NDArray[np.int64]) -> Piece:
        owner = np.searchsorted(self.starts, rows, side="right") - 1
        first = self.segments[0].vectors
        vectors = np.empty((len(rows), first.shape[1]), dtype=np.float32)
        keys = np.empty(len(rows), dtype=np.int64)
        for place in np.unique(owner):
            own = owner == place
            local = rows[own] - self.starts[place]
            vectors[own] = self.segments[place].vectors[local]
            keys[own] = self.segments[place].keys[local]
        return vectors, keys
