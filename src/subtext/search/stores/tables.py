"""The tables of an index, in SQLite: items, links, what is filtered by, words, segments, jobs.

A change is one transaction, flushed to the disk before it is acknowledged. Readers see the tables as they were when
they began, while a writer goes on (SQLite's write-ahead log).
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from subtext.errors import IndexError_, OutputError
from subtext.search.stores.sql import Tables

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
LONG_LIST = 1000
"""Values of a list from which on they are handed over as JSON: SQLite limits the number of parameters."""
_LIST = re.compile(r"= ANY\(\?::\w+\[\]\)")


class SqliteTables(Tables):
    """The tables of an index, by one connection to SQLite.

    write  for the one writer; else nothing can be changed, and the folder may be one that cannot be written

    Raises IndexError_ when there are no tables, or they are damaged.
    """

    def __init__(self, file: Path, *, write: bool = False) -> None:
        if not file.is_file():
            raise IndexError_(f"{file} needs to hold the items of the index; it is not there; restore a backup")
        self.file = file
        # Whoever may write the folder takes part in the write-ahead log; on a read-only disk nobody writes it.
        closed = not write and not os.access(file.parent, os.W_OK) and not file.with_name(f"{file.name}-wal").exists()
        address = f"file:{quote(str(file.absolute()))}?{'mode=ro&immutable=1' if closed else 'mode=rw'}"
        with translated(file):
            self.connection = sqlite3.connect(
                address, timeout=PATIENCE, isolation_level=None, check_same_thread=False, uri=True
            )
            self.connection.create_function(
                "fold", 1, lambda it: it.casefold() if isinstance(it, str) else it, deterministic=True
            )
            # What is deleted is overwritten, so that no reader of the raw file finds it.
            for setting in ("synchronous = FULL", "secure_delete = ON") if write else ("query_only = ON",):
                self.connection.execute(f"PRAGMA {setting}")

    def run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows that a statement gives; lists of values stand where the statement has `= ANY(?::type[])`."""
        # CROSS JOIN holds SQLite to the order of the tables: left to itself it has read all texts for each image.
        statement, flat = statement.replace(" JOIN ", " CROSS JOIN "), list[Any]()
        for value in values:
            if not isinstance(value, list):
                flat.append(value)
            elif len(value) < LONG_LIST or isinstance(value[0], bytes):
                statement = _LIST.sub(f"IN ({', '.join('?' * len(value))})", statement, count=1)
                flat += value
            else:
                statement = _LIST.sub("IN (SELECT value FROM json_each(?))", statement, count=1)
                flat.append(json.dumps(value, ensure_ascii=False))
        with translated(self.file):
            return self.connection.execute(statement, flat).fetchall()

    def run_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement with the values of each row."""
        with translated(self.file):
            self.connection.executemany(statement, rows)

    @contextmanager
    def transaction(self, *, write: bool = False) -> Iterator[None]:
        """Inside the block all statements see one state; a change is made completely, or not at all on any error."""
        with translated(self.file):
            self.connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                yield
                self.connection.execute("COMMIT")
            finally:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")

    def empty_log(self) -> None:
        """Bring what SQLite's log holds into the tables, and cut it to nothing; not while a reader still needs it."""
        self.run(f"PRAGMA busy_timeout = {1000 * SHORT}")
        try:
            self.run("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            self.run(f"PRAGMA busy_timeout = {1000 * PATIENCE}")

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


def create(file: Path) -> None:
    """Make empty tables. Raises OutputError when they cannot be written."""
    with translated(file), closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(_SCHEMA)


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
