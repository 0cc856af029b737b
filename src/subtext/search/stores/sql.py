"""Items, links, deletions and the journal in SQL tables: what SQLite and PostgreSQL have in common.

Statements are written as PostgreSQL's, with `?` for a parameter and `= ANY(?::type[])` for a list of values.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, Protocol

from subtext.search.stores.condition import ID, TEXT, Condition, Value
from subtext.search.stores.item import (
    DATE,
    SIDES,
    Applied,
    Change,
    Entry,
    JobUpdate,
    Row,
    Side,
    deletion_hash,
)
from subtext.search.stores.store import View, Writer

Part = tuple[str, list[Any]]
"""A statement that gives keys, and its parameters."""

AT_ONCE = 8192
"""Items that one statement names; SQLite takes 32,766 parameters by default."""

_COLUMNS = "key, id, path, text, metadata, content, stamp, digest"
_LINKS = {
    "images": (
        "SELECT i.key, t.key FROM items i JOIN links l ON l.image = i.id JOIN items t ON t.side = 1 AND t.id = l.text "
        "WHERE i.side = 0 AND i.key = ANY(?::bigint[]) ORDER BY i.key, t.key"
    ),
    "texts": (
        "SELECT t.key, i.key FROM items t JOIN links l ON l.text = t.id JOIN items i ON i.side = 0 AND i.id = l.image "
        "WHERE t.side = 1 AND t.key = ANY(?::bigint[]) ORDER BY t.key, i.key"
    ),
}
_RECORDS = {
    "jobs": "SELECT number, verb, source, started, finished, done, total FROM jobs ORDER BY number",
    "deleted": "SELECT hash FROM forgotten",
}


class Tables(Protocol):
    """The tables of an index, by one connection."""

    def run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows that a statement gives; lists of values stand where the statement has `= ANY(?::type[])`."""

    def ids(self, names: Sequence[str]) -> list[str]:
        """Those of these names that the database can hold."""


class SqlView(View):
    """An index in SQL tables at one moment."""

    tables: Tables

    def rows(
        self, side: Side, *, keys: Sequence[int] | None = None, ids: Sequence[str] | None = None, links: bool = False
    ) -> list[Row]:
        """The rows of these keys, or of these ids, in any order; those that are not in the index are left out."""
        values: Sequence[Any] = self.tables.ids(ids) if ids is not None else keys if keys is not None else ()
        column, kind = ("id", "text") if ids is not None else ("key", "bigint")
        statement = f"SELECT {_COLUMNS} FROM items WHERE side = ? AND {column} = ANY(?::{kind}[])"
        rows = []
        for start in range(0, len(values), AT_ONCE):
            columns = self.tables.run(statement, SIDES.index(side), list(values[start : start + AT_ONCE]))
            linked: dict[int, list[int]] = {}
            if links and columns:
                for key, partner in self.tables.run(_LINKS[side], [key for key, *_ in columns]):
                    linked.setdefault(key, []).append(partner)
            rows += [
                Row(key, name, path, text, metadata, bytes(content), stamp, bytes(digest), tuple(linked.get(key, ())))
                for key, name, path, text, metadata, content, stamp, digest in columns
            ]
        return rows

    def records(self, kind: str) -> list[tuple[Any, ...]]:
        """Other records of the index; see `View.records`."""
        return self.tables.run(_RECORDS[kind])

    def where(self, side: int, conditions: Sequence[Condition]) -> Part:
        """The keys of that side's items that fulfil every condition."""
        parts = [self._condition(condition, side) for condition in conditions]
        if not parts:
            return "SELECT key FROM items WHERE side = ?", [side]
        return (
            " INTERSECT ".join(f"SELECT key FROM ({statement}) AS part{n}" for n, (statement, _) in enumerate(parts)),
            [value for _, values in parts for value in values],
        )

    def _condition(self, condition: Condition, side: int) -> Part:
        """The keys of that side's items that fulfil a condition."""
        name, test = condition.field, condition.test
        if name == TEXT:
            return self.with_phrase(side, str(condition.value))
        if test == "!=":
            equal, values = self._condition(Condition(name, "in", list(condition.values)), side)
            return f"SELECT key FROM items WHERE side = ? EXCEPT SELECT key FROM ({equal}) AS equal", [side, *values]
        if name == ID and test == "contains":
            return self.with_part(side, None, str(condition.value).casefold())
        if name == ID:
            return (
                "SELECT key FROM items WHERE side = ? AND id = ANY(?::text[])",
                [side, self.tables.ids([str(value) for value in condition.values])],
            )
        if test == "contains":
            return self.with_part(side, name, str(condition.value).casefold())
        dates = [value for value in condition.values if isinstance(value, date)]
        others = [value for value in condition.values if not isinstance(value, date)]
        if test in ("=", "in"):
            parts = [self.with_values(side, name, others), self.with_values(side, name + DATE, dates)]
            return f"{parts[0][0]} UNION {parts[1][0]}", [*parts[0][1], *parts[1][1]]
        return self.with_range(side, name + DATE if dates else name, test, condition.values[0])

    @abstractmethod
    def with_phrase(self, side: int, phrase: str) -> Part:
        """Items whose text contains the words of a phrase in their order; of images, those of such texts."""

    @abstractmethod
    def with_part(self, side: int, name: str | None, part: str) -> Part:
        """Items with a text in a field, or with an id for None, that contains a case-folded part."""

    @abstractmethod
    def with_values(self, side: int, name: str, values: Sequence[Value]) -> Part:
        """Items of which a field has one of some values."""

    @abstractmethod
    def with_range(self, side: int, name: str, test: str, limit: Value) -> Part:
        """Items of which a field has a number below or above a limit."""


class SqlWriter(Writer):
    """Changes the tables of an index, inside a transaction of a subclass."""

    tables: Tables
    ascii_source = False
    """Whether the sources of jobs are stored in ASCII alone."""

    def change_rows(self, change: Change, keys: Sequence[int]) -> tuple[Applied, Mapping[Side, list[int]]]:
        """Make a change in the tables, inside a transaction; what it did, and the keys of items that are gone.

        keys  of the new items
        """
        side = change.side
        ids = [entry.id for entry in (*change.entries, *change.amended)]
        rows = self._rows(side, "id", "text", self.tables.ids(ids))
        before = {row.id: row for row in rows}
        gone: dict[Side, list[int]] = {name: [] for name in SIDES}
        gone[side] = [before[entry.id].key for entry in change.entries if entry.id in before]
        self.remove_rows(side, gone[side])
        self.insert_rows(side, keys, change.entries, change.vectors)
        amended = [entry for entry in change.amended if entry.id in before]
        self.update_rows(side, [before[entry.id].key for entry in amended], amended)
        self._change_links(change)
        hashes = [deletion_hash(side, entry.id) for entry in change.entries]
        for start in range(0, len(hashes), AT_ONCE):
            self.tables.run("DELETE FROM forgotten WHERE hash = ANY(?::bytea[])", hashes[start : start + AT_ONCE])
        deleted = self._delete(change)
        self._remember(change.remembered)
        job = None if change.job is None else self._note(change.job)
        counts = {name: len(own) for name, own in deleted.items()}
        return Applied(counts, job), {name: [*gone[name], *deleted[name]] for name in SIDES}

    @abstractmethod
    def insert_rows(self, side: Side, keys: Sequence[int], entries: Sequence[Entry], vectors: Any) -> None:
        """Insert new items."""

    @abstractmethod
    def update_rows(self, side: Side, keys: Sequence[int], entries: Sequence[Entry]) -> None:
        """Update items whose vectors stay."""

    @abstractmethod
    def remove_rows(self, side: Side, keys: Sequence[int]) -> None:
        """Remove items, but not their links: an item that is replaced keeps them."""

    @abstractmethod
    def remove_links(self, links: Sequence[tuple[str, str]]) -> None:
        """Remove links, (image id, text id)."""

    @abstractmethod
    def insert_links(self, links: Sequence[tuple[str, str]]) -> None:
        """Link images and texts of which both are in the index."""

    def deleting(self, side: Side, rows: Sequence[Row]) -> None:
        """Note what deleted items leave elsewhere."""

    def _delete(self, change: Change) -> dict[Side, list[int]]:
        deleted: dict[Side, list[int]] = {name: [] for name in SIDES}
        rows = {change.side: self._rows(change.side, "id", "text", self.tables.ids(change.deleted))}
        if change.side == "images" and not change.keep_texts:
            rows["texts"] = self._rows("texts", "key", "bigint", self._orphans([row.id for row in rows["images"]]))
        for side, chosen in rows.items():
            deleted[side] = [row.key for row in chosen]
            if not chosen:
                continue
            ids = [row.id for row in chosen]
            own = "image" if side == "images" else "text"
            links = self.tables.run(f"SELECT image, text FROM links WHERE {own} = ANY(?::text[])", ids)
            self.remove_links([(image, text) for image, text in links])
            self.deleting(side, chosen)
            if change.remember:
                self._remember([deletion_hash(side, name) for name in ids])
            self.remove_rows(side, deleted[side])
        return deleted

    def _orphans(self, images: Sequence[str]) -> list[int]:
        """Keys of the texts that have no image but these."""
        if not images:
            return []
        statement = (
            "SELECT DISTINCT t.key FROM links l JOIN items t ON t.side = 1 AND t.id = l.text "
            "WHERE l.image = ANY(?::text[]) AND NOT EXISTS "
            "(SELECT 1 FROM links m WHERE m.text = l.text AND NOT (m.image = ANY(?::text[])))"
        )
        return [int(key) for (key,) in self.tables.run(statement, list(images), list(images))]

    def _change_links(self, change: Change) -> None:
        if change.exact_texts:
            statement = "SELECT image, text FROM links WHERE text = ANY(?::text[])"
            stored = self.tables.run(statement, self.tables.ids(sorted(change.exact_texts)))
            self.remove_links(sorted({(image, text) for image, text in stored} - set(change.links)))
        self.insert_links(change.links)

    def _remember(self, hashes: Sequence[bytes]) -> None:
        for own in hashes:
            self.tables.run("INSERT INTO forgotten VALUES (?) ON CONFLICT DO NOTHING", own)

    def _note(self, update: JobUpdate) -> int:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        if update.number is not None and update.finished:
            self.tables.run("UPDATE jobs SET finished = ?, done = total WHERE number = ?", now, update.number)
        elif update.number is not None:
            self.tables.run("UPDATE jobs SET done = ? WHERE number = ?", update.done, update.number)
        if update.number is not None:
            return update.number
        source = update.source_json(ascii_only=self.ascii_source)
        same = (
            "SELECT number FROM jobs WHERE verb = ? AND source IS NOT DISTINCT FROM ? AND finished IS NULL "
            "ORDER BY number DESC LIMIT 1"
        )
        for (number,) in self.tables.run(same, update.verb, source):
            self.tables.run("UPDATE jobs SET total = ?, done = 0 WHERE number = ?", update.total, number)
            return int(number)
        statement = "INSERT INTO jobs (verb, source, started, done, total) VALUES (?, ?, ?, 0, ?) RETURNING number"
        ((number,),) = self.tables.run(statement, update.verb, source, now, update.total)
        return int(number)

    def _rows(self, side: Side, column: str, kind: str, values: Sequence[Any]) -> list[Row]:
        statement = f"SELECT {_COLUMNS} FROM items WHERE side = ? AND {column} = ANY(?::{kind}[])"
        rows = []
        for start in range(0, len(values), AT_ONCE):
            rows += self.tables.run(statement, SIDES.index(side), list(values[start : start + AT_ONCE]))
        return [Row(*columns) for columns in rows]
