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
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.errors import IndexError_
from subtext.search.ann import settle
from subtext.search.stores.item import Hits, Side
from subtext.search.stores.manifest import Manifest
from subtext.search.stores.postgres.connection import PostgresTables
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
            return Hits(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32))
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
