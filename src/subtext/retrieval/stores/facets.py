"""Conditions on the metadata of items, and the facets by which they are fulfilled."""

from __future__ import annotations

import math
import re
from calendar import monthrange
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Any, Literal, get_args

from subtext.errors import RequirementError
from subtext.retrieval.stores.item import plain

Value = str | int | float | date | datetime
Test = Literal["=", "!=", "<", "<=", ">", ">=", "in", "contains"]

ORDER = ("<", "<=", ">", ">=")
TEXT, ID = "text", "id"
"""Fields that every item has: its text (of an image: its captions), and its id."""

Facet = tuple[str, str | int | float]
"""A metadata field and one of its values."""
DATE = "@"
"""Suffix of the facet that holds a date in seconds; a field of dates has this facet beside its texts."""

_ISO = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}.*)?")
_PERIOD = re.compile(r"\d{4}(-\d\d)?", re.ASCII)


class Month(date):
    """All days of a month; as a date, the first of them."""

    def __str__(self) -> str:
        return self.isoformat()[: 4 if isinstance(self, Year) else 7]


class Year(Month):
    """All days of a year."""


@dataclass(frozen=True)
class Condition:
    """One condition on a metadata field; several conditions all have to hold.

    A field with several values fulfils a condition when one of them does, and "!=" when none is equal.

    Attributes:
        field: A metadata field; "id"; or "text", the words of an item, which takes only "contains".
        test: = and != for texts, numbers and booleans; < <= > >= for numbers and dates; in: one of several values;
            contains: a substring, ignoring case; for "text" a phrase of whole words.
        value: For "in" a sequence; for "!=" one value or several, none of which may be equal. A date is compared with
            texts in ISO 8601; a day without a time is the whole day, in UTC. On a field with dates a number of four
            digits is that year, too: "=" any day of it, "<" before it, ">" after it. A stored year or month ("1958",
            "1958-07") is equal to itself and its year; it has no order.

    Raises:
        RequirementError: If the value does not suit the test.
    """

    field: str
    test: Test
    value: Value | Sequence[Value]

    def __post_init__(self) -> None:
        if self.test not in get_args(Test):
            raise RequirementError(f"a condition needs one of {', '.join(get_args(Test))}; it got '{self.test}'")
        several = not isinstance(self.value, str | int | float | date)
        if several != (self.test == "in") and not (several and self.test == "!="):
            expected = "several values" if self.test == "in" else "one value"
            raise RequirementError(f"'{self.field} {self.test}' needs {expected}; it got {self.value!r}")
        if self.test == "contains" and not (isinstance(self.value, str) and self.value.strip()):
            raise RequirementError(f"'{self.field} contains' needs a text; it got {self.value!r}")
        if self.field == TEXT and self.test != "contains":
            raise RequirementError(f"'text' takes only contains; it got '{self.test}'")
        if self.test in ORDER and self.field == ID:
            raise RequirementError(f"'id {self.test}' has no meaning; ids have no order; it got {self.value!r}")

    @property
    def values(self) -> Sequence[Value]:
        """The value, or all of several."""
        return [self.value] if isinstance(self.value, str | int | float | date) else self.value


def facets(metadata: Mapping[str, Any]) -> set[Facet]:
    """The values that metadata is filtered by: texts and numbers, those of lists, and the dates among the texts.

    Args:
        metadata: Metadata of one item.

    Returns:
        (field, value) of each text, number and date.

    Example:
        >>> sorted(facets({"year": 1990, "tags": ["a", "b"], "map": {"x": 1}, "none": None}))
        [('tags', 'a'), ('tags', 'b'), ('year', 1990)]
        >>> [name for name, _ in sorted(facets({"taken": "2021-03-05"}))]
        ['taken', 'taken@']
    """
    result: set[Facet] = set()
    for name, content in metadata.items():
        for element in content if isinstance(content, list | tuple | set) else [content]:
            value = element if isinstance(element, str | int | float) else plain(element)
            if isinstance(value, int):
                # SQLite holds 64 bits; a boolean is filtered by as 0 or 1.
                result.add((name, int(value) if abs(value) < 2**63 else str(value)))
            elif isinstance(value, str) or (isinstance(value, float) and math.isfinite(value)):
                result.add((name, value))
                if isinstance(value, str) and (when := seconds(value)) is not None:
                    result.add((name + DATE, when))
    return result


def seconds(text: str) -> float | None:
    """A date of ISO 8601 as seconds since 1970, in UTC unless it names an offset; None for any other text.

    Args:
        text: Any text.

    Returns:
        Seconds since 1970, or None.

    Example:
        >>> seconds("1970-01-02"), seconds("1970-01-01T01:00:00+01:00"), seconds("1936")
        (86400.0, 0.0, None)
    """
    if not _ISO.fullmatch(text):
        return None
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def moment(value: date, *, last: bool = False) -> float:
    """A date in seconds since 1970, in UTC unless it names an offset; one without a time is its first or last.

    Args:
        value: A date, a datetime, a month or a year.
        last: Takes the last moment of a day, month or year, not the first.

    Returns:
        Seconds since 1970.
    """
    if last and isinstance(value, Month):
        month = 12 if isinstance(value, Year) else value.month
        value = date(value.year, month, monthrange(value.year, month)[1])
    exact = value if isinstance(value, datetime) else datetime.combine(value, time.max if last else time.min)
    return (exact if exact.tzinfo else exact.replace(tzinfo=UTC)).timestamp()


def dated(text: str) -> date | None:
    """A date of ISO 8601: a year, a month, a day, or with a time a datetime in UTC; None for any other text.

    Args:
        text: Any text.

    Returns:
        A year, month, day or datetime; None for any other text.
    """
    if _PERIOD.fullmatch(text):
        with suppress(ValueError):
            return (Month if text[4:] else Year).fromisoformat(f"{text}-01-01"[:10])
    when = seconds(text)
    return None if when is None else datetime.fromtimestamp(when, UTC) if text[10:] else date.fromisoformat(text)
