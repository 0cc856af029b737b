"""Conditions on metadata as they are typed, and the items of an index that fulfil them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date
from difflib import get_close_matches
from itertools import islice
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from subtext.errors import RequirementError
from subtext.retrieval.stores.facets import DATE, ID, ORDER, TEXT, Condition, Test, Value, Year, dated
from subtext.retrieval.stores.item import Side
from subtext.retrieval.stores.store import View

_AND = re.compile(r"\sand\s+", re.I)
_SYNTAX = re.compile(r"\s*([^\s=<>!]+(?:\s+[^\s=<>!]+)*?)\s*([<>!]?=|<|>|(?<=\s)(?:in|contains)\b)\s*(.+?)\s*", re.S)


SUGGESTED = 3
"""Words or values of a query that get a suggestion."""
LOOKED_AT = 10
"""Values of a condition that are looked up when nothing meets it."""
LONG = 300
"""Letters of a value in which a further condition is looked for."""
LETTERS = 50_000
"""Letters that are compared for a suggestion: those of the text, times the number of candidates."""


def near_texts(text: str, candidates: Sequence[str], count: int, *, cutoff: float) -> list[str]:
    """The candidates that are most like a text (Ratcliff and Obershelp 1988), within a bounded time.

    Args:
        text: The text.
        candidates: The most common first: those that come late are not compared with a long text.
        count: Number of candidates wanted.
        cutoff: Least similarity, from 0 to 1.

    Returns:
        `count` candidates or fewer, the most similar first.

    Example:
        >>> near_texts("pariss", ["Paris", "paris", "Rome"], 1, cutoff=0.6)
        ['paris']
    """
    return get_close_matches(text, candidates[: LETTERS // max(1, len(text))], count, cutoff)


def parse(text: str) -> Condition:
    """A condition as it is typed: `year >= 1990`, `place in Paris, Rome`, `title contains dog`, `taken < 2021-03-05`.

    A value in quotation marks is a text. A number, `true`, `false` or a date is read as such; tests of equality also
    compare it as a text. A date is a day, 2021-03-05, with or without a time, or a month, 2021-03.

    Args:
        text: FIELD TEST VALUE.

    Returns:
        The condition.

    Raises:
        RequirementError: For a text of another form.

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


def as_conditions(where: Sequence[Condition | str]) -> tuple[Condition, ...]:
    """Conditions, of which those that are texts are parsed.

    Args:
        where: Conditions, or texts such as "year >= 1990".

    Returns:
        As many conditions, in their order.

    Raises:
        RequirementError: For a text that is no condition.
    """
    return tuple(parse(condition) if isinstance(condition, str) else condition for condition in where)


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


def matching(view: View, side: Side, where: Sequence[Condition], *, strict: bool = True) -> NDArray[np.int64]:
    """The keys of the items of an index that fulfil every condition.

    Args:
        view: The index at one moment.
        side: "images" or "texts".
        where: Conditions on the metadata; all must be true.
        strict: Refuses a field that no item of the side has, and a value that cannot occur in its field.

    Returns:
        (N) int64 keys, ascending.

    Raises:
        RequirementError: With `strict`: for an unknown field, a value of another type than the field's values, or a
            value that contains another condition.
    """
    fields = view.fields(side) if where else []
    missing = sorted({condition.field for condition in where if strict} - {TEXT, ID, *fields})
    if missing:
        near = near_texts(missing[0], fields, 1, cutoff=0.6)
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


def missed(view: View, side: Side, where: Sequence[Condition], *, nothing: bool) -> tuple[str, ...]:
    """Notes on values of conditions that no item has.

    Args:
        view: The index at one moment.
        side: "images" or "texts".
        where: Conditions on the metadata; all must be true.
        nothing: Whether no item fulfils them all.

    Returns:
        A sentence per value of "!=", and of "=" and "in" with `nothing`; the first SUGGESTED name similar values.
    """
    notes: list[str] = []
    for condition in where:
        name, equal = condition.field, condition.test == "!=" or (condition.test in ("=", "in") and nothing)
        values = _lacking(view, side, condition) if equal and len(notes) < LOOKED_AT else []
        common = view.values(side, name, limit=5_000, max_distinct=2**62).common if values else []
        plain = {str(item).casefold(): f"'{item}'" for item, _ in reversed(common)}
        ordered = list(reversed(plain))
        for value in values:
            close = near_texts(value.casefold(), ordered, 3, cutoff=0.6) if len(notes) < SUGGESTED else []
            near = f"; the nearest: {', '.join(plain[match] for match in close)}" if close else ""
            hint = near or (f"; {_described(view, side, name)}" if common and len(notes) < SUGGESTED else "")
            notes.append(f"no {side[:-1]} has {name} '{value[:72]}'{hint}")
        if equal and len(condition.values) > LOOKED_AT:
            notes.append(f"of the {len(condition.values)} values of '{name}' the first {LOOKED_AT} were looked up")
    return tuple(notes)


def _lacking(view: View, side: Side, condition: Condition) -> list[str]:
    """Of the first values of a condition, the texts that no item has; of "text", whatever is looked for."""
    texts = [value for value in condition.values[:LOOKED_AT] if isinstance(value, str)]
    return [text for text in texts if condition.field == TEXT or not _some(view, side, condition.field, text)]


def _some(view: View, side: Side, name: str, typed: str) -> bool:
    """Whether some item has the value that is typed so."""
    values = [value for value in _readings(typed) if not isinstance(value, int) or abs(value) < 2**63]
    return bool(len(view.select(side, _read(view, side, Condition(name, "in", [*values, typed])))))


def _has_dates(view: View, side: Side, field: str) -> bool:
    """Whether some value of a field is a date with a day."""
    cached = f"dates in {field} of {side}"
    if cached not in view.cache:
        view.cache[cached] = view.values(side, field + DATE, limit=0, max_distinct=0).has_numbers
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
        # A value that holds a condition is short; the pattern takes longer the longer the value is, squared.
        cuts = islice(_AND.finditer(value), SUGGESTED) if len(value) <= LONG else ()
        for second in (_SYNTAX.fullmatch(value, cut.end()) for cut in cuts):
            if second and second[1] in (TEXT, ID, *fields):
                advice = f"it got {value!r}; give each condition its own --where (in Python: several conditions)"
                raise RequirementError(f"'{name} {test}' needs a value without a further condition; {advice}")
        parts = value.split()
        if test == "in" and 1 < len(parts) <= LOOKED_AT and all(_some(view, side, name, part) for part in parts):
            advice = f"it got {value!r}; write '{name} in {', '.join(parts)}'"
            raise RequirementError(f"'{name} in' needs commas between its values; {advice}")
        if test in ("=", "!=", "in") and dated(value) is None and _has_dates(view, side, name):
            _require_comparable(view, side, Condition(name, "!=" if test == "!=" else "=", value))
    if test in ORDER:
        _require_comparable(view, side, _read(view, side, condition)[-1])


def _require_comparable(view: View, side: Side, condition: Condition) -> None:
    """Raise RequirementError where a field has nothing that the value of a condition is compared with."""
    values = view.values(side, condition.field, limit=0, max_distinct=0)
    usable = values.date_range is not None if isinstance(condition.value, date) else values.has_numbers
    if isinstance(condition.value, str) or not usable:
        day = "name a day, a month or a year, as in 2021-03-05"
        advice = (
            "name a number"
            if values.has_numbers
            else day
            if values.date_range is not None
            else "test it by = or contains"
        )
        raise RequirementError(
            f"'{condition.field} {condition.test}' needs a number or a date to compare with; it got "
            f"{str(condition.value)!r}; {_described(view, side, condition.field)}; {advice}"
        )


def _described(view: View, side: Side, name: str) -> str:
    """A field with its type and three of its values, for a message."""
    values = view.values(side, name, limit=3, max_distinct=2**62)
    kind = "a number" if not values.has_texts else "a date" if values.date_range is not None else "text"
    kind = "text and numbers" if values.has_texts and values.has_numbers else kind
    return f"'{name}' is {kind} ({', '.join(str(value) for value, _ in values.common)})"
