"""A search index as a folder that describes itself, can be read while it is written, and loses nothing it acknowledged.

INDEX/manifest.json           format, model and its fingerprint, width, where items came from; replaced atomically
INDEX/store-1/items.sqlite    items, links, what is filtered by, words, segments, jobs: the one truth of what is there
INDEX/store-1/NUMBER.SIDE/    segments of vectors, written once
INDEX/lock                    held by the one writer
INDEX/cache/, INDEX/logs/     what others keep of it; see `traces`

A change writes its segments, then changes the tables in one transaction, then the manifest: whatever is cut off in
between leaves the state before it, and a folder that no table names, which the next writer removes.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from subtext.errors import IndexError_
from subtext.search.stores import tables
from subtext.search.stores.calibration import CALIBRATION, PLOT, Calibration, read_calibration, write_calibration
from subtext.search.stores.item import SIDES, Side
from subtext.search.stores.lock import writer_lock
from subtext.search.stores.manifest import MANIFEST, Manifest, read_manifest, write_manifest
from subtext.search.stores.segment import CENTROIDS, Segment, mapped, open_segment
from subtext.search.stores.shelf import Shelf
from subtext.search.stores.view import View
from subtext.search.stores.writer import Writer

PENDING = "pending.json"
"""The manifest of a store that is built beside the one in use, inside its folder."""
ATTEMPTS = 5
"""How often a reader looks again when a compaction took away what it had just read about."""


class Folder:
    """An index on disk, opened; of use by several threads, and while another process writes.

    pending  the name of a store that is built beside the one in use; see `beside`

    Raises IndexError_ when it is no index, or is damaged.
    """

    def __init__(self, path: Path, *, pending: str | None = None) -> None:
        self.path = path
        self.manifest_file = path / MANIFEST if pending is None else path / pending / PENDING
        self.manifest = read_manifest(self.manifest_file.parent, name=self.manifest_file.name)
        self.store = path / self.manifest.store
        self._own = threading.local()
        self._shelves: tuple[int, dict[Side, Shelf]] = (-1, {})
        with self.reading():
            pass

    @property
    def tables(self) -> Path:
        """The file of the tables."""
        return self.store / tables.TABLES

    @property
    def bytes(self) -> int:
        """Its size on disk."""
        return sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())

    @property
    def counts(self) -> dict[str, int]:
        """Pictures and texts that are in it now."""
        with self.reading() as view:
            return view.counts

    def calibration(self) -> Calibration | None:
        """What its scores are worth; None where that was not measured."""
        return read_calibration(self.store)

    def calibration_mark(self) -> float:
        """When the calibration was written; 0 where there is none."""
        try:
            return float((self.store / CALIBRATION).stat().st_mtime_ns)
        except OSError:
            return 0.0

    def keep_calibration(self, calibration: Calibration, plot: str) -> str:
        """Keep a calibration and its plot, an SVG document; says where the plot is."""
        with writer_lock(self.path, "calibrate"):
            write_calibration(self.store, calibration, plot)
        return str(self.store / PLOT)

    @property
    def moved(self) -> bool:
        """Whether another store has taken the place of this one since it was opened: open the index again."""
        return read_manifest(self.path).store != self.manifest.store

    def gone(self) -> list[str]:
        """Trace names of what was deleted and has not come again: what others keep of it has to go as well."""
        with self.reading() as view:
            return [own.hex() for own in view.forgotten()]

    @contextmanager
    def reading(self) -> Iterator[View]:
        """The index at one moment: inside the block nothing changes, whatever is written meanwhile."""
        connection = self._connection()
        for attempt in range(ATTEMPTS):
            with tables.transaction(connection, self.tables):
                generation = tables.state(connection, "generation")
                try:
                    shelves = self._at(connection, generation)
                except FileNotFoundError as problem:
                    if attempt == ATTEMPTS - 1:
                        raise IndexError_(
                            f"{self.store} needs all its segments; {problem}; restore a backup"
                        ) from problem
                    continue
                yield View(connection, generation, shelves)
                return

    @contextmanager
    def writing(self, verb: str) -> Iterator[Writer]:
        """The one writer. Raises IndexError_ when somebody writes already, OutputError when the folder is closed."""
        with writer_lock(self.path, verb):
            self.manifest = read_manifest(self.manifest_file.parent, name=self.manifest_file.name)
            if self.manifest.store != self.store.name:
                raise IndexError_(f"{self.path} was moved to another model meanwhile; open it again")
            connection = tables.to_write(self.tables)
            writer = Writer(self.store, self.manifest_file, self.manifest, connection, self.reading)
            try:
                writer.clean()
                yield writer
            finally:
                self.manifest = writer.manifest
                with tables.told(self.tables):
                    tables.empty_log(connection)
                connection.close()

    def close(self) -> None:
        """Let go of this thread's connection."""
        connection = getattr(self._own, "connection", None)
        if connection is not None:
            connection.close()
            self._own.connection = None

    def _connection(self) -> sqlite3.Connection:
        found: sqlite3.Connection | None = getattr(self._own, "connection", None)
        if found is None:
            found = self._own.connection = tables.to_read(self.tables)
        return found

    def _at(self, connection: sqlite3.Connection, generation: int) -> dict[Side, Shelf]:
        """The shelves of a generation: those of the last search where nothing has changed."""
        known, shelves = self._shelves
        if known != generation:
            opened = {s.folder.name: s for shelf in shelves.values() for s in shelf.segments}
            centroids = {name: c for shelf in shelves.values() for name, c in shelf.centroids.items()}
            shelves = {side: self._shelf(connection, side, opened, centroids) for side in SIDES}
            self._shelves = (generation, shelves)
        return shelves

    def _shelf(
        self,
        connection: sqlite3.Connection,
        side: Side,
        opened: dict[str, Segment],
        centroids: dict[str, np.ndarray],
    ) -> Shelf:
        number, width = SIDES.index(side), self.manifest.width
        segments = []
        sql = "SELECT name, row_count, lists FROM segments WHERE side = ? ORDER BY number"
        for name, rows, lists in connection.execute(sql, (number,)).fetchall():
            segments.append(opened.get(name) or open_segment(self.store / name, rows=rows, width=width, lists=lists))
        probes = dict(connection.execute("SELECT name, probes FROM lists WHERE side = ?", (number,)).fetchall())
        dead = [
            key for (key,) in connection.execute("SELECT key FROM tombstones WHERE side = ? ORDER BY key", (number,))
        ]
        for name in probes:
            if name not in centroids and not (self.store / name).is_dir():
                raise FileNotFoundError(f"{self.store / name} is gone")
        return Shelf(
            segments=tuple(segments),
            deleted=np.asarray(dead, dtype=np.int64),
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


def require_new(path: Path) -> None:
    """Raise IndexError_ unless an index can be written there: a path that is free, or an empty folder."""
    if path.is_dir() and not any(path.iterdir()):
        return
    if path.exists() or path.is_symlink():
        raise IndexError_(f"an index needs a new or empty folder; {path} holds something; name another, or remove it")


def create(path: Path, manifest: Manifest) -> Folder:
    """An empty index. Raises IndexError_ when the folder holds something, OutputError when it cannot be written."""
    require_new(path)
    _make_store(path, manifest)
    write_manifest(path / MANIFEST, manifest)
    return Folder(path)


def beside(folder: Folder, manifest: Manifest) -> Folder:
    """A store for the vectors of another model inside the same index, which goes on serving from its own.

    One that was begun for the same model is gone on with. `swap` puts it in use.
    """
    for found in sorted(folder.path.glob(f"store-*/{PENDING}")):
        if read_manifest(found.parent, name=PENDING).fingerprint == manifest.fingerprint:
            return Folder(folder.path, pending=found.parent.name)
    numbers = [int(place.name.partition("-")[2]) for place in folder.path.glob("store-*")]
    manifest = replace(manifest, store=f"store-{max(numbers) + 1}", generation=0)
    _make_store(folder.path, manifest)
    write_manifest(folder.path / manifest.store / PENDING, manifest)
    return Folder(folder.path, pending=manifest.store)


def swap(folder: Folder, new: Folder) -> Folder:
    """Put the store that was built beside in use; the old one stays until the index is compacted.

    What was deleted is remembered there, too: data that still has it does not bring it back.
    """
    with folder.reading() as view:
        gone = view.forgotten()
    connection = tables.to_write(new.tables)
    try:
        with tables.transaction(connection, new.tables, write=True):
            connection.executemany("INSERT OR IGNORE INTO forgotten VALUES (?)", [(own,) for own in gone])
    finally:
        connection.close()
    write_manifest(folder.path / MANIFEST, new.manifest)
    new.manifest_file.unlink()
    return Folder(folder.path)


def stores_left(path: Path) -> list[Path]:
    """Stores of earlier models, and of a move that was begun."""
    used = read_manifest(path).store
    return sorted(place for place in path.glob("store-*") if place.name != used)


def measured(connection: sqlite3.Connection) -> dict[str, dict[str, float | int]]:
    """Of each side that is searched by lists: how many a query looks at, and the recall that was measured with them."""
    found: dict[str, dict[str, float | int]] = {}
    for side, probes, recalls in connection.execute("SELECT side, probes, recalls FROM lists"):
        found[SIDES[side]] = {"probes": int(probes), **json.loads(recalls)}
    return found


def _make_store(path: Path, manifest: Manifest) -> None:
    from subtext.data.atomic import write_folder

    write_folder(path / manifest.store, lambda place: tables.create(place / tables.TABLES))
