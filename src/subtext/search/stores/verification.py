"""Whether an index is whole: every byte of vectors, every row of items, and that they belong together."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from subtext.errors import IndexError_, OutputError, counted
from subtext.search.stores import tables
from subtext.search.stores.calibration import CALIBRATION, read_calibration
from subtext.search.stores.item import SIDES, Side, facet_sum, item_digest
from subtext.search.stores.manifest import MANIFEST, Manifest, read_manifest
from subtext.search.stores.rows import ROUND, link_sum
from subtext.search.stores.segment import KEYS, checksums, mapped

ATTEMPTS = 5
"""How often an index is looked through again when it has changed while something seemed wrong."""
SHOWN = 3
"""Items that a problem names before it counts the others."""


@dataclass(frozen=True)
class Problem:
    """Something that is not as it should be: the file, or the part of it, and what is wrong there."""

    where: str
    what: str


def verify(path: Path) -> list[Problem]:
    """Everything that is wrong with an index; empty for a whole one.

    Reads every byte once, and is of use while the index is read and written: it sees it at one moment, and looks again
    where a compaction has taken files away meanwhile. Raises IndexError_ only where there is no index at all.
    """
    found: list[Problem] = []
    for _ in range(ATTEMPTS):
        try:
            manifest = read_manifest(path)
        except IndexError_ as problem:
            if not (path / MANIFEST).is_file():
                raise
            return [Problem(MANIFEST, str(problem))]
        found = _looked_through(path / manifest.store / tables.TABLES, manifest)
        if not found or read_manifest(path).generation == manifest.generation:
            break
    return found


def _looked_through(file: Path, manifest: Manifest) -> list[Problem]:
    """What is wrong at one moment."""
    found: list[Problem] = []
    try:
        connection = tables.to_read(file)
        try:
            with tables.transaction(connection, file):
                for check in (_generation, _structure, _items, _sums, _segments, _belonging):
                    found += check(connection, manifest, file.parent)
        finally:
            connection.close()
        found += _words(file)
        found += _calibration(file.parent)
    except (IndexError_, OutputError) as problem:
        found.append(Problem(tables.TABLES, str(problem)))
    except (ValueError, TypeError, KeyError) as problem:
        # A damaged cell may hold anything: what cannot even be read as what it should be is damage, too.
        found.append(Problem(tables.TABLES, f"holds a value that cannot be read: {problem}"))
    return found


def _generation(connection: sqlite3.Connection, manifest: Manifest, store: Path) -> Iterator[Problem]:
    have = tables.state(connection, "generation")
    if have < manifest.generation:
        yield Problem(
            tables.TABLES, f"has {counted(have, 'change')}, of {manifest.generation} acknowledged: some were lost"
        )


def _structure(connection: sqlite3.Connection, manifest: Manifest, store: Path) -> Iterator[Problem]:
    for (line,) in connection.execute("PRAGMA integrity_check(20)"):
        if line != "ok":
            yield Problem(tables.TABLES, str(line))


def _items(connection: sqlite3.Connection, manifest: Manifest, store: Path) -> Iterator[Problem]:
    """Each row of items against its digest, and the number of them."""
    bad: list[str] = []
    counts = {0: 0, 1: 0}
    sql = "SELECT digest, key, side, id, path, text, metadata, content, stamp FROM items"
    for digest, *columns in connection.execute(sql):
        counts[columns[1]] = counts.get(columns[1], 0) + 1
        if item_digest(tuple(columns)) != digest:
            bad.append(f"{columns[1]}/{columns[2]!r}")
    if bad:
        yield Problem(tables.TABLES, f"{counted(len(bad), 'item')} changed or damaged: {some(bad)}")
    for number, side in enumerate(SIDES):
        wanted = tables.state(connection, side)
        if counts[number] != wanted:
            yield Problem(tables.TABLES, f"has {counts[number]:,} of {wanted:,} {side}")


def _sums(connection: sqlite3.Connection, manifest: Manifest, store: Path) -> Iterator[Problem]:
    """All facets and all links against the sums of those that were put in."""
    facets = sum(
        facet_sum((name, value), side, key)
        for side, name, value, key in connection.execute("SELECT side, name, value, key FROM facets")
    )
    links = sum(link_sum(image, text) for image, text in connection.execute("SELECT image, text FROM links"))
    for name, total in (("facets", facets), ("links", links)):
        if total % ROUND != tables.state(connection, name):
            yield Problem(tables.TABLES, f"{name} changed or damaged")


def _segments(connection: sqlite3.Connection, manifest: Manifest, store: Path) -> Iterator[Problem]:
    """Each file of each segment, and of the lists, against its checksum."""
    for table in ("segments", "lists"):
        for name, wanted in connection.execute(f"SELECT name, checksums FROM {table}").fetchall():
            folder = store / name
            have = checksums(folder) if folder.is_dir() else {}
            for file, digest in json.loads(wanted).items():
                if file not in have:
                    yield Problem(f"{store.name}/{name}/{file}", "is missing")
                elif have[file] != digest:
                    yield Problem(f"{store.name}/{name}/{file}", "changed or damaged: its checksum is another")


def _belonging(connection: sqlite3.Connection, manifest: Manifest, store: Path) -> Iterator[Problem]:
    """Whether each item has its rows of vectors, and each live row its item."""
    for number, side in enumerate(SIDES):
        rows = connection.execute("SELECT name, row_count FROM segments WHERE side = ?", (number,)).fetchall()
        try:
            parts = [np.asarray(mapped(store / name / KEYS, np.dtype(np.int64), (count,))) for name, count in rows]
        except IndexError_ as problem:
            yield Problem(f"{store.name}", str(problem))
            continue
        dead = [key for (key,) in connection.execute("SELECT key FROM tombstones WHERE side = ?", (number,))]
        keys = [key for (key,) in connection.execute("SELECT key FROM items WHERE side = ?", (number,))]
        found, counts = np.unique(np.concatenate([np.zeros(0, np.int64), *parts]), return_counts=True)
        alive = ~np.isin(found, np.asarray(dead, dtype=np.int64))
        lack = np.setdiff1d(np.asarray(keys, dtype=np.int64), found[alive])
        more = np.setdiff1d(found[alive], np.asarray(keys, dtype=np.int64))
        if len(lack):
            yield Problem(f"{store.name}", f"{len(lack):,} {side} have no vectors")
        if len(more):
            yield Problem(f"{store.name}", f"{len(more):,} vectors of {side} belong to no item")
        if (counts[alive] != manifest.views[_side(number)]).any():
            yield Problem(f"{store.name}", f"some {side} have another number of vectors than {manifest.views[side]}")


def _words(file: Path) -> list[Problem]:
    """The words that texts are found by, against the texts, and their own structure by SQLite's check."""
    sql = (
        "SELECT count(*) FROM (SELECT key, text FROM items WHERE side = 1 AND text IS NOT NULL EXCEPT "
        "SELECT rowid, text FROM words UNION ALL SELECT * FROM (SELECT rowid, text FROM words EXCEPT "
        "SELECT key, text FROM items WHERE side = 1))"
    )
    writable = os.access(file.parent, os.W_OK)
    connection = tables.to_write(file) if writable else tables.to_read(file)
    try:
        with tables.told(file):
            wrong = connection.execute(sql).fetchone()[0]
            if wrong:
                return [Problem(tables.TABLES, f"the words of {counted(wrong, 'text')} differ from the texts")]
            if writable:
                # A statement that changes nothing, and yet wants to be allowed to.
                connection.execute("INSERT INTO words (words) VALUES ('integrity-check')")
    finally:
        connection.close()
    return []


def _calibration(store: Path) -> list[Problem]:
    """Whether what scores are worth can be read, and is as it was written."""
    try:
        read_calibration(store)
    except IndexError_ as problem:
        return [Problem(f"{store.name}/{CALIBRATION}", str(problem))]
    return []


def _side(number: int) -> Side:
    return SIDES[number]


def some(names: list[str]) -> str:
    """The first few of names, and how many more there are."""
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
