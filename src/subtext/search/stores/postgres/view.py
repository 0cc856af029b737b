"""An index in PostgreSQL as it was at one moment: what a reader sees, however much writers change meanwhile."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, LiteralString

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from subtext.search.stores.condition import ID, TEXT, Condition, require_fields
from subtext.search.stores.item import DATE, SIDES, Item, Side
from subtext.search.stores.journal import Job
from subtext.search.stores.postgres import conditions
from subtext.search.stores.postgres.connection import Connection
from subtext.search.stores.postgres.journal import jobs
from subtext.search.stores.postgres.rows import holdable, state
from subtext.search.stores.postgres.shelf import Shelf, numbers
from subtext.search.stores.postgres.words import by_words
from subtext.search.stores.values import Values

_ITEMS = "SELECT key, id, path, text, metadata FROM items WHERE side = %s AND key = ANY(%s::bigint[])"
_LINKED = (
    "SELECT i.key, t.text FROM items i JOIN links l ON l.image = i.id JOIN items t ON t.side = 1 AND t.id = l.text "
    "WHERE i.side = 0 AND i.key = ANY(%s::bigint[]) AND t.text IS NOT NULL ORDER BY i.key, t.key",
    "SELECT t.key, i.id FROM items t JOIN links l ON l.text = t.id JOIN items i ON i.side = 0 AND i.id = l.image "
    "WHERE t.side = 1 AND t.key = ANY(%s::bigint[]) ORDER BY t.key, i.key",
)
_PARTNERS = {
    "images": (
        "SELECT i.key, t.key FROM items i JOIN links l ON l.image = i.id JOIN items t ON t.side = 1 AND t.id = l.text "
        "WHERE i.side = 0 AND i.key = ANY(%s::bigint[]) ORDER BY i.key, t.key"
    ),
    "texts": (
        "SELECT t.key, i.key FROM items t JOIN links l ON l.text = t.id JOIN items i ON i.side = 0 AND i.id = l.image "
        "WHERE t.side = 1 AND t.key = ANY(%s::bigint[]) ORDER BY t.key, i.key"
    ),
}
# The least name, the least above it, and so on: as many looks into an index as there are names, however many items.
_FIELDS = (
    "WITH RECURSIVE n(name) AS ((SELECT name FROM facets WHERE side = %(side)s ORDER BY name LIMIT 1) UNION ALL "
    "SELECT (SELECT f.name FROM facets f WHERE f.side = %(side)s AND f.name > n.name ORDER BY f.name LIMIT 1) "
    "FROM n WHERE n.name IS NOT NULL) SELECT name FROM n WHERE name IS NOT NULL"
)


@dataclass(frozen=True)
class View:
    """Items and vectors at one moment; of use inside the `with` that gave it.

    generation  how many changes had been made
    shelves     the vectors of "images" and of "texts"
    """

    connection: Connection
    generation: int
    shelves: Mapping[Side, Shelf]

    @property
    def counts(self) -> dict[str, int]:
        """Items of each side."""
        return {side: shelf.count for side, shelf in self.shelves.items()}

    def matching(self, side: Side, where: Sequence[Condition]) -> NDArray[np.int64]:
        """The keys of all items that fulfil every condition, ascending.

        Raises RequirementError when no item of that side has a field that is asked for, and for a text that no
        database can hold.
        """
        if {condition.field for condition in where} - {TEXT, ID}:
            require_fields(side, where, self.fields(side))
        found, values = conditions.matching(SIDES.index(side), where)
        listed = sql.SQL("SELECT string_agg(DISTINCT key::text, ',') FROM ({}) AS found").format(found)
        row = self.connection.execute(listed, values).fetchone()
        return np.sort(numbers(None if row is None else row[0]))

    def items(self, side: Side, keys: Sequence[int] | NDArray[np.int64]) -> list[Item]:
        """The items of these keys, in their order. Raises KeyError for one that is not there."""
        number, wanted = SIDES.index(side), [int(key) for key in keys]
        rows = {key: rest for key, *rest in self.connection.execute(_ITEMS, (number, wanted))}
        linked: dict[int, list[str]] = {}
        for key, value in self.connection.execute(_LINKED[number], (wanted,)):
            linked.setdefault(key, []).append(value)
        return [_item(side, key, rows[key], linked.get(key, [])) for key in wanted]

    def keys_of(self, side: Side, ids: Sequence[str]) -> dict[str, int]:
        """Key of each of these ids that is there."""
        statement = "SELECT id, key FROM items WHERE side = %s AND id = ANY(%s::text[])"
        return {name: int(key) for name, key in self.connection.execute(statement, (SIDES.index(side), holdable(ids)))}

    def partners(self, side: Side, keys: Sequence[int] | NDArray[np.int64]) -> dict[int, list[int]]:
        """Of items of a side the keys of those that they are joined with on the other, ascending; without, no entry."""
        found: dict[int, list[int]] = {}
        for key, partner in self.connection.execute(_PARTNERS[side], ([int(key) for key in keys],)):
            found.setdefault(int(key), []).append(int(partner))
        return found

    def by_words(self, words: str, *, top: int) -> list[tuple[int, float]]:
        """The `top` texts that have some of the words, as (key, BM25 score); larger is better."""
        counted = (state(self.connection, "worded"), state(self.connection, "words"))
        return by_words(self.connection, words, top=top, counted=counted)

    def fields(self, side: Side) -> list[str]:
        """Names of the metadata that can be filtered by."""
        found = self.connection.execute(_FIELDS, {"side": SIDES.index(side)})
        return sorted(name for (name,) in found if not name.endswith(DATE))

    def values(self, side: Side, name: str, *, most: int, choice: int) -> Values:
        """What a field holds: the `most` commonest values where no more than `choice` are different."""
        own = (SIDES.index(side), name)
        words, numbers, different, low, high = self._one(_KINDS, own)
        rows = self.connection.execute(_COMMON, (*own, most)).fetchall() if different <= choice else []
        first, last = self._one(_KINDS, (own[0], name + DATE))[3:]
        return Values(
            bool(words),
            bool(numbers),
            int(different),
            tuple((_plain(number) if word is None else word, int(count)) for word, number, count in rows),
            None if low is None else (_plain(low), _plain(high)),
            None if first is None else (float(first), float(last)),
        )

    def page(self, side: Side, *, offset: int, top: int) -> list[int]:
        """`top` keys of a side, after so many, in the order in which the items came in."""
        statement = "SELECT key FROM items WHERE side = %s ORDER BY key LIMIT %s OFFSET %s"
        return [int(key) for (key,) in self.connection.execute(statement, (SIDES.index(side), top, offset))]

    def content(self, side: Side, key: int) -> bytes:
        """The digest of what was embedded of an item. Raises KeyError where there is no such key."""
        statement = "SELECT content FROM items WHERE side = %s AND key = %s"
        found = self.connection.execute(statement, (SIDES.index(side), key)).fetchone()
        if found is None:
            raise KeyError(key)
        return bytes(found[0])

    def _one(self, statement: LiteralString, values: Sequence[Any]) -> tuple[Any, ...]:
        """The one row that a statement gives."""
        found = self.connection.execute(statement, values).fetchone()
        assert found is not None
        return found

    def jobs(self) -> list[Job]:
        """The journal, the first job first."""
        return jobs(self.connection)


_KINDS: LiteralString = (
    "SELECT count(word), count(number), count(DISTINCT word) + count(DISTINCT number), min(number), max(number) "
    "FROM facets WHERE side = %s AND name = %s"
)
_COMMON: LiteralString = (
    "SELECT word, number, count(*) AS many FROM facets WHERE side = %s AND name = %s GROUP BY word, number "
    'ORDER BY many DESC, number, word COLLATE "C" LIMIT %s'
)


def _plain(number: Decimal) -> int | float:
    return int(number) if number == number.to_integral_value() else float(number)


def _item(side: Side, key: int, row: Sequence[str | None], linked: list[str]) -> Item:
    name, path, text, metadata = row
    assert name is not None and metadata is not None
    if side == "images":
        return Item(key, name, path, linked, json.loads(metadata))
    return Item(key, name, path, [] if text is None else [text], {"images": linked, **json.loads(metadata)})
