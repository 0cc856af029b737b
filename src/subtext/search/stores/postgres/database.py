"""A search index in PostgreSQL: a schema that describes itself, for any number of readers and writers at once.

NAME.layout          number of the layout, see `connection`
NAME.manifest        model and its fingerprint, width, where items came from
NAME.items, links, facets, images_vectors, texts_vectors    what is in the index; every change is one transaction
NAME.jobs, forgotten, kept, state                            journal, hashes of deleted items, documents, numbers

A reader sees one moment (a transaction of REPEATABLE READ), however much is changed meanwhile. Any number of processes
may write at once. They embed side by side and take turns for their changes: each change begins by counting it, and
locks that one row until it is committed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from subtext.errors import IndexError_, RequirementError, counted, listed
from subtext.search.stores.condition import Value, moment
from subtext.search.stores.item import SIDES, Applied, Change, Entry, Side, facets
from subtext.search.stores.manifest import Manifest
from subtext.search.stores.postgres.connection import (
    LAYOUT,
    WIDEST,
    Address,
    Connection,
    Pool,
    PostgresTables,
    can_hold,
    connect,
    connect_index,
    make_tables,
    require_layout,
    set_up,
    translated,
    upgrade_layout,
)
from subtext.search.stores.postgres.vectors import FORMER_GRAPH, GRAPH, GraphVectors, build_graphs
from subtext.search.stores.postgres.words import as_vector, phrase_query, search_words, words
from subtext.search.stores.sql import Part, SqlView, SqlWriter
from subtext.search.stores.store import Problem, Stats, Store

EXACT_UP_TO = 20_000
"""Vectors of a side that are all compared by default: beyond them a search of the graph is faster."""
SUFFIX = "_moving"
"""Ends the name of the index that is built beside another one."""
LONGEST = 63
"""Letters of a name in PostgreSQL."""
CHECKED = 2000
"""Rows that a verification reads together."""


@dataclass(eq=False)
class DatabaseView(SqlView):
    """An index in PostgreSQL at one moment; of use inside its transaction."""

    tables: PostgresTables
    sides: Mapping[Side, GraphVectors]

    joined = "string_agg(key::text, ',')"
    kinds = (
        "SELECT count(word), count(number), count(DISTINCT word) + count(DISTINCT number), min(number), max(number) "
        "FROM facets WHERE side = ? AND name = ?"
    )
    common = (
        "SELECT word, number, count(*) AS many FROM facets WHERE side = ? AND name = ? GROUP BY word, number "
        'ORDER BY many DESC, number, word COLLATE "C" LIMIT ?'
    )

    def stats(self) -> Stats:
        """Size and state of the index: versions of the server, sides that have a graph, and vectors after it."""
        extension = self.tables.run("SELECT extversion FROM pg_catalog.pg_extension WHERE extname = 'vector'")
        ((size,),) = self.tables.run(
            "SELECT coalesce(sum(pg_catalog.pg_total_relation_size(c.oid)), 0) FROM pg_catalog.pg_class c JOIN "
            "pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = current_schema() AND c.relkind = 'r'"
        )
        number = self.tables.connection.info.server_version
        graphs = {side: vectors.last_in_graph is not None for side, vectors in self.sides.items()}
        unindexed = {side: vectors.unindexed for side, vectors in self.sides.items()}
        server = {
            "PostgreSQL": f"{number // 10_000}.{number % 10_000}",
            "pgvector": str(extension[0][0]) if extension else "-",
            "layout": str(LAYOUT),
        }
        after = {side: unindexed[side] for side in SIDES if graphs[side]}
        return Stats(int(size), unindexed, {"graphs": graphs, "after_the_graph": after, "server": server})

    def search_text(self, words: str, *, top: int) -> list[tuple[int, float]]:
        """The `top` texts that contain some of the words, as (key, BM25 score), best first."""
        counts = (self.tables.state("worded"), self.tables.state("words"))
        return search_words(self.tables.connection, words, top=top, counts=counts)

    def records(self, kind: str) -> list[tuple[Any, ...]]:
        """Other records of the index; see `View.records`."""
        if kind == "documents":
            return self.tables.run("SELECT name, extract(epoch FROM written)::float8 FROM kept")
        if kind in ("jobs", "deleted"):
            return super().records(kind)
        return self.tables.run("SELECT value FROM kept WHERE name = ?", kind)

    def _with_phrase(self, side: int, phrase: str) -> Part:
        query = phrase_query(_storable(phrase))
        if side == 1:
            return "SELECT key FROM items WHERE side = 1 AND words @@ ?::tsquery", [query]
        statement = (
            "SELECT i.key FROM items t JOIN links l ON l.text = t.id JOIN items i ON i.side = 0 AND i.id = l.image "
            "WHERE t.side = 1 AND t.words @@ ?::tsquery"
        )
        return statement, [query]

    def _with_substring(self, side: int, name: str | None, part: str) -> Part:
        if name is None:
            return "SELECT key FROM items WHERE side = ? AND strpos(folded_id, ?) > 0", [side, _storable(part)]
        statement = "SELECT key FROM facets WHERE side = ? AND name = ? AND strpos(folded, ?) > 0"
        return statement, [side, _storable(name), _storable(part)]

    def _with_values(self, side: int, name: str, values: Sequence[Value]) -> Part:
        texts = [_storable(value) for value in values if isinstance(value, str)]
        numbers = [_number(value) for value in values if not isinstance(value, str)]
        statement = "SELECT key FROM facets WHERE side = ? AND name = ? AND number = ANY(?::numeric[])"
        if not texts:
            return statement, [side, _storable(name), numbers]
        by_word = (
            "SELECT key FROM facets WHERE side = ? AND name = ? AND word IS NOT NULL "
            "AND left(word, 200) IN (SELECT left(w, 200) FROM unnest(?::text[]) AS u(w)) AND word = ANY(?::text[])"
        )
        return f"{statement} UNION {by_word}", [side, _storable(name), numbers, side, _storable(name), texts, texts]

    def _with_range(self, side: int, name: str, test: str, limit: Value) -> Part:
        statement = f"SELECT key FROM facets WHERE side = ? AND name = ? AND number {test} ?"
        return statement, [side, _storable(name), _number(limit)]


class DatabaseWriter(SqlWriter):
    """Changes an index in PostgreSQL, beside other writers; made by `Database.writing`."""

    store: Database
    tables: PostgresTables
    changed = f"{SqlWriter.changed}, words = ?::tsvector, length = ?"

    def __init__(self, store: Database, connection: Connection, manifest: Manifest) -> None:
        super().__init__(store, manifest)
        self.connection = connection
        self.tables = PostgresTables(connection)
        self.address = store.address

    def apply(self, change: Change) -> Applied:
        """Make a change, completely or not at all; see `Writer.apply`.

        Items whose metadata was to change, and which another writer has deleted meanwhile, stay deleted. Raises
        IndexError_ also for a text that PostgreSQL cannot hold, and StoreGone when the server is away.
        """
        vectors = change.checked_vectors(self.manifest.views[change.side], self.manifest.width)
        _require_storable([*change.entries, *change.amended])
        count = len(change.entries)
        with self.changing():
            ((last,),) = self.tables.run("UPDATE state SET value = value + ? WHERE name = 'key' RETURNING value", count)
            keys = range(int(last) - count + 1, int(last) + 1)
            applied, _ = self.change_rows(replace(change, vectors=vectors), keys)
            self.tables.run_many(
                "INSERT INTO kept (name, value) VALUES (?, ?) ON CONFLICT (name) "
                "DO UPDATE SET value = excluded.value, written = clock_timestamp()",
                list(change.documents.items()),
            )
        return applied

    def compact(self, *, seed: int = 0) -> list[str]:
        """Build graphs where a side is large, and overwrite deleted rows; see `build_graphs`."""
        with translated(self.address):
            counts = {side: self.tables.state(side) for side in SIDES}
            sides = {side: GraphVectors(self.tables, side, counts[side], self.manifest, {}) for side in SIDES}
            return build_graphs(self.tables, self.changing, sides)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """One change, made completely; whoever else changes the index waits until it is committed.

        Raises IndexError_ when the index has been moved to another model since it was opened.
        """
        with translated(self.address), self.connection.transaction():
            generation = self.tables.run("UPDATE state SET value = value + 1 WHERE name = 'generation' RETURNING value")
            manifest = self.tables.run("SELECT json FROM manifest")
            self.store.require_same(manifest[0][0] if generation and manifest else None)
            yield
        self.manifest = replace(self.manifest, generation=int(generation[0][0]))

    def _columns(self, side: int, key: int, entry: Entry) -> tuple[Any, ...]:
        text = None if entry.text is None else words(entry.text)
        vector = (None, None) if text is None else (as_vector(text), len(text))
        return *super()._columns(side, key, entry), *vector

    def _insert_items(self, side: Side, keys: Sequence[int], entries: Sequence[Entry], vectors: Any) -> None:
        number = SIDES.index(side)
        items = (
            "COPY items (key, side, id, folded_id, vectors_digest, path, text, metadata, content, stamp, digest, "
            "words, length) FROM STDIN"
        )
        with self.connection.cursor() as cursor:
            with cursor.copy(items) as copy:
                for key, entry, of_item in zip(keys, entries, vectors, strict=True):
                    names = (entry.id, entry.id.casefold(), vectors_digest(of_item))
                    copy.write_row((key, number, *names, *self._columns(number, key, entry)))
            table = sql.SQL("COPY {} (key, view, vector) FROM STDIN (FORMAT BINARY)")
            with cursor.copy(table.format(sql.Identifier(f"{side}_vectors"))) as copy:
                copy.set_types(["int8", "int2", "vector"])
                for key, of_item in zip(keys, vectors, strict=True):
                    for view, vector in enumerate(of_item):
                        copy.write_row((key, view, vector))

    def _insert_facets(self, side: int, keys: Sequence[int], entries: Sequence[Entry]) -> None:
        pairs = zip(keys, entries, strict=True)
        rows = [row for key, entry in pairs for row in facet_rows(side, key, entry.metadata_json)]
        statement = "COPY facets (key, side, name, number, word, folded) FROM STDIN"
        with self.connection.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)
        self.add_to("facets", len(rows))
        self._count_words(keys, 1)

    def _remove_facets(self, side: int, keys: Sequence[int]) -> None:
        self._count_words(keys, -1)
        removed = self.tables.run("DELETE FROM facets WHERE key = ANY(?::bigint[]) RETURNING key", list(keys))
        self.add_to("facets", -len(removed))

    def _count_words(self, keys: Sequence[int], sign: int) -> None:
        """Count the words of items, and the items that have some; -1 counts them no more."""
        statement = "SELECT count(length), coalesce(sum(length), 0) FROM items WHERE key = ANY(?::bigint[])"
        ((texts, length),) = self.tables.run(statement, list(keys))
        self.add_to("worded", sign * int(texts))
        self.add_to("words", sign * int(length))

    def _remove_links(self, links: Sequence[tuple[str, str]]) -> None:
        self.tables.run(
            "DELETE FROM links l USING unnest(?::text[], ?::text[]) AS p(image, text) "
            "WHERE p.image = l.image AND p.text = l.text",
            [image for image, _ in links],
            [text for _, text in links],
        )

    def _insert_links(self, links: Sequence[tuple[str, str]]) -> None:
        storable = [(image, text) for image, text in links if can_hold(image) and can_hold(text)]
        if storable:
            self.tables.run(
                "INSERT INTO links SELECT p.image, p.text FROM unnest(?::text[], ?::text[]) AS p(image, text) "
                "WHERE EXISTS (SELECT 1 FROM items i WHERE i.side = 0 AND i.id = p.image) "
                "AND EXISTS (SELECT 1 FROM items t WHERE t.side = 1 AND t.id = p.text) ON CONFLICT DO NOTHING",
                [image for image, _ in storable],
                [text for _, text in storable],
            )


class Database(Store):
    """An index in PostgreSQL, opened.

    Raises IndexError_ when there is none, or it has another layout; StoreGone without a server.
    """

    def __init__(self, address: str | Address) -> None:
        self.address = _parsed(address)
        self.path = str(self.address)
        self._pool = Pool(self.address)
        self._generation: tuple[int, dict[str, Any]] = (-1, {})
        self._manifest_json = ""
        with self._pool.connected() as connection:
            self.manifest = self._manifest(connection)

    @classmethod
    def create(cls, location: str | Address, manifest: Manifest) -> Database:
        """An empty index, made completely or not at all; beyond `EXACT_UP_TO` vectors, or the manifest's, by graphs.

        Raises IndexError_ when the name is taken, or vectors are wider than pgvector's graphs take; OutputError where
        this user may not make it.
        """
        address = _parsed(location)
        if manifest.width > WIDEST:
            raise IndexError_(
                f"an index in PostgreSQL needs vectors of at most {WIDEST:,} numbers; these have {manifest.width:,}; "
                "keep the index in a folder"
            )
        manifest = replace(manifest, exact_up_to=min(manifest.exact_up_to, EXACT_UP_TO), generation=0)
        with translated(address), closing(connect(address)) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            with connection.transaction():
                _require_free(connection, address)
                connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(address.name)))
                set_up(connection, address)
                make_tables(connection, manifest.width)
                connection.execute("INSERT INTO manifest (json) VALUES (%s)", (manifest.to_json(),))
        return cls(address)

    @classmethod
    def exists(cls, location: str | Address) -> bool:
        """Whether there is an index of that name. Raises StoreGone without a server."""
        address = _parsed(location)
        statement = "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = %s AND tablename = 'layout'"
        with translated(address), closing(connect(address)) as connection:
            return connection.execute(statement, (address.name,)).fetchone() is not None

    @classmethod
    def require_free(cls, location: str | Address) -> None:
        """Raise IndexError_ unless an index of that name can be made."""
        address = _parsed(location)
        with translated(address), closing(connect(address)) as connection:
            _require_free(connection, address)

    @classmethod
    def name_of(cls, location: str | Address) -> str:
        """The name of the index in its database."""
        return _parsed(location).name

    @classmethod
    def upgrade(cls, location: str | Address) -> tuple[int, int]:
        """Upgrade an index to this layout; the layout before and the one now. See `upgrade_layout`."""
        address = _parsed(location)
        with closing(connect_index(address, write=True)) as connection:
            return upgrade_layout(connection, address)

    @contextmanager
    def reading(self) -> Iterator[DatabaseView]:
        """The index at this moment.

        Raises StoreGone when the server goes away meanwhile; one that was restarted before is connected again. Raises
        IndexError_ when the index has been moved to another model since it was opened.
        """
        statement = (
            "SELECT name, value::text FROM state WHERE name IN ('generation', 'images', 'texts') "
            "UNION ALL SELECT 'manifest', json FROM manifest"
        )
        with self._pool.connected() as connection, translated(self.address), connection.transaction():
            rows = dict(connection.execute(statement).fetchall())
            self.require_same(rows.pop("manifest", None))
            generation, cache = self._generation
            if generation != int(rows["generation"]):
                generation, cache = self._generation = (int(rows["generation"]), {})
            tables, counts = PostgresTables(connection), {side: int(rows[side]) for side in SIDES}
            sides = {side: GraphVectors(tables, side, counts[side], self.manifest, cache) for side in SIDES}
            yield DatabaseView(self.manifest, generation, counts, tables, sides, cache=cache)

    @contextmanager
    def writing(self, verb: str) -> Iterator[DatabaseWriter]:
        """A writer, beside others; the server's administrator sees `verb`.

        Raises OutputError where this user may not write.
        """
        with closing(connect_index(self.address, write=True)) as connection:
            with translated(self.address):
                connection.execute("SELECT set_config('application_name', %s, false)", (f"subtext index {verb}",))
            writer = DatabaseWriter(self, connection, self._manifest(connection))
            self._require_model(writer.manifest)
            try:
                yield writer
            finally:
                self.manifest = writer.manifest

    def check(self) -> list[Problem]:
        """Damage that only the database can see: vectors, facets, words and graphs.

        Reads every row and every vector once. Bytes under the rows are PostgreSQL's own to check (data checksums,
        pg_amcheck).
        """
        with self.reading() as view:
            return [
                *(problem for side in SIDES for problem in _check_vectors(view, side)),
                *_check_facets(view),
                *_check_words(view),
                *_check_graphs(view),
            ]

    @property
    def moved(self) -> bool:
        """Whether an index of another model has taken the place of this one since it was opened: open it again."""
        with self._pool.connected() as connection:
            return self._manifest(connection).fingerprint != self.manifest.fingerprint

    def remove(self) -> None:
        """Remove the index."""
        self.close()
        with translated(self.address), closing(connect_index(self.address, write=True)) as connection:
            connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(self.address.name)))

    def beside(self, manifest: Manifest) -> Database:
        """An index for the vectors of another model, in the same database; one that was begun for it is resumed."""
        address = replace(self.address, name=self.address.name[: LONGEST - len(SUFFIX)] + SUFFIX)
        if Database.exists(address):
            begun = Database(address)
            if begun.manifest.fingerprint == manifest.fingerprint:
                return begun
            begun.remove()
        return Database.create(address, manifest)

    def swap(self, new: Store, *, generation: int) -> Database:
        """Put `new` in the place of this index, whose tables go; searches wait for it, and see either."""
        assert isinstance(new, Database)
        new.close()
        names = {"old": sql.Identifier(self.address.name), "new": sql.Identifier(new.address.name)}
        with (
            translated(self.address),
            closing(connect_index(self.address, write=True)) as connection,
            connection.transaction(),
        ):
            # Every reader and writer begins with this table: behind the lock nobody is reading or writing.
            connection.execute(sql.SQL("LOCK TABLE {old}.state IN ACCESS EXCLUSIVE MODE").format(**names))
            if PostgresTables(connection).state("generation") != generation:
                raise IndexError_(
                    f"{self.path} was changed while its items were embedded; run the command again: it embeds what "
                    "is new, and nothing else"
                )
            for statement in (
                "INSERT INTO {new}.forgotten SELECT hash FROM {old}.forgotten ON CONFLICT DO NOTHING",
                "DROP SCHEMA {old} CASCADE",
                "ALTER SCHEMA {new} RENAME TO {old}",
            ):
                connection.execute(sql.SQL(statement).format(**names))
        return Database(self.address)

    def document(self, name: str) -> str:
        """Where a document of the index is, for messages."""
        return f"{self.address}, table kept, name {name}"

    def close(self) -> None:
        """Release the connections that nobody uses at this moment."""
        self._pool.close()

    def require_same(self, manifest_json: str | None) -> None:
        """Raise IndexError_ unless the index is still of the model that it was opened with."""
        if manifest_json is None:
            raise IndexError_(f"{self.address} needs its manifest, and has none; restore a backup")
        if manifest_json != self._manifest_json:
            self._require_model(Manifest.from_json(manifest_json, where=str(self.address)))
            self._manifest_json = manifest_json

    def _require_model(self, manifest: Manifest) -> None:
        if manifest.fingerprint != self.manifest.fingerprint:
            raise IndexError_(f"{self.address} was moved to another model meanwhile; open it again")

    def _manifest(self, connection: Connection) -> Manifest:
        require_layout(connection, self.address)
        statement = "SELECT json, value FROM manifest, state WHERE name = 'generation'"
        with translated(self.address):
            row = connection.execute(statement).fetchone()
        if row is None:
            raise IndexError_(f"{self.address} needs its manifest, and has none; restore a backup")
        return replace(Manifest.from_json(row[0], where=str(self.address)), generation=int(row[1]))


def vectors_digest(vectors: NDArray[np.float32]) -> bytes:
    """16 bytes of an item's (K D) vectors: what `verify` compares."""
    return hashlib.blake2b(np.ascontiguousarray(vectors, dtype="<f4").tobytes(), digest_size=16).digest()


def facet_rows(side: int, key: int, metadata: str) -> Iterator[tuple[Any, ...]]:
    """The rows of the facets of an item."""
    for name, value in sorted(facets(json.loads(metadata)), key=str):
        if isinstance(value, str):
            yield key, side, name, None, value, value.casefold()
        else:
            # PostgreSQL has no negative zero.
            yield key, side, name, Decimal(value or 0), None, None


def _parsed(address: str | Address) -> Address:
    return Address.parse(address) if isinstance(address, str) else address


def _require_free(connection: Connection, address: Address) -> None:
    statement = "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s"
    if connection.execute(statement, (address.name,)).fetchone() is not None:
        raise IndexError_(
            f"an index in PostgreSQL needs a new name; there is a schema '{address.name}' in that database already; "
            "name another by index=NAME, or remove it"
        )


def _require_storable(entries: Sequence[Entry]) -> None:
    """Raise IndexError_ for an item of which PostgreSQL cannot hold something."""
    for entry in entries:
        values = [text for facet in facets(json.loads(entry.metadata_json)) for text in facet if isinstance(text, str)]
        texts = [entry.id, entry.path or "", entry.text or "", entry.metadata_json, entry.stamp or "", *values]
        if not all(can_hold(text) for text in texts):
            raise IndexError_(
                "an index in PostgreSQL needs names, texts and metadata without NUL and unpaired surrogates; item "
                f"{entry.id!r} has such characters; remove them from the data, or keep the index in a folder"
            )


def _storable(text: str) -> str:
    """A text that PostgreSQL can hold."""
    if not can_hold(text):
        raise RequirementError(f"a condition needs texts without NUL and unpaired surrogates; it got {text!r}")
    return text


def _number(value: Value) -> Decimal | None:
    """As PostgreSQL compares it exactly; None, which nothing is equal to, for what is no number."""
    number = moment(value) if isinstance(value, date) else value
    assert not isinstance(number, str | date)
    return None if isinstance(number, float) and math.isnan(number) else Decimal(number)


def _check_vectors(view: DatabaseView, side: Side) -> Iterator[Problem]:
    """Whether each item has its vectors, and these are those that were put in."""
    views, missing, damaged = view.manifest.views[side], list[str](), list[str]()
    statement = sql.SQL(
        "SELECT i.id, i.vectors_digest, array_agg(v.vector ORDER BY v.view) FILTER (WHERE v.vector IS NOT NULL) "
        "FROM items i LEFT JOIN {} v ON v.key = i.key WHERE i.side = %s GROUP BY i.key"
    ).format(sql.Identifier(f"{side}_vectors"))
    with view.tables.connection.cursor(f"vectors_of_{side}", binary=True) as cursor:
        cursor.itersize = CHECKED
        for name, digest, vectors in cursor.execute(statement, (SIDES.index(side),)):
            if len(vectors or ()) != views:
                missing.append(repr(name))
            elif vectors_digest(np.stack([vector.to_numpy() for vector in vectors])) != digest:
                damaged.append(repr(name))
    for ids, problem in ((missing, f"without {views} vectors"), (damaged, "with changed or damaged vectors")):
        if ids:
            yield Problem(f"{side}_vectors", f"{counted(len(ids), 'item')} {problem}: {listed(ids)}")


def _check_facets(view: DatabaseView) -> Iterator[Problem]:
    """What is filtered by, against the metadata."""
    different: list[str] = []
    statement = (
        "SELECT i.id, i.side, i.key, i.metadata, coalesce(f.texts, '{}') FROM items i LEFT JOIN (SELECT key, "
        "array_agg(concat_ws('|', side, name, number, word, folded)) AS texts FROM facets GROUP BY key) f "
        "ON f.key = i.key"
    )
    total = 0
    with view.tables.connection.cursor("facets_of_items") as cursor:
        cursor.itersize = CHECKED
        for name, side, key, metadata, stored in cursor.execute(statement):
            total += len(stored)
            rows = [[part for part in row[1:] if part is not None] for row in facet_rows(side, key, metadata)]
            texts = ["|".join(f"{part:f}" if isinstance(part, Decimal) else str(part) for part in row) for row in rows]
            if sorted(texts) != sorted(stored):
                different.append(repr(name))
    if different:
        items = counted(len(different), "item")
        yield Problem("facets", f"what {items} can be filtered by differs from the metadata: {listed(different)}")
    if total != view.tables.state("facets"):
        yield Problem("facets", f"has {total:,} of {view.tables.state('facets'):,} rows")


def _check_words(view: DatabaseView) -> Iterator[Problem]:
    """The words that texts are searched by, against the texts."""
    different: list[str] = []
    statement = (
        "SELECT i.id FROM unnest(%s::bigint[], %s::text[], %s::integer[]) AS w(key, words, length) "
        "JOIN items i ON i.key = w.key WHERE i.words IS DISTINCT FROM w.words::tsvector "
        "OR i.length IS DISTINCT FROM w.length"
    )
    with view.tables.connection.cursor("words_of_texts") as cursor:
        cursor.execute("SELECT key, text FROM items WHERE text IS NOT NULL")
        while rows := cursor.fetchmany(CHECKED):
            texts = [words(text) for _, text in rows]
            values = ([key for key, _ in rows], [as_vector(text) for text in texts], [len(text) for text in texts])
            different += [repr(name) for (name,) in view.tables.connection.execute(statement, values)]
    if different:
        texts_differ = f"the words of {counted(len(different), 'text')} differ from the texts"
        yield Problem("items", f"{texts_differ}: {listed(different)}")


def _check_graphs(view: DatabaseView) -> Iterator[Problem]:
    """Whether PostgreSQL calls the indexes of the schema whole."""
    statement = (
        "SELECT c.relname FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = current_schema() "
        "AND NOT i.indisvalid"
    )
    graphs = {graph.format(side) for side in SIDES for graph in (GRAPH, FORMER_GRAPH)}
    for (name,) in view.tables.run(statement):
        advice = "compact the index" if name in graphs else "REINDEX it"
        yield Problem(name, f"is not whole, as its making was cut off; {advice}")
