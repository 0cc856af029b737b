"""A search index as one table of LanceDB, in a folder or an object store, for any number of readers and writers.

    lance://PATH/items.lance         a folder: the table `items` of the LanceDB database PATH
    s3://, gs://BUCKET/PATH   an object store; credentials and endpoint are those of the environment

A table in a folder also has the text side of its model as plain arrays, items.lance/query; see `search.text_side`.

Rows of the table, by `kind`: items with their first vector, further vectors of items, the state, documents, hashes of
deleted items, finished jobs. Facets and links are lists in the rows of items.

Every change, however many rows of however many kinds it touches, is one commit of Lance: new fragments, and deletions
in old ones. Every commit replaces the row of the state, so that two writers that began at the same version conflict
in it: the later one begins again, a bounded number of times. A change that was committed, although its answer was
lost on the way, is recognised in the state. What a killed process leaves are files that no version names.

Small sides are compared from memory, as a folder does; a reader fetches what is new. Beyond `Manifest.exact_up_to`
vectors Lance's IVF index finds candidates, which are scored again: hits and scores are those of a folder. Vectors that
came after the index are compared until `compact` builds it again.

A move to another model builds a table `items-NUMBER` beside the one in use, whose state names it. Its last commit
empties the old table but for a state that leads to the new one: whoever changes the old one meanwhile conflicts.
"""

from __future__ import annotations

import json
import math
import random
import re
import shutil
import threading
import time
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, wraps
from itertools import chain
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance.commit import CommitConflictError
from lance.fragment import FragmentMetadata, write_fragments
from numpy.typing import NDArray
from pyarrow import fs

from subtext.data.atomic import HIDDEN
from subtext.errors import IndexError_, OutputError, counted, listed
from subtext.ops import draw
from subtext.search import ann
from subtext.search.condition import facets
from subtext.search.index_files import inside
from subtext.search.manifest import Manifest
from subtext.search.segments import MARGIN, Segment, SegmentTable
from subtext.search.stores.item import (
    LONGEST,
    NO_HITS,
    SIDES,
    Applied,
    Change,
    Entry,
    FieldValues,
    Hits,
    Item,
    JobUpdate,
    Row,
    Side,
    deletion_hash,
    json_object,
    link_sum,
    vectors_digest,
)
from subtext.search.stores.sql import ROUND, Part, Scalar, SqlView, Tables, require_storable, with_facet
from subtext.search.stores.store import Problem, Stats, Store, StoreGone, View, Writer, WriterBusy
from subtext.search.text_side import FOLDER as TEXT_SIDE, text_side_problems
from subtext.search.words import LEAST, LENGTH, SATURATION, words

# Processes that Subtext forks, such as those that decode images, use no index.
warnings.filterwarnings("ignore", message="lance is not fork-safe")

TABLE = "items.lance"
MOVED = re.compile(r"items-[0-9a-f]{8}\.lance")
"""The table of an index after a move, or during it."""
ITEMS, FURTHER, STATE, DOCUMENT, DELETED, JOB = 0, 2, 4, 5, 6, 7
"""Kinds of rows; those of items are ITEMS + the number of their side, and of their further vectors FURTHER + it."""
EXACT_UP_TO = 50_000
"""Vectors of a side that are all compared by default: a reader has them in memory."""
LATER = 0.1
"""Share of the vectors that may have come after the index, before it is built again."""
ATTEMPTS, FAILURES, REWRITES = 60, 3, 30
"""How often a change is tried while others change the index; while the storage fails; and a compaction is."""
ABANDONED = timedelta(days=1)
"""Age from which on the files of an index that was never finished are those of a killed process."""
GRACE = 3.0
"""Seconds after a compaction in which readers may go on with the version before it."""
OLD = timedelta(minutes=10)
"""Age of versions that are removed on the way."""
MERGE_ROWS, LARGE = 32_768, 262_144
"""Small fragments are merged up to so many rows by changes, and up to so many by a compaction."""
CHUNK = 8192
"""Values that one filter names, rows that are read at a time, and hashes of deleted items in a row."""
DEEPEST = 65_536
"""Rows that the index finds at most where a filter passes few of them."""
REMEMBERED = 64
"""Changes that the state names."""
NUMBERS = ("generation", "key", *SIDES, "worded", "words", "links", "deleted", "epoch")
"""Numbers of the state."""
PATIENCE = {"client_max_retries": "6", "client_retry_timeout": "30"}
"""How often a request to an object store is repeated, and for how many seconds."""
CACHE = 2**28
"""Bytes of indexes, and of metadata, that a reader has in memory."""
QUERIES = 64
"""Vectors of each side that the number of lists to search is measured with."""

_ITEM = ["key", "id", "path", "text", "metadata", "content", "stamp", "digest", "links"]
_RELATIONS = (
    "WITH items AS (SELECT kind AS side, key, id, folded FROM dataset WHERE kind < 2), "
    "facets AS (SELECT side, key, f['name'] AS name, f['word'] AS word, f['folded'] AS folded, f['number'] AS number, "
    "f['rest'] AS rest FROM (SELECT kind AS side, key, unnest(facets) AS f FROM dataset WHERE kind < 2) AS lists) "
)


def schema(width: int) -> pa.Schema:
    """The columns of an index.

    folded, words, length   of the id, and of a text, as they are searched
    facets                  what the metadata is filtered by; a number is `number` + `rest`, exactly
    links                   of a text: the ids of its images
    vectors_digest          of all vectors of the item: what `verify` compares
    """
    facet = [("name", pa.string()), ("word", pa.string()), ("folded", pa.string()), ("number", pa.float64())]
    texts = dict.fromkeys(["id", "path", "text", "metadata", "stamp", "folded", "words"], pa.string())
    return pa.schema(
        {
            "kind": pa.int8(), "key": pa.int64(), "view": pa.int16(), **texts,
            "content": pa.binary(), "digest": pa.binary(), "vectors_digest": pa.binary(), "length": pa.int32(),
            "links": pa.list_(pa.string()), "facets": pa.list_(pa.struct([*facet, ("rest", pa.int16())])),
            "vector": pa.list_(pa.float32(), width),
        }
    )  # fmt: skip


def literal(value: Any) -> str:
    """A value as SQL has it; a list as its values.

    >>> literal("it's"), literal(None), literal([1, 2.5]), literal([])
    ("'it''s'", 'NULL', '1, 2.5', 'NULL')
    """
    if isinstance(value, list | tuple):
        return ", ".join(map(literal, value)) or "NULL"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if value is None or value != value:
        return "NULL"
    return f"CAST('{value}' AS DOUBLE)" if isinstance(value, float) and math.isinf(value) else repr(value)


def halves(number: float) -> tuple[float, int]:
    """A number as the nearest float64 and the rest, which together are exact for whole numbers of 64 bits.

    >>> halves(2**60 + 1), halves(0.5), halves(-0.0)
    ((1.152921504606847e+18, 1), (0.5, 0), (0.0, 0))
    """
    try:
        nearest = float(number or 0)
    except OverflowError:
        return math.inf if number > 0 else -math.inf, 0
    return nearest, int(number) - int(nearest) if isinstance(number, int) and abs(number) < 2**63 else 0


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Inside the block what Lance and its storage refuse becomes one of the project's errors."""
    try:
        yield
    except CommitConflictError:
        raise  # An OSError to Python; whoever commits knows what to do.
    except (OSError, ValueError, RuntimeError) as problem:
        # Without the places in Lance's source.
        brief = str(problem).partition(", /")[0].strip().replace("\n", "; ")[:300]
        if any(reason in str(problem) for reason in ("No space left", "Permission denied", "Read-only")):
            text = f"{where} needs to be written, and cannot be: {brief}; what stood there before still stands"
            raise OutputError(text) from problem
        if isinstance(problem, OSError) or any(sign in str(problem) for sign in ("LanceError(IO)", "Not found: ")):
            raise StoreGone(
                f"{where} needs its storage, which cannot be reached, or has been compacted meanwhile: {brief}; no "
                "change is half made; do it again"
            ) from problem
        raise IndexError_(f"{where} cannot be used: {brief}; `subtext index verify` says what is wrong") from problem


def _is_number(value: object, least: int = 0, most: int = 2**63 - 1) -> bool:
    return type(value) is int and least <= value <= most


def _is_job(job: object) -> bool:
    """Whether this is a job as `_noted` writes it."""
    if not isinstance(job, list) or len(job) != 7 or not all(map(_is_number, (job[0], *job[5:]))):
        return False
    _, verb, source, started, finished, _, _ = job
    texts = isinstance(verb, str) and isinstance(started, str) and isinstance(finished, str | None)
    return texts and (source is None or json_object(source) is not None)


def _wrong(now: dict[str, Any], rows: int) -> str:
    """What of a state is missing, or of another type or range; empty where nothing is."""
    lists, index = now.get("lists"), now.get("index", {})
    right = {name: _is_number(now.get(name)) for name in NUMBERS} | {
        "job": _is_number(now.get("job", 0)),
        "manifest": isinstance(now.get("manifest"), str),
        "changes": isinstance(now.get("changes"), list),
        "jobs": isinstance(now.get("jobs"), list) and all(map(_is_job, now["jobs"])),
        "lists": isinstance(lists, dict)
        and all(
            side in SIDES
            and isinstance(own, dict)
            and _is_number(own.get("lists"), 1, 2**31)
            and _is_number(own.get("probes"), 1, own["lists"])
            for side, own in lists.items()
        ),
        "index": index == {}
        or (isinstance(index, dict) and isinstance(index.get("name"), str) and _is_number(index.get("vectors"))),
    }
    wrong = next((name for name, is_right in right.items() if not is_right), "")
    # The table of an earlier model has lost its rows, and leads to the one in use.
    too_few = not wrong and not now.get("moved") and now["images"] + now["texts"] > rows
    return "images and texts" if too_few else wrong


class LanceTables(Tables):
    """The table of an index at one version.

    state  numbers and lists of the index: see `_first_state`
    """

    def __init__(self, dataset: Any, where: str) -> None:
        self.dataset, self.where = dataset, where
        rows = self.scan(["text"], f"kind = {STATE}")
        if rows.num_rows != 1:
            raise IndexError_(f"{where} needs one row of its state, and has {rows.num_rows}; restore a backup")
        now = json_object(rows["text"][0].as_py())
        with translated(where):
            physical = sum(part.metadata.physical_rows for part in dataset.get_fragments())
        if now is None or (wrong := _wrong(now, physical)):
            what = f"JSON of at most {LONGEST:,} characters" if now is None else f"'{wrong}' as Subtext writes it"
            raise IndexError_(f"{where} needs a state with {what}; it has another; restore a backup")
        self.now = now

    def scan(
        self, columns: Sequence[str], where: str, *, row_ids: bool = False, nearest: Mapping[str, Any] | None = None
    ) -> pa.Table:
        """Columns of the rows that fulfil a filter, of those that are nearest to a vector."""
        with translated(self.where):
            return self.dataset.to_table(
                columns=list(columns), filter=where, with_row_id=row_ids, nearest=nearest, prefilter=True,
                disable_scoring_autoprojection=True,
            )  # fmt: skip

    def query(self, statement: str, *values: Any) -> pa.Table | None:
        """What a statement on `items`, `facets` and `dataset` gives; None for no rows."""
        parts = statement.replace("= ANY(?", "IN (?").replace("::text[])", ")").replace("::bigint[])", ")").split("?")
        written = parts[0] + "".join(literal(value) + part for value, part in zip(values, parts[1:], strict=True))
        with translated(self.where):
            batches = self.dataset.sql(_RELATIONS + written).build().to_batch_records()
        return pa.Table.from_batches(batches) if batches else None

    def run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows that a statement gives; see `sql.Tables`."""
        table = self.query(statement, *values)
        return [] if table is None else list(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def keys(self, statement: str, *values: Any) -> NDArray[np.int64]:
        """The keys that a statement gives, in any order."""
        table = self.query(statement, *values)
        return np.zeros(0, dtype=np.int64) if table is None else table.column(0).to_numpy().astype(np.int64)

    def state(self, name: str) -> int:
        """One number of the store's state."""
        return int(self.now[name])

    def records(self, side: int, column: str, values: Sequence[Any]) -> list[dict[str, Any]]:
        """The items of a side that have one of these keys or ids, with the ids that they are linked with."""
        if not values:
            return []
        if len(values) <= CHUNK:
            return self.scan(_ITEM, f"kind = {side} AND {column} IN ({literal(list(values))})").to_pylist()
        chosen, records = pa.array(values, schema(1).field(column).type), list[dict[str, Any]]()
        for batch in self.batches(_ITEM, f"kind = {side}"):
            records += batch.filter(pc.is_in(batch[column], chosen)).to_pylist()
        return records

    def linked_with(self, images: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
        """The key of each text that is linked with any of some images, and those of them that it is linked with."""
        few, chosen = len(images) <= CHUNK, set(images)
        where = f"array_has_any(links, [{literal(list(images))}])" if few else "links IS NOT NULL"
        for batch in self.batches(["key", "links"], f"kind = 1 AND {where}"):
            for key, linked in zip(batch["key"].to_pylist(), batch["links"].to_pylist(), strict=True):
                if own := [image for image in linked if image in chosen]:
                    yield key, own

    def rows(
        self, side: Side, *, keys: Sequence[int] | None = None, ids: Sequence[str] | None = None, links: bool = False
    ) -> list[Row]:
        """The rows of these keys, or of these ids; see `View.rows`."""
        number = SIDES.index(side)
        column, values = ("key", list(keys or ())) if ids is None else ("id", self.storable(ids))
        records = self.records(number, column, values)
        partners: dict[str, list[int]] = {}
        if links and records and number == 0:
            for key, linked in self.linked_with([record["id"] for record in records]):
                for image in linked:
                    partners.setdefault(image, []).append(key)
        elif links and records:
            images = sorted({image for record in records for image in record["links"] or ()})
            own = {image["id"]: image["key"] for image in self.records(0, "id", images)}
            partners = {
                record["id"]: [own[image] for image in record["links"] or () if image in own] for record in records
            }
        return [_row(record, tuple(sorted(partners.get(record["id"], ())))) for record in records]

    def batches(self, columns: Sequence[str], where: str) -> Iterator[pa.RecordBatch]:
        """Columns of the rows that fulfil a filter, block by block, as they lie in the storage."""
        with translated(self.where):
            yield from self.dataset.scanner(columns=list(columns), filter=where, batch_size=CHUNK).to_batches()

    def vectors(self, where: str, columns: Sequence[str] = ("key", "view")) -> Iterator[tuple[Any, NDArray[Any]]]:
        """Columns and (n D) vectors of rows, block by block."""
        for batch in self.batches([*columns, "vector"], where):
            yield batch, as_matrix(batch["vector"])

    def vectors_at(self, rows: NDArray[np.uint64]) -> Iterator[NDArray[np.float32]]:
        """(n D) vectors of rows of the table, block by block."""
        for start in range(0, len(rows), CHUNK):
            with translated(self.where):
                block = self.dataset._take_rows(rows[start : start + CHUNK].tolist(), columns=["vector"])
                yield as_matrix(block["vector"])

    @cached_property
    def index(self) -> tuple[str, set[int]]:
        """What the index of the vectors is named by, "" where there is none; and the fragments that it contains."""
        with translated(self.where):
            indexes = [
                described for described in self.dataset.describe_indices() if described.field_names == ["vector"]
            ]
        parts = list(chain(*(described.segments for described in indexes)))
        return " ".join(sorted(str(part.uuid) for part in parts)), set(chain(*(part.fragment_ids for part in parts)))

    @property
    def lists(self) -> Mapping[str, Any]:
        """Side -> what was measured of the index's lists; empty where it is another index by now."""
        measured: Mapping[str, Any] = self.now["lists"]
        name = self.now.get("index", {}).get("name")
        return measured if measured and name in (None, self.index[0]) else {}

    def files(self) -> set[str]:
        """The files of this version that hold rows and deletions, and folders of indexes, below the table's place."""
        names = {
            f"_indices/{part.uuid}" for described in self.dataset.describe_indices() for part in described.segments
        }
        for fragment in (fragment.metadata for fragment in self.dataset.get_fragments()):
            names |= {f"data/{file.path}" for file in fragment.files}
            if fragment.deletion_file is not None:
                names.add(fragment.deletion_file.path(fragment.id))
        return names


def _row(record: Mapping[str, Any], links: tuple[int, ...] = ()) -> Row:
    return Row(*[*(record[name] for name in _ITEM[:-1]), links])


def as_matrix(column: Any) -> NDArray[np.float32]:
    """(n D) vectors of a column."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    parts = [part.flatten().to_numpy(zero_copy_only=False).reshape(-1, part.type.list_size) for part in chunks]
    return np.concatenate(parts) if parts else np.zeros((0, column.type.list_size), dtype=np.float32)


@dataclass(eq=False)
class LanceVectors:
    """The vectors of one side at one moment.

    count  items of the side
    store  has the vectors of small sides, for all moments
    cache  what was read of this moment, for all views of it
    """

    tables: LanceTables
    side: Side
    count: int
    manifest: Manifest
    store: LanceStore
    cache: dict[str, Any]

    @property
    def where(self) -> str:
        """The rows that have the vectors."""
        number = SIDES.index(self.side)
        return f"kind IN ({ITEMS + number}, {FURTHER + number})"

    @property
    def rows(self) -> int:
        """Vectors of the side."""
        return self.count * self.manifest.views[self.side]

    @property
    def in_memory(self) -> bool:
        """Whether a reader has the vectors in memory."""
        return self.rows <= self.manifest.exact_up_to

    @property
    def unindexed(self) -> int:
        """Vectors that every search compares: those that came after the index."""
        name = f"unindexed {self.side}"
        if name not in self.cache:
            indexed = self.tables.index[1]
            with translated(self.tables.where):
                rest = [part for part in self.tables.dataset.get_fragments() if part.fragment_id not in indexed]
                # A fragment's own `count_rows` keeps Python's lock while it waits for threads that may wait for it.
                remaining = self.tables.dataset.scanner(columns=[], with_row_id=True, filter=self.where, fragments=rest)
                self.cache[name] = remaining.count_rows() if rest else 0
        return int(self.cache[name])

    def nearest(
        self, queries: NDArray[np.float32], *, top: int, among: NDArray[np.int64] | None = None, exact: bool = False
    ) -> list[Hits]:
        """The best `top` items of each of (Q L D) queries, or of those `among` these keys; see `View.nearest`."""
        if self.in_memory:
            return (
                self._matrix().nearest(queries, top=top, among=among, exact=True)
                if self.count
                else [NO_HITS] * len(queries)
            )
        possible = self.count if among is None else len(among)
        lists = self.tables.lists.get(self.side)
        if exact or lists is None or possible <= self.manifest.exact_up_to:
            return self._compared(queries, top, among)
        hits = [self.searched(query, top, among, lists) for query in queries]
        short = [number for number, own in enumerate(hits) if len(own.keys) < min(top, possible)]
        for number, own in zip(short, self._compared(queries[short], top, among) if short else [], strict=True):
            hits[number] = own
        return hits

    def vectors_of(self, keys: NDArray[np.int64]) -> NDArray[np.float32]:
        """(N K D) vectors of items, in the order of the keys; each has to be in the index."""
        if self.in_memory and self.count:
            return self._matrix().vectors_of(keys)
        unique, positions = np.unique(keys, return_inverse=True)
        owners, vectors = self.rows_of(unique)
        if len(owners) != len(unique) * self.manifest.views[self.side]:
            raise IndexError_(
                f"an index needs {self.manifest.views[self.side]} vectors of each of its {self.side}; of {len(unique)} "
                f"it has {len(owners)}; `subtext index verify` says what is wrong"
            )
        return vectors.reshape(len(unique), self.manifest.views[self.side], self.manifest.width)[positions]

    def searched(
        self, query: NDArray[np.float32], top: int, among: NDArray[np.int64] | None, lists: Mapping[str, Any]
    ) -> Hits:
        """The best items in the likeliest lists of Lance's index, and among the rows that came after it."""
        share = 1.0 if among is None else max(1e-3, len(among) / self.count)
        depth = top * self.manifest.views[self.side] + MARGIN
        probes = min(lists["lists"], math.ceil(lists["probes"] / share))
        # Where a filter passes few rows, those that lie deeper are found by comparing all that it passes.
        deepest = max(depth, min(math.ceil(depth / share), DEEPEST))
        keys, rows, vectors = [], [], []
        for view in query:
            nearest = {"column": "vector", "q": view, "k": deepest, "metric": "dot", "nprobes": probes}
            # Lance reads the vectors to rank them among rows that came later: to read them again is as many requests.
            table = self.tables.scan(["key", "vector"], self.where, nearest=nearest, row_ids=True)
            owners = table["key"].to_numpy().astype(np.int64)
            allowed = np.flatnonzero(np.ones(len(owners)) if among is None else np.isin(owners, among))[:depth]
            keys.append(owners[allowed])
            rows.append(table["_rowid"].to_numpy()[allowed])
            vectors.append(as_matrix(table["vector"].take(allowed)))
        # An index may name a row twice: vectors are those of the rows, and each row counts once.
        first = np.unique(np.concatenate(rows), return_index=True)[1]
        return self._scored(query[None], np.concatenate(keys)[first], [np.concatenate(vectors)[first]], top)[0]

    def sample(self, count: int, *, seed: int) -> NDArray[np.float32]:
        """At most `count` vectors, sampled by the seed."""
        keys = self._positions()[0].keys
        chosen = np.sort(draw.permutation(len(keys), seed=seed, epoch=0, purpose="compaction: sample")[:count])
        return self._taken(chosen)[1]

    def _compared(self, queries: NDArray[np.float32], top: int, among: NDArray[np.int64] | None) -> list[Hits]:
        """Every vector compared, or every one of some items."""
        if among is not None and len(among) <= max(CHUNK, self.count // 10):
            segment, numbers = self._positions()
            positions = segment.rows_of(np.unique(among)) if self.count else np.zeros(0, dtype=np.int64)
            return self._scored(queries, segment.keys[positions], self.tables.vectors_at(numbers[positions]), top)
        hits = [NO_HITS] * len(queries)
        for part, vectors in self.tables.vectors(self.where, ["key"]):
            keys = part["key"].to_numpy()
            allowed = slice(None) if among is None else np.isin(keys, among)
            found = self._scored(queries, keys[allowed], [vectors[allowed]], top)
            hits = [_best(*pair, top) for pair in zip(hits, found, strict=True)]
        return hits

    def _scored(
        self, queries: NDArray[np.float32], keys: NDArray[np.int64], blocks: Iterable[NDArray[np.float32]], top: int
    ) -> list[Hits]:
        """The best items of each query among rows of these keys, whose vectors come block by block."""
        hits, start = [NO_HITS] * len(queries), 0
        for vectors in blocks:
            if len(vectors):
                table = self._table(keys[start : start + len(vectors)], vectors)
                hits = [_best(*pair, top) for pair in zip(hits, table.nearest(queries, top=top), strict=True)]
            start += len(vectors)
        return hits

    def _table(self, keys: NDArray[np.int64], vectors: NDArray[np.float32]) -> SegmentTable:
        segment = Segment(Path(), None, np.ascontiguousarray(vectors), keys, None)
        return SegmentTable(
            (segment,), np.zeros(0, dtype=np.int64), None, self.manifest.views[self.side], self.manifest.exact_up_to
        )

    def _matrix(self) -> SegmentTable:
        """All vectors, in the order of their keys. Keys are never used again: only those of new items are read."""
        name = f"vectors of {self.side}"
        if name not in self.cache:
            with self.store.reads_vectors:
                keys, vectors = self.store.vectors.get(
                    self.side, (np.zeros(0, dtype=np.int64), np.zeros((0, self.manifest.width), dtype=np.float32))
                )
                live = self.tables.keys("SELECT key FROM items WHERE side = ?", SIDES.index(self.side))
                remaining = np.isin(keys, live)
                keys, vectors = keys[remaining], vectors[remaining]
                new = np.setdiff1d(live, keys)
                if len(new) and len(live) <= self.count:  # Else they may not fit into memory.
                    blocks = list(self.tables.vectors(f"{self.where} AND key >= {new.min()}"))
                    owners = np.concatenate([part["key"].to_numpy() for part, _ in blocks])
                    views = np.concatenate([part["view"].to_numpy() for part, _ in blocks])
                    order = np.lexsort((views, owners))
                    order = order[np.isin(owners[order], new)]
                    keys = np.concatenate([keys, owners[order]])
                    vectors = np.concatenate([vectors, np.concatenate([own for _, own in blocks])[order]])
                    order = np.argsort(keys, kind="stable")
                    keys, vectors = keys[order], vectors[order]
                if len(live) > self.count or len(keys) != len(live) * self.manifest.views[self.side]:
                    raise IndexError_(
                        f"{self.tables.where} needs {self.rows:,} vectors of {self.count:,} {self.side}; it has "
                        f"{len(keys):,} of {len(live):,}; `subtext index verify` says what is wrong"
                    )
                self.store.vectors[self.side] = (keys, vectors)
            self.cache[name] = self._table(keys, vectors)
        return self.cache[name]

    def _positions(self) -> tuple[Segment, NDArray[np.uint64]]:
        """The keys of all vectors in their order, and the rows of the table that they lie in."""
        name = f"rows of {self.side}"
        if name not in self.cache:
            table = self.tables.scan(["key", "view"], self.where, row_ids=True)
            keys, views, rows = (table[column].to_numpy() for column in ("key", "view", "_rowid"))
            order = np.lexsort((views, keys))
            segment = Segment(Path(), None, np.zeros((0, 0), np.float32), keys[order].astype(np.int64), None)
            self.cache[name] = (segment, rows[order])
        return self.cache[name]

    def _taken(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Keys and vectors at some of the positions."""
        segment, numbers = self._positions()
        nothing = np.zeros((0, self.manifest.width), dtype=np.float32)
        return segment.keys[positions], np.concatenate([nothing, *self.tables.vectors_at(numbers[positions])])

    def rows_of(self, keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Keys and vectors of some items, in the order of their keys."""
        return self._taken(self._positions()[0].rows_of(np.unique(keys)) if self.count else np.zeros(0, dtype=np.int64))


def _best(one: Hits, other: Hits, top: int) -> Hits:
    """The best of two lists of hits; an item that is in both counts by its better score."""
    keys, scores = np.concatenate([one.keys, other.keys]), np.concatenate([one.scores, other.scores])
    order = np.lexsort((keys, -scores))
    order = order[np.sort(np.unique(keys[order], return_index=True)[1])][:top]
    return Hits(keys[order], scores[order])


@dataclass(eq=False)
class LanceView(SqlView):
    """An index in Lance at one moment."""

    tables: LanceTables
    sides: Mapping[Side, LanceVectors]
    store: LanceStore
    renewed: bool = False
    """Whether this is a later moment than it was."""

    kinds = (
        "SELECT count(word), count(number), count(DISTINCT word) + count(DISTINCT CASE WHEN number IS NOT NULL THEN "
        "concat(number, ' ', rest) END), min(number), max(number) FROM facets WHERE side = ? AND name = ?"
    )
    common = (
        "SELECT word, number, count(*) AS many FROM facets WHERE side = ? AND name = ? GROUP BY word, number, rest "
        "ORDER BY many DESC, number, word LIMIT ?"
    )

    def renew(self) -> bool:
        """Go on at the newest version where this one was removed; whether it was."""
        with translated(self.store.path):
            versions = {each["version"] for each in self.store.opened().versions()}
        if self.tables.dataset.version in versions:
            return False
        newest = self.store.view(self.store.latest())
        self.generation, self.counts, self.cache = newest.generation, newest.counts, newest.cache
        self.tables, self.sides, self.renewed = newest.tables, newest.sides, True
        return True

    def items(self, side: Side, keys: Sequence[int] | NDArray[np.int64]) -> list[Item]:
        """The items of these keys, in their order. Raises KeyError for one that is not in the index."""
        try:
            return super().items(side, keys)
        except KeyError as problem:
            if not self.renewed:
                raise
            raise StoreGone(f"{self.store.path} was changed while it was read for long; do it again") from problem

    def stats(self) -> Stats:
        """Size and state of the table: its version, fragments, and what lists were measured."""
        unindexed = {side: vectors.unindexed for side, vectors in self.sides.items()}
        facts = {
            "version": self.tables.dataset.version,
            "fragments": len(self.tables.dataset.get_fragments()),
            "lists": self.tables.now["lists"],
        }
        return Stats(sum(size for _, size in self.store.stored()), unindexed, facts)

    def fields(self, side: Side) -> list[str]:
        """Names of the metadata fields, sorted."""
        names = self.tables.run("SELECT DISTINCT name FROM facets WHERE side = ?", SIDES.index(side))
        return sorted(name for (name,) in names if not name.endswith("@"))

    def values(self, side: Side, name: str, *, most: int, choice: int) -> FieldValues:
        """The values of a field: the `most` frequent ones where no more than `choice` are different."""
        values = super().values(side, name, most=most, choice=choice)
        common = tuple((_whole(value), count) for value, count in values.common)
        return replace(values, common=common, ends=values.ends and (_whole(values.ends[0]), _whole(values.ends[1])))

    def search_text(self, words_: str, *, top: int) -> list[tuple[int, float]]:
        """The `top` texts that contain some of the words, as (key, BM25 score), best first.

        Every text is looked through. Lance's own index of words ranks by other numbers than a folder does, and leaves
        out what came after it.
        """
        query, number = Counter(words(words_)), self.tables.state("worded")
        if not query or not number:
            return []
        where = " OR ".join(f"contains(words, {literal(f' {word} ')})" for word in query)
        # Only numbers are kept of the texts: how many texts have a word is known after the last one.
        columns = [np.zeros((0, 2 + len(query)), dtype=np.int64)]
        for batch in self.tables.batches(["key", "length", "words"], f"kind = 1 AND ({where})"):
            counts = [pc.count_substring(batch["words"], f" {word} ") for word in query]
            columns.append(np.stack([batch["key"], batch["length"], *counts], axis=1).astype(np.int64))
        keys, lengths, *often = np.concatenate(columns).T
        length = SATURATION * (1 - LENGTH + LENGTH * lengths * number / self.tables.state("words"))
        scores = np.zeros(len(keys))
        for times, own in zip(query.values(), often, strict=True):
            texts = int(np.count_nonzero(own))
            if texts > number:
                raise IndexError_(
                    f"{self.store.path} needs to count its texts; it counts {number:,}, and more have words of the "
                    "query; restore a backup"
                )
            weight = times * max(LEAST, math.log((number - texts + 0.5) / (texts + 0.5)))
            scores += weight * own * (SATURATION + 1) / (own + length)
        return [(int(keys[row]), float(scores[row])) for row in np.lexsort((keys, -scores))[:top]]

    def records(self, kind: str) -> list[tuple[Any, ...]]:
        """Other records of the index; see `View.records`."""
        if kind == "jobs":
            texts = self.tables.scan(["text"], f"kind = {JOB}")["text"].to_pylist()
            finished = [json_object(f'{{"job": {text}}}') or {} for text in texts]
            jobs = [*(job.get("job") for job in finished), *self.tables.now["jobs"]]
            if not all(map(_is_job, jobs)):
                raise IndexError_(f"{self.store.path} needs jobs as Subtext writes them; restore a backup")
            return sorted(map(tuple, jobs), key=lambda job: job[0])
        if kind == "deleted":
            rows = self.tables.scan(["content"], f"kind = {DELETED}")["content"].to_pylist()
            if None in rows:
                raise IndexError_(
                    f"{self.store.path} needs hashes of deleted items, and has an empty row; restore a backup"
                )
            return [(digest,) for row in rows for digest in _hashes(row)]
        where = f"kind = {DOCUMENT}" if kind == "documents" else f"kind = {DOCUMENT} AND id = {literal(kind)}"
        rows = self.tables.scan(["id", "key", "text"], where).to_pylist()
        return [(row["id"], row["key"]) if kind == "documents" else (row["text"],) for row in rows]

    linked = (
        "SELECT i.key FROM (SELECT unnest(links) AS image FROM ({}) AS t) AS l "
        "JOIN items i ON i.side = 0 AND i.id = l.image"
    )
    in_id = in_value = "contains(folded, ?)"
    deleted_among = View.deleted_among  # Hashes are no rows of their own here.

    def _texts_with(self, phrase: str) -> Part:
        spelled = words(phrase)
        test = "contains(words, ?)" if spelled else "kind > ?"
        return f"SELECT key, links FROM dataset WHERE kind = 1 AND {test}", [_spaced(spelled) if spelled else 1]

    def _with_values(self, side: int, name: str, values: Sequence[Scalar]) -> Part:
        numbers = [halves(value) for value in values if not isinstance(value, str)]
        tests = " OR ".join(["word = ANY(?::text[])", *["(number = ? AND rest = ?)"] * len(numbers)])
        texts = [value for value in values if isinstance(value, str)]
        return with_facet(side, name, f"({tests})", texts, *chain(*numbers))

    def _with_range(self, side: int, name: str, test: str, limit: Scalar) -> Part:
        assert not isinstance(limit, str)
        number, rest = halves(limit)
        tests = f"(number {test[0]} ? OR (number = ? AND rest {test} ?))"
        return with_facet(side, name, tests, number, number, rest)


def _whole(value: Any) -> Any:
    """A number that is whole as one."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _spaced(spelled: Sequence[str]) -> str:
    """Words, each between two spaces of its own, so that none is counted in another."""
    return "".join(f" {word} " for word in spelled)


def _hashes(row: bytes) -> list[bytes]:
    """The hashes of deleted items in one row."""
    return [row[start : start + 16] for start in range(0, len(row), 16)]


def _facet_rows(metadata: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for name, value in sorted(facets(metadata), key=str):
        if isinstance(value, str):
            rows.append({"name": name, "word": value, "folded": value.casefold(), "number": None, "rest": None})
        else:
            number, rest = halves(value)
            rows.append({"name": name, "word": None, "folded": None, "number": number, "rest": rest})
    return rows


def _renewing(verb: Callable[..., Any]) -> Callable[..., Any]:
    """A verb of a view that begins again where the version that it reads is removed."""

    @wraps(verb)
    def checked(view: LanceView, *values: Any, **named: Any) -> Any:
        for _ in range(ATTEMPTS):
            try:
                return verb(view, *values, **named)
            except IndexError_:
                if not view.renew():
                    raise
        return verb(view, *values, **named)

    return checked


for _name in View.__abstractmethods__:
    setattr(LanceView, _name, _renewing(getattr(LanceView, _name)))


@dataclass(eq=False)
class Stored:
    """An item while a change is made.

    key      its number                     links    of a text: the ids of its images
    before   what it was, where it is in the index already
    changed  whether its row is written again
    vectors  (K D) of a new item; None for those that it has
    """

    key: int
    entry: Entry
    links: set[str]
    before: tuple[Entry, frozenset[str]] | None = None
    changed: bool = False
    vectors: NDArray[np.float32] | None = None


@dataclass(eq=False)
class Draft:
    """What a change writes, at one version of the table.

    rows       columns of new rows                     vectors  (n D) of each; NaN for rows without one
    where      filters of rows that go, besides that of the state
    state      as it is to be
    gone       ids of deleted images and texts
    fragments  that were written already, in the place of those with these numbers
    """

    state: dict[str, Any]
    applied: Applied = field(default_factory=lambda: Applied(dict.fromkeys(SIDES, 0)))
    rows: list[dict[str, Any]] = field(default_factory=list)
    vectors: list[NDArray[np.float32]] = field(default_factory=list)
    where: list[str] = field(default_factory=list)
    gone: Sequence[Sequence[str]] = ()
    fragments: Sequence[FragmentMetadata] = ()
    replaced: frozenset[int] = frozenset()

    def add(self, row: dict[str, Any], vector: NDArray[np.float32]) -> None:
        """Add a row."""
        self.rows.append(row)
        self.vectors.append(vector)


class Changed(Exception):
    """Rows that a compaction has written anew were changed meanwhile."""


class LanceWriter(Writer):
    """Changes an index in Lance, beside other writers; made by `LanceStore.writing`."""

    store: LanceStore

    def apply(self, change: Change) -> Applied:
        """Make a change, completely or not at all; see `Writer.apply`.

        Items whose metadata was to change, and which another writer has deleted meanwhile, stay deleted. Raises
        IndexError_ also for a text that the table cannot hold, WriterBusy where others change the index all the time,
        and StoreGone when the storage cannot be reached.
        """
        vectors = change.checked_vectors(self.manifest.views[change.side], self.manifest.width)
        require_storable([*change.entries, *change.amended])
        draft = self.commit(lambda tables: self._draft(tables, change, vectors))
        moving = self.store.moving() if change.deleted else None
        if moving is not None:
            with moving.writing("delete") as writer:
                # An unfinished move takes over what is remembered at its end.
                for side, ids in zip(SIDES, draft.gone, strict=True):
                    # Also those that a deletion that was cut off has deleted here already.
                    if ids := [*ids, *(change.deleted if side == change.side else ())]:
                        writer.delete(side, ids, keep_texts=True, remember=False)
        return draft.applied

    def compact(self, *, seed: int = 0) -> list[str]:
        """Write fragments without deleted rows, remove old versions and what killed processes left, build the index.

        seed  of the sample that the lists of a large side are trained on

        What is left of earlier models goes, and what was deleted from the table of an unfinished move.

        Others read and write meanwhile; while the index is built, searches of a large side compare every vector.
        Readers may go on with what they see for `GRACE` seconds. Raises WriterBusy where somebody else compacts.
        """
        stored = {name for name, _ in self.store.stored() if name.startswith(("data/", "_deletions/"))}
        stored |= {name for name, _ in self.store.stored(age=ABANDONED) if name.startswith(("_indices/", HIDDEN))}
        tables = self.store.latest()
        # Only what was deleted before has to go: changes beside this compaction do not prolong it.
        due = {part.fragment_id for part in tables.dataset.get_fragments() if part.num_deletions}
        rewritten = 0
        for attempt in range(REWRITES):
            with suppress(Changed):
                rewritten += len(self.commit(self._rewritten(tables, due if attempt else None)).replaced)
            tables = self.store.latest()
            due &= {part.fragment_id for part in tables.dataset.get_fragments()}
            if not due:
                break
            _wait(attempt)
        else:
            raise self._busy(REWRITES)
        lines = [f"{counted(rewritten, 'fragment')} written anew without deleted rows; old versions were removed"]
        try:
            lines += self._indexed(seed)
        finally:
            time.sleep(GRACE)
            with translated(self.store.path):
                # An index that was replaced has the vectors of deleted items, too.
                newest = self.store.opened()
                # Whoever wrote one of the other files, and did not commit it before this compaction, cannot do so now.
                used = tables.files() | LanceTables(newest, self.store.path).files()  # While there are both versions.
                newest.cleanup_old_versions(older_than=timedelta(seconds=max(GRACE, 1e-6)))
                for name in {name for name in stored - used if name.rpartition("/")[0] not in used}:
                    with suppress(FileNotFoundError):
                        self.store.filesystem.delete_file(f"{self.store.folder}/{name}")
        freed = self.store.remove_unused()
        moving = self.store.moving()
        if moving is not None:
            with moving.writing("compact") as writer:
                writer.compact(seed=seed)
        return [*lines, *(["the vectors of an earlier model were removed"] if freed else [])]

    def _rewritten(self, tables: LanceTables, due: set[int] | None = None) -> Callable[[LanceTables], Draft]:
        """Write small fragments, and those with deleted rows, as large ones; the plan of the commit.

        due  writes these fragments alone, each by itself: a change of one does not keep the others from being replaced

        The plan raises Changed where all have changed meanwhile, and WriterBusy where another compaction, which may
        have removed what was written here, was faster.
        """
        dataset = tables.dataset
        with translated(self.store.path):
            state = dataset.to_table(columns=[], filter=f"kind = {STATE}", with_row_address=True)["_rowaddr"][0].as_py()
            parts = {part.fragment_id: part for part in dataset.get_fragments() if part.fragment_id != state >> 32}
            old = [part for part in parts.values() if part.num_deletions or part.metadata.physical_rows < LARGE]
            if len(old) == 1 and not old[0].num_deletions:
                old = []
            groups = [old] if due is None else [[part] for part in old if part.fragment_id in due]
            new: list[tuple[dict[int, Any], list[FragmentMetadata]]] = []
            for group in filter(None, groups):
                # Lance's own compaction would take in the row of the state, and conflict with every change.
                reader = dataset.scanner(fragments=group, filter=f"kind != {STATE}", batch_size=CHUNK).to_reader()
                written = write_fragments(reader, dataset, max_rows_per_file=4 * LARGE)
                new.append(({part.fragment_id: part.metadata.to_json() for part in group}, written))

        def plan(latest: LanceTables) -> Draft:
            if latest.now["epoch"] != tables.now["epoch"]:
                raise WriterBusy(f"{self.store.path} was compacted by somebody else meanwhile; there is nothing to do")
            now = {part.fragment_id: part.metadata.to_json() for part in latest.dataset.get_fragments()}
            same = [(before, written) for before, written in new if before.items() <= now.items()]
            if new and not same:
                raise Changed
            state = {**latest.now, "epoch": latest.now["epoch"] + 1, "generation": latest.now["generation"] + 1}
            fragments = list(chain(*(written for _, written in same)))
            return Draft(state, fragments=fragments, replaced=frozenset(chain(*(before for before, _ in same))))

        return plan

    def _indexed(self, seed: int) -> list[str]:
        """Build Lance's index of the vectors where a side is large, and measure how many lists a query searches."""
        view = self.store.view(self.store.latest())
        tables, sides = view.tables, list(view.sides.values())
        large = [vectors for vectors in sides if not vectors.in_memory]
        rows = sum(vectors.rows for vectors in sides)
        unindexed = sum(vectors.unindexed for vectors in sides)
        complete = rows - unindexed >= tables.now.get("index", {}).get("vectors", rows)
        lists: dict[str, dict[str, Any]] = {}
        if not large:
            with self._indexing() as own:
                names = [index.name for index in own.describe_indices()]
            if "vectors" not in names and not tables.now["lists"]:
                return []
            self._note_lists({})
            with self._indexing() as own:
                for name in names:
                    own.drop_index(name)
            lines = ["the index of the vectors was dropped: every vector is compared"]
        elif tables.lists and complete and unindexed <= min(LATER * rows, self.manifest.exact_up_to):
            return []
        else:
            count = ann.list_count(rows)
            samples = [vectors.sample(count * ann.PER_LIST, seed=seed) for vectors in sides if vectors.count]
            centroids = ann.train(np.concatenate(samples), count, seed=seed)
            if tables.now["lists"]:
                self._note_lists({})  # They say nothing of the new index, should this process be killed after it.
            with self._indexing() as own:
                before = LanceTables(own, self.store.path)
                vectors = sum(before.state(side) * self.manifest.views[side] for side in SIDES)
                own.create_index(
                    "vector", "IVF_FLAT", name="vectors", metric="dot", num_partitions=count,
                    ivf_centroids=centroids, replace=True,
                )  # fmt: skip
                index = {"name": LanceTables(own, self.store.path).index[0], "vectors": vectors}
                for column, kind in (("key", "BTREE"), ("id", "BTREE"), ("links", "LABEL_LIST")):
                    own.create_scalar_index(column, kind, name=column, replace=True)
            lists, lines = self._measured(count, seed), ["an index of the vectors was built"]
            self._note_lists(lists, index)
        for side, facts in lists.items():
            figures = [f"{facts[f'recall_of_{of}']:.3f} for {of}" for of in SIDES if f"recall_of_{of}" in facts]
            lines.append(f"{side}: a query searches {facts['probes']} lists; recall@10 {' and '.join(figures)}")
        return lines

    def _note_lists(self, lists: Mapping[str, Any], index: Mapping[str, Any] | None = None) -> None:
        """Commit what was measured of the lists of an index, and how many vectors it was built of.

        Without any every vector is compared.

        Raises WriterBusy where another compaction has built an index in its place.
        """

        def plan(now: LanceTables) -> Draft:
            if index is not None and index["name"] != now.index[0]:
                raise WriterBusy(f"{self.store.path} was compacted by somebody else meanwhile; there is nothing to do")
            new = {"lists": lists, "index": index or {}, "generation": now.now["generation"] + 1}
            return Draft({**now.now, **new})

        self.commit(plan)

    def _measured(self, count: int, seed: int) -> dict[str, dict[str, Any]]:
        """Side -> how many of `count` lists find `ann.RECALL` of the ten nearest items, and that recall."""
        measured = {}
        view = self.store.view(self.store.latest())
        samples = {own: view.sides[own].sample(QUERIES, seed=seed)[:, None] for own in SIDES if view.counts[own]}
        for side, vectors in view.sides.items():
            if vectors.in_memory:
                continue
            exact = {own: vectors.nearest(queries, top=ann.DEPTH, exact=True) for own, queries in samples.items()}
            probes, facts = max(1, count // 64), dict[str, Any]()
            while True:
                lists = {"lists": count, "probes": probes}
                facts = dict(lists)
                for own, queries in samples.items():
                    hits = [vectors.searched(query, ann.DEPTH, None, lists) for query in queries]
                    shares = [np.isin(best.keys, hit.keys).mean() for best, hit in zip(exact[own], hits, strict=True)]
                    facts[f"recall_of_{own}"] = round(float(np.mean(shares)), 4)
                if probes >= count or min(facts[f"recall_of_{own}"] for own in samples) >= ann.RECALL:
                    break
                probes = min(count, 2 * probes)
            measured[str(side)] = facts
        return measured

    def commit(self, plan: Callable[[LanceTables], Draft]) -> Draft:
        """Make what a plan says of the newest version, again and again while others are faster."""
        token, failures = uuid.uuid4().hex, 0
        draft: Draft | None = None
        for attempt in range(ATTEMPTS):
            try:
                tables = self.store.latest()
                if draft is not None and token in tables.now["changes"]:
                    break  # The answer to a commit that was made got lost.
                self.store.require_same(tables.now)
                draft = plan(tables)
                self._write(tables, draft, token)
                break
            except CommitConflictError:
                _wait(attempt)
            except StoreGone:
                failures += 1
                if failures == FAILURES:
                    raise
        else:
            raise self._busy(ATTEMPTS)
        assert draft is not None
        self.manifest = replace(self.manifest, generation=draft.state["generation"])
        return draft

    def _busy(self, attempts: int) -> WriterBusy:
        return WriterBusy(
            f"{self.store.path} is being changed by others all the time: {attempts} attempts failed; nothing was kept; "
            "do it again"
        )

    @contextmanager
    def _indexing(self) -> Iterator[Any]:
        """A dataset whose indexes are changed inside the block. Raises WriterBusy where others change them as well."""
        try:
            with translated(self.store.path):
                yield self.store.opened()
        except CommitConflictError as problem:
            raise WriterBusy(
                f"{self.store.path} was changed by others while its index was built or dropped; every vector is "
                "compared; compact it again"
            ) from problem

    def _write(self, tables: LanceTables, draft: Draft, token: str) -> None:
        """Commit a draft; small fragments before it are merged with its rows."""
        dataset = tables.dataset
        state = {**draft.state, "changes": [*draft.state["changes"], token][-REMEMBERED:]}
        predicate = " OR ".join(f"({where})" for where in [f"kind = {STATE}", *draft.where])
        columns = schema(self.manifest.width)
        with translated(self.store.path):
            fragments = {part.fragment_id: part for part in dataset.get_fragments()}
            merged: list[Any] = []
            total = len(draft.rows)
            for part in reversed(fragments.values()) if draft.rows else ():
                count = part.metadata.physical_rows
                if count > 2 * total or total + count > MERGE_ROWS:
                    break
                merged.insert(0, part)
                total += count
            numbers = {part.fragment_id for part in merged} | draft.replaced
            touched = dataset.to_table(columns=[], filter=predicate, with_row_address=True)["_rowaddr"].to_numpy()
            removed, updated = sorted(numbers), []
            for number in sorted(set((touched >> 32).tolist()) - numbers):
                changed = fragments[number].delete(predicate)
                removed += [number] if changed is None else []
                updated += [] if changed is None else [changed]
            new = list(draft.fragments)
            if draft.rows:
                table = _table(draft.rows, draft.vectors, columns)
                if merged:
                    remaining = dataset.scanner(filter=f"NOT ({predicate})", fragments=merged).to_table()
                    table = pa.concat_tables([remaining, table])
                new += write_fragments(table, dataset, columns)
            # In a file of its own, so that the next change need not mark it as deleted among other rows.
            row = {"kind": STATE, "key": 0, "text": json.dumps(state, ensure_ascii=False)}
            new += write_fragments(
                _table([row], [np.full(self.manifest.width, np.nan, np.float32)], columns), dataset, columns
            )
            operation = lance.LanceOperation.Update(
                removed_fragment_ids=removed, updated_fragments=updated, new_fragments=new, fields_modified=[]
            )
            lance.LanceDataset.commit(dataset, operation, read_version=dataset.version, max_retries=0)
            if dataset.version % REMEMBERED == 0:
                with suppress(OSError, ValueError):
                    dataset.cleanup_old_versions(older_than=OLD)

    def _draft(self, tables: LanceTables, change: Change, vectors: NDArray[np.float32]) -> Draft:
        """What a change writes and deletes."""
        side, number = change.side, SIDES.index(change.side)
        state = {"job": len(tables.now["jobs"]), **tables.now, "generation": tables.state("generation") + 1}
        names: list[set[str]] = [{image for image, _ in change.links}, {text for _, text in change.links}]
        names[1] |= change.exact_texts
        names[number] |= {entry.id for entry in (*change.entries, *change.amended)} | set(change.deleted)
        items: list[dict[str, Stored]] = [{}, {}]

        def load(own: int, column: str, values: Sequence[Any]) -> None:
            for record in tables.records(own, column, values):
                row, links = _row(record), frozenset(record["links"] or ())
                items[own].setdefault(row.id, Stored(row.key, row.entry(), set(links), (row.entry(), links)))

        for own in (0, 1):
            load(own, "id", tables.storable(sorted(names[own])))
        removed: list[tuple[int, Stored]] = []
        hashes: list[bytes] = list(change.remembered)
        for key, (entry, of_item) in enumerate(zip(change.entries, vectors, strict=True), start=state["key"] + 1):
            former = items[number].get(entry.id)
            if former is not None:
                removed.append((number, former))
            links = set() if former is None else former.links
            items[number][entry.id] = Stored(key, entry, links, changed=True, vectors=of_item)
        state["key"] += len(change.entries)
        for entry in change.amended:
            if entry.id in items[number]:
                items[number][entry.id].entry, items[number][entry.id].changed = entry, True
        for name in change.exact_texts & items[1].keys():
            items[1][name].links = set()
        for image, text in change.links:
            if image in items[0] and text in items[1]:
                items[1][text].links.add(image)
        deleted = [name for name in dict.fromkeys(change.deleted) if name in items[number]]
        gone: list[list[str]] = [[], []]
        gone[number] = deleted
        if number == 0 and deleted:
            load(1, "key", [key for key, _ in tables.linked_with(deleted)])
            for name, item in items[1].items():
                if item.links.intersection(deleted):
                    item.links.difference_update(deleted)
                    gone[1] += [] if item.links or change.keep_texts else [name]
        for own in (0, 1):
            for name in gone[own]:
                item = items[own].pop(name)
                removed += [] if item.before is None else [(own, item)]
                hashes += [deletion_hash(SIDES[own], name)] if change.remember else []
        draft = Draft(state, Applied({own: len(gone[n]) for n, own in enumerate(SIDES)}), gone=gone)
        self._write_items(tables, draft, items, removed)
        self._write_deleted(tables, draft, [deletion_hash(side, entry.id) for entry in change.entries], hashes)
        nothing = np.full(self.manifest.width, np.nan, dtype=np.float32)
        if change.documents:
            draft.where.append(f"kind = {DOCUMENT} AND id IN ({literal(list(change.documents))})")
        for name, text in change.documents.items():
            draft.add({"kind": DOCUMENT, "key": state["generation"], "id": name, "text": text}, nothing)
        if change.job is not None:
            draft.applied = replace(draft.applied, job=_noted(state, change.job))
        # Every change writes the state again: finished jobs are written once, in rows of their own.
        for job in state["jobs"]:
            if job[4] is not None:
                draft.add({"kind": JOB, "key": job[0], "text": json.dumps(job)}, nothing)
        state["jobs"] = [job for job in state["jobs"] if job[4] is None]
        return draft

    def _write_items(
        self,
        tables: LanceTables,
        draft: Draft,
        items: Sequence[Mapping[str, Stored]],
        removed: Sequence[tuple[int, Stored]],
    ) -> None:
        """Rows of new and changed items, those that go, and the numbers of the state."""
        written = [
            (number, item)
            for number in (0, 1)
            for item in items[number].values()
            if item.changed or (item.before is not None and item.links != item.before[1])
        ]
        again = [item.key for _, item in written if item.vectors is None]
        former: dict[int, tuple[bytes, NDArray[np.float32]]] = {}
        for start in range(0, len(again), CHUNK):
            where = f"kind < {FURTHER} AND key IN ({literal(again[start : start + CHUNK])})"
            for part, own in tables.vectors(where, ["key", "vectors_digest"]):
                digests = part["vectors_digest"].to_pylist()
                former |= dict(zip(part["key"].to_pylist(), zip(digests, own, strict=True), strict=True))
            draft.where.append(where)
        keys = [item.key for _, item in removed]
        draft.where += [
            f"kind < {STATE} AND key IN ({literal(keys[start : start + CHUNK])})"
            for start in range(0, len(keys), CHUNK)
        ]
        for number, item in written:
            entry, spelled = item.entry, None if item.entry.text is None else words(item.entry.text)
            digest, first = (
                former[item.key] if item.vectors is None else (vectors_digest(item.vectors), item.vectors[0])
            )
            row = {
                "kind": ITEMS + number, "key": item.key, "view": 0, "id": entry.id, "folded": entry.id.casefold(),
                "path": entry.path, "text": entry.text, "metadata": entry.metadata_json, "content": entry.content,
                "stamp": entry.stamp, "digest": entry.digest(number, item.key), "vectors_digest": digest,
                "words": None if spelled is None else _spaced(spelled),
                "length": None if spelled is None else len(spelled), "links": sorted(item.links) if number else None,
                "facets": _facet_rows(json.loads(entry.metadata_json)),
            }  # fmt: skip
            draft.add(row, first)
            for view, vector in enumerate(() if item.vectors is None else item.vectors[1:], start=1):
                draft.add({"kind": FURTHER + number, "key": item.key, "view": view}, vector)
        for sign, number, entry, links in [
            *((-1, n, *item.before) for n, item in (*removed, *written) if item.before is not None),
            *((1, n, item.entry, item.links) for n, item in written),
        ]:
            changed = {SIDES[number]: sign, "links": sign * sum(link_sum(image, entry.id) for image in links)}
            if entry.text is not None:
                changed |= {"worded": sign, "words": sign * len(words(entry.text))}
            for name, more in changed.items():
                draft.state[name] = (draft.state[name] + more) % ROUND

    def _write_deleted(
        self, tables: LanceTables, draft: Draft, again: Sequence[bytes], hashes: Sequence[bytes]
    ) -> None:
        """Hashes of deleted items, without those that were added again."""
        if not hashes and not (again and draft.state["deleted"]):
            return
        rows = tables.scan(["key", "content"], f"kind = {DELETED}").to_pylist()
        parts = {row["key"]: _hashes(row["content"]) for row in rows}
        before, new = set(chain(*parts.values())), list(dict.fromkeys(hashes))
        dropped = before.intersection(again) - set(new)
        new = [digest for digest in new if digest not in before]
        changed = {key: [own for own in part if own not in dropped] for key, part in parts.items()}
        if new:
            last = max(parts, default=1)
            last += len(changed.get(last, ())) + len(new) > CHUNK
            changed[last] = [*changed.get(last, ()), *new]
        written = {key: part for key, part in changed.items() if part != parts.get(key)}
        if written:
            draft.where.append(f"kind = {DELETED} AND key IN ({literal(list(written))})")
        for key, part in written.items():
            if part:
                nothing = np.full(self.manifest.width, np.nan, dtype=np.float32)
                draft.add({"kind": DELETED, "key": key, "content": b"".join(part)}, nothing)
        draft.state["deleted"] = len(before) - len(dropped) + len(new)


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


def _table(rows: Sequence[dict[str, Any]], vectors: Sequence[NDArray[np.float32]], columns: pa.Schema) -> pa.Table:
    """Rows with their vectors; one of NaN is none."""
    table = pa.Table.from_pylist(list(rows), schema=columns.remove(len(columns) - 1))
    matrix = np.asarray(vectors, dtype=np.float32)
    missing = np.isnan(matrix[:, 0])
    flat = pa.array(np.where(missing[:, None], np.float32(0), matrix).ravel())
    column = pa.FixedSizeListArray.from_arrays(flat, matrix.shape[1], mask=pa.array(missing))
    return table.append_column(columns.field("vector"), column)


class LanceStore(Store):
    """An index in Lance, opened.

    table    its name; by default the one in use
    earlier  tables of earlier models, which lead to it
    vectors  of small sides, for all views of this process

    Raises IndexError_ when there is none; StoreGone when the storage cannot be reached.
    """

    path: str

    def __init__(self, location: str, *, table: str = "") -> None:
        self.path, self.table, self.earlier = location, table or TABLE, list[str]()
        self.vectors: dict[Side, tuple[NDArray[np.int64], NDArray[np.float32]]] = {}
        self.reads_vectors = threading.Lock()
        self._opens, self._session = threading.Lock(), lance.Session(CACHE, CACHE)
        self._tables: tuple[LanceTables, dict[str, Any]] | None = None
        self._thread = threading.local()
        if not self.exists(location, self.table):
            raise IndexError_(f"{location} needs to be an index that `subtext index build` made; there is none")
        self._require_own()
        while (successor := self._named("moved")) and not table:
            self.earlier.append(self.table)
            if successor in self.earlier:
                raise IndexError_(f"{location} is damaged: its tables lead to one another; restore a backup")
            self.table, self._tables = successor, None
            self._require_own()
        self.manifest = self._manifest(self.latest().now)
        width = getattr(self.latest().dataset.schema.field("vector").type, "list_size", None)
        if width != self.manifest.width:
            raise IndexError_(
                f"{location} needs vectors of {self.manifest.width} numbers, as its manifest says; its table has "
                f"{width}; restore a backup"
            )

    @classmethod
    def create(cls, location: str, manifest: Manifest, *, table: str = "") -> LanceStore:
        """An empty index; beyond `EXACT_UP_TO` vectors, or the manifest's, searched by lists.

        table  of a move, in the place of another one

        Raises IndexError_ when the name is taken, OutputError when it cannot be written.
        """
        if not table:
            cls.require_free(location)
        manifest = replace(manifest, exact_up_to=min(manifest.exact_up_to, EXACT_UP_TO), generation=0)
        state = {"manifest": manifest.to_json(), "changes": [], "jobs": [], "lists": {}}
        row = {"kind": STATE, "key": 0, "text": json.dumps(state | dict.fromkeys(NUMBERS, 0))}
        rows = _table([row], [np.full(manifest.width, np.nan, dtype=np.float32)], schema(manifest.width))
        with translated(location):
            lance.write_dataset(rows, place(location, table or TABLE), mode="create", storage_options=PATIENCE)
        return cls(location, table=table)

    @classmethod
    def exists(cls, location: str, table: str = TABLE) -> bool:
        """Whether there is an index at this location. Raises StoreGone when the storage cannot be reached."""
        with translated(location):
            try:
                lance.dataset(place(location, table), storage_options=PATIENCE)
            except ValueError as problem:
                if "was not found" in str(problem):
                    return False
                raise
        return True

    def latest(self) -> LanceTables:
        """The table at its newest version."""
        with self._opens, translated(self.path):
            if self._tables is None or self._tables[0].dataset.latest_version != self._tables[0].dataset.version:
                self._tables = LanceTables(self.opened(), self.path), {}
            return self._tables[0]

    def opened(self) -> Any:
        """The newest version as a dataset of its own, for work on indexes, which moves it to yet newer ones."""
        with translated(self.path):
            return lance.dataset(self.uri, storage_options=PATIENCE, session=self._session)

    @contextmanager
    def reading(self) -> Iterator[LanceView]:
        """The index at this moment: one version of the table; inside another such block of the thread, that one's.

        A compaction removes that version `GRACE` seconds after it has made another one, and changes do so after `OLD`.
        A reader who needs more of it then goes on at the newest one.
        """
        current: LanceView | None = getattr(self._thread, "view", None)
        if current is not None:
            yield current
            return
        self._thread.view = self.view(self.latest())
        try:
            yield self._thread.view
        finally:
            self._thread.view = None

    def view(self, tables: LanceTables) -> LanceView:
        """The index at one version."""
        with self._opens:
            cache = self._tables[1] if self._tables is not None and self._tables[0] is tables else {}
        self.require_same(tables.now)
        counts: dict[Side, int] = {side: tables.state(side) for side in SIDES}
        sides = {side: LanceVectors(tables, side, counts[side], self.manifest, self, cache) for side in SIDES}
        return LanceView(self.manifest, tables.state("generation"), counts, tables, sides, self, cache=cache)

    @contextmanager
    def writing(self, verb: str) -> Iterator[LanceWriter]:
        """A writer, beside others."""
        tables = self.latest()
        self.require_same(tables.now)
        writer = LanceWriter(self, self._manifest(tables.now))
        try:
            yield writer
        finally:
            self.manifest = writer.manifest

    def check(self) -> list[Problem]:
        """Damage of the text side, vectors, facets, words and links. Reads every row and vector once."""
        with self.reading() as view:
            problems = [problem for side in SIDES for problem in _check(view, side)]
        return problems if self.text_side is None else [*problems, *text_side_problems(self.text_side, self.manifest)]

    def remove(self) -> None:
        """Remove the index, with all its tables."""
        moving = self.moving()
        with translated(self.path):
            for table in [*self.earlier, self.table, *([] if moving is None else [moving.table])]:
                lance.LanceDataset.drop(place(self.path, table), PATIENCE)

    def moving(self) -> LanceStore | None:
        """The index that an unfinished move builds beside this one; None where there is none."""
        table = self._named("moving")
        return LanceStore(self.path, table=table) if table and self.exists(self.path, table) else None

    def _named(self, entry: str) -> str:
        """The table beside this one that its state names; "" for none. Raises IndexError_ for any other place."""
        table = self.latest().now.get(entry) or ""
        if table and not MOVED.fullmatch(str(table)):
            raise IndexError_(
                f"{self.path} needs tables of its own, named items- and eight digits; its state names {table}; "
                "restore a backup"
            )
        return str(table)

    def _require_own(self) -> None:
        """Raise IndexError_ where the table or a folder in it is a symbolic link: nothing is deleted behind it."""
        if self.path.startswith("lance://"):
            folder = Path(self.uri)
            for own in (folder, *folder.iterdir()):
                inside(own.parent, own.name)

    def beside(self, manifest: Manifest) -> LanceStore:
        """A table for the vectors of another model, in the same place; one that was begun for it is resumed."""
        begun = self.moving()
        if begun is not None and begun.manifest.fingerprint == manifest.fingerprint:
            return begun
        table = f"items-{uuid.uuid4().hex[:8]}.lance"
        with self.writing("move") as writer:
            # From here on a move that was begun earlier cannot end any more: its table may go.
            writer.commit(lambda now: Draft({**now.now, "moving": table}))
        self.remove_unused()
        return self.create(self.path, manifest, table=table)

    def swap(self, new: Store, *, generation: int) -> LanceStore:
        """Let this table lead to `new`, in one commit; its rows stay in old versions until the index is compacted."""
        assert isinstance(new, LanceStore)
        with self.reading() as view, new.writing("move") as writer:
            writer.apply(Change(remembered=[digest for (digest,) in view.records("deleted")]))

        def plan(tables: LanceTables) -> Draft:
            if tables.state("generation") != generation or tables.now["moving"] != new.table:
                raise IndexError_(
                    f"{self.path} was changed while its items were embedded; run the command again: it embeds what is "
                    "new, and nothing else"
                )
            every = frozenset(part.fragment_id for part in tables.dataset.get_fragments())
            return Draft({**tables.now, "moved": new.table, "moving": None}, replaced=every)

        with self.writing("move") as writer:
            writer.commit(plan)
        return LanceStore(self.path)

    def remove_unused(self) -> bool:
        """Remove the rows of earlier models, and tables of moves that cannot end any more; whether there were any."""
        with translated(self.path):
            infos = self.filesystem.get_file_info(fs.FileSelector(self.folder.rpartition("/")[0]))
            # Read after the tables were listed: a move names its table before it makes it.
            state = self.latest().now
            self.require_same(state)
            used = {*self.earlier, self.table, state.get("moving")}
            unused = [
                info.base_name for info in infos if MOVED.fullmatch(info.base_name) and info.base_name not in used
            ]
            for table in unused:
                lance.LanceDataset.drop(place(self.path, table), PATIENCE)
            freed = 0
            for table in self.earlier:
                earlier = lance.dataset(place(self.path, table), storage_options=PATIENCE)
                freed += earlier.cleanup_old_versions(older_than=timedelta(seconds=max(GRACE, 1e-6))).old_versions
                side = self._text_side_of(table)
                if side is not None and side.exists():
                    shutil.rmtree(inside(side.parent, side.name))
        return bool(unused or freed)

    def require_same(self, state: Mapping[str, Any]) -> None:
        """Raise IndexError_ unless the index is still of the model that it was opened with."""
        if state.get("moved") or self._manifest(state).fingerprint != self.manifest.fingerprint:
            raise IndexError_(f"{self.path} was moved to another model meanwhile; open it again")

    @property
    def text_side(self) -> Path | None:
        """The folder of its model's text side; None in an object store, where each search would load all of it."""
        return self._text_side_of(self.table)

    def _text_side_of(self, table: str) -> Path | None:
        return Path(place(self.path, table), TEXT_SIDE) if self.path.startswith("lance://") else None

    @property
    def uri(self) -> str:
        """The address of the table, as Lance has it."""
        return place(self.path, self.table)

    @property
    def filesystem(self) -> fs.FileSystem:
        """The folder's or object store's files."""
        return fs.FileSystem.from_uri(self.uri)[0]

    @property
    def folder(self) -> str:
        """The place of the table among these files."""
        return str(fs.FileSystem.from_uri(self.uri)[1])

    def stored(self, *, age: timedelta | None = None) -> list[tuple[str, int]]:
        """Each file of the table, or those of at least some age, below its place, and its bytes."""
        with translated(self.path):
            infos = self.filesystem.get_file_info(fs.FileSelector(self.folder, recursive=True))
        prefix, last = self.folder.rstrip("/") + "/", datetime.now(UTC) - (age or timedelta())
        files = [info for info in infos if info.type == fs.FileType.File and (age is None or info.mtime <= last)]
        return [(info.path.removeprefix(prefix), info.size) for info in files]

    def _manifest(self, state: Mapping[str, Any]) -> Manifest:
        manifest = Manifest.from_json(state["manifest"], where=self.path)
        # More vectors than a store is made with are never read into memory.
        return replace(manifest, generation=state["generation"], exact_up_to=min(manifest.exact_up_to, EXACT_UP_TO))


def place(location: str, table: str = TABLE) -> str:
    """The address of a table, as Lance has it.

    >>> place("s3://archive/library/"), place("lance:///data/library")
    ('s3://archive/library/items.lance', '/data/library/items.lance')
    """
    scheme, _, path = location.partition("://")
    if not path.strip("/"):
        raise IndexError_(
            f"an index in LanceDB needs an address such as lance://FOLDER or s3://BUCKET/NAME; it got {location}"
        )
    if scheme != "lance" and ("?" in path or set("@:") & set(path.partition("/")[0])):
        raise IndexError_(
            f"an address of {scheme}:// needs to be {scheme}://BUCKET/NAME, without keys or parameters; credentials "
            "and endpoint come from the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_ENDPOINT_URL, or "
            "GOOGLE_APPLICATION_CREDENTIALS"
        )
    if scheme == "lance":
        return str(Path(path).expanduser().absolute() / table)
    return f"{location.rstrip('/')}/{table}"


def _check(view: LanceView, side: Side) -> Iterator[Problem]:
    """Vectors, facets, words and links of a side, against what was put in."""
    number, tables, vectors = SIDES.index(side), view.tables, view.sides[side]
    views, links, problems = view.manifest.views[side], 0, dict[str, list[str]]()
    columns = ["key", "id", "text", "metadata", "words", "links", "facets", "vectors_digest"]
    with translated(view.store.path):
        for batch in tables.dataset.scanner(columns=columns, filter=f"kind = {number}", batch_size=CHUNK).to_batches():
            rows = batch.to_pylist()
            owners, rows_of_vectors = vectors.rows_of(batch["key"].to_numpy())
            for row in rows:
                own = rows_of_vectors[slice(*np.searchsorted(owners, [row["key"], row["key"] + 1]))]
                spelled = None if row["text"] is None else words(row["text"])
                links += sum(link_sum(image, row["id"]) for image in row["links"] or ())
                for what, damaged in {
                    f"without {views} vectors, or twice there": len(own) != views,
                    "with changed or damaged vectors": len(own) == views
                    and vectors_digest(own) != row["vectors_digest"],
                    "whose words differ from the text": row["words"] != (None if spelled is None else _spaced(spelled)),
                    "filtered by other values than the metadata": row["facets"]
                    != _facet_rows(json_object(row["metadata"]) or {}),
                }.items():
                    if damaged:
                        problems.setdefault(what, []).append(repr(row["id"]))
    for what, names in problems.items():
        yield Problem(TABLE, f"{counted(len(names), 'item')} of {side} {what}: {listed(names)}")
    if number and links % ROUND != tables.state("links"):
        yield Problem(TABLE, "links changed or damaged")
