"""Compaction: one segment a side, without what was deleted, and sorted by lists where there are many rows.

Backup and restore of an index folder: a copy of one moment, while the index is read and written.

Damage of an index folder: every byte of vectors against its checksum, the tables, and that they belong together.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.data.atomic import write_folder
from subtext.errors import IndexError_, OutputError, counted
from subtext.ops import draw
from subtext.search import ann
from subtext.search.stores import tables
from subtext.search.stores.folder import ATTEMPTS, DOCUMENTS, ROUND, Folder, FolderWriter
from subtext.search.stores.item import SIDES, Side, facet_sum, link_sum
from subtext.search.stores.manifest import MANIFEST, Manifest, read_manifest
from subtext.search.stores.segments import (
    BLOCK,
    KEYS,
    Block,
    Segment,
    SegmentTable,
    checksums,
    mapped,
    open_segment,
    write_lists,
    write_segment,
)
from subtext.search.stores.store import Problem, verify
from subtext.search.stores.tables import SqliteTables

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


def backup(folder: Folder, out: Path) -> Folder:
    """Copy an index into a new folder, completely or not at all; the copy is an index itself.

    Every file is checked against its checksum on the way. Caches and logs stay behind. Raises IndexError_ when `out`
    holds something or a file is damaged, OutputError when there is no space.
    """
    Folder.require_free(out)

    def fill(folder_copy: Path) -> None:
        store = folder_copy / folder.store.name
        for attempt in range(ATTEMPTS):
            store.mkdir()
            try:
                _copy(folder, store)
                for name in DOCUMENTS.values():
                    if (folder.store / name).is_file():
                        shutil.copyfile(folder.store / name, store / name)
                break
            except FileNotFoundError:
                # A compaction has removed a segment meanwhile; the next attempt reads its successor.
                shutil.rmtree(store)
                if attempt == ATTEMPTS - 1:
                    raise
        (folder_copy / MANIFEST).write_text(folder.manifest.to_json(), encoding="utf-8")

    write_folder(out, fill)
    return Folder(out)


def _copy(folder: Folder, store: Path) -> None:
    """Tables and segments of one moment."""
    with folder.reading() as view:
        target = sqlite3.connect(store / tables.TABLES)
        with tables.translated(store / tables.TABLES):
            view.connection.backup(target)
        target.close()
        for table in ("segments", "lists"):
            for name, expected in view.connection.execute(f"SELECT name, checksums FROM {table}"):
                (store / name).mkdir()
                for file in json.loads(expected):
                    shutil.copyfile(folder.store / name / file, store / name / file)
                if checksums(store / name) != json.loads(expected):
                    raise IndexError_(
                        f"{folder.store / name} is damaged, and no copy of it is made; `subtext index verify` says "
                        "what is wrong"
                    )


def restore(copy: Path, out: Path) -> Folder:
    """An index from a backup, which is verified first; `out` is new or empty.

    Raises IndexError_ when the backup is damaged, naming what is.
    """
    Folder.require_free(out)
    problems = verify(copy)
    if problems:
        listed = "; ".join(f"{problem.where}: {problem.what}" for problem in problems[:3])
        raise IndexError_(f"{copy} is damaged and cannot be restored; {listed}; take another backup")
    return backup(Folder(copy), out)


Run = Callable[..., list[tuple[Any, ...]]]
"""Runs a statement with values; its rows."""


def check(path: Path) -> list[Problem]:
    """Damage of an index folder; empty for an intact one.

    Reads every byte of vectors once, while the index is read and written: it reads again where a compaction has removed
    files meanwhile.
    """
    problems: list[Problem] = []
    for _ in range(ATTEMPTS):
        manifest = read_manifest(path)
        problems = _check(path / manifest.store / tables.TABLES, manifest)
        if not problems or read_manifest(path).generation == manifest.generation:
            break
    return problems


def _check(file: Path, manifest: Manifest) -> list[Problem]:
    """Damage at one moment."""
    problems: list[Problem] = []
    try:
        connection = tables.to_read(file)
        try:
            with tables.transaction(connection, file):
                for part in (_generation, _structure, _sums, _segments, _vectors):
                    problems += part(SqliteTables(connection).run, manifest, file.parent)
        finally:
            connection.close()
        problems += _words(file)
    except (IndexError_, OutputError) as problem:
        problems.append(Problem(tables.TABLES, str(problem)))
    except (ValueError, TypeError, KeyError) as problem:
        # A damaged cell may hold anything.
        problems.append(Problem(tables.TABLES, f"holds a value that cannot be read: {problem}"))
    return problems


def _generation(run: Run, manifest: Manifest, store: Path) -> Iterator[Problem]:
    ((generation,),) = run("SELECT value FROM state WHERE name = 'generation'")
    if generation < manifest.generation:
        changes = counted(generation, "change")
        yield Problem(tables.TABLES, f"has {changes}, of {manifest.generation} acknowledged: some were lost")


def _structure(run: Run, manifest: Manifest, store: Path) -> Iterator[Problem]:
    for (line,) in run("PRAGMA integrity_check(20)"):
        if line != "ok":
            yield Problem(tables.TABLES, str(line))


def _sums(run: Run, manifest: Manifest, store: Path) -> Iterator[Problem]:
    """All facets and all links against the sums of those that were put in."""
    facets = run("SELECT side, name, value, key FROM facets")
    sums = {
        "facets": sum(facet_sum((name, value), side, key) for side, name, value, key in facets),
        "links": sum(link_sum(image, text) for image, text in run("SELECT image, text FROM links")),
    }
    for name, total in sums.items():
        if [(total % ROUND,)] != run("SELECT value FROM state WHERE name = ?", name):
            yield Problem(tables.TABLES, f"{name} changed or damaged")


def _segments(run: Run, manifest: Manifest, store: Path) -> Iterator[Problem]:
    """Each file of each segment, and of the lists, against its checksum."""
    for table in ("segments", "lists"):
        for name, expected in run(f"SELECT name, checksums FROM {table}"):
            folder = store / name
            actual = checksums(folder) if folder.is_dir() else {}
            for file, digest in json.loads(expected).items():
                if file not in actual:
                    yield Problem(f"{store.name}/{name}/{file}", "is missing")
                elif actual[file] != digest:
                    yield Problem(f"{store.name}/{name}/{file}", "changed or damaged: its checksum is another")


def _vectors(run: Run, manifest: Manifest, store: Path) -> Iterator[Problem]:
    """Whether each item has its rows of vectors, and each live row its item."""
    for number, side in enumerate(SIDES):
        segments = run("SELECT name, row_count FROM segments WHERE side = ?", number)
        try:
            rows = [np.asarray(mapped(store / name / KEYS, np.dtype(np.int64), (count,))) for name, count in segments]
        except IndexError_ as problem:
            yield Problem(f"{store.name}", str(problem))
            continue
        deleted = np.array([key for (key,) in run("SELECT key FROM tombstones WHERE side = ?", number)], dtype=np.int64)
        keys = np.array([key for (key,) in run("SELECT key FROM items WHERE side = ?", number)], dtype=np.int64)
        stored, counts = np.unique(np.concatenate([np.zeros(0, np.int64), *rows]), return_counts=True)
        alive = ~np.isin(stored, deleted)
        missing, extra = np.setdiff1d(keys, stored[alive]), np.setdiff1d(stored[alive], keys)
        if len(missing):
            yield Problem(f"{store.name}", f"{len(missing):,} {side} have no vectors")
        if len(extra):
            yield Problem(f"{store.name}", f"{len(extra):,} vectors of {side} belong to no item")
        if (counts[alive] != manifest.views[side]).any():
            yield Problem(f"{store.name}", f"some {side} have another number of vectors than {manifest.views[side]}")


def _words(file: Path) -> list[Problem]:
    """The words that texts are searched by, against the texts, and their own structure by SQLite's check."""
    statement = (
        "SELECT count(*) FROM (SELECT key, text FROM items WHERE side = 1 AND text IS NOT NULL EXCEPT "
        "SELECT rowid, text FROM words UNION ALL SELECT * FROM (SELECT rowid, text FROM words EXCEPT "
        "SELECT key, text FROM items WHERE side = 1))"
    )
    writable = os.access(file.parent, os.W_OK)
    connection = tables.to_write(file) if writable else tables.to_read(file)
    try:
        with tables.translated(file):
            differing = connection.execute(statement).fetchone()[0]
            if differing:
                return [Problem(tables.TABLES, f"the words of {counted(differing, 'text')} differ from the texts")]
            if writable:
                # A statement that changes nothing, and yet needs the right to write.
                connection.execute("INSERT INTO words (words) VALUES ('integrity-check')")
    finally:
        connection.close()
    return []
