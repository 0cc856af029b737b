"""Conditions on the metadata of items, and the facets by which they are fulfilled."""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any, Literal, get_args

from subtext.data.dates import END, DateInterval, interval_of, read_date, year_interval
from subtext.errors import RequirementError
from subtext.retrieval.stores.item import plain
from subtext.retrieval.words import fold

Value = str | int | float | DateInterval | date
Test = Literal["=", "!=", "<", "<=", ">", ">=", "in", "contains"]

ORDER = ("<", "<=", ">", ">=")
TEXT, ID = "text", "id"
"""Fields that every item has: its text (of an image: its captions), and its id."""

Facet = tuple[str, str | int | float]
"""A metadata field and one of its values."""
DATE, NUMBER = "\x1fdate", "\x1fnumber"
"""Suffixes of the facets that hold what a text says as a date, see `sortable`, and as a number."""
DIGITS = 18
"""Of each end of an interval in a facet."""

_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,300})(?:\.\d{1,40})?", re.ASCII)
"""A number in a text; 007 is a name."""
_COMPARISONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_OFFSET = re.compile(r".*\d:\d\d\S*?\s*(?:Z|UTC|[+-]\d\d(?::?\d\d)?)", re.ASCII | re.I)
"""A time with its offset from UTC."""


@dataclass(frozen=True)
class Condition:
    """One condition on a metadata field; several conditions all have to hold.

    A field with several values fulfils a condition when one of them does, and "!=" when none is equal.

    Attributes:
        field: A metadata field; "id"; or "text", the words of an item, which takes only "contains".
        test: = and != for texts, numbers and booleans; < <= > >= for numbers and dates; in: one of several values;
            contains: a substring, ignoring case; for "text" a phrase of whole words.
        value: For "in" a sequence; for "!=" one value or several, none of which may be equal. Texts are equal whatever
            their case, accents and spaces; see `words.fold`. Dates, `data.dates.DateInterval` or those of Python, are
            compared with all texts that are dates. On a field with dates a whole number is that year, too.
        certain: A date, which lies somewhere between its first and its last day, has to fulfil the condition wherever
            it lies; by default somewhere is enough.

    Raises:
        RequirementError: If the value does not suit the test.
    """

    field: str
    test: Test
    value: Value | Sequence[Value]
    certain: bool = False

    def __post_init__(self) -> None:
        if self.test not in get_args(Test):
            raise RequirementError(f"a condition needs one of {', '.join(get_args(Test))}; it got '{self.test}'")
        several = not isinstance(self.value, str | int | float | date | DateInterval)
        if several != (self.test == "in") and not (several and self.test == "!="):
            expected = "several values" if self.test == "in" else "one value"
            raise RequirementError(f"'{self.field} {self.test}' needs {expected}; it got {self.value!r}")
        if any(_has_offset(value) for value in self.values if self.test in ORDER):
            raise RequirementError(
                f"'{self.field} {self.test}' compares the clock where an image was taken; it got {self.value}; leave "
                "out the offset from UTC"
            )
        if self.test == "contains" and not (isinstance(self.value, str) and self.value.strip()):
            raise RequirementError(f"'{self.field} contains' needs a text; it got {self.value!r}")
        if self.field == TEXT and self.test != "contains":
            raise RequirementError(f"'text' takes only contains; it got '{self.test}'")
        if self.test in ORDER and self.field == ID:
            raise RequirementError(f"'id {self.test}' has no meaning; ids have no order; it got {self.value!r}")

    @property
    def values(self) -> Sequence[Value]:
        """The value, or all of several."""
        return [self.value] if isinstance(self.value, str | int | float | date | DateInterval) else self.value

    @property
    def dates(self) -> list[DateInterval]:
        """Those of the values that are dates."""
        return [interval_of(value) for value in self.values if isinstance(value, DateInterval | date)]

    @property
    def others(self) -> list[str | int | float]:
        """Those of the values that are no dates."""
        return [value for value in self.values if isinstance(value, str | int | float)]


@dataclass(frozen=True)
class AnyOf:
    """Conditions on metadata fields or ids of which one list has to hold as a whole.

    Attributes:
        alternatives: The lists.
        negated: None of them may hold.
    """

    alternatives: Sequence[Sequence[Condition]]
    negated: bool = False


def _has_offset(value: Value) -> bool:
    """Whether a date and time names its offset from UTC."""
    if isinstance(value, DateInterval):
        return _OFFSET.fullmatch(value.text) is not None
    return isinstance(value, datetime) and value.tzinfo is not None


def facets(metadata: Mapping[str, Any]) -> set[Facet]:
    """The values that metadata is filtered by: texts and numbers, also in lists and objects, and what texts say.

    Of texts that are folded alike there is one. A field of an object is "object.field".

    Args:
        metadata: Metadata of one item.

    Returns:
        (field, value) of each text, number and date.

    Example:
        >>> sorted(facets({"year": 1990, "tags": ["a", "A", "b"], "map": {"x": 1}, "none": None}))
        [('map.x', 1), ('tags', 'A'), ('tags', 'b'), ('year', 1990)]
        >>> [name.partition(chr(31))[2] for name, _ in sorted(facets({"size": "12", "taken": "um 1900"}))]
        ['', 'number', '', 'date']
    """
    result: set[Facet] = set()
    texts: dict[tuple[str, str], str] = {}
    for name, value in _scalars(metadata, ""):
        if not isinstance(value, str):
            result.add((name, value))
            continue
        folded, date, number = _said(value)
        texts[name, folded] = min(value, texts.get((name, folded), value))
        if date is not None:
            result.add((name + DATE, date))
        if number is not None:
            result.add((name + NUMBER, number))
    return result | {(name, value) for (name, _), value in texts.items()}


def fulfils(condition: Condition | AnyOf, name: str, values: set[Facet]) -> bool:
    """Whether an item fulfils a condition on its id or its metadata; what stores search is this.

    Args:
        condition: The condition; not one on its text.
        name: Id of the item.
        values: What `facets` gives of its metadata.

    Returns:
        True if it does.

    Example:
        >>> [fulfils(Condition("tags", "in", ["a", 7]), "p1", facets({"tags": tags})) for tags in (["A", "b"], "b")]
        [True, False]
    """
    if isinstance(condition, AnyOf):
        parts = (all(fulfils(one, name, values) for one in own) for own in condition.alternatives)
        return any(parts) != condition.negated
    field, test = condition.field, condition.test
    if test == "!=":
        # What certainly is equal is not possibly unequal.
        return not fulfils(Condition(field, "in", list(condition.values), not condition.certain), name, values)
    own = [name] if field == ID else [value for other, value in values if other == field]
    if test == "contains":
        part = fold(str(condition.value))
        return any(part in fold(value) for value in own if isinstance(value, str))
    dates = [str(value) for other, value in values if other == field + DATE]
    kind = "=" if test == "in" else test
    tests = [interval_tests(kind, interval, certain=condition.certain) for interval in condition.dates]
    if any(_meets(one, of) for one in dates for of in tests):
        return True
    if kind == "=":
        wanted = {fold(value) if isinstance(value, str) else value for value in condition.others}
        return any((fold(value) if isinstance(value, str) else value) in wanted for value in own)
    limits = [value for value in condition.others if not isinstance(value, str)]
    numbers = [value for value in own if not isinstance(value, str)]
    return any(_COMPARISONS[test](number, limit) for number in numbers for limit in limits)


def _meets(written: str, tests: Mapping[str, str]) -> bool:
    """Whether the ends of a date, as texts of digits, fulfil what `interval_tests` gave."""
    ends = {"first": written[:DIGITS], "last": written[DIGITS:]}
    split = [(*test.split(), limit) for test, limit in tests.items()]
    return all(ends[end] < limit if sign == "<" else ends[end] >= limit for end, sign, limit in split)


@lru_cache(1 << 16)
def _said(text: str) -> tuple[str, str | None, int | float | None]:
    """What a text is as it is compared, as a date and as a number; many items have the same one."""
    interval = read_date(text)
    number = json.loads(text) if _NUMBER.fullmatch(text) else None
    return fold(text), None if interval is None else sortable(interval), number


def item_words(name: str, path: str | None, metadata: Mapping[str, Any]) -> str:
    """The words that an image is found by, whatever it shows: of its id, its file name and its metadata.

    Args:
        name: Id of the image.
        path: Its file; None for none.
        metadata: Its metadata.

    Returns:
        A text of these.

    Example:
        >>> item_words("a/1987-118.jpg", "a/1987-118.jpg", {"place": "Köln", "years": [1923, 1924], "map": {"x": 1}})
        'a/1987-118 Köln 1923 1924 1'
    """
    # All files may end alike, which says nothing of any.
    file = PurePosixPath(path or "")
    names = [name.removesuffix(file.suffix), *([] if name.endswith(file.name) else [file.stem])]
    # A split says how the data was divided, and nothing of an image: "train" is to find trains.
    own = {field: value for field, value in metadata.items() if field != "split"}
    return " ".join([*names, *(str(value) for _, value in _scalars(own, ""))])


def _scalars(metadata: Mapping[str, Any], prefix: str) -> Iterator[Facet]:
    """The texts and numbers of metadata; a boolean is filtered by as 0 or 1."""
    for name, content in metadata.items():
        for element in content if isinstance(content, list | tuple | set) else [content]:
            value = element if isinstance(element, str | int | float | Mapping) else plain(element)
            if isinstance(value, Mapping):
                yield from _scalars(value, f"{prefix}{name}.")
            elif isinstance(value, int):
                yield f"{prefix}{name}", int(value)
            elif isinstance(value, str) or (isinstance(value, float) and math.isfinite(value)):
                yield f"{prefix}{name}", value


def sortable(interval: DateInterval) -> str:
    """An interval as a text of digits: the first second and the last, in order as texts are.

    Args:
        interval: The interval.

    Returns:
        Twice `DIGITS` digits.
    """
    return digits(interval.first) + digits(min(interval.last, END - 2))


def digits(seconds: int) -> str:
    """One end of an interval as a text of digits.

    Args:
        seconds: Seconds since 1970.

    Returns:
        `DIGITS` digits, 0 for `-END`.
    """
    return f"{min(max(seconds, -END), END - 1) + END:0{DIGITS}d}"


def interval_at(text: str) -> tuple[int, int]:
    """First and last second of a facet.

    Args:
        text: What `sortable` returned.

    Returns:
        The seconds, `END` for an open end.
    """
    first, last = (int(part) - END for part in (text[:DIGITS], text[DIGITS:]))
    return first, END if last == END - 2 else last


def interval_tests(test: str, interval: DateInterval, *, certain: bool) -> dict[str, str]:
    """How the ends of a stored interval compare with those of one in a condition, as texts of digits.

    Args:
        test: "=", "<", "<=", ">" or ">=".
        interval: The value of the condition.
        certain: Every second of the stored interval has to fulfil the test, not some second.

    Returns:
        "first <", "first >=", "last <" or "last >=" -> the text it is compared with; all of them have to hold.

    Example:
        >>> from subtext.data.dates import year_interval
        >>> list(interval_tests("=", year_interval(1890), certain=False))
        ['first <', 'last >=']
    """
    begin, after = digits(interval.first), digits(interval.last + 1)
    possible = {
        "<": {"first <": begin},
        "<=": {"first <": after},
        ">": {"last >=": after},
        ">=": {"last >=": begin},
        "=": {"first <": after, "last >=": begin},
    }
    exchanged = {"first": "last", "last": "first"}
    tests = possible[test]
    return {f"{exchanged[end.split()[0]]} {end.split()[1]}": text for end, text in tests.items()} if certain else tests


def earliest(metadata: Mapping[str, Any], field: str) -> tuple[int, int] | None:
    """First and last second of the earliest date of a field; a whole number is a year.

    Args:
        metadata: Metadata of one item.
        field: The field.

    Returns:
        The seconds; None without a date.
    """
    values = facets(metadata)
    dates = [interval_at(str(value)) for name, value in values if name == field + DATE]
    years = [
        year_interval(value)
        for name, value in values
        if name == field and type(value) is int and -9999 <= value <= 9999
    ]
    return min([*dates, *((year.first, year.last) for year in years)], default=None)


Place = tuple[int, int, int]
"""Where an item stands in the order of dates: whether it has none, and two numbers."""


def place_of(date: tuple[int, int] | None, *, descending: bool) -> Place:
    """Where a date stands among others, undated last; what is open at one end stands at the other.

    Args:
        date: First and last second; None for none.
        descending: The latest comes first.

    Returns:
        A place, which sorts as the items do.

    Example:
        >>> dates = [None, (5, 6), (1, 2), (5, 5), (-END, 3)]
        >>> sorted(range(5), key=lambda row: place_of(dates[row], descending=False))
        [2, 4, 3, 1, 0]
    """
    if date is None:
        return 1, 0, 0
    first, last = date
    begin, end = last if first <= -END else first, first if last >= END else last
    return (0, -begin, -end) if descending else (0, begin, end)
