"""Rows of the tables as they are put in, changed and taken out, inside the writer's transaction."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from subtext.search.stores.item import SIDES, Entry, Side, facet_sum, facets
from subtext.search.stores.tables import state
from subtext.search.stores.traces import trace_name

ROUND = 2**62
"""What sums of facets and links are taken modulo: SQLite holds 64 bits."""


@dataclass(frozen=True)
class Known:
    """What is known of an item that is there: enough to see whether it has changed."""

    key: int
    content: bytes
    stamp: str | None
    path: str | None
    digest: bytes


def known(connection: sqlite3.Connection, side: Side, ids: Sequence[str]) -> dict[str, Known]:
    """Those of these ids that are there."""
    sql = "SELECT key, content, stamp, path, digest FROM items WHERE side = ? AND id = ?"
    number = SIDES.index(side)
    found = {name: connection.execute(sql, (number, name)).fetchone() for name in ids}
    return {name: Known(*row) for name, row in found.items() if row is not None}


def put(connection: sqlite3.Connection, side: Side, keys: Sequence[int], entries: Sequence[Entry]) -> None:
    """Put new items in."""
    number, total = SIDES.index(side), 0
    for key, entry in zip(keys, entries, strict=True):
        row = (key, number, entry.id, entry.path, entry.text, entry.metadata_json, entry.content, entry.stamp)
        connection.execute("INSERT INTO items VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*row, entry.digest(number, key)))
        total += _add_facets(connection, number, key, entry)
        if entry.text is not None:
            connection.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (key, entry.text))
    _count(connection, "facets", total)
    connection.execute("UPDATE state SET value = value + ? WHERE name = ?", (len(entries), side))


def amend(connection: sqlite3.Connection, side: Side, keys: Sequence[int], entries: Sequence[Entry]) -> None:
    """Change what is known of items whose vectors stay."""
    number, total = SIDES.index(side), 0
    for key, entry in zip(keys, entries, strict=True):
        total -= _drop_facets(connection, number, key)
        connection.execute(
            "UPDATE items SET path = ?, text = ?, metadata = ?, content = ?, stamp = ?, digest = ? WHERE key = ?",
            (entry.path, entry.text, entry.metadata_json, entry.content, entry.stamp, entry.digest(number, key), key),
        )
        total += _add_facets(connection, number, key, entry)
        connection.execute("DELETE FROM words WHERE rowid = ?", (key,))
        if entry.text is not None:
            connection.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (key, entry.text))
    _count(connection, "facets", total)


def take_out(connection: sqlite3.Connection, side: Side, keys: Iterable[int]) -> int:
    """Take items out: their row, words and facets; links stay, for one that is put in again. Gives how many."""
    number, total, count = SIDES.index(side), 0, 0
    for key in keys:
        total -= _drop_facets(connection, number, key)
        connection.execute("DELETE FROM words WHERE rowid = ?", (key,))
        count += connection.execute("DELETE FROM items WHERE key = ?", (key,)).rowcount
    _count(connection, "facets", total)
    connection.execute("UPDATE state SET value = value - ? WHERE name = ?", (count, side))
    return count


def forget(connection: sqlite3.Connection, side: Side, keys: Sequence[int], *, remember: bool) -> int:
    """Take items out for good: their links as well; what they leave elsewhere is noted, to be removed.

    remember  keeps a hash of each, so that a source which still has it does not bring it back unasked
    """
    number = SIDES.index(side)
    rows = [connection.execute("SELECT id, path FROM items WHERE key = ?", (key,)).fetchone() for key in keys]
    count = take_out(connection, side, keys)
    for name, path in rows:
        unlink(connection, side, name)
        if remember:
            connection.execute("INSERT OR IGNORE INTO forgotten VALUES (?)", (forgotten_hash(side, name),))
        told = json.dumps([name] if path is None else [name, path], ensure_ascii=False)
        connection.execute("INSERT OR REPLACE INTO traces VALUES (?, ?)", (trace_name(SIDES[number], name), told))
    return count


def link(connection: sqlite3.Connection, pairs: Iterable[tuple[str, str]]) -> int:
    """Join pictures and texts, by id, of which both are there; gives how many were not joined before."""
    sql = (
        "INSERT OR IGNORE INTO links SELECT :image, :text WHERE EXISTS (SELECT 1 FROM items WHERE side = 0 AND "
        "id = :image) AND EXISTS (SELECT 1 FROM items WHERE side = 1 AND id = :text)"
    )
    total = count = 0
    for image, text in pairs:
        if connection.execute(sql, {"image": image, "text": text}).rowcount:
            total += link_sum(image, text)
            count += 1
    _count(connection, "links", total)
    return count


def unlink(connection: sqlite3.Connection, side: Side, name: str, *, but: Sequence[str] = ()) -> int:
    """Take away the links of an item, but for those to the items named; gives how many."""
    own, other = ("image", "text") if side == "images" else ("text", "image")
    found = connection.execute(f"SELECT image, text, {other} FROM links WHERE {own} = ?", (name,)).fetchall()
    gone = [(image, text) for image, text, partner in found if partner not in but]
    for image, text in gone:
        connection.execute("DELETE FROM links WHERE image = ? AND text = ?", (image, text))
    _count(connection, "links", -sum(link_sum(image, text) for image, text in gone))
    return len(gone)


def orphans(connection: sqlite3.Connection, images: Sequence[int]) -> list[int]:
    """Keys of the texts that have no picture but these: they go with them."""
    connection.execute("CREATE TEMP TABLE IF NOT EXISTS gone (id TEXT PRIMARY KEY)")
    connection.execute("DELETE FROM gone")
    connection.executemany("INSERT INTO gone SELECT id FROM items WHERE key = ?", [(key,) for key in images])
    sql = (
        "SELECT DISTINCT t.key FROM gone CROSS JOIN links l ON l.image = gone.id "
        "CROSS JOIN items t ON t.side = 1 AND t.id = l.text WHERE NOT EXISTS "
        "(SELECT 1 FROM links m WHERE m.text = l.text AND m.image NOT IN (SELECT id FROM gone))"
    )
    return [int(key) for (key,) in connection.execute(sql).fetchall()]


def forgotten_hash(side: Side, name: str) -> bytes:
    """What is kept of an item that was deleted."""
    return hashlib.blake2b(f"{side}/{name}".encode("utf-8", "surrogatepass"), digest_size=16).digest()


def link_sum(image: str, text: str) -> int:
    """A number of a link, whose sum over all of them tells whether any is missing."""
    told = json.dumps([image, text]).encode()
    return int.from_bytes(hashlib.blake2b(told, digest_size=7).digest(), "little")


def _add_facets(connection: sqlite3.Connection, side: int, key: int, entry: Entry) -> int:
    found = facets(json.loads(entry.metadata_json))
    rows = [(side, name, value, key) for name, value in found]
    connection.executemany("INSERT INTO facets VALUES (?, ?, ?, ?)", rows)
    return sum(facet_sum(facet, side, key) for facet in found)


def _drop_facets(connection: sqlite3.Connection, side: int, key: int) -> int:
    metadata = connection.execute("SELECT metadata FROM items WHERE key = ?", (key,)).fetchone()
    found = facets(json.loads(metadata[0])) if metadata is not None else set()
    for name, value in found:
        connection.execute(
            "DELETE FROM facets WHERE side = ? AND name = ? AND value = ? AND key = ?", (side, name, value, key)
        )
    return sum(facet_sum(facet, side, key) for facet in found)


def _count(connection: sqlite3.Connection, name: str, more: int) -> None:
    if more:
        total = (state(connection, name) + more) % ROUND
        connection.execute("UPDATE state SET value = ? WHERE name = ?", (total, name))
