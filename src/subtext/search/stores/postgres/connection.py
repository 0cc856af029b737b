"""Where an index in PostgreSQL is, how it is connected to, and the tables that it has.

Nothing here shows a word of a password: neither an address, nor what a server says.
"""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import psycopg
from pgvector.psycopg import register_vector
from psycopg import IsolationLevel, errors, sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from subtext.errors import IndexError_, OutputError
from subtext.search.stores.item import SIDES
from subtext.search.stores.sql import Tables, can_hold
from subtext.search.stores.store import StoreGone, WriterBusy

Connection = psycopg.Connection[tuple[Any, ...]]

INDEX = "subtext"
"""The index that is meant where an address names none."""
TIMEOUT = 10
"""Seconds that are waited for a server, unless the address says otherwise (connect_timeout)."""
NEEDED = (0, 8)
"""The first pgvector that goes on looking where a filter leaves too few (iterative scan)."""
PATIENCE = "300s"
"""How long a writer waits for another one's change."""
MOST = 24
"""Connections of one process at a time: a Subtext server has a hundred threads, and PostgreSQL by default a hundred
connections for all its clients."""
LAYOUT = 2
"""The layout of the tables that this Subtext reads and writes."""
WIDEST = 2000
"""Width up to which pgvector makes graphs of vectors."""
PLAIN = 1900
"""Width up to which a vector stays in its row: outside of it each comparison would have to fetch it."""

_SCHEMA = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")

_STEPS = {
    1: "CREATE TABLE kept (name text PRIMARY KEY, value text NOT NULL, written timestamptz NOT NULL DEFAULT now())",
}
"""Layout -> the statement that upgrades it to the next one. The first layout had no table of documents."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")
_TAKEN = ("public", "information_schema")
_SECRET = ("password", "sslpassword", "passfile", "service", "servicefile", "sslkey", "oauth_client_secret")


@dataclass(frozen=True)
class Address:
    """An index in a database.

    name        of the index, which is the PostgreSQL schema that its tables lie in
    parameters  what libpq connects by, a password among them: never shown
    """

    name: str
    parameters: Mapping[str, Any] = field(repr=False)

    @staticmethod
    def parse(text: str) -> Address:
        """The address of `postgresql://USER@HOST:PORT/DATABASE?index=NAME`; all of libpq's parameters are understood.

        Raises IndexError_ for anything else, without repeating it: a password may be in it.
        """
        base, _, query = text.partition("?")
        pairs = parse_qsl(query, keep_blank_values=True)
        name = ([value for key, value in pairs if key == "index"] or [INDEX])[-1]
        for_server = urlencode([(key, value) for key, value in pairs if key != "index"], quote_via=quote)
        try:
            parameters = conninfo_to_dict(f"{base}?{for_server}" if for_server else base)
        except (psycopg.Error, ValueError):
            parameters = {"port": "?"}
        # A sign of a password, such as a slash, may have ended the address's first part too soon.
        if re.search(r"[^\d,]", str(parameters.get("port") or "")) or "@" in str(parameters.get("dbname")):
            # What libpq says of it, and what it took for a port or a database, may be a part of the password.
            raise IndexError_(
                "an index in PostgreSQL needs an address of the form "
                "postgresql://USER@HOST:PORT/DATABASE?index=NAME; this one cannot be read (it is not repeated, as a "
                "password may be in it); write a password's signs other than letters and digits as %XX, or give it as "
                "PGPASSWORD"
            ) from None
        if not _NAME.fullmatch(name) or name.startswith("pg_") or name in _TAKEN:
            raise IndexError_(
                "an index in PostgreSQL needs a name of letters, digits, _ and -, of at most 63, and not one of "
                f"PostgreSQL's own; it got {name!r}; name it by index=NAME at the end of the address"
            )
        return Address(name, {"connect_timeout": TIMEOUT, "application_name": "subtext", **parameters})

    def __str__(self) -> str:
        """The address without anything secret: user, host, port, database, and name."""
        parts = {key: str(self.parameters.get(key) or "") for key in ("user", "host", "port", "dbname")}
        local = parts["host"].startswith("/")
        user = f"{quote(parts['user'])}@" if parts["user"] else ""
        port = f":{parts['port']}" if parts["port"] and not local else ""
        query = ([("host", parts["host"])] if local else []) + [("index", self.name)]
        host = "" if local else parts["host"]
        return f"postgresql://{user}{host}{port}/{quote(parts['dbname'])}?{urlencode(query, safe='/')}"

    def without_secrets(self, text: str) -> str:
        """A text in which nothing that the address keeps secret is left.

        Whoever speaks to a server hears its messages, which the server may write as it likes.
        """
        for key in _SECRET:
            value = str(self.parameters.get(key) or "")
            for written in {value, quote(value), quote(value, safe="")} - {""}:
                text = text.replace(written, "***")
        return text


def connect(address: Address) -> Connection:
    """A connection that keeps each statement by itself, unless it stands in a transaction.

    Raises StoreGone when there is no server, or it lets nobody in.
    """
    with translated(address):
        # Statements are planned anew each time: how many items fulfil a filter decides how it is best searched.
        return psycopg.connect(**address.parameters, autocommit=True, prepare_threshold=None)


def set_up(connection: Connection, address: Address) -> None:
    """Let a connection find the index's tables by their names, and know vectors.

    Raises IndexError_ where pgvector is missing, or too old.
    """
    needed = ".".join(map(str, NEEDED))
    statement = (
        "SELECT e.extversion, n.nspname FROM pg_catalog.pg_extension e "
        "JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'"
    )
    row = connection.execute(statement).fetchone()
    if row is None:
        raise IndexError_(
            f"{address} needs pgvector {needed} or later; the database has none; an administrator puts it in by CREATE "
            "EXTENSION vector"
        )
    version, schema = row
    if tuple(int(part) for part in version.split(".")[:2]) < NEEDED:
        raise IndexError_(
            f"{address} needs pgvector {needed} or later; the database has {version}; an administrator renews it by "
            "ALTER EXTENSION vector UPDATE"
        )
    path = sql.SQL("SET search_path TO {}, {}").format(sql.Identifier(address.name), sql.Identifier(schema))
    connection.execute(path)
    register_vector(connection)


def connect_index(address: Address, *, write: bool = False) -> Connection:
    """A connection whose transactions see one state and change nothing.

    write  changes are possible; they are on the server's disk when they are acknowledged
    """
    connection = connect(address)
    with ExitStack() as on_failure, translated(address):
        on_failure.callback(connection.close)
        if not write:
            connection.isolation_level = IsolationLevel.REPEATABLE_READ
            connection.read_only = True
        set_up(connection, address)
        if write:
            connection.execute("SELECT set_config('synchronous_commit', 'on', false)")
            connection.execute("SELECT set_config('lock_timeout', %s, false)", (PATIENCE,))
        on_failure.pop_all()
    return connection


@contextmanager
def translated(address: Address) -> Iterator[None]:
    """Inside the block what PostgreSQL refuses becomes one of the project's errors, without anything secret."""
    try:
        yield
    except psycopg.Error as problem:
        raise _translate(problem, address) from None


def _translate(problem: psycopg.Error, address: Address) -> Exception:
    message = address.without_secrets((problem.diag.message_primary or str(problem)).strip().replace("\n", "; "))
    if isinstance(problem, errors.DiskFull):
        return OutputError(
            f"{address} needs space to be written, and the server has none: {message}; what stood there before still "
            "stands; free some and do it again"
        )
    if isinstance(problem, errors.LockNotAvailable | errors.DeadlockDetected | errors.SerializationFailure):
        return WriterBusy(f"{address} is being changed by somebody else: {message}; nothing was kept; do it again")
    if isinstance(problem, errors.InsufficientPrivilege | errors.ReadOnlySqlTransaction):
        return OutputError(
            f"{address} needs rights that this user lacks: {message}; an administrator gives them (GRANT), or makes "
            "the schema and CREATE EXTENSION vector"
        )
    if isinstance(problem, errors.UndefinedTable | errors.InvalidSchemaName):
        return IndexError_(
            f"{address} needs to be an index that `subtext index build` made, with all its tables: {message}; name "
            "another, or restore a backup"
        )
    if isinstance(problem, psycopg.OperationalError | psycopg.InterfaceError):
        return StoreGone(
            f"{address} needs its server, which cannot be reached or went away: {message}; no change is half kept; "
            "look to the server and do it again"
        )
    return IndexError_(f"{address} cannot be used: {message}; `subtext index verify` says what is wrong")


class Pool:
    """Connections to one index, for any number of threads."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._idle: list[Connection] = []
        self._free = threading.Semaphore(MOST)
        self._thread = threading.local()
        weakref.finalize(self, _close_all, self._idle)

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """A connection of this thread alone; inside another such block of the thread, the same one.

        Waits while all `MOST` of them are in use. Raises StoreGone when there is no server.
        """
        current: Connection | None = getattr(self._thread, "connection", None)
        if current is not None:
            yield current
            return
        with self._free:
            connection = self._thread.connection = self._acquired()
            try:
                yield connection
            finally:
                self._thread.connection = None
                if connection.info.transaction_status is TransactionStatus.IDLE:
                    self._idle.append(connection)
                else:
                    connection.close()

    def close(self) -> None:
        """Close the connections that nobody uses at this moment."""
        _close_all(self._idle)

    def _acquired(self) -> Connection:
        """A connection that answers: a restart of the server is noticed here."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return connect_index(self.address)
            try:
                connection.execute("SELECT 1")
            except psycopg.OperationalError:
                connection.close()
            else:
                return connection


def _close_all(connections: list[Connection]) -> None:
    while connections:
        connections.pop().close()


class PostgresTables(Tables):
    """The tables of an index, by one connection to PostgreSQL."""

    joined = "string_agg(key::text, ',')"

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def run(self, statement: str, *values: Any, binary: bool = False) -> list[tuple[Any, ...]]:
        """The rows that a statement gives; see `sql.Tables`.

        binary  rows come as PostgreSQL stores them: vectors are read sooner
        """
        cursor = self.connection.execute(sql.SQL(statement.replace("?", "%s")), values, binary=binary)
        return cursor.fetchall() if cursor.description is not None else []

    def run_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement with the values of each row."""
        with self.connection.cursor() as cursor:
            cursor.executemany(sql.SQL(statement.replace("?", "%s")), rows)

    def storable(self, names: Sequence[str]) -> list[str]:
        """Those of these names that a database can hold."""
        return [name for name in names if can_hold(name)]


def make_tables(connection: Connection, width: int) -> None:
    """Make the tables of an index for vectors of a width, inside a transaction."""
    tables = PostgresTables(connection)
    for statement in _SCHEMA.split(";\n"):
        if statement.strip():
            tables.run(statement)
    for side in SIDES:
        tables.run(
            f"CREATE TABLE {side}_vectors (key bigint NOT NULL REFERENCES items ON DELETE CASCADE, "
            f"view smallint NOT NULL, vector vector({width}) NOT NULL, PRIMARY KEY (key, view))"
        )
        if width <= PLAIN:
            tables.run(f"ALTER TABLE {side}_vectors ALTER COLUMN vector SET STORAGE PLAIN")


def layout_of(connection: Connection, address: Address) -> int:
    """The layout of an index. Raises IndexError_ where there is no index."""
    with translated(address):
        table = sql.Identifier(address.name, "layout")
        row = connection.execute(sql.SQL("SELECT version FROM {}").format(table)).fetchone()
    if row is None:
        raise IndexError_(f"{address} needs to say its layout, and says none; restore a backup")
    return int(row[0])


def require_layout(connection: Connection, address: Address) -> None:
    """Raise IndexError_ unless this Subtext reads the layout of the index."""
    layout = layout_of(connection, address)
    if layout < LAYOUT:
        raise IndexError_(
            f"{address} has layout {layout}, of an earlier Subtext; this one reads {LAYOUT}; "
            "upgrade it, once nobody uses that earlier one any more: subtext index upgrade INDEX"
        )
    if layout > LAYOUT:
        raise IndexError_(f"{address} has layout {layout}; this Subtext reads {LAYOUT}; use a newer Subtext")


def upgrade_layout(connection: Connection, address: Address) -> tuple[int, int]:
    """Upgrade an index to this layout, in one transaction; the layout before and the one now.

    Others wait meanwhile. Raises IndexError_ for a layout of a newer Subtext.
    """
    with translated(address), connection.transaction():
        connection.execute("LOCK TABLE layout IN ACCESS EXCLUSIVE MODE")
        before = layout_of(connection, address)
        for layout in range(before, LAYOUT):
            PostgresTables(connection).run(_STEPS[layout])
            connection.execute("UPDATE layout SET version = %s", (layout + 1,))
        require_layout(connection, address)
    return before, LAYOUT
