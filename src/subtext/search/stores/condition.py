"""Conditions on what is known of items: typed, exact, and told in a sentence where they cannot mean anything."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Any, Literal, get_args

from subtext.errors import RequirementError
from subtext.search.stores.item import DATE, seconds

Value = str | int | float | date | datetime
Test = Literal["=", "!=", "<", "<=", ">", ">=", "in", "contains"]

TEXT, ID = "text", "id"
"""Fields that every item has: its words (of a picture: those of its texts), and its name."""

_WRITTEN = re.compile(r"\s*([^\s=<>!]+)\s*(!=|<=|>=|=|<|>|\bin\b|\bcontains\b)\s*(.+?)\s*", re.DOTALL)

Part = tuple[str, list[Any]]
"""SQL that gives keys, and its parameters."""


@dataclass(frozen=True)
class Condition:
    """One condition on a field of the metadata; several together have all to hold.

    field  a name of the metadata; "id"; or "text", the words of an item, which knows only "contains"
    test   = and != of texts, numbers and truth values; < <= > >= of numbers and dates; in: one of several values;
           contains: a part of a text, whatever the case. Of "text": all the words in their order, whole words
    value  for "in" a sequence; for "!=" one or several, none of which may be equal.
           A date compares with texts of ISO 8601; a day alone is its first moment, in UTC

    A field of several values fulfils a condition when one of them does; "!=" when none is equal.

    Raises RequirementError when test and value cannot mean anything together.
    """

    field: str
    test: Test
    value: Value | Sequence[Value]

    def __post_init__(self) -> None:
        if self.test not in get_args(Test):
            raise RequirementError(f"a condition needs one of {', '.join(get_args(Test))}; it got '{self.test}'")
        several = not isinstance(self.value, str | int | float | date)
        if several != (self.test == "in") and not (several and self.test == "!="):
            wanted = "several values" if self.test == "in" else "one value"
            raise RequirementError(f"'{self.field} {self.test}' needs {wanted}; it got {self.value!r}")
        if self.test == "contains" and not (isinstance(self.value, str) and self.value.strip()):
            raise RequirementError(f"'{self.field} contains' needs a text; it got {self.value!r}")
        if self.field == TEXT and self.test != "contains":
            raise RequirementError(f"'text' knows only contains; it got '{self.test}'")
        if self.test in ("<", "<=", ">", ">=") and (isinstance(self.value, str) or self.field == ID):
            raise RequirementError(f"'{self.field} {self.test}' needs a number or a date; it got {self.value!r}")

    def keys(self, side: int) -> Part:
        """SQL for the keys of that side's items that fulfil it."""
        if self.field == TEXT:
            return _with_words(side, str(self.value))
        if self.test == "!=":
            several = not isinstance(self.value, str | int | float | date)
            sql, values = Condition(self.field, "in" if several else "=", self.value).keys(side)
            return f"SELECT key FROM items WHERE side = ? EXCEPT {sql}", [side, *values]
        if self.field == ID:
            return self._of_ids(side)
        if self.test == "contains":
            sql = "side = ? AND name = ? AND typeof(value) = 'text' AND instr(fold(value), ?) > 0"
            return f"SELECT DISTINCT key FROM facets WHERE {sql}", [side, self.field, str(self.value).casefold()]
        if self.test == "in":
            assert not isinstance(self.value, str | int | float | date)
            return self._of_any(side, self.value)
        value, name = (
            (moment(self.value), self.field + DATE) if isinstance(self.value, date) else (self.value, self.field)
        )
        if self.test == "=":
            return "SELECT key FROM facets WHERE side = ? AND name = ? AND value = ?", [side, name, value]
        # Texts sort after numbers in SQLite: a range of numbers has to say that it ends before them.
        sql = f"side = ? AND name = ? AND value {self.test} ? AND typeof(value) IN ('integer', 'real')"
        return f"SELECT DISTINCT key FROM facets WHERE {sql}", [side, name, value]

    def _of_any(self, side: int, values: Sequence[Value]) -> Part:
        dates = [moment(value) for value in values if isinstance(value, date)]
        others = [value for value in values if not isinstance(value, date)]
        parts, given = [], []
        for name, some in ((self.field, others), (self.field + DATE, dates)):
            holders = ", ".join("?" * len(some))
            parts.append(f"SELECT key FROM facets WHERE side = ? AND name = ? AND value IN ({holders})")
            given += [side, name, *some]
        return " UNION ".join(parts), given

    def _of_ids(self, side: int) -> Part:
        if self.test == "contains":
            return "SELECT key FROM items WHERE side = ? AND instr(fold(id), ?) > 0", [side, str(self.value).casefold()]
        ids = list(self.value) if self.test == "in" and isinstance(self.value, Sequence) else [self.value]
        holders = ", ".join("?" * len(ids))
        return f"SELECT key FROM items WHERE side = ? AND id IN ({holders})", [side, *map(str, ids)]


def parse(text: str) -> Condition:
    """A condition as it is typed: `year >= 1990`, `place in Paris, Rome`, `title contains dog`, `taken < 2021-03-05`.

    A value in quotation marks is a text; else a number, `true`, `false` or a date is what it looks like, and for
    equality also the text that it is.

    Raises RequirementError for anything else.

    >>> parse("year>=1990"), parse('code = "7"').value
    (Condition(field='year', test='>=', value=1990), '7')
    >>> parse("code = 7").test, parse("code = 7").value
    ('in', [7, '7'])
    """
    found = _WRITTEN.fullmatch(text)
    if found is None:
        raise RequirementError(
            f"a condition needs the form FIELD TEST VALUE, as in 'year >= 1990'; it got {text!r}; tests are "
            f"{', '.join(get_args(Test))}"
        )
    field, test, written = found[1], found[2], found[3]
    if test == "contains" or field == TEXT:
        return Condition(field, test, written.strip("\"'"))  # type: ignore[arg-type]
    if test in ("=", "!=", "in"):
        pieces = [piece.strip() for piece in written.split(",")] if test == "in" else [written]
        values = [value for piece in pieces for value in _either(piece)]
        several = test == "in" or len(values) > 1
        return Condition(field, "!=" if test == "!=" else "in" if several else "=", values if several else values[0])
    return Condition(field, test, _either(written)[0])  # type: ignore[arg-type]


def require_fields(side: str, where: Sequence[Condition], known: Sequence[str]) -> None:
    """Raise RequirementError for a condition on a field that is not among those `known` on a side."""
    missing = sorted({condition.field for condition in where} - {TEXT, ID} - set(known))
    if missing:
        listed = ", ".join(known) or "none"
        raise RequirementError(
            f"a condition needs a field that some of the {side} have; none has '{missing[0]}'; there are {listed}, "
            "and text and id"
        )


def _either(written: str) -> list[Value]:
    """What a typed value may mean, the narrower first."""
    if len(written) > 1 and written[0] == written[-1] and written[0] in "\"'":
        return [written[1:-1]]
    if written in ("true", "false"):
        return [int(written == "true"), written]
    for kind in (int, float):
        try:
            return [kind(written), written]
        except ValueError:
            continue
    when = seconds(written)
    return [written] if when is None else [datetime.fromtimestamp(when, UTC), written]


def moment(value: date) -> float:
    """A date in seconds since 1970, in UTC unless it names an offset; a day alone is its first moment."""
    found = value if isinstance(value, datetime) else datetime.combine(value, time())
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _with_words(side: int, words: str) -> Part:
    phrase = '"' + words.replace('"', '""') + '"'
    if side == 1:
        return "SELECT rowid AS key FROM words WHERE words MATCH ?", [phrase]
    sql = (
        "SELECT DISTINCT i.key FROM words CROSS JOIN items t ON t.key = words.rowid "
        "CROSS JOIN links l ON l.text = t.id CROSS JOIN items i ON i.side = 0 AND i.id = l.image WHERE words MATCH ?"
    )
    return sql, [phrase]
