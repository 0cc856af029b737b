"""A search index in PostgreSQL: a schema that describes itself, for any number of readers and writers at once.

NAME.manifest        model and its fingerprint, width, where items came from
NAME.items, links, facets                                    what is in the index; every change is one transaction
NAME.images_vectors, texts_vectors, sentences_vectors, neighbours_vectors    a table a space, each of its own width
NAME.jobs, forgotten, kept, state                            journal, hashes of deleted items, documents, numbers
NAME.images_graph, texts_graph    HNSW indexes of the vectors of large sides; one that is not yet in use is named _next,
                             and one that was replaced _before

A reader sees one moment (a transaction of REPEATABLE READ), however much is changed meanwhile. Any number of processes
may write at once. They embed side by side and take turns for their changes: each change begins by counting it, and
locks that one row until it is committed.

Nothing is set for longer than a transaction, and names are written with their schema: behind a pooler in transaction
mode each transaction, and each statement by itself, may be on another connection to the server, which it shares.

Names of tables are looked up for each statement, also inside a transaction, and a schema can be renamed at any time. So
every transaction compares at its end the table that its state was read from with that which has the name now; a change
also has the identity of the index before it. A move builds in a schema of a random name, which the index remembers.

The state has sums over the rows of every table, and a seal over the sums, by which `verify` finds what is missing or
another. A server that is silent for too long counts as gone.

Up to a number of items (`Manifest.exact_up_to`), and for filters that leave no more than that, all vectors are
compared. Beyond it pgvector's HNSW graph is searched; where too few of the rows found pass a filter, all that pass it
are compared: the filter may pass none but far items, whose order the graph does not know. Either
way the best rows are scored again in float64: hits and scores are those of a folder.

A graph contains the rows up to some key, and later rows are not added to it: inserting a row costs the server eight
times what it costs when the graph is built. Later rows are all compared, until `compact` builds the graph again.

Nothing here shows a word of a password: neither an address, nor what a server says.
"""

from __future__ import annotations

import json
import math
import re
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import numpy as np
import psycopg
from numpy.typing import NDArray
from pgvector import HalfVector
from pgvector.psycopg.halfvec import register_halfvec_info
from pgvector.psycopg.vector import register_vector_info
from psycopg import IsolationLevel, Transaction, errors
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.types import TypeInfo

from subtext.data.dates import END, DateInterval
from subtext.errors import OutputError, SearchIndexError, SubtextError
from subtext.ops import draw
from subtext.retrieval import ann
from subtext.retrieval.index_files import json_object
from subtext.retrieval.manifest import RECALL, Manifest, Revision
from subtext.retrieval.segments import MARGIN
from subtext.retrieval.stores.errors import IndexIssue, IndexLockedError, IndexMovedError
from subtext.retrieval.stores.facets import DATE, DIGITS, AnyOf, Condition, facets, interval_tests, item_words
from subtext.retrieval.stores.item import (
    DERIVED,
    SIDES,
    SPACES,
    Applied,
    Change,
    Hits,
    IndexEntry,
    Side,
    Space,
    deletion_hash,
    link_sum,
    row_sum,
    vectors_digest,
)
from subtext.retrieval.stores.registry import take_apart
from subtext.retrieval.stores.sql import (
    CHUNK,
    JOBS,
    ROUND,
    Part,
    Scalar,
    SqlWriter,
    StatementView,
    Tables,
    can_hold,
    every_item,
    read_keys,
    require_storable,
    union,
    with_facet,
    without_not,
)
from subtext.retrieval.stores.store import Keys, KeysInStore, Stats, Store
from subtext.retrieval.words import as_vector, fold, phrase_query, query_words, words as split
from subtext.text_helpers import counted, listed
from subtext.version import FORMAT, require_format

NEEDED = [0, 8]
"""The first pgvector that goes on looking where a filter leaves too few (iterative scan)."""
ROWS = 2000
"""Rows that `verify` reads at a time."""
FETCHED = 1000
"""Keys that fulfil a condition and that a client gets; more of them stay a part of its queries."""
FEW = 200
"""Items whose words are compared at a time: more of them may need space on the server's disk."""
NUMBERS: Mapping[str, tuple[int, int]] = {"connections": (1, 1000), "ef_search": (1, 1000), "m": (2, 100)}
"""Least and greatest value of the numbers that an address may have beside the parameters of libpq."""
CONNECTIONS = 24
"""Connections of one process at a time by default: a Subtext server has a hundred threads, and PostgreSQL by default a
hundred connections for all its clients."""
WIDEST = 2000
"""Width up to which pgvector makes graphs of vectors; so wide a vector just fits into its row."""
EXACT_UP_TO = 20_000
"""Vectors of a side that are all compared by default: beyond them a search of the graph is faster."""
EF_SEARCH, M = 200, 16
"""The fewest candidates of a graph search (hnsw.ef_search) unless an address names fewer, and links of a vector in the
graph by default: more find more, and take longer."""
NUMBERS_OF_GRAPHS = ("halfvec", "vector")
"""pgvector's types of the numbers in a graph, 16 and 32 bits; the first one by default. The tables have 32 bits."""
COLUMNS = {"float32": "vector", "float16": "halfvec"}
"""Type of the numbers of an index -> that of the columns of its tables."""
HALF = 65504.0
"""The greatest number of 16 bits."""
FEWEST = 25
"""The fewest that are tried where less recall is asked than by default."""
UNUSED = "not searched, as it finds less than is asked: every vector is compared"
CONSTRUCTION = 64
"""Candidates of a vector while the graph is built: pgvector's default, and at least twice the links."""
HELD_OUT = 64
"""Vectors of each side that the recall of a graph is measured with."""
READ_SECONDS, WRITE_SECONDS, PROBE = 20, 600, 5
"""Seconds that a statement of a reader, and of a writer or of `verify`, may take by default; and that an idle
connection has to say that it lives, or a server to end a statement that took too long. A Subtext server gives an answer
30 seconds."""
MAX_SCAN = 100_000
"""Rows that a search of the graph finds at most."""
SPREAD, DEARER = 2, 5
"""How many times more rows are found than pass a filter that is spread evenly; cost of finding a row by the graph, in
rows that are compared."""
LATER = 0.1
"""Share of the vectors that may have come after the graph, before it is built again."""

_SCHEMA = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
_LAYOUT = Path(__file__).with_name("postgres_layout.sql").read_text(encoding="utf-8")
_SEARCH = Path(__file__).with_name("postgres_words.sql").read_text(encoding="utf-8")
STATE = (
    "format", "generation", "change", *SPACES, "key", "worded", "words", "image_words", "facets", "items", "links",
    "forgotten", "jobs", "kept", "seal",
)  # fmt: skip
"""Numbers of the state."""
_KEPT = "SELECT name, value, extract(epoch FROM written)::text FROM kept WHERE name = ANY(?::text[])"
_CHECKED = "SELECT key, id, path, text, metadata, vectors_digest, folded_id FROM items"
_MOVING = re.compile(r"moving [0-9a-f]{32}")
"""The schema of a move: a name that no address can have."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")
_WHOLE = re.compile(r"[0-9]{1,9}")
_DATE = re.compile(rf"[0-9]{{{2 * DIGITS}}}")
_PATIENCE = {
    "connect_timeout": 10, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}  # fmt: skip
"""Seconds (of the last one, milliseconds) that are waited for a server, unless the address says otherwise."""
_TABLES = (
    "items",
    "links",
    "facets",
    *(f"{space}_vectors" for space in SPACES),
    "jobs",
    "forgotten",
    "kept",
    "state",
    "manifest",
)
_NAMED = re.compile(rf"\b(FROM|JOIN|INTO|UPDATE|COPY) ({'|'.join(_TABLES)})\b")
"""A table in a statement."""
_TOO_MANY = re.compile("too many (clients|connections)|connection slots|no more connections")
"""What PostgreSQL and PgBouncer say of their limits, in English; in another language the advice is more general."""
_SECRET = ("password", "sslpassword", "passfile", "service", "servicefile", "sslkey", "oauth_client_secret")


@dataclass(frozen=True)
class Address:
    """An index in a database.

    Attributes:
        name: Of the index, which is the PostgreSQL schema that its tables lie in.
        parameters: What libpq connects by, a password among them: never shown.
        connections: Connections of this process at a time, 1 or more.
        ef_search: Candidates of a search of the graph, from 1 to 1000; None for those that the graph was measured with.
        m: Links of a vector in a graph that is built, from 2 to 100; None for those that it has, or `M`.
        graph: Type of the numbers in a graph that is built, one of `NUMBERS_OF_GRAPHS`; None for that of the graph.
    """

    name: str
    parameters: Mapping[str, Any] = field(repr=False)
    connections: int = CONNECTIONS
    ef_search: int | None = None
    m: int | None = None
    graph: str | None = None

    @staticmethod
    def parse(location: str | Address) -> Address:
        """The address of `postgresql://USER@HOST:PORT/DATABASE?index=NAME`; all of libpq's parameters are understood.

        It is the index "subtext" where it names none. The numbers of `NUMBERS`, and `graph`, may be beside it.

        Args:
            location: Address of an index, or one that is parsed already.

        Returns:
            The parsed address.

        Raises:
            SearchIndexError: For anything else, without repeating it: a password may be in it.
        """
        if isinstance(location, Address):
            return location
        parts = take_apart(location)
        pairs = [] if parts is None else parse_qsl(parts.query, keep_blank_values=True)
        name = dict(pairs).get("index", "subtext")
        others = [(key, value) for key, value in pairs if key not in ("index", "graph", *NUMBERS)]
        for_server = urlencode(others, quote_via=quote)
        parameters = None
        if parts is not None:
            # What libpq says of an address that it cannot read may be a part of the password.
            with suppress(psycopg.Error, ValueError):
                parameters = conninfo_to_dict(f"{location.partition('?')[0]}?{for_server}")
        if parameters is None:
            raise SearchIndexError(
                "an index in PostgreSQL needs an address of the form "
                "postgresql://USER@HOST:PORT/DATABASE?index=NAME; this one cannot be read (it is not repeated, as a "
                "password may be in it); write a password's signs other than letters and digits as %XX, or give it as "
                f"PGPASSWORD; further parameters are graph, {', '.join(NUMBERS)}, and those of libpq"
            )
        if not _NAME.fullmatch(name) or name.startswith("pg_") or name in ("public", "information_schema"):
            raise SearchIndexError(
                "an index in PostgreSQL needs a name of letters, digits, _ and -, of at most 63, and not one of "
                f"PostgreSQL's own; it got {name!r}; name it by index=NAME at the end of the address"
            )
        numbers = dict[str, int]()
        for key, (least, greatest) in NUMBERS.items():
            text = dict(pairs).get(key)
            if text is not None:
                numbers[key] = int(text) if _WHOLE.fullmatch(text) else -1
                if not least <= numbers[key] <= greatest:
                    raise SearchIndexError(
                        f"an index in PostgreSQL needs {key} as a whole number from {least:,} to {greatest:,}; its "
                        f"address has {key}={text[:80]}; change or remove it"
                    )
        own = {**_PATIENCE, "application_name": "subtext", **parameters, "client_encoding": "UTF8"}
        graph = dict(pairs).get("graph")
        if graph is not None and graph not in NUMBERS_OF_GRAPHS:
            raise SearchIndexError(
                f"an index in PostgreSQL needs graph as {' or '.join(NUMBERS_OF_GRAPHS)}; its address has "
                f"graph={graph[:80]}; change or remove it"
            )
        return Address(name, own, **numbers, graph=graph)

    def __str__(self) -> str:
        """The address without anything secret: user, host, port, database, and name."""
        user, host, port, database = (str(self.parameters.get(key) or "") for key in ("user", "host", "port", "dbname"))
        local = host.startswith("/")
        query = urlencode([*([("host", host)] if local else []), ("index", self.name)], safe="/")
        server = "" if local else f"{host}:{port}" if port else host
        return f"postgresql://{f'{quote(user)}@' if user else ''}{server}/{quote(database)}?{query}"

    def without_secrets(self, text: str) -> str:
        """A text in which nothing that the address keeps secret is left.

        Whoever speaks to a server hears its messages, which the server may write as it likes.

        Args:
            text: Any text.

        Returns:
            The text with *** in the place of each secret.
        """
        for key in _SECRET:
            value = str(self.parameters.get(key) or "")
            for written in {value, quote(value), quote(value, safe="")} - {""}:
                text = text.replace(written, "***")
        return text


class DatabaseConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that is closed where its server is silent for longer than its statements may take.

    A server that hangs, such as a stopped process, does not end its own statements, and its machine goes on to
    acknowledge what is sent to it.

    Attributes:
        silence: Seconds without a byte from the server, after which it counts as gone.
        settings: Statements that each transaction begins with.
        vector_schema: The schema that pgvector is in.
    """

    silence: float = READ_SECONDS + PROBE
    settings: str = ""
    vector_schema: str = "public"

    @contextmanager
    def transaction(self, savepoint_name: str | None = None, force_rollback: bool = False) -> Iterator[Transaction]:
        """A transaction with the limits of this connection; see `psycopg.Connection.transaction`.

        Args:
            savepoint_name: Name of the savepoint, inside another transaction.
            force_rollback: Nothing is kept.

        Returns:
            A context manager.
        """
        outer = self.info.transaction_status is TransactionStatus.IDLE
        with super().transaction(savepoint_name, force_rollback) as begun:
            if outer and self.settings:
                # No SELECT: that would see the index as it is before it waits for a move.
                self.execute(self.settings)
            yield begun

    def wait(self, gen: PQGen[Any], *values: Any, **named: Any) -> Any:
        """Wait until a step of the protocol is done; see `psycopg.Connection.wait`.

        Args:
            gen: The step.
            *values: Further arguments of psycopg.
            **named: Further arguments of psycopg.

        Returns:
            What the step returns.

        Raises:
            OperationalError: If the server is silent for too long.
        """
        try:
            return super().wait(self._heard(gen), *values, **named)
        except _SilenceError as problem:
            self.pgconn.finish()
            raise psycopg.OperationalError(str(problem)) from None

    def _heard(self, gen: PQGen[Any]) -> PQGen[Any]:
        """The same step, which ends when nothing was ready for too long."""
        until = time.monotonic() + self.silence
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    until = time.monotonic() + self.silence
                elif time.monotonic() > until:
                    raise _SilenceError(f"it said nothing for {self.silence:.0f} s")
                wanted = gen.send(ready)
        except StopIteration as done:
            return done.value

    @contextmanager
    def patient(self, silence: float) -> Iterator[None]:
        """Inside the block statements may take as long as they take, and the server may be silent for so long.

        Args:
            silence: Seconds; infinity for no limit.

        Returns:
            A context manager.
        """
        before, self.silence = self.silence, silence
        try:
            yield
        finally:
            self.silence = before


class _SilenceError(Exception):
    """A server said nothing for too long."""


def quoted(name: str) -> str:
    """A name as it stands in a statement.

    Args:
        name: Of a schema, a table or an index.

    Returns:
        The name between quotes.
    """
    return '"' + name.replace('"', '""') + '"'


def connect(address: Address, *, write: bool = False) -> DatabaseConnection:
    """A connection that keeps each statement by itself, unless it stands in a transaction.

    Args:
        address: The index.
        write: Changes are possible.

    Returns:
        The connection.

    Raises:
        OutputError: If it is to be changed, and is a standby.
        SearchIndexError: If the database cannot hold every text.
    """
    # Statements are planned anew each time: how many items fulfil a filter decides how it is best searched.
    connection = DatabaseConnection.connect(**address.parameters, autocommit=True, prepare_threshold=None)
    if (encoding := connection.info.parameter_status("server_encoding")) != "UTF8":
        connection.close()
        raise SearchIndexError(
            f"{address} needs a database that holds every text, in UTF8; this one is in {encoding}; make one by "
            "createdb --encoding=UTF8 --template=template0 NAME"
        )
    if write and connection.execute("SELECT pg_is_in_recovery()").fetchone() == (True,):
        connection.close()
        raise OutputError(
            f"{address} needs to be changed where its server is the primary; this one is a standby, which follows "
            "another and answers searches only; name the primary, or all servers of the group with "
            "target_session_attrs=primary"
        )
    return connection


def connect_index(address: Address, *, write: bool = False) -> DatabaseConnection:
    """A connection whose transactions see one state, and change nothing.

    Their statements end after `READ_SECONDS` or `WRITE_SECONDS`, unless the address, the user or the database has a
    statement_timeout.

    Args:
        address: The index.
        write: Changes are possible; they are on the server's disk when they are acknowledged.

    Returns:
        The connection.

    Raises:
        IndexMovedError: If there is no server, or it lets nobody in.
        OutputError: If it is to be changed, and is a standby.
        SearchIndexError: If pgvector is missing, or too old.
    """
    with ExitStack() as on_failure, translated(address):
        connection = on_failure.enter_context(connect(address, write=write))
        row = connection.execute(
            "SELECT nspname, extversion, (SELECT CASE source WHEN 'default' THEN NULL ELSE setting END FROM "
            "pg_settings WHERE name = 'statement_timeout') FROM (SELECT) AS one LEFT JOIN pg_extension "
            "ON extname = 'vector' LEFT JOIN pg_namespace n ON n.oid = extnamespace"
        ).fetchone()
        schema, version, limit = row or ("public", None, None)
        if version is None or [int(part) for part in re.findall(r"\d+", version)][:2] < NEEDED:
            raise SearchIndexError(
                f"{address} needs pgvector {'.'.join(map(str, NEEDED))} or later; the database has "
                f"{version or 'none'}; "
                "an administrator puts it in by CREATE EXTENSION vector, or renews it by ALTER EXTENSION vector UPDATE"
            )
        seconds = int(limit) / 1000 if limit is not None else float(WRITE_SECONDS if write else READ_SECONDS)
        connection.silence = seconds + PROBE if seconds else math.inf
        connection.settings = f"SET LOCAL statement_timeout TO {round(1000 * seconds)}"
        connection.vector_schema = quoted(schema)
        vector = TypeInfo.fetch(connection, f"{connection.vector_schema}.vector")
        assert vector is not None  # It is the extension's.
        register_vector_info(connection, vector)
        half = TypeInfo.fetch(connection, f"{connection.vector_schema}.halfvec")
        assert half is not None
        register_halfvec_info(connection, half)
        if write:
            # A writer waits for another one's change.
            connection.settings += "; SET LOCAL synchronous_commit TO on; SET LOCAL lock_timeout TO '300s'"
        else:
            connection.isolation_level = IsolationLevel.REPEATABLE_READ
            connection.read_only = True
        on_failure.pop_all()
    return connection


@contextmanager
def translated(address: Address) -> Iterator[None]:
    """Inside the block what PostgreSQL refuses becomes one of the project's errors, without anything secret.

    Args:
        address: The index, for messages.

    Returns:
        A context manager.

    Raises:
        SubtextError: IndexLockedError, IndexMovedError, OutputError or SearchIndexError.
    """
    try:
        yield
    except psycopg.Error as problem:
        message = address.without_secrets((problem.diag.message_primary or str(problem)).strip().replace("\n", "; "))
        kind: type[SubtextError] = SearchIndexError
        state, advice = "cannot be used", "`subtext index verify` says what is wrong"
        match problem:
            case errors.DiskFull():
                kind, state = OutputError, "needs space to be written, and the server has none"
                advice = "what stood there before still stands; free some and do it again"
            case errors.QueryCanceled():
                kind, state = IndexMovedError, "needs its server to answer in time"
                advice = (
                    "nothing was kept; do it again when the server has less to do, or allow more: "
                    "options=-c%20statement_timeout%3D10min in the address, or behind a pooler "
                    "ALTER ROLE ... SET statement_timeout"
                )
            # A graph of the same name: two processes began to build it at the same time.
            case (
                errors.LockNotAvailable()
                | errors.DeadlockDetected()
                | errors.SerializationFailure()
                | errors.DuplicateTable()
            ):
                kind, state, advice = (
                    IndexLockedError,
                    "is being changed by somebody else",
                    "nothing was kept; do it again",
                )
            case errors.ReadOnlySqlTransaction():
                kind, state = OutputError, "needs to be changed, and its server allows no changes here"
                advice = "an administrator ends that (default_transaction_read_only), or names the primary server"
            case errors.InsufficientPrivilege():
                kind, state = OutputError, "needs rights that this user lacks"
                advice = "an administrator gives them (GRANT, CREATE EXTENSION vector)"
            case errors.DuplicateSchema():
                state = f"needs a new name; there is a schema '{address.name}' in that database already"
                advice = "name another by index=NAME, or remove it"
            case errors.UndefinedTable() | errors.InvalidSchemaName():
                state = "needs to be an index that `subtext index build` made, with all its tables"
                advice = "name another, or restore a backup"
            case (
                errors.UndefinedColumn()
                | errors.UndefinedObject()
                | errors.UndefinedFunction()
                | errors.WrongObjectType()
                | errors.DatatypeMismatch()
                | errors.GroupingError()
                | psycopg.DataError()
                | psycopg.IntegrityError()
            ):
                state = "needs its tables as `subtext index build` makes them, and they have another layout or content"
                advice = "restore a backup, or build again"
            case (
                psycopg.OperationalError()
                | psycopg.InterfaceError()
                | errors.IdleInTransactionSessionTimeout()
                | errors.InFailedSqlTransaction()
            ):
                kind, state = IndexMovedError, "needs its server, which cannot be reached or went away"
                advice = "no change is half kept; look to the server and do it again"
                # PgBouncer's own, which is never translated.
                if "unsupported startup parameter" in message:
                    kind, state = SearchIndexError, "needs a pooler that takes the parameters of its address"
                    advice = "remove options from it, and set them for the user (ALTER ROLE ... SET)"
                elif "statement pooling" in message:
                    kind, state = SearchIndexError, "needs a pooler in transaction or session mode"
                    advice = "its administrator sets pool_mode"
                elif _TOO_MANY.search(message):
                    state = "needs a connection, and its server has none left"
                    advice = f"let each process use fewer, by connections=N in its address ({address.connections} now)"
        raise kind(f"{address} {state}: {message}; {advice}") from None


class PostgresTables(Tables):
    """The tables of an index, by one connection to PostgreSQL.

    Args:
        connection: The connection.
        name: The schema that the tables are in.
    """

    joined = "string_agg(key::text, ',')"

    def __init__(self, connection: DatabaseConnection, name: str) -> None:
        self.connection, self.schema = connection, quoted(name)

    def qualified(self, statement: str) -> str:
        """A statement whose tables, and whose operator of vectors, are named with their schemas.

        Args:
            statement: SQL.

        Returns:
            The same without need of a search_path.
        """
        operator = f"OPERATOR({self.connection.vector_schema}.<#>)"
        return _NAMED.sub(rf"\1 {self.schema}.\2", statement).replace("<#>", operator)

    def __getitem__(self, name: str) -> str:
        """A table or an index with its schema."""
        return f"{self.schema}.{name}"

    def single(self, width: int) -> str:
        """The type of vectors of 32 bits.

        Args:
            width: Numbers of a vector.

        Returns:
            SQL.
        """
        return f"{self.connection.vector_schema}.vector({width})"

    def half(self, width: int) -> str:
        """The type of vectors of 16 bits.

        Args:
            width: Numbers of a vector.

        Returns:
            SQL.
        """
        return f"{self.connection.vector_schema}.halfvec({width})"

    def begin_definitions(self) -> None:
        """Until the transaction ends, definitions are read and written without this schema's name, and pgvector's."""
        self.connection.execute(f"SET LOCAL search_path TO {self.schema}, {self.connection.vector_schema}")

    def run(self, statement: str, *values: Any, binary: bool = False) -> list[tuple[Any, ...]]:
        """The rows that a statement gives; see `sql.Tables`.

        Args:
            statement: SQL, with `?` for a value.
            *values: The values, in the order of the question marks.
            binary: Rows come as PostgreSQL stores them: vectors are read sooner.

        Returns:
            The rows.
        """
        cursor = self.connection.execute(self.qualified(statement).replace("?", "%s"), values, binary=binary)
        return cursor.fetchall() if cursor.description is not None else []

    def stream(self, statement: str) -> Iterator[tuple[Any, ...]]:
        """The rows that a statement without values gives, some at a time; of use inside a transaction.

        Args:
            statement: SQL.

        Returns:
            The rows.
        """
        with self.connection.cursor(name="rows") as cursor:
            cursor.itersize = CHUNK
            yield from cursor.execute(self.qualified(statement))

    def run_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement with the values of each row.

        Args:
            statement: SQL, with `?` for a value.
            rows: Values of each run.
        """
        with self.connection.cursor() as cursor:
            cursor.executemany(self.qualified(statement).replace("?", "%s"), rows)


@dataclass(frozen=True)
class Moment:
    """What an index says of itself at one moment.

    Attributes:
        manifest: Describes the index, as of its last change.
        state: Name -> number.
        moving: Name of the schema that an unfinished move builds; None for none.
        beside: Of such a schema, the mark of the index that it is built for.
        table: OID of the table of the state: where another index has taken the name, it is another one.
    """

    manifest: Manifest
    state: Mapping[str, int]
    moving: str | None
    beside: str | None
    table: int

    @property
    def mark(self) -> str:
        """The index and its place: a copy of it, which has its identity, has another one."""
        return f"{self.manifest.identity} {self.table}"

    @property
    def seal(self) -> int:
        """The checksum of the state and of what stands beside it; `state` has it as of the last change."""
        numbers = sorted((name, value) for name, value in self.state.items() if name != "seal")
        return row_sum(json.dumps([numbers, self.manifest.identity, self.moving, self.beside]))

    @property
    def is_sealed(self) -> bool:
        """Whether the numbers of the state are those of the last change."""
        return self.seal == self.state["seal"]


def current(connection: DatabaseConnection, address: Address) -> Moment:
    """What an index says of itself at this moment.

    Args:
        connection: A connection to the index.
        address: The index.

    Returns:
        Its manifest, state and place.

    Raises:
        SearchIndexError: If there is no index, or one of another format, or one that lacks a part of its state.
    """
    # Moves and readers both lock the state first, so they cannot deadlock.
    statement = (
        "SELECT json_object_agg(s.name, s.value)::text, min(s.tableoid::bigint), m.json, m.moving, m.beside "
        f'FROM "{address.name}".state s CROSS JOIN "{address.name}".manifest m GROUP BY m.json, m.moving, m.beside'
    )
    with translated(address):
        rows = connection.execute(statement).fetchall()
    if len(rows) != 1:
        raise SearchIndexError(f"{address} needs its state and one manifest, and has not both; restore a backup")
    ((numbers, table, text, moving, beside),) = rows
    state = json.loads(numbers)
    require_format(state.get("format"), address, "index build", SearchIndexError)
    if wrong := [name for name in STATE if type(state.get(name)) is not int]:
        raise SearchIndexError(
            f"{address} needs the number '{wrong[0]}' in its table state, and has {state.get(wrong[0], 'none')!r}; "
            "restore a backup"
        )
    if moving is not None and not _MOVING.fullmatch(moving):
        raise SearchIndexError(
            f"{address} needs to name the schema of an unfinished move as Subtext does, and names {moving[:80]!r}; "
            "restore a backup"
        )
    manifest = Manifest.from_json(text, where=str(address))
    revision = Revision(manifest.identity, state["generation"], f"{state['change']:014x}")
    return Moment(manifest.at(revision), state, moving, beside, table)


def layout(tables: PostgresTables) -> list[str]:
    """How the tables of an index look: columns, keys and other constraints, indexes, and what changes rows unasked.

    The graphs of vectors are left out: `compact` builds and drops them.

    Args:
        tables: The tables, inside a transaction.

    Returns:
        A line for each, sorted.
    """
    graphs = [f"{side}_graph{end}" for side in SPACES for end in ("", "_next", "_before")]
    tables.begin_definitions()
    return sorted(line for (line,) in tables.connection.execute(_LAYOUT, {"graphs": graphs}))


@dataclass(frozen=True)
class VectorGraph:
    """A graph of vectors.

    Attributes:
        last: The last key that it contains.
        later: Vectors that came after it.
        numbers: Type of its numbers, one of `NUMBERS_OF_GRAPHS`.
        m: Links of a vector.
        ef_search: Candidates of a search, unless its address has another number.
        recalls: Side of the queries -> the share of the ten nearest items that such a search found for held-out ones.
        asked: The recall that the candidates were chosen for.
    """

    last: int
    later: int
    numbers: str = NUMBERS_OF_GRAPHS[0]
    m: int = M
    ef_search: int = EF_SEARCH
    recalls: Mapping[str, float] = field(default_factory=dict)
    asked: float = RECALL

    @staticmethod
    def of(last: int, later: int, numbers: str, m: int | None, said: str | None) -> VectorGraph:
        """A graph as the server describes it.

        Args:
            last: The last key that it contains.
            later: Vectors that came after it.
            numbers: Type of its numbers.
            m: Links of a vector; None for pgvector's default.
            said: The comment of the index, in which `compact` keeps what belongs to it; any other one says nothing.

        Returns:
            The graph.
        """
        kept = json_object(said or "") or {}
        recalls = kept.get("recall@10")
        least, greatest = NUMBERS["ef_search"]
        known = type(kept.get("ef_search")) is int and least <= kept["ef_search"] <= greatest
        asked = kept.get("asked", RECALL)
        more = (kept["ef_search"], recalls, asked) if known and isinstance(recalls, dict) else ()
        return VectorGraph(last, later, numbers, m or M, *more)

    @property
    def comment(self) -> str:
        """What its comment keeps of it."""
        return json.dumps({"ef_search": self.ef_search, "recall@10": self.recalls, "asked": self.asked})

    def __str__(self) -> str:
        """As a sentence of a report has it."""
        figures = " and ".join(f"{share:.3f} for {of}" for of, share in self.recalls.items())
        return f"{self.numbers}, m {self.m}, ef_search {self.ef_search}, recall@10 {figures or 'not measured'}"


@dataclass(eq=False)
class GraphVectors:
    """The vectors of one space at one moment; of use inside the transaction of its view.

    Attributes:
        tables: The tables at this moment.
        side: One of `SPACES`.
        count: Items of the space.
        manifest: Describes the index.
        cache: What was read of this moment, for all views of it.
        ef_search: Candidates of a search of the graph; None for those that it was measured with.
    """

    tables: PostgresTables
    side: Space
    count: int
    manifest: Manifest
    cache: dict[str, Any]
    ef_search: int | None = None

    @property
    def views(self) -> int:
        """Vectors of an item."""
        return self.manifest.views_of(self.side)

    @property
    def graph(self) -> VectorGraph | None:
        """The graph; None without a complete one."""
        name = f"graph of {self.side}"
        if name not in self.cache:
            rows = self.tables.run(
                f"SELECT last, (SELECT count(*) FROM {self.side}_vectors WHERE key > last), numbers, m, said FROM "
                "(SELECT substring(pg_get_expr(indpred, indrelid) FROM '[0-9]+')::bigint AS last, "
                # Of halfvec it is a graph of an expression, and of no column.
                "CASE indkey[0] WHEN 0 THEN 'halfvec' ELSE 'vector' END AS numbers, "
                "(SELECT option_value::integer FROM pg_options_to_table(reloptions) WHERE option_name = 'm') AS m, "
                "obj_description(indexrelid, 'pg_class') AS said "
                "FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid "
                "WHERE indisvalid AND indpred IS NOT NULL AND indexrelid = to_regclass(?)) AS graph",
                self.tables[f"{self.side}_graph"],
            )
            found = VectorGraph.of(*rows[0]) if rows else None
            if found is not None and self.manifest.numbers == "float16":
                found = replace(found, numbers="halfvec")
            self.cache[name] = found
        return self.cache[name]

    @property
    def finds_enough(self) -> bool:
        """Whether there is a graph, and searches of it find what is asked, or their candidates are set by hand."""
        graph = self.graph
        if graph is None or not graph.recalls or self.ef_search is not None:
            return graph is not None
        return min(graph.recalls.values()) >= self.manifest.recall

    @property
    def unindexed(self) -> int:
        """Vectors that every search compares: those that came after the graph."""
        return self.count * self.views if self.graph is None else self.graph.later

    def nearest(
        self, queries: NDArray[np.float32], *, top: int, among: Keys | None = None, exact: bool = False
    ) -> list[Hits]:
        """The best `top` items of each of (Q L D) queries, or of those `among` these keys; see `View.nearest`.

        Args:
            queries: (Q L D) float32.
            top: Number of hits, 1 or more.
            among: M keys to search, ascending; None for all items.
            exact: Compares all vectors, however many there are.

        Returns:
            Q hits, best first.
        """
        possible = self.count if among is None else len(among)
        reach = (
            self._depth(top) if among is None else math.ceil(SPREAD * self._depth(top) * self.count / max(1, possible))
        )
        by_graph = not exact and possible > self.manifest.exact_up_to and self.finds_enough
        # What 16 bits cannot hold is far from all vectors of such a graph.
        by_graph = by_graph and float(np.abs(queries).max(initial=0)) <= HALF
        by_graph = by_graph and reach <= MAX_SCAN and (among is None or DEARER * reach < possible * self.views)
        results = []
        for query in queries:
            hits = self._search(query, top, among, reach=reach) if by_graph else None
            if hits is None or len(hits.keys) < min(top, possible):
                hits = self._search(query, top, among)
            assert hits is not None  # All rows were compared.
            results.append(hits)
        return results

    def _depth(self, top: int) -> int:
        """Rows among which the best items are, whatever their other vectors."""
        return top * max(1, self.views) + MARGIN

    def vectors_of(self, keys: NDArray[np.int64]) -> NDArray[np.float32]:
        """(N K D) vectors of items, in the order of the keys; each has to be in the index.

        Args:
            keys: (N) int64 keys of items that are in the index.

        Returns:
            (N K D) float32.

        Raises:
            SearchIndexError: If vectors are missing.
        """
        unique, positions = np.unique(keys, return_inverse=True)
        views, width = self.views, self.manifest.width_of(self.side)
        statement = f"SELECT vector FROM {self.side}_vectors WHERE key = ANY(?::bigint[]) ORDER BY key, view"
        rows = self.tables.run(statement, _array(unique), binary=True)
        if len(rows) != len(unique) * views:
            raise SearchIndexError(
                f"an index needs {views} vectors of each of its {self.side}; of {len(unique)} it has {len(rows)}; "
                "`subtext index verify` says what is wrong"
            )
        vectors = np.array([vector.to_numpy() for (vector,) in rows], dtype=np.float32)
        return vectors.reshape(len(unique), views, width)[positions]

    def _search(self, query: NDArray[np.float32], top: int, among: Keys | None, *, reach: int = 0) -> Hits | None:
        """The best items; with `reach` by that many rows of the graph, or None where too few of them pass a filter."""
        depth = self._depth(top)
        # A sum is not what the graph is ordered by: PostgreSQL then compares every row.
        every = "(vector <#> ?) + 0.0"
        if self.manifest.numbers == "float16":
            # The query keeps its 32 bits.
            every = f"(vector::{self.tables.single(query.shape[1])} <#> ?) + 0.0"
        orders = {"true": every}
        if reach and self.graph is not None:
            # PostgreSQL uses the graph only where the rows are plainly among its own.
            last, near = self.graph.last, "vector <#> ?"
            if self.graph.numbers == "halfvec":
                half = self.tables.half(query.shape[1])
                near = f"{'vector' if self.manifest.numbers == 'float16' else f'(vector::{half})'} <#> ?::{half}"
            orders = {f"key <= {last}": near} | ({f"key > {last}": every} if self.graph.later else {})
            self.tables.run(
                "SELECT set_config('hnsw.ef_search', ?, true), set_config('hnsw.iterative_scan', 'relaxed_order', "
                "true), set_config('hnsw.max_scan_tuples', ?, true)",
                str(min(NUMBERS["ef_search"][1], max(self.ef_search or self.graph.ef_search, reach))),
                str(MAX_SCAN),
            )
        passes, keys = "", list[Any]()
        if isinstance(among, ChosenKeys):
            passes, keys = f"key IN ({among.part[0]})", among.part[1]
        elif among is not None:
            passes, keys = "key = ANY(?::bigint[])", [_array(np.asarray(among))]
        rows: list[tuple[Any, ...]] = []
        for condition, order in orders.items():
            where = f"{condition} AND {passes}" if passes else condition
            statement = f"SELECT key, vector FROM {self.side}_vectors WHERE {where} ORDER BY {order} LIMIT ?"
            # All that pass among the nearest of all: a walk that ends with the first that pass may end far from the
            # best of them.
            walked = bool(passes) and order != every
            if walked:
                nearest = f"SELECT key, vector FROM {self.side}_vectors WHERE {condition} ORDER BY {order} LIMIT ?"
                statement = f"SELECT key, vector FROM ({nearest}) AS near WHERE {passes}"
            for view in query:
                values = (view, reach, *keys) if walked else (*keys, view, depth)
                passing = self.tables.run(statement, *values, binary=True)
                if walked and len(passing) < depth:
                    return None
                rows += passing
        vectors = np.array([vector.to_numpy() for _, vector in rows], dtype=np.float32).reshape(-1, query.shape[1])
        return Hits(*ann.rescore_top_k(query, vectors, np.array([key for key, _ in rows], dtype=np.int64), top))


def _array(keys: NDArray[np.int64]) -> str:
    """Whole numbers as PostgreSQL writes an array of them."""
    return "{" + ",".join(map(str, keys.tolist())) + "}"


@dataclass(eq=False)
class DatabaseView(StatementView):
    """An index in PostgreSQL at one moment; of use inside its transaction.

    Attributes:
        tables: The tables at this moment.
        sides: The vectors of each space.
        state: Name -> number.
    """

    tables: PostgresTables
    sides: Mapping[Space, GraphVectors]
    state: Mapping[str, int]

    kinds = (
        "SELECT count(word), count(number), count(DISTINCT folded) + count(DISTINCT number), min(number), max(number) "
        "FROM facets WHERE side = ? AND name = ?"
    )
    # Of several spellings the most common one is shown.
    common = (
        'SELECT mode() WITHIN GROUP (ORDER BY word COLLATE "C") AS shown, number, count(*) AS many FROM facets '
        'WHERE side = ? AND name = ? GROUP BY folded, number ORDER BY many DESC, number, folded COLLATE "C" LIMIT ?'
    )
    of_folded = "SELECT folded_id, id FROM items WHERE side = ? AND folded_id = ANY(?::text[])"
    text = 'word COLLATE "C"'
    in_id, in_value = "strpos(folded_id, ?) > 0", "strpos(folded, ?) > 0"

    def stats(self) -> Stats:
        """Size and state of the index: versions of the server, sides that have a graph, and vectors after it.

        Returns:
            Bytes on disk, unindexed vectors, and facts of the store.
        """
        ((size, extension),) = self.tables.run(
            "SELECT sum(pg_total_relation_size(oid)), (SELECT extversion FROM pg_extension WHERE extname = 'vector') "
            "FROM pg_class WHERE relnamespace = to_regnamespace(?) AND relkind = 'r'",
            self.tables.schema,
        )
        number = self.tables.connection.info.server_version
        version = f"{number // 10_000}.{number % 10_000}"
        facts = {
            "graphs": {space: self._graph(space) for space in self.manifest.spaces},
            "after_the_graph": {
                space: self.sides[space].unindexed for space in self.manifest.spaces if self.sides[space].graph
            },
            "server": {"PostgreSQL": version, "pgvector": extension},
        }
        return Stats(int(size), {side: self.sides[side].unindexed for side in SIDES}, facts)

    def _graph(self, space: Space) -> str:
        """A graph in words."""
        own = self.sides[space]
        unused = "" if own.graph is None or own.finds_enough else f"; {UNUSED}"
        return f"{own.graph or 'no'}{unused}"

    def search_words(self, side: Side, words: str, *, top: int | None) -> list[tuple[int, float]]:
        """The items of a side that contain some of the words, as (key, BM25 score), best first.

        sum over words of idf f (k1 + 1) / (f + k1 (1 - b + b length / mean length)), idf = log((N - n + .5) / (n + .5))
        for N items that have words, and n that have this one.

        Args:
            side: "images" or "texts".
            words: Words of the query; see `retrieval.words` for what counts as a word.
            top: Number of items, 1 or more; None for all.

        Returns:
            (key of the item, BM25 score), best first.
        """
        names = ("images", "image_words") if side == "images" else ("worded", "words")
        query, (number, total) = query_words(words), (self.state[name] for name in names)
        if not query or not number:
            return []
        values = {
            "query": query,
            "any": " | ".join(f"'{word}'" for word in dict.fromkeys(query)),
            "number": float(number),
            "mean": total / number,
            "top": top,
            "side": SIDES.index(side),
        }
        statement = self.tables.qualified(_SEARCH)
        return [(int(key), float(score)) for key, score in self.tables.connection.execute(statement, values)]

    def records(self, kind: str) -> list[tuple[Any, ...]]:
        """Other records of the index; see `View.records`.

        Args:
            kind: "jobs", "deleted", "documents" or the name of a document, as listed above.

        Returns:
            Rows of the record; their columns depend on the kind.
        """
        if kind == "documents":
            return self.tables.run("SELECT name, extract(epoch FROM written)::float8 FROM kept")
        if kind in ("jobs", "deleted"):
            return super().records(kind)
        return self.tables.run("SELECT value FROM kept WHERE name = ?", kind)

    def nearest(
        self,
        side: Space,
        queries: NDArray[np.float32],
        *,
        top: int,
        among: Keys | None = None,
        exact: bool = False,
    ) -> list[Hits]:
        """The best `top` items of each of (Q L D) queries, or of those `among` these keys; see `View.nearest`.

        Args:
            side: One of `SPACES`.
            queries: (Q L D) float32 vectors of Q queries with L views each.
            top: Number of hits per query, 1 or more.
            among: M keys to search, ascending; None for all items. Those in the database are a part of the query.
            exact: Compares all vectors, however many there are.

        Returns:
            Q hits, best first.
        """
        return self.sides[side].nearest(queries, top=top, among=among, exact=exact)

    def choose(self, side: Side, where: Sequence[Condition | AnyOf]) -> Keys:
        """As `select`; more than `FETCHED` keys stay in the database.

        Args:
            side: "images" or "texts".
            where: Conditions on the metadata; all must be true.

        Returns:
            Their keys, ascending.
        """
        chosen = ChosenKeys(self.tables, self._every(where, SIDES.index(side)))
        return chosen if len(chosen) > FETCHED else np.asarray(chosen)

    def _every(self, where: Sequence[Condition | AnyOf], side: int) -> Part:
        # Joined to one another: the database begins with the condition that the fewest items fulfil.
        positive, negative = list[Part](), list[Part]()
        for condition in where:
            own = without_not(condition)
            (positive if own is condition else negative).append(self._part(own, side))
        first, *others = positive or [every_item(side)]
        tests = [f"key IN ({part})" for part, _ in others]
        # Of NOT IN PostgreSQL makes no join.
        tests += [f"NOT EXISTS (SELECT FROM ({part}) AS own WHERE own.key = chosen.key)" for part, _ in negative]
        statement = f"SELECT key FROM ({first[0]}) AS chosen WHERE {' AND '.join(tests)}" if tests else first[0]
        return statement, [value for _, values in (first, *others, *negative) for value in values]

    def _within(self, side: int, condition: Condition, test: str, interval: DateInterval) -> Part:
        # Possibly: the seconds of the item and those of the test have some in common. Certainly: all of the item's.
        limits = {
            key.split()[1]: int(text) - END
            for key, text in interval_tests(test, interval, certain=condition.certain).items()
        }
        operator = "<@" if condition.certain else "&&"
        wanted = f"[{limits.get('>=', '')},{limits.get('<', '')})"
        return with_facet(side, condition.field + DATE, f"dates {operator} ?::int8range", wanted)

    def _texts_with(self, phrase: str) -> Part:
        return "SELECT key, id FROM items WHERE side = 1 AND words @@ ?::tsquery", [phrase_query(phrase)]

    def _with_values(self, side: int, name: str, values: Sequence[Scalar]) -> Part:
        texts = [value for value in values if isinstance(value, str)]
        numbers = [_number(value) for value in values if not isinstance(value, str)]
        parts = [with_facet(side, name, "number = ANY(?::numeric[])", numbers)] if numbers else []
        # The index has the first letters of a word: of a short one all. A second test makes the database expect fewer.
        tests, begun = "folded IS NOT NULL AND left(folded, 200) = ANY(?::text[])", [text[:200] for text in texts]
        if any(len(text) >= 200 for text in texts):
            parts.append(with_facet(side, name, f"{tests} AND folded = ANY(?::text[])", begun, texts))
        elif texts:
            parts.append(with_facet(side, name, tests, begun))
        return union(parts)

    def _with_range(self, side: int, name: str, test: str, limit: Scalar) -> Part:
        return with_facet(side, name, f"number {test} ?", _number(limit))


class ChosenKeys(KeysInStore):
    """The keys that a statement gives; of use inside the transaction of its view.

    Args:
        tables: The tables at this moment.
        part: A statement that selects a column `key`, and its values.
    """

    def __init__(self, tables: PostgresTables, part: Part) -> None:
        self.tables, self.part = tables, part
        statement = (
            f"WITH every AS MATERIALIZED (SELECT DISTINCT key FROM ({part[0]}) AS chosen) SELECT number, "
            f"(SELECT {tables.joined} FROM every WHERE number <= ?) FROM (SELECT count(*) AS number FROM every) AS n"
        )
        ((self._count, keys),) = tables.run(statement, *part[1], FETCHED)
        self._keys = read_keys(keys) if self._count <= FETCHED else None

    def __len__(self) -> int:
        return self._count

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[np.int64]:
        if self._keys is None:
            self._keys = np.unique(self.tables.keys(self.part[0], *self.part[1]))
        return self._keys if dtype is None else self._keys.astype(dtype)

    def hold(self, keys: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of some keys are among them; of many keys all are read.

        Args:
            keys: (N) int64 keys.

        Returns:
            (N) flags.
        """
        if len(keys) > FETCHED or self._keys is not None:
            return np.isin(keys, self)
        statement = f"SELECT key FROM unnest(?::bigint[]) AS given(key) WHERE key IN ({self.part[0]})"
        return np.isin(keys, self.tables.keys(statement, _array(keys), *self.part[1]))

    def after(self, key: int, count: int) -> NDArray[np.int64]:
        """The first of them above a key.

        Args:
            key: Any key.
            count: Number of keys.

        Returns:
            At most so many keys, ascending.
        """
        statement = f"SELECT DISTINCT key FROM ({self.part[0]}) AS every WHERE key > ? ORDER BY key LIMIT ?"
        return np.sort(self.tables.keys(statement, *self.part[1], key, count))


class DatabaseWriter(SqlWriter):
    """Changes an index in PostgreSQL, beside other writers; made by `Database.writing`.

    Args:
        store: The index.
        verb: Name of the command, which the server's administrator sees.
    """

    store: Database
    tables: PostgresTables
    connection: DatabaseConnection
    changed = f"{SqlWriter.changed}, words = ?::tsvector, length = ?"
    is_near = "number = ANY(?::numeric[])"

    def __init__(self, store: Database, verb: str) -> None:
        super().__init__(store, store.manifest)
        self.verb, self.table = verb, 0
        self._connect()

    def _connect(self) -> None:
        """Connect, as at first."""
        with ExitStack() as on_failure:
            parameters = {**self.store.address.parameters, "application_name": f"subtext index {self.verb}"}
            address = replace(self.store.address, parameters=parameters)
            self.connection = on_failure.enter_context(connect_index(address, write=True))
            self.tables = PostgresTables(self.connection, address.name)
            self.manifest = self.own().manifest
            on_failure.pop_all()

    def own(self) -> Moment:
        """What the index says of itself.

        Returns:
            Its manifest, state and place.

        Raises:
            IndexMovedError: If another index, or a copy of this one, has taken its place since the writer began.
        """
        moment = current(self.connection, self.store.address)
        self.store.require_revision(moment.manifest.revision)
        if self.table not in (0, moment.table):
            raise self.store.replaced()
        self.table = moment.table
        return moment

    def apply(self, change: Change) -> Applied:
        """Make a change, completely or not at all; see `Writer.apply`.

        Items whose metadata was to change, and which another writer has deleted meanwhile, stay deleted.

        Args:
            change: Items to put in and to delete, links, documents, and an entry of the journal.

        Returns:
            Number of deleted items of each side, and the number of the job.

        Raises:
            SearchIndexError: Also for a text that PostgreSQL cannot hold.
            IndexMovedError: If the server is away.
        """
        change = change.rounded(self.manifest.numbers)
        vectors = change.checked_vectors(self.manifest.views[change.side], self.manifest.width)
        require_storable([*change.entries, *change.amended])
        change = replace(change, vectors=vectors)
        with self.changing() as before:
            if change.since not in (None, before.manifest.change):
                raise IndexLockedError(
                    f"{self.store.path} was changed meanwhile; nothing of this was kept; do it again"
                )
            if change.unless_deleted:
                change = change.without(self._forgotten([deletion_hash(change.side, it.id) for it in change.entries]))
            count = len(change.entries) + sum(map(len, change.derived.values()))
            ((last,),) = self.tables.run("UPDATE state SET value = value + ? WHERE name = 'key' RETURNING value", count)
            keys = range(int(last) - count + 1, int(last) + 1)
            applied, _ = self.change_rows(change, keys)
            names = sorted(change.documents)
            former = sum(row_sum(*row) for row in self.tables.run(_KEPT, names))
            self.tables.run_many(
                "INSERT INTO kept (name, value) VALUES (?, ?) ON CONFLICT (name) "
                "DO UPDATE SET value = excluded.value, written = clock_timestamp()",
                list(change.documents.items()),
            )
            self.add_to("kept", sum(row_sum(*row) for row in self.tables.run(_KEPT, names)) - former)
        moving = self.store.pending_move() if change.deleted and before.moving is not None else None
        if moving is not None:
            with moving.writing("delete") as writer:
                self.clean_move(writer)
        return applied

    def change_manifest(self, manifest: Manifest) -> None:
        """See `Writer.change_manifest`.

        Args:
            manifest: With other settings.
        """
        with self.changing():
            self.tables.run("UPDATE manifest SET json = ?", manifest.to_json())

    def compact(self, *, seed: int = 0) -> list[str]:
        """Build graphs of sides with more than `exact_up_to` vectors, drop others, and vacuum; what was done.

        A graph that lacks more than `LATER` of the vectors, or more than `exact_up_to`, is built again, and one with
        another number of links than the address has. Readers and writers go on meanwhile. How much memory the server
        may use for it is its own setting (maintenance_work_mem): a graph that fits into it is built many times faster.
        Searches get so many candidates that they find the manifest's recall, or as the address has it.

        Args:
            seed: Of the vectors that it is measured with; the same seed draws the same.

        Returns:
            Sentences that say what was done.
        """
        passed: list[str] = []
        self.connect_again()
        self.connection.add_notice_handler(lambda note: passed.append(str(note.message_primary)))
        with translated(self.store.address), self._unlimited():
            lines = [line for side in SPACES for line in self._finish_graph(side)]
            lines += [*self._build_graphs(), *self._measure_graphs(seed)]
            passed.clear()
            self.tables.run(f"VACUUM (ANALYZE) {', '.join(self.tables[table] for table in _TABLES)}")
        if refused := [table for table in _TABLES if any(f'"{table}"' in line for line in passed)]:
            raise OutputError(
                f"{self.store.address} needs to be compacted by its owner, or by a user with the right MAINTAIN: "
                f"{len(refused)} of {len(_TABLES)} tables were passed over, and rows of deleted items stay there; "
                "compact it as the user who built it"
            )
        moving = self.store.pending_move()
        if moving is not None:
            with moving.writing("compact") as writer:
                self.clean_move(writer)
                writer.compact(seed=seed)
        return [*lines, "rows of deleted items are overwritten"]

    def _finish_graph(self, side: Space) -> list[str]:
        """Take over a graph that was complete when its building was cut off; drop an incomplete or a replaced one."""
        line, now, following, before = "", *(f"{side}_graph{end}" for end in ("", "_next", "_before"))

        def found() -> dict[str, bool]:
            statement = (
                "SELECT relname, indisvalid FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid "
                "WHERE indrelid = to_regclass(?)"
            )
            return dict(self.tables.run(statement, self.tables[f"{side}_vectors"]))

        left = found()
        if following not in left and before not in left and left.get(now, True):
            return []
        with self._alone(side):
            pass
        self._drop_former(side)
        with self._alone(side):
            left = found()
            for name in (following, now):
                if left.get(name) is False:
                    self.tables.run(f"ALTER INDEX {self.tables[name]} RENAME TO {before}")
                    line = f"an incomplete graph of {side}, whose building was cut off, was removed"
                    break
            else:
                if following in left:
                    self._exchange(side)
                    line = f"a graph of {side}, complete when its building was cut off, was taken over"
        self._drop_former(side)
        return [line] if line else []

    def _build_graphs(self) -> list[str]:
        """Build the graphs that are wanted, beside those that they replace, and drop those that are not."""
        wanted = dict[Space, VectorGraph | None]()
        address = self.store.address
        with self.store.reading() as view:
            for side, vectors in view.sides.items():
                rows, limit, graph = vectors.count * vectors.views, view.manifest.exact_up_to, vectors.graph
                own = graph or VectorGraph(0, 0)
                links, numbers = address.m or own.m, address.graph or own.numbers
                if self.manifest.numbers == "float16":
                    numbers = "halfvec"
                if rows <= limit:
                    if graph:
                        wanted[side] = None
                elif vectors.unindexed > min(limit, LATER * rows) or (links, numbers) != (own.m, own.numbers):
                    wanted[side] = replace(own, m=links, numbers=numbers)
        lines = []
        for side, graph in wanted.items():
            if graph is None:
                with self._alone(side), self.changing():
                    self.tables.run(f"ALTER INDEX {self.tables[f'{side}_graph']} RENAME TO {side}_graph_before")
                lines.append(f"the graph of {side} was dropped: every vector is compared")
            else:
                with self._alone(side):
                    ((last,),) = self.tables.run(f"SELECT max(key) FROM {side}_vectors")
                self._create_graph(side, graph, last)
                with self._alone(side):
                    self._exchange(side)
                lines.append(f"a graph of {side} was built")
            self._drop_former(side)
        return lines

    def _create_graph(self, side: Space, graph: VectorGraph, last: int) -> None:
        """Build a graph of the vectors up to a key beside the one in use."""
        vectors = "vector"
        if graph.numbers == "halfvec" and self.manifest.numbers != "float16":
            vectors = f"(vector::{self.tables.half(self.manifest.width_of(side))})"
        try:
            self.tables.run(
                f"CREATE INDEX CONCURRENTLY {side}_graph_next ON {self.tables[f'{side}_vectors']} "
                f"USING hnsw ({vectors} {self.connection.vector_schema}.{graph.numbers}_ip_ops) "
                f"WITH (m = {graph.m}, ef_construction = {max(CONSTRUCTION, 2 * graph.m)}) WHERE key <= {last}"
            )
        except errors.NumericValueOutOfRange:
            raise SearchIndexError(
                f"{self.store.address} needs vectors of numbers up to {HALF:,.0f} for a graph of 16 bits, and some of "
                f"its {side} have greater ones; compact it with graph=vector in its address"
            ) from None

    def _measure_graphs(self, seed: int) -> list[str]:
        """Measure what searches find for held-out vectors, where that is not known; it is kept with the graph."""
        known = dict[Space, VectorGraph]()
        lines = []
        with self.store.reading_at_length() as view:
            for side, vectors in view.sides.items():
                graph = vectors.graph
                recall = self.manifest.recall
                if graph is None or (
                    graph.recalls and vectors.ef_search in (None, graph.ef_search) and graph.asked == recall
                ):
                    continue
                first = EF_SEARCH if recall >= RECALL else FEWEST
                ladder = _recalls(view, side, vectors.ef_search or first, recall, seed=seed)
                shares = {number: min(found.values()) for number, found in ladder.items()}
                best = max(shares.values())
                # Where no number finds enough, more of them are no use beyond what they find.
                enough = min(number for number, share in shares.items() if share >= min(best, ann.wanted(recall)))
                ef_search = vectors.ef_search or enough
                known[side] = graph = replace(graph, ef_search=ef_search, recalls=ladder[ef_search], asked=recall)
                others = [f"{share:.3f} with ef_search {n}" for n, share in shares.items() if n != ef_search]
                lines.append("; ".join([f"graph of {side}: {graph}", *others]))
                if best < recall:
                    more = min(2 * graph.m, NUMBERS["m"][1])
                    lines.append(
                        f"searches of the graph of {side} find {best:.3f} of the nearest items at most, of {recall:g} "
                        f"that are asked: {UNUSED}; a graph with more links finds more (m={more} in the address of "
                        "compact); ask for less (--recall), or set ef_search in an address, to search it anyway"
                    )
        if known:
            with self.changing():
                for side, graph in known.items():
                    self._comment(side, graph)
        return lines

    def _exchange(self, side: Space) -> None:
        """Searches use the new graph from now on."""
        with self.changing():
            self.tables.run(f"ALTER INDEX IF EXISTS {self.tables[f'{side}_graph']} RENAME TO {side}_graph_before")
            self.tables.run(f"ALTER INDEX {self.tables[f'{side}_graph_next']} RENAME TO {side}_graph")
            self._comment(side, VectorGraph(0, 0))

    def _comment(self, side: Space, graph: VectorGraph) -> None:
        self.tables.run(f"COMMENT ON INDEX {self.tables[f'{side}_graph']} IS '{graph.comment}'")

    @contextmanager
    def _alone(self, side: Space) -> Iterator[None]:
        """A transaction in which nobody else builds or drops a graph of a side.

        Who builds one waits for all older transactions to end. Whoever began to wait for that would be waited for.
        """
        table = self.tables[f"{side}_vectors"]
        with self.connection.transaction():
            try:
                # No SELECT, which would make it such a transaction. An autovacuum gives way after a second.
                self.connection.execute(
                    f"SET LOCAL lock_timeout TO '{PROBE}s'; LOCK TABLE {table} IN SHARE UPDATE EXCLUSIVE MODE; "
                    f"{self.connection.settings}"
                )
            except errors.LockNotAvailable:
                raise IndexLockedError(
                    f"{self.store.address} is being compacted by somebody else; do it again when that is done"
                ) from None
            yield

    @contextmanager
    def _unlimited(self) -> Iterator[None]:
        """Inside the block statements may take as long as they take, as a graph of many vectors does."""
        limits = "SELECT current_setting('statement_timeout'), current_setting('lock_timeout'), pg_backend_pid()"
        with self.connection.patient(math.inf):
            ((*before, process),) = self.tables.run(limits)
            # A pooler gives out numbers of its own.
            if process != self.connection.info.backend_pid:
                if before != ["0", "0"]:
                    raise OutputError(
                        f"{self.store.address} needs to be compacted without limits of time, and behind its pooler "
                        f"they are {before[0]} for a statement and {before[1]} for a lock, 0 being none; compact it "
                        "by the address of the server itself"
                    )
                yield
                return
            statement = "SELECT set_config('statement_timeout', ?, false), set_config('lock_timeout', ?, false)"
            self.tables.run(statement, "0", "0")
            yield
        self.tables.run(statement, *before)

    def _drop_former(self, side: Space) -> None:
        """Drop a graph that was replaced, when nobody searches it any more; nobody else has to wait for that."""
        self.own()
        self.tables.run(f"DROP INDEX CONCURRENTLY IF EXISTS {self.tables[f'{side}_graph_before']}")

    def connect_again(self) -> None:
        """Connect again where the server has ended the connection, as it may while nothing is asked of it."""
        if not _answers(self.connection):
            self._connect()

    @contextmanager
    def changing(self, *, counted: bool = True) -> Iterator[Moment]:
        """One change, made completely; other writers wait until it is committed.

        Args:
            counted: Whether what searches see changes.

        Returns:
            A context manager; it gives what the index says of itself before the change.

        Raises:
            IndexMovedError: If another index, or this one with another model, has taken its place.
        """
        self.connect_again()
        with translated(self.store.address), self.connection.transaction():
            self.tables.run("SELECT value FROM state WHERE name = 'generation' FOR UPDATE")
            before = self.own()
            if counted:
                self.count_change()
            yield before
            after = self.own()
            # Damage from before the change stays to be seen.
            seal = after.seal if before.is_sealed else after.state["seal"]
            places = self.tables.run("UPDATE state SET value = ? WHERE name = 'seal' RETURNING tableoid::bigint", seal)
            if places != [(before.table,)]:
                raise self.store.replaced()
        self.manifest = after.manifest

    def _columns(self, side: int, key: int, entry: IndexEntry) -> tuple[Any, ...]:
        said = entry.text if side else item_words(entry.id, entry.path, entry.metadata)
        text = None if said is None else split(said)
        vector = (None, None) if text is None else (as_vector(text), len(text))
        return *super()._columns(side, key, entry), *vector

    def _insert_items(self, side: Space, keys: Sequence[int], entries: Sequence[IndexEntry], vectors: Any) -> None:
        number = SPACES.index(side)
        items = (
            (
                key,
                number,
                entry.id,
                fold(entry.id),
                vectors_digest(of_item, key),
                *self._columns(number, key, entry),
            )
            for key, entry, of_item in zip(keys, entries, vectors, strict=True)
        )
        columns = "vectors_digest, path, text, metadata, content, stamp, digest, words, length"
        self._copy(f"items (key, side, id, folded_id, {columns})", items)
        rows = ((key, *row) for key, of_item in zip(keys, vectors, strict=True) for row in enumerate(of_item))
        column = COLUMNS[self.manifest.numbers]
        if column == "halfvec":
            rows = ((key, view, HalfVector(row)) for key, view, row in rows)
        self._copy(f"{side}_vectors (key, view, vector)", rows, types=("int8", "int2", column))

    def _copy(self, into: str, rows: Iterable[Sequence[Any]], *, types: Sequence[str] = ()) -> None:
        """Insert rows, of which those with types are sent as PostgreSQL stores them."""
        statement = self.tables.qualified(f"COPY {into} FROM STDIN {'(FORMAT BINARY)' if types else ''}")
        with self.connection.cursor() as cursor, cursor.copy(statement) as copy:
            if types:
                copy.set_types(types)
            for row in rows:
                copy.write_row(row)

    def _insert_facets(self, side: int, keys: Sequence[int], entries: Sequence[IndexEntry]) -> None:
        pairs = zip(keys, entries, strict=True)
        rows = [row for key, entry in pairs for row in facet_rows(side, key, entry.metadata_json)]
        self._copy("facets (key, side, name, number, word, folded, dates)", rows)
        self.add_to("facets", len(rows))
        self._count_rows(keys, 1)

    def _remove_facets(self, side: int, keys: Sequence[int]) -> None:
        self._count_rows(keys, -1)
        removed = self.tables.run("DELETE FROM facets WHERE key = ANY(?::bigint[]) RETURNING key", list(keys))
        self.add_to("facets", -len(removed))

    def _count_rows(self, keys: Sequence[int], sign: int) -> None:
        """Count the words of items, the items that have some, and the sum of all; -1 counts them no more."""
        statement = (
            "SELECT count(length) FILTER (WHERE side = 1), coalesce(sum(length) FILTER (WHERE side = 1), 0), "
            "coalesce(sum(length) FILTER (WHERE side = 0), 0) FROM items WHERE key = ANY(?::bigint[])"
        )
        (counts,) = self.tables.run(statement, list(keys))
        for name, count in zip(("worded", "words", "image_words"), counts, strict=True):
            self.add_to(name, sign * int(count))
        rows = self.tables.run("SELECT key, digest FROM items WHERE key = ANY(?::bigint[])", list(keys))
        self.add_to("items", sign * sum(row_sum(*row) for row in rows))

    def _remove_links(self, links: Sequence[tuple[str, str]]) -> None:
        which = "(image, text) IN (SELECT * FROM unnest(?::text[], ?::text[]))"
        statement = f"DELETE FROM links WHERE {which} RETURNING image, text"
        removed = self.tables.run(statement, [image for image, _ in links], [text for _, text in links])
        self.add_to("links", -sum(link_sum(image, text) for image, text in removed))

    def _insert_links(self, links: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        pairs = [(image, text) for image, text in links if can_hold(image) and can_hold(text)]
        new: list[tuple[Any, ...]] = []
        if pairs:
            new = self.tables.run(
                "INSERT INTO links SELECT i.id, t.id FROM unnest(?::text[], ?::text[]) AS p(image, text) JOIN items i "
                "ON i.side = 0 AND i.id = p.image JOIN items t ON t.side = 1 AND t.id = p.text ON CONFLICT DO NOTHING "
                "RETURNING image, text",
                [image for image, _ in pairs],
                [text for _, text in pairs],
            )
            self.add_to("links", sum(link_sum(image, text) for image, text in new))
        return [(image, text) for image, text in new]


class Database(Store):
    """An index in PostgreSQL, opened.

    Args:
        address: The index.

    Raises:
        SearchIndexError: If there is none, or it has another format.
        IndexMovedError: Without a server.
    """

    keeps_spaces = True

    def __init__(self, address: str | Address) -> None:
        self._idle: list[DatabaseConnection] = []
        self.address = Address.parse(address)
        self.path = str(self.address)
        self._free = threading.Semaphore(self.address.connections)
        self._thread = threading.local()
        self._cache: tuple[Revision | None, dict[str, Any]] = (None, {})
        with self.connected() as connection:
            self.manifest = current(connection, self.address).manifest

    @classmethod
    def create(cls, location: str | Address, manifest: Manifest) -> Database:
        """An empty index, made completely or not at all; beyond `EXACT_UP_TO` vectors, or the manifest's, by graphs.

        Args:
            location: Folder or address of the index.
            manifest: Describes the index: model, width and views of the vectors, root of the paths.

        Returns:
            The open index.

        Raises:
            SearchIndexError: If the name is taken, or vectors are wider than pgvector's graphs take.
            OutputError: If this user may not make it.
        """
        address = Address.parse(location)
        if (widest := max(map(manifest.width_of, manifest.spaces))) > WIDEST:
            raise SearchIndexError(
                f"an index in PostgreSQL needs vectors of at most {WIDEST:,} numbers; these have {widest:,}; "
                "keep the index in a folder"
            )
        with translated(address):
            with connect(address, write=True) as connection:
                try:
                    connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
                except (errors.FeatureNotSupported, errors.UndefinedFile) as problem:
                    raise SearchIndexError(
                        f"{address} needs pgvector {'.'.join(map(str, NEEDED))} or later; its server has none; an "
                        "administrator installs it (https://github.com/pgvector/pgvector)"
                    ) from problem
            with connect_index(address, write=True) as connection, connection.transaction():
                _fill(connection, address, manifest)
        return cls(address)

    @classmethod
    def exists(cls, location: str | Address) -> bool:
        """Whether there is an index of that name.

        Args:
            location: Folder or address of the index.

        Returns:
            True if an index can be opened there.

        Raises:
            IndexMovedError: Without a server.
        """
        address = Address.parse(location)
        statement = "SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'manifest'"
        with translated(address), connect(address) as connection:
            return connection.execute(statement, (address.name,)).fetchone() is not None

    @classmethod
    def require_free(cls, location: str | Address) -> None:
        """Require a free name, in which this user may make an index.

        Args:
            location: Address of the index.

        Raises:
            SearchIndexError: If a name is taken.
            OutputError: If this user may not.
        """
        address = Address.parse(location)
        with (
            translated(address),
            connect(address, write=True) as connection,
            connection.transaction(force_rollback=True),
        ):
            connection.execute(f'CREATE SCHEMA "{address.name}"')

    @classmethod
    def name_of(cls, location: str | Address) -> str:
        """The name of the index in its database.

        Args:
            location: Folder or address of the index.

        Returns:
            The last part of the location.
        """
        return Address.parse(location).name

    @contextmanager
    def reading(self) -> Iterator[DatabaseView]:
        """The index at this moment.

        Returns:
            A view, valid inside the block.

        Raises:
            IndexMovedError: If the server goes away meanwhile; one that was restarted before is connected again.
            SearchIndexError: If the index has been moved to another model since it was opened.
        """
        with self.connected() as connection, translated(self.address), connection.transaction():
            moment = current(connection, self.address)
            manifest, state = moment.manifest, moment.state
            self.require_revision(manifest.revision)
            revision, cache = self._cache
            if revision != manifest.revision:
                revision, cache = self._cache = (manifest.revision, {})
            tables = PostgresTables(connection, self.address.name)
            counts, found = {side: state[side] for side in SIDES}, self.address.ef_search
            sides = {space: GraphVectors(tables, space, state[space], manifest, cache, found) for space in SPACES}
            try:
                yield DatabaseView(manifest, manifest.revision, counts, tables, sides, state, cache=cache)
            finally:
                # Names of tables are looked up for each statement, also within a transaction.
                if connection.info.transaction_status is TransactionStatus.INTRANS:
                    statement = "SELECT to_regclass(format('%%I.state', %s::text))::oid::bigint"
                    if connection.execute(statement, (self.address.name,)).fetchone() != (moment.table,):
                        raise self.replaced()

    def replaced(self) -> IndexMovedError:
        """The error that says that another index has taken the place of this one.

        Returns:
            The error.
        """
        return IndexMovedError(f"{self.path} was replaced by another index meanwhile; open it again")

    @contextmanager
    def writing(self, verb: str) -> Iterator[DatabaseWriter]:
        """A writer, beside others; the server's administrator sees `verb`.

        Args:
            verb: Name of the command, shown to others who want to write.

        Returns:
            A writer, valid inside the block.

        Raises:
            OutputError: If this user may not write.
        """
        writer = DatabaseWriter(self, verb)
        try:
            yield writer
        finally:
            self.manifest = writer.manifest
            writer.connection.close()

    def check(self) -> list[IndexIssue]:
        """Damage that only the database can see: vectors, facets and words.

        Reads every row and every vector once. Bytes under the rows are PostgreSQL's own to check (data checksums,
        pg_amcheck).

        Returns:
            The damage; empty for an intact index.
        """
        with self.reading_at_length() as view:
            problems = [problem for space in SPACES for problem in _check(view, space)]
            return [*problems, *_check_sums(view, current(view.tables.connection, self.address))]

    @contextmanager
    def reading_at_length(self) -> Iterator[DatabaseView]:
        """The index at this moment, for what reads much: by default a statement may take as long as one of a change.

        Returns:
            A view, valid inside the block.
        """
        with self.reading() as view:
            connection = view.tables.connection
            by_default = connection.silence == READ_SECONDS + PROBE
            with connection.patient(WRITE_SECONDS + PROBE if by_default else connection.silence):
                if by_default:
                    connection.execute(f"SET LOCAL statement_timeout TO '{WRITE_SECONDS}s'")
                yield view

    @property
    def was_replaced(self) -> bool:
        """Whether another index, or this one with another model, has taken its place; then open it again."""
        with self.connected() as connection:
            return current(connection, self.address).manifest.identity != self.manifest.identity

    def remove(self) -> None:
        """Remove the index, and what an unfinished move has built."""
        moving = self.pending_move()
        if moving is not None:
            moving.remove()
        self.close()
        with translated(self.address), connect_index(self.address, write=True) as connection, connection.transaction():
            moment = current(connection, self.address)
            self.require_revision(moment.manifest.revision)
            self._drop(connection, moment)

    def _drop(self, connection: DatabaseConnection, moment: Moment) -> None:
        """Drop the schema, in a transaction, if it is the index of that moment."""
        connection.execute(f'DROP SCHEMA "{self.address.name}" CASCADE')
        if connection.execute("SELECT 1 FROM pg_class WHERE oid = %s", (moment.table,)).fetchone():
            raise self.replaced()

    def pending_move(self) -> Database | None:
        """The index that an unfinished move builds beside this one.

        Returns:
            The index; None if no move is unfinished, or what it built is of another index, such as of a copy of this
            one.
        """
        with self.connected() as connection:
            moment = current(connection, self.address)
        if moment.moving is None or not Database.exists(beside := replace(self.address, name=moment.moving)):
            return None
        begun = Database(beside)
        with begun.connected() as connection:
            return begun if current(connection, beside).beside == moment.mark else None

    def create_replacement(self, manifest: Manifest) -> Database:
        """Create an index for another model in the same database, or resume one for the same model.

        Its schema has a name that no address can have, and which this index remembers.

        Args:
            manifest: Describes the new index.

        Returns:
            The new index. An unfinished replacement for the same model is resumed.
        """
        begun = self.pending_move()
        if begun is not None:
            if begun.manifest.fingerprint == manifest.fingerprint:
                return begun
            begun.remove()
        address = replace(self.address, name=f"moving {secrets.token_hex(16)}")
        with self.writing("move") as writer, writer.changing(counted=False) as moment:
            _fill(writer.connection, address, manifest, beside=moment.mark)
            writer.tables.run("UPDATE manifest SET moving = ?", address.name)
        return Database(address)

    def replace_with(self, new: Store, *, since: Revision) -> Database:
        """Put `new` in the place of this index, whose tables go; searches wait for it, and see either.

        Args:
            new: What `create_replacement` returned, with all items.
            since: Revision of this index when the replacement began.

        Returns:
            The open index in its new form.

        Raises:
            SearchIndexError: If this index has changed since that revision, or another one has taken its place.
        """
        assert isinstance(new, Database)
        with self.reading() as view, new.writing("move") as writer, writer.changing(counted=False):
            writer.change_rows(Change(remembered=[digest for (digest,) in view.records("deleted")]), [])
        new.close()
        old, fresh = f'"{self.address.name}"', f'"{new.address.name}"'
        with translated(self.address), connect_index(self.address, write=True) as connection, connection.transaction():
            # Every reader and writer begins with this table: behind the lock nobody is reading or writing.
            connection.execute(f"LOCK TABLE {old}.state IN ACCESS EXCLUSIVE MODE")
            moment, other = current(connection, self.address), current(connection, new.address)
            self.require_revision(moment.manifest.revision)
            if moment.manifest.revision != since or (moment.moving, moment.mark) != (new.address.name, other.beside):
                raise SearchIndexError(
                    f"{self.path} was changed while its items were embedded; run the command again: it embeds what "
                    "is new, and nothing else"
                )
            self._drop(connection, moment)
            connection.execute(f"ALTER SCHEMA {fresh} RENAME TO {old}")
            after = current(connection, self.address)
            if after.table != other.table:
                raise self.replaced()
            if other.is_sealed:
                seal = replace(after, beside=None).seal
                connection.execute(f"UPDATE {old}.state SET value = %s WHERE name = 'seal'", (seal,))
            connection.execute(f"UPDATE {old}.manifest SET beside = NULL")
        return Database(self.address)

    def locate_document(self, name: str) -> str:
        """Where a document of the index is, for messages.

        Args:
            name: Name of the document.

        Returns:
            A path, or a description of the place.
        """
        return f"{self.address}, table kept, name {name}"

    def close(self) -> None:
        """Release the connections that nobody uses at this moment."""
        while self._idle:
            self._idle.pop().close()

    __del__ = close

    @contextmanager
    def connected(self) -> Iterator[DatabaseConnection]:
        """A connection of this thread alone; inside another such block of the thread, the same one.

        Waits while all of them that the address allows are in use.

        Returns:
            A context manager.

        Raises:
            IndexMovedError: If there is no server.
        """
        outer: DatabaseConnection | None = getattr(self._thread, "connection", None)
        if outer is not None:
            yield outer
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

    def _acquired(self) -> DatabaseConnection:
        """A connection that answers: a restart of the server is noticed here."""
        with suppress(IndexError):
            while True:
                if _answers(connection := self._idle.pop()):
                    return connection
        return connect_index(self.address)


def _answers(connection: DatabaseConnection) -> bool:
    """Whether a connection that was idle is still of use; else it is closed."""
    try:
        with connection.patient(PROBE):
            connection.execute("SELECT 1")
    except psycopg.Error:
        connection.close()
        return False
    return True


def _fill(connection: DatabaseConnection, address: Address, manifest: Manifest, *, beside: str | None = None) -> None:
    """Make the schema of an index and its tables, inside a transaction.

    Args:
        connection: A connection that may write.
        address: The new index.
        manifest: Describes it.
        beside: The mark of the index that it is to replace; None for one by itself.
    """
    manifest = replace(manifest, exact_up_to=min(manifest.exact_up_to, EXACT_UP_TO), generation=0)
    connection.execute(f'CREATE SCHEMA "{address.name}"')
    tables = PostgresTables(connection, address.name)
    tables.begin_definitions()
    connection.execute(
        _SCHEMA.format(
            type=COLUMNS[manifest.numbers], width=manifest.width, encoder=manifest.width_of("sentences") or 1
        )
    )
    values = (manifest.to_json(), "\n".join(layout(tables)), beside)
    tables.run("INSERT INTO manifest (json, layout, beside) VALUES (?, ?, ?)", *values)
    tables.run("INSERT INTO state VALUES ('format', ?)", FORMAT)
    tables.run("UPDATE state SET value = ? WHERE name = 'seal'", current(connection, address).seal)


def _recalls(
    view: DatabaseView, side: Space, ef_search: int, recall: float, *, seed: int
) -> dict[int, dict[str, float]]:
    """What searches of a graph find of the ten nearest items, also with more candidates while they find too few.

    Args:
        view: The index at one moment.
        side: The space of the graph.
        ef_search: Candidates of a search, 1 or more.
        recall: That is asked.
        seed: Of the held-out vectors; the same seed draws the same.

    Returns:
        Candidates -> space of the queries -> mean share. A query that is itself an item is passed over as its answer.
    """
    vectors = view.sides[side]
    asked, exact = dict[Space, NDArray[np.float32]](), dict[Space, list[list[int]]]()
    chosen = dict[Space, NDArray[np.int64]]()

    def found(space: Space, hits: Sequence[Hits]) -> list[list[int]]:
        own = chosen[space].tolist() if space == side else [None] * len(hits)
        return [[key for key in hit.keys.tolist() if key != it][: ann.DEPTH] for it, hit in zip(own, hits, strict=True)]

    # Queries are of the same model: of either side, or for derived spaces of the sentence encoder.
    for space in DERIVED if side in DERIVED else SIDES:
        keys = view.select(space)
        if len(keys):
            drawn = draw.permutation(len(keys), seed=seed, epoch=0, purpose="graph: held out")[:HELD_OUT]
            chosen[space] = keys[drawn]
            asked[space] = view.vectors(space, chosen[space])[:, :1]
            exact[space] = found(space, vectors.nearest(asked[space], top=ann.DEPTH + 1, exact=True))
    measured = dict[int, dict[str, float]]()
    while ef_search not in measured:
        searched = replace(vectors, ef_search=ef_search)  # By hand: it is searched, whatever it finds.
        measured[ef_search] = {}
        for space, queries in asked.items():
            answers = found(space, searched.nearest(queries, top=ann.DEPTH + 1))
            shares = [np.isin(best, own).mean() for best, own in zip(exact[space], answers, strict=True)]
            measured[ef_search][space] = round(float(np.mean(shares)), 4)
        if min(measured[ef_search].values()) < ann.wanted(recall):
            ef_search = min(2 * ef_search, NUMBERS["ef_search"][1])
    return measured


def facet_rows(side: int, key: int, metadata: str) -> Iterator[tuple[Any, ...]]:
    """The rows of the facets of an item; none where its metadata is damaged, which its digest tells.

    Args:
        side: Number of the side in `SIDES`.
        key: Key of the item.
        metadata: JSON.

    Returns:
        (key, side, name, number, word, folded word, range of seconds) of each facet.
    """
    for name, value in sorted(facets(json_object(metadata) or {}), key=str):
        if isinstance(value, str):
            yield key, side, name, None, value, fold(value), _seconds(value) if name.endswith(DATE) else None
        else:
            # PostgreSQL has no negative zero.
            yield key, side, name, Decimal(value or 0), None, None, None


def _seconds(written: str) -> str | None:
    """The seconds of a date as PostgreSQL writes a range; None for what `facets.sortable` does not write."""
    first, last = written[:DIGITS], written[DIGITS:]
    is_date = _DATE.fullmatch(written) is not None and first <= last
    return f"[{int(first) - END},{int(last) - END + 1})" if is_date else None


def _number(value: Scalar) -> Decimal | None:
    """As PostgreSQL compares it exactly; None, which nothing is equal to, for what is no number."""
    return None if isinstance(value, float) and math.isnan(value) else Decimal(value)


def _check(view: DatabaseView, side: Space) -> Iterator[IndexIssue]:
    """Vectors, facets and words of the items of a space, against what was put in."""
    # The keys as they are now: those that are remembered may be of rows that are gone.
    run, number, views, keys = view.tables.run, SPACES.index(side), view.manifest.views_of(side), view.select(side)
    table, damaged = f"{side}_vectors", dict[tuple[str, str], list[str]]()
    for start in range(0, len(keys), ROWS):
        some = _array(keys[start : start + ROWS])
        items = run(f"{_CHECKED} WHERE key = ANY(?::bigint[])", some)
        vectors: dict[int, list[NDArray[np.float32]]] = {key: [] for key, *_ in items}
        statement = f"SELECT key, vector FROM {table} WHERE key = ANY(?::bigint[]) ORDER BY key, view"
        for key, vector in run(statement, some, binary=True):
            vectors[key].append(vector.to_numpy())
        statement = "SELECT key, side, name, number, word, folded, dates::text FROM facets WHERE key = ANY(?::bigint[])"
        differences = Counter(run(statement, some))
        differences.subtract(row for key, *_, metadata, _, _ in items for row in facet_rows(number, key, metadata))
        other_facets = {key for (key, *_), count in differences.items() if count}
        said = [
            (key, text if number else item_words(name, path, json_object(metadata) or {}))
            for key, name, path, text, metadata, *_ in items
        ]
        texts = [(key, split(text)) for key, text in said if text is not None]
        statement = (
            "SELECT i.key FROM unnest(?::bigint[], ?::text[], ?::integer[]) AS w(key, words, length) "
            "JOIN items i ON i.key = w.key WHERE (i.words, i.length) IS DISTINCT FROM (w.words::tsvector, w.length)"
        )
        other_words = set[int]()
        for block in (texts[first : first + FEW] for first in range(0, len(texts), FEW)):
            expected = (
                [key for key, _ in block],
                [as_vector(text) for _, text in block],
                [len(text) for _, text in block],
            )
            other_words |= {key for (key,) in run(statement, *expected)}
        for key, name, _, _, _, digest, folded in items:
            stored = np.array(vectors[key])
            complete = len(stored) == views
            for where, what, wrong in (
                (table, f"{{0}} without {views} vectors", not complete),
                (table, "{0} with changed or damaged vectors", complete and vectors_digest(stored, key) != digest),
                ("facets", "what {0} can be filtered by differs from the metadata", key in other_facets),
                ("items", f"the words of {{1}} differ from the {side}", key in other_words),
                ("items", "{0} found by another id than its own", folded != fold(name)),
            ):
                if wrong:
                    damaged.setdefault((where, what), []).append(repr(name))
    for (where, what), names in damaged.items():
        counts = (counted(len(names), noun) for noun in ("item", side.removesuffix("s")))
        yield IndexIssue(where, f"{what.format(*counts)}: {listed(names)}")


def _check_sums(view: DatabaseView, moment: Moment) -> Iterator[IndexIssue]:
    """The tables that nothing else tells of, against the sums of their rows, and how all tables look."""
    run, state = view.tables.run, view.state
    sums: dict[str, Callable[[], Iterable[int]]] = {
        "items": lambda: (row_sum(*row) for row in view.tables.stream("SELECT key, digest FROM items")),
        "links": lambda: (link_sum(*row) for row in view.tables.stream("SELECT image, text FROM links")),
        "forgotten": lambda: (row_sum(*row) for row in view.tables.stream("SELECT hash FROM forgotten")),
        "jobs": lambda: (row_sum(*row) for row in view.tables.stream(JOBS)),
        "kept": lambda: (row_sum(*row) for row in view.tables.stream(_KEPT.partition(" WHERE")[0])),
    }
    for name, rows in sums.items():
        if sum(rows()) % ROUND != state[name]:
            yield IndexIssue(name, "rows are missing, changed or added")
    counts = {
        "facets": "SELECT count(*) FROM facets",
        "worded": "SELECT count(length) FROM items WHERE side = 1",
        "words": "SELECT coalesce(sum(length), 0)::bigint FROM items WHERE side = 1",
        "image_words": "SELECT coalesce(sum(length), 0)::bigint FROM items WHERE side = 0",
        **{
            f"{side}_vectors": f"SELECT count(*) FROM {side}_vectors WHERE view >= 0 "
            f"AND view < {view.manifest.views_of(side)}"
            for side in SPACES
        },
    }
    wanted = {**state, **{f"{side}_vectors": state[side] * view.manifest.views_of(side) for side in SPACES}}
    for name, statement in counts.items():
        ((stored,),) = run(statement)
        if stored != wanted[name]:
            where = "state" if name in ("worded", "words", "image_words") else name
            yield IndexIssue(where, f"has {stored:,} of {wanted[name]:,} {'rows' if name == where else name}")
    ((last,),) = run("SELECT coalesce(max(key), 0) FROM items")
    if not moment.is_sealed or last > state["key"]:
        yield IndexIssue("state", "changed or damaged: its numbers are not those of the last change")
    ((recorded,),) = run("SELECT layout FROM manifest")
    now, wanted_lines = Counter(layout(view.tables)), Counter(recorded.splitlines())
    for what, lines in (("is missing", wanted_lines - now), ("was added", now - wanted_lines)):
        for line in sorted(lines):
            # An administrator may have added an index that speeds up work of his own.
            if not (what == "was added" and line.startswith("index")):
                yield IndexIssue("layout", f"{line} {what}")
