"""A search index as one table of LanceDB, in a folder or an object store, for any number of readers and writers.

    lance://PATH/items.lance         a folder: the table `items` of the LanceDB database PATH
    s3://, gs://BUCKET/PATH   an object store; credentials and endpoint are those of the environment

A table in a folder also has the text side of its model as plain arrays, items.lance/query; see `search.text_side`.

Rows of the table, by `kind`: items and derived rows with their first vector, extra vectors of items, the state,
documents, hashes of deleted items, finished jobs. Facets and links are lists in the rows of items. Vectors of the model
and of the sentence encoder stand in columns of their own.

Every change, however many rows of however many kinds it touches, is one commit of Lance: new fragments, and deletions
in old ones. Every commit replaces the row of the state, so that two writers that began at the same version conflict
in it: the later one begins again, a bounded number of times. Commits are idempotent: a retry detects an earlier
success from the state row. A killed process leaves files that no version names.

What is read and written is what was opened: in a folder by paths that lead through a descriptor of it (`Home`). Before
each commit a writer compares the folder, the file of its version, and by the changes that both states name whether one
led to the other: an index, copy or backup that took the place is refused. The state also has sums over the rows of each
kind, and a seal over itself, by which `verify` finds what is missing or another.

Small sides are compared from memory, as a folder does; a reader fetches what is new. Beyond `Manifest.exact_up_to`
vectors Lance's IVF index finds candidates, also among those that a filter passes, which are scored again: hits and
scores are those of a folder. Vectors that came after the index are compared until `compact` builds it again. The
lists have codes of few bits: see `lance_lists` for how they are chosen, and for where every vector is compared instead.

A move to another model builds a table `items-NUMBER` beside the one in use, whose state names it. Its last commit
empties the old table but for a state that leads to the new one: a change of the old one meanwhile conflicts.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
import shutil
import threading
import time
import uuid
import warnings
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial, wraps
from itertools import accumulate, chain, repeat, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance.commit import CommitConflictError
from lance.dataset import serialize_row_addrs
from lance.fragment import FragmentMetadata, write_fragments
from numpy.typing import NDArray
from pyarrow import fs

from subtext.data.atomic import HIDDEN
from subtext.data.dataset import KnownImage
from subtext.data.dates import year_interval
from subtext.data.folder_handle import THROUGH
from subtext.errors import OutputError, SearchIndexError
from subtext.ops import draw
from subtext.retrieval import ann
from subtext.retrieval.held_folder import HeldFolder
from subtext.retrieval.index_files import LONGEST, inside, json_object
from subtext.retrieval.manifest import NUMBERS as NUMBERS_OF, Manifest, Revision
from subtext.retrieval.segments import MARGIN, Segment, SegmentTable
from subtext.retrieval.stores import lance_lists
from subtext.retrieval.stores.errors import IndexIssue, IndexLockedError, IndexMovedError, MissingBucketError
from subtext.retrieval.stores.facets import (
    DATE,
    ID,
    NUMBER,
    TEXT,
    AnyOf,
    Condition,
    Facet,
    digits,
    facets,
    fulfils,
    interval_at,
    item_words,
)
from subtext.retrieval.stores.item import (
    DERIVED,
    NO_HITS,
    SIDES,
    SPACES,
    Applied,
    Change,
    DerivedSpace,
    FieldValues,
    Hits,
    IndexEntry,
    Item,
    JobUpdate,
    Side,
    Space,
    StoredRow,
    deletion_hash,
    link_sum,
    row_sum,
    side_of,
    vectors_digest,
)
from subtext.retrieval.stores.lance_fields import (
    LABELS,
    LISTED,
    LONG_SIGN,
    Filter,
    TypedFields,
    Values,
    columns as typed_columns,
    grouped,
    literal,
    spelt,
    split_float64,
)
from subtext.retrieval.stores.lance_ids import IdFragments, hashed
from subtext.retrieval.stores.lance_lists import HeldOut, ListSearch
from subtext.retrieval.stores.part_notes import PARTS, PartNotes
from subtext.retrieval.stores.sql import (
    ROUND,
    Part,
    SqlView,
    Tables,
    require_storable,
)
from subtext.retrieval.stores.store import Stats, Store, View, Writer, WrittenPart
from subtext.retrieval.text_side import FOLDER as TEXT_SIDE, SENTENCE_SIDE, text_side_problems
from subtext.retrieval.words import bm25, fold, query_words, words
from subtext.text_helpers import counted, listed, size
from subtext.version import FORMAT, require_format

# Processes that Subtext forks, such as those that decode images, use no index.
warnings.filterwarnings("ignore", message="lance is not fork-safe")

TABLE = "items.lance"
MOVED = re.compile(r"items-[0-9a-f]{8}\.lance")
"""The table of an index after a move, or during it."""
ITEMS, FURTHER, STATE, DOCUMENT, DELETED, JOB = 0, 4, 8, 9, 10, 11
"""Kinds of rows; those of items are ITEMS + the number of their space, and of their further vectors FURTHER + it."""
EXACT_UP_TO = 50_000
"""Vectors of a side that are all compared by default: a reader has them in memory."""
LATER = 0.1
"""Share of the vectors that may have come after the index, before it is built again."""
ATTEMPTS, FAILURES = 60, 3
"""Number of attempts of a change while others change the index, and while the storage fails."""
ABANDONED = timedelta(days=1)
"""Age from which on the files of an index that was never finished are those of a killed process."""
GRACE = 3.0
"""Seconds after a compaction in which readers may go on with the version before it."""
OLD = timedelta(minutes=10)
"""Age of versions that are removed on the way."""
MERGE_ROWS, LARGE = 32_768, 262_144
"""Rows up to which small fragments are merged: by changes, and by a compaction."""
ALIKE = 4
"""Fragments of about the same size that become one."""
CHUNK = 8192
"""Values that one filter names, rows that are read at a time, and hashes of deleted items in a row."""
SINGLE = 2**15
"""Bytes that are read one after the other in the time that a row by itself takes."""
INDEXES = {"vector": "vectors", "sentence": "sentences"}
"""Column of vectors -> name of its index."""
SCALARS = {"kind": "BITMAP", "key": "BTREE", "id": "BTREE", "link": "BTREE", "links": "LABEL_LIST"}
"""Column -> Lance's index of it, where vectors have one; see `TypedFields.indexes`."""
FEW = 256
"""Different values of a column of texts up to which each has a bitmap."""
_ZSTD = {"lance-encoding:compression": "zstd"}
COMPRESSED = {
    # Of 200 items here and there nearly all blocks of the column are read: keys that follow one another are small so.
    "key": {"lance-encoding:compression": "lz4"},
    **dict.fromkeys(["id", "record", "stamp", "link"], _ZSTD),
    # Words are read all, and never those of one row.
    "words": {**_ZSTD, "lance-encoding:minichunk-size": "65536"},
}
"""Column -> how Lance compresses it, where its own choice takes more."""
REMEMBERED = 64
"""Changes that the state names."""
RECENT = 8
"""Selections whose rows a version remembers, so that what was found is read without another question."""
LINKED = 256
"""Images up to which the texts that are linked with them are taken with what is shown of them."""
CHECKED = 8
"""Bytes of the checksum of an item's vectors."""
NUMBERS = ("generation", "key", *SPACES, "worded", "words", "image_words", "links", "deleted", "epoch", "job")
"""Numbers of the state."""
SUMS = {"items": ITEMS, "documents": DOCUMENT, "hashes": DELETED, "finished": JOB}
"""Sums over all rows of a kind, by which `verify` knows that none is missing or another; of items, by their digests."""
PATIENCE = {"client_max_retries": "6", "client_retry_timeout": "30"}
"""Number of retries of a request to an object store, and their seconds."""
CACHE = 2**28
"""Bytes of metadata that a reader has in memory, and of indexes until it knows how many its index wants."""
NOTE = 4096
"""Bytes of the note of the newest version, at most."""
MANIFEST_END = 1024
"""Bytes at the end of the file of a version that tell it from every other: they name its commit."""
QUERIES = 64
"""Vectors of each side that what a search finds is measured with."""

_DESCRIPTOR = re.compile("|".join(re.sub(r"\{\w+\}", r"\\d+", own.lstrip("/")).join(("/?", "")) for own in THROUGH))
_DENIED = ("ACCESS_DENIED", "AccessDenied", "PermissionDenied", "403 Forbidden", "InvalidAccessKeyId")
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist")
_WRITES = re.compile(r"performing (PUT|POST|DELETE) |single PUT of")
_NUMBER, _COUNT = range(2**63), range(1, 2**31)
_STATE = {**dict.fromkeys(NUMBERS, _NUMBER), "change": str, "manifest": str, "changes": list, "jobs": list}
_STATE |= {
    "fields": list,
    "unlisted": list,
    "lists": dict,
    "index": dict,
    "exact": dict,
    "sums": dict.fromkeys(SUMS, _NUMBER),
    "seal": str,
}
_LISTS = {field.name: _COUNT for field in fields(ListSearch)} | {"bytes": _NUMBER, "recall": dict}
_INDEX = {"name": str, "vectors": dict, "files": dict, "wanted": dict, "rows": _NUMBER}
_JOB = (_NUMBER, str, str | None, str, str | None, _NUMBER, _NUMBER)
_RECORD = ["kind", "key", "id", "record", "content"]
_LINKS = ["link", "links"]
_ITEM = ["key", "record", "content", "stamp", "digest", *_LINKS]
_SHOWN = ["key", "record", *_LINKS]
_LEFT_OUT = {"content": b"", "stamp": None, "digest": b""}
"""What a row has in the place of columns that are not read, in the order of `StoredRow`."""
_RELATIONS = "WITH items AS (SELECT kind AS side, key, id, coalesce(folded, id) AS folded FROM dataset WHERE kind < 4) "
_COUNTED = pa.schema({"word": pa.string(), "folded": pa.string(), "number": pa.float64(), "rest": pa.int64()})
"""Values of a field as they are counted: a text and as it is folded, or a number as `split_float64` gives it."""


def schema(width: int, encoder: int = 0, numbers: str = "float32") -> pa.Schema:
    """The columns of an index.

    record                  of an item its id, path, text and metadata as JSON, of a text also its key and images: in an
                            object store a hit is one request. Of other rows what they say
    folded, words, length   of the id where folding changes it, and of a text, as they are searched
    text_N, ..., labels     what the metadata is filtered and counted by; see `lance_fields`. A fragment has only those
                            that are used. Of a row of neighbours, labels has the keys of the images that are near
    link, links             of a text: the id of its image, or those of several
    vectors_digest          of all vectors of the item: what `verify` compares
    vector, sentence        of the model, and of the sentence encoder: a row has one of them

    Args:
        width: D, numbers per vector.
        encoder: E, numbers per vector of the sentence encoder; 0 for none.
        numbers: Their type, "float32" or "float16".

    Returns:
        The columns with their types.
    """
    number = pa.from_numpy_dtype(np.dtype(numbers))
    texts = dict.fromkeys(["id", "record", "stamp", "folded", "words", "link"], pa.string())
    fixed = pa.schema(
        {
            "kind": pa.int8(), "key": pa.int64(), "view": pa.int16(), **texts,
            "content": pa.binary(), "digest": pa.binary(16), "vectors_digest": pa.binary(CHECKED), "length": pa.int32(),
            "links": pa.list_(pa.string()),
            "vector": pa.list_(number, width), "sentence": pa.list_(number, encoder or 1),
        }
    )  # fmt: skip
    fields = [own.with_metadata(COMPRESSED.get(own.name)) for own in fixed]
    return pa.schema([*fields, *typed_columns().values()])


def columns_of(manifest: Manifest) -> pa.Schema:
    """The columns of an index.

    Args:
        manifest: Describes it.

    Returns:
        The columns with their types.
    """
    return schema(manifest.width, manifest.width_of("sentences"), manifest.numbers)


def used_columns(manifest: Manifest, state: Mapping[str, Any]) -> pa.Schema:
    """The columns of an index in which a row may have a value.

    Args:
        manifest: Describes it.
        state: Its state.

    Returns:
        The columns with their types.
    """
    every, used = columns_of(manifest), set(TypedFields(state).used())
    unused = typed_columns().keys() - used
    return pa.schema([column for column in every if column.name not in unused])


def vector_column(space: Space) -> str:
    """The column that has the vectors of a space.

    Args:
        space: One of `SPACES`.

    Returns:
        Its name.
    """
    return "sentence" if space in DERIVED else "vector"


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Inside the block what Lance and its storage refuse becomes one of the project's errors.

    Args:
        where: Address of the index, for messages.

    Returns:
        A context manager.

    Raises:
        OutputError: If the storage is full or cannot be written.
        MissingBucketError: If its bucket does not exist.
        IndexMovedError: If the storage cannot be reached, or was compacted meanwhile.
        SearchIndexError: For any other error of Lance.
    """
    try:
        yield
    except CommitConflictError:
        raise  # An OSError to Python; the caller that commits handles it.
    except (OSError, ValueError, RuntimeError) as problem:
        # Without the places in Lance's source, and by the folder's own name.
        brief = _DESCRIPTOR.sub(where.removeprefix("lance://"), str(problem).partition(", /")[0])
        brief = brief.strip().replace("\n", "; ")[:300]
        if any(reason in str(problem) for reason in ("No space left", "Permission denied", "Read-only")):
            text = f"{where} needs to be written, and cannot be: {brief}; what stood there before still stands"
            raise OutputError(text) from problem
        if any(sign in str(problem) for sign in _NO_BUCKET):
            raise MissingBucketError(
                f"{where} needs a bucket that exists; its storage has none of this name; correct the address, or the "
                "endpoint and region (AWS_ENDPOINT_URL, AWS_REGION), or create the bucket"
            ) from problem
        if any(sign in str(problem) for sign in _DENIED):
            needed = "write" if _WRITES.search(str(problem)) else "read"
            raise SearchIndexError(
                f"{where} needs a credential that may {needed} it, and its storage refuses this one: {brief}; "
                "give another (AWS_ACCESS_KEY_ID, GOOGLE_APPLICATION_CREDENTIALS)"
            ) from problem
        if isinstance(problem, OSError) or any(sign in str(problem) for sign in ("LanceError(IO)", "Not found: ")):
            raise IndexMovedError(
                f"{where} needs its storage, which cannot be reached, or has been compacted meanwhile: {brief}; no "
                "change is half made; do it again"
            ) from problem
        raise SearchIndexError(
            f"{where} cannot be used: {brief}; `subtext index verify` says what is wrong"
        ) from problem


def _is(value: Any, kind: Any) -> bool:
    """Whether a value is of a type, a whole number of a range, or an object that has values of such kinds."""
    if isinstance(kind, dict):
        return isinstance(value, dict) and all(_is(value.get(name), own) for name, own in kind.items())
    return type(value) is int and value in kind if isinstance(kind, range) else isinstance(value, kind)


def _is_job(job: Any) -> bool:
    """Whether this is a job as `_noted` writes it."""
    is_list = isinstance(job, list) and len(job) == len(_JOB) and all(map(_is, job, _JOB))
    return is_list and (job[2] is None or json_object(job[2]) is not None)


def _wrong(now: dict[str, Any], rows: int) -> str:
    """The first entry of a state that is missing, or of another type or range; empty if there is none."""
    wrong = [name for name, kind in _STATE.items() if not _is(now.get(name), kind)]
    if wrong:
        return wrong[0]
    right = {
        "lists": all(space in SPACES and _is(own, _LISTS) for space, own in now["lists"].items()),
        "index": now["index"] == {}
        or (_is(now["index"], _INDEX) and all(_is(own, _NUMBER) for own in now["index"]["vectors"].values())),
        "exact": all(space in SPACES and isinstance(own, str) for space, own in now["exact"].items()),
        "jobs": all(map(_is_job, now["jobs"])),
        # The table of an earlier model has lost its rows, and leads to the one in use.
        "fields": len(now["fields"]) <= LISTED and all(map(TypedFields.is_valid, now["fields"])),
        "unlisted": len(now["unlisted"]) == len(SIDES) and all(_is(own, _NUMBER) for own in now["unlisted"]),
        "images and texts": now.get("moved") or sum(now[space] for space in SPACES) <= rows,
    }
    return next((name for name, is_right in right.items() if not is_right), "")


class Found(NamedTuple):
    """Where some items lie.

    Attributes:
        keys: (n) int64, ascending.
        rows: (n) uint64 row ids of the table.
        records: (n) texts of what is shown of them; None where they were not read.
    """

    keys: NDArray[np.int64]
    rows: NDArray[np.uint64]
    records: NDArray[np.object_] | None


class LanceTables(Tables):
    """The table of an index at one version.

    Args:
        dataset: The dataset of Lance, at this version.
        where: Address of the index, for messages.
        home: The folder that it lies in, as it was opened.
        mark: Of the file that describes this version; see `Home.mark`.
        now: The state: numbers and lists of the index.
        ids: The fragments of ids, for all versions.
        cache: What was computed of this version, for all views of it.

    Raises:
        SearchIndexError: If the state is missing or damaged.
    """

    def __init__(self, dataset: Any, where: str, home: Home, mark: Any = None, ids: IdFragments | None = None) -> None:
        self.dataset, self.where, self.cache = dataset, where, dict[str, Any]()
        self.ids = IdFragments() if ids is None else ids
        self.home, self.mark = home, mark
        stored = {column.name: column for column in dataset.schema}
        for column in schema(1):
            own = stored.get(column.name)
            if own is None or (own.type != column.type and column.name not in ("vector", "sentence")):
                raise SearchIndexError(
                    f"{where} needs a column '{column.name}' of {column.type} in its table; it has "
                    f"{'none' if own is None else own.type}; restore a backup"
                )
        rows = self.scan(["record"], f"kind = {STATE}")
        if rows.num_rows != 1:
            raise SearchIndexError(f"{where} needs one row of its state, and has {rows.num_rows}; restore a backup")
        now = json_object(rows["record"][0].as_py())
        if now is not None:
            require_format(now.get("format"), where, "index build", SearchIndexError)
        with translated(where):
            physical = sum(part.metadata.physical_rows for part in dataset.get_fragments())
        if now is None or (wrong := _wrong(now, physical)):
            what = f"JSON of at most {LONGEST:,} characters" if now is None else f"'{wrong}' as Subtext writes it"
            raise SearchIndexError(f"{where} needs a state with {what}; it has another; restore a backup")
        self.now = now

    @property
    def is_sealed(self) -> bool:
        """Whether the state is that of the last change."""
        return bool(self.now["seal"] == _seal(self.now))

    def is_kin(self, changes: Sequence[str]) -> bool:
        """Whether one of two states led to the other: then a key is of the same item in both.

        Args:
            changes: The changes that the other state names.

        Returns:
            False also where more changes lie between them than a state names.
        """
        own = self.now["changes"]
        return bool(own and changes) and (own[-1] in changes or changes[-1] in own)

    @cached_property
    def fields(self) -> TypedFields:
        """The fields of the metadata, and their columns."""
        return TypedFields(self.now)

    def rows_at(self, rows: NDArray[np.uint64], columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Columns of rows of the table, in the order of their ids.

        Args:
            rows: (n) row ids of the table.
            columns: Names of columns.

        Returns:
            The values of each row.
        """
        for start in range(0, len(rows), CHUNK):
            with translated(self.where):
                block = self.dataset._take_rows(rows[start : start + CHUNK].tolist(), columns=list(columns))
            yield from zip(*(block[column].to_pylist() for column in columns), strict=True)

    def scan(
        self, columns: Sequence[str] | Mapping[str, str], where: str, options: Mapping[str, Any] | None = None
    ) -> pa.Table:
        """Columns of the rows that fulfil a filter; `options` are those of Lance's scanner.

        Args:
            columns: Names of columns, or name -> SQL.
            where: Filter in SQL.
            options: Further options of the scanner.

        Returns:
            The rows.
        """
        columns = dict(columns) if isinstance(columns, Mapping) else list(columns)
        fixed = {"columns": columns, "filter": where, "prefilter": True, "disable_scoring_autoprojection": True}
        with translated(self.where):
            return self.dataset.scanner(**fixed, **(options or {})).to_table()

    def query(self, statement: str, *values: Any) -> pa.Table:
        """The result of a statement on `items` and `dataset`.

        Args:
            statement: SQL, with `?` for a value.
            *values: The values, in the order of the question marks.

        Returns:
            The rows.
        """
        parts = statement.replace("= ANY(?", "IN (?").replace("::text[])", ")").replace("::bigint[])", ")").split("?")
        written = parts[0] + "".join(literal(value) + part for value, part in zip(values, parts[1:], strict=True))
        with translated(self.where):
            return self.dataset.sql(_RELATIONS + written).build().to_stream_reader().read_all()

    def run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows that a statement gives; see `sql.Tables`.

        Args:
            statement: SQL, with `?` for a value.
            *values: The values, in the order of the question marks.

        Returns:
            The rows.
        """
        columns = self.query(statement, *values).columns
        return list(zip(*(column.to_pylist() for column in columns), strict=True))

    def keys(self, statement: str, *values: Any) -> NDArray[np.int64]:
        """The keys that a statement gives, in any order.

        Args:
            statement: SQL that selects a column `key`.
            *values: The values, in the order of the question marks.

        Returns:
            (N) int64 keys.
        """
        return self.query(statement, *values).column(0).to_numpy().astype(np.int64)

    def is_of_few_values(self, column: str) -> bool:
        """Whether a column has at most `FEW` different values.

        Args:
            column: Its name.

        Returns:
            True if it has.
        """
        return bool(self.run(f"SELECT count(DISTINCT {column}) FROM dataset")[0][0] <= FEW)

    def state(self, name: str) -> int:
        """One number of the store's state.

        Args:
            name: Name of the number.

        Returns:
            The number.
        """
        return int(self.now[name])

    def records(
        self, side: int, column: str, values: Sequence[Any], columns: Sequence[str] = _ITEM
    ) -> Iterator[tuple[StoredRow, list[str]]]:
        """The items of a side that have one of these keys or ids, and of a text the ids of its images.

        Args:
            side: Number of the side in `SPACES`.
            column: "key" or "id".
            values: Keys or ids.
            columns: That are read: in an object store each column of each row may be a request.

        Returns:
            Each row, and of a text the ids of its images.
        """
        for start in range(0, len(values), CHUNK):
            found = self._records(side, column, values[start : start + CHUNK], columns)
            read = {name: found[name].to_pylist() for name in found.column_names}
            if "record" in read:
                shown = [_shown(record, self.where) for record in read["record"]]
            else:
                shown = [ItemRecord(name, None, None, "{}") for name in read["id"]]
            rest = (read.get(name, repeat(empty, len(shown))) for name, empty in _LEFT_OUT.items())
            links = (read.get(name, repeat(None, len(shown))) for name in _LINKS)
            columns_read = zip(read["key"], shown, *rest, *links, strict=True)
            for key, said, content, stamp, digest, link, several in columns_read:
                row = StoredRow(key, said.id, said.path, said.text, said.metadata, content, stamp, digest)
                yield row, _images_of(link, several)

    def _records(self, side: int, column: str, values: Sequence[Any], columns: Sequence[str]) -> pa.Table:
        """Columns of the items that `records` gives, where it is known already without looking for them."""
        known = self.remembered(SPACES[side], np.unique(values)) if column == "key" and len(values) else None
        if known is not None and known.records is not None and set(columns) <= {"key", "record"}:
            return pa.table({"key": known.keys, "record": known.records}).select(columns)
        if known is None:
            where = f"kind = {side} AND {column} IN ({literal(values)})"
            parts = None if column == "key" else self._fragments_of(values)
            if parts == []:
                return self.dataset.schema.empty_table().select(columns)
            found = self.scan(sorted({*columns, "key"}), where, {"with_row_id": True, "fragments": parts})
            self.remember(SPACES[side], found["key"].to_numpy(), found["_rowid"].to_numpy())
            return found.select(columns)
        own_keys = known.records is not None  # Those that a record says: it may be damaged.
        with translated(self.where):
            rest = self.dataset._take_rows(
                known.rows.tolist(), columns=[name for name in columns if name != "key"] + ["key"] * own_keys
            )
        if not own_keys:
            return rest.append_column("key", pa.array(known.keys))
        if rest["key"].to_pylist() != known.keys.tolist():
            raise SearchIndexError(f"{self.where} needs records of its items as Subtext writes them; restore a backup")
        return rest

    def _fragments_of(self, ids: Sequence[str]) -> list[Any]:
        """The fragments that may have items of these ids; the index of ids, where there is one, tells of the others."""
        with translated(self.where):
            parts = {part.fragment_id: part for part in self.dataset.get_fragments()}
        indexed = self.index[1].get("id", set())
        if new := [part for number, part in parts.items() if number not in indexed and number not in self.ids.read]:
            self.ids.add(self._hashes_of(new), [part.fragment_id for part in new], parts.keys())
        chosen = self.ids.of(ids) | indexed
        return [part for number, part in parts.items() if number in chosen]

    def _hashes_of(self, parts: Sequence[Any]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Hashes of the ids of fragments, and the fragment of each, block by block; also of deleted rows."""
        # A deleted row has no address: its fragment is read by itself.
        each = [[part] for part in parts if part.num_deletions]
        whole = [part for part in parts if not part.num_deletions]
        for some in [*each, *([whole] if whole else [])]:
            options = {"with_row_id": True, "with_row_address": True, "include_deleted_rows": some is not whole}
            fixed = {"columns": ["id"], "filter": "id IS NOT NULL", "batch_size": CHUNK, "fragments": some}
            with translated(self.where):
                for batch in self.dataset.scanner(**fixed, **options).to_batches():
                    hashes = hashed(batch["id"].to_pylist())
                    own = np.full(len(hashes), some[0].fragment_id, dtype=np.int64)
                    yield hashes, own if some is not whole else (batch["_rowaddr"].to_numpy() >> 32).astype(np.int64)

    def remember(
        self,
        side: Space,
        keys: NDArray[np.int64],
        rows: NDArray[np.uint64],
        records: Sequence[str] | None = None,
        *,
        by: str = "search",
    ) -> None:
        """Remember where some items lie, for what is read of them next.

        Args:
            side: One of `SPACES`.
            keys: (n) of items, each once.
            rows: (n) row ids of the table.
            records: Of each, what is shown of it; None where that was not read.
            by: What found them; the last `RECENT` of each kind are remembered.
        """
        order = np.argsort(keys, kind="stable")
        said = None if records is None else np.array(records, dtype=object)[order]
        own = Found(keys[order].astype(np.int64), rows[order].astype(np.uint64), said)
        # Another thread may do the same: what is lost is only faster.
        name = f"{side} by {by}"
        self.cache[name] = (*self.cache.get(name, ()), own)[-RECENT:]

    def _recent(self, side: Space) -> Iterator[Found]:
        """What was found of a space, the last first."""
        for by in ("search", "filter"):
            yield from reversed(self.cache.get(f"{side} by {by}", ()))

    def remembered(self, side: Space, among: NDArray[np.int64]) -> Found | None:
        """Where items lie that were found just now.

        Args:
            side: One of `SPACES`.
            among: (M) int64 keys, ascending.

        Returns:
            The M items; None where another question is needed.
        """
        for keys, rows, records in self._recent(side):
            places = np.minimum(np.searchsorted(keys, among), max(0, len(keys) - 1))
            if len(keys) and (keys[places] == among).all():
                return Found(keys[places], rows[places], None if records is None else records[places])
        return None

    def stored(self, side: int, column: str, values: Sequence[Any]) -> Items:
        """The items of a side that have one of these keys or ids.

        Args:
            side: Number of the side in `SPACES`.
            column: "key" or "id".
            values: Keys or ids.

        Returns:
            (side, id) -> item.
        """
        records = self.records(side, column, values)
        return {(side, row.id): StateRow(row.key, row.entry(), frozenset(images)) for row, images in records}

    def linked_with(self, images: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
        """The key of each text that is linked with any of some images, and those of them that it is linked with.

        Args:
            images: Ids of images.

        Returns:
            Key of a text, and the ids of its images among these.
        """
        few, chosen = len(images) <= CHUNK, set(images)
        own_images = literal(list(images)) if few else ""
        where = f"(link IN ({own_images}) OR array_has_any(links, [{own_images}]))" if few else "TRUE"
        if len(images) <= LINKED:
            rows = self.scan([], f"kind = 1 AND {where}", {"with_row_id": True})["_rowid"].to_numpy()
        if len(images) <= LINKED and len(rows) <= CHUNK:
            records = [written for (written,) in self.rows_at(rows, ["record"])]
            shown = [_shown(written, self.where) for written in records]
            self.remember("texts", np.array([own.key for own in shown], dtype=np.int64), rows, records)
            yield from ((own.key, [image for image in own.images if image in chosen]) for own in shown)
            return
        for batch in self.batches(["key", *_LINKS, "_rowid"], f"kind = 1 AND {where}"):
            if few:
                self.remember("texts", batch["key"].to_numpy(), batch["_rowid"].to_numpy())
            for key, *linked in zip(*(batch[name].to_pylist() for name in ("key", *_LINKS)), strict=True):
                if own := [image for image in _images_of(*linked) if image in chosen]:
                    yield key, own

    def rows(
        self,
        side: Space,
        *,
        keys: Sequence[int] | None = None,
        ids: Sequence[str] | None = None,
        links: bool = False,
        columns: Sequence[str] = _ITEM,
    ) -> list[StoredRow]:
        """The rows of these keys, or of these ids; see `View.rows`.

        Args:
            side: "images" or "texts".
            keys: Keys of items; None where `ids` are given.
            ids: Ids of items; None where `keys` are given.
            links: Also reads the links of each row.
            columns: That are read; those of links where they are asked.

        Returns:
            The rows, in any order.
        """
        number = SPACES.index(side)
        columns = [name for name in columns if name not in _LINKS or (links and number == 1)]
        column, values = ("key", list(keys or ())) if ids is None else ("id", self.storable(ids))
        records = list(self.records(number, column, values, columns))
        partners: dict[str, list[int]] = {row.id: [] for row, _ in records}
        if links and number == 0:
            for key, linked in self.linked_with(list(partners)):
                for image in linked:
                    partners[image].append(key)
        elif links and number == 1:
            images = sorted({*chain(*(ids for _, ids in records))})
            own = {row.id: row.key for row, _ in self.records(0, "id", images, ["key", "id"])}
            for row, ids in records:
                partners[row.id] += [own[image] for image in ids if image in own]
        return [row._replace(links=tuple(sorted(partners[row.id]))) for row, _ in records]

    def batches(self, columns: Sequence[str], where: str) -> Iterator[pa.RecordBatch]:
        """Columns of the rows that fulfil a filter, block by block, as they lie in the storage.

        Args:
            columns: Names of columns, also "_rowid", the row id of the table.
            where: Filter in SQL.

        Returns:
            Batches of rows.
        """
        with translated(self.where):
            yield from self.dataset.scanner(columns=list(columns), filter=where, batch_size=CHUNK).to_batches()

    def first_vectors(self, keys: Sequence[int]) -> dict[int, tuple[bytes, NDArray[np.float32]]]:
        """The first vector of images and texts, and the digest of all vectors of each.

        Args:
            keys: Of items, at most `CHUNK`.

        Returns:
            Key -> digest, and (D) vector.
        """
        columns, blocks, rest = ["vectors_digest", "vector"], [], set(keys)
        for side in SIDES:
            # A change has just looked for its items.
            for known, rows, _ in self._recent(side):
                own = np.isin(known, list(rest))
                if own.any():
                    with translated(self.where):
                        blocks.append(
                            (known[own].tolist(), self.dataset._take_rows(rows[own].tolist(), columns=columns))
                        )
                    rest.difference_update(blocks[-1][0])
        if rest:
            where = f"kind < {len(SIDES)} AND key IN ({literal(sorted(rest))})"
            blocks += [(own["key"].to_pylist(), own) for own in self.batches(["key", *columns], where)]
        found = dict[int, tuple[bytes, NDArray[np.float32]]]()
        for own_keys, block in blocks:
            pairs = zip(block["vectors_digest"].to_pylist(), as_matrix(block["vector"]), strict=True)
            found |= dict(zip(own_keys, pairs, strict=True))
        return found

    def count_where(self, where: str) -> int:
        """How many rows of the table meet a condition.

        Args:
            where: The condition.

        Returns:
            Their number.
        """
        with translated(self.where):
            return int(self.dataset.scanner(columns=[], with_row_id=True, filter=where).count_rows())

    def vectors_at(self, rows: NDArray[np.uint64], column: str = "vector") -> NDArray[np.float32]:
        """(n D) vectors of rows of the table.

        Args:
            rows: (n) row ids of the table.
            column: "vector" or "sentence".

        Returns:
            (n D) float32.
        """
        blocks = [np.zeros((0, self.dataset.schema.field(column).type.list_size), dtype=np.float32)]
        for start in range(0, len(rows), CHUNK):
            with translated(self.where):
                block = self.dataset._take_rows(rows[start : start + CHUNK].tolist(), columns=[column])
            blocks.append(as_matrix(block[column]))
        return np.concatenate(blocks)

    @cached_property
    def index(self) -> tuple[str, Mapping[str, set[int]]]:
        """The names of the indexes of vectors, "" without one; and column -> the fragments that its index contains."""
        with translated(self.where):
            described = self.dataset.describe_indices()
        fragments, names = dict[str, set[int]](), list[str]()
        for column, part in ((own.field_names[0], part) for own in described for part in own.segments):
            fragments.setdefault(column, set()).update(part.fragment_ids)
            names += [str(part.uuid)] if column in INDEXES else []
        return " ".join(sorted(names)), fragments

    @cached_property
    def state_fragment(self) -> int:
        """Number of the fragment that has the row of the state."""
        return int(self.scan([], f"kind = {STATE}", {"with_row_address": True})["_rowaddr"][0].as_py() >> 32)

    @property
    def indexed_rows(self) -> int:
        """Rows of the fragments that the index of ids contains, as they were written."""
        indexed = self.index[1].get("id", set())
        with translated(self.where):
            parts = [part for part in self.dataset.get_fragments() if part.fragment_id in indexed]
        return sum(part.metadata.physical_rows for part in parts)

    @property
    def lists(self) -> Mapping[str, Any]:
        """Space -> what was measured of the lists of its index; empty where it is another index by now."""
        measured: Mapping[str, Any] = self.now["lists"]
        return measured if measured and self.now["index"].get("name") == self.index[0] else {}


def as_matrix(column: Any) -> NDArray[np.float32]:
    """(n D) vectors of a column.

    Args:
        column: A column of vectors.

    Returns:
        (n D) float32.
    """
    return np.asarray(pc.list_flatten(column)).reshape(-1, column.type.list_size).astype(np.float32, copy=False)


@dataclass(eq=False)
class LanceVectors:
    """The vectors of one space at one moment; the store has those of small sides in memory, for all moments.

    Attributes:
        tables: The table at this version.
        side: One of `SPACES`.
        store: The index.
        where: Filter of the rows that hold the vectors.
        count: Number of items.
        views: K, vectors per item.
        rows: Number of vectors.
    """

    tables: LanceTables
    side: Space
    store: LanceStore

    def __post_init__(self) -> None:
        number, self.column = SPACES.index(self.side), vector_column(self.side)
        self.where = f"kind IN ({ITEMS + number}, {FURTHER + number})"
        self.count, self.views = self.tables.state(self.side), self.store.manifest.views_of(self.side)
        others = f"kind = {FURTHER + number} AND view BETWEEN 1 AND {self.views - 1}"
        self.where_numbered = f"(kind = {ITEMS + number} AND view = 0) OR ({others})"
        self.rows = self.count * self.views
        self.in_memory = self.rows <= self.store.manifest.exact_up_to

    @property
    def unindexed(self) -> int:
        """Vectors that every search compares: those that came after the index."""
        name, indexed = f"unindexed {self.side}", self.tables.index[1].get(self.column, set())
        if name not in self.tables.cache:
            with translated(self.tables.where):
                rest = [part for part in self.tables.dataset.get_fragments() if part.fragment_id not in indexed]
                # A fragment's own `count_rows` keeps Python's lock while it waits for threads that may wait for it.
                remaining = self.tables.dataset.scanner(columns=[], with_row_id=True, filter=self.where, fragments=rest)
                self.tables.cache[name] = remaining.count_rows() if rest else 0
        return int(self.tables.cache[name])

    def nearest(
        self, queries: NDArray[np.float32], *, top: int, among: NDArray[np.int64] | None = None, exact: bool = False
    ) -> list[Hits]:
        """The best `top` items of each of (Q L D) queries, or of those `among` these keys; see `View.nearest`.

        Args:
            queries: (Q L D) float32.
            top: Number of hits, 1 or more.
            among: (M) int64 keys to search, ascending; None for all items.
            exact: Compares all vectors, however many there are.

        Returns:
            Q hits, best first.
        """
        if self.in_memory:
            return self._matrix().nearest(queries, top=top, among=among, exact=True)
        possible = self.count if among is None else len(among)
        lists = self.tables.lists.get(self.side)
        manifest = self.store.manifest
        if exact or lists is None or possible <= manifest.exact_up_to:
            return self.compared(queries, top, among)
        if min(lists["recall"].values()) < manifest.recall and not manifest.by_hand:
            # More was asked since, and the compaction that chooses lists for it did not end.
            return self.compared(queries, top, among)
        search = ListSearch(**{own.name: lists[own.name] for own in fields(ListSearch)})
        hits = self.searched(queries, top, search, among)
        short = [number for number, own in enumerate(hits) if len(own.keys) < min(top, possible)]
        if short:
            for number, own in zip(short, self.compared(queries[short], top, among), strict=True):
                hits[number] = own
        return hits

    def vectors_of(self, keys: NDArray[np.int64]) -> NDArray[np.float32]:
        """(N K D) vectors of items, in the order of the keys; each has to be in the index.

        Args:
            keys: (N) int64 keys of items that are in the index.

        Returns:
            (N K D) float32.

        Raises:
            SearchIndexError: If vectors are missing.
        """
        if self.in_memory:
            return self._matrix().vectors_of(keys)
        unique, positions = np.unique(keys, return_inverse=True)
        owners, rows = self.positions(unique)
        if len(owners) != len(unique) * self.views:
            raise SearchIndexError(
                f"an index needs {self.views} vectors of each of its {self.side}; of {len(unique)} it has "
                f"{len(owners)}; `subtext index verify` says what is wrong"
            )
        return self.tables.vectors_at(rows, self.column).reshape(len(unique), self.views, -1)[positions]

    def searched(
        self,
        queries: NDArray[np.float32],
        top: int,
        search: ListSearch,
        among: NDArray[np.int64] | None = None,
    ) -> list[Hits]:
        """The best items in the likeliest lists of Lance's index, and among the rows that came after it.

        Codes find the candidates; their vectors are compared exactly.

        Args:
            queries: (Q L D) float32.
            top: Number of hits, 1 or more.
            search: How many lists are searched, and how many candidates are read for ten hits.
            among: (M) int64 keys to search, ascending; None for all items.

        Returns:
            Q hits, best first.
        """
        hits, rows = [], None if among is None else self.positions(among)[1]
        for query in queries:
            # Lance reads the vectors to rank them among rows that came later: to read them again is as many requests.
            table = self._candidates(query, top, search, ["key", self.column], rows)
            if self.views == 1:
                self.tables.remember(self.side, table["key"].to_numpy(), table["_rowid"].to_numpy())
            hits.append(Hits(*ann.rescore_top_k(query, as_matrix(table[self.column]), table["key"].to_numpy(), top)))
        return hits

    def _candidates(
        self,
        query: NDArray[np.float32],
        top: int,
        search: ListSearch,
        columns: Sequence[str],
        rows: NDArray[np.uint64] | None = None,
    ) -> pa.Table:
        """Columns and row ids of the vectors that lists give for (L D) views of a query, among all or some rows."""
        share = 1.0 if rows is None else max(1e-3, len(rows) / self.rows)
        probes = min(search.lists, math.ceil(search.probes / share))
        count = max(self.least(top), math.ceil(search.candidates * top / ann.DEPTH))
        nearest = {"column": self.column, "q": query, "k": count, "metric": "dot", "nprobes": probes}
        allowed = None if rows is None else serialize_row_addrs(rows.tolist())
        options = {"nearest": nearest, "row_addr_allowlist": allowed, "with_row_id": True}
        return self.tables.scan(columns, self.where, options)

    def least(self, top: int) -> int:
        """Vectors among which the best items are, whatever their other vectors.

        Args:
            top: Number of items.

        Returns:
            Number of vectors.
        """
        return top * self.views + MARGIN

    def compared(self, queries: NDArray[np.float32], top: int, among: NDArray[np.int64] | None = None) -> list[Hits]:
        """The best items of each query, every vector compared, or every one of the items `among` these keys.

        Args:
            queries: (Q L D) float32.
            top: Number of hits, 1 or more.
            among: (M) int64 keys to search, ascending; None for all items.

        Returns:
            Q hits, best first.
        """
        hits = [NO_HITS] * len(queries)
        for keys, vectors in self._blocks(among):
            new = self._table(keys, vectors).nearest(queries, top=top)
            hits = [_best(*pair, top) for pair in zip(hits, new, strict=True)]
        return hits

    def _blocks(self, among: NDArray[np.int64] | None) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Keys and vectors, block by block; few of them each by itself, else those among all."""
        few = self.rows * self.store.manifest.width_of(self.side) * 4 // SINGLE
        if among is not None and len(among) * self.views <= few:
            owners, rows = self.positions(among)
            for start in range(0, len(rows), CHUNK):
                block = slice(start, start + CHUNK)
                yield owners[block], self.tables.vectors_at(rows[block], self.column)
            return
        for batch in self.tables.batches(["key", self.column], self.where):
            keys = batch["key"].to_numpy()
            chosen = slice(None) if among is None else np.isin(keys, among)
            yield keys[chosen], as_matrix(batch[self.column])[chosen]

    def sample(self, count: int, *, seed: int) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """At most `count` vectors, sampled by the seed: the keys of their items, and where they lie.

        Args:
            count: Size of the sample.
            seed: Of what is sampled; the same seed samples the same.

        Returns:
            (n) keys, ascending, and (n) row ids, n the smaller of `count` and the number of vectors.
        """
        keys, rows = self.positions()
        chosen = np.sort(draw.permutation(len(rows), seed=seed, epoch=0, purpose="compaction: sample")[:count])
        return keys[chosen], rows[chosen]

    def held_out(
        self, asked: Mapping[str, tuple[NDArray[np.int64], NDArray[np.float32]]], rows: NDArray[np.uint64]
    ) -> tuple[dict[str, HeldOut], NDArray[np.float32]]:
        """What is nearest to vectors of several spaces; one that is in this space itself is passed over.

        All vectors are read once, and a sample of them is kept on the way.

        Args:
            asked: Space -> (Q) keys and (Q D) vectors of some of its items.
            rows: (n) row ids of the sample.

        Returns:
            Space -> its queries with their exact answers, and (n D) vectors of the sample.
        """
        deep = min(lance_lists.DEEP, self.count)
        every = np.concatenate([queries for _, queries in asked.values()])
        hits, order = [NO_HITS] * len(every), np.argsort(rows)
        sample, ascending = np.zeros((len(rows), every.shape[1]), dtype=np.float32), rows[order]
        for batch in self.tables.batches(["key", self.column, "_rowid"], self.where):
            vectors = as_matrix(batch[self.column])
            new = self._table(batch["key"].to_numpy(), vectors).nearest(every[:, None], top=deep + 1)
            hits = [_best(*pair, deep + 1) for pair in zip(hits, new, strict=True)]
            at = np.minimum(np.searchsorted(ascending, batch["_rowid"].to_numpy()), len(rows) - 1)
            own = ascending[at] == batch["_rowid"].to_numpy()
            sample[order[at[own]]] = vectors[own]
        found, remaining = dict[str, HeldOut](), iter(hits)
        for of, (keys, queries) in asked.items():
            scores = np.full((len(queries), deep), -np.inf, dtype=np.float32)
            nearest = []
            for row, nearby in zip(range(len(queries)), remaining, strict=False):
                others = nearby.keys != keys[row] if of == self.side else np.full(len(nearby.keys), True)
                best = nearby.scores[others][:deep]
                scores[row, : len(best)] = best
                nearest.append(nearby.keys[others][: ann.DEPTH])
            of_all = self.vectors_of(np.concatenate(nearest))
            parts = np.split(of_all, np.cumsum([len(best) for best in nearest])[:-1])
            found[of] = HeldOut(keys, queries, scores, nearest, parts)
        return found, sample

    def found(self, search: ListSearch, asked: Mapping[str, HeldOut]) -> dict[str, float]:
        """The share of the ten nearest items that a search finds.

        Args:
            search: By lists.
            asked: Space -> its queries.

        Returns:
            Space of the queries -> mean share.
        """
        recall = dict[str, float]()
        depth = ann.DEPTH + 1  # A query may be its own answer.
        for of, own in asked.items():
            shares = []
            for query, key, best, scores in zip(
                own.queries[:, None], own.keys, own.keys_nearest, own.scores, strict=True
            ):
                # Compared exactly, candidates give all the best that are among them: their vectors need not be read.
                near = self._candidates(query, depth, search, ["key"])["key"].to_numpy() if self.views == 1 else []
                if len(best) and np.isin(best, near).all():
                    shares.append(1.0)
                    continue
                (hits,) = self.searched(query[None], depth, search)
                chosen = np.flatnonzero(hits.keys != key if of == self.side else hits.keys >= 0)[: ann.DEPTH]
                missed = scores[: len(best)][~np.isin(best, hits.keys[chosen])]
                # What is not among ten better ones, which others may have put in meanwhile, is missed.
                lost = np.count_nonzero(missed > hits.scores[chosen].min(initial=np.inf)) if len(chosen) else len(best)
                shares.append(1 - lost / max(1, len(best)))
            recall[of] = round(float(np.mean(shares)), 4)
        return recall

    def positions(self, among: NDArray[np.int64] | None = None) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """The key of each vector, of some items or all, in the order of the keys; the row of the table it lies in.

        Args:
            among: (M) int64 keys, ascending; None for all items.

        Returns:
            (n) keys, and (n) row ids of the table.
        """
        name = f"rows of {self.side}"
        if name not in self.tables.cache:
            # Of several vectors all are asked.
            found = None if among is None or self.views > 1 else self.tables.remembered(self.side, among)
            if found is not None:
                return found.keys, found.rows
            table = self.tables.scan(["key", "view"], self.where, {"with_row_id": True})
            keys, views, rows = (table[column].to_numpy() for column in ("key", "view", "_rowid"))
            order = np.lexsort((views, keys))
            self.tables.cache[name] = (keys[order], rows[order])
        keys, rows = self.tables.cache[name]
        chosen = slice(None) if among is None else np.isin(keys, among)
        return keys[chosen], rows[chosen]

    def _matrix(self) -> SegmentTable:
        """All vectors, in the order of their keys. Keys are never used again: only those of new items are read."""
        name = f"vectors of {self.side}"
        if name not in self.tables.cache:
            owners, rows = self.positions()
            if len(owners) != self.rows:  # They may not fit into memory.
                raise SearchIndexError(
                    f"{self.tables.where} needs {self.rows:,} vectors of {self.count:,} {self.side}; it has "
                    f"{len(owners):,}; `subtext index verify` says what is wrong"
                )
            with self.store.reads_vectors:
                changes, keys, vectors = self.store.vectors.get(self.side, ([], owners[:0], None))
                if vectors is None or not self.tables.is_kin(changes):
                    # Keys of another index, or of one that was restored since, may be those of other items.
                    keys, vectors = owners[:0], self.tables.vectors_at(rows[:0], self.column)
                remaining, new = np.isin(keys, owners), ~np.isin(owners, keys)
                keys = np.concatenate([keys[remaining], owners[new]])
                vectors = np.concatenate([vectors[remaining], self.tables.vectors_at(rows[new], self.column)])
                order = np.argsort(keys, kind="stable")
                keys, vectors = keys[order], vectors[order]
                self.store.vectors[self.side] = self.tables.now["changes"], keys, vectors
            self.tables.cache[name] = self._table(keys, vectors)
        return self.tables.cache[name]

    def _table(self, keys: NDArray[np.int64], vectors: NDArray[np.float32]) -> SegmentTable:
        segments = (Segment(Path(), None, np.ascontiguousarray(vectors), keys, None),) if len(keys) else ()
        return SegmentTable(segments, keys[:0], None, self.views, len(keys))


def _best(one: Hits, other: Hits, top: int) -> Hits:
    """The best of two lists of hits; an item that is in both counts by its better score."""
    keys, scores = np.concatenate([one.keys, other.keys]), np.concatenate([one.scores, other.scores])
    order = np.lexsort((keys, -scores))
    order = order[np.sort(np.unique(keys[order], return_index=True)[1])][:top]
    return Hits(keys[order], scores[order])


@dataclass(eq=False)
class LanceView(SqlView):
    """An index in Lance at one moment.

    Attributes:
        tables: The table at this version.
        sides: The vectors of each space.
        store: The index.
        renewed: Whether this is a later moment than it was at first.
    """

    tables: LanceTables
    sides: Mapping[Space, LanceVectors]
    store: LanceStore
    renewed: bool = False
    """Whether this is a later moment than it was."""

    of_folded = "SELECT folded, id FROM items WHERE side = ? AND folded = ANY(?::text[])"

    def renew(self) -> bool:
        """Go on at the newest version where this one was removed; whether it was.

        Returns:
            True if the view is at another version now.
        """
        version, home = self.tables.dataset.version, self.tables.home
        latest = self.store.latest()
        if latest.home is home and home.mark(self.store.table, version) == self.tables.mark:
            return False
        view = self.store.view(latest)
        if not latest.is_kin(self.tables.now["changes"]):
            raise self.store.replaced()
        vars(self).update(vars(view), renewed=True)
        return True

    def items(self, side: Side, keys: Sequence[int] | NDArray[np.int64]) -> list[Item]:
        """The items of these keys, in their order.

        Args:
            side: "images" or "texts".
            keys: Keys of items of that side.

        Returns:
            Items in the order of the keys.

        Raises:
            KeyError: For one that is not in the index.
            IndexMovedError: If the index was changed so often that the view went on at another version, without the
                item.
        """
        try:
            return super().items(side, keys)
        except KeyError as problem:
            if not self.renewed:
                raise
            raise IndexMovedError(f"{self.store.path} was changed while it was read for long; do it again") from problem

    def shown_rows(self, side: Side, keys: Sequence[int], *, links: bool = False) -> list[StoredRow]:
        """See `View.shown_rows`.

        Args:
            side: "images" or "texts".
            keys: Keys of items.
            links: Also reads the links of each row.

        Returns:
            The rows, without what is not shown.
        """
        return self.tables.rows(side, keys=keys, links=links, columns=_SHOWN)

    def known_images(self) -> Iterator[KnownImage]:
        """See `View.known_images`: texts and images are read once each, as they lie in the storage.

        Where the version is removed meanwhile, the images that are left are read by their keys, of a newer one.

        Yields:
            The images, in any order; their texts are found by hashes of the ids that they link.
        """
        own = self.keys("images")
        left = np.ones(len(own), dtype=np.bool_)
        try:
            linked, texts = array("q"), array("q")
            for batch in self.tables.batches(["key", *_LINKS], "kind = 1"):
                for key, link, links in zip(*(batch[name].to_pylist() for name in ("key", *_LINKS)), strict=True):
                    ids = _images_of(link, links)
                    linked.extend(map(hash, ids))
                    texts.extend(repeat(key, len(ids)))
            hashes, keys = (np.frombuffer(numbers, dtype=np.int64) for numbers in (linked, texts))
            order = np.argsort(hashes, kind="stable")
            hashes, keys = hashes[order], keys[order]
            del linked, texts, order
            for batch in self.tables.batches(["key", "record", "stamp", "content"], "kind = 0"):
                shown = [_shown(record, self.store.path) for record in batch["record"].to_pylist()]
                wanted = np.array([hash(said.id) for said in shown], dtype=np.int64)
                first, last = (np.searchsorted(hashes, wanted, side).tolist() for side in ("left", "right"))
                rest = (batch[name].to_pylist() for name in ("key", "stamp", "content"))
                for said, start, end, key, stamp, content in zip(shown, first, last, *rest, strict=True):
                    yield KnownImage(key, said.id, said.path, stamp, content, tuple(sorted(keys[start:end].tolist())))
                left[np.searchsorted(own, batch["key"].to_numpy())] = False
        except SearchIndexError:
            if not self.renew():
                raise
            yield from self._known_by_key(own[left])

    def stats(self) -> Stats:
        """Size and state of the table: its version, fragments, and what lists were measured.

        Returns:
            Bytes on disk, unindexed vectors, and facts of the store.
        """
        exact = {space: why for space, why in self.tables.now["exact"].items() if not self.sides[space].in_memory}
        # Where every vector is compared since nothing takes less, another compaction is no use.
        unindexed = {side: 0 if side in exact else self.sides[side].unindexed for side in SIDES}
        dataset = self.tables.dataset
        fragments = len(dataset.get_fragments())
        facts = {"version": dataset.version, "fragments": fragments, "lists": self.tables.lists}
        facts |= {"exact_search": exact} if exact else {}
        return Stats(sum(file["size_bytes"] for file in self.store.files()), unindexed, facts)

    def fields(self, side: Side) -> list[str]:
        """Names of the metadata fields, sorted.

        Args:
            side: "images" or "texts".

        Returns:
            Names, sorted.
        """
        cached = f"fields of {side}"
        if cached not in self.cache:
            names = self.tables.fields.names(SIDES.index(side))
            if names is None:
                found = self._metadata(f"kind = {SIDES.index(side)}")
                names = list({name for _, own in found for name, _ in own})
            self.cache[cached] = sorted(name for name in names if not name.endswith((DATE, NUMBER)))
        return list(self.cache[cached])

    def types_of(self, side: Side, name: str) -> tuple[bool, bool]:
        """Whether a field has texts, and whether it has numbers, as the state counts them.

        Args:
            side: "images" or "texts".
            name: The field.

        Returns:
            Two flags.
        """
        return self.tables.fields.types_of(SIDES.index(side), name) or super().types_of(side, name)

    def select(self, side: Space, where: Sequence[Condition | AnyOf] = ()) -> NDArray[np.int64]:
        """The keys of the items that fulfil every condition; the store searches its indexes for them.

        Args:
            side: One of `SPACES`; conditions are on images or texts.
            where: Conditions on the metadata; all must be true. None selects all items.

        Returns:
            (N) int64 keys, ascending.
        """
        number, phrases, conditions = SPACES.index(side), list[NDArray[np.int64]](), list[Condition | AnyOf]()
        assert side in SIDES or not where
        for condition in where:
            if side == "images" and isinstance(condition, Condition) and condition.field == TEXT:
                phrases.append(self.tables.keys(*self._captioned(str(condition.value))))
            else:
                conditions.append(condition)
        if phrases and not conditions:
            keys = np.unique(phrases[0])
        else:
            keys, rows = self._selected(number, conditions)
            if where:
                self.tables.remember(side, keys, rows, by="filter")
        for own in phrases:
            keys = keys[np.isin(keys, own)]
        return keys

    def _selected(
        self, number: int, conditions: Sequence[Condition | AnyOf]
    ) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Keys, ascending, and row ids of the items of a space that fulfil every condition."""
        filters = [self._filter(number, condition) for condition in conditions]
        certain, possible = _every(number, conditions, filters)
        sure = "TRUE" if possible == certain else f"({certain}) IS TRUE"
        found = self.tables.scan({"key": "key", "sure": sure}, possible, {"with_row_id": True})
        keys, rows, chosen = (found[column].to_numpy() for column in ("key", "_rowid", "sure"))
        if not chosen.all():
            open_ = [own for own, filter_ in zip(conditions, filters, strict=True) if len(set(filter_)) > 1]
            chosen, names = chosen.copy(), list(chain(*map(_fields_of, open_)))
            left = (_shown(written, self.tables.where) for (written,) in self.tables.rows_at(rows[~chosen], ["record"]))
            values = ((own.id, _facets_of(own.metadata, names)) for own in left)
            chosen[~chosen] = [all(fulfils(condition, name, own) for condition in open_) for name, own in values]
            keys, rows = keys[chosen], rows[chosen]
        order = np.argsort(keys, kind="stable")
        return keys[order].astype(np.int64), rows[order].astype(np.uint64)

    def _filter(self, side: int, condition: Condition | AnyOf) -> Filter:
        """A condition as SQL."""
        if isinstance(condition, Condition) and condition.field == TEXT:
            spelled = words(str(condition.value))
            test = f"contains(words, {literal(_spaced(spelled))})" if spelled else "FALSE"
            return Filter(test, test)
        return self.tables.fields.filter(side, condition)

    def count(self, side: Side, where: Sequence[Condition | AnyOf]) -> int:
        """The number of items that fulfil every condition; nothing is read but indexes where these decide it.

        Args:
            side: "images" or "texts".
            where: Conditions on the metadata; all must be true.

        Returns:
            Number of items.
        """
        number = SIDES.index(side)
        if not where:
            return self.counts[side]
        if not any(isinstance(own, Condition) and own.field == TEXT for own in where):
            certain, possible = _every(number, where, [self._filter(number, own) for own in where])
            if certain == possible:
                return self.tables.count_where(certain)
        return len(self.select(side, where))

    def values(self, side: Side, name: str, *, limit: int = 0) -> FieldValues:
        """The values of a field; see `View.values`.

        Args:
            side: "images" or "texts".
            name: The field.
            limit: Number of most frequent values to return.

        Returns:
            Kinds, number and range of the values, and the most frequent ones.
        """
        texts: pa.Table | None = None
        listed: Iterator[tuple[int, Sequence[str | int | float]]] = self._said(side, name)
        if not name.endswith(DATE):
            texts, listed = self._held(side, "text", name)
        numbers, others = self._held(side, "number", name)
        extra = [_counted_value(value) for _, own in chain(listed, others) for value in own]
        tables = [pa.Table.from_pylist(extra, _COUNTED)]
        if texts is not None:
            folded, written = texts.columns[-2:]
            short = pc.invert(pc.starts_with(folded, LONG_SIGN))
            tables.append(pa.table({"word": pc.coalesce(written, folded), "folded": folded}).filter(short))
        if numbers is not None:
            number = numbers.columns[-1]
            tables.append(pa.table({"number": number, "rest": pa.array(np.zeros(len(number), dtype=np.int64))}))
        rows = pa.concat_tables(tables, promote_options="default").select(_COUNTED.names)
        # Of several spellings the most common one is shown.
        each = rows.group_by(_COUNTED.names).aggregate([([], "count_all")])
        each = each.sort_by([("count_all", "descending"), ("word", "ascending")])
        values = each.group_by(_COUNTED.names[1:], use_threads=False).aggregate(
            [("word", "first"), ("count_all", "sum")]
        )
        order = [("count_all_sum", "descending"), *((column, "ascending") for column in ("number", "folded", "rest"))]
        common = values.sort_by(order).slice(0, limit).to_pylist() if limit else []
        ends = pc.min_max(rows["number"]).as_py()
        dates = [date for own in self._dates(side, name).values() for date in own]
        return FieldValues(
            rows["word"].null_count < len(rows),
            rows["number"].null_count < len(rows),
            len(values),
            tuple((_value(row["word_first"], row["number"], row["rest"]), row["count_all_sum"]) for row in common),
            None if ends["min"] is None else (_whole(ends["min"]), _whole(ends["max"])),
            (min(first for first, _ in dates), max(last for _, last in dates)) if dates else None,
        )

    def dates(self, side: Side, name: str) -> dict[int, tuple[int, int]]:
        """First and last second of the dates of a field; see `View.dates`. Only its columns are read.

        Args:
            side: "images" or "texts".
            name: The field.

        Returns:
            Key -> seconds of its earliest date.
        """
        numbers, others = self._held(side, "number", name)
        single = [] if numbers is None else zip(*(own.to_pylist() for own in numbers.columns), strict=True)
        found = dict[int, list[tuple[int, int]]]()
        for key, own in chain(((key, [number]) for key, number in single), others):
            year = min((number for number in own if -9999 <= number <= 9999), default=0.5)
            if year == int(year):
                interval = year_interval(int(year))
                found[key] = [(interval.first, interval.last)]
        for key, dates in self._dates(side, name).items():
            found.setdefault(key, []).extend(dates)
        return {key: min(own) for key, own in found.items()}

    def _dates(self, side: Side, name: str) -> dict[int, list[tuple[int, int]]]:
        """Key of an item -> what texts of a field say as dates."""
        return {key: [interval_at(own) for own in dates] for key, dates in self._said(side, name + DATE)}

    def _said(self, side: Side, name: str) -> Iterator[tuple[int, Sequence[str]]]:
        """Key of an item, and what texts of a field say as dates, as `sortable` writes it."""
        columns, listed = self._held(side, "date", name)
        for key, first, last in (
            [] if columns is None else zip(*(own.to_pylist() for own in columns.columns), strict=True)
        ):
            yield key, [digits(first) + digits(last)]
        yield from ((key, list(map(str, own))) for key, own in listed)

    def _held(
        self, side: Side, kind: str, name: str
    ) -> tuple[pa.Table | None, Iterator[tuple[int, Sequence[str | int | float]]]]:
        """Key and typed columns of the items that have a field in these; and key and values of all others."""
        columns, lists, where = self.tables.fields.held(SIDES.index(side), kind, name)
        table = self.tables.scan(["key", *columns], f"{columns[0]} IS NOT NULL") if columns else None
        rest = self._metadata(f"kind = {SIDES.index(side)} AND ({where})", [name]) if where else iter(())
        batches = self.tables.batches(["key", *lists], f"{lists[0]} IS NOT NULL") if lists else iter(())

        def values() -> Iterator[tuple[int, Sequence[str | int | float]]]:
            for batch in batches:
                for key, texts, each in zip(*(own.to_pylist() for own in batch.columns), strict=True):
                    written = [text for text in each or texts if text is not None and not text.startswith(LONG_SIGN)]
                    if written:
                        yield key, [_number_of(text) for text in written] if kind == "number" else written
            for key, found in rest:
                own = [
                    value for other, value in found if other == name and isinstance(value, str) == (kind != "number")
                ]
                if lists:
                    own = [value for value in own if spelt(str(value)).startswith(LONG_SIGN)]
                if own:
                    yield key, own

        return table, values()

    def _metadata(self, where: str, names: Sequence[str] | None = None) -> Iterator[tuple[int, set[Facet]]]:
        """Key and facets, of some fields or all, of the items that a filter passes."""
        for batch in self.tables.batches(["key", "record"], where):
            for key, written in zip(batch["key"].to_pylist(), batch["record"].to_pylist(), strict=True):
                yield key, _facets_of(_shown(written, self.tables.where).metadata, names)

    def _contents(self, space: DerivedSpace) -> list[tuple[int, bytes]]:
        rows = self.tables.scan(["key", "content"], f"kind = {SPACES.index(space)}")
        contents = (content or b"" for content in rows["content"].to_pylist())
        return list(zip(rows["key"].to_pylist(), contents, strict=True))

    def owner_links(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All links; see `View.owner_links`.

        Returns:
            (M) keys of texts and (M) keys of their images.
        """
        if "links" not in self.cache:
            images = self.tables.scan(["id", "key"], "kind = 0")
            keys = dict(zip(images["id"].to_pylist(), images["key"].to_pylist(), strict=True))
            texts = self.tables.scan(["key", "link", "links"], "kind = 1")
            rows = zip(*(column.to_pylist() for column in texts.columns), strict=True)
            links = sorted((text, keys[image]) for text, *own in rows for image in _images_of(*own) if image in keys)
            self.cache["links"] = tuple(np.array(links, dtype=np.int64).reshape(-1, 2).T)
        return self.cache["links"]

    def search_words(self, side: Side, words_: str, *, top: int | None) -> list[tuple[int, float]]:
        """The items of a side that contain some of the words, as (key, BM25 score), best first.

        Every item is looked through. Lance's own index of words ranks by other numbers than a folder does, and leaves
        out what came after it.

        Args:
            side: "images" or "texts".
            words_: Words of the query.
            top: Number of items, 1 or more; None for all.

        Returns:
            (key of the item, BM25 score), best first.

        Raises:
            SearchIndexError: If the count of texts is damaged.
        """
        names = ("images", "image_words") if side == "images" else ("worded", "words")
        query, (number, total) = Counter(query_words(words_)), (self.tables.state(name) for name in names)
        if not query or not number:
            return []
        where = " OR ".join(f"contains(words, {literal(f' {word} ')})" for word in query)
        # Only numbers are kept of the items: how many items have a word is known after the last one.
        columns = [np.zeros((0, 2 + len(query)), dtype=np.int64)]
        for batch in self.tables.batches(["key", "length", "words"], f"kind = {SIDES.index(side)} AND ({where})"):
            counts = [pc.count_substring(batch["words"], f" {word} ") for word in query]
            columns.append(np.stack([batch["key"], batch["length"], *counts], axis=1).astype(np.int64))
        keys, lengths, *times = np.concatenate(columns).T
        if any(np.count_nonzero(own) > number for own in times):
            raise SearchIndexError(
                f"{self.store.path} needs to count its {side}; it counts {number:,}, and more have words of the query; "
                "restore a backup"
            )
        scores = bm25(np.array(times), lengths, weights=list(query.values()), number=number, total=total)
        return [(int(keys[row]), float(scores[row])) for row in np.lexsort((keys, -scores))[:top]]

    def records(self, kind: str) -> list[tuple[Any, ...]]:
        """Other records of the index; see `View.records`.

        Args:
            kind: "jobs", "deleted", "documents" or the name of a document, as listed above.

        Returns:
            Rows of the record; their columns depend on the kind.

        Raises:
            SearchIndexError: If the records are damaged.
        """
        if kind == "jobs":
            texts = self.tables.scan(["record"], f"kind = {JOB}")["record"].to_pylist()
            finished = [json_object(f'{{"job": {text}}}') or {} for text in texts]
            jobs = [*(job.get("job") for job in finished), *self.tables.now["jobs"]]
            if not all(map(_is_job, jobs)):
                raise SearchIndexError(f"{self.store.path} needs jobs as Subtext writes them; restore a backup")
            return sorted(map(tuple, jobs), key=lambda job: job[0])
        if kind == "deleted":
            rows = self.tables.scan(["content"], f"kind = {DELETED}")["content"].to_pylist()
            if None in rows:
                raise SearchIndexError(
                    f"{self.store.path} needs hashes of deleted items, and has an empty row; restore a backup"
                )
            return [(digest,) for row in rows for digest in _hashes(row)]
        where = f"kind = {DOCUMENT}" if kind == "documents" else f"kind = {DOCUMENT} AND id = {literal(kind)}"
        rows = self.tables.scan(["id", "key", "record"], where).to_pylist()
        return [(row["id"], row["key"]) if kind == "documents" else (row["record"],) for row in rows]

    def damage(self, side: Space) -> list[IndexIssue]:
        """Vectors, facets, words and links of a space that are not those that were put in.

        Args:
            side: One of `SPACES`.

        Returns:
            The damage; empty for an intact space.
        """
        number, vectors, views = SPACES.index(side), self.sides[side], self.manifest.views_of(side)
        links, texts, length, damaged = 0, 0, 0, dict[str, list[str]]()
        fields, typed = self.tables.fields, self.tables.fields.used()
        recounted = Counter[tuple[str, str, str]]()
        columns = [
            *typed,
            "key",
            "id",
            "folded",
            "record",
            "words",
            "length",
            "link",
            "links",
            "vectors_digest",
        ]
        every_owner, every_row = vectors.positions()
        for batch in self.tables.batches(columns, f"kind = {number}"):
            own_rows = np.isin(every_owner, batch["key"].to_numpy())
            owners, matrix = every_owner[own_rows], self.tables.vectors_at(every_row[own_rows], vectors.column)
            for row in batch.to_pylist():
                own = matrix[slice(*np.searchsorted(owners, [row["key"], row["key"] + 1]))]
                try:
                    shown = _shown(row["record"], self.tables.where)
                except SearchIndexError:
                    damaged.setdefault("with a damaged record", []).append(repr(row["id"]))
                    continue
                metadata = json_object(shown.metadata) or {}
                searched = _searched(number, str(row["id"]), shown.path, shown.text, metadata)
                values = grouped(facets(metadata)) if side in SIDES else {}
                right_columns = _typed(fields, number, metadata, values)
                recounted.update(fields.counts_of(number, values))
                links += sum(link_sum(image, row["id"]) for image in _images_of(row["link"], row["links"]))
                texts, length = texts + (row["length"] is not None), length + (row["length"] or 0)
                for what, right in {
                    f"without {views} vectors, or twice there": len(own) == views,
                    "with changed or damaged vectors": len(own) != views
                    or vectors_digest(own, row["key"])[:CHECKED] == row["vectors_digest"],
                    f"whose words differ from {'the text' if number else 'id, file and metadata'}": (
                        row["words"],
                        row["length"],
                    )
                    == (searched["words"], searched["length"]),
                    "linked otherwise than its record says": number != 1
                    or (shown.key, sorted(shown.images)) == (row["key"], sorted(_images_of(row["link"], row["links"]))),
                    "found by another id than its own": row["id"] == shown.id and row["folded"] == _folded(row["id"]),
                    "filtered by other values than the metadata": all(
                        row[column] == right_columns.get(column) for column in typed
                    ),
                }.items():
                    if not right:
                        damaged.setdefault(what, []).append(repr(row["id"]))
        problems = [
            IndexIssue(TABLE, f"{counted(len(ids), 'item')} of {side} {what}: {listed(ids)}")
            for what, ids in damaged.items()
        ]
        filters = (vectors.where, vectors.where_numbered)
        stored, numbered = (self.tables.count_where(own) for own in filters)
        wrong = {
            f"{side} have {stored:,} of {vectors.rows:,} vectors": stored != vectors.rows,
            f"vectors of {side} are not numbered from 0 to {views - 1}": numbered != vectors.rows,
        }
        if side in SIDES:
            counts = {"links": links % ROUND, "worded": texts, "words": length} if number else {"image_words": length}
            wrong |= {f"{name} changed or damaged": self.tables.state(name) != own for name, own in counts.items()}
            wrong[f"fields of {side} changed or damaged"] = recounted != fields.counts(number)
        return [*problems, *(IndexIssue(TABLE, what) for what, is_wrong in wrong.items() if is_wrong)]

    def damaged_records(self) -> list[IndexIssue]:
        """What is wrong with the state, documents, jobs, and hashes of deleted items.

        Returns:
            The damage; empty for intact records.
        """
        sums = dict.fromkeys(SUMS, 0)
        columns = [*_RECORD, "digest"]
        last, unknown = 0, self.tables.count_where(f"kind IS NULL OR kind < 0 OR kind > {JOB}")
        kinds = {kind: name for name, kind in SUMS.items()} | dict.fromkeys(range(ITEMS, FURTHER), "items")
        for batch in self.tables.batches(columns, f"kind IN ({literal(sorted(kinds))})"):
            for row in batch.to_pylist():
                is_item = row["kind"] < FURTHER
                last = max(last, row["key"] if is_item else 0)
                sums[kinds[row["kind"]]] += _item_sum(row["digest"], row["key"]) if is_item else _record_sum(row)
        wrong = {
            **{
                f"{name} missing, changed or added": sums[name] % ROUND != self.tables.now["sums"][name]
                for name in SUMS
            },
            "state changed or damaged: it is not that of the last change": not self.tables.is_sealed,
            f"an item has the key {last:,}, which was never given": last > self.tables.state("key"),
            f"{counted(unknown, 'row')} of no kind that Subtext writes": unknown > 0,
            "columns are not those that Subtext makes": columns_of(self.manifest) != self.tables.dataset.schema,
        }
        problems = [IndexIssue(TABLE, what) for what, is_wrong in wrong.items() if is_wrong]
        recorded = self.tables.now["index"].get("files", {})
        with translated(self.store.path):
            stored = _index_sums(self.tables.dataset, self.tables.home.uri(self.store.table)) if recorded else {}
            built = _built(self.tables.dataset)
        for name, digest in recorded.items():
            # Another program may have built an index in the place of this one.
            if name.partition("/")[0] in built and stored.get(name) != digest:
                what = "changed or damaged: its checksum is another" if name in stored else "is missing"
                problems.append(IndexIssue(f"{TABLE}/_indices/{name}", what))
        return problems

    deleted_among = View.deleted_among  # Hashes are no rows of their own here.

    def _captioned(self, phrase: str) -> Part:
        """The images that are linked with texts that contain the words of a phrase in their order."""
        spelled = words(phrase)
        test = "contains(words, ?)" if spelled else "kind > ?"
        images = "unnest(CASE WHEN link IS NULL THEN links ELSE make_array(link) END)"
        texts = f"SELECT {images} AS image FROM dataset WHERE kind = 1 AND {test}"
        statement = f"SELECT i.key FROM ({texts}) AS l JOIN items i ON i.side = 0 AND i.id = l.image"
        return statement, [_spaced(spelled) if spelled else 1]


def _whole(value: Any) -> Any:
    """A number that is whole as one."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _every(number: int, conditions: Sequence[Condition | AnyOf], filters: Sequence[Filter]) -> Filter:
    """The filter of the rows of a space that fulfil every condition."""
    near = [_is_equality(own) for own in conditions]
    if any(near):
        # Half of an index of an order is more to read than its column, which tells of the rows that the others leave.
        pairs = zip(near, filters, strict=True)
        filters = [own if is_near else Filter(*(f"({text}) IS TRUE" for text in own)) for is_near, own in pairs]
    # A column belongs to a field of one side.
    own = [] if any(map(_names_side, conditions)) else [f"kind = {number}"]
    certain, possible = (" AND ".join([*own, *texts]) for texts in list(zip(*filters, strict=True)) or ((), ()))
    return Filter(certain, possible)


def _is_equality(condition: Condition | AnyOf) -> bool:
    """Whether an index gives the items that fulfil a condition by few values of it."""
    if isinstance(condition, AnyOf):
        return not condition.negated and all(any(map(_is_equality, own)) for own in condition.alternatives)
    return condition.field != TEXT and condition.test in ("=", "in")


def _fields_of(condition: Condition | AnyOf) -> list[str]:
    """The fields of a condition."""
    if isinstance(condition, AnyOf):
        return [name for own in chain(*condition.alternatives) for name in _fields_of(own)]
    return [condition.field]


def _facets_of(metadata: str, names: Sequence[str] | None) -> set[Facet]:
    """The facets of metadata: all, or at least those of some fields, which are found sooner."""
    found = json_object(metadata) or {}
    own = found if names is None else {key: it for key, it in found.items() if any(n.startswith(key) for n in names)}
    return facets(own)


def _names_side(condition: Condition | AnyOf) -> bool:
    """Whether a condition gives items of one side only."""
    if isinstance(condition, AnyOf):
        return not condition.negated and all(any(map(_names_side, own)) for own in condition.alternatives)
    return condition.field not in (ID, TEXT) and condition.test != "!="


def _searched(side: int, name: str, path: str | None, text: str | None, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that words are searched and counted by."""
    said = text if side else item_words(name, path, metadata)
    spelled = None if said is None else words(said)
    spaced, length = (None, None) if spelled is None else (_spaced(spelled), len(spelled))
    return {"words": spaced, "length": length}


def _typed(fields: TypedFields, side: int, metadata: Mapping[str, Any], values: Values) -> dict[str, Any]:
    """The typed columns of an item; of a row of neighbours the images that are near."""
    near = metadata.get("near") if side == SPACES.index("neighbours") else None
    return {"labels": sorted(map(str, near))} if isinstance(near, list) and near else fields.columns(side, values)


def _linked(images: Collection[str]) -> dict[str, Any]:
    """The columns of the images of a text: an index of lists takes far more than one of single values."""
    return {"link": next(iter(images))} if len(images) == 1 else {"links": sorted(images) or None}


def _images_of(link: str | None, links: Sequence[str] | None) -> list[str]:
    """The ids of the images of a text, of its columns."""
    return [*([] if link is None else [link]), *(links or ())]


def _record(side: int, name: str, item: StateRow) -> str:
    """What is shown of an item as one text."""
    shown = [name, item.entry.path, item.entry.text, item.entry.metadata_json]
    return json.dumps([*shown, item.key, sorted(item.links)] if side == 1 else shown, ensure_ascii=False)


class ItemRecord(NamedTuple):
    """What the column `record` of an item says.

    Attributes:
        id: Its id.
        path: Of an image; None without one.
        text: Of a text; None for others.
        metadata: JSON.
        key: Of a text; 0 for others.
        images: Ids of the images of a text.
    """

    id: str
    path: str | None
    text: str | None
    metadata: str
    key: int = 0
    images: Sequence[str] = ()


def _shown(record: Any, where: str) -> ItemRecord:
    """What a column `record` says.

    Raises:
        SearchIndexError: If it is damaged.
    """
    with suppress(TypeError, ValueError, RecursionError):
        name, path, text, metadata, *of_text = json.loads(record)
        key, images = of_text or (0, [])
        right = isinstance(name, str) and isinstance(path, str | None) and isinstance(text, str | None)
        right = right and isinstance(metadata, str) and key in _NUMBER and isinstance(images, list)
        if right and all(isinstance(image, str) for image in images):
            return ItemRecord(name, path, text, metadata, key, images)
    raise SearchIndexError(f"{where} needs records of its items as Subtext writes them; restore a backup")


def _folded(name: str) -> str | None:
    """An id as it is searched, where that is another text."""
    folded = fold(name)
    return None if folded == name else folded


def _spaced(spelled: Sequence[str]) -> str:
    """Words, each between two spaces of its own, so that none is counted in another."""
    return "".join(f" {word} " for word in spelled)


def _hashes(row: bytes) -> list[bytes]:
    """The hashes of deleted items in one row."""
    return [row[start : start + 16] for start in range(0, len(row), 16)]


def _number_of(written: str) -> int | float:
    """A number as a list has it."""
    return int(written) if written.removeprefix("-").isdigit() else float(written)


def _counted_value(value: str | int | float) -> dict[str, Any]:
    """A value as a row of `_COUNTED`."""
    if isinstance(value, str):
        return {"word": value, "folded": fold(value)}
    return dict(zip(("number", "rest"), split_float64(value), strict=True))


def _value(text: str | None, number: Any, rest: int | None) -> str | int | float:
    """A value as it was put in."""
    if text is not None:
        return text
    return _whole(number) + (rest or 0) if math.isfinite(number) else number


def _renewing(verb: Callable[..., Any]) -> Callable[..., Any]:
    """A verb of a view that begins again where the version that it reads is removed."""

    @wraps(verb)
    def checked(view: LanceView, *values: Any, **named: Any) -> Any:
        for _ in range(ATTEMPTS):
            try:
                return verb(view, *values, **named)
            except SearchIndexError:
                if not view.renew():
                    raise
        return verb(view, *values, **named)

    return checked


def _built(dataset: Any) -> set[str]:
    """The folders of the indexes of a dataset."""
    return {str(part.uuid) for described in dataset.describe_indices() for part in described.segments}


def _index_sums(dataset: Any, uri: str) -> dict[str, str]:
    """The checksum of each file of the indexes of a dataset."""
    filesystem, folder = fs.FileSystem.from_uri(uri)
    sums = {}
    for name in sorted(_built(dataset)):
        files = fs.FileSelector(f"{folder}/_indices/{name}", recursive=True, allow_not_found=True)
        for info in filesystem.get_file_info(files):
            if info.is_file:
                digest = hashlib.blake2b(digest_size=16)
                with filesystem.open_input_stream(info.path) as stream:
                    while block := stream.read(2**20):
                        digest.update(block)
                sums[f"{name}/{info.path.partition(f'/{name}/')[2]}"] = digest.hexdigest()
    return sums


def _item_sum(digest: bytes, key: int) -> int:
    """The checksum of an item's row, whose own digest stands for its columns."""
    return row_sum(key, digest)


def _record_sum(row: Mapping[str, Any]) -> int:
    """The checksum of a row of documents, jobs or hashes of deleted items."""
    return row_sum(*(row.get(name) for name in _RECORD))


def _seal(state: Mapping[str, Any]) -> str:
    """The checksum of a state."""
    text = json.dumps({name: value for name, value in state.items() if name != "seal"}, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


for _name in (*View.__abstractmethods__, "shown_rows", "owners", "owner_links", "damage", "damaged_records"):
    setattr(LanceView, _name, _renewing(getattr(LanceView, _name)))


class StateRow(NamedTuple):
    """An item as a change finds it, or leaves it: its number, what is stored of it, and of a text ids of its images."""

    key: int
    entry: IndexEntry
    links: frozenset[str] = frozenset()


Items = dict[tuple[int, str], StateRow]
"""Items by the number of their space and their id."""


def item_numbers(side: int, name: str, item: StateRow) -> dict[str, int]:
    """What an item adds to the numbers of a state.

    Args:
        side: Number of its space.
        name: Its id.
        item: What is stored of it.

    Returns:
        Name of a number, and of a sum, -> what is added.
    """
    entry = item.entry
    numbers = {SPACES[side]: 1, "links": sum(link_sum(image, name) for image in item.links)}
    if side == 0:
        numbers["image_words"] = len(words(item_words(name, entry.path, entry.metadata)))
    elif entry.text is not None:
        numbers |= {"worded": 1, "words": len(words(entry.text))}
    return {**numbers, "items": _item_sum(entry.digest(side, item.key), item.key)}


def item_values(side: int, item: StateRow) -> Values:
    """The values of an item's metadata by their kind and field.

    Args:
        side: Number of its space.
        item: What is stored of it.

    Returns:
        The values that typed columns hold: none of what is derived of items.
    """
    return grouped(facets(json.loads(item.entry.metadata_json))) if side < len(SIDES) else {}


def item_rows(
    side: int,
    name: str,
    item: StateRow,
    vectors: NDArray[np.float32],
    fields: TypedFields,
    values: Values,
    digest: bytes | None = None,
) -> list[dict[str, Any]]:
    """The rows of an item: one that has its columns and first vector, and one for each further vector.

    Args:
        side: Number of its space.
        name: Its id.
        item: What is stored of it.
        vectors: (K D), or the first one alone, where the further ones stand in the table already.
        fields: The columns of its values.
        values: What `item_values` gives of it.
        digest: Of all its vectors; None for that of those given.

    Returns:
        The columns of each row.
    """
    entry, metadata = item.entry, json.loads(item.entry.metadata_json)
    row = {
        "kind": ITEMS + side, "key": item.key, "view": 0, "id": name, "folded": _folded(name),
        "record": _record(side, name, item), "content": entry.content,
        "stamp": entry.stamp, "digest": entry.digest(side, item.key),
        "vectors_digest": vectors_digest(vectors, item.key)[:CHECKED] if digest is None else digest,
        vector_column(SPACES[side]): vectors[0],
        **_linked(item.links if side == 1 else ()),
        **_searched(side, name, entry.path, entry.text, metadata),
        **_typed(fields, side, metadata, values),
    }  # fmt: skip
    further = enumerate(vectors[1:], start=1)
    return [row, *({"kind": FURTHER + side, "key": item.key, "view": view, "vector": own} for view, own in further)]


def _count(state: dict[str, Any], numbers: Mapping[str, int], sign: int = 1) -> None:
    """Add what `item_numbers` gives to a state; -1 takes it away."""
    for name, more in numbers.items():
        counted_in = state["sums"] if name == "items" else state
        counted_in[name] = (counted_in[name] + sign * more) % ROUND


@dataclass(eq=False)
class PendingCommit:
    """The rows that a change writes and deletes, at one version of the table.

    Attributes:
        state: As it is to be.
        gone: Ids of deleted images and texts.
        job: The number of its job.
        rows: Columns of new rows.
        where: Filters of rows that go, besides that of the state.
        fragments: That were written already, in the place of those of the numbers `replaced`.
        replaced: Numbers of fragments that go.
    """

    state: dict[str, Any]
    gone: Sequence[Sequence[str]] = ((), ())
    job: int | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    where: list[str] = field(default_factory=list)
    fragments: Sequence[FragmentMetadata] = ()
    replaced: frozenset[int] = frozenset()

    def count(self, name: str, rows: Sequence[Mapping[str, Any]], sign: int = 1) -> None:
        """Count rows in a sum of the state.

        Args:
            name: Name of the sum.
            rows: Rows that are no items.
            sign: -1 counts them no more.
        """
        sums = self.state["sums"]
        sums[name] = (sums[name] + sign * sum(map(_record_sum, rows))) % ROUND


class LanceWriter(Writer):
    """Changes an index in Lance, beside other writers; made by `LanceStore.writing`.

    Args:
        store: The index.
        tables: The table at the version that the writer begins with.
    """

    store: LanceStore

    def __init__(self, store: LanceStore, tables: LanceTables) -> None:
        super().__init__(store, store.manifest_of(tables.now))
        self.seen = tables

    def require_own(self, tables: LanceTables) -> None:
        """Require that a version of the table is a later one of the index that this writer began with.

        Args:
            tables: The table at its newest version.

        Raises:
            IndexMovedError: If another index, a copy or a backup has taken its place.
            SearchIndexError: If it was moved to another model.
        """
        self.store.require_same(tables.now)
        self.store.require_revision(self.store.manifest_of(tables.now).revision)
        # A state names its last changes only.
        near = tables.now["generation"] <= self.seen.now["generation"] + REMEMBERED // 2
        if tables.home is not self.seen.home or (near and not tables.is_kin(self.seen.now["changes"])):
            raise self.store.replaced()
        self.seen = tables

    @property
    def text_side(self) -> Path | None:
        """See `Store.text_side`; a folder that stays the index's own while it is written."""
        return None if self.store.text_side is None else Path(self.store.home.uri(self.store.table), TEXT_SIDE)

    def apply(self, change: Change) -> Applied:
        """Make a change, completely or not at all.

        Items whose metadata was to change, and which another writer has deleted meanwhile, stay deleted.

        Args:
            change: Items to put in and to delete, links, documents, and an entry of the journal.

        Returns:
            Number of deleted items of each side, and the number of the job.

        Raises:
            SearchIndexError: Also for a text that the table cannot hold.
            IndexLockedError: If others change the index all the time.
            IndexMovedError: If the storage cannot be reached.
        """
        change = change.rounded(self.manifest.numbers)
        vectors = change.checked_vectors(self.manifest.views[change.side], self.manifest.width)
        require_storable([*change.entries, *change.amended])
        draft = self.commit(lambda tables: self._draft(tables, change, vectors))
        moving = self.store.pending_move() if change.deleted else None
        if moving is not None and moving.home is self.seen.home:
            with moving.writing("delete") as writer:
                # An unfinished move takes over what is remembered at its end.
                for side, ids in zip(SIDES, draft.gone, strict=True):
                    # Also those that a deletion that was cut off has deleted here already.
                    if ids := [*ids, *(change.deleted if side == change.side else ())]:
                        writer.delete(side, ids, keep_texts=True, remember=False)
        return Applied({side: len(ids) for side, ids in zip(SIDES, draft.gone, strict=True)}, draft.job)

    @property
    def parts(self) -> LanceParts:
        """See `Writer.parts`."""
        return LanceParts(self.store)

    def add_parts(self, parts: Sequence[WrittenPart], *, fields: Mapping[str, Any], job: int, done: int) -> None:
        """Make what workers wrote into an empty index part of it, in one commit.

        Args:
            parts: All of them, as `LanceParts.write` returned them.
            fields: As `LanceParts.choose_columns` returned them.
            job: Number of the job that they belong to.
            done: Number of items that the job has processed with them.

        Raises:
            IndexLockedError: If somebody else has put items in meanwhile.
            IndexMovedError: If files of them are gone.
        """
        fragments = [FragmentMetadata.from_json(json.dumps(own)) for part in parts for own in part["fragments"]]
        self.parts.require_there(parts)

        def plan(tables: LanceTables) -> PendingCommit:
            if any(tables.now[space] for space in SPACES):
                raise IndexLockedError(
                    f"{self.store.path} was built by somebody else meanwhile; nothing of this was kept; search it, or "
                    "name another"
                )
            state = {**tables.now, **self._counted(tables), "sums": dict(tables.now["sums"]), **fields}
            for part in parts:
                _count(state, part["numbers"])
                state["key"] = max(state["key"], part["last"])
            return PendingCommit(state, job=_noted(state, JobUpdate(job, done=done)), fragments=fragments)

        self.commit(plan)

    def compact(self, *, seed: int = 0) -> list[str]:
        """Write fragments without deleted rows, remove old versions and what killed processes left, build the index.

        What is left of earlier models goes, and what was deleted from the table of an unfinished move.

        Others read and write meanwhile; while the index is built, searches of a large side compare every vector.
        Readers may go on with what they see for `GRACE` seconds.

        Args:
            seed: Of the sample that the lists of a large side are trained on.

        Returns:
            Sentences that say what was done.

        Raises:
            IndexLockedError: If somebody else compacts.
        """
        before = self.store.files()
        home = self.seen.home
        draft = self.commit(self._compacting(self.store.latest()))
        written = counted(len(draft.replaced), "fragment")
        lines = [f"{written} written anew without deleted rows; old versions were removed"]
        try:
            lines += self._indexed(seed)
        finally:
            time.sleep(GRACE)
            with translated(self.store.path):
                # An index that was replaced has the vectors of deleted items, too.
                newest = self.store.opened(home)
                newest.cleanup_old_versions(older_than=timedelta(seconds=max(GRACE, 1e-6)))
                used = set(newest.tracked_files().read_all()["path"].to_pylist())
                filesystem, folder = fs.FileSystem.from_uri(home.uri(self.store.table))
                for file in before:
                    # Whoever wrote one of these, and did not commit it before this compaction, cannot do so now. But
                    # an index is committed beside it.
                    old = file["last_modified"] <= datetime.now(UTC) - ABANDONED
                    leftover = ("data/", "_deletions/", *(("_indices/", f"{PARTS}/", HIDDEN) if old else ()))
                    if file["path"].startswith(leftover) and file["path"] not in used:
                        with suppress(FileNotFoundError):
                            filesystem.delete_file(f"{folder}/{file['path']}")
        freed = self.store.remove_unused()
        moving = self.store.pending_move()
        if moving is not None:
            with moving.writing("compact") as writer:
                self.clean_move(writer)
                writer.compact(seed=seed)
        return [*lines, *(["the vectors of an earlier model were removed"] if freed else [])]

    def _compacting(self, start: LanceTables) -> Callable[[LanceTables], PendingCommit]:
        """The plan that puts large fragments in the place of small ones, and of those with deleted rows.

        Only what is there at the start has to go: changes beside the compaction do not prolong it. The plan raises
        IndexLockedError where another compaction, which may have removed what was written here, was faster.
        """
        parts = [part for part in start.dataset.get_fragments() if part.fragment_id != start.state_fragment]
        due = {part.fragment_id for part in parts if part.num_deletions} | _mergeable(
            {part.fragment_id: part.metadata.physical_rows for part in parts if not part.num_deletions}
        )
        written: list[tuple[dict[int, Any], list[FragmentMetadata]]] = []
        tried = False

        def plan(latest: LanceTables) -> PendingCommit:
            nonlocal tried
            if latest.now["epoch"] != start.now["epoch"]:
                raise IndexLockedError(
                    f"{self.store.path} was compacted by somebody else meanwhile; there is nothing to do"
                )
            parts = {part.fragment_id: part for part in latest.dataset.get_fragments() if part.fragment_id in due}
            now = {number: part.metadata.to_json() for number, part in parts.items()}
            written[:] = [(before, new) for before, new in written if before.items() <= now.items()]
            rest = now.keys() - set(chain(*(before for before, _ in written)))
            # After the first time each by itself: that one of them is changed keeps the others from nothing.
            groups = [[n] for n in rest if parts[n].num_deletions] if tried else [sorted(rest)]
            for group in filter(None, groups):
                written.append(({n: now[n] for n in group}, self._rewritten(latest, [parts[n] for n in group])))
            tried = True
            state = {**latest.now, "epoch": latest.now["epoch"] + 1, **self._counted(latest)}
            replaced = frozenset(chain(*(before for before, _ in written)))
            return PendingCommit(state, fragments=list(chain(*(new for _, new in written))), replaced=replaced)

        return plan

    def _rewritten(self, tables: LanceTables, parts: Sequence[Any]) -> list[FragmentMetadata]:
        """Fragments of the rows of some others, without deleted ones."""
        with translated(self.store.path):
            # Lance's own compaction would take in the row of the state, and conflict with every change.
            columns, rest = used_columns(self.manifest, tables.now).names, f"kind != {STATE}"
            scanner = tables.dataset.scanner(columns=columns, fragments=parts, filter=rest, batch_size=CHUNK)
            reader = scanner.to_reader()
            return write_fragments(reader, tables.dataset, max_rows_per_file=4 * LARGE)

    def change_manifest(self, manifest: Manifest) -> None:
        """See `Writer.change_manifest`.

        Args:
            manifest: With other settings.
        """

        def plan(now: LanceTables) -> PendingCommit:
            return PendingCommit({**now.now, "manifest": manifest.to_json(), **self._counted(now)})

        self.manifest = manifest
        self.commit(plan)

    def _indexed(self, seed: int) -> list[str]:
        """Build the index of a column of vectors where a space is large, and where a search by it reads less than all.

        Until that is committed, also should this process be killed before, every vector is compared.

        Raises:
            IndexLockedError: If others change the index of the vectors as well.
        """
        view, wanted, by_hand = self.store.view(self.store.latest()), self.manifest.wanted, self.manifest.by_hand
        tables, large = view.tables, dict[str, list[LanceVectors]]()
        for space in self.manifest.spaces:
            large.setdefault(vector_column(space), []).append(view.sides[space])
        large = {column: own for column, own in large.items() if not all(space.in_memory for space in own)}
        rows = {column: sum(own.rows for own in spaces) for column, spaces in large.items()}
        if large and self._is_indexed(tables, large, rows):
            return []
        asked, samples = dict[str, dict[Space, Mapping[str, HeldOut]]](), dict[str, NDArray[np.float32]]()
        for column, spaces in large.items():
            asked[column], samples[column] = self._asked(spaces, seed)
        exact, built = dict[str, str](), dict[str, tuple[dict[Space, ListSearch], NDArray[np.float32]]]()
        for column, spaces in large.items():
            searches, centroids = self._chosen(spaces, asked[column], samples[column], seed)
            for own in [own for own in spaces if own.side in searches]:
                cost, whole = self._cost(own, rows[column], searches[own.side]), self._bytes(own)
                if cost >= whole and not by_hand:
                    del searches[own.side]
                    exact[own.side] = f"every vector is compared: that reads {size(whole)}, and by lists {size(cost)}"
            if searches:
                built[column] = searches, centroids
        try:
            with translated(self.store.path):
                own = self.store.opened(self.seen.home)
                self.require_own(LanceTables(own, self.store.path, self.seen.home))
                unwanted = [name for column, name in INDEXES.items() if column not in built]
                names = [index.name for index in own.describe_indices() if index.name in unwanted or not large]
                for name in names:
                    own.drop_index(name)
                if not large:
                    return ["the index of the vectors was dropped: every vector is compared"] if names else []
                before = LanceTables(own, self.store.path, self.store.home)
                for column, (searches, centroids) in built.items():
                    bits = next(iter(searches.values())).bits
                    own.create_index(
                        column, name=INDEXES[column], metric="dot", num_partitions=len(centroids),
                        ivf_centroids=centroids, replace=True, **lance_lists.index_options(bits),
                    )  # fmt: skip
                vectors = {
                    column: sum(before.state(own.side) * self.manifest.views_of(own.side) for own in spaces)
                    for column, spaces in large.items()
                }
                for column, kind in {**SCALARS, **before.fields.indexes()}.items():
                    # Of few values a bitmap each is smaller, and less to read. Orders would read it once a value.
                    is_small = column.startswith("text_") and before.is_of_few_values(column)
                    own.create_scalar_index(column, "BITMAP" if is_small else kind, name=column, replace=True)
                after = LanceTables(own, self.store.path, self.store.home)
                # The state is another row from the next change on.
                index = {"vectors": vectors, "wanted": wanted, "rows": after.indexed_rows - 1, "name": after.index[0]}
                index["files"] = _index_sums(own, self.seen.home.uri(self.store.table))
        except CommitConflictError as problem:
            raise IndexLockedError(
                f"{self.store.path} was changed by others while its index was built or dropped; every vector is "
                "compared; compact it again"
            ) from problem
        chosen = {column: searches for column, (searches, _) in built.items()}
        lists = self._measured(chosen, asked, rows)
        lines = ["an index of the vectors was built"] if built else []
        for name in [str(side) for own_spaces in asked.values() for side in own_spaces]:
            if name in lists and min(lists[name]["recall"].values()) < self.manifest.recall and not by_hand:
                best = _shares(lists.pop(name)["recall"])
                exact[name] = (
                    f"every vector is compared: lists find {best} at most, and {self.manifest.recall:g} "
                    "is asked; ask for less (--recall)"
                )
            lines.append(f"{name}: {_said(lists[name]) if name in lists else exact[name]}")
        useless = [INDEXES[column] for column, searches in chosen.items() if not lists.keys() & searches.keys()]
        if useless:
            with translated(self.store.path):
                for name in useless:
                    own.drop_index(name)
                index["name"] = LanceTables(own, self.store.path, self.store.home).index[0]
                index["files"] = _index_sums(own, self.seen.home.uri(self.store.table))

        def plan(now: LanceTables) -> PendingCommit:
            if index["name"] != now.index[0]:
                raise IndexLockedError(
                    f"{self.store.path} was compacted by somebody else meanwhile; there is nothing to do"
                )
            return PendingCommit({**now.now, "lists": lists, "index": index, "exact": exact, **self._counted(now)})

        self.commit(plan)
        return lines

    def _is_indexed(
        self, tables: LanceTables, large: Mapping[str, Sequence[LanceVectors]], rows: Mapping[str, int]
    ) -> bool:
        """Whether the index is that which is wanted, and has nearly all vectors, and none of deleted items."""
        known, limit = tables.now["index"], self.manifest.exact_up_to
        if not known or known["name"] != tables.index[0] or known["wanted"] != self.manifest.wanted:
            return False
        if tables.indexed_rows < known["rows"]:
            return False  # The indexes of other columns still have what was deleted of fragments that are gone.
        for column, spaces in large.items():
            had = known["vectors"].get(column, -1)
            later = sum(own.unindexed for own in spaces) if column in tables.index[1] else rows[column] - had
            if had < 0 or rows[column] - later < had or later > min(LATER * rows[column], limit):
                return False
        return known["vectors"].keys() == large.keys()

    def _asked(
        self, spaces: Sequence[LanceVectors], seed: int
    ) -> tuple[dict[Space, Mapping[str, HeldOut]], NDArray[np.float32]]:
        """Held-out queries for the large spaces of a column, and a sample of its vectors, in one pass over each."""
        of_each = dict[str, tuple[NDArray[np.int64], NDArray[np.float32]]]()
        for own in spaces:
            if own.count:
                keys, rows = own.sample(QUERIES, seed=seed)
                of_each[str(own.side)] = keys, own.tables.vectors_at(rows, own.column)
        count = self._list_counts(spaces)[-1] * ann.PER_LIST
        asked, samples = dict[Space, Mapping[str, HeldOut]](), list[NDArray[np.float32]]()
        for own in spaces:
            rows = own.sample(count, seed=seed)[1]
            if own.in_memory:
                samples.append(own.tables.vectors_at(rows, own.column))
            else:
                asked[own.side], sample = own.held_out(of_each, rows)
                samples.append(sample)
        return asked, np.concatenate(samples)

    def _list_counts(self, spaces: Sequence[LanceVectors]) -> list[int]:
        """Numbers of lists that are tried."""
        by_hand = self.manifest.by_hand
        return [by_hand["lists"]] if "lists" in by_hand else lance_lists.list_counts(sum(own.rows for own in spaces))

    def _chosen(
        self,
        spaces: Sequence[LanceVectors],
        asked: Mapping[Space, Mapping[str, HeldOut]],
        sample: NDArray[np.float32],
        seed: int,
    ) -> tuple[dict[Space, ListSearch], NDArray[np.float32]]:
        """The cheapest lists of a column, how its spaces search them, and their centroids."""
        rows, width = sum(own.rows for own in spaces), self.manifest.width_of(spaces[0].side)
        by_hand = self.manifest.by_hand
        counts = self._list_counts(spaces)
        counts = [count for count in counts if count <= len(sample)] or [len(sample)]
        centroids = [lance_lists.centroids_of(sample, count, seed=seed) for count in counts]
        coded = lance_lists.BITS if width % 8 == 0 else (lance_lists.WHOLE,)
        coded = (by_hand["bits"],) if "bits" in by_hand and width % 8 == 0 else coded
        drawn = sample[draw.permutation(len(sample), seed=seed, epoch=0, purpose="lists: error")[: lance_lists.SAMPLE]]
        # More lists have less error: that of the fewest is taken for all but a single one.
        errors = [{bits: lance_lists.coding_error(drawn, own, bits) for bits in coded} for own in centroids[:2]]
        errors += errors[-1:] * (len(centroids) - len(errors))
        large = {own.side: own for own in spaces if own.side in asked}
        least = {side: own.least(ann.DEPTH) for side, own in large.items()}
        first = next(iter(large.values()))
        chosen = lance_lists.cheapest(
            asked, centroids, errors, ann.wanted(self.manifest.recall), least, by_hand,
            lambda search: self._cost(first, rows, search),
        )  # fmt: skip
        count = next(iter(chosen.values())).lists
        return chosen, next(own for own in centroids if len(own) == count)

    def _cost(self, own: LanceVectors, rows: int, search: ListSearch) -> int:
        """Bytes that a search reads of lists of so many vectors; see `ListSearch.cost`."""
        number = NUMBERS_OF[self.manifest.numbers]
        return search.cost(rows, self.manifest.width_of(own.side), number, self.manifest.cache)

    def _bytes(self, own: LanceVectors) -> int:
        """Bytes that a search reads that compares every vector."""
        return own.rows * self.manifest.width_of(own.side) * NUMBERS_OF[self.manifest.numbers]

    def _measured(
        self,
        searches: Mapping[str, Mapping[Space, ListSearch]],
        asked: Mapping[str, Mapping[Space, Mapping[str, HeldOut]]],
        rows: Mapping[str, int],
    ) -> dict[str, dict[str, Any]]:
        """Space -> how its lists are searched, and what that finds of the nearest items of held-out queries."""
        measured, view = dict[str, dict[str, Any]](), self.store.view(self.store.latest())
        for column, own in searches.items():
            for space, search in own.items():
                vectors, queries = view.sides[space], asked[column][space]
                enough, recall = lance_lists.measured(
                    search,
                    partial(vectors.found, asked=queries),
                    ann.wanted(self.manifest.recall),
                    self.manifest.by_hand,
                )
                cost = self._cost(vectors, rows[column], enough)
                measured[str(space)] = {**asdict(enough), "bytes": cost, "recall": recall}
        return measured

    def _counted(self, tables: LanceTables) -> dict[str, Any]:
        """The numbers of the state after one more change."""
        revision = Revision(self.manifest.identity, tables.now["generation"], tables.now["change"]).next()
        return {"generation": revision.generation, "change": revision.change}

    def commit(self, plan: Callable[[LanceTables], PendingCommit]) -> PendingCommit:
        """Make what a plan says of the newest version, again and again while others are faster.

        Args:
            plan: From the newest version to what is written.

        Returns:
            What was committed.

        Raises:
            IndexLockedError: If others change the index all the time.
        """
        token, failures = uuid.uuid4().hex, 0
        draft: PendingCommit | None = None
        for attempt in range(ATTEMPTS):
            try:
                tables = self.store.latest()
                if draft is not None and token in tables.now["changes"]:
                    break  # The answer to a commit that was made got lost.
                self.require_own(tables)
                draft = plan(tables)
                self._write(tables, draft, token)
                break
            except CommitConflictError:
                _wait(attempt)
            except SearchIndexError as problem:
                failures += 1
                # Or a compaction has removed the version that was read.
                again = isinstance(problem, IndexMovedError) or self.store.latest() is not tables
                if not again or failures == FAILURES:
                    raise
        else:
            raise IndexLockedError(
                f"{self.store.path} is being changed by others all the time: {ATTEMPTS} attempts failed; nothing was "
                "kept; do it again"
            )
        assert draft is not None
        self.manifest = self.manifest.at(
            Revision(self.manifest.identity, draft.state["generation"], draft.state["change"])
        )
        return draft

    def _write(self, tables: LanceTables, draft: PendingCommit, token: str) -> None:
        """Commit a draft; small fragments before it are merged with its rows."""
        dataset, columns = tables.dataset, used_columns(self.manifest, draft.state)
        predicate = " OR ".join(f"({where})" for where in [f"kind = {STATE}", *draft.where])
        with translated(self.store.path):
            fragments = {part.fragment_id: part for part in dataset.get_fragments()}
            touched = tables.scan([], predicate, {"with_row_address": True})["_rowaddr"].to_numpy() >> 32
            others = [part for part in fragments.values() if part.fragment_id != tables.state_fragment]
            count = _merged([part.metadata.physical_rows for part in reversed(others)], len(draft.rows))
            merged = others[len(others) - count :]
            numbers = {part.fragment_id for part in merged} | draft.replaced
            changed = {number: fragments[number].delete(predicate) for number in sorted({*touched.tolist()} - numbers)}
            new = list(draft.fragments)
            if draft.rows:
                rows = [iter(_as_table(draft.rows, columns).to_batches())]
                if merged:
                    names, rest = columns.names, f"NOT ({predicate})"
                    options = {"columns": names, "filter": rest, "fragments": merged, "batch_size": CHUNK}
                    rows.insert(0, dataset.scanner(**options).to_batches())
                written = pa.RecordBatchReader.from_batches(columns, chain.from_iterable(rows))
                new += write_fragments(written, dataset)
            # In a file of its own, so that the next change need not mark it as deleted among other rows.
            state = {**draft.state, "changes": [*draft.state["changes"], token][-REMEMBERED:]}
            # Damage from before the change stays to be seen.
            state["seal"] = _seal(state) if tables.is_sealed else ""
            new += write_fragments(_state_row(state, columns), dataset)
            operation = lance.LanceOperation.Update(
                removed_fragment_ids=sorted(numbers.union(n for n, part in changed.items() if part is None)),
                updated_fragments=[part for part in changed.values() if part is not None],
                new_fragments=new,
                fields_modified=[],
            )
            self.store.require_unchanged(tables)
            lance.LanceDataset.commit(dataset, operation, read_version=dataset.version, max_retries=0)
            if dataset.version % REMEMBERED == 0:
                with suppress(OSError, ValueError):
                    dataset.cleanup_old_versions(older_than=OLD)

    def _draft(self, tables: LanceTables, change: Change, vectors: NDArray[np.float32]) -> PendingCommit:
        """The commit of a change."""
        if change.since not in (None, tables.now["change"]):
            raise IndexLockedError(f"{self.store.path} was changed meanwhile; nothing of this was kept; do it again")
        if change.unless_deleted and tables.now["deleted"]:
            rows = tables.scan(_RECORD, f"kind = {DELETED}").to_pylist()
            change = replace(change, vectors=vectors).without(set(_hashes(b"".join(row["content"] for row in rows))))
            assert change.vectors is not None
            vectors = change.vectors
        number = SIDES.index(change.side)
        state = {**tables.now, **self._counted(tables), "sums": dict(tables.now["sums"])}
        names: list[set[str]] = [{image for image, _ in change.links}, {text for _, text in change.links}]
        names[1] |= change.exact_texts
        names[number] |= {entry.id for entry in (*change.entries, *change.amended)} | set(change.deleted)
        before = tables.stored(0, "id", tables.storable(sorted(names[0])))
        before |= tables.stored(1, "id", tables.storable(sorted(names[1])))
        gone: list[list[str]] = [[], []]
        gone[number] = [name for name in dict.fromkeys(change.deleted) if (number, name) in before]
        deleted = set(gone[0])
        if deleted:
            before |= tables.stored(1, "key", [key for key, _ in tables.linked_with(gone[0])])
        after, new = dict(before), dict[int, NDArray[np.float32]]()
        for entry, own in zip(change.entries, vectors, strict=True):
            state["key"] += 1
            former = before.get((number, entry.id))
            after[number, entry.id] = StateRow(state["key"], entry, former.links if former else frozenset())
            new[state["key"]] = own
        for entry in change.amended:
            if item := after.get((number, entry.id)):
                after[number, entry.id] = item._replace(entry=entry)
        links = {name: set(item.links) for (side, name), item in after.items() if side}
        links |= {name: set() for name in change.exact_texts & links.keys()}
        for image, text in change.links:
            if (0, image) in after and text in links:
                links[text].add(image)
        for text, images in links.items():
            if images & deleted and not (images - deleted or change.keep_texts):
                gone[1].append(text)
            after[1, text] = after[1, text]._replace(links=frozenset(images - deleted))
        hashes = list(change.remembered)
        for own, ids in enumerate(gone):
            for name in ids:
                del after[own, name]
        self._derive(tables, change, (before, after, new), state)
        for own, ids in enumerate(gone):
            hashes += [deletion_hash(SIDES[own], name) for name in ids] if change.remember else []
        draft = PendingCommit(state, gone, None if change.job is None else _noted(state, change.job))
        self._write_items(tables, draft, before, after, new)
        self._write_deleted(tables, draft, {deletion_hash(change.side, entry.id) for entry in change.entries}, hashes)
        if change.documents:
            which = f"kind = {DOCUMENT} AND id IN ({literal(list(change.documents))})"
            draft.where.append(which)
            draft.count("documents", tables.scan(_RECORD, which).to_pylist(), -1)
        documents = [
            {"kind": DOCUMENT, "key": state["generation"], "id": name, "record": text}
            for name, text in change.documents.items()
        ]
        # Every change writes the state again: finished jobs are written once, in rows of their own.
        finished = [job for job in state["jobs"] if job[4] is not None]
        jobs = [{"kind": JOB, "key": job[0], "record": json.dumps(job)} for job in finished]
        for name, rows in (("documents", documents), ("finished", jobs)):
            draft.rows += rows
            draft.count(name, rows)
        state["jobs"] = [job for job in state["jobs"] if job[4] is None]
        return draft

    def _derive(
        self,
        tables: LanceTables,
        change: Change,
        items: tuple[Items, Items, dict[int, NDArray[np.float32]]],
        state: dict[str, Any],
    ) -> None:
        """Remove what was derived of changed items, and put in derived rows, as `SqlWriter.change_rows` does it.

        Args:
            tables: The table before the change.
            change: The change.
            items: Items before and after it, to which derived rows are added, and vectors of new ones by their keys.
            state: The numbers of the index, as they are to be.
        """
        before, after, new = items
        lenders, texts = set[str](), list[str]()
        for side, name in {**before, **after}:
            former, now = before.get((side, name)), after.get((side, name))
            other = former is None or now is None or former.key != now.key
            if side == 0:
                lenders |= {name} if other and former is not None else set()
                continue
            links = [frozenset[str]() if item is None else item.links for item in (former, now)]
            lenders |= links[0] | links[1] if other else links[0] ^ links[1]
            texts += [name] if other and former is not None else []
        if texts and state["sentences"]:
            before |= tables.stored(2, "id", texts)
        if lenders and state["neighbours"]:
            present = tables.stored(0, "id", tables.storable(sorted(lenders)))
            near = sorted({row.key for row in present.values()})
            keys = set[int]()
            for start in range(0, len(near), CHUNK):
                lent = literal([str(key) for key in near[start : start + CHUNK]])
                found = tables.scan(["key"], f"kind = 3 AND array_has_any({LABELS}, [{lent}])")
                keys |= set(found["key"].to_pylist())
            before |= tables.stored(3, "key", sorted(keys))
            before |= tables.stored(3, "id", tables.storable(sorted(lenders)))
        for space, rows in change.derived.items():
            own, number, names = SIDES.index(side_of(space)), SPACES.index(space), list(rows)
            before |= tables.stored(number, "id", tables.storable(names))
            unknown = [name for name in names if (own, name) not in before and (own, name) not in after]
            there = {**tables.stored(own, "id", tables.storable(unknown)), **after}
            for name, row in rows.items():
                if (own, name) in there:
                    state["key"] += 1
                    after[number, name] = StateRow(state["key"], row.entry(name, there[own, name].key))
                    new[state["key"]] = row.vector[None]

    def _write_items(
        self,
        tables: LanceTables,
        draft: PendingCommit,
        before: Items,
        after: Items,
        new: Mapping[int, NDArray[np.float32]],
    ) -> None:
        """Rows of new and changed items, those that go, and the numbers of the state; `new` are vectors by keys."""
        changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        keys = {items[name].key for items in (before, after) for name in changed if name in items}
        again = sorted(keys.intersection(after[name].key for name in changed if name in after) - new.keys())
        removed = sorted(keys - new.keys() - set(again))
        former: dict[int, tuple[bytes, NDArray[np.float32]]] = {}
        for start in range(0, len(again), CHUNK):
            some = again[start : start + CHUNK]
            former |= tables.first_vectors(some)
            draft.where.append(f"kind < {len(SIDES)} AND key IN ({literal(some)})")
        for start in range(0, len(removed), CHUNK):
            draft.where.append(f"kind < {STATE} AND key IN ({literal(removed[start : start + CHUNK])})")
        fields, found = TypedFields(draft.state), dict[tuple[int, str], Values]()
        for sign, items in ((-1, before), (1, after)):
            for side, name in changed:
                if item := items.get((side, name)):
                    found[side, name] = item_values(side, item)
                    fields.count(side, found[side, name], sign)
                    _count(draft.state, item_numbers(side, name, item), sign)
        draft.state |= fields.as_state()
        for side, name in changed:
            if (item := after.get((side, name))) is None:
                continue
            if item.key in new:
                draft.rows += item_rows(side, name, item, new[item.key], fields, found[side, name])
            else:
                digest, first = former[item.key]
                draft.rows += item_rows(side, name, item, first[None], fields, found[side, name], digest)

    def _write_deleted(
        self, tables: LanceTables, draft: PendingCommit, again: set[bytes], hashes: Sequence[bytes]
    ) -> None:
        """Hashes of deleted items, without those that were added again."""
        if not hashes and not (again and draft.state["deleted"]):
            return
        rows = tables.scan(_RECORD, f"kind = {DELETED}").sort_by("key").to_pylist()
        former = {row["key"]: row["content"] for row in rows}
        now = [own for own in _hashes(b"".join(former.values())) if own not in again]
        now = list(dict.fromkeys([*now, *hashes]))
        parts = {n: b"".join(now[start : start + CHUNK]) for n, start in enumerate(range(0, len(now), CHUNK), start=1)}
        changed = sorted(n for n in former | parts if former.get(n) != parts.get(n))
        draft.where += [f"kind = {DELETED} AND key IN ({literal(changed)})"] if changed else []
        written = [{"kind": DELETED, "key": n, "content": parts[n]} for n in changed if n in parts]
        draft.rows += written
        draft.count("hashes", [row for row in rows if row["key"] in changed], -1)
        draft.count("hashes", written)
        draft.state["deleted"] = len(now)


def _merged(sizes: Sequence[int], rows: int) -> int:
    """How many of the newest fragments are written again together with new rows.

    Three of at most about the size of the new rows become one with them, and so on with what that gives, up to
    `MERGE_ROWS`; where four such would be more than that, one is enough.

    Args:
        sizes: Rows of each fragment, the newest first.
        rows: Number of new rows.

    Returns:
        Number of fragments; 0 where no rows are new.

    Example:
        >>> _merged([1, 1], 1), _merged([1, 1, 1, 9, 5], 1), _merged([1, 1, 1, 5, 5, 6], 1)
        (0, 3, 6)
    """
    count, total = 0, rows
    while rows:
        limit = 4 ** (total.bit_length() // 2 + total.bit_length() % 2)
        sums = accumulate(takewhile(limit.__gt__, sizes[count:]), initial=total)
        near = list(takewhile(MERGE_ROWS.__ge__, sums))[1:]
        # Beside large ones there is no room for four.
        if len(near) < (ALIKE - 1 if ALIKE * total <= MERGE_ROWS else 1):
            break
        count, total = count + len(near), near[-1]
    return count


def _mergeable(sizes: Mapping[int, int]) -> set[int]:
    """The small fragments that together become a large one, or half as large again as the largest of them.

    What is written again leaves the index of the vectors: few new rows do not take many old ones with them.

    Args:
        sizes: Number of a fragment -> its rows.

    Returns:
        Numbers of fragments.

    Example:
        >>> _mergeable({1: 5, 2: 90_000}), _mergeable({1: 30, 2: 40, 3: 90})
        (set(), {1, 2, 3})
    """
    small = sorted((rows, number) for number, rows in sizes.items() if rows < LARGE)
    below = [0, *accumulate(rows for rows, _ in small)]
    last = max((n for n, (rows, _) in enumerate(small) if n and 2 * below[n] >= rows), default=-1)
    return {number for _, number in small[: last + 1]}


def _shares(recall: Mapping[str, float]) -> str:
    """What was found, in words."""
    return " and ".join(f"{share:.3f} for {of}" for of, share in recall.items())


def _said(lists: Mapping[str, Any]) -> str:
    """How lists are searched, in words."""
    return (
        f"a query searches {lists['probes']:,} of {lists['lists']:,} lists of {lists['bits']} bits a number, and reads "
        f"{lists['candidates']} vectors; recall@10 {_shares(lists['recall'])}"
    )


def _wait(attempt: int) -> None:
    """Let others go first, the longer the more often they were."""
    time.sleep(random.uniform(0, min(1.0, 0.01 * 2**attempt)))


def _noted(state: dict[str, Any], update: JobUpdate) -> int:
    """Note a job among those of a state; its number."""
    now, jobs = datetime.now(UTC).isoformat(timespec="seconds"), [list(job) for job in state["jobs"]]
    state["jobs"] = jobs
    for job in reversed(jobs):
        if job[0] == update.number:
            job[4:6] = (now, job[6]) if update.finished else (job[4], update.done)
        elif update.number is None and job[1:3] == [update.verb, update.source_json] and job[4] is None:
            job[5:] = 0, update.total
            return int(job[0])
    if update.number is not None:
        return update.number
    state["job"] += 1
    jobs.append([state["job"], update.verb, update.source_json, now, None, 0, update.total])
    return int(state["job"])


def _as_table(rows: Sequence[Mapping[str, Any]], columns: pa.Schema) -> pa.Table:
    """Rows as a table, their vectors in the numbers of its columns."""
    dtype = columns.field("vector").type.value_type.to_pandas_dtype()
    numbers = [
        {**row, **{name: own.astype(dtype) for name in INDEXES if (own := row.get(name)) is not None}} for row in rows
    ]
    return pa.Table.from_pylist(numbers if dtype == np.float16 else list(rows), schema=columns)


def _state_row(state: Mapping[str, Any], columns: pa.Schema) -> pa.Table:
    """The state as the row of a table."""
    row = {"kind": STATE, "key": 0, "record": json.dumps(state, ensure_ascii=False)}
    return pa.Table.from_pylist([row], schema=columns)


def _is_table(address: str) -> bool:
    """Whether there is a table with a version at an address."""
    try:
        lance.dataset(address, storage_options=PATIENCE)
    except ValueError as problem:
        # A process that was killed before the first commit leaves a folder without versions.
        if "was not found" in str(problem) or re.search(r"Not found: \S*/_versions\b", str(problem)):
            return False
        raise
    return True


class Home:
    """The folder of an index as it was opened: who renames it, or puts another in its place, does not exchange it.

    In an object store nothing is renamed, and the address is all there is.

    Args:
        location: Address of the index.

    Raises:
        SearchIndexError: If there is no such folder.
    """

    def __init__(self, location: str) -> None:
        self.location = location
        self._held = HeldFolder(Path(place(location)).parent) if location.startswith("lance://") else None

    @cached_property
    def _objects(self) -> tuple[Any, str]:
        """The object store, whose connection is made once, and the folder in it."""
        filesystem, folder = fs.FileSystem.from_uri(self.uri(""))
        return filesystem, f"{folder.rstrip('/')}/"

    @property
    def is_current(self) -> bool:
        """Whether the location still leads here."""
        return self._held is None or self._held.is_there

    def uri(self, table: str) -> str:
        """The address of a table in it, as Lance has it.

        Args:
            table: Name of the table.

        Returns:
            A path or an address.
        """
        return place(self.location, table) if self._held is None else str(self._held.here / table)

    def acknowledged(self, table: str) -> int:
        """The newest version of a table that Lance has noted beside it; 0 for none, and in an object store.

        Args:
            table: Name of the table.

        Returns:
            Number of the version.
        """
        if self._held is not None:
            file = Path(self.uri(table), "_versions", "latest_version_hint.json")
            with suppress(OSError, ValueError):
                noted = json_object(file.read_text()) if file.is_file() and file.stat().st_size < NOTE else None
                version = (noted or {}).get("version")
                return version if isinstance(version, int) else 0
        return 0

    def mark(self, table: str, version: int) -> Hashable:
        """What changes when another file takes the place of that which describes a version of a table.

        Args:
            table: Name of the table.
            version: The version.

        Returns:
            A value to compare; None where there is no such version.
        """
        file = f"{self.uri(table)}/_versions/{2**64 - 1 - version:020d}.manifest"
        if self.location.startswith("lance://"):
            with suppress(OSError):
                found = Path(file).stat()
                return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
            return None
        filesystem, folder = self._objects
        # Its time is in whole seconds there; the end of the file names the commit.
        name = f"{folder}{file.removeprefix(self.uri(''))}"
        with suppress(FileNotFoundError), filesystem.open_input_file(name) as end:
            size = end.size()
            end.seek(max(0, size - MANIFEST_END))
            return size, end.read()
        return None


class LanceStore(Store):
    """An index in Lance, opened.

    Args:
        location: Address of the index.
        table: Its name; by default the one in use.
        home: The folder that it lies in, as it was opened; by default what is there now.
        in_use: Whether it is the one in use, and not one that a move builds.
        earlier: Tables of earlier models, which lead to it.
        vectors: Of small sides, for all views of this process.

    Raises:
        SearchIndexError: If there is none.
        IndexMovedError: If the storage cannot be reached.
    """

    path: str
    settable = lance_lists.SETTABLE
    caches_lists = True
    keeps_spaces = True

    def __init__(self, location: str, *, table: str = "", home: Home | None = None) -> None:
        self.path, self.table, self.earlier = location, table or TABLE, list[str]()
        self.in_use = not table
        self.vectors: dict[Space, tuple[list[str], NDArray[np.int64], NDArray[np.float32]]] = {}
        self.reads_vectors = threading.Lock()
        self._opens, self._cache = threading.Lock(), CACHE
        self._session, self._ids = self._new_session(), IdFragments()
        self._tables: LanceTables | None = None
        self._thread = threading.local()
        if not self.exists(location, self.table):
            raise SearchIndexError(f"{location} needs to be an index that `subtext index build` made; there is none")
        self.home = home or Home(location)
        self._require_own()
        while (successor := self._named("moved")) and not table:
            self.earlier.append(self.table)
            if successor in self.earlier:
                raise SearchIndexError(f"{location} is damaged: its tables lead to one another; restore a backup")
            self.table, self._tables = successor, None
            self._require_own()
        self.manifest = self.manifest_of(self.latest().now)
        if self.manifest.cache != self._cache:
            self._cache, self._tables = self.manifest.cache, None
            self._session = self._new_session()
        number = pa.from_numpy_dtype(self.manifest.dtype)
        widths = {"vector": self.manifest.width, "sentence": self.manifest.width_of("sentences") or 1}
        for column, width in widths.items():
            own = self.latest().dataset.schema.field(column).type
            if (getattr(own, "list_size", None), getattr(own, "value_type", None)) != (width, number):
                raise SearchIndexError(
                    f"{location} needs vectors of {width} numbers ({number}), as its manifest says; it has {own}; "
                    "restore a backup"
                )

    @classmethod
    def create(cls, location: str, manifest: Manifest, *, table: str = "", home: Home | None = None) -> LanceStore:
        """An empty index; beyond `EXACT_UP_TO` vectors, or the manifest's, searched by lists.

        Args:
            location: Folder or address of the index.
            manifest: Describes the index: model, width and views of the vectors, root of the paths.
            table: Of a move, in the place of another one.
            home: The folder of that other one.

        Returns:
            The open index.

        Raises:
            SearchIndexError: If the name is taken.
            OutputError: If it cannot be written.
        """
        if not table:
            cls.require_free(location)
        manifest = replace(manifest, exact_up_to=min(manifest.exact_up_to, EXACT_UP_TO), generation=0)
        state = {
            "format": FORMAT,
            "manifest": manifest.to_json(),
            "change": manifest.change,
            "changes": [uuid.uuid4().hex],
            "jobs": [],
            "lists": {},
            "index": {},
            "exact": {},
            "fields": [],
            "unlisted": [0, 0],
            "sums": dict.fromkeys(SUMS, 0),
            **dict.fromkeys(NUMBERS, 0),
        }
        rows = _state_row(state | {"seal": _seal(state)}, columns_of(manifest))
        uri = home.uri(table) if home is not None else place(location, table or TABLE)
        with translated(location):
            lance.write_dataset(rows, uri, mode="create", storage_options=PATIENCE)
        return cls(location, table=table, home=home)

    @classmethod
    def exists(cls, location: str, table: str = TABLE) -> bool:
        """Whether there is an index at this location.

        Args:
            location: Address of the index.
            table: Name of the table.

        Returns:
            True if an index can be opened there.

        Raises:
            IndexMovedError: If the storage cannot be reached.
        """
        with translated(location):
            return _is_table(place(location, table))

    def latest(self) -> LanceTables:
        """The table at its newest version, of what lies at the location now.

        Returns:
            The table.
        """
        with self._opens, translated(self.path):
            tables = self._tables
            if not self.home.is_current:
                if not self.exists(self.path):
                    raise IndexMovedError(f"{self.path} was moved away or removed while it was open; open it again")
                # What was opened stays open for those who read it.
                self.home, self._session, tables = Home(self.path), self._new_session(), None
                self._ids = IdFragments()
                self._require_own()
            elif tables is not None and tables.mark != self.home.mark(self.table, tables.dataset.version):
                # Removed by a compaction, or another file by the same name: what is cached may be of the former.
                self._session, self._ids, tables = self._new_session(), IdFragments(), None
            if tables is None or tables.dataset.latest_version != tables.dataset.version:
                acknowledged = self.home.acknowledged(self.table)
                dataset = self.opened()
                if dataset.version < acknowledged:
                    raise SearchIndexError(
                        f"{self.path} has version {dataset.version:,}, of {acknowledged:,} acknowledged: the last ones "
                        "were lost, and deleted items may be back; restore a backup"
                    )
                mark = self.home.mark(self.table, dataset.version)
                tables = self._tables = LanceTables(dataset, self.path, self.home, mark, self._ids)
            return tables

    def _new_session(self) -> Any:
        """What a reader keeps in memory of indexes and of metadata."""
        return lance.Session(self._cache, CACHE)

    def require_unchanged(self, tables: LanceTables) -> None:
        """Require that a version is still that which was read, at the same place, as the last step before a commit.

        Args:
            tables: The table at a version.

        Raises:
            IndexMovedError: If another index or version has taken its place.
        """
        home = tables.home
        if not home.is_current or home.mark(self.table, tables.dataset.version) != tables.mark:
            raise self.replaced()

    def replaced(self) -> IndexMovedError:
        """The error that says that another index has taken the place of this one.

        Returns:
            The error.
        """
        return IndexMovedError(f"{self.path} was replaced by another index or a backup meanwhile; open it again")

    def opened(self, home: Home | None = None) -> Any:
        """The newest version as a dataset of its own, for work on indexes, which moves it to yet newer ones.

        Args:
            home: The folder that it lies in; by default what is at the location.

        Returns:
            A dataset of Lance.
        """
        with translated(self.path):
            uri = (home or self.home).uri(self.table)
            return lance.dataset(uri, storage_options=PATIENCE, session=self._session)

    @contextmanager
    def reading(self) -> Iterator[LanceView]:
        """The index at this moment: one version of the table; inside another such block of the thread, that one's.

        A compaction removes that version `GRACE` seconds after it has made another one, and changes do so after `OLD`.
        A reader who needs more of it then goes on at the newest one.

        Returns:
            A view, valid inside the block.
        """
        outer = getattr(self._thread, "view", None)
        self._thread.view = outer or self.view(self.latest())
        try:
            yield self._thread.view
        finally:
            self._thread.view = outer

    def view(self, tables: LanceTables) -> LanceView:
        """The index at one version.

        Args:
            tables: The table at a version.

        Returns:
            A view of that version.
        """
        self.require_same(tables.now)
        sides = {space: LanceVectors(tables, space, self) for space in SPACES}
        counts = {side: sides[side].count for side in SIDES}
        revision = self.manifest_of(tables.now).revision
        self.require_revision(revision)
        return LanceView(self.manifest, revision, counts, tables, sides, self, cache=tables.cache)

    @contextmanager
    def writing(self, verb: str) -> Iterator[LanceWriter]:
        """A writer, beside others.

        Args:
            verb: Name of the command, shown to others who want to write.

        Returns:
            A writer, valid inside the block.
        """
        tables = self.latest()
        writer = LanceWriter(self, tables)
        writer.require_own(tables)
        try:
            yield writer
        finally:
            self.manifest = writer.manifest

    def check(self) -> list[IndexIssue]:
        """Damage of the text side, vectors, facets, words and links. Reads every row and vector once.

        Returns:
            The damage; empty for an intact index.
        """
        with self.reading() as view:
            problems = [*view.damaged_records(), *(problem for space in SPACES for problem in view.damage(space))]
        if self.text_side is None:
            return problems
        problems += text_side_problems(self.text_side, self.manifest)
        if self.manifest.encoder is not None and self.sentence_side is not None:
            about = replace(self.manifest, fingerprint=self.manifest.encoder.fingerprint)
            problems += text_side_problems(self.sentence_side, about)
        return problems

    def remove(self) -> None:
        """Remove the index, with all its tables."""
        self.view(self.latest())
        moving = self.pending_move()
        with translated(self.path):
            for table in [*self.earlier, self.table, *([] if moving is None else [moving.table])]:
                lance.LanceDataset.drop(self.home.uri(table), PATIENCE)

    def pending_move(self) -> LanceStore | None:
        """The index that an unfinished move builds beside this one; None where there is none.

        Returns:
            The index; None if no move is unfinished.
        """
        table = self._named("moving")
        there = table and self.exists(self.path, table)
        return LanceStore(self.path, table=table, home=self.home) if there else None

    def _named(self, entry: str) -> str:
        """The table beside this one that its state names; "" for none.

        Raises:
            SearchIndexError: For any other place.
        """
        table = self.latest().now.get(entry) or ""
        if table and not MOVED.fullmatch(str(table)):
            raise SearchIndexError(
                f"{self.path} needs tables of its own, named items- and eight digits; its state names {table}; "
                "restore a backup"
            )
        return str(table)

    def _require_own(self) -> None:
        """Raise SearchIndexError where the table or a folder in it is a symbolic link: nothing is deleted behind it."""
        if self.path.startswith("lance://"):
            folder = Path(self.uri)
            for own in (folder, *folder.iterdir()):
                inside(own.parent, own.name)

    def create_replacement(self, manifest: Manifest) -> LanceStore:
        """Create a table for another model beside this one, or resume one for the same model.

        Args:
            manifest: Describes the new index.

        Returns:
            The new index. An unfinished replacement for the same model is resumed.
        """
        begun = self.pending_move()
        if begun is not None and begun.manifest.fingerprint == manifest.fingerprint:
            return begun
        table = f"items-{uuid.uuid4().hex[:8]}.lance"
        with self.writing("move") as writer:
            # From here on a move that was begun earlier cannot end any more: its table may go.
            writer.commit(lambda now: PendingCommit({**now.now, "moving": table}))
        self.remove_unused()
        return self.create(self.path, manifest, table=table, home=writer.seen.home)

    def replace_with(self, new: Store, *, since: Revision) -> LanceStore:
        """Let this table lead to `new`, in one commit; its rows stay in old versions until the index is compacted.

        Args:
            new: What `create_replacement` returned, with all items.
            since: Revision of this index when the replacement began.

        Returns:
            The open index in its new form.

        Raises:
            SearchIndexError: If this index has changed since that revision, or another one has taken its place.
        """
        assert isinstance(new, LanceStore)
        with self.reading() as view, new.writing("move") as writer:
            writer.apply(Change(remembered=[digest for (digest,) in view.records("deleted")]))

        def plan(tables: LanceTables) -> PendingCommit:
            if self.manifest_of(tables.now).revision != since or tables.now["moving"] != new.table:
                raise SearchIndexError(
                    f"{self.path} was changed while its items were embedded; run the command again: it embeds what is "
                    "new, and nothing else"
                )
            every = frozenset(part.fragment_id for part in tables.dataset.get_fragments())
            return PendingCommit({**tables.now, "moved": new.table, "moving": None}, replaced=every)

        with self.writing("move") as writer:
            writer.commit(plan)
        return LanceStore(self.path)

    def remove_unused(self) -> bool:
        """Remove the rows of earlier models, and tables of moves that cannot end any more; whether there were any.

        The table that a move builds beside the one in use removes nothing: it does not know which tables are used.

        Returns:
            True if something was removed.
        """
        if not self.in_use:
            return False
        with translated(self.path):
            home = self.home
            filesystem, folder = fs.FileSystem.from_uri(home.uri(self.table))
            beside = filesystem.get_file_info(fs.FileSelector(folder.rpartition("/")[0]))
            names = [info.base_name for info in beside]
            # Read after the tables were listed: a move names its table before it makes it.
            state = self.latest().now
            self.require_same(state)
            self.require_revision(self.manifest_of(state).revision)
            if self.home is not home:
                raise self.replaced()
            used = {*self.earlier, self.table, state.get("moving")}
            unused = [name for name in names if MOVED.fullmatch(name) and name not in used]
            for table in unused:
                # A move that was killed before its first commit has made a folder, and no table.
                if _is_table(home.uri(table)):
                    lance.LanceDataset.drop(home.uri(table), PATIENCE)
                else:
                    filesystem.delete_dir(f"{folder.rpartition('/')[0]}/{table}")
            freed = 0
            for table in self.earlier:
                earlier = lance.dataset(home.uri(table), storage_options=PATIENCE)
                freed += earlier.cleanup_old_versions(older_than=timedelta(seconds=max(GRACE, 1e-6))).old_versions
                for name in (TEXT_SIDE, SENTENCE_SIDE) if self.path.startswith("lance://") else ():
                    if (own := Path(home.uri(table), name)).exists():
                        shutil.rmtree(inside(own.parent, own.name))
        return bool(unused or freed)

    def require_same(self, state: Mapping[str, Any]) -> None:
        """Require that the index is still of the model that it was opened with.

        Args:
            state: State of the table.

        Raises:
            SearchIndexError: If it was moved to another model.
        """
        if state.get("moved") or self.manifest_of(state).fingerprint != self.manifest.fingerprint:
            raise SearchIndexError(f"{self.path} was moved to another model meanwhile; open it again")

    @property
    def is_bare(self) -> bool:
        """See `Store.is_bare`."""
        return super().is_bare and not LanceParts(self).begun

    @property
    def text_side(self) -> Path | None:
        """The folder of its model's text side; None in an object store, where each search would load all of it."""
        return self._text_side_of(self.table)

    def _text_side_of(self, table: str) -> Path | None:
        return Path(place(self.path, table), TEXT_SIDE) if self.path.startswith("lance://") else None

    @property
    def uri(self) -> str:
        """The address of the table, as Lance has it."""
        return self.home.uri(self.table)

    def files(self) -> list[dict[str, Any]]:
        """Each file of the table: path, size_bytes and last_modified.

        Returns:
            A dictionary per file.
        """
        with translated(self.path):
            return self.opened().all_files().read_all().to_pylist()

    def manifest_of(self, state: Mapping[str, Any]) -> Manifest:
        """The manifest of the index as of a state.

        Args:
            state: State of the table.

        Returns:
            The manifest.
        """
        manifest = Manifest.from_json(state["manifest"], where=self.path)
        # More vectors than a store is made with are never read into memory.
        manifest = replace(manifest, exact_up_to=min(manifest.exact_up_to, EXACT_UP_TO))
        return manifest.at(Revision(manifest.identity, state["generation"], state["change"]))


class LanceParts:
    """Rows of a new index that several processes write as fragments; see `store.IndexParts`.

    Args:
        store: The index, which is empty.
    """

    def __init__(self, store: LanceStore) -> None:
        self.path, self.table, self.identity = store.path, store.table, store.manifest.identity
        self._fields: Mapping[str, Any] = {}
        self._opened: LanceStore | None = store

    def __getstate__(self) -> dict[str, Any]:
        kept = {name: getattr(self, name) for name in ("path", "table", "identity", "_fields")}
        return {**kept, "_opened": None}

    @property
    def _store(self) -> LanceStore:
        """The index as this process reaches it.

        Raises:
            SearchIndexError: If it is another one, or there is none.
        """
        if self._opened is None:
            store = LanceStore(self.path)
            if store.manifest.identity != self.identity or store.table != self.table:
                raise SearchIndexError(
                    f"{self.path} is another index for this worker than for the command; every machine needs to reach "
                    "the same folder or bucket by this address"
                )
            self._opened = store
        return self._opened

    @cached_property
    def _notes(self) -> PartNotes:
        filesystem, folder = fs.FileSystem.from_uri(self._store.uri)
        return PartNotes(filesystem, folder, self.path)

    @contextmanager
    def driving(self, size: int, note: Callable[[str], None] | None) -> Iterator[int]:
        """See `store.IndexParts`.

        Args:
            size: Items of a part, if this build begins.
            note: Called with a sentence before it has to wait.

        Yields:
            The number of items of a part.
        """
        with translated(self.path):
            # Errors of what is done inside the block are not those of the storage.
            driving = self._notes.driving(size, note)
            size = driving.__enter__()
        try:
            yield size
        finally:
            driving.__exit__(None, None, None)

    def require_free(self, note: Callable[[str], None] | None) -> None:
        """See `store.IndexParts`.

        Args:
            note: Called with a sentence before it has to wait.
        """
        with translated(self.path):
            self._notes.require_free(note)

    def require_driving(self) -> None:
        """See `store.IndexParts`."""
        with translated(self.path):
            self._notes.require_driving()

    @property
    def begun(self) -> bool:
        """Whether a build has left parts, or goes on."""
        with translated(self.path):
            return self._notes.begun

    def remove(self) -> None:
        """Remove the notes on parts."""
        with translated(self.path):
            self._notes.remove()

    def choose_columns(self, metadata: Iterable[tuple[Side, Mapping[str, Any]]]) -> Mapping[str, Any]:
        """See `store.IndexParts`.

        Args:
            metadata: Side and metadata of every item, in their order.

        Returns:
            The fields with their columns and counts, as the state of the index has them.
        """
        fields = TypedFields({"fields": [], "unlisted": [0, 0]})
        for side, own in metadata:
            number = SIDES.index(side)
            fields.count(number, item_values(number, StateRow(0, IndexEntry("", b"", metadata=own))))
        self._fields = fields.as_state()
        return self._fields

    def _marked(self, mark: str) -> str:
        """The mark of a part, and of the columns that its values stand in."""
        # What follows the columns are counts, in which other parts have their share.
        columns = [entry[:5] for entry in self._fields.get("fields", ())]
        return hashlib.blake2b(json.dumps([mark, columns]).encode(), digest_size=16).hexdigest()

    def finished(self, name: str, mark: str) -> WrittenPart | None:
        """See `store.IndexParts`.

        Args:
            name: Of the part.
            mark: Of all that it was made of.

        Returns:
            The part; None if there is none, if it was made of something else, or if its rows are gone.
        """
        with translated(self.path):
            part = self._notes.read(name)
            if part is None or part.get("mark") != self._marked(mark):
                return None
            found = self._notes.filesystem.get_file_info([f"{self._notes.folder}/{file}" for file in _files_of(part)])
            return part if all(info.is_file for info in found) else None

    def write(self, name: str, mark: str, change: Change, *, key: int, derived_key: int) -> WrittenPart:
        """See `store.IndexParts`.

        Args:
            name: Of the part.
            mark: Of all that it is made of.
            change: Entries, vectors, links and derived rows.
            key: Of the first entry; the others count on.
            derived_key: Of what is derived of the first entry.

        Returns:
            The part.
        """
        manifest, side = self._store.manifest, SIDES.index(change.side)
        change = change.rounded(manifest.numbers)
        vectors = change.checked_vectors(manifest.views[change.side], manifest.width)
        require_storable(change.entries)
        links: dict[str, set[str]] = {}
        for image, text in change.links:
            links.setdefault(text, set()).add(image)
        numbers: Counter[str] = Counter()
        rows, last, fields = list[dict[str, Any]](), 0, TypedFields(self._fields)

        def add(number: int, name: str, item: StateRow, own: NDArray[np.float32]) -> None:
            nonlocal last
            rows.extend(item_rows(number, name, item, own, fields, item_values(number, item)))
            numbers.update(item_numbers(number, name, item))
            last = max(last, item.key)

        keys = {entry.id: key + row for row, entry in enumerate(change.entries)}
        for entry, own in zip(change.entries, vectors, strict=True):
            add(side, entry.id, StateRow(keys[entry.id], entry, frozenset(links.get(entry.id, ()))), own)
        for space, derived in change.derived.items():
            for entry_id, row in derived.items():
                item = StateRow(derived_key + keys[entry_id] - key, row.entry(entry_id, keys[entry_id]))
                add(SPACES.index(space), entry_id, item, row.vector[None])
        with translated(self.path):
            columns = used_columns(manifest, self._fields)
            table = _as_table(rows, columns)
            fragments = write_fragments(table, self._store.latest().dataset) if rows else []
            part = {
                "mark": self._marked(mark),
                "fragments": [fragment.to_json() for fragment in fragments],
                "numbers": dict(numbers),
                "last": last,
            }
            self._notes.write(name, part)
        return part

    def require_there(self, parts: Sequence[WrittenPart]) -> None:
        """Require that the files of parts lie where this process looks for them.

        Args:
            parts: The parts.

        Raises:
            IndexMovedError: If one is missing: the disks of two machines may have the same path.
        """
        with translated(self.path):
            filesystem, folder = self._notes.filesystem, self._notes.folder
            there = {f"data/{info.base_name}" for info in filesystem.get_file_info(fs.FileSelector(f"{folder}/data"))}
        missing = [file for part in parts for file in _files_of(part) if file not in there]
        if missing:
            raise IndexMovedError(
                f"{self.path} needs the rows that workers wrote, {counted(len(missing), 'file')} of which "
                f"{'is' if len(missing) == 1 else 'are'} not there: a compaction has removed them, or the folder is "
                "another disk on a worker's machine; let every machine reach the same folder, and do it again"
            )


def _files_of(part: WrittenPart) -> list[str]:
    """The files of a part, from the folder of the table."""
    return [f"data/{file['path']}" for fragment in part["fragments"] for file in fragment["files"]]


def place(location: str, table: str = TABLE) -> str:
    """The address of a table, as Lance has it.

    Args:
        location: Address of the index.
        table: Name of the table.

    Returns:
        A path or an address.

    Raises:
        SearchIndexError: For an address without a place, or with keys or parameters.

    Example:
        >>> place("s3://archive/library/"), place("lance:///data/library")
        ('s3://archive/library/items.lance', '/data/library/items.lance')
    """
    scheme, _, path = location.partition("://")
    if not path.strip("/"):
        raise SearchIndexError(
            f"an index in LanceDB needs an address such as lance://FOLDER or s3://BUCKET/NAME; it got {location}"
        )
    if scheme != "lance" and ("?" in path or set("@:") & set(path.partition("/")[0])):
        raise SearchIndexError(
            f"an address of {scheme}:// needs to be {scheme}://BUCKET/NAME, without keys or parameters; credentials "
            "and endpoint come from the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_ENDPOINT_URL, or "
            "GOOGLE_APPLICATION_CREDENTIALS"
        )
    if scheme == "lance":
        return str(Path(path).expanduser().absolute() / table)
    return f"{location.rstrip('/')}/{table}"
