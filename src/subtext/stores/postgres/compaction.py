"""Compaction: graphs where a side is large, none where it is not, and rows that were deleted overwritten."""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import sql

from subtext.stores.item import SIDES, Side
from subtext.stores.postgres.connection import told
from subtext.stores.postgres.layout import VECTORS, graph_name
from subtext.stores.postgres.shelf import has_graph
from subtext.stores.postgres.writer import Writer

LINKS, CANDIDATES = 16, 64
"""Of the graph: neighbours of a row (m), and rows looked at to choose them (ef_construction); pgvector's own."""
TABLES = ("items", "links", "facets", "images_vectors", "texts_vectors", "jobs", "forgotten", "kept", "state")


@dataclass(frozen=True)
class Prepared:
    """What a compaction did: sides whose graph was made, and sides whose graph went, as few items are left."""

    made: tuple[Side, ...]
    removed: tuple[Side, ...]


def compact(writer: Writer) -> Prepared:
    """Make graphs of sides with more than `exact_up_to` vectors, remove others, and give deleted rows' space back.

    A graph is made in one transaction: other writers wait for it, readers go on. How much memory the server may take
    for it is its own setting (maintenance_work_mem): a graph that fits into it is made many times sooner.
    """
    made = tuple(side for side in SIDES if _wants(writer, side) and not has_graph(writer.connection, side))
    removed = tuple(side for side in SIDES if not _wants(writer, side) and has_graph(writer.connection, side))
    if made or removed:
        with writer.changing():
            # A build of a graph takes what time it takes.
            writer.connection.execute("SELECT set_config('lock_timeout', '0', true)")
            for side in made:
                writer.connection.execute(
                    sql.SQL(
                        "CREATE INDEX {} ON {} USING hnsw (vector vector_ip_ops) WITH (m={}, ef_construction={})"
                    ).format(
                        sql.Identifier(graph_name(side)), VECTORS[side], sql.Literal(LINKS), sql.Literal(CANDIDATES)
                    )
                )
            for side in removed:
                writer.connection.execute(sql.SQL("DROP INDEX {}").format(sql.Identifier(graph_name(side))))
    with told(writer.address):
        for table in TABLES:
            writer.connection.execute(sql.SQL("VACUUM (ANALYZE) {}").format(sql.Identifier(table)))
    return Prepared(made, removed)


def _wants(writer: Writer, side: Side) -> bool:
    return writer.shelf(side).rows > writer.manifest.exact_up_to
