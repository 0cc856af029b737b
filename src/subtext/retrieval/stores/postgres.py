"""A search index in PostgreSQL: a schema that describes itself, for any number of readers and writers at once.

NAME.manifest        model and its fingerprint, width, where items came from
NAME.items, links, facets, images_vectors, texts_vectors    what is in the index; every change is one transaction
NAME.jobs, forgotten, kept, state                            journal, hashes of deleted items, documents, numbers
NAME.images_graph, texts_graph    HNSW indexes of the vectors of large sides; a graph that was replaced ends in _before

A reader sees one moment (a transaction of REPEATABLE READ), however much is changed meanwhile. Any number of processes
may write at once. They embed side by side and take turns for their changes: each change begins by counting it, and
locks that one row until it is committed.

Up to a number of items (`Manifest.exact_up_to`), and for filters that leave no more than that, all vectors are
compared. Beyond it pgvector's HNSW graph is searched; where too few of the rows found pass a filter, all that pass it
are compared: the filter may pass none but far items, whose order the graph does not know. Either
way the best rows are scored again in float64: hits and scores are those of a folder.

A graph contains the rows up to some key, and later rows are not added to it: inserting a row costs the server eight
times what it costs when the graph is built. Later rows are all compared, until `compact` builds the graph again.

Nothing here shows a word of a password: neither an address, nor what a server says.
"""

from __future__ import annotations

import math
import re
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import numpy as np
import psycopg
from numpy.typing import NDArray
from pgvector.psycopg import register_vector
from psycopg import IsolationLevel, errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from subtext.errors import OutputError, SearchIndexError, SubtextError
from subtext.retrieval.ann import rescore_top_k
from subtext.retrieval.index_files import json_object
from subtext.retrieval.manifest import Manifest, Revision
from subtext.retrieval.segments import MARGIN
from subtext.retrieval.stores.errors import IndexIssue, IndexLockedError, IndexMovedError
from subtext.retrieval.stores.facets import facets
from subtext.retrieval.stores.item import SIDES, Applied, Change, Hits, IndexEntry, Side, vectors_digest
from subtext.retrieval.stores.sql import (
    Part,
    Scalar,
    SqlView,
    SqlWriter,
    Tables,
    can_hold,
    require_storable,
    with_facet,
)
from subtext.retrieval.stores.store import Stats, Store
from subtext.retrieval.words import as_vector, fold, phrase_query, query_words, words as split
from subtext.text_helpers import counted, listed
from subtext.version import FORMAT, require_format

Connection = psycopg.Connection[tuple[Any, ...]]

NEEDED = [0, 8]
"""The first pgvector that goes on looking where a filter leaves too few (iterative scan)."""
ROWS = 2000
"""Rows that `verify` reads at a time."""
MOST = 24
"""Connections of one process at a time: a Subtext server has a hundred threads, and PostgreSQL by default a hundred
connections for all its clients."""
WIDEST = 2000
"""Width up to which pgvector makes graphs of vectors; so wide a vector just fits into its row."""
EXACT_UP_TO = 20_000
"""Vectors of a side that are all compared by default: beyond them a search of the graph is faster."""
EF_SEARCH, MAX_EF_SEARCH = 200, 1000
"""Candidates of a graph search (hnsw.ef_search), and their maximum: more find more, and are slower."""
MAX_SCAN = 100_000
"""Rows that a search of the graph finds at most."""
SPREAD, DEARER = 2, 5
"""How many times more rows are found than pass a filter that is spread evenly; cost of finding a row by the graph, in
rows that are compared."""
LATER = 0.1
"""Share of the vectors that may have come after the graph, before it is built again."""

_SCHEMA = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
_SEARCH = Path(__file__).with_name("postgres_words.sql").read_text(encoding="utf-8")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")
_SECRET = ("password", "sslpassword", "passfile", "service", "servicefile", "sslkey", "oauth_client_secret")


@dataclass(frozen=True)
class Address:
    """An index in a database.

    Attributes:
        name: Of the index, which is the PostgreSQL schema that its tables lie in.
        parameters: What libpq connects by, a password among them: never shown.
    """

    name: str
    parameters: Mapping[str, Any] = field(repr=False)

    @staticmethod
    def parse(location: str | Address) -> Address:
        """The address of `postgresql://USER@HOST:PORT/DATABASE?index=NAME`; all of libpq's parameters are understood.

        It is the index "subtext" where it names none.

        Args:
            location: Address of an index, or one that is parsed already.

        Returns:
            The parsed address.

        Raises:
            SearchIndexError: For anything else, without repeating it: a password may be in it.
        """
        if isinstance(location, Address):
            return location
        base, _, query = location.partition("?")
        pairs = parse_qsl(query, keep_blank_values=True)
        name = dict(pairs).get("index", "subtext")
        for_server = urlencode([(key, value) for key, value in pairs if key != "index"], quote_via=quote)
        try:
            parameters = conninfo_to_dict(f"{base}?{for_server}")
        except (psycopg.Error, ValueError):
            parameters = {"port": "?"}
        # A sign of a password, such as a slash, may have ended the address's first part too soon.
        if re.search(r"[^\d,]", str(parameters.get("port") or "")) or "@" in str(parameters.get("dbname")):
            # What libpq says of it, and what it took for a port or a database, may be a part of the password.
            raise SearchIndexError(
                "an index in PostgreSQL needs an address of the form "
                "postgresql://USER@HOST:PORT/DATABASE?index=NAME; this one cannot be read (it is not repeated, as a "
                "password may be in it); write a password's signs other than letters and digits as %XX, or give it as "
                "PGPASSWORD"
            ) from None
        if not _NAME.fullmatch(name) or name.startswith("pg_") or name in ("public", "information_schema"):
            raise SearchIndexError(
                "an index in PostgreSQL needs a name of letters, digits, _ and -, of at most 63, and not one of "
                f"PostgreSQL's own; it got {name!r}; name it by index=NAME at the end of the address"
            )
        # Seconds that are waited for a server, unless the address says otherwise.
        return Address(name, {"connect_timeout": 10, "application_name": "subtext", **parameters})

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


def connect(address: Address) -> Connection:
    """A connection that keeps each statement by itself, unless it stands in a transaction.

    Args:
        address: The index.

    Returns:
        The connection.
    """
    # Statements are planned anew each time: how many items fulfil a filter decides how it is best searched.
    return psycopg.connect(**address.parameters, autocommit=True, prepare_threshold=None)


def connect_index(address: Address, *, write: bool = False) -> Connection:
    """A connection that finds an index's tables by their names; its transactions see one state, and change nothing.

    Args:
        address: The index.
        write: Changes are possible; they are on the server's disk when they are acknowledged.

    Returns:
        The connection.

    Raises:
        IndexMovedError: If there is no server, or it lets nobody in.
        SearchIndexError: If pgvector is missing, or too old.
    """
    with ExitStack() as on_failure, translated(address):
        connection = on_failure.enter_context(connect(address))
        row = connection.execute(
            "SELECT nspname FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace "
            "WHERE extname = 'vector' AND (string_to_array(extversion, '.'))[:2]::int[] >= %s::int[]",
            (NEEDED,),
        ).fetchone()
        if row is None:
            raise SearchIndexError(
                f"{address} needs pgvector {'.'.join(map(str, NEEDED))} or later; the database has none, or an earlier "
                "one; an administrator puts it in by CREATE EXTENSION vector, or renews it by ALTER EXTENSION vector "
                "UPDATE"
            )
        connection.execute(f'SET search_path TO "{address.name}", "{row[0]}"')
        register_vector(connection)
        if write:
            # A writer waits for another one's change.
            connection.execute("SET synchronous_commit TO on; SET lock_timeout TO '300s'")
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
            case errors.LockNotAvailable() | errors.DeadlockDetected() | errors.SerializationFailure():
                kind, state, advice = (
                    IndexLockedError,
                    "is being changed by somebody else",
                    "nothing was kept; do it again",
                )
            case errors.InsufficientPrivilege() | errors.ReadOnlySqlTransaction():
                kind, state = OutputError, "needs rights that this user lacks"
                advice = "an administrator gives them (GRANT, CREATE EXTENSION vector)"
            case errors.DuplicateSchema():
                state = f"needs a new name; there is a schema '{address.name}' in that database already"
                advice = "name another by index=NAME, or remove it"
            case errors.UndefinedTable() | errors.InvalidSchemaName():
                state = "needs to be an index that `subtext index build` made, with all its tables"
                advice = "name another, or restore a backup"
            case psycopg.OperationalError() | psycopg.InterfaceError():
                kind, state = IndexMovedError, "needs its server, which cannot be reached or went away"
                advice = "no change is half kept; look to the server and do it again"
        raise kind(f"{address} {state}: {message}; {advice}") from None


class PostgresTables(Tables):
    """The tables of an index, by one connection to PostgreSQL.

    Args:
        connection: The connection.
    """

    joined = "string_agg(key::text, ',')"

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def run(self, statement: str, *values: Any, binary: bool = False) -> list[tuple[Any, ...]]:
        """The rows that a statement gives; see `sql.Tables`.

        Args:
            statement: SQL, with `?` for a value.
            *values: The values, in the order of the question marks.
            binary: Rows come as PostgreSQL stores them: vectors are read sooner.

        Returns:
            The rows.
        """
        cursor = self.connection.execute(statement.replace("?", "%s"), values, binary=binary)
        return cursor.fetchall() if cursor.description is not None else []

    def run_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement with the values of each row.

        Args:
            statement: SQL, with `?` for a value.
            rows: Values of each run.
        """
        with self.connection.cursor() as cursor:
            cursor.executemany(statement.replace("?", "%s"), rows)


def current(connection: Connection, address: Address, like: Manifest | None = None) -> tuple[Manifest, dict[str, int]]:
    """The manifest of an index and the numbers of its state, at this moment.

    Args:
        connection: A connection to the index.
        address: The index.
        like: The manifest when it was opened: the model must be the same.

    Returns:
        Manifest, and name -> number.

    Raises:
        SearchIndexError: If there is no index, or one of another format or model.
    """
    # Moves and readers both lock the state first, so they cannot deadlock.
    statement = f'SELECT json, name, value FROM "{address.name}".state, "{address.name}".manifest'
    with translated(address):
        rows = connection.execute(statement).fetchall()
    if not rows:
        raise SearchIndexError(f"{address} needs its state and its manifest, and has not both; restore a backup")
    state = {name: int(value) for _, name, value in rows}
    require_format(state.get("format"), address, "index build", SearchIndexError)
    manifest = Manifest.from_json(rows[0][0], where=str(address))
    latest = manifest.at(Revision(manifest.identity, state["generation"], f"{state['change']:014x}"))
    if like is not None and like.fingerprint != latest.fingerprint:
        raise SearchIndexError(f"{address} was moved to another model meanwhile; open it again")
    return latest, state


@dataclass(eq=False)
class GraphVectors:
    """The vectors of one side at one moment; of use inside the transaction of its view.

    Attributes:
        tables: The tables at this moment.
        side: "images" or "texts".
        count: Items of the side.
        manifest: Describes the index.
        cache: What was read of this moment, for all views of it.
    """

    tables: PostgresTables
    side: Side
    count: int
    manifest: Manifest
    cache: dict[str, Any]

    @property
    def graph(self) -> tuple[int, int] | None:
        """The last key that the graph contains, and how many vectors came after it; None without a complete graph."""
        name = f"graph of {self.side}"
        if name not in self.cache:
            rows = self.tables.run(
                f"SELECT last, (SELECT count(*) FROM {self.side}_vectors WHERE key > last) FROM (SELECT "
                "substring(pg_get_expr(indpred, indrelid) FROM '[0-9]+')::bigint AS last "
                "FROM pg_index WHERE indisvalid AND indpred IS NOT NULL "
                f"AND indexrelid = to_regclass(quote_ident(current_schema()) || '.{self.side}_graph')) AS graph"
            )
            self.cache[name] = rows[0] if rows else None
        return self.cache[name]

    @property
    def unindexed(self) -> int:
        """Vectors that every search compares: those that came after the graph."""
        return self.count * self.manifest.views[self.side] if self.graph is None else self.graph[1]

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
        possible = self.count if among is None else len(among)
        reach = (
            self._depth(top) if among is None else math.ceil(SPREAD * self._depth(top) * self.count / max(1, possible))
        )
        by_graph = not exact and possible > self.manifest.exact_up_to and self.graph is not None
        by_graph = (
            by_graph
            and reach <= MAX_SCAN
            and (among is None or DEARER * reach < possible * self.manifest.views[self.side])
        )
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
        return top * max(1, self.manifest.views[self.side]) + MARGIN

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
        views, width = self.manifest.views[self.side], self.manifest.width
        statement = f"SELECT vector FROM {self.side}_vectors WHERE key = ANY(?::bigint[]) ORDER BY key, view"
        rows = self.tables.run(statement, _array(unique), binary=True)
        if len(rows) != len(unique) * views:
            raise SearchIndexError(
                f"an index needs {views} vectors of each of its {self.side}; of {len(unique)} it has {len(rows)}; "
                "`subtext index verify` says what is wrong"
            )
        vectors = np.array([vector.to_numpy() for (vector,) in rows], dtype=np.float32)
        return vectors.reshape(len(unique), views, width)[positions]

    def _search(
        self, query: NDArray[np.float32], top: int, among: NDArray[np.int64] | None, *, reach: int = 0
    ) -> Hits | None:
        """The best items; with `reach` by that many rows of the graph, or None where too few of them pass a filter."""
        depth = self._depth(top)
        # A sum is not what the graph is ordered by: PostgreSQL then compares every row.
        orders = {"true": "(vector <#> ?) + 0.0"}
        if reach and self.graph is not None:
            # PostgreSQL uses the graph only where the rows are plainly among its own.
            last, later = self.graph
            orders = {f"key <= {last}": "vector <#> ?"} | ({f"key > {last}": orders["true"]} if later else {})
            self.tables.run(
                "SELECT set_config('hnsw.ef_search', ?, true), set_config('hnsw.iterative_scan', 'relaxed_order', "
                "true), set_config('hnsw.max_scan_tuples', ?, true)",
                str(min(MAX_EF_SEARCH, max(EF_SEARCH, reach))),
                str(MAX_SCAN),
            )
        keys = [] if among is None else [_array(among)]
        rows: list[tuple[Any, ...]] = []
        for condition, order in orders.items():
            where = f"{condition} AND key = ANY(?::bigint[])" if keys else condition
            statement = f"SELECT key, vector FROM {self.side}_vectors WHERE {where} ORDER BY {order} LIMIT ?"
            # All that pass among the nearest of all: a walk that ends with the first that pass may end far from the
            # best of them.
            walked = bool(keys) and "+" not in order
            if walked:
                near = f"SELECT key, vector FROM {self.side}_vectors WHERE {condition} ORDER BY {order} LIMIT ?"
                statement = f"SELECT key, vector FROM ({near}) AS near WHERE key = ANY(?::bigint[])"
            for view in query:
                values = (view, reach, *keys) if walked else (*keys, view, depth)
                passing = self.tables.run(statement, *values, binary=True)
                if walked and len(passing) < depth:
                    return None
                rows += passing
        vectors = np.array([vector.to_numpy() for _, vector in rows], dtype=np.float32).reshape(-1, query.shape[1])
        return Hits(*rescore_top_k(query, vectors, np.array([key for key, _ in rows], dtype=np.int64), top))


def _array(keys: NDArray[np.int64]) -> str:
    """Whole numbers as PostgreSQL writes an array of them."""
    return "{" + ",".join(map(str, keys.tolist())) + "}"


@dataclass(eq=False)
class DatabaseView(SqlView):
    """An index in PostgreSQL at one moment; of use inside its transaction.

    Attributes:
        tables: The tables at this moment.
        sides: The vectors of each side.
        state: Name -> number.
    """

    tables: PostgresTables
    sides: Mapping[Side, GraphVectors]
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
            "FROM pg_class WHERE relnamespace = quote_ident(current_schema())::regnamespace AND relkind = 'r'"
        )
        number = self.tables.connection.info.server_version
        version = f"{number // 10_000}.{number % 10_000}"
        facts = {
            "graphs": {side: vectors.graph is not None for side, vectors in self.sides.items()},
            "after_the_graph": {side: vectors.unindexed for side, vectors in self.sides.items() if vectors.graph},
            "server": {"PostgreSQL": version, "pgvector": extension},
        }
        return Stats(int(size), {side: vectors.unindexed for side, vectors in self.sides.items()}, facts)

    def search_text(self, words: str, *, top: int) -> list[tuple[int, float]]:
        """The `top` texts that contain some of the words, as (key, BM25 score), best first.

        sum over words of idf f (k1 + 1) / (f + k1 (1 - b + b length / mean length)), idf = log((N - n + .5) / (n + .5))
        for N texts that have words, and n that have this one.

        Args:
            words: Words of the query; see `retrieval.words` for what counts as a word.
            top: Number of texts, 1 or more.

        Returns:
            (key of the text, BM25 score), best first.
        """
        query, number = query_words(words), self.state["worded"]
        if not query or not number:
            return []
        values = {
            "query": query,
            "any": " | ".join(f"'{word}'" for word in dict.fromkeys(query)),
            "number": float(number),
            "mean": self.state["words"] / number,
            "top": top,
        }
        return [(int(key), float(score)) for key, score in self.tables.connection.execute(_SEARCH, values)]

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

    def _texts_with(self, phrase: str) -> Part:
        return "SELECT key, id FROM items WHERE side = 1 AND words @@ ?::tsquery", [phrase_query(phrase)]

    def _with_values(self, side: int, name: str, values: Sequence[Scalar]) -> Part:
        texts = [value for value in values if isinstance(value, str)]
        numbers = [_number(value) for value in values if not isinstance(value, str)]
        by_number = with_facet(side, name, "number = ANY(?::numeric[])", numbers)
        # The index has the first letters of a word.
        tests = "folded IS NOT NULL AND left(folded, 200) = ANY(?::text[]) AND folded = ANY(?::text[])"
        by_word = with_facet(side, name, tests, [text[:200] for text in texts], texts)
        return f"{by_number[0]} UNION {by_word[0]}", [*by_number[1], *by_word[1]]

    def _with_range(self, side: int, name: str, test: str, limit: Scalar) -> Part:
        return with_facet(side, name, f"number {test} ?", _number(limit))


class DatabaseWriter(SqlWriter):
    """Changes an index in PostgreSQL, beside other writers; made by `Database.writing`.

    Args:
        store: The index.
        connection: A connection that may write.
        manifest: Describes the index: model, width and views of the vectors, root of the paths.
    """

    store: Database
    tables: PostgresTables
    changed = f"{SqlWriter.changed}, words = ?::tsvector, length = ?"

    def __init__(self, store: Database, connection: Connection, manifest: Manifest) -> None:
        super().__init__(store, manifest)
        self.connection = connection
        self.tables = PostgresTables(connection)

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
        """Build graphs of sides with more than `exact_up_to` vectors, drop others, and vacuum; what was done.

        A graph that lacks more than `LATER` of the vectors, or more than `exact_up_to`, is built again. A graph is
        built in one transaction: other writers wait for it, readers go on. How much memory the server may use for it is
        its own setting (maintenance_work_mem): a graph that fits into it is built many times faster.

        Args:
            seed: Of what is sampled; the same seed samples the same.

        Returns:
            Sentences that say what was done.
        """
        built, dropped = [], []
        with self.store.reading() as view:
            for side, vectors in view.sides.items():
                rows, limit = view.counts[side] * view.manifest.views[side], view.manifest.exact_up_to
                if rows <= limit:
                    dropped += [side] if vectors.graph else []
                elif vectors.unindexed > min(limit, LATER * rows):
                    built.append(side)
        with translated(self.store.address):
            self._drop_former()
            if built or dropped:
                with self.changing():
                    # Building a graph takes as long as it takes.
                    self.tables.run("SELECT set_config('lock_timeout', '0', true)")
                    for side in built + dropped:
                        self.tables.run(f"ALTER INDEX IF EXISTS {side}_graph RENAME TO {side}_graph_before")
                    for side in built:
                        ((last,),) = self.tables.run(f"SELECT max(key) FROM {side}_vectors")
                        self.tables.run(
                            f"CREATE INDEX {side}_graph ON {side}_vectors USING hnsw (vector vector_ip_ops) "
                            f"WHERE key <= {last}"
                        )
                self._drop_former()
            self.tables.run(
                "VACUUM (ANALYZE) items, links, facets, images_vectors, texts_vectors, jobs, forgotten, kept, state"
            )
        lines = [f"a graph of {side} was built" for side in built]
        lines += [f"the graph of {side} was dropped: every vector is compared" for side in dropped]
        return [*lines, "rows of deleted items are overwritten"]

    def _drop_former(self) -> None:
        """Drop graphs that were replaced, when nobody searches them any more; nobody else has to wait for that."""
        for side in SIDES:
            self.tables.run(f"DROP INDEX CONCURRENTLY IF EXISTS {side}_graph_before")

    @contextmanager
    def changing(self) -> Iterator[None]:
        """One change, made completely; other writers wait until it is committed.

        Returns:
            A context manager.

        Raises:
            SearchIndexError: If the index has been moved to another model since it was opened.
        """
        with translated(self.store.address), self.connection.transaction():
            self.count_change()
            manifest, _ = current(self.connection, self.store.address, self.store.manifest)
            yield
        self.manifest = manifest

    def _columns(self, side: int, key: int, entry: IndexEntry) -> tuple[Any, ...]:
        text = None if entry.text is None else split(entry.text)
        vector = (None, None) if text is None else (as_vector(text), len(text))
        return *super()._columns(side, key, entry), *vector

    def _insert_items(self, side: Side, keys: Sequence[int], entries: Sequence[IndexEntry], vectors: Any) -> None:
        number = SIDES.index(side)
        items = (
            (key, number, entry.id, fold(entry.id), vectors_digest(of_item), *self._columns(number, key, entry))
            for key, entry, of_item in zip(keys, entries, vectors, strict=True)
        )
        columns = "vectors_digest, path, text, metadata, content, stamp, digest, words, length"
        self._copy(f"items (key, side, id, folded_id, {columns})", items)
        rows = ((key, *row) for key, of_item in zip(keys, vectors, strict=True) for row in enumerate(of_item))
        self._copy(f"{side}_vectors (key, view, vector)", rows, types=("int8", "int2", "vector"))

    def _copy(self, into: str, rows: Iterable[Sequence[Any]], *, types: Sequence[str] = ()) -> None:
        """Insert rows, of which those with types are sent as PostgreSQL stores them."""
        statement = f"COPY {into} FROM STDIN {'(FORMAT BINARY)' if types else ''}"
        with self.connection.cursor() as cursor, cursor.copy(statement) as copy:
            if types:
                copy.set_types(types)
            for row in rows:
                copy.write_row(row)

    def _insert_facets(self, side: int, keys: Sequence[int], entries: Sequence[IndexEntry]) -> None:
        pairs = zip(keys, entries, strict=True)
        rows = [row for key, entry in pairs for row in facet_rows(side, key, entry.metadata_json)]
        self._copy("facets (key, side, name, number, word, folded)", rows)
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
        statement = "DELETE FROM links WHERE (image, text) IN (SELECT * FROM unnest(?::text[], ?::text[]))"
        self.tables.run(statement, [image for image, _ in links], [text for _, text in links])

    def _insert_links(self, links: Sequence[tuple[str, str]]) -> None:
        pairs = [(image, text) for image, text in links if can_hold(image) and can_hold(text)]
        if pairs:
            self.tables.run(
                "INSERT INTO links SELECT i.id, t.id FROM unnest(?::text[], ?::text[]) AS p(image, text) JOIN items i "
                "ON i.side = 0 AND i.id = p.image JOIN items t ON t.side = 1 AND t.id = p.text ON CONFLICT DO NOTHING",
                [image for image, _ in pairs],
                [text for _, text in pairs],
            )


class Database(Store):
    """An index in PostgreSQL, opened.

    Args:
        address: The index.

    Raises:
        SearchIndexError: If there is none, or it has another format.
        IndexMovedError: Without a server.
    """

    def __init__(self, address: str | Address) -> None:
        self._idle: list[Connection] = []
        self.address = Address.parse(address)
        self.path = str(self.address)
        self._free = threading.Semaphore(MOST)
        self._thread = threading.local()
        self._cache: tuple[Revision | None, dict[str, Any]] = (None, {})
        with self.connected() as connection:
            self.manifest, _ = current(connection, self.address)

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
        if manifest.width > WIDEST:
            raise SearchIndexError(
                f"an index in PostgreSQL needs vectors of at most {WIDEST:,} numbers; these have {manifest.width:,}; "
                "keep the index in a folder"
            )
        manifest = replace(manifest, exact_up_to=min(manifest.exact_up_to, EXACT_UP_TO), generation=0)
        with translated(address):
            with connect(address) as connection:
                connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            with connect_index(address, write=True) as connection, connection.transaction():
                connection.execute(f'CREATE SCHEMA "{address.name}"')
                connection.execute(_SCHEMA.format(width=manifest.width))
                connection.execute("INSERT INTO manifest (json) VALUES (%s)", (manifest.to_json(),))
                connection.execute("INSERT INTO state VALUES ('format', %s)", (FORMAT,))
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
        with translated(address), connect(address) as connection, connection.transaction(force_rollback=True):
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
            manifest, state = current(connection, self.address, self.manifest)
            self.require_revision(manifest.revision)
            revision, cache = self._cache
            if revision != manifest.revision:
                revision, cache = self._cache = (manifest.revision, {})
            tables, counts = PostgresTables(connection), {side: state[side] for side in SIDES}
            sides = {side: GraphVectors(tables, side, counts[side], manifest, cache) for side in SIDES}
            yield DatabaseView(manifest, manifest.revision, counts, tables, sides, state, cache=cache)

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
        with connect_index(self.address, write=True) as connection:
            with translated(self.address):
                connection.execute("SELECT set_config('application_name', %s, false)", (f"subtext index {verb}",))
            writer = DatabaseWriter(self, connection, current(connection, self.address, self.manifest)[0])
            try:
                yield writer
            finally:
                self.manifest = writer.manifest

    def check(self) -> list[IndexIssue]:
        """Damage that only the database can see: vectors, facets and words.

        Reads every row and every vector once. Bytes under the rows are PostgreSQL's own to check (data checksums,
        pg_amcheck).

        Returns:
            The damage; empty for an intact index.
        """
        with self.reading() as view:
            problems = [problem for side in SIDES for problem in _check(view, side)]
            ((stored,),) = view.tables.run("SELECT count(*) FROM facets")
            if stored != view.state["facets"]:
                problems.append(IndexIssue("facets", f"has {stored:,} of {view.state['facets']:,} rows"))
            return problems

    @property
    def was_replaced(self) -> bool:
        """Whether an index of another model has taken the place of this one since it was opened: open it again."""
        with self.connected() as connection:
            return current(connection, self.address)[0].identity != self.manifest.identity

    def remove(self) -> None:
        """Remove the index."""
        self.close()
        with translated(self.address), connect_index(self.address, write=True) as connection:
            connection.execute(f'DROP SCHEMA "{self.address.name}" CASCADE')

    def create_replacement(self, manifest: Manifest) -> Database:
        """Create an index for another model in the same database, or resume one for the same model.

        Args:
            manifest: Describes the new index.

        Returns:
            The new index. An unfinished replacement for the same model is resumed.
        """
        address = replace(self.address, name=f"{self.address.name[:56]}_moving")
        if Database.exists(address):
            begun = Database(address)
            if begun.manifest.fingerprint == manifest.fingerprint:
                return begun
            begun.remove()
        return Database.create(address, manifest)

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
        new.close()
        old, fresh = f'"{self.address.name}"', f'"{new.address.name}"'
        with translated(self.address), connect_index(self.address, write=True) as connection, connection.transaction():
            # Every reader and writer begins with this table: behind the lock nobody is reading or writing.
            connection.execute(f"LOCK TABLE {old}.state IN ACCESS EXCLUSIVE MODE")
            if current(connection, self.address)[0].revision != since:
                raise SearchIndexError(
                    f"{self.path} was changed while its items were embedded; run the command again: it embeds what "
                    "is new, and nothing else"
                )
            connection.execute(
                f"INSERT INTO {fresh}.forgotten SELECT hash FROM {old}.forgotten ON CONFLICT DO NOTHING; "
                f"DROP SCHEMA {old} CASCADE; ALTER SCHEMA {fresh} RENAME TO {old}"
            )
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
    def connected(self) -> Iterator[Connection]:
        """A connection of this thread alone; inside another such block of the thread, the same one.

        Waits while all `MOST` of them are in use.

        Returns:
            A context manager.

        Raises:
            IndexMovedError: If there is no server.
        """
        outer: Connection | None = getattr(self._thread, "connection", None)
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

    def _acquired(self) -> Connection:
        """A connection that answers: a restart of the server is noticed here."""
        with suppress(IndexError):
            while True:
                connection = self._idle.pop()
                try:
                    connection.execute("SELECT 1")
                    return connection
                except psycopg.OperationalError:
                    connection.close()
        return connect_index(self.address)


def facet_rows(side: int, key: int, metadata: str) -> Iterator[tuple[Any, ...]]:
    """The rows of the facets of an item; none where its metadata is damaged, which its digest tells.

    Args:
        side: Number of the side in `SIDES`.
        key: Key of the item.
        metadata: JSON.

    Returns:
        (key, side, name, number, word, folded word) of each facet.
    """
    for name, value in sorted(facets(json_object(metadata) or {}), key=str):
        if isinstance(value, str):
            yield key, side, name, None, value, fold(value)
        else:
            # PostgreSQL has no negative zero.
            yield key, side, name, Decimal(value or 0), None, None


def _number(value: Scalar) -> Decimal | None:
    """As PostgreSQL compares it exactly; None, which nothing is equal to, for what is no number."""
    return None if isinstance(value, float) and math.isnan(value) else Decimal(value)


def _check(view: DatabaseView, side: Side) -> Iterator[IndexIssue]:
    """Vectors, facets and words of the items of a side, against what was put in."""
    run, number, views, keys = view.tables.run, SIDES.index(side), view.manifest.views[side], view.keys(side)
    table, damaged = f"{side}_vectors", dict[tuple[str, str], list[str]]()
    for start in range(0, len(keys), ROWS):
        some = _array(keys[start : start + ROWS])
        items = run("SELECT key, id, text, metadata, vectors_digest FROM items WHERE key = ANY(?::bigint[])", some)
        vectors: dict[int, list[NDArray[np.float32]]] = {key: [] for key, *_ in items}
        statement = f"SELECT key, vector FROM {table} WHERE key = ANY(?::bigint[]) ORDER BY key, view"
        for key, vector in run(statement, some, binary=True):
            vectors[key].append(vector.to_numpy())
        statement = "SELECT key, side, name, number, word, folded FROM facets WHERE key = ANY(?::bigint[])"
        differences = Counter(run(statement, some))
        differences.subtract(row for key, *_, metadata, _ in items for row in facet_rows(number, key, metadata))
        other_facets = {key for (key, *_), count in differences.items() if count}
        texts = [(key, split(text)) for key, _, text, *_ in items if text is not None]
        statement = (
            "SELECT i.key FROM unnest(?::bigint[], ?::text[], ?::integer[]) AS w(key, words, length) "
            "JOIN items i ON i.key = w.key WHERE (i.words, i.length) IS DISTINCT FROM (w.words::tsvector, w.length)"
        )
        expected = [key for key, _ in texts], [as_vector(text) for _, text in texts], [len(text) for _, text in texts]
        other_words = {key for (key,) in run(statement, *expected)}
        for key, name, _, _, digest in items:
            stored = np.array(vectors[key])
            complete = len(stored) == views
            for where, what, wrong in (
                (table, f"{{0}} without {views} vectors", not complete),
                (table, "{0} with changed or damaged vectors", complete and vectors_digest(stored) != digest),
                ("facets", "what {0} can be filtered by differs from the metadata", key in other_facets),
                ("items", "the words of {1} differ from the texts", key in other_words),
            ):
                if wrong:
                    damaged.setdefault((where, what), []).append(repr(name))
    for (where, what), names in damaged.items():
        counts = (counted(len(names), noun) for noun in ("item", "text"))
        yield IndexIssue(where, f"{what.format(*counts)}: {listed(names)}")
