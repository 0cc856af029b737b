"""Items, links, deletions and the journal in SQL tables, for SQLite and PostgreSQL.

Statements are written as PostgreSQL's, with `?` for a parameter and `= ANY(?::type[])` for a list of values.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from subtext.data.dates import DateInterval, year_interval
from subtext.errors import RequirementError, SearchIndexError
from subtext.retrieval.index_files import json_object
from subtext.retrieval.manifest import Revision
from subtext.retrieval.stores.facets import (
    DATE,
    DIGITS,
    ID,
    NUMBER,
    TEXT,
    AnyOf,
    Condition,
    facets,
    interval_at,
    interval_tests,
)
from subtext.retrieval.stores.item import (
    SIDES,
    SPACES,
    Applied,
    Change,
    DerivedSpace,
    FieldValues,
    Hits,
    IndexEntry,
    JobUpdate,
    Side,
    Space,
    StoredRow,
    deletion_hash,
    row_sum,
    side_of,
)
from subtext.retrieval.stores.store import Keys, View, Writer
from subtext.retrieval.words import fold
from subtext.version import require_format

Part = tuple[str, list[Any]]
"""A statement that gives keys, and its parameters."""
Scalar = str | int | float

CHUNK = 8192
"""Values that one statement names; SQLite takes 32,766 parameters by default."""
MOST_JOINED = 250
"""Statements of one UNION; SQLite takes 500 by default."""
ROUND = 2**62
"""Numbers of the state are counted modulo this one, a power of two: both databases hold 64 bits."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_LINKS: Mapping[Space, str] = {
    "images": (
        "SELECT i.key, t.key FROM items i JOIN links l ON l.image = i.id JOIN items t ON t.side = 1 AND t.id = l.text "
        "WHERE +i.side = 0 AND i.key = ANY(?::bigint[]) ORDER BY i.key, t.key"
    ),
    "texts": (
        "SELECT t.key, i.key FROM items t JOIN links l ON l.text = t.id JOIN items i ON i.side = 0 AND i.id = l.image "
        "WHERE +t.side = 1 AND t.key = ANY(?::bigint[]) ORDER BY t.key, i.key"
    ),
}
# The least name, the least above it, and so on: as many index look-ups as there are names, however many items.
_FIELDS = (
    "WITH RECURSIVE n(name) AS (SELECT min(name) FROM facets WHERE side = ? UNION ALL "
    "SELECT (SELECT min(f.name) FROM facets f WHERE f.side = ? AND f.name > n.name) FROM n WHERE n.name IS NOT NULL) "
    "SELECT name FROM n WHERE name IS NOT NULL"
)
JOBS = "SELECT number, verb, source, started, finished, done, total FROM jobs"
_RECORDS = {
    "jobs": f"{JOBS} ORDER BY number",
    "deleted": "SELECT hash FROM forgotten",
}


def can_hold(text: str) -> bool:
    """Whether a database can hold a text: it has neither NUL nor unpaired surrogates.

    Args:
        text: Any text.

    Returns:
        True if a database can hold it.
    """
    return "\0" not in text and (text.isascii() or not _SURROGATE.search(text))


def require_storable(entries: Sequence[IndexEntry]) -> None:
    """Require that a database can hold the texts of items.

    Args:
        entries: The items.

    Raises:
        SearchIndexError: For an item with NUL or unpaired surrogates.
    """
    for entry in entries:
        values = [text for facet in facets(json.loads(entry.metadata_json)) for text in facet if isinstance(text, str)]
        texts = [entry.id, entry.path or "", entry.text or "", entry.metadata_json, entry.stamp or "", *values]
        if not all(can_hold(text) for text in texts):
            raise SearchIndexError(
                "this index needs names, texts and metadata without NUL and unpaired surrogates; item "
                f"{entry.id!r} has such characters; remove them from the data, or keep the index in a folder"
            )


def require_comparable(condition: Condition, holds: Callable[[str], bool] = can_hold) -> None:
    """Require that a database can hold the texts of a condition; of an id that it cannot, there is no item.

    Args:
        condition: The condition.
        holds: Whether it can hold a text.

    Raises:
        RequirementError: For one with NUL or unpaired surrogates.
    """
    texts = [condition.field, *(value for value in condition.values if isinstance(value, str))]
    refused = sorted(text for text in texts if not holds(text))
    if refused and (condition.field != ID or condition.test == "contains"):
        raise RequirementError(f"a condition needs texts without NUL and unpaired surrogates; it got {refused[0]!r}")


class Tables(ABC):
    """The tables of an index, by one connection."""

    joined: ClassVar[str]
    """The aggregate that joins keys by commas."""

    @abstractmethod
    def run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows that a statement gives; lists of values stand where the statement has `= ANY(?::type[])`.

        Args:
            statement: SQL, with `?` for a value.
            *values: The values, in the order of the question marks.

        Returns:
            The rows.
        """

    def run_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement with the values of each row.

        Args:
            statement: SQL, with `?` for a value.
            rows: Values of each run.
        """
        for row in rows:
            self.run(statement, *row)

    def keys(self, statement: str, *values: Any) -> NDArray[np.int64]:
        """The keys that a statement gives, in any order.

        Args:
            statement: SQL that selects a column `key`.
            *values: The values, in the order of the question marks.

        Returns:
            (N) int64 keys.
        """
        ((keys,),) = self.run(f"SELECT {self.joined} FROM ({statement}) AS chosen", *values)
        return read_keys(keys)

    def count(self, part: Part) -> int:
        """The number of different keys that a statement gives.

        Args:
            part: A statement that selects a column `key`, and its values.

        Returns:
            Their number.
        """
        each = f"SELECT DISTINCT key FROM ({part[0]}) AS chosen"
        return int(self.run(f"SELECT count(*) FROM ({each}) AS counted", *part[1])[0][0])

    def storable(self, names: Sequence[str]) -> list[str]:
        """Those of these names that the database can hold.

        Args:
            names: Any texts.

        Returns:
            Those that the database can hold.
        """
        return [name for name in names if can_hold(name)]

    def state(self, name: str) -> int:
        """One number of the store's state.

        Args:
            name: Name of the number.

        Returns:
            The number.

        Raises:
            SearchIndexError: If the state does not have it.
        """
        rows = self.run("SELECT value FROM state WHERE name = ?", name)
        if not rows or not isinstance(rows[0][0], int):
            raise SearchIndexError(f"the state of the index needs a number '{name}', and has none; restore a backup")
        return rows[0][0]

    def revision(self, identity: str) -> Revision:
        """Which index it is, and as of which change.

        Args:
            identity: Of the index, as its manifest has it.

        Returns:
            The revision.
        """
        return Revision(identity, self.state("generation"), f"{self.state('change'):014x}")

    def require_format(self, where: object) -> None:
        """Raise SearchIndexError, naming `where`, unless the state has the format of this version of Subtext.

        Args:
            where: Place of the index, for the message.
        """
        rows = self.run("SELECT value FROM state WHERE name = 'format'")
        require_format(rows[0][0] if rows else None, where, "index build", SearchIndexError)

    def rows(
        self, side: Space, *, keys: Sequence[int] | None = None, ids: Sequence[str] | None = None, links: bool = False
    ) -> list[StoredRow]:
        """The rows of these keys, or of these ids; see `View.rows`.

        Args:
            side: One of `SPACES`; derived rows have no links.
            keys: Keys of items; None where `ids` are given.
            ids: Ids of items; None where `keys` are given.
            links: Also reads the links of each row.

        Returns:
            The rows, in any order.
        """
        values: Sequence[Any] = self.storable(ids) if ids is not None else keys or ()
        # Of a few keys SQLite would look at all items of the side: the + keeps it from the index that begins with it.
        match = "side = ? AND id = ANY(?::text[])" if ids is not None else "+side = ? AND key = ANY(?::bigint[])"
        statement = f"SELECT key, id, path, text, metadata, content, stamp, digest FROM items WHERE {match}"
        rows = []
        for start in range(0, len(values), CHUNK):
            stored = self.run(statement, SPACES.index(side), list(values[start : start + CHUNK]))
            partners: dict[int, list[int]] = {}
            for key, partner in self.run(_LINKS[side], [key for key, *_ in stored]) if links and stored else []:
                partners.setdefault(key, []).append(partner)
            rows += [
                StoredRow(
                    key, name, path, text, metadata, bytes(content), stamp, bytes(digest), tuple(partners.get(key, ()))
                )
                for key, name, path, text, metadata, content, stamp, digest in stored
            ]
        return rows


@dataclass(eq=False)
class SqlView(View):
    """An index in SQL tables at one moment.

    Attributes:
        tables: The tables at this moment.
        sides: The vectors of each space, with `nearest` and `vectors_of`.
    """

    tables: Tables
    sides: Mapping[Space, Any]
    kinds: ClassVar[str]
    """(texts, numbers, distinct values, least and greatest number) of a field."""
    common: ClassVar[str]
    """(text, number, count) of the most frequent values of a field."""
    of_folded: ClassVar[str]
    """(folded id, id) of the items of a side with some folded ids."""
    text: ClassVar[str]
    """The column of facets that has texts, in the order of their characters."""
    number: ClassVar[str] = "number"
    """The column of facets that has numbers."""

    def rows(
        self, side: Space, *, keys: Sequence[int] | None = None, ids: Sequence[str] | None = None, links: bool = False
    ) -> list[StoredRow]:
        """The rows of these keys, or of these ids, in any order; those that are not in the index are left out.

        Args:
            side: "images" or "texts".
            keys: Keys of items; None where `ids` are given.
            ids: Ids of items; None where `keys` are given.
            links: Also reads the links of each row.

        Returns:
            The rows in any order; items that are not in the index are left out.
        """
        return self.tables.rows(side, keys=keys, ids=ids, links=links)

    def nearest(
        self,
        side: Space,
        queries: NDArray[np.float32],
        *,
        top: int,
        among: Keys | None = None,
        exact: bool = False,
    ) -> list[Hits]:
        """The best `top` items of each of (Q L D) queries, or of those `among` these keys.

        Args:
            side: "images" or "texts".
            queries: (Q L D) float32 vectors of Q queries with L views each.
            top: Number of hits per query, 1 or more.
            among: M keys to search, ascending; None for all items.
            exact: Compares all vectors, however many there are.

        Returns:
            Q hits, best first; items with equal scores are in the order of their keys. Fewer than `top` only where
            there are fewer items.
        """
        among = None if among is None else np.asarray(among)
        return self.sides[side].nearest(queries, top=top, among=among, exact=exact)

    def vectors(self, side: Space, keys: NDArray[np.int64]) -> NDArray[np.float32]:
        """(N K D) vectors of items, in the order of the keys; each has to be in the index.

        Args:
            side: "images" or "texts".
            keys: (N) int64 keys of items that are in the index.

        Returns:
            (N K D) float32 vectors in the order of the keys, with K views each.
        """
        if not len(keys):
            return np.zeros((0, self.manifest.views_of(side), self.manifest.width_of(side)), dtype=np.float32)
        return self.sides[side].vectors_of(keys)

    @property
    def space_counts(self) -> dict[Space, int]:
        """Number of rows of each space, as the index counts them."""
        return {space: self.tables.state(space) for space in self.manifest.spaces}

    def _contents(self, space: DerivedSpace) -> list[tuple[int, bytes]]:
        rows = self.tables.run("SELECT key, content FROM items WHERE side = ?", SPACES.index(space))
        return [(key, bytes(content)) for key, content in rows]

    def owner_links(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All links; see `View.owner_links`.

        Returns:
            (M) keys of texts and (M) keys of their images.
        """
        if "links" not in self.cache:
            statement = (
                "SELECT t.key, i.key FROM links l JOIN items t ON t.side = 1 AND t.id = l.text "
                "JOIN items i ON i.side = 0 AND i.id = l.image"
            )
            links = np.array(self.tables.run(statement), dtype=np.int64).reshape(-1, 2)
            self.cache["links"] = tuple(links[np.lexsort((links[:, 1], links[:, 0]))].T)
        return self.cache["links"]

    def fields(self, side: Side) -> list[str]:
        """Names of the metadata fields, sorted.

        Args:
            side: "images" or "texts".

        Returns:
            Names, sorted.
        """
        names = self.tables.run(_FIELDS, SIDES.index(side), SIDES.index(side))
        return sorted(name for (name,) in names if not name.endswith((DATE, NUMBER)))

    def folded(self, side: Side, names: Sequence[str]) -> dict[str, list[str]]:
        """The ids that are folded as some names are; see `View.folded`.

        Args:
            side: "images" or "texts".
            names: Any texts.

        Returns:
            Name -> ids.
        """
        ids: dict[str, list[str]] = {}
        folded = sorted(set(map(fold, self.tables.storable(names))))
        for start in range(0, len(folded), CHUNK):
            for own, name in self.tables.run(self.of_folded, SIDES.index(side), folded[start : start + CHUNK]):
                ids.setdefault(own, []).append(name)
        return {name: sorted(ids[fold(name)]) for name in names if fold(name) in ids}

    def dates(self, side: Side, name: str) -> dict[int, tuple[int, int]]:
        """First and last second of the dates of a field; see `View.dates`.

        Args:
            side: "images" or "texts".
            name: The field.

        Returns:
            Key -> seconds of its earliest date.
        """
        statement = "SELECT key, min({}) FROM facets WHERE side = ? AND name = ? AND {} GROUP BY key"
        is_year = f"{self.number} BETWEEN -9999 AND 9999"
        years = self.tables.run(statement.format(self.number, is_year), SIDES.index(side), name)
        found = {int(key): year_interval(int(year)) for key, year in years if year == int(year)}
        dates = {key: (year.first, year.last) for key, year in found.items()}
        texts = f"{self.text} IS NOT NULL"
        for key, text in self.tables.run(statement.format(self.text, texts), SIDES.index(side), name + DATE):
            dates[int(key)] = min(interval_at(text), dates.get(int(key), interval_at(text)))
        return dates

    def values(self, side: Side, name: str, *, limit: int = 0) -> FieldValues:
        """The values of a field; see `View.values`.

        Args:
            side: "images" or "texts".
            name: The field.
            limit: Number of most frequent values to return.

        Returns:
            Kinds, number and range of the values, and the most frequent ones.
        """
        number = SIDES.index(side)
        ((texts, numbers, distinct, low, high),) = self.tables.run(self.kinds, number, name)
        rows = self.tables.run(self.common, number, name, limit) if limit else []
        first, last = f"min({self.text})", f"max(substr({self.text}, {DIGITS + 1}))"
        statement = f"SELECT {first}, {last} FROM facets WHERE side = ? AND name = ?"
        ((first, last),) = self.tables.run(statement, number, name + DATE)
        return FieldValues(
            bool(texts),
            bool(numbers),
            int(distinct),
            tuple((self._value(text, value, *more), int(count)) for text, value, count, *more in rows),
            None if low is None else (_plain(low), _plain(high)),
            None if first is None else interval_at(first[:DIGITS] + last),
        )

    def _value(self, text: str | None, number: Any) -> str | int | float:
        """A value as it was put in."""
        return _plain(number) if text is None else text

    def records(self, kind: str) -> list[tuple[Any, ...]]:
        """Other records of the index; see `View.records`.

        Args:
            kind: "jobs", "deleted", "documents" or the name of a document, as listed above.

        Returns:
            Rows of the record; their columns depend on the kind.
        """
        return self.tables.run(_RECORDS[kind])

    def deleted_among(self, hashes: Sequence[bytes]) -> set[bytes]:
        """Those of these hashes that stand for deleted items.

        Args:
            hashes: Hashes of items; see `deletion_hash`.

        Returns:
            Those of the hashes that stand for deleted items.
        """
        statement = "SELECT hash FROM forgotten WHERE hash = ANY(?::bytea[])"
        chunks = [list(hashes[start : start + CHUNK]) for start in range(0, len(hashes), CHUNK)]
        return {bytes(digest) for chunk in chunks for (digest,) in self.tables.run(statement, chunk)}


@dataclass(eq=False)
class StatementView(SqlView):
    """An index in SQL tables of which `facets` is one, at one moment: a condition is a statement that gives keys."""

    linked: ClassVar[str] = (
        "SELECT i.key FROM ({}) AS t JOIN links l ON l.text = t.id JOIN items i ON i.side = 0 AND i.id = l.image"
    )
    """The images that are linked with some texts."""
    in_id: ClassVar[str]
    in_value: ClassVar[str]
    """Tests whether the id of an item, or a facet, contains a folded part."""

    def select(self, side: Space, where: Sequence[Condition | AnyOf] = ()) -> NDArray[np.int64]:
        """The keys of the items that fulfil every condition, ascending.

        Args:
            side: One of `SPACES`.
            where: Conditions on the metadata; all must be true. None selects all items.

        Returns:
            (N) int64 keys, ascending.
        """
        number = SPACES.index(side)
        statement, values = self._every(where, number)
        return np.unique(self.tables.keys(statement, *values))

    def count(self, side: Side, where: Sequence[Condition | AnyOf]) -> int:
        """The number of items that fulfil every condition.

        Args:
            side: "images" or "texts".
            where: Conditions on the metadata; all must be true.

        Returns:
            Number of items.
        """
        if not where:
            return self.counts[side]
        return self.tables.count(self._every(where, SIDES.index(side)))

    def _every(self, where: Sequence[Condition | AnyOf], side: int) -> Part:
        """The keys of that side's items that fulfil every condition."""
        parts = [self._part(condition, side) for condition in where] or [every_item(side)]
        statement = " INTERSECT ".join(f"SELECT key FROM ({part}) AS part{n}" for n, (part, _) in enumerate(parts))
        return statement, [value for _, values in parts for value in values]

    def _part(self, condition: Condition | AnyOf, side: int) -> Part:
        """The keys of that side's items that fulfil a condition."""
        own = without_not(condition)
        if own is not condition:
            (every, number), (found, values) = every_item(side), self._part(own, side)
            return f"{every} EXCEPT SELECT key FROM ({found}) AS found", [*number, *values]
        if isinstance(condition, AnyOf):
            alternatives = [self._every(one, side) for one in condition.alternatives]
            return union([(f"SELECT key FROM ({part}) AS whole", values) for part, values in alternatives])
        require_comparable(condition, lambda text: bool(self.tables.storable([text])))
        name, test = condition.field, condition.test
        if name == TEXT:
            return self._with_phrase(side, str(condition.value))
        if test == "contains" and name == ID:
            return f"SELECT key FROM items WHERE side = ? AND {self.in_id}", [side, fold(str(condition.value))]
        if test == "contains":
            return with_facet(side, name, self.in_value, fold(str(condition.value)))
        if name == ID:
            ids = self.tables.storable([str(value) for value in condition.values])
            return "SELECT key FROM items WHERE side = ? AND id = ANY(?::text[])", [side, ids]
        if test in ("=", "in"):
            others = list(dict.fromkeys(fold(it) if isinstance(it, str) else it for it in condition.others))
            chunks = [others[start : start + CHUNK] for start in range(0, len(others), CHUNK)] or [[]]
            parts = [self._with_values(side, name, chunk) for chunk in chunks]
            return union([*parts, *(self._within(side, condition, "=", date) for date in condition.dates)])
        if condition.dates:
            return self._within(side, condition, test, condition.dates[0])
        (limit,) = condition.others
        # A text is neither below nor above a number.
        return union([]) if isinstance(limit, str) else self._with_range(side, name, test, limit)

    def _within(self, side: int, condition: Condition, test: str, interval: DateInterval) -> Part:
        """Items of which a field has a date that fulfils a test, possibly or certainly."""
        columns = {"first": self.text, "last": f"substr({self.text}, {DIGITS + 1})"}
        tests = interval_tests(test, interval, certain=condition.certain)
        written = " AND ".join(f"{columns[end.split()[0]]} {end.split()[1]} ?" for end in tests)
        return with_facet(side, condition.field + DATE, written, *tests.values())

    def _with_phrase(self, side: int, phrase: str) -> Part:
        """Items whose text contains the words of a phrase in their order; of images, those of such texts."""
        statement, values = self._texts_with(phrase)
        return (f"SELECT key FROM ({statement}) AS t" if side else self.linked.format(statement)), values

    @abstractmethod
    def _texts_with(self, phrase: str) -> Part:
        """Key and id of the texts that contain the words of a phrase in their order."""

    @abstractmethod
    def _with_values(self, side: int, name: str, values: Sequence[Scalar]) -> Part:
        """Items of which a field has one of some values."""

    @abstractmethod
    def _with_range(self, side: int, name: str, test: str, limit: Scalar) -> Part:
        """Items of which a field has a number below or above a limit."""


def read_keys(joined: Any) -> NDArray[np.int64]:
    """Keys that a statement gives in one text; see `Tables.joined`.

    Args:
        joined: The text; None for no keys.

    Returns:
        (N) int64 keys, ascending.
    """
    return np.sort(np.fromstring(str(joined), dtype=np.int64, sep=",")) if joined else np.zeros(0, dtype=np.int64)


def without_not(condition: Condition | AnyOf) -> Condition | AnyOf:
    """What a condition is the opposite of; itself where it is none.

    Args:
        condition: The condition.

    Returns:
        For "!=" one of "in", for a negated list of alternatives these, else the condition.
    """
    if isinstance(condition, AnyOf):
        return replace(condition, negated=False) if condition.negated else condition
    if condition.test != "!=":
        return condition
    # What certainly is equal is not possibly unequal.
    return Condition(condition.field, "in", list(condition.values), not condition.certain)


def every_item(side: int) -> Part:
    """The keys of all items of a side.

    Args:
        side: Number of the side in `SIDES`.

    Returns:
        A statement, and its values.
    """
    return "SELECT key FROM items WHERE side = ?", [side]


def union(parts: Sequence[Part]) -> Part:
    """The keys that some of these statements give.

    Args:
        parts: Statements that select keys, with their values.

    Returns:
        A statement, and its values.
    """
    if not parts:
        return "SELECT key FROM items WHERE side < ?", [0]
    while len(parts) > MOST_JOINED:
        blocks = [parts[start : start + MOST_JOINED] for start in range(0, len(parts), MOST_JOINED)]
        parts = [(f"SELECT key FROM ({part}) AS joined", values) for part, values in map(union, blocks)]
    return " UNION ".join(part for part, _ in parts), [value for _, values in parts for value in values]


def with_facet(side: int, name: str, test: str, *values: Any) -> Part:
    """Items with a facet of some name that passes a test.

    Args:
        side: Number of the side in `SIDES`.
        name: The field.
        test: SQL condition on a row of `facets`.
        *values: Values of the question marks in the test.

    Returns:
        A statement that selects keys, and its values.
    """
    return f"SELECT key FROM facets WHERE side = ? AND name = ? AND {test}", [side, name, *values]


class SqlWriter(Writer):
    """Changes the tables of an index, inside a transaction of a subclass."""

    tables: Tables
    changed = "path = ?, text = ?, metadata = ?, content = ?, stamp = ?, digest = ?"
    """The columns that a change of metadata sets to `_columns`."""
    is_near: ClassVar[str]
    """Test whether a facet has one of some whole numbers."""

    def change_rows(self, change: Change, keys: Sequence[int]) -> tuple[Applied, Mapping[Space, list[int]]]:
        """Make a change in the tables, inside a transaction.

        Args:
            change: The change.
            keys: Of the new items, and of the derived rows after them.

        Returns:
            The result of the change, and the keys of removed rows of each space.
        """
        keys, others = keys[: len(change.entries)], keys[len(change.entries) :]
        side, number = change.side, SIDES.index(change.side)
        ids = [entry.id for entry in (*change.entries, *change.amended)]
        before = {row.id: row.key for row in self.tables.rows(side, ids=ids)}
        changed = {entry.id for entry in change.entries if entry.id in before}
        replaced = [before[entry.id] for entry in change.entries if entry.id in before]
        # Images whose vectors or texts are others now.
        lenders = self._images_of(side, sorted(changed))
        self._remove_items(side, replaced)
        if change.entries:
            self._insert_items(side, keys, change.entries, change.vectors)
            self._insert_facets(number, keys, change.entries)
            self.add_to(side, len(change.entries))
        amended = [(before[entry.id], entry) for entry in change.amended if entry.id in before]
        if amended:
            amended_keys = [key for key, _ in amended]
            self._remove_facets(number, amended_keys)
            rows = [(*self._columns(number, key, entry), key) for key, entry in amended]
            self.tables.run_many(f"UPDATE items SET {self.changed} WHERE key = ?", rows)
            self._insert_facets(number, amended_keys, [entry for _, entry in amended])
        if change.exact_texts:
            statement = "SELECT image, text FROM links WHERE text = ANY(?::text[])"
            stored = self.tables.run(statement, self.tables.storable(sorted(change.exact_texts)))
            removed = sorted({(image, text) for image, text in stored} - set(change.links))
            self._remove_links(removed)
            lenders |= {image for image, _ in removed}
        lenders |= {image for image, _ in self._insert_links(change.links)}
        hashes = [deletion_hash(side, entry.id) for entry in change.entries]
        for start in range(0, len(hashes), CHUNK):
            again = self._forgotten(hashes[start : start + CHUNK])
            if again:
                self.tables.run("DELETE FROM forgotten WHERE hash = ANY(?::bytea[])", sorted(again))
                self.add_to("forgotten", -sum(map(row_sum, again)))
        deleted, unlinked = self._delete(change)
        self._remember(change.remembered)
        job = None if change.job is None else self._note(change.job)
        gone: dict[Space, list[int]] = {
            name: [*(replaced if name == side else []), *(row.key for row in deleted[name])] for name in SIDES
        }
        lenders |= unlinked
        texts = [row.id for row in deleted["texts"]] + (sorted(changed) if side == "texts" else [])
        gone |= self._withdraw(texts, sorted(lenders), gone["images"])
        for space, own in self._derive(change, others).items():
            gone[space] += own
        return Applied({name: len(deleted[name]) for name in SIDES}, job), gone

    def _images_of(self, side: Side, ids: Sequence[str]) -> set[str]:
        """These images, or those that are linked with these texts."""
        if side == "images" or not ids:
            return set(ids)
        return {image for (image,) in self.tables.run("SELECT image FROM links WHERE text = ANY(?::text[])", list(ids))}

    def _withdraw(self, texts: Sequence[str], images: Sequence[str], gone: Sequence[int]) -> dict[Space, list[int]]:
        """Remove what was derived of texts that are gone or others now, and of images whose vectors or texts are.

        That an image has no row of neighbours says that they are to be computed again, and that it may be one of those
        of others.

        Args:
            texts: Ids of texts.
            images: Ids of images.
            gone: Keys of images that are no more.

        Returns:
            The keys of the removed rows of each derived space.
        """
        removed: dict[Space, list[int]] = {"sentences": [], "neighbours": []}
        if texts and self.tables.state("sentences"):
            removed["sentences"] = [row.key for row in self.tables.rows("sentences", ids=texts)]
        if (images or gone) and self.tables.state("neighbours"):
            near = [*gone, *(row.key for row in self.tables.rows("images", ids=images))]
            chosen = {row.key for row in self.tables.rows("neighbours", ids=images)}
            statement = f"SELECT DISTINCT key FROM facets WHERE side = 3 AND name = 'near' AND {self.is_near}"
            for start in range(0, len(near), CHUNK):
                chosen |= {int(key) for (key,) in self.tables.run(statement, near[start : start + CHUNK])}
            removed["neighbours"] = sorted(chosen)
        for space, keys in removed.items():
            self._remove_items(space, keys)
        return removed

    def _derive(self, change: Change, keys: Sequence[int]) -> dict[Space, list[int]]:
        """Put in derived rows of items that are in the index; the keys of the rows that they replace."""
        replaced: dict[Space, list[int]] = {}
        for space, rows in change.derived.items():
            names, keys, own = list(rows), keys[len(rows) :], keys[: len(rows)]
            owners = {row.id: row.key for row in self.tables.rows(side_of(space), ids=names)}
            replaced[space] = [row.key for row in self.tables.rows(space, ids=names)]
            self._remove_items(space, replaced[space])
            present = [(key, name) for key, name in zip(own, names, strict=True) if name in owners]
            if present:
                own, names = [key for key, _ in present], [name for _, name in present]
                entries = [rows[name].entry(name, owners[name]) for name in names]
                self._insert_items(space, own, entries, [rows[name].vector[None] for name in names])
                self._insert_facets(SPACES.index(space), own, entries)
                self.add_to(space, len(own))
        return replaced

    def count_change(self) -> Revision:
        """Count one more change in the state, inside its transaction.

        Returns:
            The revision that the transaction leads to.
        """
        revision = self.tables.revision(self.manifest.identity).next()
        for name, value in (("generation", revision.generation), ("change", int(revision.change, 16))):
            self.tables.run("UPDATE state SET value = ? WHERE name = ?", value, name)
        return revision

    def add_to(self, name: str, more: int) -> None:
        """Add to a number of the state, modulo `ROUND`.

        Args:
            name: Name of the number.
            more: Whole number to add.
        """
        if more:
            statement = f"UPDATE state SET value = (value + ?) & {ROUND - 1} WHERE name = ?"
            self.tables.run(statement, more % ROUND, name)

    def _columns(self, side: int, key: int, entry: IndexEntry) -> tuple[Any, ...]:
        """The values of the columns that change with the metadata of an item."""
        return entry.path, entry.text, entry.metadata_json, entry.content, entry.stamp, entry.digest(side, key)

    @abstractmethod
    def _insert_items(self, side: Space, keys: Sequence[int], entries: Sequence[IndexEntry], vectors: Any) -> None:
        """Insert new items, without their facets."""

    @abstractmethod
    def _insert_facets(self, side: int, keys: Sequence[int], entries: Sequence[IndexEntry]) -> None:
        """Insert the facets and words of items, and count them."""

    @abstractmethod
    def _remove_facets(self, side: int, keys: Sequence[int]) -> None:
        """Remove the facets and words of items, and count them no more."""

    @abstractmethod
    def _remove_links(self, links: Sequence[tuple[str, str]]) -> None:
        """Remove links, (image id, text id)."""

    @abstractmethod
    def _insert_links(self, links: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Link images and texts of which both are in the index; those that were not linked before."""

    def _remove_items(self, side: Space, keys: Sequence[int]) -> None:
        """Remove items, but not their links: an item that is replaced keeps them."""
        for start in range(0, len(keys), CHUNK):
            chunk = list(keys[start : start + CHUNK])
            self._remove_facets(SPACES.index(side), chunk)
            self.tables.run("DELETE FROM items WHERE key = ANY(?::bigint[])", chunk)
            self.add_to(side, -len(chunk))

    def _note_traces(self, side: Side, rows: Sequence[StoredRow]) -> None:
        """Note what deleted items leave elsewhere."""

    def _delete(self, change: Change) -> tuple[dict[Side, list[StoredRow]], set[str]]:
        """Delete items with their links, and the texts that have no other image.

        Returns:
            The rows of each side, and the ids of images that they were, or were linked with.
        """
        images_of = set[str]()
        rows = {change.side: self.tables.rows(change.side, ids=change.deleted)}
        images = [row.id for row in rows[change.side]] if change.side == "images" else []
        if images and not change.keep_texts:
            statement = (
                "SELECT DISTINCT t.key FROM links l JOIN items t ON t.side = 1 AND t.id = l.text "
                "WHERE l.image = ANY(?::text[]) AND NOT EXISTS "
                "(SELECT 1 FROM links m WHERE m.text = l.text AND NOT (m.image = ANY(?::text[])))"
            )
            orphans = self.tables.run(statement, images, images)
            rows["texts"] = self.tables.rows("texts", keys=[int(key) for (key,) in orphans])
        for side, chosen in rows.items():
            if chosen:
                ids = [row.id for row in chosen]
                column = "image" if side == "images" else "text"
                links = self.tables.run(f"SELECT image, text FROM links WHERE {column} = ANY(?::text[])", ids)
                self._remove_links([(image, text) for image, text in links])
                images_of |= {image for image, _ in links}
                self._note_traces(side, chosen)
                if change.remember:
                    self._remember([deletion_hash(side, name) for name in ids])
                self._remove_items(side, [row.key for row in chosen])
        return {side: rows.get(side, []) for side in SIDES}, images_of.union(images)

    def _forgotten(self, hashes: Sequence[bytes]) -> set[bytes]:
        """Those of these hashes that stand for deleted items."""
        statement = "SELECT hash FROM forgotten WHERE hash = ANY(?::bytea[])"
        return {bytes(digest) for (digest,) in self.tables.run(statement, list(hashes))} if hashes else set()

    def _remember(self, hashes: Sequence[bytes]) -> None:
        for start in range(0, len(hashes), CHUNK):
            chunk = hashes[start : start + CHUNK]
            new = sorted(set(chunk) - self._forgotten(chunk))
            self.tables.run_many("INSERT INTO forgotten VALUES (?)", [(digest,) for digest in new])
            self.add_to("forgotten", sum(map(row_sum, new)))

    def _note(self, update: JobUpdate) -> int:
        """Note a job in the journal; its number."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        if update.number is not None:
            if update.finished:
                self._change_job(update.number, "finished = ?, done = total", now)
            else:
                self._change_job(update.number, "done = ?", update.done)
            return update.number
        unfinished = "SELECT number, source FROM jobs WHERE verb = ? AND finished IS NULL ORDER BY number DESC"
        for number, source in self.tables.run(unfinished, update.verb):
            # Not by the text alone: equal sources are equal objects. A damaged one is none.
            parsed = json_object(source)
            if source == update.source_json or (parsed and parsed == json_object(update.source_json)):
                self._change_job(int(number), "total = ?, done = 0", update.total)
                return int(number)
        statement = "INSERT INTO jobs (verb, source, started, done, total) VALUES (?, ?, ?, 0, ?) RETURNING number"
        ((number,),) = self.tables.run(statement, update.verb, update.source_json, now, update.total)
        self.add_to("jobs", self._job_sum(int(number)))
        return int(number)

    def _change_job(self, number: int, columns: str, value: Any) -> None:
        """Set columns of a job."""
        before = self._job_sum(number)
        self.tables.run(f"UPDATE jobs SET {columns} WHERE number = ?", value, number)
        self.add_to("jobs", self._job_sum(number) - before)

    def _job_sum(self, number: int) -> int:
        return sum(row_sum(*row) for row in self.tables.run(f"{JOBS} WHERE number = ?", number))


def _plain(number: Any) -> Any:
    """PostgreSQL's numbers as Python's; SQLite's of more than 64 bits are texts."""
    if isinstance(number, str):
        return int(number)
    if not isinstance(number, Decimal):
        return number
    return int(number) if number == number.to_integral_value() else float(number)
