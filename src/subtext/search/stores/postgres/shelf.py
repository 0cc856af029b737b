"""The vectors of one side of an index in PostgreSQL at one moment, and the nearest of them: exactly, or by a graph.

Up to a number of items (`Manifest.exact_up_to`), and for filters that leave no more than that, all vectors are
compared. Beyond it pgvector's HNSW graph is walked, with a filter for as long as it takes to find enough (iterative
scan). Either way the best rows come here, where scores are summed again in float64: they are those of a folder.

A graph has the rows up to some key, and is not changed by what comes later: to link one in (its walk, and the choice of
neighbours anew for each of its own) costs the server eight times what it costs when a graph is made. Later rows are all
compared, until `compaction` makes the graph anew.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from subtext.errors import IndexError_
from subtext.search.ann.rows import settle
from subtext.search.stores.item import SIDES, Side
from subtext.search.stores.postgres.connection import Connection
from subtext.search.stores.postgres.layout import VECTORS, graph_name
from subtext.search.stores.shelf import MARGIN, Found, some_of

LOOKED_AT = 200
"""Rows that a walk of the graph keeps in view (hnsw.ef_search): more find more, and take longer."""
MOST = 1000
"""As many as pgvector allows."""
WHOLE = 2**63 - 1
"""The last key of a graph that has all rows and takes in what comes, as an earlier Subtext made it."""
FURTHER = 100_000
"""Rows that a walk with a filter looks at, at most, before all that fulfil it are compared."""

# A sum is no longer what the graph is ordered by: PostgreSQL then compares every row.
_EXACT = sql.SQL("(vector <#> %s) + 0.0")
_WALK = sql.SQL("vector <#> %s")
_AMONG = sql.SQL("key = ANY(%s::bigint[])")
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
    def linked(self) -> int | None:
        """The last key that the graph has; None where there is no graph to walk."""
        if "linked" not in self.kept:
            self.kept["linked"] = linked_up_to(self.connection, self.side)
        found: int | None = self.kept["linked"]
        return found

    @property
    def graph(self) -> bool:
        """Whether there is a graph to walk."""
        return self.linked is not None

    @property
    def loose(self) -> int:
        """Vectors that every search compares: those that came after the graph."""
        if self.linked is None:
            return self.rows
        if "loose" not in self.kept:
            statement = sql.SQL("SELECT count(*) FROM {} WHERE {}").format(VECTORS[self.side], _after(self.linked))
            row = self.connection.execute(statement).fetchone()
            self.kept["loose"] = 0 if row is None else int(row[0])
        return int(self.kept["loose"])

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
        statement = sql.SQL("SELECT vector FROM {} WHERE {} ORDER BY key, view").format(VECTORS[self.side], _AMONG)
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
        rows: list[tuple[int, Any]] = []
        for way, part in self._ways(walked):
            where = [*([] if listed is None else [_AMONG]), *([] if part is None else [part])]
            statement = sql.SQL("SELECT key, vector FROM {} {} ORDER BY {} LIMIT %s").format(
                VECTORS[self.side], sql.SQL("WHERE ") + sql.SQL(" AND ").join(where) if where else sql.SQL(""), way
            )
            for view in query:
                chosen = [] if listed is None else [listed]
                rows += self.connection.execute(statement, (*chosen, view, wanted), binary=True).fetchall()
        if not rows:
            return Found(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32))
        keys = np.array([key for key, _ in rows], dtype=np.int64)
        return Found(*settle(query, _stacked([vector for _, vector in rows], self.width), keys, top))

    def _ways(self, walked: bool) -> list[tuple[sql.SQL, sql.Composed | None]]:
        """How rows are put in order, and which of them; None for all."""
        if not walked or self.linked is None:
            return [(_EXACT, None)]
        # The graph is of use where the rows asked for are plainly among its own.
        own = sql.SQL("key <= {}").format(sql.Literal(self.linked))
        return [(_WALK, own), *([(_EXACT, _after(self.linked))] if self.loose else [])]


def linked_up_to(connection: Connection, side: Side) -> int | None:
    """The last key that the graph of a side has; None where there is no graph that can be walked."""
    statement = (
        "SELECT pg_catalog.pg_get_expr(i.indpred, i.indrelid) FROM pg_catalog.pg_index i "
        "JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = current_schema() AND c.relname = %s AND i.indisvalid"
    )
    row = connection.execute(statement, (graph_name(side),)).fetchone()
    if row is None:
        return None
    last = re.search(r"\d+", row[0] or "")
    return WHOLE if last is None else int(last[0])


def _after(linked: int) -> sql.Composed:
    """The rows that came after the graph."""
    return sql.SQL("key > {}").format(sql.Literal(linked))


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
