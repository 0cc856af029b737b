"""A search index as a folder that describes itself, can be read while it is written, and loses nothing acknowledged.

INDEX/manifest.json           format, model and its fingerprint, width, where items came from; replaced atomically
INDEX/store-1/items.sqlite    items, links, facets, words, segments, jobs: the only record of what is in the index
INDEX/store-1/NUMBER.SIDE/    segments of vectors, written once; `search.segments` compares them
    vectors.npy               (R D) float32, or float16 where the manifest says so; an item of K views has K rows
    keys.npy                  (R) int64, the item of each row
    offsets.npy               (C + 1) int64 where rows are sorted by list: list c has offsets[c] to offsets[c + 1]
    centroids.npy             (C D) float32 of the lists of a side
INDEX/store-1/calibration.*   what scores are worth, and the reliability plot
INDEX/store-1/query/          the text side of the model as plain arrays; see `search.text_side`
INDEX/store-1/sentences/      the sentence encoder as plain arrays, where it is not the text side of the model
INDEX/lock                    held by the one writer
INDEX/cache/, INDEX/logs/     what a server keeps of items; see `search.traces`

A change writes its segments, then the tables in one transaction, which is flushed to the disk, then the manifest.
Whatever is interrupted in between leaves the state before it, and a folder that no table names, which the next writer
removes. Readers see the tables as they were when they began, while a writer goes on (SQLite's write-ahead log).

All of it goes through the folder that was opened (`HeldFolder`), also when another index takes its path meanwhile.
Manifest and tables both say which index they belong to, and as of which change (`Revision`).
"""

from __future__ import annotations

import glob
import json
import math
import os
import re
import shutil
import socket
import sqlite3
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from subtext.data.atomic import HIDDEN, write_folder, write_text, written_to
from subtext.data.locks import acquire
from subtext.errors import OutputError, SearchIndexError, SubtextError
from subtext.ops import draw
from subtext.retrieval import ann
from subtext.retrieval.held_folder import HeldFolder
from subtext.retrieval.index_files import checksums, inside, json_object, mapped, stored_object
from subtext.retrieval.manifest import STORE_NAME, Manifest, Revision
from subtext.retrieval.segments import MOST_LISTS, InvertedLists, Segment, SegmentTable
from subtext.retrieval.stores.documents import CALIBRATION, LISTS, PLOT, RANKER, READ_BY_OCR
from subtext.retrieval.stores.errors import IndexIssue, IndexLockedError, IndexMovedError
from subtext.retrieval.stores.facets import facets, item_words
from subtext.retrieval.stores.item import (
    DERIVED,
    SIDES,
    SPACES,
    Applied,
    Change,
    IndexEntry,
    Side,
    Space,
    StoredRow,
    deletion_hash,
    facet_sum,
    link_sum,
    row_sum,
    side_of,
)
from subtext.retrieval.stores.saved_lists import without_images
from subtext.retrieval.stores.sql import ROUND, Part, Scalar, SqlWriter, StatementView, Tables, with_facet
from subtext.retrieval.stores.store import Stats, Store, lost_changes
from subtext.retrieval.text_side import FOLDER as TEXT_SIDE, SENTENCE_SIDE, text_side_problems, text_side_sums
from subtext.retrieval.traces import ADDED, LOGS, remove_traces, require_own
from subtext.retrieval.word_index import WordIndex
from subtext.retrieval.words import bm25, fold, query_words, spaced, words as split
from subtext.text_helpers import counted
from subtext.version import FORMAT

TABLES = "items.sqlite"

_SCHEMA = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")

PATIENCE, SHORT = 30, 1
"""Seconds to wait for another writer; and for readers to end, where a later change can do what they hold up."""
NO_LOCKS = "keep the index on a local disk, or where no locks are needed: in PostgreSQL (postgresql://...) or LanceDB (lance://...)"
"""What to do where a disk has no locks, such as some network disks."""
_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
_NOT_READ = (
    sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_FSTAT,
    sqlite3.SQLITE_IOERR_ACCESS, sqlite3.SQLITE_IOERR_SHMMAP, sqlite3.SQLITE_IOERR_CORRUPTFS,
)  # fmt: skip
_CONNECTION: dict[str, Any] = {"isolation_level": None, "check_same_thread": False}
_CLOSED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
LONG_LIST = 1000
"""Values of a list from which on they are handed over as JSON: SQLite limits the number of parameters."""
_LIST = re.compile(r"= ANY\(\?::\w+\[\]\)")


class SqliteTables(Tables):
    """The tables of an index, by one connection to SQLite.

    Args:
        file: The database file.
        write: For the one writer; else nothing can be changed, and the folder may be one that cannot be written.

    Raises:
        SearchIndexError: If there are no tables, or they are damaged.
    """

    joined = "group_concat(key)"

    def __init__(self, file: Path, *, write: bool = False) -> None:
        if not file.is_file():
            raise SearchIndexError(f"{file} needs to hold the items of the index; it is not there; restore a backup")
        self.file = file
        for suffix in ("", "-wal", "-shm", "-journal"):
            inside(file.parent, file.name + suffix)
        # Whoever may write the folder takes part in the write-ahead log; on a read-only disk nobody writes it.
        log, shared = (file.with_name(file.name + suffix) for suffix in ("-wal", "-shm"))
        closed = not write and not os.access(file.parent, os.W_OK) and not (log.exists() and shared.exists())
        address = f"file:{quote(str(file.absolute()))}?{'mode=ro&immutable=1' if closed else 'mode=rw'}"
        with translated(file):
            self._number = _numbers(file)
            if closed and log.exists() and log.stat().st_size:
                self.connection = _recovered(file, log)
            else:
                self.connection = sqlite3.connect(address, timeout=PATIENCE, uri=True, **_CONNECTION)
            # Tables that nobody closes are closed when they are collected, without a ResourceWarning.
            self.close_once = finalize(self, self.connection.close)
            self.connection.create_function("split_words", 1, _split, deterministic=True)
            # What is deleted is overwritten, so that no reader of the raw file finds it.
            for setting in ("synchronous = FULL", "secure_delete = ON") if write else ("query_only = ON",):
                self.connection.execute(f"PRAGMA {setting}")
            # SQLite opens its log by name at the first statement: from here on it opens nothing any more.
            ((_, _, opened),) = self.connection.execute("PRAGMA database_list").fetchall()
            self.connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if opened and _numbers(Path(opened)) != self._number:
            self.close()
            raise IndexMovedError(f"{file} was replaced while it was opened; try again")

    @property
    def is_current(self) -> bool:
        """Whether the tables are still those at their path."""
        return _numbers(self.file) == self._number

    def run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows that a statement gives; lists of values stand where the statement has `= ANY(?::type[])`.

        Args:
            statement: SQL, with `?` for a value.
            *values: The values, in the order of the question marks.

        Returns:
            The rows.
        """
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
        """Run a statement with the values of each row.

        Args:
            statement: SQL, with `?` for a value.
            rows: Values of each run.
        """
        with translated(self.file):
            self.connection.executemany(statement, rows)

    @contextmanager
    def transaction(self, *, write: bool = False) -> Iterator[None]:
        """Inside the block all statements see one state; a change is made completely, or not at all on any error.

        Args:
            write: Whether the block changes the tables.

        Returns:
            A context manager.
        """
        with translated(self.file):
            self.connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                yield
                self.connection.execute("COMMIT")
            finally:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")

    def storable(self, names: Sequence[str]) -> list[str]:
        """All of these names: SQLite can hold any text.

        Args:
            names: Any texts.

        Returns:
            The same texts.
        """
        return list(names)

    def identity(self) -> str:
        """Which index the tables belong to; see `Revision`.

        Returns:
            Hexadecimal digits; empty where the tables do not say.
        """
        return "".join(str(value) for (value,) in self.run("SELECT value FROM state WHERE name = 'identity'"))

    def empty_log(self) -> None:
        """Bring what SQLite's log holds into the tables, and cut it to nothing; not while a reader still needs it."""
        self.run(f"PRAGMA busy_timeout = {1000 * SHORT}")
        try:
            self.run("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            self.run(f"PRAGMA busy_timeout = {1000 * PATIENCE}")

    def close(self) -> None:
        """Close the connection."""
        self.close_once()


def _numbers(file: Path) -> tuple[int, int] | None:
    """What tells a file from another at the same path; None where there is none."""
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


def _recovered(file: Path, log: Path) -> sqlite3.Connection:
    """Tables with the last changes that lie in their log alone, as a temporary database of this connection.

    SQLite reads a log beside its index, which it would have to write into the folder.

    Raises:
        SearchIndexError: If they change meanwhile.
        OutputError: If there is no space.
    """
    with written_to(Path(tempfile.gettempdir())), tempfile.TemporaryDirectory(prefix="subtext-") as private:
        for _ in range(ATTEMPTS):
            before = [(it.st_size, it.st_mtime_ns) for it in (file.stat(), log.stat())]
            copies = [shutil.copyfile(it, Path(private, it.name)) for it in (file, log)]
            if before == [(it.st_size, it.st_mtime_ns) for it in (file.stat(), log.stat())]:
                break
        else:
            raise SearchIndexError(f"{file} needs to stay as it is while it is read; somebody writes it; try again")
        connection = sqlite3.connect("", **_CONNECTION)
        with closing(sqlite3.connect(copies[0])) as source:
            source.backup(connection)
    return connection


@contextmanager
def translated(file: Path) -> Iterator[None]:
    """Inside the block errors of SQLite become errors of the project.

    Args:
        file: The database file, for messages.

    Returns:
        A context manager.

    Raises:
        OutputError: If the disk is full or cannot be written.
        IndexLockedError: If another process has the lock, or the disk has no locks.
        SearchIndexError: For any other error of SQLite.
    """
    try:
        yield
    except sqlite3.OperationalError as problem:
        code = getattr(problem, "sqlite_errorcode", 0)
        if code in _NOT_READ:
            raise SearchIndexError(
                f"{file} cannot be read: {problem}; see to the disk, then verify the index (subtext index verify)"
            ) from problem
        if code & 0xFF in _FULL:
            raise OutputError(
                f"{file} needs to be written, and cannot be: {problem}; what stood there before still stands; free "
                "some space and do it again"
            ) from problem
        if code & 0xFF == sqlite3.SQLITE_BUSY:
            raise IndexLockedError(
                f"{file} needs a lock: another process holds it, or the disk has no locks: {problem} for {PATIENCE} s; "
                f"wait until that is done, or {NO_LOCKS}"
            ) from problem
        if code & 0xFF == sqlite3.SQLITE_CANTOPEN:
            raise SearchIndexError(
                f"{file} cannot be opened: {_why_not(file) or problem}; close other files or programs, or see to the "
                "rights of its folder"
            ) from problem
        raise SearchIndexError(
            f"{file} cannot be used: {problem}; `subtext index verify` says what is wrong"
        ) from problem
    except (sqlite3.DatabaseError, UnicodeDecodeError) as problem:
        # A message of SQLite quotes what it found.
        raise SearchIndexError(f"{file} is damaged: {problem}; restore a backup, or build again") from problem


def _why_not(file: Path) -> str:
    """Why the system opens no further file; "" where it does."""
    try:
        with ExitStack() as files:
            for _ in range(3):  # The tables, their log and its index.
                files.enter_context(file.open("rb"))
    except OSError as problem:
        return str(problem.strerror)
    return ""


COUNTED = 300_000
"""Texts up to which all of their words are kept in memory for a search of all evidence."""
VECTORS, KEYS, OFFSETS, CENTROIDS = "vectors.npy", "keys.npy", "offsets.npy", "centroids.npy"
FREQUENT = 10_000
"""Images from which on those that have a word are kept in memory."""
BLOCK = 8192
"""Rows that are copied at a time."""
Block = tuple[NDArray[np.float32], NDArray[np.int64]]
"""(r D) vectors and (r) keys."""


def open_segment(
    folder: Path, *, rows: int, width: int, dtype: np.dtype[Any], lists: str | None, sums: str = ""
) -> Segment:
    """Open a segment.

    Args:
        folder: Folder of the segment.
        rows: R, number of rows that the tables name.
        width: D, numbers per vector.
        dtype: Of the numbers.
        lists: Name of the lists that the rows are sorted by; None for none.
        sums: Checksums of its files, as the tables have them.

    Returns:
        The segment, its files mapped.

    Raises:
        SearchIndexError: If a file is missing, or is not of the shape that the store remembers.
        FileNotFoundError: If the folder is gone, as after a compaction.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is gone")
    offsets = None if lists is None else mapped(folder / OFFSETS, np.dtype(np.int64), (None,))
    vectors = mapped(folder / VECTORS, dtype, (rows, width))
    return Segment(folder, lists, vectors, mapped(folder / KEYS, np.dtype(np.int64), (rows,)), offsets, sums)


def write_segment(
    folder: Path,
    blocks: Iterable[Block],
    *,
    rows: int,
    width: int,
    dtype: np.dtype[Any],
    offsets: NDArray[np.int64] | None = None,
) -> dict[str, str]:
    """Write blocks of (r D) vectors and (r) keys as one segment, completely or not at all; the files' checksums.

    Args:
        folder: New folder of the segment.
        blocks: (r D) float32 vectors and (r) int64 keys, block by block.
        rows: R, number of all rows.
        width: D, numbers per vector.
        dtype: Of the numbers in the file.
        offsets: (C + 1) first row of each list; None for rows that are in no lists.

    Returns:
        File name -> checksum.

    Raises:
        OutputError: If the disk is full or may not be written.
    """
    stored = dtype.newbyteorder("<")

    def fill(folder: Path) -> None:
        keys = np.empty(rows, dtype=np.int64)
        done = 0
        with (folder / VECTORS).open("wb") as file:
            header = {"descr": stored.str, "fortran_order": False, "shape": (rows, width)}
            np.lib.format.write_array_header_1_0(file, header)
            for vectors, block_keys in blocks:
                file.write(np.ascontiguousarray(vectors, dtype=stored).data)
                keys[done : done + len(block_keys)] = block_keys
                done += len(block_keys)
        assert done == rows
        np.save(folder / KEYS, keys, allow_pickle=False)
        if offsets is not None:
            np.save(folder / OFFSETS, offsets, allow_pickle=False)

    write_folder(folder, fill)
    return checksums(folder)


class LiveRows:
    """The rows of a side that belong to items in the index, in the order of the items.

    Args:
        table: The segments of a side.
        keys: (r) the item of each row.
        rows: (r) its number among the rows of all segments.
    """

    def __init__(self, table: SegmentTable) -> None:
        self.segments = table.segments
        self.starts = np.cumsum([0, *map(len, table.segments)])
        owners = table.owners
        alive = np.flatnonzero(~np.isin(owners, table.deleted))
        # Rows of one item keep their order from one compaction to the next.
        self.rows: NDArray[np.int64] = alive[np.argsort(owners[alive], kind="stable")]
        self.keys = owners[self.rows]

    def blocks(self, order: NDArray[np.int64] | None = None) -> Iterator[Block]:
        """Vectors and keys of all rows, or in another order, block by block.

        Args:
            order: (r) numbers of live rows; None for all in their order.

        Returns:
            Blocks of (b D) vectors and (b) keys.
        """
        order = np.arange(len(self.rows)) if order is None else order
        for start in range(0, len(order), BLOCK):
            block = order[start : start + BLOCK]
            rows = self.rows[block]
            numbers = np.searchsorted(self.starts, rows, side="right") - 1
            vectors = np.empty((len(block), self.segments[0].vectors.shape[1]), dtype=np.float32)
            for number in np.unique(numbers):
                mine = numbers == number
                vectors[mine] = self.segments[number].vectors[rows[mine] - self.starts[number]]
            yield vectors, self.keys[block]

    def sample(self, count: int, *, seed: int) -> NDArray[np.float32]:
        """At most `count` vectors, sampled by the seed; there has to be one.

        Args:
            count: Size of the sample.
            seed: Of what is sampled; the same seed samples the same.

        Returns:
            (n D) float32, n the smaller of `count` and the number of live rows.
        """
        chosen = draw.permutation(len(self.rows), seed=seed, epoch=0, purpose="compaction: sample")[:count]
        return np.concatenate([vectors for vectors, _ in self.blocks(np.sort(chosen))])


MANIFEST, LOCK = "manifest.json", "lock"
PENDING = "pending.json"
"""The manifest of a store that is built beside the one in use, inside its folder."""
DOCUMENTS = {
    CALIBRATION: "calibration.json",
    PLOT: "calibration.svg",
    RANKER: "ranker.json",
    LISTS: "lists.json",
    READ_BY_OCR: "ocr.txt",
}
"""Document -> its file in the store's folder."""
QUERIES = 512
"""Vectors of each side that the number of lists to search is measured with: 128 measured recall to a point only."""
ATTEMPTS = 5
"""Number of attempts of a reader when a compaction removes the segments that it is about to open."""
MERGE_ROWS = 32_768
"""Small segments are merged up to this size: a change stays fast, and there are few segments to search."""


@dataclass(eq=False)
class FolderView(StatementView):
    """An index folder at one moment.

    Attributes:
        tables: The tables at this moment.
        sides: The segments of each space.
        folder: The index.
        held: Its folder, of which all this was read.
    """

    tables: SqliteTables
    sides: Mapping[Space, SegmentTable]
    folder: Folder
    held: HeldFolder
    exact_spaces = True

    kinds = (
        "SELECT sum(typeof(value) = 'text'), sum(typeof(value) != 'text'), count(DISTINCT value), "
        "min(CASE WHEN typeof(value) != 'text' THEN value END), max(CASE WHEN typeof(value) != 'text' THEN value END) "
        "FROM facets WHERE side = ? AND name = ?"
    )
    # Of several spellings the most common one is shown: SQLite takes it from the row with the greatest count.
    common = (
        "SELECT CASE WHEN typeof(value) = 'text' THEN shown END, shown, sum(many) AS total, max(many) FROM (SELECT "
        "value, written, CASE WHEN written = '' THEN value ELSE written END AS shown, count(*) AS many FROM facets "
        "WHERE side = ? AND name = ? GROUP BY value, written) GROUP BY value, "
        "CASE WHEN typeof(value) != 'text' THEN written END ORDER BY total DESC, value LIMIT ?"
    )
    in_id = "instr(folded_id, ?) > 0"
    in_value = "typeof(value) = 'text' AND instr(value, ?) > 0"
    of_folded = "SELECT folded_id, id FROM items WHERE side = ? AND folded_id = ANY(?::text[])"
    text, number = "value", "CASE WHEN typeof(value) != 'text' THEN value END"

    def stats(self) -> Stats:
        """Size and state of the folder: rows, segments and deleted items of each side, and what lists were measured.

        Returns:
            Bytes on disk, unindexed vectors, and facts of the store.
        """
        lists = {
            SPACES[side]: {"probes": int(probes), **stored_object(recalls, "lists")}
            for side, probes, recalls in self.tables.run("SELECT side, probes, recalls FROM lists")
        }
        sides = [(space, self.sides[space]) for space in self.manifest.spaces]
        exact = {
            space: (
                _too_many(own["probes"], len(table.lists.centroids))
                if _finds_enough(own, self.manifest)
                else f"every vector is compared: lists were chosen for a recall of {own['wanted']['recall']:g}, and "
                f"{self.manifest.recall:g} is asked; compact the index"
            )
            for space, own in lists.items()
            if (table := self.sides[space]).lists is not None and not table.lists.is_worth
        }
        return Stats(
            bytes=sum(file.stat().st_size for file in self.held.here.rglob("*") if file.is_file()),
            unindexed={side: self.sides[side].unindexed for side in SIDES},
            facts={
                "rows": {side: table.rows for side, table in sides},
                "dead_rows": {side: sum(int(m.sum()) for m in table.dead if m is not None) for side, table in sides},
                "segments": {side: len(table.segments) for side, table in sides},
                "deleted": {side: len(table.deleted) for side, table in sides},
                "lists": lists,
                **({"exact_search": exact} if exact else {}),
                "earlier_stores": [
                    store.name for store in self.folder.other_stores() if not self.folder.is_pending(store)
                ],
            },
        )

    def keys(self, side: Side) -> NDArray[np.int64]:
        """The keys of all items of a side, ascending: segments are read sooner than tables.

        Args:
            side: "images" or "texts".

        Returns:
            (N) int64 keys, ascending.
        """
        return self.sides[side].live

    def scores(
        self, space: Space, vectors: NDArray[np.float32]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]:
        """The scores of all items of a space; see `View.scores`.

        Args:
            space: One of `SPACES`.
            vectors: (L D) float32 of one query.

        Returns:
            (N) keys of items, ascending, (N) float32 scores, and (N) float32 by how much each may be off.
        """
        table, name = self.sides[space], f"order of {space}"
        if name not in self.cache:
            owners, rows = self.owners(space)
            alive = ~np.isin(table.owners, table.deleted)
            places = np.flatnonzero(alive)
            keys = table.owners[places]
            # Of each item its K rows, in the order of the items.
            order = np.argsort(keys, kind="stable")
            starts = np.searchsorted(keys[order], rows)
            places = places[order][starts[:, None] + np.arange(table.views)]
            # Rows that lie in this order already are not moved.
            moved = table.views > 1 or not np.array_equal(places[:, 0], np.arange(len(table.owners)))
            self.cache[name] = owners, places if moved else None
        owners, places = self.cache[name]
        nothing = np.zeros(0, dtype=np.float32)
        found = [(nothing, nothing), *(segment.scan(vectors) for segment in table.segments if len(segment))]
        scores, errors = (np.concatenate(own) for own in zip(*found, strict=True))
        if places is None:
            return owners, scores, errors
        scores, errors = scores[places], errors[places]
        return owners, scores.max(axis=1), errors.max(axis=1)

    def search_words(self, side: Side, words: str, *, top: int | None) -> list[tuple[int, float]]:
        """The items of a side that contain some of the words; see `View.search_words`.

        Args:
            side: "images" or "texts".
            words: Words of the query; see `retrieval.words` for what counts as a word.
            top: Number of items, 1 or more; None for all.

        Returns:
            (key of the item, BM25 score), best first.
        """
        if side == "images":
            keys, named = self._named_scores(Counter(query_words(words)))
            best = np.lexsort((keys, -named))[:top]
            return list(zip(keys[best].tolist(), named[best].tolist(), strict=True))
        tokens = " OR ".join(map(_quoted, query_words(words)))
        statement = "SELECT rowid, -bm25(words) FROM words WHERE words MATCH ? ORDER BY bm25(words), rowid LIMIT ?"
        rows = self.tables.run(statement, tokens, -1 if top is None else top) if tokens else []
        return [(int(key), float(score)) for key, score in rows]

    def _named(self, word: str) -> NDArray[np.int64]:
        """(n 3) key, times and length of the images that have a word; of a frequent one they are read once."""
        if (rows := self.cache.get(f"word {word}")) is None:
            statement = "SELECT key, times, length FROM image_words WHERE word = ?"
            rows = np.array(self.tables.run(statement, word), dtype=np.int64).reshape(-1, 3)
            if len(rows) > FREQUENT:
                self.cache[f"word {word}"] = rows
        return rows

    def _named_scores(self, counts: Mapping[str, int]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Keys, ascending, and BM25 of the images that have some words in their id, file name or metadata."""
        found = {word: self._named(word) for word in counts}
        keys = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *(rows[:, 0] for rows in found.values())]))
        times, lengths = np.zeros((len(counts), len(keys)), dtype=np.int64), np.zeros(len(keys), dtype=np.int64)
        for row, own in enumerate(found.values()):
            places = np.searchsorted(keys, own[:, 0])
            times[row, places], lengths[places] = own[:, 1], own[:, 2]
        number, total = self.counts["images"], self.tables.state("image_words")
        return keys, bm25(times, lengths, weights=list(counts.values()), number=number, total=total)

    def word_scores(self, side: Side, words: str) -> NDArray[np.float64]:
        """BM25 of all items of a side with the words of a query; see `View.word_scores`.

        FTS5 takes microseconds for each of them, and a common word is in most. So the words are kept as arrays for as
        long as the index does not change.

        Args:
            side: "images" or "texts".
            words: Words of the query.

        Returns:
            (N) scores in the order of `keys`.
        """
        name = "words of texts"
        if side == "images":
            keys, named = self._named_scores(dict.fromkeys(query_words(words), 1))
            scores = np.zeros(self.counts["images"])
            scores[np.searchsorted(self.keys("images"), keys)] = named
            return scores
        if self.counts[side] > COUNTED:
            return super().word_scores(side, words)
        if name not in self.cache:
            texts = dict(self.tables.run("SELECT rowid, text FROM words"))
            self.cache[name] = WordIndex([texts.get(key) or "" for key in self.keys("texts").tolist()])
        index: WordIndex = self.cache[name]
        return index.scores(words)

    def records(self, kind: str) -> list[tuple[Any, ...]]:
        """Other records of the index; see `View.records`.

        Args:
            kind: "jobs", "deleted", "documents" or the name of a document, as listed above.

        Returns:
            Rows of the record; their columns depend on the kind.

        Raises:
            SearchIndexError: For a document that is no text, or lies behind a symbolic link.
        """
        if kind in ("jobs", "deleted"):
            return super().records(kind)
        store = self.held.here / self.manifest.store
        files = {name: store / file for name, file in DOCUMENTS.items()}
        if kind == "documents":
            return [(name, file.stat().st_mtime_ns) for name, file in files.items() if file.is_file()]
        inside(store, DOCUMENTS[kind])
        try:
            return [(files[kind].read_text(encoding="utf-8"),)] if files[kind].is_file() else []
        except UnicodeDecodeError as problem:
            raise SearchIndexError(f"{files[kind]} is damaged: it is not text; calibrate the index again") from problem

    def _texts_with(self, phrase: str) -> Part:
        statement = "SELECT t.key, t.id FROM words JOIN items t ON t.key = words.rowid WHERE words MATCH ?"
        return statement, [_quoted(spaced(phrase))]

    def _value(self, text: str | None, number: Any, *most: int) -> str | int | float:
        return super()._value(text, number)

    def _with_values(self, side: int, name: str, values: Sequence[Scalar]) -> Part:
        long = [value for value in values if _is_long(value)]
        part = with_facet(side, name, "value = ANY(?::text[])", [value for value in values if not _is_long(value)])
        if not long:
            return part
        tests = "value = ANY(?::float8[]) AND written = ANY(?::text[])"
        exact = with_facet(side, name, tests, list(map(_near, long)), [str(int(value)) for value in long])
        return f"{part[0]} UNION {exact[0]}", [*part[1], *exact[1]]

    def _with_range(self, side: int, name: str, test: str, limit: Scalar) -> Part:
        # Texts sort after numbers in SQLite: a range of numbers has to end before them.
        numbers = "typeof(value) IN ('integer', 'real')"
        if not _is_long(limit):
            return with_facet(side, name, f"value {test} ? AND {numbers}", limit)
        # Numbers of one float64 have one sign, and compare as their digits.
        tie = test if _near(limit) > 0 else test.translate({ord("<"): ">", ord(">"): "<"})
        tests = f"{numbers} AND (value {test[0]} ? OR (value = ? AND (length(written), written) {tie} (?, ?)))"
        exact, near = str(int(limit)), _near(limit)
        return with_facet(side, name, tests, near, near, len(exact), exact)


class FolderWriter(SqlWriter):
    """Changes an index folder; made by `Folder.writing`, which holds the lock.

    Args:
        store: The index.
        sqlite: Its tables, opened for writing.
        manifest: Describes the store of these tables.
    """

    store: Folder
    tables: SqliteTables
    is_near = "value = ANY(?::bigint[])"

    def __init__(self, store: Folder, sqlite: SqliteTables, manifest: Manifest) -> None:
        super().__init__(store, manifest)
        self.tables = sqlite
        self.held = store.held
        self.held_store = HeldFolder(inside(self.held.here, manifest.store))
        self._segment_number = sqlite.state("segment")

    @property
    def inner(self) -> Path:
        """The folder of tables and segments that was opened."""
        return self.held_store.here

    @property
    def text_side(self) -> Path:
        """The folder for the text side of the model, through the folder that was opened."""
        return self.inner / TEXT_SIDE

    def require_there(self, done: str = "nothing of this change was made") -> None:
        """Require that the index is still what its path leads to.

        Args:
            done: What was done so far, for the message.

        Raises:
            IndexMovedError: If another one has taken its place.
        """
        self.held.require_there(done)
        self.held_store.require_there(done)
        if not self.tables.is_current:
            raise IndexMovedError(f"{self.tables.file} was replaced while it was used; {done}; restore a backup")

    def clean(self) -> None:
        """Remove what an interrupted writer left behind, and finish what it had acknowledged.

        Raises:
            SearchIndexError: If acknowledged changes were lost.
        """
        self.store.require_revision(self.tables.revision(self.tables.identity()), self.manifest.revision)
        self._remove_unnamed()
        home = self.held.here
        hidden = [*home.glob(f"{HIDDEN}*"), *self.inner.glob(f"{HIDDEN}*"), *(home / LOGS).rglob(f"{HIDDEN}*")]
        for path in [*hidden, *(home / ADDED).glob(".*")]:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        if self.in_use:
            # A move that was killed between its last two steps leaves it.
            (self.inner / PENDING).unlink(missing_ok=True)
        self._acknowledge()
        self._remove_traces()

    def apply(self, change: Change) -> Applied:
        """Make a change, completely or not at all; see `Writer.apply`.

        Args:
            change: Items to put in and to delete, links, documents, and an entry of the journal.

        Returns:
            Number of deleted items of each side, and the number of the job.
        """
        change = change.rounded(self.manifest.numbers)
        vectors = change.checked_vectors(self.manifest.views[change.side], self.manifest.width)
        if change.since not in (None, self.manifest.change):
            raise IndexLockedError(f"{self.store.path} was changed meanwhile; nothing of this was kept; do it again")
        for name in sorted(change.documents, reverse=True):
            write_text(self.inner / DOCUMENTS[name], change.documents[name])
        with self.store.reading() as view:
            sides, change = view.sides, self._with_owners(view, change)
            replaced: dict[Space, list[str]] = {change.side: [entry.id for entry in change.entries]}
            replaced |= {space: list(rows) for space, rows in change.derived.items()}
            former = {space: [row.key for row in view.rows(space, ids=ids)] for space, ids in replaced.items()}
        blocks: dict[Space, NDArray[np.float32]] = {change.side: vectors}
        for derived, rows in change.derived.items():
            blocks[derived] = np.array([[row.vector] for row in rows.values()], dtype=np.float32)
        first = self.tables.state("key") + 1
        keys = np.arange(first, first + sum(map(len, blocks.values())), dtype=np.int64)
        left, new, merged = keys, list[tuple[Any, ...]](), dict[Space, list[Segment]]()
        for space, block in blocks.items():
            own, left = left[: len(block)], left[len(block) :]
            if len(block):
                row, merged[space] = self._write_segment(space, sides[space], block, own, former[space])
                new.append(row)
        with self.changing():
            applied, gone = self.change_rows(change, keys.tolist())
            self.add_to("key", len(keys))
            for space, removed in gone.items():
                # What is gone without a successor lies in the merged segment as well.
                behind = [np.unique(segment.keys) for segment in merged.get(space, ())]
                left_out = np.setdiff1d(
                    np.concatenate([*behind, keys[:0]]), np.setdiff1d(removed, former.get(space, []))
                )
                self._bury(space, removed)
                self._unbury("key = ANY(?::bigint[])", left_out.tolist())
                for segment in merged.get(space, ()):
                    self.tables.run("DELETE FROM segments WHERE name = ?", segment.folder.name)
            for row in new:
                self.tables.run("INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?)", *row)
        with self._behind_commit():
            if any(merged.values()):
                self._remove_unnamed()
            if any(applied.deleted.values()):
                self._remove_traces()
        return applied

    def _with_owners(self, view: FolderView, change: Change) -> Change:
        """The change without derived rows of items that the index will not have."""
        if not change.derived:
            return change
        derived = {}
        for space, rows in change.derived.items():
            side = side_of(space)
            new = {entry.id for entry in change.entries} if side == change.side else set()
            there = new | set(view.keys_of(side, [name for name in rows if name not in new])) - set(change.deleted)
            derived[space] = {name: row for name, row in rows.items() if name in there}
        return replace(change, derived={space: rows for space, rows in derived.items() if rows})

    def compact(self, *, seed: int = 0) -> list[str]:
        """Write the live rows of each side as one segment, without what was deleted, and defragment the tables.

        The rows of a large side are sorted by lists. Stores of earlier models are removed; one that an unfinished move
        builds is compacted as well.

        Readers keep what they have open. Needs as much free space as the vectors take.

        Args:
            seed: Of the sample that the lists of a large side are trained on.

        Returns:
            Sentences that say what was done.

        Raises:
            OutputError: If that is missing; then nothing has changed.
        """
        with self.store.reading() as view:
            segments = view.sides
        sides: list[Space] = []
        stored = self.tables.run("SELECT side, recalls FROM lists")
        chosen = {side: stored_object(recalls, "lists").get("wanted") for side, recalls in stored}
        for side in self.manifest.spaces:
            parts, large = segments[side].segments, segments[side].rows > segments[side].exact_up_to
            by_lists = bool(parts) and all(segment.lists for segment in parts)
            other = by_lists and chosen.get(SPACES.index(side)) != self._wanted
            if len(parts) > 1 or len(segments[side].deleted) or by_lists != large or other:
                sides.append(side)
        new = {side: self._compacted(side, segments, seed) for side in sides}
        with self.changing():
            for side in sides:
                self._unbury("side = ?", SPACES.index(side))
                for table in ("segments", "lists"):
                    self.tables.run(f"DELETE FROM {table} WHERE side = ?", SPACES.index(side))
                for table, row in new[side].items():
                    self.tables.run(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", *row)
            self.tables.run("INSERT INTO words (words) VALUES ('optimize')")
        with self._behind_commit():
            self.tables.run("VACUUM")
            self.tables.empty_log()
            self._remove_unnamed()
        old = sum(len(segments[side].segments) for side in sides)
        # An image has vectors of its own, of its texts, of their sentences, and of its neighbours.
        unused = counted(sum(len(segments[side].deleted) for side in sides), "vector")
        lines = [f"{counted(old, 'segment')} became {len(sides)}, {unused} of deleted or changed items removed"]
        for _, number, probes, recalls, _ in [rows["lists"] for rows in new.values() if "lists" in rows]:
            own = json.loads(recalls)
            figures = " and ".join(f"{share:.3f} for {of}" for of, share in own["recall"].items())
            line = f"a query searches {probes} of {own['lists']} lists; recall@10 {figures}"
            if probes > MOST_LISTS * own["lists"]:
                line = f"{_too_many(probes, own['lists'])}, for a recall@10 of {self.manifest.recall:g}"
            lines.append(f"{SPACES[number]}: {line}")
        if self.in_use:
            for other in self.store.other_stores():
                if not self.store.is_pending(other):
                    shutil.rmtree(other)
                    lines.append(f"removed {other.name}, of an earlier model")
                    continue
                try:
                    unfinished = Folder(self.store.path, pending=other.name, held=self.held)
                except SearchIndexError:
                    shutil.rmtree(other)
                    lines.append(f"removed {other.name}, of an unfinished move, as it was damaged")
                    continue
                with closing(unfinished), closing(SqliteTables(other / TABLES, write=True)) as tables:
                    writer = FolderWriter(unfinished, tables, unfinished.manifest)
                    with writer.held_store.naming():
                        writer.clean()
                        self.clean_move(writer)
                        lines += [f"{other.name}, of an unfinished move: {line}" for line in writer.compact(seed=seed)]
        return lines

    @property
    def _wanted(self) -> dict[str, Any]:
        """What lists are chosen by."""
        return {"recall": self.manifest.recall, "by_hand": dict(self.manifest.by_hand)}

    def change_manifest(self, manifest: Manifest) -> None:
        """See `Writer.change_manifest`.

        Args:
            manifest: With other settings.
        """
        self.manifest = manifest
        with self.changing():
            pass

    @contextmanager
    def changing(self) -> Iterator[None]:
        """One change of the tables, made completely and flushed; acknowledged in the manifest after it.

        Returns:
            A context manager.
        """
        with self.tables.transaction(write=True):
            yield
            self.count_change()
            self.require_there()
        with self._behind_commit():
            self._acknowledge()

    @contextmanager
    def _behind_commit(self) -> Iterator[None]:
        """Inside the block errors say that the change stands: the next writer does what is left of it.

        Raises:
            SubtextError: For whatever fails.
        """
        try:
            yield
        except (OutputError, SearchIndexError, OSError) as problem:
            reason = str(problem).replace("what stood there before still stands; ", "")
            kind = type(problem) if isinstance(problem, SubtextError) else OutputError
            raise kind(
                f"{self.store.path} has the change, which stands; what follows it was not done, and the next change "
                f"does it: {reason}"
            ) from problem

    def count_change(self) -> Revision:
        """Count one more change in the state, as the last step of its transaction.

        Returns:
            The revision that the transaction leads to.
        """
        revision = super().count_change()
        self._set("segment", self._segment_number)
        self._seal()
        return revision

    def _seal(self) -> None:
        """Write the sums of small tables and of the state, which `verify` compares; others are kept as rows change."""
        # FTS5 writes its pages at a savepoint, else at the end of the transaction.
        self.tables.run("SAVEPOINT flushed")
        self.tables.run("RELEASE flushed")
        for table in SUMMED:
            self._set(table, _table_sum(self.tables, table))
        self._set("state", _state_sum(self.tables.run(_STATE)))

    def _set(self, name: str, value: int) -> None:
        self.tables.run("UPDATE state SET value = ? WHERE name = ?", value, name)

    def _bury(self, side: Space, keys: Sequence[int]) -> None:
        """Note items that are gone, and whose rows of vectors are not."""
        rows = [(int(key), SPACES.index(side)) for key in keys]
        self.tables.run_many("INSERT INTO tombstones VALUES (?, ?)", rows)
        self.add_to("tombstones", sum(row_sum(*row) for row in rows))

    def _unbury(self, where: str, value: Any) -> None:
        """Note that the rows of vectors of items are gone as well."""
        if value == []:
            return
        rows = self.tables.run(f"SELECT key, side FROM tombstones WHERE {where}", value)
        self.tables.run(f"DELETE FROM tombstones WHERE {where}", value)
        self.add_to("tombstones", -sum(row_sum(*row) for row in rows))

    def new_name(self, side: Space, kind: str = "") -> str:
        """A name that no segment had before.

        Args:
            side: One of `SPACES`.
            kind: End of the name, such as ".lists".

        Returns:
            A file name.
        """
        self._segment_number += 1
        return f"{self._segment_number:06d}.{side}{kind}"

    def _remove_unnamed(self) -> None:
        """Remove segments and lists that the tables do not name; readers that have them open keep what they see."""
        names = {name for table in ("segments", "lists") for (name,) in self.tables.run(f"SELECT name FROM {table}")}
        for folder in [file for file in self.inner.iterdir() if file.is_dir()]:
            if folder.name not in (*names, TEXT_SIDE, SENTENCE_SIDE) and not folder.name.startswith(HIDDEN):
                shutil.rmtree(folder, ignore_errors=True)

    def _write_segment(
        self,
        side: Space,
        segments: SegmentTable,
        vectors: NDArray[np.float32],
        keys: NDArray[np.int64],
        replaced: Sequence[int],
    ) -> tuple[tuple[Any, ...], list[Segment]]:
        """Write new rows, and those of small segments before them, as one segment; its row, and merged segments."""
        views, width = vectors.shape[1:]
        total, merged = len(keys) * views, list[Segment]()
        for segment in reversed(segments.segments):
            if segment.lists is not None or len(segment) > 2 * total or total + len(segment) > MERGE_ROWS:
                break
            merged.insert(0, segment)
            total += len(segment)
        deleted = np.union1d(segments.deleted, np.asarray(replaced, dtype=np.int64))
        before = LiveRows(replace(segments, segments=tuple(merged), deleted=deleted))
        new = vectors.reshape(-1, width), np.repeat(keys, views)
        count = len(before.rows) + len(new[1])
        return self._segment(side, chain(before.blocks(), [new]), count), merged

    def _segment(
        self, side: Space, blocks: Iterable[Block], rows: int, by: tuple[str, NDArray[np.int64]] | None = None
    ) -> tuple[Any, ...]:
        """Write a segment; its row in the tables, whose number stands in its name.

        Args:
            side: One of `SPACES`.
            blocks: Vectors and keys, block by block.
            rows: Number of vectors in all blocks.
            by: Name and offsets of the lists that the rows are sorted by.
        """
        name, (lists, offsets) = self.new_name(side), by or (None, None)
        width, dtype = self.manifest.width_of(side), self.manifest.dtype
        sums = write_segment(self.inner / name, blocks, rows=rows, width=width, dtype=dtype, offsets=offsets)
        return name, SPACES.index(side), int(name.partition(".")[0]), rows, lists, json.dumps(sums)

    def _compacted(self, side: Space, segments: Mapping[Space, SegmentTable], seed: int) -> dict[str, tuple[Any, ...]]:
        """Write the segment of a side, and lists if it has many rows; table -> new row."""
        live, store = LiveRows(segments[side]), self.inner
        count = len(live.rows)
        if not count:
            return {}
        if count <= segments[side].exact_up_to:
            return {"segments": self._segment(side, live.blocks(), count)}
        by_hand = self.manifest.by_hand
        lists, list_count = segments[side].lists, min(count, by_hand.get("lists", ann.list_count(count)))
        if lists is not None and len(lists.centroids) == list_count:
            centroids = lists.centroids
        else:
            centroids = ann.train(live.sample(list_count * ann.PER_LIST, seed=seed), list_count, seed=seed)
        assigned = np.concatenate([ann.assign(vectors, centroids) for vectors, _ in live.blocks()])
        offsets = np.concatenate([[0], np.cumsum(np.bincount(assigned, minlength=list_count))]).astype(np.int64)
        list_name = self.new_name(side, ".lists")
        write_folder(store / list_name, lambda folder: np.save(folder / CENTROIDS, centroids, allow_pickle=False))
        blocks = live.blocks(np.argsort(assigned, kind="stable"))
        row = self._segment(side, blocks, count, (list_name, offsets))
        width, dtype = self.manifest.width_of(side), self.manifest.dtype
        segment = open_segment(store / row[0], rows=count, width=width, dtype=dtype, lists=list_name)
        # Queries are of the same model: of either side, or for derived spaces of the sentence encoder.
        asking = DERIVED if side in DERIVED else SIDES
        rows = {of: LiveRows(segments[of]) for of in asking}
        queries = {of: own.sample(QUERIES, seed=seed) for of, own in rows.items() if len(own.rows)}
        recall = ann.wanted(self.manifest.recall)
        probes, recalls = ann.probes_needed(
            list(queries.values()), segment.vectors, centroids, offsets, recall, by_hand.get("probes")
        )
        list_sums = json.dumps(checksums(store / list_name))
        found = {of: round(recall, 4) for of, recall in zip(queries, recalls, strict=True)}
        figures = {"lists": list_count, "recall": found, "wanted": self._wanted}
        return {"segments": row, "lists": (list_name, SPACES.index(side), probes, json.dumps(figures), list_sums)}

    def _insert_items(self, side: Space, keys: Sequence[int], entries: Sequence[IndexEntry], vectors: Any) -> None:
        number = SPACES.index(side)
        rows = (
            (key, number, entry.id, fold(entry.id), *self._columns(number, key, entry))
            for key, entry in zip(keys, entries, strict=True)
        )
        self.tables.run_many("INSERT INTO items VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def _insert_facets(self, side: int, keys: Sequence[int], entries: Sequence[IndexEntry]) -> None:
        rows = _facet_rows(side, ((key, entry.metadata_json) for key, entry in zip(keys, entries, strict=True)))
        self.tables.run_many("INSERT INTO facets (side, name, value, written, key) VALUES (?, ?, ?, ?, ?)", rows)
        self.add_to("facets", sum(facet_sum(*row) for row in rows))
        if side == 0:
            self._insert_names(zip(keys, (_names(*_name_columns(entry)) for entry in entries), strict=True))
        texts = [(key, spaced(entry.text)) for key, entry in zip(keys, entries, strict=True) if entry.text is not None]
        self.tables.run_many("INSERT INTO words (rowid, text) VALUES (?, ?)", texts)

    def _insert_names(self, images: Iterable[tuple[int, Counter[str]]]) -> None:
        """Note the words of images, and count them."""
        rows = [row for key, names in images for row in _name_rows(key, names)]
        self.tables.run_many("INSERT INTO image_words VALUES (?, ?, ?, ?)", rows)
        self.add_to("image_words", sum(times for _, _, times, _ in rows))

    def _remove_facets(self, side: int, keys: Sequence[int]) -> None:
        statement = "SELECT key, metadata FROM items WHERE key = ANY(?::bigint[])"
        rows = _facet_rows(side, self.tables.run(statement, list(keys)))
        statement = "DELETE FROM facets WHERE side = ? AND name = ? AND value = ? AND written = ? AND key = ?"
        self.tables.run_many(statement, rows)
        self.add_to("facets", -sum(facet_sum(*row) for row in rows))
        if side == 0:
            statement = "SELECT key, id, path, metadata FROM items WHERE key = ANY(?::bigint[])"
            stored = [(key, _names(*own)) for key, *own in self.tables.run(statement, list(keys))]
            gone = [row for key, names in stored for row in _name_rows(key, names)]
            self.tables.run_many("DELETE FROM image_words WHERE word = ? AND key = ?", [row[:2] for row in gone])
            self.add_to("image_words", -sum(times for _, _, times, _ in gone))
        self.tables.run_many("DELETE FROM words WHERE rowid = ?", [(key,) for key in keys])

    def _remove_links(self, links: Sequence[tuple[str, str]]) -> None:
        self.tables.run_many("DELETE FROM links WHERE image = ? AND text = ?", links)
        self.add_to("links", -sum(link_sum(image, text) for image, text in links))

    def _insert_links(self, links: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        statement = (
            "INSERT OR IGNORE INTO links SELECT ?1, ?2 WHERE EXISTS (SELECT 1 FROM items WHERE side = 0 AND "
            "id = ?1) AND EXISTS (SELECT 1 FROM items WHERE side = 1 AND id = ?2)"
        )
        new = [link for link in links if self.tables.connection.execute(statement, link).rowcount]
        self.add_to("links", sum(link_sum(image, text) for image, text in new))
        return new

    def _note_traces(self, side: Side, rows: Sequence[StoredRow]) -> None:
        """Note the cached files and log lines of deleted items: they are removed even if this process is killed."""
        names = [json.dumps([row.id] if row.path is None else [row.id, row.path], ensure_ascii=False) for row in rows]
        hashes = [deletion_hash(side, row.id).hex() for row in rows]
        self.tables.run_many("INSERT OR REPLACE INTO traces VALUES (?, ?)", list(zip(hashes, names, strict=True)))

    @property
    def in_use(self) -> bool:
        """Whether this is the store that searches use, and not one that is built beside it."""
        return self.store.pending is None

    def _delete_elsewhere(self, names: Mapping[str, Sequence[str]]) -> None:
        """Delete items from the stores of earlier models, which others may have open, and from those half built.

        Args:
            names: Trace name -> texts that name the item, its id first.
        """
        ids: dict[Side, list[str]] = {
            side: [own[0] for digest, own in names.items() if deletion_hash(side, own[0]).hex() == digest]
            for side in SIDES
        }
        for other in self.store.other_stores():
            try:
                with closing(SqliteTables(other / TABLES, write=True)) as tables:
                    writer = FolderWriter(self.store, tables, self.manifest)
                    with tables.transaction(write=True):
                        for side, own in ids.items():
                            # An unfinished move takes over what is remembered at its end.
                            change = Change(side, deleted=own, keep_texts=True, remember=False)
                            for space, keys in writer.change_rows(change, [])[1].items():
                                writer._bury(space, keys)
                        tables.run("DELETE FROM traces")
                        writer.count_change()
                    tables.empty_log()
                file = other / DOCUMENTS[LISTS]
                if not file.is_symlink() and file.is_file():
                    left = without_images(file.read_text(encoding="utf-8"), ids["images"])
                    if left is not None:
                        write_text(file, left)
            except SearchIndexError as problem:
                if getattr(problem.__cause__, "sqlite_errorcode", 0) & 0xFF in _CLOSED:
                    raise  # The next writer finishes the deletion.
                # Damaged, so that nothing can be deleted from it; the index does not need it.
                shutil.rmtree(other)

    def _acknowledge(self) -> None:
        revision = self.tables.revision(self.manifest.identity)
        if revision != self.manifest.revision:
            manifest = self.manifest.at(revision)
            write_text(self.held.here / self.store.manifest_name, manifest.to_json())
            self.manifest = manifest

    def _remove_traces(self) -> None:
        """Remove cached files and log lines of deleted items; they are noted with the deletion, so none is left."""
        names = {digest: json.loads(text) for digest, text in self.tables.run("SELECT hash, names FROM traces")}
        if names:
            if self.in_use:
                self._delete_elsewhere(names)
            remove_traces(self.held.here, names)
            with self.tables.transaction(write=True):
                self.tables.run("DELETE FROM traces")
                self._seal()
            self.tables.empty_log()


@dataclass(eq=False)
class _Opened:
    """One folder, and what was read of it: nothing of another one is ever put beside that.

    Attributes:
        held: The folder.
        loaded: A revision of its index, with the segments of each side and the cache of that revision.
        acknowledged: Its manifest, and what tells that file from a later one.
    """

    held: HeldFolder
    loaded: tuple[Revision | None, dict[Space, SegmentTable], dict[str, Any]] = (None, {}, {})
    acknowledged: tuple[object, Manifest] | None = None


class Folder(Store):
    """An index folder.

    Args:
        path: The folder.
        pending: The name of a store that is built beside the one in use; see `create_replacement`.
        held: The folder, if it is open already; None to open what is at the path.

    Raises:
        SearchIndexError: If it is no index, or is damaged.
    """

    path: Path
    settable = MappingProxyType({"lists": (1, 2**20), "probes": (1, 2**20)})
    keeps_spaces = True

    def __init__(self, path: Path | str, *, pending: str | None = None, held: HeldFolder | None = None) -> None:
        self.path, self.pending = Path(path).expanduser(), pending
        self.manifest_name = MANIFEST if pending is None else f"{pending}/{PENDING}"
        self._opened = _Opened(HeldFolder(self.path) if held is None else held)
        self._earlier = list[HeldFolder]()  # Paths through them may be in use.
        self._written: _Opened | None = None
        self._thread = threading.local()
        with self.held.naming():
            self.manifest = self._acknowledged(self._opened)
            if pending not in (None, self.manifest.store):
                raise SearchIndexError(
                    f"{self.path / self.manifest_name} needs to name its own folder; it names {self.manifest.store}; "
                    f"remove {pending}, and move the index again"
                )
        with self.reading():
            pass

    @property
    def held(self) -> HeldFolder:
        """The folder that was opened; another one may have taken its path."""
        return (self._written or self._opened).held

    @classmethod
    def create(cls, location: Path | str, manifest: Manifest) -> Folder:
        """An empty index.

        Args:
            location: Folder or address of the index.
            manifest: Describes the index: model, width and views of the vectors, root of the paths.

        Returns:
            The open index.

        Raises:
            SearchIndexError: If the folder holds something.
            OutputError: If it cannot be written.
        """
        path = Path(location).expanduser()
        cls.require_free(path)
        with written_to(path):
            path.mkdir(parents=True, exist_ok=True)
        held = HeldFolder(path)
        with held.naming():
            if any(held.here.iterdir()):
                cls.require_free(path)  # Another has put something there meanwhile.
                held.require_there()
            _create_store(held.here, manifest)
            write_text(held.here / MANIFEST, manifest.to_json())
        return cls(path, held=held)

    @classmethod
    def exists(cls, location: Path | str) -> bool:
        """Whether there is an index at this path.

        Args:
            location: Folder or address of the index.

        Returns:
            True if an index can be opened there.
        """
        return (Path(location).expanduser() / MANIFEST).is_file()

    @classmethod
    def require_free(cls, location: Path | str) -> None:
        """Raise SearchIndexError unless an index can be created there: a free path, or an empty folder.

        Args:
            location: Folder or address of the index.

        Raises:
            SearchIndexError: If the folder holds something.
        """
        path = Path(location).expanduser()
        empty = path.is_dir() and not any(path.iterdir())
        if not empty and (path.exists() or path.is_symlink()):
            content = "an index, which `subtext index update` and `add` change" if cls.exists(path) else "something"
            raise SearchIndexError(
                f"an index needs a new or empty folder; {path} holds {content}; name another, or remove it"
            )

    @classmethod
    def name_of(cls, location: Path | str) -> str:
        """The name of the folder.

        Args:
            location: Folder or address of the index.

        Returns:
            The last part of the location.
        """
        return Path(location).expanduser().resolve().name

    @property
    def store(self) -> Path:
        """The folder of tables and segments, by the path that the index was opened by."""
        return self.path / self.manifest.store

    @property
    def tables(self) -> Path:
        """The file of the tables."""
        return self.store / TABLES

    @property
    def text_side(self) -> Path:
        """The folder of its model's text side."""
        return self.store / TEXT_SIDE

    @property
    def was_replaced(self) -> bool:
        """Whether another index, or this one with another model, has taken its place; then open it again."""
        return read_manifest(self.path).identity != self.manifest.identity

    def _current(self) -> _Opened:
        """The folder that is now at the path: the one that was opened, or a copy of its index.

        Raises:
            IndexMovedError: If the index was removed, or another one has taken its place.
        """
        opened = self._written or self._opened
        if opened.held.is_there:
            return opened
        if self._written is not None:
            opened.held.require_there()
        try:
            opened = _Opened(HeldFolder(self.path))
            with opened.held.naming():
                manifest = self._acknowledged(opened)
        except SearchIndexError as problem:
            raise IndexMovedError(f"{self.path} was removed or moved since it was opened; open it again") from problem
        self.require_revision(manifest.revision)
        self._earlier.append(self.held)
        self._opened = opened
        return opened

    def _acknowledged(self, opened: _Opened) -> Manifest:
        """The manifest of a folder as it is now.

        Raises:
            SearchIndexError: If there is none, or it is damaged.
        """
        file = opened.held.here / self.manifest_name
        try:
            stat = file.stat()
            now = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)
        except OSError:
            now = None
        if opened.acknowledged is None or now is None or opened.acknowledged[0] != now:
            opened.acknowledged = now, read_manifest(file.parent, name=file.name)
        return opened.acknowledged[1]

    def _connected(self, opened: _Opened) -> SqliteTables:
        """The connection of this thread to the tables of a folder."""
        mine: tuple[_Opened, SqliteTables] | None = getattr(self._thread, "mine", None)
        if mine is not None and mine[0] is opened and mine[1].is_current:
            return mine[1]
        self.close()
        file = inside(opened.held.here, self.manifest.store) / TABLES
        if opened.loaded[0] is not None and not file.is_file():
            raise IndexMovedError(f"{self.path} was removed, or moved to another model and compacted; open it again")
        sqlite = SqliteTables(file)
        sqlite.require_format(self.path)
        self._thread.mine = opened, sqlite
        return sqlite

    def _require_acknowledged(self, manifest: Manifest, tables: SqliteTables) -> Revision:
        """The revision of the tables, which has to have what a manifest acknowledges.

        An index that was moved to another model goes on to serve those who have it open, until it is compacted: then
        the manifest is that of the other model.
        """
        actual = tables.revision(tables.identity())
        moved = manifest.store != self.manifest.store and actual.identity == self.manifest.identity
        self.require_revision(actual, None if moved else manifest.revision)
        if not moved:
            self.manifest = manifest
        return actual

    @contextmanager
    def reading(self) -> Iterator[FolderView]:
        """The index at this moment; inside another such block of the thread, at that block's moment.

        A folder that has taken the place of the one that was opened is opened, if it holds a copy of the same index.

        Returns:
            A view, valid inside the block.

        Raises:
            SearchIndexError: If files of the index are missing, or acknowledged changes were lost.
            IndexMovedError: If the index was removed, moved and compacted, or another one has taken its place.
        """
        if (current := getattr(self._thread, "view", None)) is not None:
            yield current
            return
        for attempt in range(ATTEMPTS):
            opened = self._current()
            with opened.held.naming(), ExitStack() as transaction:
                try:
                    self._thread.view = view = self._view(opened, transaction)
                except (FileNotFoundError, SearchIndexError) as problem:
                    # A compaction has removed segments, or another folder has taken the place, meanwhile.
                    missing = isinstance(problem, FileNotFoundError)
                    again = missing or isinstance(problem, IndexMovedError) or not opened.held.is_there
                    if attempt < ATTEMPTS - 1 and again:
                        continue
                    if missing:
                        raise SearchIndexError(
                            f"{self.store} needs all its segments; {problem}; restore a backup"
                        ) from problem
                    self._thread.mine = None  # What was opened may not be what is there now.
                    raise
                try:
                    yield view
                finally:
                    self._thread.view = None
                return

    def _view(self, opened: _Opened, transaction: ExitStack) -> FolderView:
        """The index at this moment, inside a transaction that it begins.

        Raises:
            SearchIndexError: For what is damaged, lost, elsewhere or of another index.
            FileNotFoundError: If a folder is gone.
        """
        # Before the tables: they never have less than a manifest that was read before them.
        manifest = self._acknowledged(opened)
        sqlite = self._connected(opened)
        transaction.enter_context(sqlite.transaction())
        revision = self._require_acknowledged(manifest, sqlite)
        segments, cache = self._loaded(opened, sqlite, revision)
        opened.held.require_there()
        if not sqlite.is_current:
            raise IndexMovedError(f"{sqlite.file.parent} was replaced while it was opened; try again")
        counts = {side: sqlite.state(side) for side in SIDES}
        return FolderView(self.manifest, revision, counts, sqlite, segments, self, opened.held, cache=cache)

    def _loaded(
        self, opened: _Opened, sqlite: SqliteTables, revision: Revision
    ) -> tuple[dict[Space, SegmentTable], dict[str, Any]]:
        """The segments of each side at a revision, and what is cached of it.

        Raises:
            SearchIndexError: For files that are damaged or elsewhere.
            FileNotFoundError: If a folder is gone.
        """
        loaded, segments, cache = opened.loaded
        if loaded != revision:
            segments = {side: _segment_table(sqlite, self.manifest, side, segments.get(side)) for side in SPACES}
            cache = {}
            opened.loaded = revision, segments, cache
        return segments, cache

    @contextmanager
    def writing(self, verb: str) -> Iterator[FolderWriter]:
        """The one writer. What it reads, writes and removes is in the folder that is at the path when it begins.

        Args:
            verb: Name of the command, shown to others who want to write.

        Returns:
            A writer, valid inside the block.

        Raises:
            IndexLockedError: While another one writes.
            IndexMovedError: If another folder takes its place meanwhile, or has done so before.
            OutputError: If the folder is read-only.
            SearchIndexError: If the index was moved to another model since it was opened.
        """
        opened = self._current()
        held = opened.held
        with held.naming(), writer_lock(require_own(held.here), verb):
            manifest = self._acknowledged(opened)
            if manifest.store != self.manifest.store:
                raise SearchIndexError(f"{self.path} was moved to another model meanwhile; open it again")
            with closing(SqliteTables(inside(held.here, manifest.store) / TABLES, write=True)) as sqlite:
                sqlite.require_format(self.path)
                self._written = opened
                try:
                    writer = FolderWriter(self, sqlite, manifest)
                    with writer.held_store.naming():
                        try:
                            writer.require_there()
                            writer.clean()
                            yield writer
                            writer.require_there(f"what `{verb}` had done until then is in it")
                        finally:
                            self.manifest = writer.manifest
                finally:
                    self._written = None
                    sqlite.empty_log()

    def check(self) -> list[IndexIssue]:
        """Damage of files and tables.

        Returns:
            The damage; empty for an intact index.
        """
        return check(self._current().held)

    @classmethod
    def damage(cls, location: Path | str, problem: SearchIndexError) -> list[IndexIssue]:
        """Damage of an index that cannot be opened.

        Args:
            location: Folder or address of the index.
            problem: The error raised by opening it.

        Returns:
            The damage; at least one entry.
        """
        path = Path(location).expanduser()
        try:
            return check(HeldFolder(path)) or [IndexIssue("index", str(problem))]
        except SearchIndexError as damaged:
            return [IndexIssue(MANIFEST, str(damaged))]

    def remove(self) -> None:
        """Remove the folder, but no other one that has taken its path."""
        self.close()
        with suppress(OSError, IndexMovedError):
            for file in [*self.held.here.iterdir()]:
                shutil.rmtree(file, ignore_errors=True) if file.is_dir() else file.unlink(missing_ok=True)
            self.held.require_there()
            self.path.rmdir()

    def other_stores(self) -> list[Path]:
        """The folders of other stores: of earlier models, and of unfinished moves.

        Returns:
            The folders, oldest first, through the index that was opened.
        """
        return [store for store in stores(self.held.here) if store.name != self.manifest.store]

    def is_pending(self, other: Path) -> bool:
        """Whether an unfinished move builds a store. One begun before the store in use will never be finished.

        Args:
            other: Folder of the store.

        Returns:
            True for a store that a move can still finish.
        """
        return (other / PENDING).is_file() and _number(other) > _number(self.store)

    def create_replacement(self, manifest: Manifest) -> Folder:
        """Create a store for another model inside the same folder, or resume one for the same model.

        Args:
            manifest: Describes the new index.

        Returns:
            The new index. An unfinished replacement for the same model is resumed.
        """
        with self.writing("move") as writer:
            for other in filter(self.is_pending, self.other_stores()):
                if read_manifest(other, name=PENDING).fingerprint == manifest.fingerprint:
                    return Folder(self.path, pending=other.name, held=writer.held)
            home = writer.held.here
            manifest = replace(manifest, store=f"store-{max(map(_number, stores(home))) + 1}", generation=0)
            _create_store(home, manifest)
            write_text(home / manifest.store / PENDING, manifest.to_json())
        return Folder(self.path, pending=manifest.store, held=writer.held)

    def replace_with(self, new: Store, *, since: Revision) -> Folder:
        """Put the store that was built beside in use; the old one stays until the index is compacted.

        Args:
            new: What `create_replacement` returned, with all items.
            since: Revision of this index when the replacement began.

        Returns:
            The open index in its new form.

        Raises:
            SearchIndexError: If this index has changed since that revision, or another one has taken its place.
        """
        assert isinstance(new, Folder)
        with self.writing("move") as writer:
            target = inside(writer.held.here, new.manifest.store)
            begun = read_manifest(target, name=PENDING)
            if writer.manifest.revision != since or begun.revision != new.manifest.revision:
                raise SearchIndexError(
                    f"{self.path} was changed while its items were embedded; run the command again: it embeds what is "
                    "new, and nothing else"
                )
            with self.reading() as view:
                hashes = view.records("deleted")
            with closing(SqliteTables(target / TABLES, write=True)) as tables:
                taken_over = FolderWriter(new, tables, begun)
                with taken_over.held_store.naming():
                    taken_over.apply(Change(remembered=[digest for (digest,) in hashes]))
            writer.require_there()
            write_text(writer.held.here / MANIFEST, taken_over.manifest.to_json())
            (target / PENDING).unlink()
        return Folder(self.path)

    def locate_document(self, name: str) -> str:
        """Where a document of the index is, for messages.

        Args:
            name: Name of the document.

        Returns:
            A path, or a description of the place.
        """
        return str(self.store / DOCUMENTS[name])

    def close(self) -> None:
        """Release this thread's connection."""
        if (mine := getattr(self._thread, "mine", None)) is not None:
            mine[1].close()
            self._thread.mine = None


def _finds_enough(lists: Mapping[str, Any], manifest: Manifest) -> bool:
    """Whether lists were chosen for the recall that is asked now, or by hand."""
    return bool(manifest.by_hand) or lists["wanted"]["recall"] >= manifest.recall


def _too_many(probes: int, lists: int) -> str:
    """Why lists are not used."""
    return f"every vector is compared: a query would search {probes:,} of {lists:,} lists, which takes longer"


def _segment_table(
    tables: SqliteTables, manifest: Manifest, side: Space, before: SegmentTable | None = None
) -> SegmentTable:
    """The segments of a side; those that were open `before` stay open.

    Raises:
        SearchIndexError: For files that are damaged or elsewhere.
        FileNotFoundError: If a folder is gone.
    """
    number, store, lists = SPACES.index(side), tables.file.parent, None
    width = manifest.width_of(side)
    # Known by their checksums: a copy may have another segment of the same name.
    loaded = {(it.folder.name, it.sums): it for it in before.segments} if before is not None else {}
    segments = [
        loaded.get((name, sums))
        or open_segment(inside(store, name), rows=rows, width=width, dtype=manifest.dtype, lists=list_name, sums=sums)
        for name, rows, list_name, sums in tables.run(
            "SELECT name, row_count, lists, checksums FROM segments WHERE side = ? ORDER BY number", number
        )
    ]
    for name, probes, facts, sums in tables.run(
        "SELECT name, probes, recalls, checksums FROM lists WHERE side = ?", number
    ):
        lists = before.lists if before is not None else None
        if not _finds_enough(stored_object(facts, "lists"), manifest):
            # More was asked since, and the compaction that chooses lists for it did not end: all are searched.
            probes = stored_object(facts, "lists")["lists"]
        if lists is None or (lists.name, lists.sums, lists.probes) != (name, sums, probes):
            if not inside(store, name).is_dir():
                raise FileNotFoundError(f"{store / name} is gone")
            centroids = mapped(store / name / CENTROIDS, np.dtype(np.float32), (None, width))
            lists = InvertedLists(name, np.asarray(centroids), probes, sums)
    deleted = np.sort(tables.keys("SELECT key FROM tombstones WHERE side = ?", number))
    return SegmentTable(tuple(segments), deleted, lists, manifest.views_of(side), manifest.exact_up_to)


def read_manifest(path: Path, *, name: str = MANIFEST) -> Manifest:
    """The manifest of an index folder.

    Args:
        path: Folder of the manifest.
        name: Its file name.

    Returns:
        The manifest.

    Raises:
        SearchIndexError: If there is none.
    """
    file = path / name
    if not file.is_file():
        reason = "is not there" if not path.exists() else f"has no {name}"
        raise SearchIndexError(f"{path} needs to be a folder that `subtext index build` wrote; it {reason}")
    try:
        return Manifest.from_json(file.read_text(encoding="utf-8"), where=str(file))
    except UnicodeDecodeError as problem:
        raise SearchIndexError(
            f"{file} needs to be JSON; it is not text; restore a backup, or build again"
        ) from problem


def stores(path: Path) -> list[Path]:
    """The folders of all stores of an index, the first one first.

    Args:
        path: Folder of the index.

    Returns:
        The folders, oldest first.

    Raises:
        SearchIndexError: If one is a symbolic link.
    """
    names = (store.name for store in path.iterdir() if STORE_NAME.fullmatch(store.name))
    return sorted((inside(path, name) for name in names), key=_number)


def _number(store: Path) -> int:
    return int(store.name.partition("-")[2])


@contextmanager
def writer_lock(path: Path, verb: str) -> Iterator[None]:
    """Inside the block no other process, and no other writer of this one, writes to the index at `path`.

    The system takes the lock back from a process that ends, however it ends.

    Args:
        path: Folder of the index.
        verb: What is done, for the message that a second writer gets.

    Returns:
        A context manager.

    Raises:
        IndexLockedError: If somebody writes there already.
        OutputError: If the folder may not be written, or its file system has no locks.
    """
    file = inside(path, LOCK)
    with written_to(file):
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if owner := acquire(descriptor, file, verb=f"subtext index {verb}", advice=NO_LOCKS):
            raise IndexLockedError(f"{path} takes one writer at a time; {owner}; wait until it is done")
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _create_store(path: Path, manifest: Manifest) -> None:
    """Make a store without items.

    Raises:
        OutputError: If it cannot be written.
    """

    def fill(folder: Path) -> None:
        file = folder / TABLES
        with translated(file), closing(sqlite3.connect(file, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(_SCHEMA)
            connection.execute("INSERT INTO state VALUES ('format', ?), ('identity', ?)", (FORMAT, manifest.identity))
            sealed = _state_sum(connection.execute(_STATE).fetchall())
            connection.execute("UPDATE state SET value = ? WHERE name = 'state'", (sealed,))

    write_folder(path / manifest.store, fill, existing="refuse")


def _facet_rows(side: int, metadata: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The rows of the facets of items, whose keys and metadata are passed."""
    fields = ((key, stored_object(json_text, f"item {key}")) for key, json_text in metadata)
    return [(side, name, *_stored(value), key) for key, item_fields in fields for name, value in facets(item_fields)]


def _stored(value: Scalar) -> tuple[Scalar, str]:
    """A value as it is compared, and as it was put in where that says more, else ""."""
    if isinstance(value, str):
        folded = fold(value)
        return folded, "" if folded == value else value
    return (float(value), str(int(value))) if _is_long(value) else (value, "")


def _near(number: Scalar) -> float:
    """The nearest float64; infinity for an integer beyond all of them, which a condition may have."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if int(number) > 0 else -math.inf


def _is_long(value: Scalar) -> bool:
    """Whether a number has more than the 64 bits of SQLite's integers."""
    return not isinstance(value, str) and abs(value) >= 2**63 and value not in (math.inf, -math.inf)


def _split(text: Any) -> Any:
    """The words of a text, for SQL."""
    return spaced(text) if isinstance(text, str) else text


def _name_columns(entry: IndexEntry) -> tuple[str, str | None, str]:
    return entry.id, entry.path, entry.metadata_json


def _names(name: Any, path: Any, metadata: Any) -> Counter[str]:
    """The words that an image is searched by; of damaged cells those that can be read."""
    text = item_words(str(name), path if isinstance(path, str) else None, json_object(metadata) or {})
    return Counter(split(text))


def _name_rows(key: int, names: Counter[str]) -> list[tuple[str, int, int, int]]:
    return [(word, key, times, names.total()) for word, times in names.items()]


def _quoted(text: str) -> str:
    """A phrase as FTS5 reads it."""
    return '"' + text.replace('"', '""') + '"'


def backup(folder: Folder, out: Path) -> Folder:
    """Copy an index into a new folder, completely or not at all, while it is read and written; the copy is an index.

    Every file is checked against its checksum on the way. Caches and logs stay behind. What a killed copy to the same
    place left is removed.

    Args:
        folder: The index.
        out: New folder of the copy.

    Returns:
        The copy, opened.

    Raises:
        SearchIndexError: If `out` holds something or a file is damaged.
        OutputError: If there is no space.
    """
    Folder.require_free(out)
    _remove_unfinished(out)
    locked = ExitStack()

    def fill(target: Path) -> None:
        locked.enter_context(writer_lock(target, "backup"))
        for attempt in range(ATTEMPTS):
            try:
                manifest = _copy(folder, target)
                break
            except FileNotFoundError:
                # A compaction has removed a segment meanwhile; the next attempt reads its successor.
                shutil.rmtree(target / folder.manifest.store, ignore_errors=True)
                if attempt == ATTEMPTS - 1:
                    raise
        (target / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")

    with locked:
        write_folder(out, fill, existing="refuse")
    return Folder(out)


def _remove_unfinished(out: Path) -> None:
    """Remove the hidden copies beside `out` whose process has ended, if it ran on this host."""
    for folder in out.absolute().parent.glob(f"{HIDDEN}*-{glob.escape(out.name)}"):
        # Of another user, or gone meanwhile: then it is nothing to remove. A process that lives holds the lock.
        with suppress(OSError, ValueError, LookupError, TypeError, SearchIndexError, OutputError):
            names = {file.name for file in folder.iterdir()}
            owner = (folder / LOCK).read_text(encoding="utf-8") if LOCK in names else ""
            if owner:
                ended = json.loads(owner)["host"] == socket.gethostname()
            else:
                # It was killed before it had the lock, and has copied nothing.
                process = int(folder.name.removeprefix(HIDDEN).partition("-")[0])
                ended = names <= {LOCK} and not Path("/proc", str(process)).exists()
            if ended and not folder.is_symlink():
                with writer_lock(folder, "backup"):
                    shutil.rmtree(folder, ignore_errors=True)


def _copy(folder: Folder, target: Path) -> Manifest:
    """Copy tables, segments and documents of one moment into a store of the target; the manifest of that moment."""
    with folder.reading() as view:
        manifest = view.manifest.at(view.revision)
        home, store = view.held.here / manifest.store, target / manifest.store
        store.mkdir()
        file = store / TABLES
        with translated(file), closing(sqlite3.connect(file)) as copy:
            view.tables.connection.backup(copy)
        sums = _written(view.tables)
        for name, fingerprint in _text_sides(manifest).items():
            if (home / name).exists():
                sums[name] = text_side_sums(home / name, fingerprint)
        for name, expected in sums.items():
            source, copied = inside(home, name), store / name
            copied.mkdir()
            for part in expected:
                shutil.copyfile(inside(source, part), copied / part)
            if checksums(copied) != expected:
                raise SearchIndexError(
                    f"{source} is damaged, and no copy of it is made; `subtext index verify` says what is wrong"
                )
        for document in DOCUMENTS.values():
            if inside(home, document).is_file():
                shutil.copyfile(home / document, store / document)
        return manifest


def _text_sides(manifest: Manifest) -> dict[str, str]:
    """Folder of each text side that a store may have -> fingerprint of what it is the text side of."""
    sides = {TEXT_SIDE: manifest.fingerprint}
    return sides if manifest.encoder is None else {**sides, SENTENCE_SIDE: manifest.encoder.fingerprint}


_RECORDS = {
    "forgotten": "the list of deleted items",
    "jobs": "the journal",
    "tombstones": "deleted rows of vectors",
    "words_idx": "the words",
    "image_words": "the words of images",
}
"""What tables hold that are called otherwise."""
SUMMED = ("segments", "lists", "traces", "words_idx")
"""Small tables, whose rows are summed again at each change. FTS5 checks all of its own tables but the last one."""


def _table_sum(tables: SqliteTables, table: str) -> int:
    return sum(row_sum(*row) for row in tables.run(f"SELECT * FROM {table}")) % ROUND


_STATE = "SELECT name, value FROM state"


def _state_sum(rows: Iterable[tuple[Any, ...]]) -> int:
    """The sum of the state's own rows, without that of this sum."""
    return sum(row_sum(*row) for row in rows if row[0] != "state") % ROUND


def _written(sqlite: SqliteTables) -> dict[str, dict[str, str]]:
    """Folder of a segment or of lists -> its files and their checksums."""
    rows = sqlite.run("SELECT name, checksums FROM segments UNION ALL SELECT name, checksums FROM lists")
    return {name: stored_object(sums, name) for name, sums in rows}


def check(held: HeldFolder) -> list[IndexIssue]:
    """Damage of an index folder: every byte of vectors against its checksum, and the tables; empty for an intact one.

    Reads every byte of vectors once, while the index is read and written: it reads again where a compaction has removed
    files meanwhile.

    Args:
        held: Folder of the index.

    Returns:
        The damage; empty for an intact index.
    """
    path = held.here
    with held.naming():
        problems = _check_store(path, path / MANIFEST)
    try:
        inside(require_own(path), LOCK)
        used = inside(path, read_manifest(path).store)
        for other in stores(path):
            if other != used:
                found = [
                    *(_check_store(path, other / PENDING) if (other / PENDING).is_file() else ()),
                    *_check_deletions(used / TABLES, other / TABLES),
                ]
                problems += [
                    IndexIssue(f"{other.name}/{each.where.removeprefix(f'{other.name}/')}", each.what) for each in found
                ]
    except (SearchIndexError, OutputError) as problem:
        problems.append(IndexIssue("index", str(problem)))
    return [IndexIssue(held.named(each.where), held.named(each.what)) for each in problems]


def _check_store(path: Path, file: Path) -> list[IndexIssue]:
    """Damage of the store that a manifest names, at one moment."""
    problems: list[IndexIssue] = []
    for _ in range(ATTEMPTS):
        manifest = read_manifest(file.parent, name=file.name)
        tables_file, problems = inside(path, manifest.store) / TABLES, []
        try:
            with closing(SqliteTables(tables_file)) as tables, tables.transaction():
                for part in (_check_tables, _check_files, _check_vectors):
                    problems += part(tables, manifest)
            problems += _check_words(tables_file)
        except (SearchIndexError, OutputError) as problem:
            problems.append(IndexIssue(TABLES, str(problem)))
        except (ValueError, TypeError, KeyError) as problem:
            # A damaged cell may hold anything.
            problems.append(IndexIssue(TABLES, f"holds a value that cannot be read: {problem}"))
        if not problems or read_manifest(file.parent, name=file.name).revision == manifest.revision:
            break
    return problems


def _check_deletions(used: Path, other: Path) -> list[IndexIssue]:
    """Items that were deleted, and are still in the tables of another store; the next change finishes a deletion."""
    with closing(SqliteTables(used)) as tables:
        unfinished = {bytes.fromhex(digest) for (digest,) in tables.run("SELECT hash FROM traces")}
        deleted = {bytes(digest) for (digest,) in tables.run("SELECT hash FROM forgotten")} - unfinished
    with closing(SqliteTables(other)) as tables:
        ids = tables.run("SELECT side, id FROM items WHERE side < ?", len(SIDES))  # Derived rows go with their items.
    count = sum(deletion_hash(SIDES[side], name) in deleted for side, name in ids)
    what = f"still holds {counted(count, 'deleted item')}; `subtext index compact` removes them"
    return [IndexIssue(TABLES, what)] if count else []


def _check_tables(sqlite: SqliteTables, manifest: Manifest) -> Iterator[IndexIssue]:
    """Acknowledged changes, SQLite's own check, and the sums of all facets and links that were put in."""
    state: dict[str, int] = dict(sqlite.run(_STATE))
    if problem := lost_changes(sqlite.revision(sqlite.identity()), manifest.revision):
        yield IndexIssue(TABLES, problem)
    for (line,) in sqlite.run("PRAGMA integrity_check(20)"):
        if line != "ok":
            yield IndexIssue(TABLES, str(line))
    sums = {
        "facets": sum(facet_sum(*row) for row in sqlite.run("SELECT side, name, value, written, key FROM facets")),
        "links": sum(link_sum(image, text) for image, text in sqlite.run("SELECT image, text FROM links")),
        **{table: _table_sum(sqlite, table) for table in (*SUMMED, "forgotten", "jobs", "tombstones")},
        "state": _state_sum(state.items()),
    }
    for name, total in sums.items():
        if total % ROUND != state.get(name):
            yield IndexIssue(TABLES, f"{_RECORDS.get(name, name)} changed or damaged")
    other = sum(fold(name) != folded for name, folded in sqlite.run("SELECT id, folded_id FROM items"))
    if other:
        yield IndexIssue(TABLES, f"{counted(other, 'item')} found by another id than its own")


def _check_files(sqlite: SqliteTables, manifest: Manifest) -> Iterator[IndexIssue]:
    """Each file of each segment, of the lists and of the text side, against its checksum."""
    store = sqlite.file.parent
    for name, fingerprint in _text_sides(manifest).items():
        yield from text_side_problems(store / name, replace(manifest, fingerprint=fingerprint))
    for name, expected in _written(sqlite).items():
        try:
            folder = inside(store, name)
        except SearchIndexError as problem:
            yield IndexIssue(store.name, str(problem))
            continue
        actual = checksums(folder) if folder.is_dir() else {}
        for file, digest in expected.items():
            if file not in actual:
                yield IndexIssue(f"{store.name}/{name}/{file}", "is missing")
            elif actual[file] != digest:
                yield IndexIssue(f"{store.name}/{name}/{file}", "changed or damaged: its checksum is another")


def _check_vectors(sqlite: SqliteTables, manifest: Manifest) -> Iterator[IndexIssue]:
    """Whether each item has its rows of vectors, and each live row its item."""
    for side in manifest.spaces:
        try:
            rows = LiveRows(_segment_table(sqlite, manifest, side))
        except (SearchIndexError, FileNotFoundError) as problem:
            yield IndexIssue(manifest.store, str(problem))
            continue
        stored, counts = np.unique(rows.keys, return_counts=True)
        keys = sqlite.keys("SELECT key FROM items WHERE side = ?", SPACES.index(side))
        for number, what in (
            (len(np.setdiff1d(keys, stored)), f"{side} have no vectors"),
            (len(np.setdiff1d(stored, keys)), f"vectors of {side} belong to no item"),
            (int((counts != manifest.views_of(side)).sum()), f"{side} have not {manifest.views_of(side)} vectors each"),
        ):
            if number:
                yield IndexIssue(manifest.store, f"{number:,} {what}")


def _check_words(file: Path) -> Iterator[IndexIssue]:
    """The words that items are searched by, against the items, and their own structure by SQLite's check."""
    statement = (
        "SELECT count(*) FROM (SELECT key, split_words(text) FROM items WHERE side = 1 AND text IS NOT NULL EXCEPT "
        "SELECT rowid, text FROM words UNION ALL SELECT * FROM (SELECT rowid, text FROM words EXCEPT "
        "SELECT key, split_words(text) FROM items WHERE side = 1))"
    )
    writable = os.access(file.parent, os.W_OK)
    with closing(SqliteTables(file, write=writable)) as sqlite:
        ((differing,),) = sqlite.run(statement)
        if differing:
            yield IndexIssue(TABLES, f"the words of {counted(differing, 'text')} differ from the texts")
        elif writable:
            # A statement that changes nothing, and yet needs the right to write.
            sqlite.run("INSERT INTO words (words) VALUES ('integrity-check')")
        images = sqlite.run("SELECT key, id, path, metadata FROM items WHERE side = 0")
        rows = (row for key, *own in images for row in _name_rows(key, _names(*own)))
        stored = sqlite.run("SELECT word, key, times, length FROM image_words")
        wanted, total = sum(row_sum(*row) for row in rows), sum(times for _, _, times, _ in stored)
        if wanted != sum(row_sum(*row) for row in stored) or total % ROUND != sqlite.state("image_words"):
            yield IndexIssue(TABLES, "the words of images differ from their ids, files and metadata")
