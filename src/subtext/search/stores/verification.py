"""Damage of an index folder: every byte of vectors against its checksum, the tables, and that they belong together."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from subtext.errors import IndexError_, OutputError, counted
from subtext.search.stores import tables
from subtext.search.stores.folder import ROUND
from subtext.search.stores.item import SIDES, facet_sum, link_sum
from subtext.search.stores.manifest import Manifest, read_manifest
from subtext.search.stores.segments import KEYS, checksums, mapped
from subtext.search.stores.store import Problem
from subtext.search.stores.tables import SqliteTables

Run = Callable[..., list[tuple[Any, ...]]]
"""Runs a statement with values; its rows."""

ATTEMPTS = 5
"""How often an index is read again when it has changed while something seemed wrong."""


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
