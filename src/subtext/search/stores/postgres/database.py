"""A search index in PostgreSQL: a schema that describes itself, for any number of readers and writers at once.

NAME.layout          number of the layout, see `layout`
NAME.manifest        model and its fingerprint, width, where items came from
NAME.items, links, facets, images_vectors, texts_vectors    what is there; every change is one transaction
NAME.jobs, forgotten, kept, state                            the journal, hashes of what was deleted, what was measured

A reader sees one moment (a transaction of REPEATABLE READ), however much is changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from psycopg import sql

from subtext.errors import IndexError_
from subtext.search.stores.calibration import Calibration
from subtext.search.stores.item import SIDES, Side
from subtext.search.stores.manifest import Manifest
from subtext.search.stores.postgres import layout
from subtext.search.stores.postgres.address import Address
from subtext.search.stores.postgres.connection import Connection, connect, ready, to_write, told
from subtext.search.stores.postgres.pool import Pool
from subtext.search.stores.postgres.view import View
from subtext.search.stores.postgres.writer import Writer, shelf_of

EXACT_UP_TO = 20_000
"""Vectors of a side that are all compared by default: beyond them a walk of the graph is sooner done."""

_STATE = (
    "SELECT name, value::text FROM state WHERE name IN ('generation', 'images', 'texts') "
    "UNION ALL SELECT 'manifest', json FROM manifest"
)
_SIZE = (
    "SELECT coalesce(sum(pg_catalog.pg_total_relation_size(c.oid)), 0) FROM pg_catalog.pg_class c "
    "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = current_schema() AND c.relkind = 'r'"
)


class Database:
    """An index in a database, opened; of use by several threads, and while other processes write.

    Raises IndexError_ when there is none, or it has another layout; StoreGone without a server.
    """

    def __init__(self, address: str | Address) -> None:
        self.address = Address.parse(address) if isinstance(address, str) else address
        self._pool = Pool(self.address)
        self._kept: tuple[int, dict[Side, dict[str, Any]]] = (-1, {})
        self._written = ""
        with self._pool.connected() as connection:
            self.manifest = self._manifest(connection)

    @property
    def path(self) -> str:
        """Its address, without anything secret."""
        return str(self.address)

    @property
    def bytes(self) -> int:
        """Its size on the server's disk."""
        with self._pool.connected() as connection, told(self.address):
            row = connection.execute(_SIZE).fetchone()
        return 0 if row is None else int(row[0])

    def server(self) -> dict[str, str]:
        """Versions of what it lies in."""
        statement = "SELECT extversion FROM pg_catalog.pg_extension WHERE extname = 'vector'"
        with self._pool.connected() as connection, told(self.address):
            row = connection.execute(statement).fetchone()
            number = connection.info.server_version
        found = "-" if row is None else str(row[0])
        return {"PostgreSQL": f"{number // 10_000}.{number % 10_000}", "pgvector": found, "layout": str(layout.LAYOUT)}

    @property
    def counts(self) -> dict[str, int]:
        """Pictures and texts that are in it now."""
        with self.reading() as view:
            return view.counts

    @contextmanager
    def reading(self) -> Iterator[View]:
        """The index at one moment: inside the block nothing changes, whatever is written meanwhile.

        Raises StoreGone when the server goes away in the midst of it; one that was restarted before is found again.
        Raises IndexError_ when the index has gone to another model since it was opened.
        """
        with self._pool.connected() as connection, told(self.address), connection.transaction():
            rows = dict(connection.execute(_STATE).fetchall())
            self._require_same(rows.pop("manifest", None))
            found = {str(name): int(value) for name, value in rows.items()}
            generation, kept = found["generation"], self._at(found["generation"])
            yield View(
                connection,
                generation,
                {side: shelf_of(connection, self.manifest, side, found[side], kept[side]) for side in SIDES},
            )

    @contextmanager
    def writing(self, verb: str) -> Iterator[Writer]:
        """Somebody who may change it, beside others; `verb` is told to the server's administrator.

        Raises OutputError where this user may not write.
        """
        connection = to_write(self.address)
        try:
            with told(self.address):
                connection.execute("SELECT set_config('application_name', %s, false)", (f"subtext index {verb}",))
            writer = Writer(connection, self.address, self._manifest(connection))
            if writer.manifest.fingerprint != self.manifest.fingerprint:
                raise IndexError_(_other(self.address))
            try:
                yield writer
            finally:
                self.manifest = writer.manifest
        finally:
            connection.close()

    def calibration(self) -> Calibration | None:
        """What its scores are worth; None where that was not measured."""
        with self._pool.connected() as connection, told(self.address):
            row = connection.execute("SELECT value FROM kept WHERE name = 'calibration'").fetchone()
        return None if row is None else Calibration.from_json(row[0], where=str(self.address))

    def calibration_mark(self) -> float:
        """When the calibration was written, in seconds; 0 where there is none."""
        statement = "SELECT extract(epoch FROM written) FROM kept WHERE name = 'calibration'"
        with self._pool.connected() as connection, told(self.address):
            row = connection.execute(statement).fetchone()
        return 0.0 if row is None else float(row[0])

    def keep_calibration(self, calibration: Calibration, plot: str) -> str:
        """Keep a calibration and its plot, an SVG document; says where the plot is."""
        with self.writing("calibrate") as writer, told(self.address), writer.connection.transaction():
            for name, value in (("calibration", calibration.to_json()), ("plot", plot)):
                writer.connection.execute(
                    "INSERT INTO kept (name, value) VALUES (%s, %s) ON CONFLICT (name) "
                    "DO UPDATE SET value = excluded.value, written = clock_timestamp()",
                    (name, value),
                )
        return f"{self.address}, table kept, name plot"

    @property
    def moved(self) -> bool:
        """Whether an index of another model has taken the place of this one since it was opened: open it again."""
        with self._pool.connected() as connection:
            return self._manifest(connection).fingerprint != self.manifest.fingerprint

    def gone(self) -> list[str]:
        """Trace names of what was deleted and has not come again: what others keep of it has to go as well."""
        with self._pool.connected() as connection, told(self.address):
            return [bytes(own).hex() for (own,) in connection.execute("SELECT hash FROM forgotten").fetchall()]

    def close(self) -> None:
        """Let go of the connections that nobody uses at this moment."""
        self._pool.close()

    def _require_same(self, written: str | None) -> None:
        """Raise IndexError_ unless the index is still of the model that it was opened with."""
        if written is None:
            raise IndexError_(f"{self.address} needs its manifest, and has none; restore a backup")
        if written != self._written:
            if Manifest.from_json(written, where=str(self.address)).fingerprint != self.manifest.fingerprint:
                raise IndexError_(_other(self.address))
            self._written = written

    def _at(self, generation: int) -> dict[Side, dict[str, Any]]:
        """What was read of a generation: that of the last search where nothing has changed."""
        known, kept = self._kept
        if known != generation:
            kept = {side: {} for side in SIDES}
            self._kept = (generation, kept)
        return kept

    def _manifest(self, connection: Connection) -> Manifest:
        layout.require_layout(connection, self.address)
        statement = "SELECT json, value FROM manifest, state WHERE name = 'generation'"
        with told(self.address):
            row = connection.execute(statement).fetchone()
        if row is None:
            raise IndexError_(f"{self.address} needs its manifest, and has none; restore a backup")
        return replace(Manifest.from_json(row[0], where=str(self.address)), generation=int(row[1]))


def create(text: str | Address, manifest: Manifest, *, upto: int = layout.LAYOUT) -> Database:
    """An empty index, made whole or not at all; beyond `EXACT_UP_TO` vectors, or fewer if the manifest says so, graphs.

    upto  the layout that is made; see `layout.make`

    Raises IndexError_ when the name is taken, or vectors are wider than pgvector's graphs take; OutputError where this
    user may not make it.
    """
    address = Address.parse(text) if isinstance(text, str) else text
    if manifest.width > layout.WIDEST:
        raise IndexError_(
            f"an index in PostgreSQL needs vectors of at most {layout.WIDEST:,} numbers; these have "
            f"{manifest.width:,}; keep the index in a folder"
        )
    manifest = replace(manifest, exact_up_to=min(manifest.exact_up_to, EXACT_UP_TO), generation=0)
    connection = connect(address)
    try:
        with told(address):
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        with told(address), connection.transaction():
            _require_free(connection, address)
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(address.name)))
            layout.make(ready(connection, address), manifest.width, upto=upto)
            connection.execute("INSERT INTO manifest (json) VALUES (%s)", (manifest.to_json(),))
    finally:
        connection.close()
    return Database(address)


def exists(text: str | Address) -> bool:
    """Whether there is an index of that name. Raises StoreGone without a server."""
    address = Address.parse(text) if isinstance(text, str) else text
    statement = "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = %s AND tablename = 'layout'"
    connection = connect(address)
    try:
        with told(address):
            return connection.execute(statement, (address.name,)).fetchone() is not None
    finally:
        connection.close()


def require_free(text: str) -> None:
    """Raise IndexError_ unless an index of that name can be made."""
    address = Address.parse(text)
    connection = connect(address)
    try:
        with told(address):
            _require_free(connection, address)
    finally:
        connection.close()


def drop(store: Database) -> None:
    """Remove an index wholly."""
    connection = to_write(store.address)
    try:
        with told(store.address):
            connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(store.address.name)))
    finally:
        connection.close()


def migrate(text: str) -> tuple[int, int]:
    """Lead an index to this layout; gives the one before and the one now. See `layout.migrate`."""
    address = Address.parse(text)
    connection = to_write(address)
    try:
        return layout.migrate(connection, address)
    finally:
        connection.close()


def _require_free(connection: Connection, address: Address) -> None:
    statement = "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s"
    if connection.execute(statement, (address.name,)).fetchone() is not None:
        raise IndexError_(
            f"an index in PostgreSQL needs a new name; there is a schema '{address.name}' in that database already; "
            "name another by index=NAME, or remove it"
        )


def _other(address: Address) -> str:
    return f"{address} was made anew by another model meanwhile; open it again"
