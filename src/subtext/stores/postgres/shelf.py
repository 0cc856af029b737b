"""The vectors of one side of an index in PostgreSQL at one moment, and the nearest of them: exactly, or by a graph.

Up to a number of items (`Manifest.exact_up_to`), and for filters that leave no more than that, all vectors are
compared. Beyond it pgvector's HNSW graph is walked, with a filter for as long as it takes to find enough (iterative
scan). Either way the best rows come here, where scores are summed again in float64: they are those of a folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from subtext.errors import IndexError_
from subtext.index.rows import settle
from subtext.stores.item import SIDES, Side
from subtext.stores.postgres.connection import Connection
from subtext.stores.postgres.layout import VECTORS, graph_name
from subtext.stores.shelf import MARGIN, Found, some_of

LOOKED_AT = 200
"""Rows that a walk of the graph keeps in view (hnsw.ef_search): more find more, and take longer."""
MOST = 1000
"""As many as pgvector allows."""
FURTHER = 100_000
"""Rows that a walk with a filter looks at, at most, before all that fulfil it are compared."""

# A sum is no longer what the graph is ordered by: PostgreSQL then compares every row.
_EXACT = sql.SQL("(vector <#> %s) + 0.0")
_WALK = sql.SQL("vector <#> %s")
_AMONG = sql.SQL("WHERE key = ANY(%s::bigint[])")
_SETTINGS = (
    "SELECT set_config('hnsw.ef_search', %s, true), set_config('hnsw.iterative_scan', 'relaxed_order', true), "
    "set_config('hnsw.max_scan_tuples', %s, true)"
)


@dataclass(frozen=True)
class Shelf:
    """The vectors of one side at one moment; of use inside the transaction of its view.

    count        items that are there       views  K, vectors an item       width  D
    exact_up_to  items that are all compared
    kept         what was read of this moment and side, for all who look at it
    """

    connection: Connection
    side: Side
    count: int
    views: int
    width: int
    exact_up_to: int
    kept: dict[str, Any]

    @property
    def rows(self) -> int:
        """Vectors that lie there."""
        return self.count * self.views

    @property
    def graph(self) -> bool:
        """Whether there is a graph to walk."""
        if "graph" not in self.kept:
            self.kept["graph"] = has_graph(self.connection, self.side)
        return bool(self.kept["graph"])

    @property
    def loose(self) -> int:
        """Vectors that every search compares."""
        return 0 if self.graph else self.rows

    def nearest(
        self, queries: NDArray[np.float32], *, top: int, among: NDArray[np.int64] | None = None, exact: bool = False
    ) -> list[Found]:
        """The best `top` items of each of (Q L D) queries, or of those `among` these keys.

        exact  compares all vectors, however many there are

        Never fewer than `top` while there are as many: where the graph does not give them, all vectors are compared.
        """
        possible = self.count if among is None else len(among)
        walked = not exact and possible > self.exact_up_to and self.graph
        listed = None if among is None else _array(among)
        found = []
        for query in queries:
            settled = self._settled(query, top, listed, walked=walked)
            if walked and len(settled.keys) < min(top, possible):
                settled = self._settled(query, top, listed, walked=False)
            found.append(settled)
        return found

    def vectors_of(self, keys: NDArray[np.int64]) -> NDArray[np.float32]:
        """(N K D) vectors of items, in the order of the keys; each has to be there."""
        wanted, place = np.unique(keys, return_inverse=True)
        statement = sql.SQL("SELECT vector FROM {} {} ORDER BY key, view").format(VECTORS[self.side], _AMONG)
        rows = self.connection.execute(statement, (_array(wanted),), binary=True).fetchall()
        if len(rows) != len(wanted) * self.views:
            raise IndexError_(
                f"an index needs {self.views} vectors of each of its {self.side}; of {len(wanted)} it has {len(rows)}; "
                "`subtext index verify` says what is wrong"
            )
        vectors = _stacked([vector for (vector,) in rows], self.width)
        found: NDArray[np.float32] = vectors.reshape(len(wanted), self.views, self.width)[place]
        return found

    @property
    def live(self) -> NDArray[np.int64]:
        """The keys of all items that are there, ascending. Cost a read of all keys, once at each moment."""
        if "live" not in self.kept:
            statement = "SELECT string_agg(key::text, ',' ORDER BY key) FROM items WHERE side = %s"
            row = self.connection.execute(statement, (SIDES.index(self.side),)).fetchone()
            self.kept["live"] = numbers(None if row is None else row[0])
        found: NDArray[np.int64] = self.kept["live"]
        return found

    def up_to(self, key: int) -> int:
        """How many items have this key or a smaller one."""
        if f"up to {key}" not in self.kept:
            statement = "SELECT count(*) FROM items WHERE side = %s AND key <= %s"
            row = self.connection.execute(statement, (SIDES.index(self.side), key)).fetchone()
            self.kept[f"up to {key}"] = 0 if row is None else int(row[0])
        return int(self.kept[f"up to {key}"])

    def drawn(self, count: int, *, seed: int = 0) -> NDArray[np.int64]:
        """At most `count` keys of items that are there, ascending; the same as of a folder with these keys."""
        return some_of(self.live, count, seed=seed)

    def _settled(self, query: NDArray[np.float32], top: int, listed: str | None, *, walked: bool) -> Found:
        wanted = top * max(1, self.views) + MARGIN
        if walked:
            seen = str(min(MOST, max(LOOKED_AT, wanted)))
            self.connection.execute(_SETTINGS, (seen, str(FURTHER)))
        statement = sql.SQL("SELECT key, vector FROM {} {} ORDER BY {} LIMIT %s").format(
            VECTORS[self.side], sql.SQL("") if listed is None else _AMONG, _WALK if walked else _EXACT
        )
        chosen = [] if listed is None else [listed]
        rows: list[tuple[int, Any]] = []
        for view in query:
            rows += self.connection.execute(statement, (*chosen, view, wanted), binary=True).fetchall()
        if not rows:
            return Found(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32))
        keys = np.array([key for key, _ in rows], dtype=np.int64)
        return Found(*settle(query, _stacked([vector for _, vector in rows], self.width), keys, top))


def has_graph(connection: Connection, side: Side) -> bool:
    """Whether a side has a graph that can be walked."""
    statement = (
        "SELECT i.indisvalid FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = current_schema() AND c.relname = %s"
    )
    row = connection.execute(statement, (graph_name(side),)).fetchone()
    return row is not None and bool(row[0])


def numbers(listed: str | None) -> NDArray[np.int64]:
    """Whole numbers that PostgreSQL gave as one text: many of them come sooner so.

    >>> numbers("3,4").tolist(), numbers(None).tolist()
    ([3, 4], [])
    """
    return np.zeros(0, dtype=np.int64) if not listed else np.fromstring(listed, dtype=np.int64, sep=",")


def _array(keys: NDArray[np.int64]) -> str:
    """Whole numbers as PostgreSQL writes an array of them."""
    return "{" + ",".join(map(str, keys.tolist())) + "}"


def _stacked(vectors: list[Any], width: int) -> NDArray[np.float32]:
    if not vectors:
        return np.zeros((0, width), dtype=np.float32)
    return np.stack([vector.to_numpy() for vector in vectors])
