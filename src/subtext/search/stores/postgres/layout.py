"""The tables of an index in PostgreSQL, and the numbered steps that upgrade an earlier layout."""

from __future__ import annotations

from psycopg import sql

from subtext.errors import IndexError_
from subtext.search.stores.item import SIDES, Side
from subtext.search.stores.postgres.address import Address
from subtext.search.stores.postgres.connection import Connection, translated

LAYOUT = 2
"""The layout that this Subtext reads and writes."""
WIDEST = 2000
"""Width up to which pgvector makes graphs of vectors."""
PLAIN = 1900
"""Width up to which a vector stays in its row: outside of it each comparison would have to fetch it."""

VECTORS: dict[Side, sql.Identifier] = {side: sql.Identifier(f"{side}_vectors") for side in SIDES}
"""Tables of vectors, one row a view of an item."""

_FIRST = """
CREATE TABLE layout (one boolean PRIMARY KEY DEFAULT true CHECK (one), version integer NOT NULL);
CREATE TABLE manifest (one boolean PRIMARY KEY DEFAULT true CHECK (one), json text NOT NULL);
CREATE TABLE state (name text PRIMARY KEY, value bigint NOT NULL);
CREATE TABLE items (
    key bigint PRIMARY KEY, side smallint NOT NULL, id text NOT NULL, folded_id text NOT NULL, path text, text text,
    metadata text NOT NULL, content bytea NOT NULL, stamp text, digest bytea NOT NULL, vectors_digest bytea NOT NULL,
    words tsvector, length integer, UNIQUE (side, id)
);
CREATE INDEX items_by_words ON items USING gin (words);
CREATE TABLE links (image text NOT NULL, text text NOT NULL, PRIMARY KEY (image, text));
CREATE INDEX links_of_texts ON links (text, image);
CREATE TABLE facets (
    key bigint NOT NULL REFERENCES items ON DELETE CASCADE, side smallint NOT NULL, name text NOT NULL,
    number numeric, word text, folded text
);
CREATE INDEX facets_of_items ON facets (key);
CREATE INDEX facets_by_number ON facets (side, name, number, key);
CREATE INDEX facets_by_word ON facets (side, name, left(word, 200), key) WHERE word IS NOT NULL;
CREATE TABLE forgotten (hash bytea PRIMARY KEY);
CREATE TABLE jobs (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, verb text NOT NULL, source text, started text NOT NULL,
    finished text, done bigint NOT NULL, total bigint NOT NULL
);
INSERT INTO layout (version) VALUES (1);
INSERT INTO state VALUES
    ('generation', 0), ('images', 0), ('texts', 0), ('key', 0), ('worded', 0), ('words', 0), ('facets', 0);
"""

_SECOND = "CREATE TABLE kept (name text PRIMARY KEY, value text NOT NULL, written timestamptz NOT NULL DEFAULT now())"

STEPS = {1: _SECOND}
"""Layout -> the statement that upgrades it to the next one. The first layout had no table of documents."""


def graph_name(side: Side) -> str:
    """Name of the HNSW index on the vectors of a side, where there are so many that one is made."""
    return f"{side}_graph"


def former_name(side: Side) -> str:
    """Name of a graph in whose place another one stands, until it is dropped."""
    return f"{side}_graph_before"


def make(connection: Connection, width: int, *, upto: int = LAYOUT) -> None:
    """Make the tables of an index for vectors of a width, inside a transaction.

    upto  the layout that is made: an earlier one only to test that it is upgraded
    """
    for statement in _FIRST.split(";\n"):
        if statement.strip():
            connection.execute(sql.SQL(statement))
    for table in VECTORS.values():
        connection.execute(
            sql.SQL(
                "CREATE TABLE {} (key bigint NOT NULL REFERENCES items ON DELETE CASCADE, view smallint NOT NULL, "
                "vector vector({}) NOT NULL, PRIMARY KEY (key, view))"
            ).format(table, sql.Literal(width))
        )
        if width <= PLAIN:
            connection.execute(sql.SQL("ALTER TABLE {} ALTER COLUMN vector SET STORAGE PLAIN").format(table))
    _upgrade(connection, upto)


def version(connection: Connection, address: Address) -> int:
    """The layout of an index. Raises IndexError_ where there is no index."""
    with translated(address):
        table = sql.Identifier(address.name, "layout")
        found = connection.execute(sql.SQL("SELECT version FROM {}").format(table)).fetchone()
    if found is None:
        raise IndexError_(f"{address} needs to say its layout, and says none; restore a backup")
    return int(found[0])


def require_layout(connection: Connection, address: Address) -> None:
    """Raise IndexError_ unless this Subtext reads the layout of the index."""
    have = version(connection, address)
    if have < LAYOUT:
        raise IndexError_(
            f"{address} has layout {have}, of an earlier Subtext; this one reads {LAYOUT}; "
            "upgrade it, once nobody uses that earlier one any more: subtext index upgrade INDEX"
        )
    if have > LAYOUT:
        raise IndexError_(f"{address} has layout {have}; this Subtext reads {LAYOUT}; use a newer Subtext")


def upgrade(connection: Connection, address: Address) -> tuple[int, int]:
    """Upgrade an index to this layout, in one transaction; the layout before and the one now.

    Others wait meanwhile. Raises IndexError_ for a layout of a newer Subtext.
    """
    with translated(address), connection.transaction():
        connection.execute("LOCK TABLE layout IN ACCESS EXCLUSIVE MODE")
        before = version(connection, address)
        if before > LAYOUT:
            require_layout(connection, address)
        _upgrade(connection, LAYOUT)
    return before, LAYOUT


def _upgrade(connection: Connection, upto: int) -> None:
    found = connection.execute("SELECT version FROM layout").fetchone()
    assert found is not None
    for number in range(int(found[0]), upto):
        connection.execute(sql.SQL(STEPS[number]))
        connection.execute("UPDATE layout SET version = %s", (number + 1,))
