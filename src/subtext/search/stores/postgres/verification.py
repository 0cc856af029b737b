"""Whether an index in PostgreSQL is whole: every row of items, every vector, and that they belong together."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import numpy as np
from psycopg import sql

from subtext.errors import IndexError_, counted
from subtext.search.stores.item import SIDES, Side, item_digest
from subtext.search.stores.postgres import rows
from subtext.search.stores.postgres.database import Database
from subtext.search.stores.postgres.layout import VECTORS, former_name, graph_name
from subtext.search.stores.postgres.view import View
from subtext.search.stores.postgres.words import as_vector, words
from subtext.search.stores.verification import Problem, some

AT_ONCE = 2000
"""Rows that are read together."""


def verify(database: Database) -> list[Problem]:
    """Everything that is wrong with an index; empty for a whole one.

    Reads every row and every vector once, as of one moment, while it is read and written. Bytes under the rows are
    PostgreSQL's own to check (data checksums, pg_amcheck).
    """
    found: list[Problem] = []
    with database.reading() as view:
        for side in SIDES:
            found += _items(view, side)
            found += _vectors(view, side)
        found += _facets(view)
        found += _words(view)
        found += _graphs(view)
    try:
        database.calibration()
    except IndexError_ as problem:
        found.append(Problem("kept", str(problem)))
    return found


def _items(view: View, side: Side) -> Iterator[Problem]:
    """Each item against its digest, and their number."""
    bad: list[str] = []
    total = 0
    statement = "SELECT digest, key, side, id, path, text, metadata, content, stamp FROM items WHERE side = %s"
    with view.connection.cursor(f"items_of_{side}") as cursor:
        cursor.itersize = AT_ONCE
        for digest, *columns in cursor.execute(statement, (SIDES.index(side),)):
            total += 1
            if item_digest(tuple(columns)) != digest:
                bad.append(repr(columns[2]))
    if bad:
        yield Problem("items", f"{counted(len(bad), 'item')} of {side} changed or damaged: {some(bad)}")
    if total != view.counts[side]:
        yield Problem("items", f"has {total:,} of {view.counts[side]:,} {side}")


def _vectors(view: View, side: Side) -> Iterator[Problem]:
    """Whether each item has its vectors, and these are those that were put in."""
    views, lack, bad = view.shelves[side].views, list[str](), list[str]()
    statement = sql.SQL(
        "SELECT i.id, i.vectors_digest, array_agg(v.vector ORDER BY v.view) FILTER (WHERE v.vector IS NOT NULL) "
        "FROM items i LEFT JOIN {} v ON v.key = i.key WHERE i.side = %s GROUP BY i.key"
    ).format(VECTORS[side])
    with view.connection.cursor(f"vectors_of_{side}", binary=True) as cursor:
        cursor.itersize = AT_ONCE
        for name, digest, vectors in cursor.execute(statement, (SIDES.index(side),)):
            if len(vectors or ()) != views:
                lack.append(repr(name))
            elif rows.vectors_digest(np.stack([vector.to_numpy() for vector in vectors])) != digest:
                bad.append(repr(name))
    if lack:
        yield Problem(f"{side}_vectors", f"{counted(len(lack), 'item')} without {views} vectors: {some(lack)}")
    if bad:
        yield Problem(f"{side}_vectors", f"{counted(len(bad), 'item')} with changed or damaged vectors: {some(bad)}")


def _facets(view: View) -> Iterator[Problem]:
    """What is filtered by, against the metadata."""
    bad: list[str] = []
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
            wanted = [
                "|".join(
                    format(part, "f") if isinstance(part, Decimal) else str(part)
                    for part in row[1:]
                    if part is not None
                )
                for row in rows.facet_rows(side, key, metadata)
            ]
            if sorted(wanted) != sorted(own):
                bad.append(repr(name))
    if bad:
        yield Problem(
            "facets", f"what {counted(len(bad), 'item')} can be filtered by differs from the metadata: {some(bad)}"
        )
    if total != rows.state(view.connection, "facets"):
        yield Problem("facets", f"has {total:,} of {rows.state(view.connection, 'facets'):,} rows")


def _words(view: View) -> Iterator[Problem]:
    """The words that texts are found by, against the texts."""
    bad: list[str] = []
    differing = (
        "SELECT i.id FROM unnest(%s::bigint[], %s::text[], %s::integer[]) AS w(key, words, length) "
        "JOIN items i ON i.key = w.key WHERE i.words IS DISTINCT FROM w.words::tsvector "
        "OR i.length IS DISTINCT FROM w.length"
    )
    with view.connection.cursor("words_of_texts") as cursor:
        cursor.execute("SELECT key, text FROM items WHERE text IS NOT NULL")
        while found := cursor.fetchmany(AT_ONCE):
            said = [words(text) for _, text in found]
            values = ([key for key, _ in found], [as_vector(own) for own in said], [len(own) for own in said])
            bad += [repr(name) for (name,) in view.connection.execute(differing, values)]
    if bad:
        yield Problem("items", f"the words of {counted(len(bad), 'text')} differ from the texts: {some(bad)}")


def _graphs(view: View) -> Iterator[Problem]:
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
