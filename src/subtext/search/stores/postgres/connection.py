"""Connections to a database: how they are set up and shared, and what its errors mean.

Where an index in PostgreSQL is: what libpq connects by, and the name of the index; never a word of a password.

The tables of an index in PostgreSQL, and the numbered steps that upgrade an earlier layout.
"""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import psycopg
from pgvector.psycopg import register_vector
from psycopg import IsolationLevel, errors, sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from subtext.errors import IndexError_, OutputError
from subtext.search.stores.item import SIDES, Side
from subtext.search.stores.store import StoreGone, WriterBusy

INDEX = "subtext"
"""The index that is meant where an address names none."""
TIMEOUT = 10
"""Seconds that are waited for a server, unless the address says otherwise (connect_timeout)."""

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
        given = parse_qsl(query, keep_blank_values=True)
        names = [value for key, value in given if key == "index"] or [INDEX]
        other_parameters = urlencode([(key, value) for key, value in given if key != "index"], quote_via=quote)
        try:
            parameters = conninfo_to_dict(f"{base}?{other_parameters}" if other_parameters else base)
        except (psycopg.Error, ValueError):
            parameters = None
        if parameters is None or not _is_whole(parameters):
            # What libpq says of it, and what it took for a port or a database, may be a part of the password.
            raise IndexError_(
                "an index in PostgreSQL needs an address of the form "
                "postgresql://USER@HOST:PORT/DATABASE?index=NAME; this one cannot be read (it is not repeated, as a "
                "password may be in it); write a password's signs other than letters and digits as %XX, or give it as "
                "PGPASSWORD"
            ) from None
        name = names[-1]
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


def _is_whole(parameters: Mapping[str, Any]) -> bool:
    """Whether no sign of a password, such as a slash, has ended the address's first part too soon."""
    return bool(re.fullmatch(r"[\d,]*", str(parameters.get("port") or ""))) and "@" not in str(parameters.get("dbname"))


Connection = psycopg.Connection[tuple[Any, ...]]

NEEDED = (0, 8)
"""The first pgvector that goes on looking where a filter leaves too few (iterative scan)."""
PATIENCE = "300s"
"""How long a writer waits for another one's change."""
MOST = 24
"""Connections of one process at a time: a Subtext server has a hundred threads, and PostgreSQL by default a hundred
connections for all its clients."""

_EXTENSION = (
    "SELECT e.extversion, n.nspname FROM pg_catalog.pg_extension e "
    "JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'"
)


def connect(address: Address) -> Connection:
    """A connection that keeps each statement by itself, unless it stands in a transaction.

    Raises StoreGone when there is no server, or it lets nobody in.
    """
    with translated(address):
        # Statements are planned anew each time: how many items fulfil a filter decides how it is best searched.
        return psycopg.connect(**address.parameters, autocommit=True, prepare_threshold=None)


def ready(connection: Connection, address: Address) -> Connection:
    """The same connection, which finds the index's tables by their names and knows vectors.

    Raises IndexError_ where pgvector is missing, or too old.
    """
    with translated(address):
        found = connection.execute(_EXTENSION).fetchone()
        if found is None:
            raise IndexError_(
                f"{address} needs pgvector {_dotted(NEEDED)} or later; the database has none; an administrator puts it "
                "in by CREATE EXTENSION vector"
            )
        version, schema = found
        if tuple(int(part) for part in version.split(".")[:2]) < NEEDED:
            raise IndexError_(
                f"{address} needs pgvector {_dotted(NEEDED)} or later; the database has {version}; an administrator "
                "renews it by ALTER EXTENSION vector UPDATE"
            )
        path = sql.SQL("SET search_path TO {}, {}").format(sql.Identifier(address.name), sql.Identifier(schema))
        connection.execute(path)
        register_vector(connection)
    return connection


def to_read(address: Address) -> Connection:
    """A connection whose transactions see one state and change nothing."""
    connection = connect(address)
    with closed_on_failure(connection):
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        return ready(connection, address)


def to_write(address: Address) -> Connection:
    """A connection whose changes are on the server's disk when they are acknowledged."""
    connection = connect(address)
    with closed_on_failure(connection), translated(address):
        ready(connection, address)
        connection.execute("SELECT set_config('synchronous_commit', 'on', false)")
        connection.execute("SELECT set_config('lock_timeout', %s, false)", (PATIENCE,))
    return connection


@contextmanager
def closed_on_failure(connection: Connection) -> Iterator[None]:
    """Inside the block a connection is made ready; it is closed again where that fails."""
    with ExitStack() as stack:
        stack.callback(connection.close)
        yield
        stack.pop_all()


@contextmanager
def translated(address: Address) -> Iterator[None]:
    """Inside the block what PostgreSQL refuses becomes one of the project's errors, without anything secret."""
    try:
        yield
    except psycopg.Error as problem:
        raise _translate(problem, address) from None


def _translate(problem: psycopg.Error, address: Address) -> Exception:
    said = address.without_secrets((problem.diag.message_primary or str(problem)).strip().replace("\n", "; "))
    if isinstance(problem, errors.DiskFull):
        return OutputError(
            f"{address} needs space to be written, and the server has none: {said}; what stood there before still "
            "stands; free some and do it again"
        )
    if isinstance(problem, errors.LockNotAvailable | errors.DeadlockDetected | errors.SerializationFailure):
        return WriterBusy(f"{address} is being changed by somebody else: {said}; nothing was kept; do it again")
    if isinstance(problem, errors.InsufficientPrivilege | errors.ReadOnlySqlTransaction):
        return OutputError(
            f"{address} needs rights that this user lacks: {said}; an administrator gives them (GRANT), or makes the "
            "schema and CREATE EXTENSION vector"
        )
    if isinstance(problem, errors.UndefinedTable | errors.InvalidSchemaName):
        return IndexError_(
            f"{address} needs to be an index that `subtext index build` made, with all its tables: {said}; name "
            "another, or restore a backup"
        )
    if isinstance(problem, psycopg.OperationalError | psycopg.InterfaceError):
        return StoreGone(
            f"{address} needs its server, which cannot be reached or went away: {said}; no change is half kept; look "
            "to the server and do it again"
        )
    return IndexError_(f"{address} cannot be used: {said}; `subtext index verify` says what is wrong")


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


class Pool:
    """Connections to one index, for any number of threads.

    check  raises IndexError_ for a new connection to an index that cannot be read
    """

    def __init__(self, address: Address, check: Callable[[Connection, Address], None]) -> None:
        self.address = address
        self._check = check
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._free = threading.Semaphore(MOST)
        self._thread = threading.local()
        weakref.finalize(self, _close_all, self._idle)

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """A connection of this thread alone; inside another such block of the thread, the same one.

        Waits while all `MOST` of them are in use. Raises StoreGone when there is no server, IndexError_ where
        there is no index, or one of another layout.
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
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                break
            if _answers(connection):
                return connection
            connection.close()
        connection = to_read(self.address)
        with closed_on_failure(connection):
            self._check(connection, self.address)
        return connection


def _answers(connection: Connection) -> bool:
    try:
        connection.execute("SELECT 1")
    except psycopg.OperationalError:
        return False
    return True


def _close_all(connections: list[Connection]) -> None:
    while connections:
        connections.pop().close()


LAYOUT = 2
"""The layout that this Subtext reads and writes."""
WIDEST = 2000
"""Width up to which pgvector makes graphs of vectors."""
PLAIN = 1900
"""Width up to which a vector stays in its row: outside of it each comparison would have to fetch it."""

VECTORS: dict[Side, sql.Identifier] = {side: sql.Identifier(f"{side}_vectors") for side in SIDES}
"""Tables of vectors, one row a view of an item."""

_FIRST = """
CREATE TABLE layout (one boolean PRIMARY KEY DEFAULT true CHECK (one), version integer NOT NULL);
CREATE TABLE manifest (one boolean PRIMARY KEY DEFAULT true CHECK (one), json text NOT NULL);
CREATE TABLE state (name text PRIMARY KEY, value bigint NOT NULL);
CREATE TABLE items (
    key bigint PRIMARY KEY, side smallint NOT NULL, id text NOT NULL, folded_id text NOT NULL, path text, text text,
    metadata text NOT NULL, content bytea NOT NULL, stamp text, digest bytea NOT NULL, vectors_digest bytea NOT NULL,
    words tsvector, length integer, UNIQUE (side, id)
);
CREATE INDEX items_by_words ON items USING gin (words);
CREATE TABLE links (image text NOT NULL, text text NOT NULL, PRIMARY KEY (image, text));
CREATE INDEX links_of_texts ON links (text, image);
CREATE TABLE facets (
    key bigint NOT NULL REFERENCES items ON DELETE CASCADE, side smallint NOT NULL, name text NOT NULL,
    number numeric, word text, folded text
);
CREATE INDEX facets_of_items ON facets (key);
CREATE INDEX facets_by_number ON facets (side, name, number, key);
CREATE INDEX facets_by_word ON facets (side, name, left(word, 200), key) WHERE word IS NOT NULL;
CREATE TABLE forgotten (hash bytea PRIMARY KEY);
CREATE TABLE jobs (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, verb text NOT NULL, source text, started text NOT NULL,
    finished text, done bigint NOT NULL, total bigint NOT NULL
);
INSERT INTO layout (version) VALUES (1);
INSERT INTO state VALUES
    ('generation', 0), ('images', 0), ('texts', 0), ('key', 0), ('worded', 0), ('words', 0), ('facets', 0);
"""

_SECOND = "CREATE TABLE kept (name text PRIMARY KEY, value text NOT NULL, written timestamptz NOT NULL DEFAULT now())"

STEPS = {1: _SECOND}
"""Layout -> the statement that upgrades it to the next one. The first layout had no table of documents."""


def graph_name(side: Side) -> str:
    """Name of the HNSW index on the vectors of a side, where there are so many that one is made."""
    return f"{side}_graph"


def former_name(side: Side) -> str:
    """Name of a graph in whose place another one stands, until it is dropped."""
    return f"{side}_graph_before"


def make_tables(connection: Connection, width: int, *, upto: int = LAYOUT) -> None:
    """Make the tables of an index for vectors of a width, inside a transaction.

    upto  the layout that is made: an earlier one only to test that it is upgraded
    """
    for statement in _FIRST.split(";\n"):
        if statement.strip():
            connection.execute(sql.SQL(statement))
    for table in VECTORS.values():
        connection.execute(
            sql.SQL(
                "CREATE TABLE {} (key bigint NOT NULL REFERENCES items ON DELETE CASCADE, view smallint NOT NULL, "
                "vector vector({}) NOT NULL, PRIMARY KEY (key, view))"
            ).format(table, sql.Literal(width))
        )
        if width <= PLAIN:
            connection.execute(sql.SQL("ALTER TABLE {} ALTER COLUMN vector SET STORAGE PLAIN").format(table))
    _upgrade(connection, upto)


def layout_version(connection: Connection, address: Address) -> int:
    """The layout of an index. Raises IndexError_ where there is no index."""
    with translated(address):
        table = sql.Identifier(address.name, "layout")
        found = connection.execute(sql.SQL("SELECT version FROM {}").format(table)).fetchone()
    if found is None:
        raise IndexError_(f"{address} needs to say its layout, and says none; restore a backup")
    return int(found[0])


def require_layout(connection: Connection, address: Address) -> None:
    """Raise IndexError_ unless this Subtext reads the layout of the index."""
    have = layout_version(connection, address)
    if have < LAYOUT:
        raise IndexError_(
            f"{address} has layout {have}, of an earlier Subtext; this one reads {LAYOUT}; "
            "upgrade it, once nobody uses that earlier one any more: subtext index upgrade INDEX"
        )
    if have > LAYOUT:
        raise IndexError_(f"{address} has layout {have}; this Subtext reads {LAYOUT}; use a newer Subtext")


def upgrade_layout(connection: Connection, address: Address) -> tuple[int, int]:
    """Upgrade an index to this layout, in one transaction; the layout before and the one now.

    Others wait meanwhile. Raises IndexError_ for a layout of a newer Subtext.
    """
    with translated(address), connection.transaction():
        connection.execute("LOCK TABLE layout IN ACCESS EXCLUSIVE MODE")
        before = layout_version(connection, address)
        if before > LAYOUT:
            require_layout(connection, address)
        _upgrade(connection, LAYOUT)
    return before, LAYOUT


def _upgrade(connection: Connection, upto: int) -> None:
    found = connection.execute("SELECT version FROM layout").fetchone()
    assert found is not None
    for number in range(int(found[0]), upto):
        connection.execute(sql.SQL(STEPS[number]))
        connection.execute("UPDATE layout SET version = %s", (number + 1,))
