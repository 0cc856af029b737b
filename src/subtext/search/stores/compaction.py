"""Compaction: one segment a side, without what was deleted, and sorted by lists where there are many rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subtext.errors import counted
from subtext.ops import draw
from subtext.search.ann import lists as ann
from subtext.search.stores import tables
from subtext.search.stores.folder import FolderWriter
from subtext.search.stores.item import SIDES, Side
from subtext.search.stores.segments import (
    BLOCK,
    Block,
    Segment,
    SegmentTable,
    open_segment,
    write_lists,
    write_segment,
)

QUERIES = 512
"""Vectors of each side that the number of lists to search is measured with: 128 measured recall to a point only."""


@dataclass(frozen=True)
class Lists:
    """The lists that the rows of a side were sorted by: their folder, how many a query searches, and recall@10."""

    name: str
    probes: int
    recalls: dict[str, float]
    sums: dict[str, str]


@dataclass(frozen=True)
class NewSegment:
    """A segment that was written, and its lists where the side is large."""

    name: str
    rows: int
    sums: dict[str, str]
    lists: Lists | None = None


def compact(writer: FolderWriter, *, seed: int = 0) -> list[str]:
    """Write the live rows of each side as one segment, remove deleted ones, and defragment the tables.

    seed  of the sample that the lists of a large side are trained on

    Readers keep what they have open. Needs as much free space as the vectors take. Raises OutputError when that is
    missing; then nothing has changed.
    """
    store = writer.store.store
    with writer.store.reading() as view:
        segments = view.segments
    sides = tuple(side for side in SIDES if _needs_work(segments[side]))
    new = {side: _write(writer, side, segments, seed) for side in sides}
    with writer.changing():
        for side in sides:
            number = SIDES.index(side)
            for table in ("segments", "lists", "tombstones"):
                writer.tables.run(f"DELETE FROM {table} WHERE side = ?", number)
            segment = new[side]
            if segment is not None:
                lists = segment.lists
                writer.add_segment(
                    segment.name, side, segment.rows, None if lists is None else lists.name, segment.sums
                )
                if lists is not None:
                    row = (lists.name, number, lists.probes, json.dumps(lists.recalls), json.dumps(lists.sums))
                    writer.tables.run("INSERT INTO lists VALUES (?, ?, ?, ?, ?)", *row)
        writer.tables.run("INSERT INTO words (words) VALUES ('optimize')")
    with tables.translated(writer.file):
        writer.tables.run("VACUUM")
        tables.empty_log(writer.connection)
    old = [segment.folder for side in sides for segment in segments[side].segments]
    writer.remove_folders([*old, *(store / name for side in sides for name in segments[side].centroids)])
    deleted = sum(len(segments[side].deleted) for side in sides)
    lines = [
        f"{counted(len(old), 'segment')} became {len(sides)}, vectors of {counted(deleted, 'deleted item')} removed"
    ]
    for side, segment in new.items():
        if segment is not None and segment.lists is not None:
            recalls = [
                f"{value:.3f} for {name.removeprefix('recall_of_')}" for name, value in segment.lists.recalls.items()
            ]
            lines.append(f"{side}: a query searches {segment.lists.probes} lists; recall@10 {' and '.join(recalls)}")
    return lines


def _needs_work(segments: SegmentTable) -> bool:
    """Whether there are rows to remove, segments to merge, or lists to make or to remove."""
    by_lists = bool(segments.segments) and all(segment.lists for segment in segments.segments)
    large = segments.rows > segments.exact_up_to
    return len(segments.segments) > 1 or len(segments.deleted) > 0 or by_lists != large


def _write(writer: FolderWriter, side: Side, segments: Mapping[Side, SegmentTable], seed: int) -> NewSegment | None:
    """Write one side's segment, and its lists where it has so many rows; None for a side without any."""
    rows, store, width = LiveRows(segments[side]), writer.store.store, writer.manifest.width
    if not len(rows):
        return None
    name = writer.new_name(side)
    if len(rows) <= segments[side].exact_up_to:
        sums = write_segment(store / name, rows.blocks(np.arange(len(rows))), rows=len(rows), width=width)
        return NewSegment(name, len(rows), sums)
    count = ann.list_count(len(rows))
    trained = [centroids for centroids in segments[side].centroids.values() if len(centroids) == count]
    sample = count * ann.PER_LIST
    centroids = trained[0] if trained else ann.train(rows.sample(sample, seed=seed), count, seed=seed)
    blocks = rows.blocks(np.arange(len(rows)))
    assigned = np.concatenate([ann.assign(vectors, centroids) for vectors, _ in blocks])
    offsets = np.concatenate([[0], np.cumsum(np.bincount(assigned, minlength=count))]).astype(np.int64)
    order = np.argsort(assigned, kind="stable")
    lists = writer.new_name(side, ".lists")
    list_sums = write_lists(store / lists, centroids)
    sums = write_segment(store / name, rows.blocks(order), rows=len(rows), width=width, offsets=offsets)
    segment = open_segment(store / name, rows=len(rows), width=width, lists=lists)
    samples = {own: LiveRows(segments[own]).sample(QUERIES, seed=seed) for own in SIDES}
    queries = {own: vectors for own, vectors in samples.items() if len(vectors)}
    probes, recalls = ann.probes_needed(list(queries.values()), segment.vectors, centroids, offsets)
    figures = {f"recall_of_{own}": round(recall, 4) for own, recall in zip(queries, recalls, strict=True)}
    return NewSegment(name, len(rows), sums, Lists(lists, probes, figures, list_sums))


class LiveRows:
    """The rows of a side that belong to items in the index, in the order of the items."""

    def __init__(self, table: SegmentTable) -> None:
        self.segments: tuple[Segment, ...] = table.segments
        alive = [
            np.arange(len(segment), dtype=np.int64) if dead is None else np.flatnonzero(~dead)
            for segment, dead in zip(table.segments, table.dead, strict=True)
        ]
        self.starts = np.concatenate([[0], np.cumsum([len(segment) for segment in table.segments])]).astype(np.int64)
        parts = [start + rows for start, rows in zip(self.starts, alive, strict=False)]
        rows = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
        # In the order of the items: equal ones keep their order from one compaction to the next.
        keys = [segment.keys[own] for segment, own in zip(table.segments, alive, strict=True)]
        self.rows: NDArray[np.int64] = rows[np.argsort(np.concatenate(keys), kind="stable")] if parts else rows

    def __len__(self) -> int:
        return len(self.rows)

    def blocks(self, order: NDArray[np.int64]) -> Iterator[Block]:
        """Vectors and keys in that order, block by block."""
        for start in range(0, len(order), BLOCK):
            yield self._take(self.rows[order[start : start + BLOCK]])

    def sample(self, count: int, *, seed: int) -> NDArray[np.float32]:
        """At most `count` vectors, drawn by the seed."""
        chosen = draw.permutation(len(self), seed=seed, epoch=0, purpose="compaction: sample")[:count]
        vectors = [block for block, _ in self.blocks(np.sort(chosen))]
        return np.concatenate(vectors) if vectors else np.zeros((0, 1), dtype=np.float32)

    def _take(self, rows: NDArray[np.int64]) -> Block:
        owner = np.searchsorted(self.starts, rows, side="right") - 1
        vectors = np.empty((len(rows), self.segments[0].vectors.shape[1]), dtype=np.float32)
        keys = np.empty(len(rows), dtype=np.int64)
        for number in np.unique(owner):
            own = owner == number
            local = rows[own] - self.starts[number]
            vectors[own] = self.segments[number].vectors[local]
            keys[own] = self.segments[number].keys[local]
        return vectors, keys
