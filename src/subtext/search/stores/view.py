"""An index as it was at one moment: what a reader sees, however much a writer changes meanwhile."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subtext.search.stores.condition import ID, TEXT, Condition, require_fields
from subtext.search.stores.item import DATE, SIDES, Entry, Item, Side
from subtext.search.stores.journal import Job, jobs
from subtext.search.stores.shelf import Shelf
from subtext.search.stores.values import Value, Values

AT_ONCE = 500
"""Items that one statement names."""


@dataclass(frozen=True)
class View:
    """Items and vectors at one moment; of use inside the `with` that gave it.

    generation  how many changes had been made
    shelves     the vectors of "images" and of "texts"
    """

    connection: sqlite3.Connection
    generation: int
    shelves: dict[Side, Shelf]

    @property
    def counts(self) -> dict[str, int]:
        """Items of each side."""
        sql = "SELECT name, value FROM state WHERE name IN ('images', 'texts')"
        return {str(name): int(value) for name, value in self.connection.execute(sql)}

    def matching(self, side: Side, where: Sequence[Condition]) -> NDArray[np.int64]:
        """The keys of all items that fulfil every condition, ascending.

        Raises RequirementError when no item of that side has a field that is asked for.
        """
        if {condition.field for condition in where} - {TEXT, ID}:
            require_fields(side, where, self.fields(side))
        return self.fulfilling(side, where)

    def fulfilling(self, side: Side, where: Sequence[Condition]) -> NDArray[np.int64]:
        """The same, where a field that no item has is one that none fulfils anything by."""
        number = SIDES.index(side)
        parts = [condition.keys(number) for condition in where] or [("SELECT key FROM items WHERE side = ?", [number])]
        sql = " INTERSECT ".join(f"SELECT * FROM ({one})" for one, _ in parts) if len(parts) > 1 else parts[0][0]
        listed = self.connection.execute(
            f"SELECT group_concat(key) FROM ({sql})", [value for _, values in parts for value in values]
        ).fetchone()[0]
        found = np.zeros(0, dtype=np.int64) if listed is None else np.fromstring(str(listed), dtype=np.int64, sep=",")
        found.sort()
        return found

    def items(self, side: Side, keys: Sequence[int] | NDArray[np.int64]) -> list[Item]:
        """The items of these keys, in their order. Raises KeyError for one that is not there."""
        number = SIDES.index(side)
        rows: dict[int, tuple[str, str | None, str | None, str]] = {}
        linked: dict[int, list[str]] = {}
        wanted = [int(key) for key in keys]
        for start in range(0, len(wanted), AT_ONCE):
            some = wanted[start : start + AT_ONCE]
            holders = ", ".join("?" * len(some))
            sql = f"SELECT key, id, path, text, metadata FROM items WHERE key IN ({holders})"
            rows |= {key: tuple(rest) for key, *rest in self.connection.execute(sql, some)}
            for key, value in self.connection.execute(_LINKED[number].format(holders), some):
                linked.setdefault(key, []).append(value)
        return [_item(number, key, rows[key], linked.get(key, [])) for key in wanted]

    def entries(self, keys: NDArray[np.int64]) -> list[Entry]:
        """The items of these keys as they were put in."""
        sql = "SELECT id, content, path, text, metadata, stamp FROM items WHERE key = ?"
        rows = [self.connection.execute(sql, (int(key),)).fetchone() for key in keys]
        return [
            Entry(name, content, path, text, json.loads(more), stamp) for name, content, path, text, more, stamp in rows
        ]

    def keys_of(self, side: Side, ids: Sequence[str]) -> dict[str, int]:
        """Key of each of these ids that is there."""
        found: dict[str, int] = {}
        for start in range(0, len(ids), AT_ONCE):
            some = list(ids[start : start + AT_ONCE])
            sql = f"SELECT id, key FROM items WHERE side = ? AND id IN ({', '.join('?' * len(some))})"
            found |= dict(self.connection.execute(sql, [SIDES.index(side), *some]))
        return found

    def partners(self, side: Side, keys: Sequence[int] | NDArray[np.int64]) -> dict[int, list[int]]:
        """Of items of a side the keys of those that they are joined with on the other, ascending; without, no entry."""
        own, other = ("image", "text") if side == "images" else ("text", "image")
        number, wanted = SIDES.index(side), [int(key) for key in keys]
        found: dict[int, list[int]] = {}
        for start in range(0, len(wanted), AT_ONCE):
            some = wanted[start : start + AT_ONCE]
            sql = (
                f"SELECT i.key, j.key FROM items i CROSS JOIN links l ON l.{own} = i.id CROSS JOIN items j "
                f"ON j.side = ? AND j.id = l.{other} WHERE i.side = ? AND i.key IN ({', '.join('?' * len(some))}) "
                "ORDER BY i.key, j.key"
            )
            for key, partner in self.connection.execute(sql, [1 - number, number, *some]):
                found.setdefault(int(key), []).append(int(partner))
        return found

    def by_words(self, words: str, *, top: int) -> list[tuple[int, float]]:
        """The `top` texts that have some of the words, as (key, BM25 score); larger is better."""
        tokens = " OR ".join('"' + token.replace('"', '""') + '"' for token in words.split())
        if not tokens:
            return []
        sql = "SELECT rowid, -bm25(words) FROM words WHERE words MATCH ? ORDER BY bm25(words), rowid LIMIT ?"
        return [(int(key), float(score)) for key, score in self.connection.execute(sql, (tokens, top))]

    def fields(self, side: Side) -> list[str]:
        """Names of the metadata that can be filtered by."""
        sql = (
            "WITH RECURSIVE n(name) AS (SELECT min(name) FROM facets WHERE side = :s UNION ALL "
            "SELECT (SELECT min(name) FROM facets WHERE side = :s AND name > n.name) FROM n WHERE n.name IS NOT NULL) "
            "SELECT name FROM n WHERE name IS NOT NULL"
        )
        found = self.connection.execute(sql, {"s": SIDES.index(side)})
        return [name for (name,) in found if not name.endswith(DATE)]

    def values(self, side: Side, name: str, *, most: int, choice: int) -> Values:
        """What a field holds: the `most` commonest values where no more than `choice` are different."""
        own = (SIDES.index(side), name)
        texts, numbers, different = self.connection.execute(_KINDS, own).fetchone()
        rows = self.connection.execute(_COMMON, (*own, most)).fetchall() if different <= choice else []
        ends = self.connection.execute(_ENDS, own).fetchone() if numbers else None
        low, high = self.connection.execute(_ENDS, (own[0], name + DATE)).fetchone()
        return Values(bool(texts), bool(numbers), different, tuple(rows), ends, None if low is None else (low, high))

    def counted(self, side: Side, name: str) -> dict[Value, int]:
        """All values of a field, and how many items have each."""
        return dict(self.connection.execute(_COMMON, (SIDES.index(side), name, -1)).fetchall())

    def page(self, side: Side, *, offset: int, top: int) -> list[int]:
        """`top` keys of a side, after so many, in the order in which the items came in."""
        sql = "SELECT key FROM items WHERE side = ? ORDER BY key LIMIT ? OFFSET ?"
        return [int(key) for (key,) in self.connection.execute(sql, (SIDES.index(side), top, offset))]

    def forgotten(self) -> list[bytes]:
        """Hashes of what was deleted and has not come again."""
        return [bytes(own) for (own,) in self.connection.execute("SELECT hash FROM forgotten").fetchall()]

    def content(self, side: Side, key: int) -> bytes:
        """The digest of what was embedded of an item. Raises KeyError where there is no such key."""
        sql = "SELECT content FROM items WHERE side = ? AND key = ?"
        found = self.connection.execute(sql, (SIDES.index(side), key)).fetchone()
        if found is None:
            raise KeyError(key)
        return bytes(found[0])

    def jobs(self) -> list[Job]:
        """The journal, the first job first."""
        return jobs(self.connection)


# CROSS JOIN holds SQLite to the order in which the tables stand: left to itself it has read all texts for each picture.
_LINKED = (
    "SELECT i.key, t.text FROM items i CROSS JOIN links l ON l.image = i.id "
    "CROSS JOIN items t ON t.side = 1 AND t.id = l.text "
    "WHERE i.key IN ({}) AND t.text IS NOT NULL ORDER BY i.key, t.key",
    "SELECT t.key, i.id FROM items t CROSS JOIN links l ON l.text = t.id "
    "CROSS JOIN items i ON i.side = 0 AND i.id = l.image WHERE t.key IN ({}) ORDER BY t.key, i.key",
)

_KINDS = (
    "SELECT coalesce(sum(typeof(value) = 'text'), 0), coalesce(sum(typeof(value) != 'text'), 0), "
    "count(DISTINCT value) FROM facets WHERE side = ? AND name = ?"
)
_ENDS = "SELECT min(value), max(value) FROM facets WHERE side = ? AND name = ? AND typeof(value) != 'text'"
_COMMON = (
    "SELECT value, count(*) FROM facets WHERE side = ? AND name = ? GROUP BY value "
    "ORDER BY count(*) DESC, value LIMIT ?"
)


def _item(side: int, key: int, row: tuple[str, str | None, str | None, str], linked: list[str]) -> Item:
    name, path, text, metadata = row
    if side == 0:
        return Item(key, name, path, linked, json.loads(metadata))
    return Item(key, name, path, [] if text is None else [text], {"images": linked, **json.loads(metadata)})
