"""A search index in PostgreSQL: a schema that describes itself, for any number of readers and writers at once.

NAME.layout          number of the layout, see `connection`
NAME.manifest        model and its fingerprint, width, where items came from
NAME.items, links, facets, images_vectors, texts_vectors    what is in the index; every change is one transaction
NAME.jobs, forgotten, kept, state                            journal, hashes of deleted items, documents, numbers

A reader sees one moment (a transaction of REPEATABLE READ), however much is changed meanwhile. Any number of processes
may write at once. They embed side by side and take turns for their changes: each change begins by counting it, and
locks that one row until it is committed.

Damage of an index in PostgreSQL: vectors against their digests, facets and words against the items, and graphs.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from subtext.errors import IndexError_, RequirementError, counted
from subtext.search.stores.condition import Condition, Value, moment
from subtext.search.stores.item import DATE, SIDES, Applied, Change, Entry, FieldValues, Hits, Side, facets
from subtext.search.stores.manifest import Manifest
from subtext.search.stores.postgres.connection import (
    LAYOUT,
    VECTORS,
    WIDEST,
    Address,
    Connection,
    Pool,
    connect,
    former_name,
    graph_name,
    make_tables,
    ready,
    require_layout,
    to_write,
    translated,
    upgrade_layout,
)
from subtext.search.stores.postgres.vectors import Vectors, build_graphs
from subtext.search.stores.postgres.words import as_vector, phrase_query, search_words, words
from subtext.search.stores.sql import Part, SqlView, SqlWriter
from subtext.search.stores.store import Problem, Stats, Store, listed

EXACT_UP_TO = 20_000
"""Vectors of a side that are all compared by default: beyond them a search of the graph is faster."""
SUFFIX = "_moving"
"""Ends the name of the index that is built beside another one."""
LONGEST = 63
"""Letters of a name in PostgreSQL."""

_STATE = (
    "SELECT name, value::text FROM state WHERE name IN ('generation', 'images', 'texts') "
    "UNION ALL SELECT 'manifest', json FROM manifest"
)
_SIZE = (
    "SELECT coalesce(sum(pg_catalog.pg_total_relation_size(c.oid)), 0) FROM pg_catalog.pg_class c "
    "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = current_schema() AND c.relkind = 'r'"
)
# The least name, the least above it, and so on: as many index look-ups as there are names, however many items.
_FIELDS = (
    "WITH RECURSIVE n(name) AS ((SELECT name FROM facets WHERE side = %(side)s ORDER BY name LIMIT 1) UNION ALL "
    "SELECT (SELECT f.name FROM facets f WHERE f.side = %(side)s AND f.name > n.name ORDER BY f.name LIMIT 1) "
    "FROM n WHERE n.name IS NOT NULL) SELECT name FROM n WHERE name IS NOT NULL"
)
_KINDS = (
    "SELECT count(word), count(number), count(DISTINCT word) + count(DISTINCT number), min(number), max(number) "
    "FROM facets WHERE side = ? AND name = ?"
)
_COMMON = (
    "SELECT word, number, count(*) AS many FROM facets WHERE side = ? AND name = ? GROUP BY word, number "
    'ORDER BY many DESC, number, word COLLATE "C" LIMIT ?'
)
_ITEM = (
    "COPY items (key, side, id, folded_id, path, text, metadata, content, stamp, digest, vectors_digest, words, "
    "length) FROM STDIN"
)
_FACET = "COPY facets (key, side, name, number, word, folded) FROM STDIN"


class PostgresTables:
    """The tables of an index, by one connection to PostgreSQL."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows that a statement gives; see `sql.Tables`."""
        query = sql.SQL(statement.replace("?", "%s"))
        cursor = self.connection.execute(query, values)
        return cursor.fetchall() if cursor.description is not None else []

    def ids(self, names: Sequence[str]) -> list[str]:
        """Those of these names that a database can hold."""
        return [name for name in names if can_hold(name)]

    def state(self, name: str) -> int:
        """One number of the store's state."""
        return int(self.run("SELECT value FROM state WHERE name = ?", name)[0][0])


class DatabaseView(SqlView):
    """An index in PostgreSQL at one moment; of use inside its transaction."""

    tables: PostgresTables

    def __init__(
        self,
        connection: Connection,
        manifest: Manifest,
        generation: int,
        counts: dict[Side, int],
        cache: dict[str, Any],
    ) -> None:
        super().__init__(manifest, generation, counts, cache)
        self.connection = connection
        self.tables = PostgresTables(connection)
        self.sides = {side: vectors_of(connection, manifest, side, counts[side], cache) for side in SIDES}

    def stats(self) -> Stats:
        """Size and state of the index: versions of the server, sides that have a graph, and vectors after it."""
        extension = self.tables.run("SELECT extversion FROM pg_catalog.pg_extension WHERE extname = 'vector'")
        number = self.connection.info.server_version
        graphs = {side: own.last_in_graph is not None for side, own in self.sides.items()}
        return Stats(
            bytes=int(self.tables.run(_SIZE)[0][0]),
            unindexed={side: own.unindexed for side, own in self.sides.items()},
            facts={
                "graphs": graphs,
                "after_the_graph": {side: self.sides[side].unindexed for side in SIDES if graphs[side]},
                "server": {
                    "PostgreSQL": f"{number // 10_000}.{number % 10_000}",
                    "pgvector": str(extension[0][0]) if extension else "-",
                    "layout": str(LAYOUT),
                },
            },
        )

    def select(
        self, side: Side, where: Sequence[Condition] = (), *, start: int = 0, count: int | None = None
    ) -> NDArray[np.int64]:
        """The keys of the items that fulfil every condition, ascending; of them `count`, from number `start` on."""
        statement, values = self.where(SIDES.index(side), where)
        if count is not None:
            keys = self.tables.run(f"{statement} ORDER BY key LIMIT ? OFFSET ?", *values, count, start)
            return np.array([key for (key,) in keys], dtype=np.int64)
        joined = f"SELECT string_agg(DISTINCT key::text, ',') FROM ({statement}) AS chosen"
        ((keys_text,),) = self.tables.run(joined, *values)
        result = np.zeros(0, dtype=np.int64) if not keys_text else np.fromstring(keys_text, dtype=np.int64, sep=",")
        return np.sort(result)[start:]

    def nearest(
        self,
        side: Side,
        queries: NDArray[np.float32],
        *,
        top: int,
        among: NDArray[np.int64] | None = None,
        exact: bool = False,
    ) -> list[Hits]:
        """The best `top` items of each of (Q L D) queries, or of those `among` these keys."""
        return self.sides[side].nearest(queries, top=top, among=among, exact=exact)

    def vectors(self, side: Side, keys: NDArray[np.int64]) -> NDArray[np.float32]:
        """(N K D) vectors of items, in the order of the keys; each has to be in the index."""
        return self.sides[side].of(keys)

    def search_text(self, words: str, *, top: int) -> list[tuple[int, float]]:
        """The `top` texts that contain some of the words, as (key, BM25 score), best first."""
        counts = (self.tables.state("worded"), self.tables.state("words"))
        return search_words(self.connection, words, top=top, counts=counts)

    def fields(self, side: Side) -> list[str]:
        """Names of the metadata fields, sorted."""
        names = self.connection.execute(_FIELDS, {"side": SIDES.index(side)})
        return sorted(name for (name,) in names if not name.endswith(DATE))

    def values(self, side: Side, name: str, *, most: int, choice: int) -> FieldValues:
        """The values of a field: the `most` frequent ones where no more than `choice` are different."""
        own = (SIDES.index(side), name)
        ((texts, numbers, different, low, high),) = self.tables.run(_KINDS, *own)
        rows = self.tables.run(_COMMON, *own, most) if different <= choice else []
        ((*_, first, last),) = self.tables.run(_KINDS, own[0], name + DATE)
        return FieldValues(
            bool(texts),
            bool(numbers),
            int(different),
            tuple((_plain(number) if word is None else word, int(count)) for word, number, count in rows),
            None if low is None else (_plain(low), _plain(high)),
            None if first is None else (float(first), float(last)),
        )

    def records(self, kind: str) -> list[tuple[Any, ...]]:
        """Other records of the index; see `View.records`."""
        if kind == "documents":
            return self.tables.run("SELECT name, extract(epoch FROM written)::float8 FROM kept")
        if kind in ("jobs", "deleted"):
            return super().records(kind)
        return self.tables.run("SELECT value FROM kept WHERE name = ?", kind)

    def with_phrase(self, side: int, phrase: str) -> Part:
        """Items whose text contains the words of a phrase in their order; of images, those of such texts."""
        query = phrase_query(_held(phrase))
        if side == 1:
            return "SELECT key FROM items WHERE side = 1 AND words @@ ?::tsquery", [query]
        statement = (
            "SELECT i.key FROM items t JOIN links l ON l.text = t.id JOIN items i ON i.side = 0 AND i.id = l.image "
            "WHERE t.side = 1 AND t.words @@ ?::tsquery"
        )
        return statement, [query]

    def with_part(self, side: int, name: str | None, part: str) -> Part:
        """Items with a text in a field, or with an id for None, that contains a case-folded part."""
        if name is None:
            return "SELECT key FROM items WHERE side = ? AND strpos(folded_id, ?) > 0", [side, _held(part)]
        statement = "SELECT key FROM facets WHERE side = ? AND name = ? AND strpos(folded, ?) > 0"
        return statement, [side, _held(name), _held(part)]

    def with_values(self, side: int, name: str, values: Sequence[Value]) -> Part:
        """Items of which a field has one of some values."""
        texts = [_held(value) for value in values if isinstance(value, str)]
        numbers = [_number(value) for value in values if not isinstance(value, str)]
        statement = "SELECT key FROM facets WHERE side = ? AND name = ? AND number = ANY(?::numeric[])"
        if not texts:
            return statement, [side, _held(name), numbers]
        by_word = (
            "SELECT key FROM facets WHERE side = ? AND name = ? AND word IS NOT NULL "
            "AND left(word, 200) IN (SELECT left(w, 200) FROM unnest(?::text[]) AS u(w)) AND word = ANY(?::text[])"
        )
        return f"{statement} UNION {by_word}", [side, _held(name), numbers, side, _held(name), texts, texts]

    def with_range(self, side: int, name: str, test: str, limit: Value) -> Part:
        """Items of which a field has a number below or above a limit."""
        statement = f"SELECT key FROM facets WHERE side = ? AND name = ? AND number {test} ?"
        return statement, [side, _held(name), _number(limit)]


class DatabaseWriter(SqlWriter):
    """Changes an index in PostgreSQL, beside other writers; made by `Database.writing`."""

    store: Database
    tables: PostgresTables
    ascii_source = True

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
        _require_held([*change.entries, *change.amended])
        count = len(change.entries)
        with self.changing():
            ((last,),) = self.tables.run("UPDATE state SET value = value + ? WHERE name = 'key' RETURNING value", count)
            keys = range(int(last) - count + 1, int(last) + 1)
            applied, _ = self.change_rows(replace(change, vectors=vectors), keys)
            for name, text in change.documents.items():
                self.tables.run(
                    "INSERT INTO kept (name, value) VALUES (?, ?) ON CONFLICT (name) "
                    "DO UPDATE SET value = excluded.value, written = clock_timestamp()",
                    name,
                    text,
                )
        return applied

    def compact(self, *, seed: int = 0) -> list[str]:
        """Build graphs where a side is large, and overwrite deleted rows; see `build_graphs`."""
        with translated(self.address):
            sides = {
                side: vectors_of(self.connection, self.manifest, side, self.tables.state(side), {}) for side in SIDES
            }
            return build_graphs(self.connection, self.address, self.changing, sides)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """One change, made completely; whoever else changes the index waits until it is committed.

        Raises IndexError_ when the index has been moved to another model since it was opened.
        """
        with translated(self.address), self.connection.transaction():
            generation = self.tables.run("UPDATE state SET value = value + 1 WHERE name = 'generation' RETURNING value")
            manifest = self.tables.run("SELECT json FROM manifest")
            if not generation or not manifest:
                raise IndexError_(f"{self.address} needs its manifest, and has none; restore a backup")
            now = Manifest.from_json(manifest[0][0], where=str(self.address))
            if now.fingerprint != self.manifest.fingerprint:
                raise IndexError_(_other_model(self.address))
            yield
        self.manifest = replace(self.manifest, generation=int(generation[0][0]))

    def insert_rows(self, side: Side, keys: Sequence[int], entries: Sequence[Entry], vectors: Any) -> None:
        """Insert new items and their (N K D) vectors."""
        if not entries:
            return
        number, texts = SIDES.index(side), [_words(entry) for entry in entries]
        with self.connection.cursor() as cursor:
            with cursor.copy(_ITEM) as copy:
                for key, entry, own, text in zip(keys, entries, vectors, texts, strict=True):
                    digests = (entry.digest(number, key), vectors_digest(own))
                    copy.write_row(
                        (key, number, entry.id, entry.id.casefold(), *_columns(entry), *digests, *_tsvector(text))
                    )
            table = sql.SQL("COPY {} (key, view, vector) FROM STDIN (FORMAT BINARY)").format(VECTORS[side])
            with cursor.copy(table) as copy:
                copy.set_types(["int8", "int2", "vector"])
                for key, own in zip(keys, vectors, strict=True):
                    for view, vector in enumerate(own):
                        copy.write_row((key, view, vector))
        self._insert_facets(number, keys, entries)
        self._count_words(texts)
        self._add_to(side, len(entries))

    def update_rows(self, side: Side, keys: Sequence[int], entries: Sequence[Entry]) -> None:
        """Update items whose vectors stay."""
        if not entries:
            return
        number, texts = SIDES.index(side), [_words(entry) for entry in entries]
        self._remove_facets(keys)
        statement = (
            "UPDATE items SET path = %s, text = %s, metadata = %s, content = %s, stamp = %s, digest = %s, "
            "words = %s::tsvector, length = %s WHERE key = %s"
        )
        rows = [
            (*_columns(entry), entry.digest(number, key), *_tsvector(text), key)
            for key, entry, text in zip(keys, entries, texts, strict=True)
        ]
        with self.connection.cursor() as cursor:
            cursor.executemany(statement, rows)
        self._insert_facets(number, keys, entries)
        self._count_words(texts)

    def remove_rows(self, side: Side, keys: Sequence[int]) -> None:
        """Remove items, their vectors and facets."""
        if keys:
            self._remove_facets(keys)
            self.tables.run("DELETE FROM items WHERE key = ANY(?::bigint[])", list(keys))
            self._add_to(side, -len(keys))

    def remove_links(self, links: Sequence[tuple[str, str]]) -> None:
        """Remove links, (image id, text id)."""
        self.tables.run(
            "DELETE FROM links l USING unnest(?::text[], ?::text[]) AS p(image, text) "
            "WHERE p.image = l.image AND p.text = l.text",
            [image for image, _ in links],
            [text for _, text in links],
        )

    def insert_links(self, links: Sequence[tuple[str, str]]) -> None:
        """Link images and texts of which both are in the index."""
        held = [(image, text) for image, text in links if can_hold(image) and can_hold(text)]
        if held:
            self.tables.run(
                "INSERT INTO links SELECT p.image, p.text FROM unnest(?::text[], ?::text[]) AS p(image, text) "
                "WHERE EXISTS (SELECT 1 FROM items i WHERE i.side = 0 AND i.id = p.image) "
                "AND EXISTS (SELECT 1 FROM items t WHERE t.side = 1 AND t.id = p.text) ON CONFLICT DO NOTHING",
                [image for image, _ in held],
                [text for _, text in held],
            )

    def _insert_facets(self, side: int, keys: Sequence[int], entries: Sequence[Entry]) -> None:
        total = 0
        with self.connection.cursor() as cursor, cursor.copy(_FACET) as copy:
            for key, entry in zip(keys, entries, strict=True):
                for row in facet_rows(side, key, entry.metadata_json):
                    copy.write_row(row)
                    total += 1
        self._add_to("facets", total)

    def _remove_facets(self, keys: Sequence[int]) -> None:
        """Remove the facets of items, and count their words no more."""
        statement = "SELECT count(length), coalesce(sum(length), 0) FROM items WHERE key = ANY(?::bigint[])"
        ((texts, length),) = self.tables.run(statement, list(keys))
        self._add_to("worded", -int(texts))
        self._add_to("words", -int(length))
        removed = self.tables.run("DELETE FROM facets WHERE key = ANY(?::bigint[]) RETURNING key", list(keys))
        self._add_to("facets", -len(removed))

    def _count_words(self, texts: Sequence[list[str] | None]) -> None:
        lengths = [len(text) for text in texts if text is not None]
        self._add_to("worded", len(lengths))
        self._add_to("words", sum(lengths))

    def _add_to(self, name: str, more: int) -> None:
        if more:
            self.tables.run("UPDATE state SET value = value + ? WHERE name = ?", more, name)


class Database(Store):
    """An index in PostgreSQL, opened.

    Raises IndexError_ when there is none, or it has another layout; StoreGone without a server.
    """

    def __init__(self, address: str | Address) -> None:
        self.address = _parsed(address)
        self.path = str(self.address)
        self._pool = Pool(self.address, require_layout)
        self._generation: tuple[int, dict[str, Any]] = (-1, {})
        self._manifest_json = ""
        with self._pool.connected() as connection:
            self.manifest = self._manifest(connection)

    @classmethod
    def create(cls, location: str | Address, manifest: Manifest, *, upto: int = LAYOUT) -> Database:
        """An empty index, made completely or not at all; beyond `EXACT_UP_TO` vectors, or the manifest's, by graphs.

        upto  the layout that is made; see `make_tables`

        Raises IndexError_ when the name is taken, or vectors are wider than pgvector's graphs take; OutputError where
        this user may not make it.
        """
        address = _parsed(location)
        if manifest.width > WIDEST:
            raise IndexError_(
                f"an index in PostgreSQL needs vectors of at most {WIDEST:,} numbers; these have "
                f"{manifest.width:,}; keep the index in a folder"
            )
        manifest = replace(manifest, exact_up_to=min(manifest.exact_up_to, EXACT_UP_TO), generation=0)
        with _connected(address) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            with connection.transaction():
                _require_free(connection, address)
                connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(address.name)))
                make_tables(ready(connection, address), manifest.width, upto=upto)
                connection.execute("INSERT INTO manifest (json) VALUES (%s)", (manifest.to_json(),))
        return cls(address)

    @classmethod
    def exists(cls, location: str | Address) -> bool:
        """Whether there is an index of that name. Raises StoreGone without a server."""
        address = _parsed(location)
        statement = "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = %s AND tablename = 'layout'"
        with _connected(address) as connection:
            return connection.execute(statement, (address.name,)).fetchone() is not None

    @classmethod
    def require_free(cls, location: str | Address) -> None:
        """Raise IndexError_ unless an index of that name can be made."""
        address = _parsed(location)
        with _connected(address) as connection:
            _require_free(connection, address)

    @classmethod
    def name_of(cls, location: str | Address) -> str:
        """The name of the index in its database."""
        return _parsed(location).name

    @classmethod
    def upgrade(cls, location: str | Address) -> tuple[int, int]:
        """Upgrade an index to this layout; the layout before and the one now. See `upgrade_layout`."""
        address = _parsed(location)
        connection = to_write(address)
        try:
            return upgrade_layout(connection, address)
        finally:
            connection.close()

    @contextmanager
    def reading(self) -> Iterator[DatabaseView]:
        """The index at this moment.

        Raises StoreGone when the server goes away meanwhile; one that was restarted before is connected again. Raises
        IndexError_ when the index has been moved to another model since it was opened.
        """
        with self._pool.connected() as connection, translated(self.address), connection.transaction():
            rows = dict(connection.execute(_STATE).fetchall())
            self._require_same(rows.pop("manifest", None))
            numbers = {str(name): int(value) for name, value in rows.items()}
            generation, cache = self._generation
            if generation != numbers["generation"]:
                cache = {}
                self._generation = (numbers["generation"], cache)
            counts = {side: numbers[side] for side in SIDES}
            yield DatabaseView(connection, self.manifest, numbers["generation"], counts, cache)

    @contextmanager
    def writing(self, verb: str) -> Iterator[DatabaseWriter]:
        """A writer, beside others; the server's administrator sees `verb`.

        Raises OutputError where this user may not write.
        """
        connection = to_write(self.address)
        try:
            with translated(self.address):
                connection.execute("SELECT set_config('application_name', %s, false)", (f"subtext index {verb}",))
            writer = DatabaseWriter(self, connection, self._manifest(connection))
            if writer.manifest.fingerprint != self.manifest.fingerprint:
                raise IndexError_(_other_model(self.address))
            try:
                yield writer
            finally:
                self.manifest = writer.manifest
        finally:
            connection.close()

    def check(self) -> list[Problem]:
        """Damage of vectors, facets, words and graphs."""
        with self.reading() as view:
            return check(view)

    @property
    def moved(self) -> bool:
        """Whether an index of another model has taken the place of this one since it was opened: open it again."""
        with self._pool.connected() as connection:
            return self._manifest(connection).fingerprint != self.manifest.fingerprint

    def remove(self) -> None:
        """Remove the index."""
        self.close()
        connection = to_write(self.address)
        try:
            with translated(self.address):
                connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(self.address.name)))
        finally:
            connection.close()

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
        old, replacement = (sql.Identifier(store.address.name) for store in (self, new))
        new.close()
        connection = to_write(self.address)
        try:
            with translated(self.address), connection.transaction():
                # Every reader and writer begins with this table: behind the lock nobody is reading or writing.
                connection.execute(sql.SQL("LOCK TABLE {}.state IN ACCESS EXCLUSIVE MODE").format(old))
                row = connection.execute(
                    sql.SQL("SELECT value FROM {}.state WHERE name = 'generation'").format(old)
                ).fetchone()
                if row is None or int(row[0]) != generation:
                    raise IndexError_(
                        f"{self.path} was changed while its items were embedded; run the command again: it embeds what "
                        "is new, and nothing else"
                    )
                connection.execute(
                    sql.SQL("INSERT INTO {}.forgotten SELECT hash FROM {}.forgotten ON CONFLICT DO NOTHING").format(
                        replacement, old
                    )
                )
                connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(old))
                connection.execute(sql.SQL("ALTER SCHEMA {} RENAME TO {}").format(replacement, old))
        finally:
            connection.close()
        return Database(self.address)

    def document(self, name: str) -> str:
        """Where a document of the index is, for messages."""
        return f"{self.address}, table kept, name {name}"

    def close(self) -> None:
        """Release the connections that nobody uses at this moment."""
        self._pool.close()

    def _require_same(self, manifest_json: str | None) -> None:
        """Raise IndexError_ unless the index is still of the model that it was opened with."""
        if manifest_json is None:
            raise IndexError_(f"{self.address} needs its manifest, and has none; restore a backup")
        if manifest_json != self._manifest_json:
            manifest = Manifest.from_json(manifest_json, where=str(self.address))
            if manifest.fingerprint != self.manifest.fingerprint:
                raise IndexError_(_other_model(self.address))
            self._manifest_json = manifest_json

    def _manifest(self, connection: Connection) -> Manifest:
        require_layout(connection, self.address)
        statement = "SELECT json, value FROM manifest, state WHERE name = 'generation'"
        with translated(self.address):
            row = connection.execute(statement).fetchone()
        if row is None:
            raise IndexError_(f"{self.address} needs its manifest, and has none; restore a backup")
        return replace(Manifest.from_json(row[0], where=str(self.address)), generation=int(row[1]))


def vectors_of(connection: Connection, manifest: Manifest, side: Side, count: int, cache: dict[str, Any]) -> Vectors:
    """The vectors of a side, as a connection sees them."""
    return Vectors(
        connection,
        side,
        count=count,
        views=manifest.views[side],
        width=manifest.width,
        exact_up_to=manifest.exact_up_to,
        cache=cache,
    )


def can_hold(text: str) -> bool:
    """Whether PostgreSQL can hold a text: it has neither NUL nor unpaired surrogates."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


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


@contextmanager
def _connected(address: Address) -> Iterator[Connection]:
    connection = connect(address)
    try:
        with translated(address):
            yield connection
    finally:
        connection.close()


def _require_free(connection: Connection, address: Address) -> None:
    statement = "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s"
    if connection.execute(statement, (address.name,)).fetchone() is not None:
        raise IndexError_(
            f"an index in PostgreSQL needs a new name; there is a schema '{address.name}' in that database already; "
            "name another by index=NAME, or remove it"
        )


def _require_held(entries: Sequence[Entry]) -> None:
    """Raise IndexError_ for an item of which PostgreSQL cannot hold something."""
    for entry in entries:
        values = [text for facet in facets(json.loads(entry.metadata_json)) for text in facet if isinstance(text, str)]
        texts = [entry.id, entry.path or "", entry.text or "", entry.metadata_json, entry.stamp or "", *values]
        if not all(can_hold(text) for text in texts):
            raise IndexError_(
                "an index in PostgreSQL needs names, texts and metadata without NUL and unpaired surrogates; item "
                f"{entry.id!r} has such characters; remove them from the data, or keep the index in a folder"
            )


def _held(text: str) -> str:
    """A text that PostgreSQL can hold."""
    if not can_hold(text):
        raise RequirementError(f"a condition needs texts without NUL and unpaired surrogates; it got {text!r}")
    return text


def _number(value: Value) -> Decimal | None:
    """As PostgreSQL compares it exactly; None, which nothing is equal to, for what is no number."""
    number = moment(value) if isinstance(value, date) else value
    assert not isinstance(number, str | date)
    return None if isinstance(number, float) and math.isnan(number) else Decimal(number)


def _plain(number: Decimal) -> int | float:
    return int(number) if number == number.to_integral_value() else float(number)


def _columns(entry: Entry) -> tuple[Any, ...]:
    return entry.path, entry.text, entry.metadata_json, entry.content, entry.stamp


def _words(entry: Entry) -> list[str] | None:
    return None if entry.text is None else words(entry.text)


def _tsvector(text: list[str] | None) -> tuple[str | None, int | None]:
    return (None, None) if text is None else (as_vector(text), len(text))


def _other_model(address: Address) -> str:
    return f"{address} was moved to another model meanwhile; open it again"


AT_ONCE = 2000
"""Rows that are read together."""


def check(view: DatabaseView) -> list[Problem]:
    """Damage that only the database can see; empty for an intact index.

    Reads every row and every vector once. Bytes under the rows are PostgreSQL's own to check (data checksums,
    pg_amcheck).
    """
    problems = [problem for side in SIDES for problem in _vectors(view, side)]
    for part in (_facets, _verification_words, _graphs):
        problems += part(view)
    return problems


def _vectors(view: DatabaseView, side: Side) -> Iterator[Problem]:
    """Whether each item has its vectors, and these are those that were put in."""
    views, missing, damaged = view.sides[side].views, list[str](), list[str]()
    statement = sql.SQL(
        "SELECT i.id, i.vectors_digest, array_agg(v.vector ORDER BY v.view) FILTER (WHERE v.vector IS NOT NULL) "
        "FROM items i LEFT JOIN {} v ON v.key = i.key WHERE i.side = %s GROUP BY i.key"
    ).format(VECTORS[side])
    with view.connection.cursor(f"vectors_of_{side}", binary=True) as cursor:
        cursor.itersize = AT_ONCE
        for name, digest, vectors in cursor.execute(statement, (SIDES.index(side),)):
            if len(vectors or ()) != views:
                missing.append(repr(name))
            elif vectors_digest(np.stack([vector.to_numpy() for vector in vectors])) != digest:
                damaged.append(repr(name))
    if missing:
        yield Problem(f"{side}_vectors", f"{counted(len(missing), 'item')} without {views} vectors: {listed(missing)}")
    if damaged:
        yield Problem(
            f"{side}_vectors", f"{counted(len(damaged), 'item')} with changed or damaged vectors: {listed(damaged)}"
        )


def _facets(view: DatabaseView) -> Iterator[Problem]:
    """What is filtered by, against the metadata."""
    wrong: list[str] = []
    statement = (
        "SELECT i.id, i.side, i.key, i.metadata, coalesce(f.own, '{}') FROM items i LEFT JOIN (SELECT key, "
        "array_agg(concat_ws('|', side, name, number, word, folded)) AS own FROM facets GROUP BY key) f "
        "ON f.key = i.key"
    )
    total = 0
    with view.connection.cursor("facets_of_items") as cursor:
        cursor.itersize = AT_ONCE
        for name, side, key, metadata, own in cursor.execute(statement):
            total += len(own)
            expected = [
                "|".join(
                    format(part, "f") if isinstance(part, Decimal) else str(part)
                    for part in row[1:]
                    if part is not None
                )
                for row in facet_rows(side, key, metadata)
            ]
            if sorted(expected) != sorted(own):
                wrong.append(repr(name))
    if wrong:
        yield Problem(
            "facets",
            f"what {counted(len(wrong), 'item')} can be filtered by differs from the metadata: {listed(wrong)}",
        )
    if total != view.tables.state("facets"):
        yield Problem("facets", f"has {total:,} of {view.tables.state('facets'):,} rows")


def _verification_words(view: DatabaseView) -> Iterator[Problem]:
    """The words that texts are found by, against the texts."""
    wrong: list[str] = []
    differing = (
        "SELECT i.id FROM unnest(%s::bigint[], %s::text[], %s::integer[]) AS w(key, words, length) "
        "JOIN items i ON i.key = w.key WHERE i.words IS DISTINCT FROM w.words::tsvector "
        "OR i.length IS DISTINCT FROM w.length"
    )
    with view.connection.cursor("words_of_texts") as cursor:
        cursor.execute("SELECT key, text FROM items WHERE text IS NOT NULL")
        while rows := cursor.fetchmany(AT_ONCE):
            texts = [words(text) for _, text in rows]
            values = ([key for key, _ in rows], [as_vector(own) for own in texts], [len(own) for own in texts])
            wrong += [repr(name) for (name,) in view.connection.execute(differing, values)]
    if wrong:
        yield Problem(
            "items",
            f"the words of {counted(len(wrong), 'text')} differ from the texts: {listed(wrong)}",
        )


def _graphs(view: DatabaseView) -> Iterator[Problem]:
    """Whether PostgreSQL calls the indexes of the schema whole."""
    statement = (
        "SELECT c.relname FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = current_schema() "
        "AND NOT i.indisvalid"
    )
    graphs = {named(side) for side in SIDES for named in (graph_name, former_name)}
    for (name,) in view.connection.execute(statement):
        advice = "compact the index" if name in graphs else "REINDEX it"
        yield Problem(name, f"is not whole, as its making was cut off; {advice}")
