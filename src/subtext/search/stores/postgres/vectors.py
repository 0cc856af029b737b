"""The vectors of one side of an index in PostgreSQL: compared exactly, or searched by an HNSW graph.

Up to a number of items (`Manifest.exact_up_to`), and for filters that leave no more than that, all vectors are
compared. Beyond it pgvector's HNSW graph is searched, with a filter until enough rows pass it (iterative scan). Either
way the best rows are scored again in float64: hits and scores are those of a folder.

A graph contains the rows up to some key, and later rows are not added to it: inserting a row costs the server eight
times what it costs when the graph is built. Later rows are all compared, until `compact` builds the graph again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from subtext.errors import IndexError_
from subtext.search.ann import settle
from subtext.search.stores.item import SIDES, Hits, Side
from subtext.search.stores.postgres.connection import VECTORS, Address, Connection, former_name, graph_name, translated
from subtext.search.stores.segments import MARGIN

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

# A sum is not what the graph is ordered by: PostgreSQL then compares every row.
_EXACT = sql.SQL("(vector <#> %s) + 0.0")
_GRAPH = sql.SQL("vector <#> %s")
_AMONG = sql.SQL("key = ANY(%s::bigint[])")
_SETTINGS = (
    "SELECT set_config('hnsw.ef_search', %s, true), set_config('hnsw.iterative_scan', 'relaxed_order', true), "
    "set_config('hnsw.max_scan_tuples', %s, true)"
)


class Vectors:
    """The vectors of one side at one moment; of use inside the transaction of its view.

    count  items of the side        views  K, vectors an item        width  D
    exact_up_to  items that are all compared
    cache  what was read of this moment, for all views of it
    """

    def __init__(
        self,
        connection: Connection,
        side: Side,
        *,
        count: int,
        views: int,
        width: int,
        exact_up_to: int,
        cache: dict[str, Any],
    ) -> None:
        self.connection, self.side, self.count, self.views, self.width = connection, side, count, views, width
        self.exact_up_to = exact_up_to
        self._cache = cache

    @property
    def rows(self) -> int:
        """Vectors of the side."""
        return self.count * self.views

    @property
    def last_in_graph(self) -> int | None:
        """The last key that the graph contains; None where there is no graph."""
        name = f"last key in the graph of {self.side}"
        if name not in self._cache:
            self._cache[name] = last_in_graph(self.connection, self.side)
        last: int | None = self._cache[name]
        return last

    @property
    def unindexed(self) -> int:
        """Vectors that every search compares: those that came after the graph."""
        last, name = self.last_in_graph, f"unindexed {self.side}"
        if last is None:
            return self.rows
        if name not in self._cache:
            statement = sql.SQL("SELECT count(*) FROM {} WHERE {}").format(VECTORS[self.side], _after(last))
            row = self.connection.execute(statement).fetchone()
            self._cache[name] = 0 if row is None else int(row[0])
        return int(self._cache[name])

    def nearest(
        self, queries: NDArray[np.float32], *, top: int, among: NDArray[np.int64] | None = None, exact: bool = False
    ) -> list[Hits]:
        """The best `top` items of each of (Q L D) queries, or of those `among` these keys; see `View.nearest`."""
        possible = self.count if among is None else len(among)
        by_graph = not exact and possible > self.exact_up_to and self.last_in_graph is not None
        keys = None if among is None else _array(among)
        results = []
        for query in queries:
            hits = self._search(query, top, keys, by_graph=by_graph)
            if by_graph and len(hits.keys) < min(top, possible):
                hits = self._search(query, top, keys, by_graph=False)
            results.append(hits)
        return results

    def of(self, keys: NDArray[np.int64]) -> NDArray[np.float32]:
        """(N K D) vectors of items, in the order of the keys; each has to be in the index."""
        unique, positions = np.unique(keys, return_inverse=True)
        statement = sql.SQL("SELECT vector FROM {} WHERE {} ORDER BY key, view").format(VECTORS[self.side], _AMONG)
        rows = self.connection.execute(statement, (_array(unique),), binary=True).fetchall()
        if len(rows) != len(unique) * self.views:
            raise IndexError_(
                f"an index needs {self.views} vectors of each of its {self.side}; of {len(unique)} it has {len(rows)}; "
                "`subtext index verify` says what is wrong"
            )
        vectors = _stacked([vector for (vector,) in rows], self.width)
        result: NDArray[np.float32] = vectors.reshape(len(unique), self.views, self.width)[positions]
        return result

    def _search(self, query: NDArray[np.float32], top: int, keys: str | None, *, by_graph: bool) -> Hits:
        depth = top * max(1, self.views) + MARGIN
        if by_graph:
            self.connection.execute(_SETTINGS, (str(min(MAX_EF_SEARCH, max(EF_SEARCH, depth))), str(MAX_SCAN)))
        rows: list[tuple[int, Any]] = []
        for order, part in self._orders(by_graph):
            where = [*([] if keys is None else [_AMONG]), *([] if part is None else [part])]
            statement = sql.SQL("SELECT key, vector FROM {} {} ORDER BY {} LIMIT %s").format(
                VECTORS[self.side], sql.SQL("WHERE ") + sql.SQL(" AND ").join(where) if where else sql.SQL(""), order
            )
            for view in query:
                values = [] if keys is None else [keys]
                rows += self.connection.execute(statement, (*values, view, depth), binary=True).fetchall()
        if not rows:
            return Hits(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32))
        row_keys = np.array([key for key, _ in rows], dtype=np.int64)
        return Hits(*settle(query, _stacked([vector for _, vector in rows], self.width), row_keys, top))

    def _orders(self, by_graph: bool) -> list[tuple[sql.SQL, sql.Composed | None]]:
        """How rows are ordered, and which of them; None for all."""
        last = self.last_in_graph
        if not by_graph or last is None:
            return [(_EXACT, None)]
        # PostgreSQL uses the graph only where the rows are plainly among its own.
        inside = sql.SQL("key <= {}").format(sql.Literal(last))
        return [(_GRAPH, inside), *([(_EXACT, _after(last))] if self.unindexed else [])]


def last_in_graph(connection: Connection, side: Side) -> int | None:
    """The last key that the graph of a side contains; None where there is no complete graph."""
    statement = (
        "SELECT pg_catalog.pg_get_expr(i.indpred, i.indrelid) FROM pg_catalog.pg_index i "
        "JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = current_schema() AND c.relname = %s AND i.indisvalid"
    )
    row = connection.execute(statement, (graph_name(side),)).fetchone()
    if row is None:
        return None
    last = re.search(r"\d+", row[0] or "")
    return COMPLETE if last is None else int(last[0])


def build_graphs(
    connection: Connection,
    address: Address,
    changing: Callable[[], AbstractContextManager[None]],
    sides: Mapping[Side, Vectors],
) -> list[str]:
    """Build graphs of sides with more than `exact_up_to` vectors, drop others, and vacuum; what was done.

    changing  makes one change of the index

    A graph that lacks more than `LATER` of the vectors, or more than `exact_up_to`, is built again. A graph is built in
    one transaction: other writers wait for it, readers go on. How much memory the server may use for it is its own
    setting (maintenance_work_mem): a graph that fits into it is built many times faster.
    """
    large = {side: own.rows > own.exact_up_to for side, own in sides.items()}
    built = [s for s, own in sides.items() if large[s] and own.unindexed > min(own.exact_up_to, LATER * own.rows)]
    dropped = [side for side, own in sides.items() if not large[side] and own.last_in_graph is not None]
    _drop_former(connection, address)
    if built or dropped:
        with changing():
            # Building a graph takes as long as it takes.
            connection.execute("SELECT set_config('lock_timeout', '0', true)")
            for side in built + dropped:
                names = (sql.Identifier(graph_name(side)), sql.Identifier(former_name(side)))
                connection.execute(sql.SQL("ALTER INDEX IF EXISTS {} RENAME TO {}").format(*names))
            for side in built:
                _build(connection, side)
        _drop_former(connection, address)
    with translated(address):
        for table in TABLES:
            connection.execute(sql.SQL("VACUUM (ANALYZE) {}").format(sql.Identifier(table)))
    lines = [f"a graph of {side} was built" for side in built]
    lines += [f"the graph of {side} was dropped: every vector is compared" for side in dropped]
    return [*lines, "rows of deleted items are overwritten"]


def _build(connection: Connection, side: Side) -> None:
    last = connection.execute(sql.SQL("SELECT max(key) FROM {}").format(VECTORS[side])).fetchone()
    assert last is not None and last[0] is not None
    statement = sql.SQL(
        "CREATE INDEX {} ON {} USING hnsw (vector vector_ip_ops) WITH (m={}, ef_construction={}) WHERE key <= {}"
    )
    numbers = (sql.Literal(number) for number in (M, EF_CONSTRUCTION, int(last[0])))
    connection.execute(statement.format(sql.Identifier(graph_name(side)), VECTORS[side], *numbers))


def _drop_former(connection: Connection, address: Address) -> None:
    """Drop graphs that were replaced, when nobody searches them any more; nobody else has to wait for that."""
    with translated(address):
        for side in SIDES:
            statement = sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(sql.Identifier(former_name(side)))
            connection.execute(statement)


def _after(last: int) -> sql.Composed:
    """The rows that came after the graph."""
    return sql.SQL("key > {}").format(sql.Literal(last))


def _array(keys: NDArray[np.int64]) -> str:
    """Whole numbers as PostgreSQL writes an array of them."""
    return "{" + ",".join(map(str, keys.tolist())) + "}"


def _stacked(vectors: list[Any], width: int) -> NDArray[np.float32]:
    if not vectors:
        return np.zeros((0, width), dtype=np.float32)
    return np.stack([vector.to_numpy() for vector in vectors])
