"""Conditions on metadata as they are typed, and the items of an index that fulfil them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from itertools import islice
from typing import get_args

import numpy as np

from subtext.data.dates import END, DateInterval, read_date, year_interval, year_of
from subtext.errors import RequirementError
from subtext.retrieval.answer import DateCounts
from subtext.retrieval.stores.facets import (
    DATE,
    ID,
    NUMBER,
    ORDER,
    TEXT,
    AnyOf,
    Condition,
    Place,
    Test,
    Value,
    place_of,
)
from subtext.retrieval.stores.item import Side
from subtext.retrieval.stores.store import Keys, View
from subtext.retrieval.words import fold

_AND = re.compile(r"\sand\s+", re.I)
_SYNTAX = re.compile(r"\s*([^\s=<>!]+(?:\s+[^\s=<>!]+)*?)\s*([<>!]?=|<|>|(?<=\s)(?:in|contains)\b)\s*(.+?)\s*", re.S)
_QUOTED = r"""(["'])((?:(?!\1).|\1\1)*)\1"""
"""A value in quotation marks, of which those inside are doubled."""
_WHOLE, _NEXT = re.compile(_QUOTED, re.S), re.compile(rf"\s*(?:{_QUOTED}\s*|([^,]*)),", re.S)
_NUMBER = re.compile(r"[+-]?(?:0|[1-9]\d*)(\.\d+)?(?:e[+-]?\d+)?|[+-]?(\.\d+)", re.ASCII | re.I)
"""A number; 007 is a name, and -0043 a year."""
_EVER = DateInterval(-END, END, "")


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
    """A condition as it is typed: `year >= 1990`, `place in Paris, Rome`, `title contains dog`, `taken < um 1900`.

    A value in quotation marks is a text, and may have commas; a quotation mark inside it is doubled. A number, `true`,
    `false` or a date of any notation is read as such; tests of equality also compare it as a text.

    Args:
        text: FIELD TEST VALUE.

    Returns:
        The condition.

    Raises:
        RequirementError: For a text of another form.

    Example:
        >>> parse("year>=1990"), parse('code = "7"').value
        (Condition(field='year', test='>=', value=1990, certain=False), '7')
        >>> parse("code = 7").value, parse('place in "Paris, Texas", Rome').value
        ([7, '7'], ['Paris, Texas', 'Rome'])
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
        quoted = _WHOLE.fullmatch(written)
        return Condition(field, test, _unquoted(quoted) if quoted else written)  # type: ignore[arg-type]
    if test == "in" and _is_bracketed(written):
        raise RequirementError(
            f"'{field} in' needs values without brackets; it got {written}; write '{field} in {written[1:-1]}'"
        )
    value, *others = _values(written) if test == "in" else _readings(written)
    if test == "in" or (others and test in ("=", "!=")):
        return Condition(field, "!=" if test == "!=" else "in", [value, *others])
    return Condition(field, test, value)  # type: ignore[arg-type]


def _unquoted(match: re.Match[str]) -> str:
    return match[2].replace(2 * match[1], match[1])


def _is_bracketed(written: str) -> bool:
    """Whether brackets stand around several values, and not in some of them."""
    closing = {"(": ")", "[": "]"}.get(written[0])
    return closing is not None and written[-1] == closing and "," in written and closing not in written[:-1]


def _values(written: str) -> list[Value]:
    """The values of a list with commas, each once."""
    values = list[Value]()
    for match in _NEXT.finditer(f"{written},"):
        values += [_unquoted(match)] if match[1] else _readings(match[3].strip())
    return list({(type(value), value): value for value in values}.values())


def as_conditions(
    where: str | Condition | Sequence[Condition | str], *, certain: bool = False
) -> tuple[Condition, ...]:
    """Conditions, of which those that are texts are parsed.

    Args:
        where: Conditions, or texts such as "year >= 1990"; one alone, or several.
        certain: Dates have to fulfil all of them certainly.

    Returns:
        As many conditions, in their order.

    Raises:
        RequirementError: For a text that is no condition.
    """
    where = (where,) if isinstance(where, str | Condition) else where
    if not isinstance(where, list | tuple) or not all(isinstance(each, str | Condition) for each in where):
        raise RequirementError(
            f"where needs a condition such as 'year >= 1990', or a list of these; it got {where!r:.60}", field="where"
        )
    conditions = (parse(condition) if isinstance(condition, str) else condition for condition in where)
    return tuple(replace(condition, certain=True) if certain else condition for condition in conditions)


def _readings(written: str) -> list[Value]:
    """The values that a typed value may mean, the most specific first."""
    if quoted := _WHOLE.fullmatch(written):
        return [_unquoted(quoted)]
    if written in ("true", "false"):
        return [int(written == "true"), written]
    if match := _NUMBER.fullmatch(written):
        with suppress(ValueError, OverflowError):  # An integer of thousands of digits.
            return [float(written) if match[1] or match[2] or "e" in written.lower() else int(written), written]
    return [value for value in (read_date(written), written) if value is not None]


def matching(view: View, side: Side, where: Sequence[Condition], *, strict: bool = True) -> Keys:
    """The keys of the items of an index that fulfil every condition.

    Args:
        view: The index at one moment.
        side: "images" or "texts".
        where: Conditions on the metadata; all must be true.
        strict: Refuses a field that no item of the side has, and a value that cannot occur in its field.

    Returns:
        N keys, ascending, which may have stayed in the store; see `View.choose`.

    Raises:
        RequirementError: With `strict`: for an unknown field, a value of another type than the field's values, or a
            value that contains another condition.
    """
    fields = view.fields(side) if where else []
    where = [_named(condition, fields) for condition in where]
    missing = {condition.field for condition in where if strict} - {TEXT, ID, *fields}
    if missing:
        near = near_texts(min(missing), fields, 1, cutoff=0.6)
        meant = f"; the nearest: {_described(view, side, near[0])}" if near else ""
        raise RequirementError(
            f"a condition needs a field that some of the {side} have; none has '{min(missing)}'; there are "
            f"{', '.join(fields) or 'none'}, and text and id{meant}"
        )
    where = [_resolved(view, side, condition) for condition in where]
    keys = view.choose(side, [_complete(view, side, one) for one in where]) if where else view.keys(side)
    # A field of another type matches nothing: only then its type is looked at.
    for condition in where if strict else ():
        if not len(keys) or condition.test == "!=":
            _check_values_exist(view, side, condition, fields)
    return keys


def count_dates(view: View, side: Side, where: Sequence[Condition]) -> DateCounts | None:
    """Count the items that meet conditions on dates, and those that have no date.

    Args:
        view: The index at one moment.
        side: "images" or "texts".
        where: Conditions on the metadata.

    Returns:
        The counts; None where no condition compares dates.
    """
    fields = view.fields(side) if where else []
    where = [_named(condition, fields) for condition in where]
    dated = [one for one in where if _dates_of(one) and _has(view, side, one.field, DATE)]
    if not dated:
        return None
    where = [_resolved(view, side, condition) for condition in where]
    possible, certain = (
        view.count(side, [_complete(view, side, replace(one, certain=flag)) for one in where]) for flag in (False, True)
    )
    others = [_complete(view, side, one) for one in where if one not in dated]
    with_dates = [
        AnyOf([[Condition(field, ">=", value)] for value in (_EVER, -math.inf)])
        for field in sorted({one.field for one in dated})
    ]
    return DateCounts(possible, certain, view.count(side, others) - view.count(side, [*others, *with_dates]))


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
        common = view.values(side, name, limit=LETTERS).common if values else []
        plain = {fold(str(item)): f"'{item}'" for item, _ in reversed(common)}
        ordered = list(reversed(plain))
        for value in values:
            close = near_texts(fold(value), ordered, 3, cutoff=0.6) if len(notes) < SUGGESTED else []
            near = f"; the nearest: {', '.join(plain[match] for match in close)}" if close else ""
            hint = near or (f"; {_described(view, side, name)}" if common and len(notes) < SUGGESTED else "")
            notes.append(f"no {side[:-1]} has {name} '{value:.72}'{hint}")
        if equal and len(condition.values) > LOOKED_AT:
            notes.append(f"of the {len(condition.values)} values of '{name}' the first {LOOKED_AT} were looked up")
    return tuple(notes)


def named(view: View, side: Side, text: str, shown: Sequence[str]) -> tuple[str, ...]:
    """A note where a query is an id with a figure, such as an inventory number: an id is no text of its item.

    Args:
        view: The index at one moment.
        side: "images" or "texts".
        text: What was asked.
        shown: Ids that need no note.

    Returns:
        A sentence per item whose id is the text, or folded alike.
    """
    if not any(sign.isdigit() for sign in text):
        return ()  # A word that is an id as well: who asks for it means the word.
    ids = [name for name in view.folded(side, [text]).get(text, ()) if name not in shown]
    return tuple(
        f"{'an' if side == 'images' else 'a'} {side[:-1]} has the id {name!r}: `id = {name}` as a condition finds it"
        for name in ids[:SUGGESTED]
    )


def _lacking(view: View, side: Side, condition: Condition, *, count: int = LOOKED_AT) -> list[str]:
    """Of the first values of a condition, the texts that no item has; of "text", whatever is looked for."""
    texts = [value for value in condition.values[:count] if isinstance(value, str)]
    return [text for text in texts if condition.field == TEXT or not _some(view, side, condition.field, text)]


def require_dates(view: View, side: Side, field: str) -> None:
    """Require that items can be ordered by the dates of a field.

    Args:
        view: The index at one moment.
        side: "images" or "texts".
        field: The field.

    Raises:
        RequirementError: For a field that no item has, and for one without dates.
    """
    fields = view.fields(side)
    if field not in fields:
        names = ", ".join(fields) or "none"
        raise RequirementError(
            f"order needs a field that some {side} have; it got '{field}'; there are {names}", field="order"
        )
    if not _has(view, side, field, DATE) and not _has(view, side, field):
        kind = _described(view, side, field)
        raise RequirementError(f"order needs a field with dates; {kind}; name another", field="order")


def places_by_date(
    view: View, side: Side, keys: Keys, field: str, *, descending: bool = False
) -> list[tuple[Place, int]]:
    """Items in the order of the dates of a field, those without a date last.

    Args:
        view: The index at one moment.
        side: "images" or "texts".
        keys: N keys.
        field: The field.
        descending: The latest comes first.

    Returns:
        The place and the key of each, sorted.

    Raises:
        RequirementError: As `require_dates`.
    """
    require_dates(view, side, field)
    dates = view.dates(side, field)
    return sorted((place_of(dates.get(key), descending=descending), key) for key in np.asarray(keys).tolist())


def _some(view: View, side: Side, name: str, typed: str) -> bool:
    """Whether some item has the value that is typed so."""
    condition = Condition(name, "in", [*_readings(typed), typed])
    try:
        return view.count(side, [_complete(view, side, _resolved(view, side, condition))]) > 0
    except RequirementError:  # It fits two items.
        return True


def _named(condition: Condition, fields: Sequence[str]) -> Condition:
    """A condition with the name of its field as the items have it, where only one is folded alike."""
    name = condition.field
    alike = [field for field in fields if fold(field) == fold(name)] if name not in (TEXT, ID, *fields) else []
    return replace(condition, field=alike.pop()) if len(alike) == 1 else condition


def _has(view: View, side: Side, field: str, suffix: str = "") -> bool:
    """Whether some text of a field is a date, or a number, by the suffix; without one, whether it has numbers."""
    cached = f"{field}{suffix} of {side}"
    if cached not in view.cache:
        has_texts, has_numbers = view.types_of(side, field + suffix)
        view.cache[cached] = has_texts if suffix == DATE else has_numbers
    return bool(view.cache[cached])


def _resolved(view: View, side: Side, condition: Condition) -> Condition:
    """A condition on ids with the ids that its values mean."""
    if condition.field != ID or condition.test == "contains":
        return condition
    names = list(dict.fromkeys(str(value) for value in condition.values))
    ids = view.resolve(side, names)
    return replace(condition, test="!=" if condition.test == "!=" else "in", value=[ids.get(it, it) for it in names])


def _years_of(condition: Condition) -> list[DateInterval]:
    """The years that the whole numbers among the values of a condition may be."""
    return [year_interval(value) for value in condition.others if type(value) is int and abs(value) <= 9999]


def _dates_of(condition: Condition) -> list[DateInterval]:
    """The dates that the values of a condition may mean."""
    return condition.dates + _years_of(condition)


def _with_values(condition: Condition, field: str, values: Sequence[Value]) -> Condition:
    """The same test of a field with other values, of which an order takes one."""
    if condition.test not in ORDER:
        return replace(condition, field=field, test="in", value=values)
    (value,) = values
    return replace(condition, field=field, value=value)


def _alternatives(view: View, side: Side, condition: Condition) -> list[list[Condition]]:
    """Lists of conditions of which one has to hold as a whole, for a condition other than "!=".

    Numbers are compared with texts that are numbers, and dates with numbers that are years, too.
    """
    found, field = [[condition]], condition.field
    numbers = [value for value in condition.others if not isinstance(value, str)]
    if numbers and _has(view, side, field, NUMBER):
        found.append([_with_values(condition, field + NUMBER, numbers)])
    if not _dates_of(condition) or not _has(view, side, field, DATE):
        return found
    if years := _years_of(condition):
        found.append([_with_values(condition, field, years)])
    if condition.dates and _has(view, side, field):
        test = "=" if condition.test == "in" else condition.test
        found += [_years(field, test, date, certain=condition.certain) for date in condition.dates]
    return found


def _years(field: str, test: str, interval: DateInterval, *, certain: bool) -> list[Condition]:
    """What fulfils a condition on a date among the numbers of a field, as years."""
    first, last = interval.first, interval.last
    lowest = year_of(last + 1) if test == ">" else year_of(first)
    highest = year_of(first - 1) if test == "<" else year_of(last)
    if certain:
        lowest = (year_of(last) if test == ">" else year_of(first - 1)) + 1
        highest = (year_of(first) if test == "<" else year_of(last + 1)) - 1
    below, above = Condition(field, "<=", highest), Condition(field, ">=", lowest)
    return [above, below] if test == "=" else [below] if test in ("<", "<=") else [above]


def _complete(view: View, side: Side, condition: Condition) -> Condition | AnyOf:
    """A condition with all that it is compared with."""
    negated, equal = condition.test == "!=", condition
    if negated:
        # What certainly is equal is not possibly unequal.
        equal = replace(condition, test="in", value=list(condition.values), certain=not condition.certain)
    found = _alternatives(view, side, equal)
    return condition if found == [[equal]] else AnyOf(found, negated)


def _check_values_exist(view: View, side: Side, condition: Condition, fields: Sequence[str]) -> None:
    """Raise RequirementError where a value is not one value that the field is compared with."""
    name, test = condition.field, condition.test
    for value in _lacking(view, side, condition, count=SUGGESTED):
        # A value that holds a condition is short; the pattern takes longer the longer the value is, squared.
        cuts = islice(_AND.finditer(value), SUGGESTED) if len(value) <= LONG else ()
        for second in (_SYNTAX.fullmatch(value, cut.end()) for cut in cuts):
            if second and second[1] in (TEXT, ID, *fields):
                advice = f"it got {value!r}; give each condition its own --where (in Python: several conditions)"
                raise RequirementError(f"'{name} {test}' needs a value without a further condition; {advice}")
        parts = value.split()
        if test == "in" and parts and len(parts) <= LOOKED_AT and all(_some(view, side, name, part) for part in parts):
            advice = f"it got {value!r}; write '{name} in {', '.join(parts)}'"
            raise RequirementError(f"'{name} in' needs commas between its values; {advice}")
        if test in ("=", "!=", "in") and read_date(value) is None and is_of_dates(view, side, name):
            _require_comparable(view, side, Condition(name, "!=" if test == "!=" else "=", value))
    if test in ORDER:
        _require_comparable(view, side, condition)


def is_of_dates(view: View, side: Side, name: str) -> bool:
    """Whether most values of a field are dates.

    Args:
        view: The index at one moment.
        side: "images" or "texts".
        name: The field.

    Returns:
        True for a field of dates.
    """
    dates, values = (view.values(side, name + suffix) for suffix in (DATE, ""))
    return 2 * dates.distinct > values.distinct


def _require_comparable(view: View, side: Side, condition: Condition) -> None:
    """Raise RequirementError where a field has nothing that the value of a condition is compared with."""
    values = view.values(side, condition.field)
    usable = _dates_of(condition) and _has(view, side, condition.field, DATE)
    if not condition.dates:
        usable = usable or values.has_numbers or _has(view, side, condition.field, NUMBER)
    if isinstance(condition.value, str) or not usable:
        day = "name a day, a month or a year, as in 2021-03-05, or um 1900"
        advice = (
            "name a number"
            if values.has_numbers
            else day
            if _has(view, side, condition.field, DATE)
            else "test it by = or contains"
        )
        raise RequirementError(
            f"'{condition.field} {condition.test}' needs a number or a date to compare with; it got "
            f"{str(condition.value)!r}; {_described(view, side, condition.field)}; {advice}"
        )


def _described(view: View, side: Side, name: str) -> str:
    """A field with its type and three of its values, for a message."""
    values = view.values(side, name, limit=SUGGESTED)
    kind = "a number" if not values.has_texts else "a date" if is_of_dates(view, side, name) else "text"
    kind = "text and numbers" if values.has_texts and values.has_numbers else kind
    return f"'{name}' is {kind} ({', '.join(str(value) for value, _ in values.common)})"
