"""The one writer of an index: every change is whole, on the disk when it returns, and seen by readers at once."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.data.atomic import HIDDEN
from subtext.errors import IndexError_
from subtext.search.stores import journal, rows, tables
from subtext.search.stores.change import Change, checked
from subtext.search.stores.item import SIDES, Side
from subtext.search.stores.manifest import Manifest, write_manifest
from subtext.search.stores.segment import Piece, Segment, live_rows, write_segment
from subtext.search.stores.shelf import Shelf
from subtext.search.stores.traces import remove_traces
from subtext.search.stores.view import View

MERGE_ROWS = 32_768
"""Small segments are made one while they are no larger: a change stays quick, and there are few to search."""


class Writer:
    """Changes an index; made by `Folder.writing`, which holds the lock.

    Every method that changes something returns when the change is on the disk. What fails leaves the state before it.
    """

    def __init__(
        self,
        store: Path,
        manifest_file: Path,
        manifest: Manifest,
        connection: sqlite3.Connection,
        reading: Callable[[], AbstractContextManager[View]],
    ) -> None:
        self.store = store
        self.manifest_file = manifest_file
        self.manifest = manifest
        self.connection = connection
        self.reading = reading

    @property
    def tables(self) -> Path:
        """The file of the tables."""
        return self.store / tables.TABLES

    def clean(self) -> None:
        """Remove what a writer before this one was cut off in the midst of; finish what it had promised."""
        named = {name for table in ("segments", "lists") for (name,) in self._all(f"SELECT name FROM {table}")}
        for place in self.store.iterdir():
            if place.is_dir() and place.name not in named:
                shutil.rmtree(place, ignore_errors=True)
        for place in self.store.parent.glob(f"{HIDDEN}*"):
            shutil.rmtree(place, ignore_errors=True) if place.is_dir() else place.unlink(missing_ok=True)
        self._require_generation()
        self._acknowledge()
        self._remove_traces()

    def known(self, side: Side, ids: Sequence[str]) -> dict[str, rows.Known]:
        """What is known of those ids that are there."""
        return rows.known(self.connection, side, ids)

    def forgotten(self, side: Side, ids: Sequence[str]) -> set[str]:
        """Those of these ids that were deleted once, and not put in again by the user's own wish."""
        sql = "SELECT 1 FROM forgotten WHERE hash = ?"
        return {n for n in ids if self.connection.execute(sql, (rows.forgotten_hash(side, n),)).fetchone()}

    def put(self, change: Change, *, job: int | None = None, done: int = 0) -> None:
        """Put items in, all or none; those of the same id are replaced.

        job, done  of the journal, whose progress is kept with the change

        Raises IndexError_ for vectors that are not finite or of another shape, or an id twice; OutputError when the
        disk is full.
        """
        vectors = checked(change, self.manifest)
        if not change.entries and not change.amended and not self._joins(change):
            return
        side = change.side
        before = self.known(side, [entry.id for entry in (*change.entries, *change.amended)])
        replaced = [before[entry.id].key for entry in change.entries if entry.id in before]
        first = self._next_key()
        keys = np.arange(first, first + len(change.entries), dtype=np.int64)
        new = None
        absorbed: list[Segment] = []
        if len(keys):
            new, absorbed = self._segment(side, vectors, keys, replaced)
        with self.changing():
            rows.take_out(self.connection, side, replaced)
            rows.put(self.connection, side, keys.tolist(), change.entries)
            rows.amend(self.connection, side, [before[entry.id].key for entry in change.amended], change.amended)
            pictures: dict[str, list[str]] = {name: [] for name in change.exact_texts}
            for image, text in change.links:
                pictures.get(text, []).append(image)
            for text, images in pictures.items():
                rows.unlink(self.connection, "texts", text, but=images)
            rows.link(self.connection, change.links)
            for entry in change.entries:
                self.connection.execute("DELETE FROM forgotten WHERE hash = ?", (rows.forgotten_hash(side, entry.id),))
            self._tombstones(side, replaced, absorbed)
            if new is not None:
                self.add_segment(*new)
            if job is not None:
                journal.advance(self.connection, job, done)
        self.remove([segment.folder for segment in absorbed])

    def ids(self, side: Side) -> list[str]:
        """The ids of a side, in the order that they came in."""
        sql = f"SELECT id FROM items WHERE side = {SIDES.index(side)} ORDER BY key"
        return [name for (name,) in self._all(sql)]

    def delete(
        self, side: Side, ids: Sequence[str], *, keep_texts: bool = False, remember: bool = True
    ) -> dict[str, int]:
        """Delete items, all or none; gives how many of each side.

        keep_texts  keeps the texts that have no other picture; by default they go with their pictures
        remember    keeps a hash of each, so that a source which still has it does not bring it back unasked

        Rows, words, filters, thumbnails and log lines go at once; vectors are no longer found, and go when the index is
        compacted. Ids that are not there are passed over.
        """
        keys = [found.key for found in self.known(side, ids).values()]
        gone: dict[Side, list[int]] = {side: keys}
        with self.changing():
            if side == "images" and not keep_texts:
                gone["texts"] = rows.orphans(self.connection, keys)
            counts = {name: rows.forget(self.connection, name, own, remember=remember) for name, own in gone.items()}
            for name, own in gone.items():
                self._tombstones(name, own, [])
        self._remove_traces()
        return {name: counts.get(name, 0) for name in SIDES}

    def begin(self, verb: str, *, source: Mapping[str, Any] | None = None, total: int = 0) -> int:
        """Note a job in the journal; its number."""
        with self.changing():
            return journal.begin(self.connection, verb, source=source, total=total)

    def finish(self, job: int) -> None:
        """Note that a job is done."""
        with self.changing():
            journal.finish(self.connection, job)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """One change of the tables, whole and flushed; acknowledged in the manifest after it."""
        with tables.transaction(self.connection, self.tables, write=True):
            yield
            self.connection.execute("UPDATE state SET value = value + 1 WHERE name = 'generation'")
        self._acknowledge()

    def shelf(self, side: Side) -> Shelf:
        """The vectors of a side as they are now."""
        with self.reading() as view:
            return view.shelves[side]

    def new_name(self, side: Side, kind: str = "") -> tuple[str, int]:
        """A name that no segment had before, and its number."""
        with tables.told(self.tables):
            self.connection.execute("UPDATE state SET value = value + 1 WHERE name = 'segment'")
            number = tables.state(self.connection, "segment")
        return f"{number:06d}.{side}{kind}", number

    def add_segment(self, name: str, side: Side, row_count: int, lists: str | None, sums: Mapping[str, str]) -> None:
        """Name a segment in the tables, inside a change."""
        number = int(name.partition(".")[0])
        row = (name, SIDES.index(side), number, row_count, lists, json.dumps(dict(sums)))
        self.connection.execute("INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?)", row)

    def remove(self, folders: Sequence[Path]) -> None:
        """Remove folders that the tables no longer name; readers that have them open keep what they see."""
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)

    def _joins(self, change: Change) -> bool:
        """Whether the links of a change are others than those that are there."""
        wanted: dict[str, set[str]] = {name: set() for name in change.exact_texts}
        for image, text in change.links:
            wanted.setdefault(text, set()).add(image)
        for text, images in wanted.items():
            have = {image for (image,) in self.connection.execute("SELECT image FROM links WHERE text = ?", (text,))}
            if images - have or (text in change.exact_texts and have - images):
                return True
        return False

    def _segment(
        self, side: Side, vectors: NDArray[np.float32], keys: NDArray[np.int64], replaced: Sequence[int]
    ) -> tuple[tuple[str, Side, int, str | None, dict[str, str]], list[Segment]]:
        """Write new rows, and those of small segments before them, as one segment."""
        shelf = self.shelf(side)
        views, width = vectors.shape[1:]
        total, absorbed = len(keys) * views, list[Segment]()
        for segment in reversed(shelf.segments):
            if segment.lists is not None or len(segment) > 2 * total or total + len(segment) > MERGE_ROWS:
                break
            absorbed.insert(0, segment)
            total += len(segment)
        dead = np.union1d(shelf.deleted, np.asarray(replaced, dtype=np.int64))
        alive = [np.flatnonzero(~np.isin(segment.keys, dead)) for segment in absorbed]
        count = sum(map(len, alive)) + len(keys) * views

        def pieces() -> Iterator[Piece]:
            for segment, own in zip(absorbed, alive, strict=True):
                yield from live_rows(segment, own)
            yield vectors.reshape(-1, width), np.repeat(keys, views)

        name, _ = self.new_name(side)
        sums = write_segment(self.store / name, pieces(), rows=count, width=width)
        return (name, side, count, None, sums), absorbed

    def _tombstones(self, side: Side, gone: Sequence[int], absorbed: Sequence[Segment]) -> None:
        """Mark the rows of items as dead; drop the marks, and the names, of segments that are written anew."""
        marks = [(key, SIDES.index(side)) for key in gone]
        self.connection.executemany("INSERT INTO tombstones VALUES (?, ?)", marks)
        dead = [
            key for (key,) in self.connection.execute("SELECT key FROM tombstones WHERE side = ?", (SIDES.index(side),))
        ]
        for segment in absorbed:
            own = np.intersect1d(segment.keys, np.asarray(dead, dtype=np.int64))
            self.connection.executemany("DELETE FROM tombstones WHERE key = ?", [(int(key),) for key in own])
            self.connection.execute("DELETE FROM segments WHERE name = ?", (segment.folder.name,))

    def _next_key(self) -> int:
        found = self.connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'items'").fetchone()
        return 1 if found is None else int(found[0]) + 1

    def _require_generation(self) -> None:
        """Raise IndexError_ when the tables have fewer changes than were acknowledged."""
        have = tables.state(self.connection, "generation")
        if have < self.manifest.generation:
            raise IndexError_(
                f"{self.tables} needs {self.manifest.generation} changes, as the manifest acknowledged; it has {have}: "
                "some were lost; restore a backup"
            )

    def _acknowledge(self) -> None:
        generation = tables.state(self.connection, "generation")
        if generation != self.manifest.generation:
            self.manifest = replace(self.manifest, generation=generation)
            write_manifest(self.manifest_file, self.manifest)

    def _remove_traces(self) -> None:
        """Remove what deleted items have left in caches and logs; noted with the deletion, so that it is never left."""
        gone = {hashed: json.loads(names) for hashed, names in self._all("SELECT hash, names FROM traces")}
        if gone:
            remove_traces(self.store.parent, gone)
            with tables.transaction(self.connection, self.tables, write=True):
                self.connection.execute("DELETE FROM traces")
            with tables.told(self.tables):
                tables.empty_log(self.connection)

    def _all(self, sql: str) -> list[Any]:
        with tables.told(self.tables):
            return self.connection.execute(sql).fetchall()
