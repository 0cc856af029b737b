"""Conditions on the metadata of items: their meaning, the grammar in which they are typed, and what fulfils them."""

from __future__ import annotations

import math
import re
from calendar import monthrange
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from subtext.errors import RequirementError
from subtext.retrieval.stores.item import Side, plain

if TYPE_CHECKING:
    from subtext.retrieval.stores.store import View

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
_AND = re.compile(r"\sand\s+", re.I)
_SYNTAX = re.compile(r"\s*([^\s=<>!]+(?:\s+[^\s=<>!]+)*?)\s*([<>!]?=|<|>|(?<=\s)(?:in|contains)\b)\s*(.+?)\s*", re.S)


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


def parse(text: str) -> Condition:
    """A condition as it is typed: `year >= 1990`, `place in Paris, Rome`, `title contains dog`, `taken < 2021-03-05`.

    A value in quotation marks is a text. A number, `true`, `false` or a date is read as such; tests of equality also
    compare it as a text. A date is a day, 2021-03-05, with or without a time, or a month, 2021-03.

    Raises:
        RequirementError: For anything else.

    Example:
        >>> parse("year>=1990"), parse('code = "7"').value
        (Condition(field='year', test='>=', value=1990), '7')
        >>> parse("code = 7").test, parse("code = 7").value
        ('in', [7, '7'])
    """
    match = _SYNTAX.fullmatch(text)
    if match is None:
        raise RequirementError(
            f"a condition needs the form FIELD TEST VALUE, as in 'year >= 1990'; it got {text!r}; tests are "
            f"{', '.join(get_args(Test))}"
        )
    field, test, written = match[1], match[2], match[3]
    if written.startswith("="):
        raise RequirementError(f"a condition tests equality by one =; it got {text!r}; write '{field} = VALUE'")
    if test == "contains" or field == TEXT:
        return Condition(field, test, written.strip("\"'"))  # type: ignore[arg-type]
    if test == "in" and written[0] + written[-1] in ("()", "[]"):
        raise RequirementError(
            f"'{field} in' needs values without brackets; it got {written}; write '{field} in {written[1:-1]}'"
        )
    if test in ("=", "!=", "in"):
        texts = [text.strip() for text in written.split(",")] if test == "in" else [written]
        values = [value for text in texts for value in _readings(text)]
        several = test == "in" or len(values) > 1
        return Condition(field, "!=" if test == "!=" else "in" if several else "=", values if several else values[0])
    return Condition(field, test, _readings(written)[0])  # type: ignore[arg-type]


def _readings(written: str) -> list[Value]:
    """The values that a typed value may mean, the most specific first."""
    if len(written) > 1 and written[0] == written[-1] and written[0] in "\"'":
        return [written[1:-1]]
    if written in ("true", "false"):
        return [int(written == "true"), written]
    for kind in (int, float):
        with suppress(ValueError):
            return [kind(written), written]
    return [value for value in (dated(written), written) if value is not None]


def dated(text: str) -> date | None:
    """A date of ISO 8601: a year, a month, a day, or with a time a datetime in UTC; None for any other text."""
    if _PERIOD.fullmatch(text):
        with suppress(ValueError):
            return (Month if text[4:] else Year).fromisoformat(f"{text}-01-01"[:10])
    when = seconds(text)
    return None if when is None else datetime.fromtimestamp(when, UTC) if text[10:] else date.fromisoformat(text)


def facets(metadata: Mapping[str, Any]) -> set[Facet]:
    """The values that metadata is filtered by: texts and numbers, those of lists, and the dates among the texts.

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
    """A date in seconds since 1970, in UTC unless it names an offset; one without a time is its first or last."""
    if last and isinstance(value, Month):
        month = 12 if isinstance(value, Year) else value.month
        value = date(value.year, month, monthrange(value.year, month)[1])
    exact = value if isinstance(value, datetime) else datetime.combine(value, time.max if last else time.min)
    return (exact if exact.tzinfo else exact.replace(tzinfo=UTC)).timestamp()


def matching(view: View, side: Side, where: Sequence[Condition], *, strict: bool = True) -> NDArray[np.int64]:
    """The keys of the items of an index that fulfil every condition, ascending.

    Args:
        strict: Raises RequirementError when no item of that side has a field of the conditions, or a value is of
            another type than all values of its field, or goes on with another condition.
    """
    fields = view.fields(side) if where else []
    missing = sorted({condition.field for condition in where if strict} - {TEXT, ID, *fields})
    if missing:
        near = get_close_matches(missing[0], fields, n=1)
        meant = f"; the nearest: {_described(view, side, near[0])}" if near else ""
        raise RequirementError(
            f"a condition needs a field that some of the {side} have; none has '{missing[0]}'; there are "
            f"{', '.join(fields) or 'none'}, and text and id{meant}"
        )
    for condition in where if strict else ():
        if condition.test in ORDER and isinstance(condition.value, str):
            _check_values_exist(view, side, condition, fields)
    readings = [_read(view, side, condition) for condition in where]
    keys = view.select(side, [reading[0] for reading in readings if len(reading) == 1]) if where else view.keys(side)
    for reading in readings:
        if len(reading) > 1:
            keys = np.intersect1d(keys, np.concatenate([view.select(side, [condition]) for condition in reading]))
    # A field of another type matches nothing: only then its type is looked at.
    for condition in where if strict else ():
        if not len(keys) or condition.test == "!=":
            _check_values_exist(view, side, condition, fields)
    return keys


def missed(view: View, side: Side, where: Sequence[Condition], keys: NDArray[np.int64]) -> tuple[str, ...]:
    """Notes on values that no item has: of "!=", and of "=" and "in" where the conditions leave no keys."""
    notes = []
    for condition in where:
        name, equal = condition.field, condition.test == "!=" or (condition.test in ("=", "in") and not len(keys))
        for value in _lacking(view, side, condition) if equal else ():
            common = view.values(side, name, most=5_000, choice=2**62).common
            plain = {str(item).casefold(): f"'{item}'" for item, _ in reversed(common)}
            close = ", ".join(plain[match] for match in get_close_matches(value.casefold(), plain))
            hint = f"; the nearest: {close}" if close else f"; {_described(view, side, name)}" if common else ""
            notes.append(f"no {side[:-1]} has {name} '{value[:72]}'{hint}")
    return tuple(notes)


def _lacking(view: View, side: Side, condition: Condition) -> list[str]:
    """The first texts of a condition that no item has as a value; of "text", whatever is looked for."""
    texts = [value for value in condition.values[:20] if isinstance(value, str)]
    return [text for text in texts if condition.field == TEXT or not _some(view, side, condition.field, text)]


def _some(view: View, side: Side, name: str, typed: str) -> bool:
    """Whether some item has the value that is typed so."""
    values = [value for value in _readings(typed) if not isinstance(value, int) or abs(value) < 2**63]
    return bool(len(view.select(side, _read(view, side, Condition(name, "in", [*values, typed])))))


def _has_dates(view: View, side: Side, field: str) -> bool:
    """Whether some value of a field is a date with a day."""
    cached = f"dates in {field} of {side}"
    if cached not in view.cache:
        view.cache[cached] = view.values(side, field + DATE, most=0, choice=0).numbers
    return bool(view.cache[cached])


def _read(view: View, side: Side, condition: Condition) -> list[Condition]:
    """Conditions of which one has to hold: on a field with dates, a number of four digits is a year as well."""
    years = [Year(value, 1, 1) for value in condition.values if type(value) is int and 1000 <= value <= 9999]
    if not years or condition.field == ID or not _has_dates(view, side, condition.field):
        return [condition]
    if condition.test in ORDER:
        return [condition, replace(condition, value=years[0])]
    texts = [f"{year}{month}" for year in years for month in ("", *(f"-{number:02}" for number in range(1, 13)))]
    return [Condition(condition.field, "!=" if condition.test == "!=" else "in", [*condition.values, *years, *texts])]


def _check_values_exist(view: View, side: Side, condition: Condition, fields: Sequence[str]) -> None:
    """Raise RequirementError where a value is not one value that the field is compared with."""
    name, test = condition.field, condition.test
    for value in _lacking(view, side, condition):
        for second in (_SYNTAX.fullmatch(value, cut.end()) for cut in _AND.finditer(value)):
            if second and second[1] in (TEXT, ID, *fields):
                advice = f"it got {value!r}; give each condition its own --where (in Python: several conditions)"
                raise RequirementError(f"'{name} {test}' needs a value without a further condition; {advice}")
        parts = value.split()
        if test == "in" and len(parts) > 1 and all(_some(view, side, name, part) for part in parts):
            advice = f"it got {value!r}; write '{name} in {', '.join(parts)}'"
            raise RequirementError(f"'{name} in' needs commas between its values; {advice}")
        if test in ("=", "!=", "in") and dated(value) is None and _has_dates(view, side, name):
            _require_comparable(view, side, Condition(name, "!=" if test == "!=" else "=", value))
    if test in ORDER:
        _require_comparable(view, side, _read(view, side, condition)[-1])


def _require_comparable(view: View, side: Side, condition: Condition) -> None:
    """Raise RequirementError where a field has nothing that the value of a condition is compared with."""
    values = view.values(side, condition.field, most=0, choice=0)
    usable = values.dates is not None if isinstance(condition.value, date) else values.numbers
    if isinstance(condition.value, str) or not usable:
        day = "name a day, a month or a year, as in 2021-03-05"
        advice = "name a number" if values.numbers else day if values.dates is not None else "test it by = or contains"
        raise RequirementError(
            f"'{condition.field} {condition.test}' needs a number or a date to compare with; it got "
            f"{str(condition.value)!r}; {_described(view, side, condition.field)}; {advice}"
        )


def _described(view: View, side: Side, name: str) -> str:
    """A field with its type and three of its values, for a message."""
    values = view.values(side, name, most=3, choice=2**62)
    kind = "a number" if not values.texts else "a date" if values.dates is not None else "text"
    kind = "text and numbers" if values.texts and values.numbers else kind
    return f"'{name}' is {kind} ({', '.join(str(value) for value, _ in values.common)})"
