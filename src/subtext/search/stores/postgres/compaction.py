"""Compaction: graphs where a side is large, none where it is not, and rows that were deleted overwritten."""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import sql

from subtext.search.stores.item import SIDES, Side
from subtext.search.stores.postgres.connection import told
from subtext.search.stores.postgres.layout import VECTORS, former_name, graph_name
from subtext.search.stores.postgres.shelf import Shelf
from subtext.search.stores.postgres.writer import Writer

LINKS, CANDIDATES = 16, 64
"""Of the graph: neighbours of a row (m), and rows looked at to choose them (ef_construction); pgvector's own."""
LATER = 0.1
"""Share of the vectors that may have come after the graph, before it is made anew."""
TABLES = ("items", "links", "facets", "images_vectors", "texts_vectors", "jobs", "forgotten", "kept", "state")


@dataclass(frozen=True)
class Prepared:
    """What a compaction did: sides whose graph was made, and sides whose graph went, as few items are left."""

    made: tuple[Side, ...]
    removed: tuple[Side, ...]


def compact(writer: Writer) -> Prepared:
    """Make graphs of sides with more than `exact_up_to` vectors, remove others, and give deleted rows' space back.

    A graph that lacks more than `LATER` of the vectors, or more than `exact_up_to`, is made anew: what came after it is
    compared one by one until then.

    A graph is made in one transaction: other writers wait for it, readers go on. How much memory the server may take
    for it is its own setting (maintenance_work_mem): a graph that fits into it is made many times sooner.
    """
    shelves = {side: writer.shelf(side) for side in SIDES}
    made = tuple(side for side, shelf in shelves.items() if _wants(shelf) and _lacks(shelf))
    removed = tuple(side for side, shelf in shelves.items() if not _wants(shelf) and shelf.graph)
    _drop_former(writer)
    if made or removed:
        with writer.changing():
            # A build of a graph takes what time it takes.
            writer.connection.execute("SELECT set_config('lock_timeout', '0', true)")
            for side in made + removed:
                names = (sql.Identifier(graph_name(side)), sql.Identifier(former_name(side)))
                writer.connection.execute(sql.SQL("ALTER INDEX IF EXISTS {} RENAME TO {}").format(*names))
            for side in made:
                _make(writer, side)
        _drop_former(writer)
    with told(writer.address):
        for table in TABLES:
            writer.connection.execute(sql.SQL("VACUUM (ANALYZE) {}").format(sql.Identifier(table)))
    return Prepared(made, removed)


def _wants(shelf: Shelf) -> bool:
    return shelf.rows > shelf.exact_up_to


def _lacks(shelf: Shelf) -> bool:
    return shelf.loose > min(shelf.exact_up_to, LATER * shelf.rows)


def _make(writer: Writer, side: Side) -> None:
    """A graph of the vectors that are there: those of later keys are not its own."""
    last = writer.connection.execute(sql.SQL("SELECT max(key) FROM {}").format(VECTORS[side])).fetchone()
    assert last is not None and last[0] is not None
    statement = sql.SQL(
        "CREATE INDEX {} ON {} USING hnsw (vector vector_ip_ops) WITH (m={}, ef_construction={}) WHERE key <= {}"
    )
    given = (sql.Literal(number) for number in (LINKS, CANDIDATES, int(last[0])))
    writer.connection.execute(statement.format(sql.Identifier(graph_name(side)), VECTORS[side], *given))


def _drop_former(writer: Writer) -> None:
    """Drop graphs in whose place others stand, when nobody walks them any more; nobody else has to wait for that."""
    with told(writer.address):
        for side in SIDES:
            statement = sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(sql.Identifier(former_name(side)))
            writer.connection.execute(statement)
