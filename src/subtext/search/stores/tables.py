"""The tables of an index, in SQLite: items, links, what is filtered by, words, segments, jobs.

A change is one transaction, flushed to the disk before it is acknowledged. Readers see the tables as they were when
they began, while a writer goes on (SQLite's write-ahead log).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from subtext.errors import IndexError_, OutputError

TABLES = "items.sqlite"

_SCHEMA = """
CREATE TABLE state (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE items (
    key INTEGER PRIMARY KEY AUTOINCREMENT, side INTEGER NOT NULL, id TEXT NOT NULL, path TEXT, text TEXT,
    metadata TEXT NOT NULL, content BLOB NOT NULL, stamp TEXT, digest BLOB NOT NULL, UNIQUE (side, id)
);
CREATE TABLE links (image TEXT NOT NULL, text TEXT NOT NULL, PRIMARY KEY (image, text)) WITHOUT ROWID;
CREATE INDEX links_of_texts ON links (text, image);
CREATE TABLE facets (
    side INTEGER NOT NULL, name TEXT NOT NULL, value NOT NULL, key INTEGER NOT NULL,
    PRIMARY KEY (side, name, value, key)
) WITHOUT ROWID;
CREATE VIRTUAL TABLE words USING fts5(text, tokenize = 'unicode61 remove_diacritics 2');
CREATE TABLE segments (
    name TEXT PRIMARY KEY, side INTEGER NOT NULL, number INTEGER NOT NULL, row_count INTEGER NOT NULL, lists TEXT,
    checksums TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE lists (
    name TEXT PRIMARY KEY, side INTEGER NOT NULL, probes INTEGER NOT NULL, recalls TEXT NOT NULL,
    checksums TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE tombstones (key INTEGER PRIMARY KEY, side INTEGER NOT NULL);
CREATE TABLE forgotten (hash BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE traces (hash TEXT PRIMARY KEY, names TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT, verb TEXT NOT NULL, source TEXT, started TEXT NOT NULL, finished TEXT,
    done INTEGER NOT NULL, total INTEGER NOT NULL
);
INSERT INTO state VALUES ('generation', 0), ('images', 0), ('texts', 0), ('facets', 0), ('links', 0), ('segment', 0);
"""

PATIENCE, SHORT = 30, 1
"""Seconds to wait for another writer; and for readers to end, where a later change can do what they hold up."""
_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)


def create(file: Path) -> None:
    """Make empty tables. Raises OutputError when they cannot be written."""
    with translated(file), closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(_SCHEMA)
        empty_log(connection)


def empty_log(connection: sqlite3.Connection) -> None:
    """Bring what SQLite's log holds into the tables, and cut it to nothing; not while a reader still needs it."""
    connection.execute(f"PRAGMA busy_timeout = {1000 * SHORT}")
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.execute(f"PRAGMA busy_timeout = {1000 * PATIENCE}")


def to_read(file: Path) -> sqlite3.Connection:
    """A connection that cannot change anything; also of a folder that may not be written.

    Raises IndexError_ when there are no tables, or they are damaged.
    """
    with translated(file):
        # Whoever may write the folder takes part in the write-ahead log; on a read-only disk nobody writes it.
        closed = not os.access(file.parent, os.W_OK) and not file.with_name(f"{file.name}-wal").exists()
        mode = "mode=ro&immutable=1" if closed else "mode=rw"
        connection = _connect(file, mode)
        connection.execute("PRAGMA query_only = ON")
        return connection


def to_write(file: Path) -> sqlite3.Connection:
    """A connection for the one writer. Raises IndexError_ as `to_read`."""
    with translated(file):
        connection = _connect(file, "mode=rw")
        connection.execute("PRAGMA synchronous = FULL")
        # What is deleted is overwritten, so that no reader of the raw file finds it.
        connection.execute("PRAGMA secure_delete = ON")
        return connection


@contextmanager
def transaction(connection: sqlite3.Connection, file: Path, *, write: bool = False) -> Iterator[None]:
    """Inside the block all statements see one state; a change is made completely, or not at all on any error."""
    with translated(file):
        connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        try:
            yield
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


@contextmanager
def translated(file: Path) -> Iterator[None]:
    """Inside the block errors of SQLite become errors of the project."""
    try:
        yield
    except sqlite3.OperationalError as problem:
        if getattr(problem, "sqlite_errorcode", 0) & 0xFF in _FULL:
            raise OutputError(
                f"{file} needs to be written, and cannot be: {problem}; what stood there before still stands; free "
                "some space and do it again"
            ) from problem
        raise IndexError_(f"{file} cannot be used: {problem}; `subtext index verify` says what is wrong") from problem
    except sqlite3.DatabaseError as problem:
        raise IndexError_(f"{file} is damaged: {problem}; restore a backup, or build again") from problem


def _connect(file: Path, mode: str) -> sqlite3.Connection:
    if not file.is_file():
        raise IndexError_(f"{file} needs to hold the items of the index; it is not there; restore a backup")
    address = f"file:{quote(str(file.absolute()))}?{mode}"
    connection = sqlite3.connect(address, timeout=PATIENCE, isolation_level=None, check_same_thread=False, uri=True)
    connection.create_function("fold", 1, lambda it: it.casefold() if isinstance(it, str) else it, deterministic=True)
    return connection
