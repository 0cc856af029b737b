"""Conditions on the metadata of items: their meaning, the grammar in which they are typed, and what fulfils them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from subtext.errors import RequirementError
from subtext.search.stores.item import Side, plain

if TYPE_CHECKING:
    from subtext.search.stores.store import View

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
_SYNTAX = re.compile(r"\s*([^\s=<>!]+(?:\s+[^\s=<>!]+)*?)\s*([<>!]?=|<|>|(?<=\s)(?:in|contains)\b)\s*(.+?)\s*", re.S)


@dataclass(frozen=True)
class Condition:
    """One condition on a metadata field; several conditions all have to hold.

    field  a metadata field; "id"; or "text", the words of an item, which takes only "contains"
    test   = and != for texts, numbers and booleans; < <= > >= for numbers and dates; in: one of several values;
           contains: a substring, ignoring case; for "text" a phrase of whole words
    value  for "in" a sequence; for "!=" one value or several, none of which may be equal.
           A date is compared with texts in ISO 8601; a day without a time is the whole day, in UTC

    A field with several values fulfils a condition when one of them does, and "!=" when none is equal.

    Raises RequirementError when the value does not suit the test.
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
    compare it as a text.

    Raises RequirementError for anything else.

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
    """A date of ISO 8601: a day, or with a time a datetime in UTC; None for any other text."""
    when = seconds(text)
    return None if when is None else datetime.fromtimestamp(when, UTC) if text[10:] else date.fromisoformat(text)


def facets(metadata: Mapping[str, Any]) -> set[Facet]:
    """The values that metadata is filtered by: texts and numbers, those of lists, and the dates among the texts.

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
    """A date in seconds since 1970, in UTC unless it names an offset; a day alone is its first moment, or its last."""
    exact = value if isinstance(value, datetime) else datetime.combine(value, time.max if last else time.min)
    return (exact if exact.tzinfo else exact.replace(tzinfo=UTC)).timestamp()


def matching(view: View, side: Side, where: Sequence[Condition]) -> NDArray[np.int64]:
    """The keys of the items of an index that fulfil every condition, ascending.

    Raises RequirementError when no item of that side has a field of the conditions, or a limit is of another type than
    all its values.
    """
    names = {condition.field for condition in where} - {TEXT, ID}
    fields = view.fields(side) if names else []
    missing = sorted(names - set(fields))
    if missing:
        near = get_close_matches(missing[0], fields, n=1)
        meant = f"; the nearest: {_described(view, side, near[0])}" if near else ""
        raise RequirementError(
            f"a condition needs a field that some of the {side} have; none has '{missing[0]}'; there are "
            f"{', '.join(fields) or 'none'}, and text and id{meant}"
        )
    ordered = [condition for condition in where if condition.test in ORDER]
    for condition in [order for order in ordered if isinstance(order.value, str)]:
        _require_order(view, side, condition)
    keys = view.select(side, where) if where else view.keys(side)
    # A field of another type matches nothing: only then its type is looked at.
    for condition in ordered if not len(keys) else ():
        _require_order(view, side, condition)
    return keys


def _require_order(view: View, side: Side, condition: Condition) -> None:
    """Raise RequirementError where a field has nothing that the limit of a condition is compared with."""
    values = view.values(side, condition.field, most=0, choice=0)
    usable = values.dates is not None if isinstance(condition.value, date) else values.numbers
    if isinstance(condition.value, str) or not usable:
        advice = "name a day, as in 2021-03-05" if values.dates is not None else "test it by = or contains"
        advice = "name a number" if values.numbers else advice
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
