"""Damage of an index in PostgreSQL: vectors against their digests, facets and words against the items, and graphs."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import numpy as np
from psycopg import sql

from subtext.errors import counted
from subtext.search.stores.item import SIDES, Side
from subtext.search.stores.postgres.database import DatabaseView, facet_rows, vectors_digest
from subtext.search.stores.postgres.layout import VECTORS, former_name, graph_name
from subtext.search.stores.postgres.words import as_vector, words
from subtext.search.stores.store import Problem, listed

AT_ONCE = 2000
"""Rows that are read together."""


def check(view: DatabaseView) -> list[Problem]:
    """Damage that only the database can see; empty for an intact index.

    Reads every row and every vector once. Bytes under the rows are PostgreSQL's own to check (data checksums,
    pg_amcheck).
    """
    problems = [problem for side in SIDES for problem in _vectors(view, side)]
    for part in (_facets, _words, _graphs):
        problems += part(view)
    return problems


def _vectors(view: DatabaseView, side: Side) -> Iterator[Problem]:
    """Whether each item has its vectors, and these are those that were put in."""
    views, missing, damaged = view.sides[side].views, list[str](), list[str]()
    statement = sql.SQL(
        "SELECT i.id, i.vectors_digest, array_agg(v.vector ORDER BY v.view) FILTER (WHERE v.vector IS NOT NULL) "
        "FROM items i LEFT JOIN {} v ON v.key = i.key WHERE i.side = %s GROUP BY i.key"
    ).format(VECTORS[side])
    with view.connection.cursor(f"vectors_of_{side}", binary=True) as cursor:
        cursor.itersize = AT_ONCE
        for name, digest, vectors in cursor.execute(statement, (SIDES.index(side),)):
            if len(vectors or ()) != views:
                missing.append(repr(name))
            elif vectors_digest(np.stack([vector.to_numpy() for vector in vectors])) != digest:
                damaged.append(repr(name))
    if missing:
        yield Problem(f"{side}_vectors", f"{counted(len(missing), 'item')} without {views} vectors: {listed(missing)}")
    if damaged:
        yield Problem(
            f"{side}_vectors", f"{counted(len(damaged), 'item')} with changed or damaged vectors: {listed(damaged)}"
        )


def _facets(view: DatabaseView) -> Iterator[Problem]:
    """What is filtered by, against the metadata."""
    wrong: list[str] = []
    statement = (
        "SELECT i.id, i.side, i.key, i.metadata, coalesce(f.own, '{}') FROM items i LEFT JOIN (SELECT key, "
        "array_agg(concat_ws('|', side, name, number, word, folded)) AS own FROM facets GROUP BY key) f "
        "ON f.key = i.key"
    )
    total = 0
    with view.connection.cursor("facets_of_items") as cursor:
        cursor.itersize = AT_ONCE
        for name, side, key, metadata, own in cursor.execute(statement):
            total += len(own)
            expected = [
                "|".join(
                    format(part, "f") if isinstance(part, Decimal) else str(part)
                    for part in row[1:]
                    if part is not None
                )
                for row in facet_rows(side, key, metadata)
            ]
            if sorted(expected) != sorted(own):
                wrong.append(repr(name))
    if wrong:
        yield Problem(
            "facets",
            f"what {counted(len(wrong), 'item')} can be filtered by differs from the metadata: {listed(wrong)}",
        )
    if total != view.tables.state("facets"):
        yield Problem("facets", f"has {total:,} of {view.tables.state('facets'):,} rows")


def _words(view: DatabaseView) -> Iterator[Problem]:
    """The words that texts are found by, against the texts."""
    wrong: list[str] = []
    differing = (
        "SELECT i.id FROM unnest(%s::bigint[], %s::text[], %s::integer[]) AS w(key, words, length) "
        "JOIN items i ON i.key = w.key WHERE i.words IS DISTINCT FROM w.words::tsvector "
        "OR i.length IS DISTINCT FROM w.length"
    )
    with view.connection.cursor("words_of_texts") as cursor:
        cursor.execute("SELECT key, text FROM items WHERE text IS NOT NULL")
        while rows := cursor.fetchmany(AT_ONCE):
            texts = [words(text) for _, text in rows]
            values = ([key for key, _ in rows], [as_vector(own) for own in texts], [len(own) for own in texts])
            wrong += [repr(name) for (name,) in view.connection.execute(differing, values)]
    if wrong:
        yield Problem(
            "items",
            f"the words of {counted(len(wrong), 'text')} differ from the texts: {listed(wrong)}",
        )


def _graphs(view: DatabaseView) -> Iterator[Problem]:
    """Whether PostgreSQL calls the indexes of the schema whole."""
    statement = (
        "SELECT c.relname FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = current_schema() "
        "AND NOT i.indisvalid"
    )
    graphs = {named(side) for side in SIDES for named in (graph_name, former_name)}
    for (name,) in view.connection.execute(statement):
        advice = "compact the index" if name in graphs else "REINDEX it"
        yield Problem(name, f"is not whole, as its making was cut off; {advice}")
