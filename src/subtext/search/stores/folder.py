"""A search index as a folder that describes itself, can be read while it is written, and loses nothing acknowledged.

INDEX/manifest.json           format, model and its fingerprint, width, where items came from; replaced atomically
INDEX/store-1/items.sqlite    items, links, facets, words, segments, jobs: the only record of what is in the index
INDEX/store-1/NUMBER.SIDE/    segments of vectors, written once
INDEX/store-1/calibration.*   what scores are worth, and the reliability plot
INDEX/lock                    held by the one writer
INDEX/cache/, INDEX/logs/     what a server keeps of items; see `item_files`

A change writes its segments, then the tables in one transaction, then the manifest. Whatever is interrupted in between
leaves the state before it, and a folder that no table names, which the next writer removes.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from subtext.data.atomic import HIDDEN, write_folder, write_text, written_to
from subtext.errors import IndexError_
from subtext.search.stores import tables
from subtext.search.stores.condition import Condition, Value, moment
from subtext.search.stores.item import (
    DATE,
    SIDES,
    Applied,
    Change,
    Entry,
    FieldValues,
    Hits,
    Row,
    Side,
    deletion_hash,
    facet_sum,
    facets,
    link_sum,
)
from subtext.search.stores.manifest import CALIBRATION, MANIFEST, PLOT, Manifest, read_manifest, write_manifest
from subtext.search.stores.segments import (
    CENTROIDS,
    Block,
    Segment,
    SegmentTable,
    live_rows,
    mapped,
    open_segment,
    write_segment,
)
from subtext.search.stores.sql import Part, SqlView, SqlWriter
from subtext.search.stores.store import Problem, Stats, Store, WriterBusy
from subtext.search.stores.tables import SqliteTables
from subtext.search.stores.traces import remove_traces

LOCK = "lock"
PENDING = "pending.json"
"""The manifest of a store that is built beside the one in use, inside its folder."""
ATTEMPTS = 5
"""How often a reader tries again when a compaction has removed the segments that it was about to open."""
MERGE_ROWS = 32_768
"""Small segments are merged up to this size: a change stays fast, and there are few segments to search."""
ROUND = 2**62
"""Sums of facets and links are taken modulo this number: SQLite holds 64 bits."""
DOCUMENTS = {CALIBRATION: "calibration.json", PLOT: "calibration.svg"}
"""Document -> its file in the store's folder."""


class FolderView(SqlView):
    """An index folder at one moment."""

    def __init__(
        self,
        folder: Folder,
        connection: sqlite3.Connection,
        generation: int,
        segments: Mapping[Side, SegmentTable],
        cache: dict[str, Any],
    ) -> None:
        self.tables = SqliteTables(connection)
        counts = {side: self.tables.state(side) for side in SIDES}
        super().__init__(folder.manifest, generation, counts, cache)
        self.folder = folder
        self.connection = connection
        self.segments = segments

    def stats(self) -> Stats:
        """Size and state of the folder: rows, segments and deleted items of each side, and what lists were measured."""
        lists: dict[str, dict[str, float | int]] = {}
        for side, probes, recalls in self.tables.run("SELECT side, probes, recalls FROM lists"):
            lists[SIDES[side]] = {"probes": int(probes), **json.loads(recalls)}
        own = self.segments
        return Stats(
            bytes=sum(file.stat().st_size for file in self.folder.path.rglob("*") if file.is_file()),
            unindexed={side: own[side].unindexed for side in SIDES},
            facts={
                "rows": {side: own[side].rows for side in SIDES},
                "dead_rows": {
                    side: sum(int(mask.sum()) for mask in own[side].dead if mask is not None) for side in SIDES
                },
                "segments": {side: len(own[side].segments) for side in SIDES},
                "deleted": {side: len(own[side].deleted) for side in SIDES},
                "lists": lists,
                "earlier_stores": [store.name for store in earlier_stores(self.folder.path)],
            },
        )

    def select(
        self, side: Side, where: Sequence[Condition] = (), *, start: int = 0, count: int | None = None
    ) -> NDArray[np.int64]:
        """The keys of the items that fulfil every condition, ascending; of them `count`, from number `start` on."""
        statement, values = self.where(SIDES.index(side), where)
        if count is not None:
            keys = self.tables.run(f"{statement} ORDER BY key LIMIT ? OFFSET ?", *values, count, start)
            return np.array([key for (key,) in keys], dtype=np.int64)
        ((joined,),) = self.tables.run(f"SELECT group_concat(key) FROM ({statement})", *values)
        result = np.zeros(0, dtype=np.int64) if joined is None else np.fromstring(str(joined), dtype=np.int64, sep=",")
        result.sort()
        return result[start:]

    def keys(self, side: Side) -> NDArray[np.int64]:
        """The keys of all items of a side, ascending: segments are read sooner than tables."""
        return self.segments[side].live

    def nearest(
        self,
        side: Side,
        queries: NDArray[np.float32],
        *,
        top: int,
        among: NDArray[np.int64] | None = None,
        exact: bool = False,
    ) -> list[Hits]:
        """The best `top` items of each of (Q L D) queries, or of those `among` these keys."""
        return self.segments[side].nearest(queries, top=top, among=among, exact=exact)

    def vectors(self, side: Side, keys: NDArray[np.int64]) -> NDArray[np.float32]:
        """(N K D) vectors of items, in the order of the keys; each has to be in the index."""
        return self.segments[side].vectors_of(keys)

    def search_text(self, words: str, *, top: int) -> list[tuple[int, float]]:
        """The `top` texts that contain some of the words, as (key, BM25 score), best first."""
        tokens = " OR ".join('"' + token.replace('"', '""') + '"' for token in words.split())
        if not tokens:
            return []
        statement = "SELECT rowid, -bm25(words) FROM words WHERE words MATCH ? ORDER BY bm25(words), rowid LIMIT ?"
        return [(int(key), float(score)) for key, score in self.tables.run(statement, tokens, top)]

    def fields(self, side: Side) -> list[str]:
        """Names of the metadata fields, sorted."""
        statement = (
            "WITH RECURSIVE n(name) AS (SELECT min(name) FROM facets WHERE side = ?1 UNION ALL "
            "SELECT (SELECT min(name) FROM facets WHERE side = ?1 AND name > n.name) FROM n WHERE n.name IS NOT NULL) "
            "SELECT name FROM n WHERE name IS NOT NULL"
        )
        names = self.connection.execute(statement, (SIDES.index(side),)).fetchall()
        return [name for (name,) in names if not name.endswith(DATE)]

    def values(self, side: Side, name: str, *, most: int, choice: int) -> FieldValues:
        """The values of a field: the `most` frequent ones where no more than `choice` are different."""
        own = (SIDES.index(side), name)
        ((texts, numbers, different),) = self.tables.run(_KINDS, *own)
        common = self.tables.run(_COMMON, *own, most) if different <= choice else []
        ends = self.tables.run(_ENDS, *own)[0] if numbers else None
        low, high = self.tables.run(_ENDS, own[0], name + DATE)[0]
        dates = None if low is None else (low, high)
        return FieldValues(bool(texts), bool(numbers), different, tuple(cast(Any, common)), cast(Any, ends), dates)

    def records(self, kind: str) -> list[tuple[Any, ...]]:
        """Other records of the index; see `View.records`."""
        if kind in ("jobs", "deleted"):
            return super().records(kind)
        store = self.folder.store
        if kind == "documents":
            files = [(name, store / file) for name, file in DOCUMENTS.items()]
            return [(name, file.stat().st_mtime_ns) for name, file in files if file.is_file()]
        file = store / DOCUMENTS[kind]
        try:
            return [(file.read_text(encoding="utf-8"),)] if file.is_file() else []
        except UnicodeDecodeError as problem:
            raise IndexError_(f"{file} is damaged: it is not text; calibrate the index again") from problem

    def with_phrase(self, side: int, phrase: str) -> Part:
        """Items whose text contains the words of a phrase in their order; of images, those of such texts."""
        quoted = '"' + phrase.replace('"', '""') + '"'
        if side == 1:
            return "SELECT rowid AS key FROM words WHERE words MATCH ?", [quoted]
        statement = (
            "SELECT DISTINCT i.key FROM words JOIN items t ON t.key = words.rowid "
            "JOIN links l ON l.text = t.id JOIN items i ON i.side = 0 AND i.id = l.image WHERE words MATCH ?"
        )
        return statement, [quoted]

    def with_part(self, side: int, name: str | None, part: str) -> Part:
        """Items with a text in a field, or with an id for None, that contains a case-folded part."""
        if name is None:
            return "SELECT key FROM items WHERE side = ? AND instr(fold(id), ?) > 0", [side, part]
        tests = "side = ? AND name = ? AND typeof(value) = 'text' AND instr(fold(value), ?) > 0"
        return f"SELECT DISTINCT key FROM facets WHERE {tests}", [side, name, part]

    def with_values(self, side: int, name: str, values: Sequence[Value]) -> Part:
        """Items of which a field has one of some values."""
        plain = [moment(value) if name.endswith(DATE) else value for value in cast(Any, values)]
        statement = "SELECT key FROM facets WHERE side = ? AND name = ? AND value = ANY(?::text[])"
        return statement, [side, name, plain]

    def with_range(self, side: int, name: str, test: str, limit: Value) -> Part:
        """Items of which a field has a number below or above a limit."""
        plain = moment(cast(Any, limit)) if name.endswith(DATE) else limit
        # Texts sort after numbers in SQLite: a range of numbers has to end before them.
        tests = f"side = ? AND name = ? AND value {test} ? AND typeof(value) IN ('integer', 'real')"
        return f"SELECT DISTINCT key FROM facets WHERE {tests}", [side, name, plain]


class FolderWriter(SqlWriter):
    """Changes an index folder; made by `Folder.writing`, which holds the lock."""

    store: Folder
    tables: SqliteTables

    def __init__(self, store: Folder, connection: sqlite3.Connection) -> None:
        super().__init__(store, store.manifest)
        self.connection = connection
        self.tables = SqliteTables(connection)
        self.file = store.tables

    def clean(self) -> None:
        """Remove what an interrupted writer left behind, and finish what it had acknowledged."""
        with tables.translated(self.file):
            names = {
                name for table in ("segments", "lists") for (name,) in self.tables.run(f"SELECT name FROM {table}")
            }
        for folder in self.store.store.iterdir():
            if folder.is_dir() and folder.name not in names:
                shutil.rmtree(folder, ignore_errors=True)
        for path in self.store.path.glob(f"{HIDDEN}*"):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        self._require_generation()
        self._acknowledge()
        self._remove_item_files()

    def apply(self, change: Change) -> Applied:
        """Make a change, completely or not at all; see `Writer.apply`."""
        for name in sorted(change.documents, reverse=True):
            write_text(self.store.store / DOCUMENTS[name], change.documents[name])
        vectors = change.checked_vectors(self.manifest.views[change.side], self.manifest.width)
        if replace(change, documents={}) == Change(change.side) and change.documents:
            return Applied(dict.fromkeys(SIDES, 0))
        first = self._next_key()
        keys = np.arange(first, first + len(change.entries), dtype=np.int64)
        with self.store.reading() as view:
            segments = view.segments[change.side]
            replaced = [row.key for row in view.rows(change.side, ids=[entry.id for entry in change.entries])]
        new, merged = self._write_segment(change.side, segments, vectors, keys, replaced) if len(keys) else (None, [])
        with self.changing():
            applied, gone = self.change_rows(change, keys.tolist())
            for side in SIDES:
                self._mark_deleted(side, gone[side], merged if side == change.side else [])
            if new is not None:
                self.add_segment(*new)
        self.remove_folders([segment.folder for segment in merged])
        if any(applied.deleted.values()):
            self._remove_item_files()
        return applied

    def compact(self, *, seed: int = 0) -> list[str]:
        """Write the live rows of each side as one segment, sorted by lists where there are many; see `compaction`."""
        from subtext.search.stores.maintenance import compact

        lines = compact(self, seed=seed)
        for store in earlier_stores(self.store.path):
            shutil.rmtree(store)
            lines.append(f"removed {store.name}, of an earlier model")
        return lines

    def insert_rows(self, side: Side, keys: Sequence[int], entries: Sequence[Entry], vectors: Any) -> None:
        """Insert new items; their vectors are in a segment already."""
        number, total = SIDES.index(side), 0
        for key, entry in zip(keys, entries, strict=True):
            row = (key, number, entry.id, entry.path, entry.text, entry.metadata_json, entry.content, entry.stamp)
            self.tables.run("INSERT INTO items VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", *row, entry.digest(number, key))
            total += self._insert_facets(number, key, entry)
        self._add_to("facets", total)
        self.tables.run("UPDATE state SET value = value + ? WHERE name = ?", len(entries), side)

    def update_rows(self, side: Side, keys: Sequence[int], entries: Sequence[Entry]) -> None:
        """Update items whose vectors stay."""
        number, total = SIDES.index(side), 0
        for key, entry in zip(keys, entries, strict=True):
            total -= self._remove_facets(number, key)
            self.tables.run(
                "UPDATE items SET path = ?, text = ?, metadata = ?, content = ?, stamp = ?, digest = ? WHERE key = ?",
                *(
                    entry.path,
                    entry.text,
                    entry.metadata_json,
                    entry.content,
                    entry.stamp,
                    entry.digest(number, key),
                    key,
                ),
            )
            total += self._insert_facets(number, key, entry)
        self._add_to("facets", total)

    def remove_rows(self, side: Side, keys: Sequence[int]) -> None:
        """Remove items, their words and facets."""
        number = SIDES.index(side)
        self._add_to("facets", -sum(self._remove_facets(number, key) for key in keys))
        self.connection.executemany("DELETE FROM items WHERE key = ?", [(key,) for key in keys])
        self.tables.run("UPDATE state SET value = value - ? WHERE name = ?", len(keys), side)

    def remove_links(self, links: Sequence[tuple[str, str]]) -> None:
        """Remove links, (image id, text id)."""
        self.connection.executemany("DELETE FROM links WHERE image = ? AND text = ?", links)
        self._add_to("links", -sum(link_sum(image, text) for image, text in links))

    def insert_links(self, links: Sequence[tuple[str, str]]) -> None:
        """Link images and texts of which both are in the index."""
        statement = (
            "INSERT OR IGNORE INTO links SELECT :image, :text WHERE EXISTS (SELECT 1 FROM items WHERE side = 0 AND "
            "id = :image) AND EXISTS (SELECT 1 FROM items WHERE side = 1 AND id = :text)"
        )
        total = 0
        for image, text in links:
            if self.connection.execute(statement, {"image": image, "text": text}).rowcount:
                total += link_sum(image, text)
        self._add_to("links", total)

    def deleting(self, side: Side, rows: Sequence[Row]) -> None:
        """Note the cached files and log lines of deleted items: they are removed even if this process is killed."""
        for row in rows:
            names = json.dumps([row.id] if row.path is None else [row.id, row.path], ensure_ascii=False)
            self.tables.run("INSERT OR REPLACE INTO traces VALUES (?, ?)", deletion_hash(side, row.id).hex(), names)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """One change of the tables, made completely and flushed; acknowledged in the manifest after it."""
        with tables.transaction(self.connection, self.file, write=True):
            yield
            self.tables.run("UPDATE state SET value = value + 1 WHERE name = 'generation'")
        self._acknowledge()

    def new_name(self, side: Side, kind: str = "") -> str:
        """A name that no segment had before."""
        with tables.translated(self.file):
            self.tables.run("UPDATE state SET value = value + 1 WHERE name = 'segment'")
            number = self.tables.state("segment")
        return f"{number:06d}.{side}{kind}"

    def add_segment(self, name: str, side: Side, row_count: int, lists: str | None, sums: Mapping[str, str]) -> None:
        """Name a segment in the tables, inside a change."""
        number = int(name.partition(".")[0])
        row = (name, SIDES.index(side), number, row_count, lists, json.dumps(dict(sums)))
        self.tables.run("INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?)", *row)

    def remove_folders(self, folders: Sequence[Path]) -> None:
        """Remove folders that the tables no longer name; readers that have them open keep what they see."""
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)

    def _write_segment(
        self,
        side: Side,
        segments: SegmentTable,
        vectors: NDArray[np.float32],
        keys: NDArray[np.int64],
        replaced: Sequence[int],
    ) -> tuple[tuple[str, Side, int, str | None, dict[str, str]], list[Segment]]:
        """Write new rows, and those of small segments before them, as one segment; and the merged segments."""
        views, width = vectors.shape[1:]
        total, merged = len(keys) * views, list[Segment]()
        for segment in reversed(segments.segments):
            if segment.lists is not None or len(segment) > 2 * total or total + len(segment) > MERGE_ROWS:
                break
            merged.insert(0, segment)
            total += len(segment)
        dead = np.union1d(segments.deleted, np.asarray(replaced, dtype=np.int64))
        alive = [np.flatnonzero(~np.isin(segment.keys, dead)) for segment in merged]
        count = sum(map(len, alive)) + len(keys) * views

        def blocks() -> Iterator[Block]:
            for segment, rows in zip(merged, alive, strict=True):
                yield from live_rows(segment, rows)
            yield vectors.reshape(-1, width), np.repeat(keys, views)

        name = self.new_name(side)
        sums = write_segment(self.store.store / name, blocks(), rows=count, width=width)
        return (name, side, count, None, sums), merged

    def _mark_deleted(self, side: Side, keys: Sequence[int], merged: Sequence[Segment]) -> None:
        """Mark the rows of items as deleted; drop the marks, and the names, of segments that were merged."""
        number = SIDES.index(side)
        self.connection.executemany("INSERT INTO tombstones VALUES (?, ?)", [(key, number) for key in keys])
        dead = np.array(
            [key for (key,) in self.tables.run("SELECT key FROM tombstones WHERE side = ?", number)], np.int64
        )
        for segment in merged:
            own = np.intersect1d(segment.keys, dead)
            self.connection.executemany("DELETE FROM tombstones WHERE key = ?", [(int(key),) for key in own])
            self.tables.run("DELETE FROM segments WHERE name = ?", segment.folder.name)

    def _insert_facets(self, side: int, key: int, entry: Entry) -> int:
        """Insert the facets and the words of an item; the sum of the facets."""
        own = facets(json.loads(entry.metadata_json))
        rows = [(side, name, value, key) for name, value in own]
        self.connection.executemany("INSERT INTO facets VALUES (?, ?, ?, ?)", rows)
        if entry.text is not None:
            self.tables.run("INSERT INTO words (rowid, text) VALUES (?, ?)", key, entry.text)
        return sum(facet_sum(facet, side, key) for facet in own)

    def _remove_facets(self, side: int, key: int) -> int:
        """Remove the facets and the words of an item; the sum of the facets."""
        own = [facets(json.loads(text)) for (text,) in self.tables.run("SELECT metadata FROM items WHERE key = ?", key)]
        rows = [(side, name, value, key) for name, value in own[0]] if own else []
        self.connection.executemany("DELETE FROM facets WHERE side = ? AND name = ? AND value = ? AND key = ?", rows)
        self.tables.run("DELETE FROM words WHERE rowid = ?", key)
        return sum(facet_sum(facet, side, key) for facet in own[0]) if own else 0

    def _add_to(self, name: str, more: int) -> None:
        if more:
            self.tables.run("UPDATE state SET value = ? WHERE name = ?", (self.tables.state(name) + more) % ROUND, name)

    def _next_key(self) -> int:
        with tables.translated(self.file):
            used = self.tables.run("SELECT seq FROM sqlite_sequence WHERE name = 'items'")
        return int(used[0][0]) + 1 if used else 1

    def _require_generation(self) -> None:
        """Raise IndexError_ when the tables have fewer changes than were acknowledged."""
        generation = self.tables.state("generation")
        if generation < self.manifest.generation:
            raise IndexError_(
                f"{self.file} needs {self.manifest.generation} changes, as the manifest acknowledged; it has "
                f"{generation}: some were lost; restore a backup"
            )

    def _acknowledge(self) -> None:
        generation = self.tables.state("generation")
        if generation != self.manifest.generation:
            self.manifest = replace(self.manifest, generation=generation)
            write_manifest(self.store.manifest_file, self.manifest)

    def _remove_item_files(self) -> None:
        """Remove cached files and log lines of deleted items; they are noted with the deletion, so none is left."""
        with tables.translated(self.file):
            names = {own: json.loads(text) for own, text in self.tables.run("SELECT hash, names FROM traces")}
        if names:
            remove_traces(self.store.path, names)
            with tables.transaction(self.connection, self.file, write=True):
                self.tables.run("DELETE FROM traces")
            with tables.translated(self.file):
                tables.empty_log(self.connection)


class Folder(Store):
    """An index folder, opened.

    pending  the name of a store that is built beside the one in use; see `beside`

    Raises IndexError_ when it is no index, or is damaged.
    """

    path: Path

    def __init__(self, path: Path | str, *, pending: str | None = None) -> None:
        self.path = Path(path).expanduser()
        self.manifest_file = self.path / MANIFEST if pending is None else self.path / pending / PENDING
        self.manifest = read_manifest(self.manifest_file.parent, name=self.manifest_file.name)
        self.store = self.path / self.manifest.store
        self._thread = threading.local()
        self._opened: tuple[int, dict[Side, SegmentTable], dict[str, Any]] = (-1, {}, {})
        with self.reading():
            pass

    @classmethod
    def create(cls, location: Path | str, manifest: Manifest) -> Folder:
        """An empty index. Raises IndexError_ when the folder holds something, OutputError when it cannot be written."""
        path = Path(location).expanduser()
        cls.require_free(path)
        _create_store(path, manifest)
        write_manifest(path / MANIFEST, manifest)
        return cls(path)

    @classmethod
    def exists(cls, location: Path | str) -> bool:
        """Whether there is an index at this path."""
        return (Path(location).expanduser() / MANIFEST).is_file()

    @classmethod
    def require_free(cls, location: Path | str) -> None:
        """Raise IndexError_ unless an index can be created there: a free path, or an empty folder."""
        path = Path(location).expanduser()
        if path.is_dir() and not any(path.iterdir()):
            return
        if path.exists() or path.is_symlink():
            raise IndexError_(
                f"an index needs a new or empty folder; {path} holds something; name another, or remove it"
            )

    @classmethod
    def name_of(cls, location: Path | str) -> str:
        """The name of the folder."""
        return Path(location).expanduser().resolve().name

    @property
    def tables(self) -> Path:
        """The file of the tables."""
        return self.store / tables.TABLES

    @property
    def moved(self) -> bool:
        """Whether another store has taken the place of this one since it was opened: open the index again."""
        return read_manifest(self.path).store != self.manifest.store

    @contextmanager
    def reading(self) -> Iterator[FolderView]:
        """The index at this moment; inside another such block of the thread, at that block's moment."""
        current: FolderView | None = getattr(self._thread, "view", None)
        if current is not None:
            yield current
            return
        connection = self._connection()
        for attempt in range(ATTEMPTS):
            with tables.transaction(connection, self.tables):
                generation = SqliteTables(connection).state("generation")
                try:
                    segments, cache = self._segments(connection, generation)
                except FileNotFoundError as problem:
                    if attempt == ATTEMPTS - 1:
                        raise IndexError_(
                            f"{self.store} needs all its segments; {problem}; restore a backup"
                        ) from problem
                    continue
                self._thread.view = FolderView(self, connection, generation, segments, cache)
                try:
                    yield self._thread.view
                finally:
                    self._thread.view = None
                return

    @contextmanager
    def writing(self, verb: str) -> Iterator[FolderWriter]:
        """The one writer. Raises WriterBusy while another one writes, OutputError when the folder is read-only."""
        with writer_lock(self.path, verb):
            self.manifest = read_manifest(self.manifest_file.parent, name=self.manifest_file.name)
            if self.manifest.store != self.store.name:
                raise IndexError_(f"{self.path} was moved to another model meanwhile; open it again")
            connection = tables.to_write(self.tables)
            writer = FolderWriter(self, connection)
            try:
                writer.clean()
                yield writer
            finally:
                self.manifest = writer.manifest
                with tables.translated(self.tables):
                    tables.empty_log(connection)
                connection.close()

    def check(self) -> list[Problem]:
        """Damage of files and tables."""
        from subtext.search.stores.maintenance import check

        return check(self.path)

    @classmethod
    def damage(cls, location: Path | str, problem: IndexError_) -> list[Problem]:
        """Damage of an index that cannot be opened."""
        from subtext.search.stores.maintenance import check

        path = Path(location).expanduser()
        try:
            read_manifest(path)
        except IndexError_ as damaged:
            return [Problem(MANIFEST, str(damaged))]
        return check(path) or [Problem("index", str(problem))]

    def remove(self) -> None:
        """Remove the folder."""
        self.close()
        shutil.rmtree(self.path, ignore_errors=True)

    def beside(self, manifest: Manifest) -> Folder:
        """A store for the vectors of another model inside the same folder; one that was begun for it is resumed."""
        for file in sorted(self.path.glob(f"store-*/{PENDING}")):
            if read_manifest(file.parent, name=PENDING).fingerprint == manifest.fingerprint:
                return Folder(self.path, pending=file.parent.name)
        numbers = [int(store.name.partition("-")[2]) for store in self.path.glob("store-*")]
        manifest = replace(manifest, store=f"store-{max(numbers) + 1}", generation=0)
        _create_store(self.path, manifest)
        write_manifest(self.path / manifest.store / PENDING, manifest)
        return Folder(self.path, pending=manifest.store)

    def swap(self, new: Store, *, generation: int) -> Folder:
        """Put the store that was built beside in use; the old one stays until the index is compacted."""
        assert isinstance(new, Folder)
        with self.writing("move") as writer:
            if writer.manifest.generation != generation:
                raise IndexError_(
                    f"{self.path} was changed while its items were embedded; run the command again: it embeds what is "
                    "new, and nothing else"
                )
            with self.reading() as view:
                hashes = view.records("deleted")
            connection = tables.to_write(new.tables)
            try:
                with tables.transaction(connection, new.tables, write=True):
                    connection.executemany("INSERT OR IGNORE INTO forgotten VALUES (?)", hashes)
            finally:
                connection.close()
            write_manifest(self.path / MANIFEST, new.manifest)
            new.manifest_file.unlink()
        return Folder(self.path)

    def document(self, name: str) -> str:
        """Where a document of the index is, for messages."""
        return str(self.store / DOCUMENTS[name])

    def close(self) -> None:
        """Release this thread's connection."""
        connection = getattr(self._thread, "connection", None)
        if connection is not None:
            connection.close()
            self._thread.connection = None

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._thread, "connection", None)
        if connection is None:
            connection = self._thread.connection = tables.to_read(self.tables)
        return connection

    def _segments(
        self, connection: sqlite3.Connection, generation: int
    ) -> tuple[dict[Side, SegmentTable], dict[str, Any]]:
        """The segments of a generation, and its cache: those of the last search where nothing has changed."""
        opened, segments, cache = self._opened
        if opened != generation:
            every = {s.folder.name: s for table in segments.values() for s in table.segments}
            centroids = {name: c for table in segments.values() for name, c in table.centroids.items()}
            segments, cache = {side: self._segment_table(connection, side, every, centroids) for side in SIDES}, {}
            self._opened = (generation, segments, cache)
        return segments, cache

    def _segment_table(
        self,
        connection: sqlite3.Connection,
        side: Side,
        opened: dict[str, Segment],
        centroids: dict[str, NDArray[np.float32]],
    ) -> SegmentTable:
        number, width, run = SIDES.index(side), self.manifest.width, SqliteTables(connection).run
        segments = []
        for name, rows, lists in run(
            "SELECT name, row_count, lists FROM segments WHERE side = ? ORDER BY number", number
        ):
            segments.append(opened.get(name) or open_segment(self.store / name, rows=rows, width=width, lists=lists))
        probes = dict(run("SELECT name, probes FROM lists WHERE side = ?", number))
        deleted = [key for (key,) in run("SELECT key FROM tombstones WHERE side = ? ORDER BY key", number)]
        for name in probes:
            if name not in centroids and not (self.store / name).is_dir():
                raise FileNotFoundError(f"{self.store / name} is gone")
        return SegmentTable(
            segments=tuple(segments),
            deleted=np.asarray(deleted, dtype=np.int64),
            centroids={
                name: centroids[name]
                if name in centroids
                else np.asarray(mapped(self.store / name / CENTROIDS, np.dtype(np.float32), (None, width)))
                for name in probes
            },
            probes=probes,
            views=self.manifest.views[side],
            exact_up_to=self.manifest.exact_up_to,
        )


def earlier_stores(path: Path) -> list[Path]:
    """Stores of earlier models, without one that is being built beside the store in use."""
    used = read_manifest(path).store
    stores = sorted(store for store in path.glob("store-*") if store.name != used)
    return [store for store in stores if not (store / PENDING).is_file()]


def _create_store(path: Path, manifest: Manifest) -> None:
    write_folder(path / manifest.store, lambda folder: tables.create(folder / tables.TABLES))


@contextmanager
def writer_lock(path: Path, verb: str) -> Iterator[None]:
    """Inside the block no other process, and no other writer of this one, writes to the index at `path`.

    verb  what is done, for the message that a second writer gets

    Raises WriterBusy when somebody writes there already, OutputError when the folder may not be written.
    """
    file = path / LOCK
    with written_to(file):
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WriterBusy(
                f"{path} takes one writer at a time; {_owner(descriptor)}; wait until it is done"
            ) from None
        about = {"verb": verb, "process": os.getpid(), "host": socket.gethostname(), "since": _now()}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(about).encode(), 0)
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _owner(descriptor: int) -> str:
    """Who is writing, as the lock file says."""
    try:
        owner = json.loads(os.pread(descriptor, 4096, 0))
        return f"`subtext index {owner['verb']}` (process {owner['process']} on {owner['host']}) since {owner['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process is writing"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


_KINDS = (
    "SELECT coalesce(sum(typeof(value) = 'text'), 0), coalesce(sum(typeof(value) != 'text'), 0), "
    "count(DISTINCT value) FROM facets WHERE side = ? AND name = ?"
)
_ENDS = "SELECT min(value), max(value) FROM facets WHERE side = ? AND name = ? AND typeof(value) != 'text'"
_COMMON = (
    "SELECT value, count(*) FROM facets WHERE side = ? AND name = ? GROUP BY value "
    "ORDER BY count(*) DESC, value LIMIT ?"
)
