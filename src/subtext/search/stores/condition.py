"""Conditions on the metadata of items: their meaning, and the grammar in which they are typed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Literal, get_args

from subtext.errors import RequirementError
from subtext.search.stores.item import seconds

Value = str | int | float | date | datetime
Test = Literal["=", "!=", "<", "<=", ">", ">=", "in", "contains"]

ORDER = ("<", "<=", ">", ">=")
TEXT, ID = "text", "id"
"""Fields that every item has: its text (of an image: its captions), and its id."""

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


def moment(value: date, *, last: bool = False) -> float:
    """A date in seconds since 1970, in UTC unless it names an offset; a day alone is its first moment, or its last."""
    exact = value if isinstance(value, datetime) else datetime.combine(value, time.max if last else time.min)
    return (exact if exact.tzinfo else exact.replace(tzinfo=UTC)).timestamp()
