"""A search index in PostgreSQL: a schema that describes itself, for any number of readers and writers at once.

NAME.layout          number of the layout, see `upgrade_layout`
NAME.manifest        model and its fingerprint, width, where items came from
NAME.items, links, facets, images_vectors, texts_vectors    what is in the index; every change is one transaction
NAME.jobs, forgotten, kept, state                            journal, hashes of deleted items, documents, numbers

A reader sees one moment (a transaction of REPEATABLE READ), however much is changed meanwhile. Any number of processes
may write at once. They embed side by side and take turns for their changes: each change begins by counting it, and
locks that one row until it is committed.

The vectors of one side of an index in PostgreSQL: compared exactly, or searched by an HNSW graph.

Up to a number of items (`Manifest.exact_up_to`), and for filters that leave no more than that, all vectors are
compared. Beyond it pgvector's HNSW graph is searched, with a filter until enough rows pass it (iterative scan). Either
way the best rows are scored again in float64: hits and scores are those of a folder.

A graph contains the rows up to some key, and later rows are not added to it: inserting a row costs the server eight
times what it costs when the graph is built. Later rows are all compared, until `compact` builds the graph again.

Nothing here shows a word of a password: neither an address, nor what a server says.
"""

from __future__ import annotations

import math
import re
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import numpy as np
import psycopg
from numpy.typing import NDArray
from pgvector.psycopg import register_vector
from psycopg import IsolationLevel, errors, sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from subtext.errors import IndexError_, OutputError, counted, listed
from subtext.search.ann import settle
from subtext.search.condition import facets
from subtext.search.manifest import Manifest
from subtext.search.segments import MARGIN
from subtext.search.stores.item import (
    NO_HITS,
    SIDES,
    Applied,
    Change,
    Entry,
    Hits,
    Side,
    json_object,
    vectors_digest,
)
from subtext.search.stores.sql import Part, Scalar, SqlView, SqlWriter, Tables, can_hold, require_storable, with_facet
from subtext.search.stores.store import Problem, Stats, Store, StoreGone, WriterBusy
from subtext.search.words import as_vector, phrase_query, words

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


EF_SEARCH, MAX_EF_SEARCH = 200, 1000
"""Rows that a search of the graph keeps in view (hnsw.ef_search): more find more, and take longer; at most so many."""
COMPLETE = 2**63 - 1
"""The last key of a graph that contains all rows and takes in later ones, as earlier versions of Subtext built it."""
MAX_SCAN = 100_000
"""Rows that a search of the graph with a filter scans at most, before all rows that pass it are compared."""
M, EF_CONSTRUCTION = 16, 64
"""Of the graph: neighbours of a row, and rows that they are chosen from; pgvector's defaults."""
LATER = 0.1
"""Share of the vectors that may have come after the graph, before it is built again."""
TABLES = ("items", "links", "facets", "images_vectors", "texts_vectors", "jobs", "forgotten", "kept", "state")

GRAPH = "{}_graph"
"""Name of the HNSW index on the vectors of a side, where there are so many that one is made."""
FORMER_GRAPH = "{}_graph_before"
"""Name of a graph in whose place another one stands, until it is dropped."""


@dataclass(eq=False)
class GraphVectors:
    """The vectors of one side at one moment; of use inside the transaction of its view.

    count  items of the side
    cache  what was read of this moment, for all views of it
    """

    tables: PostgresTables
    side: Side
    count: int
    manifest: Manifest
    cache: dict[str, Any]

    @property
    def rows(self) -> int:
        """Vectors of the side."""
        return self.count * self.manifest.views[self.side]

    @property
    def last_in_graph(self) -> int | None:
        """The last key that the graph contains; None where there is no complete graph."""
        name = f"last key in the graph of {self.side}"
        if name not in self.cache:
            rows = self.tables.run(
                "SELECT pg_catalog.pg_get_expr(i.indpred, i.indrelid) FROM pg_catalog.pg_index i "
                "JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid "
                "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
                "WHERE n.nspname = current_schema() AND c.relname = ? AND i.indisvalid",
                GRAPH.format(self.side),
            )
            keys = [re.search(r"\d+", condition or "") for (condition,) in rows]
            self.cache[name] = next((COMPLETE if key is None else int(key[0]) for key in keys), None)
        return self.cache[name]

    @property
    def unindexed(self) -> int:
        """Vectors that every search compares: those that came after the graph."""
        last, name = self.last_in_graph, f"unindexed {self.side}"
        if last is None:
            return self.rows
        if name not in self.cache:
            ((self.cache[name],),) = self.tables.run(f"SELECT count(*) FROM {self.side}_vectors WHERE key > {last}")
        return int(self.cache[name])

    def nearest(
        self, queries: NDArray[np.float32], *, top: int, among: NDArray[np.int64] | None = None, exact: bool = False
    ) -> list[Hits]:
        """The best `top` items of each of (Q L D) queries, or of those `among` these keys; see `View.nearest`."""
        possible = self.count if among is None else len(among)
        by_graph = not exact and possible > self.manifest.exact_up_to and self.last_in_graph is not None
        results = []
        for query in queries:
            hits = self._search(query, top, among, by_graph=by_graph)
            if by_graph and len(hits.keys) < min(top, possible):
                hits = self._search(query, top, among, by_graph=False)
            results.append(hits)
        return results

    def vectors_of(self, keys: NDArray[np.int64]) -> NDArray[np.float32]:
        """(N K D) vectors of items, in the order of the keys; each has to be in the index."""
        unique, positions = np.unique(keys, return_inverse=True)
        views, width = self.manifest.views[self.side], self.manifest.width
        statement = f"SELECT vector FROM {self.side}_vectors WHERE key = ANY(?::bigint[]) ORDER BY key, view"
        rows = self.tables.run(statement, _array(unique), binary=True)
        if len(rows) != len(unique) * views:
            raise IndexError_(
                f"an index needs {views} vectors of each of its {self.side}; of {len(unique)} it has {len(rows)}; "
                "`subtext index verify` says what is wrong"
            )
        vectors = np.array([vector.to_numpy() for (vector,) in rows], dtype=np.float32)
        return vectors.reshape(len(unique), views, width)[positions]

    def _search(self, query: NDArray[np.float32], top: int, among: NDArray[np.int64] | None, *, by_graph: bool) -> Hits:
        depth = top * max(1, self.manifest.views[self.side]) + MARGIN
        last = self.last_in_graph
        # A sum is not what the graph is ordered by: PostgreSQL then compares every row.
        orders = [("(vector <#> ?) + 0.0", "true")]
        if by_graph:
            # PostgreSQL uses the graph only where the rows are plainly among its own.
            later = [(orders[0][0], f"key > {last}")] if self.unindexed else []
            orders = [("vector <#> ?", f"key <= {last}"), *later]
            self.tables.run(
                "SELECT set_config('hnsw.ef_search', ?, true), set_config('hnsw.iterative_scan', 'relaxed_order', "
                "true), set_config('hnsw.max_scan_tuples', ?, true)",
                str(min(MAX_EF_SEARCH, max(EF_SEARCH, depth))),
                str(MAX_SCAN),
            )
        keys = [] if among is None else [_array(among)]
        rows: list[tuple[Any, ...]] = []
        for order, condition in orders:
            where = f"{condition} AND key = ANY(?::bigint[])" if keys else condition
            statement = f"SELECT key, vector FROM {self.side}_vectors WHERE {where} ORDER BY {order} LIMIT ?"
            for view in query:
                rows += self.tables.run(statement, *keys, view, depth, binary=True)
        if not rows:
            return NO_HITS
        row_keys = np.array([key for key, _ in rows], dtype=np.int64)
        return Hits(*settle(query, np.stack([vector.to_numpy() for _, vector in rows]), row_keys, top))


def build_graphs(
    tables: PostgresTables, changing: Callable[[], AbstractContextManager[None]], sides: Mapping[Side, GraphVectors]
) -> list[str]:
    """Build graphs of sides with more than `exact_up_to` vectors, drop others, and vacuum; what was done.

    changing  makes one change of the index

    A graph that lacks more than `LATER` of the vectors, or more than `exact_up_to`, is built again. A graph is built in
    one transaction: other writers wait for it, readers go on. How much memory the server may use for it is its own
    setting (maintenance_work_mem): a graph that fits into it is built many times faster.
    """
    built, dropped = [], []
    for side, vectors in sides.items():
        limit = vectors.manifest.exact_up_to
        if vectors.rows <= limit:
            dropped += [] if vectors.last_in_graph is None else [side]
        elif vectors.unindexed > min(limit, LATER * vectors.rows):
            built.append(side)
    _drop_former(tables, sides)
    if built or dropped:
        with changing():
            # Building a graph takes as long as it takes.
            tables.run("SELECT set_config('lock_timeout', '0', true)")
            for side in built + dropped:
                tables.run(f"ALTER INDEX IF EXISTS {GRAPH.format(side)} RENAME TO {FORMER_GRAPH.format(side)}")
            for side in built:
                ((last,),) = tables.run(f"SELECT max(key) FROM {side}_vectors")
                tables.run(
                    f"CREATE INDEX {GRAPH.format(side)} ON {side}_vectors USING hnsw (vector vector_ip_ops) "
                    f"WITH (m={M}, ef_construction={EF_CONSTRUCTION}) WHERE key <= {last}"
                )
        _drop_former(tables, sides)
    for table in TABLES:
        tables.run(f"VACUUM (ANALYZE) {table}")
    lines = [f"a graph of {side} was built" for side in built]
    lines += [f"the graph of {side} was dropped: every vector is compared" for side in dropped]
    return [*lines, "rows of deleted items are overwritten"]


def _drop_former(tables: PostgresTables, sides: Mapping[Side, GraphVectors]) -> None:
    """Drop graphs that were replaced, when nobody searches them any more; nobody else has to wait for that."""
    for side in sides:
        tables.run(f"DROP INDEX CONCURRENTLY IF EXISTS {FORMER_GRAPH.format(side)}")


def _array(keys: NDArray[np.int64]) -> str:
    """Whole numbers as PostgreSQL writes an array of them."""
    return "{" + ",".join(map(str, keys.tolist())) + "}"


_SEARCH = Path(__file__).with_name("postgres_words.sql").read_text(encoding="utf-8")
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

    kinds = (
        "SELECT count(word), count(number), count(DISTINCT word) + count(DISTINCT number), min(number), max(number) "
        "FROM facets WHERE side = ? AND name = ?"
    )
    common = (
        "SELECT word, number, count(*) AS many FROM facets WHERE side = ? AND name = ? GROUP BY word, number "
        'ORDER BY many DESC, number, word COLLATE "C" LIMIT ?'
    )
    in_id, in_value = "strpos(folded_id, ?) > 0", "strpos(folded, ?) > 0"

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

    def _texts_with(self, phrase: str) -> Part:
        return "SELECT key, id FROM items WHERE side = 1 AND words @@ ?::tsquery", [phrase_query(phrase)]

    def _with_values(self, side: int, name: str, values: Sequence[Scalar]) -> Part:
        texts = [value for value in values if isinstance(value, str)]
        numbers = [_number(value) for value in values if not isinstance(value, str)]
        by_number = with_facet(side, name, "number = ANY(?::numeric[])", numbers)
        if not texts:
            return by_number
        tests = "left(word, 200) IN (SELECT left(w, 200) FROM unnest(?::text[]) AS u(w)) AND word = ANY(?::text[])"
        by_word = with_facet(side, name, f"word IS NOT NULL AND {tests}", texts, texts)
        return f"{by_number[0]} UNION {by_word[0]}", [*by_number[1], *by_word[1]]

    def _with_range(self, side: int, name: str, test: str, limit: Scalar) -> Part:
        return with_facet(side, name, f"number {test} ?", _number(limit))


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
        require_storable([*change.entries, *change.amended])
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
        pairs = [(image, text) for image, text in links if can_hold(image) and can_hold(text)]
        if pairs:
            self.tables.run(
                "INSERT INTO links SELECT p.image, p.text FROM unnest(?::text[], ?::text[]) AS p(image, text) "
                "WHERE EXISTS (SELECT 1 FROM items i WHERE i.side = 0 AND i.id = p.image) "
                "AND EXISTS (SELECT 1 FROM items t WHERE t.side = 1 AND t.id = p.text) ON CONFLICT DO NOTHING",
                [image for image, _ in pairs],
                [text for _, text in pairs],
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


def facet_rows(side: int, key: int, metadata: str) -> Iterator[tuple[Any, ...]]:
    """The rows of the facets of an item; none where its metadata is damaged, which its digest tells."""
    for name, value in sorted(facets(json_object(metadata) or {}), key=str):
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


def _number(value: Scalar) -> Decimal | None:
    """As PostgreSQL compares it exactly; None, which nothing is equal to, for what is no number."""
    return None if isinstance(value, float) and math.isnan(value) else Decimal(value)


def search_words(connection: Connection, text: str, *, top: int, counts: tuple[int, int]) -> list[tuple[int, float]]:
    """The `top` texts that have some of the words, as (key, BM25 score).

    counts  texts that have words, and their words

    sum over words of idf f (k1 + 1) / (f + k1 (1 - b + b length / mean length)), idf = log((N - n + .5) / (n + .5)).
    """
    query = words(text)
    number, total = counts
    if not query or not number:
        return []
    values = {
        "query": query,
        "any": " | ".join(f"'{word}'" for word in dict.fromkeys(query)),
        "number": float(number),
        "mean": total / number,
        "top": top,
    }
    return [(int(key), float(score)) for key, score in connection.execute(_SEARCH, values)]


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
