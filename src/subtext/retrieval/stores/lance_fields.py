"""Typed columns of metadata in a table of LanceDB, which its own indexes search, and conditions as filters on them.

A field of a side has a column of its own for each kind of value that it has, numbered in the order in which they came:

    text_N             folded; of a long text a digest, since an index holds its values
    written_N          a text that is not long, as it was written, where folding changed it
    number_N           float64
    first_N, last_N    seconds of the first and the last end of what a text says as a date
    list_N             what an item has there that is no single value of these: several values, or a number that float64
                       does not hold exactly; each as a text
    each_N             these texts as they were written, where folding changed one

The state of the index names the field of each column. `labels` holds what has no place in them, of fields beyond those
columns: each value with its field, and once the field. So equality is exact for all values. What else is asked of
lists, and what long texts contain, is decided by the metadata of the rows that are left: a condition has two filters,
one that gives rows which certainly fulfil it, and one that gives all which possibly do. They are the same for most.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa

from subtext.data.dates import END, DateInterval
from subtext.retrieval.stores.facets import (
    DATE,
    DIGITS,
    ID,
    TEXT,
    AnyOf,
    Condition,
    Facet,
    interval_at,
    interval_tests,
)
from subtext.retrieval.stores.sql import can_hold, require_comparable
from subtext.retrieval.words import fold

COLUMNS = {"text": 64, "number": 64, "date": 24, "list": 32}
"""Columns of each kind of value, for the fields of both sides together."""
LISTED = 1024
"""Fields and kinds that the state counts."""
LONG = 200
"""Letters of the longest text that a column holds as it is."""
_BETWEEN = "\x1e"
"""What stands between the values of a list where it is one text; no folded text has it."""
LONG_SIGN = "\x1f"
"""What the digest of a long text begins with; no folded text does."""
_TYPES = {
    "text": pa.string(),
    "written": pa.string(),
    "number": pa.float64(),
    "first": pa.int64(),
    "last": pa.int64(),
    "list": pa.list_(pa.string()),
    "each": pa.list_(pa.string()),
}
_PARTS = {"text": ("text", "written"), "number": ("number",), "date": ("first", "last"), "list": ("list", "each")}
"""Kind of values -> the columns of a field of it."""
LABELS = "labels"

Values = Mapping[tuple[str, str], Sequence[str | int | float]]
"""(kind, field) -> the values of an item."""


class Filter(NamedTuple):
    """A condition as SQL: what certainly fulfils it, and what possibly does."""

    certain: str
    possible: str


def columns() -> dict[str, pa.Field]:
    """All typed columns.

    Returns:
        Name -> column.
    """
    names = [(part, n) for kind, count in COLUMNS.items() for n in range(count) for part in _PARTS[kind]]
    types = {f"{part}_{n}": _TYPES[part] for part, n in names} | {LABELS: pa.list_(pa.string())}
    # A condition beside another one reads its column: of numbers, which Lance itself hardly compresses, half and less.
    small = {"lance-encoding:compression": "zstd"}
    return {
        name: pa.field(name, own, metadata=small if pa.types.is_primitive(own) else None) for name, own in types.items()
    }


def split_float64(number: float) -> tuple[float, int]:
    """A number as the nearest float64 and the rest, which together are exact for whole numbers of up to 2^114.

    Args:
        number: An int or a float.

    Returns:
        The nearest float64, and a whole number.

    Example:
        >>> split_float64(2**60 + 1), split_float64(0.5), split_float64(-0.0)
        ((1.152921504606847e+18, 1), (0.5, 0), (0.0, 0))
    """
    try:
        nearest = float(number or 0)
    except OverflowError:
        return math.inf if number > 0 else -math.inf, 0
    rest = int(number) - int(nearest) if isinstance(number, int) else 0
    return nearest, max(-(2**61), min(rest, 2**61))


def literal(value: Any) -> str:
    """A value as SQL has it; a list as its values.

    Args:
        value: Text, number, None, or a list of them.

    Returns:
        SQL.

    Example:
        >>> literal("it's"), literal(None), literal([1, 2.5]), literal([])
        ("'it''s'", 'NULL', '1, 2.5', 'NULL')
    """
    if isinstance(value, list | tuple):
        return ", ".join(map(literal, value)) or "NULL"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if value is None or value != value:
        return "NULL"
    return f"CAST('{value}' AS DOUBLE)" if isinstance(value, float) and math.isinf(value) else repr(value)


def grouped(values: set[Facet]) -> Values:
    """The values of an item by their kind and field.

    Args:
        values: What `facets` gives of its metadata.

    Returns:
        (kind, field) -> values; a date by its digits.
    """
    groups: dict[tuple[str, str], list[str | int | float]] = {}
    for name, value in values:
        groups.setdefault(_kind(name, value), []).append(value)
    return groups


def _kind(name: str, value: str | int | float) -> tuple[str, str]:
    return "date" if name.endswith(DATE) else "text" if isinstance(value, str) else "number", name


def _is_held(values: Sequence[str | int | float]) -> bool:
    """Whether a typed column holds the values of a field in one item."""
    if len(values) > 1:
        return False
    nearest, rest = (0.0, 0) if isinstance(values[0], str) else split_float64(values[0])
    return rest == 0 and math.isfinite(nearest)


def spelt(text: str) -> str:
    """A text as its column holds it.

    Args:
        text: Any text.

    Returns:
        Folded; a digest of a long one.
    """
    folded = fold(text)
    digest = hashlib.blake2b(folded.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return folded if len(folded) <= LONG else LONG_SIGN + digest


def _listed(value: str | int | float, *, is_date: bool = False) -> str:
    """A value as a list has it: equal ones are one text."""
    if isinstance(value, str):
        return value if is_date else spelt(value)
    return repr(int(value) if isinstance(value, int) or value.is_integer() else float(value))


def _label(*parts: Any) -> str:
    """A side, a kind of value and a field as a label, or these and a value."""
    return json.dumps(parts, ensure_ascii=False)


@dataclass
class TypedField:
    """What the state knows of a field of a side, and of a kind of its values.

    Attributes:
        column: Number of its typed column; -1 for none.
        list_column: Number of its column of lists; -1 for `labels`, -2 as long as it needs none.
        items: Items that have it.
        in_lists: Those that have it in a list.
        longest: Seconds of its longest date that is bounded at both ends.
        is_open: 1 where a date may be open at an end.
    """

    column: int = -1
    list_column: int = -2
    items: int = 0
    in_lists: int = 0
    longest: int = 0
    is_open: int = 0

    @property
    def list_name(self) -> str:
        """Name of the column of its lists."""
        return LABELS if self.list_column < 0 else f"list_{self.list_column}"


class TypedFields:
    """The fields of an index: their columns, and how many items have them. A change counts in a copy.

    Args:
        state: The state of the index, which names them.

    Attributes:
        known: (side, kind, name) -> field.
        unlisted: Of each side, how often items have fields that are not among these: there are `LISTED` at most.
    """

    def __init__(self, state: Mapping[str, Any]) -> None:
        self.known = {(side, kind, name): TypedField(*numbers) for side, kind, name, *numbers in state["fields"]}
        self.unlisted = list(state["unlisted"])

    @staticmethod
    def is_valid(entry: Any) -> bool:
        """Whether this is a field as `as_state` writes it.

        Args:
            entry: What a state has in its place.

        Returns:
            True if it is.
        """
        if not isinstance(entry, list) or len(entry) != 9 or entry[1] not in ("text", "number", "date"):
            return False
        side, kind, name, column, lists, *counts = entry
        numbers = all(type(own) is int for own in (side, column, lists, *counts))
        right = numbers and side in (0, 1) and -1 <= column < COLUMNS[kind] and -2 <= lists < COLUMNS["list"]
        return right and isinstance(name, str) and min(counts) >= 0 and max(counts) <= 2 * END

    def as_state(self) -> dict[str, Any]:
        """The entries of the state.

        Returns:
            Their names with their values.
        """
        return {"fields": [[*key, *astuple(field)] for key, field in self.known.items()], "unlisted": self.unlisted}

    def used(self) -> list[str]:
        """The typed columns that some item may have a value in.

        Returns:
            Their names, `labels` last.
        """
        own = [(kind, field.column) for (_, kind, _), field in self.known.items() if field.column >= 0]
        lists = [("list", field.list_column) for field in self.known.values() if field.list_column >= 0]
        return [f"{part}_{number}" for kind, number in sorted(own + lists) for part in _PARTS[kind]] + [LABELS]

    def indexes(self) -> dict[str, str]:
        """The indexes that Lance makes of typed columns.

        Returns:
            Column -> kind of its index.
        """
        has_labels = any(self.unlisted) or any(field.list_column == -1 for field in self.known.values())
        names = [
            name
            for name in (self.used() if has_labels else self.used()[:-1])
            if not name.startswith(("written", "each"))
        ]
        return {name: "LABEL_LIST" if name.startswith(("list", LABELS)) else "BTREE" for name in names}

    def count(self, side: int, values: Values, sign: int = 1) -> None:
        """Count an item, and give new fields their columns.

        Args:
            side: Number of its side.
            values: Its values.
            sign: -1 counts it no more.
        """
        for (kind, name), own in sorted(values.items()):  # The same index has the same columns.
            field = self.known.get((side, kind, name))
            if field is None and (sign < 0 or any(self.unlisted) or len(self.known) >= LISTED):
                self.unlisted[side] += sign
                continue
            if field is None:
                taken = {other.column for (_, of, _), other in self.known.items() if of == kind}
                field = self.known[side, kind, name] = TypedField(_free(kind, taken))
            field.items += sign
            if not self._is_single(field, own):
                field.in_lists += sign
                if field.list_column == -2:
                    field.list_column = _free("list", {other.list_column for other in self.known.values()})
            for first, last in map(interval_at, map(str, own)) if kind == "date" and sign > 0 else ():
                if first <= -END or last >= END:
                    field.is_open = 1
                else:
                    field.longest = max(field.longest, last - first)
            if not field.items:
                del self.known[side, kind, name]

    def counts_of(self, side: int, values: Values) -> Counter[tuple[str, str, str]]:
        """What an item adds to the counts of a side.

        Args:
            side: Number of its side.
            values: Its values.

        Returns:
            (kind, field, "items" or "in_lists") -> count; ("", "", "") counts fields that are not known.
        """
        found = Counter[tuple[str, str, str]]()
        for (kind, name), own in values.items():
            if field := self.known.get((side, kind, name)):
                found[kind, name, "items"] += 1
                found[kind, name, "in_lists"] += not self._is_single(field, own)
            else:
                found["", "", ""] += 1
        return found

    def counts(self, side: int) -> Counter[tuple[str, str, str]]:
        """The counts of a side; see `counts_of`.

        Args:
            side: Number of the side.

        Returns:
            Counts.
        """
        own = [(kind, name, field) for (of, kind, name), field in self.known.items() if of == side]
        counts = {
            (kind, name, what): getattr(field, what) for kind, name, field in own for what in ("items", "in_lists")
        }
        return Counter(counts) + Counter({("", "", ""): self.unlisted[side]})

    def _is_single(self, field: TypedField, values: Sequence[str | int | float]) -> bool:
        """Whether the typed column of a field holds the values of an item."""
        return field.column >= 0 and _is_held(values)

    def columns(self, side: int, values: Values) -> dict[str, Any]:
        """The typed columns of an item.

        Args:
            side: Number of its side.
            values: Its values.

        Returns:
            Column -> value; those that are left out have none.
        """
        row: dict[str, Any] = {}
        for (kind, name), own in values.items():
            field = self.known.get((side, kind, name), _UNKNOWN)
            if not self._is_single(field, own):
                listed = {_listed(value, is_date=kind == "date"): value for value in own}
                if field.list_column < 0:
                    labels = [_label(side, kind, name), *(_label(side, kind, name, value) for value in listed)]
                    row[LABELS] = sorted({*labels, *row.get(LABELS, ())})
                    continue
                row[field.list_name] = sorted(listed)
                each = [None if text.startswith(LONG_SIGN) else listed[text] for text in sorted(listed)]
                if kind == "text" and any(
                    value not in (None, text) for text, value in zip(sorted(listed), each, strict=True)
                ):
                    row[f"each_{field.list_column}"] = each
            elif kind == "date":
                ends = str(own[0])[:DIGITS], str(own[0])[DIGITS:]
                row |= {f"{part}_{field.column}": int(end) - END for part, end in zip(_PARTS[kind], ends, strict=True)}
            else:
                value = own[0]
                row[f"{kind}_{field.column}"] = held = (
                    spelt(value) if isinstance(value, str) else split_float64(value)[0]
                )
                if isinstance(value, str) and not str(held).startswith(LONG_SIGN) and held != value:
                    row[f"written_{field.column}"] = value
        return row

    def names(self, side: int) -> list[str] | None:
        """The metadata fields and their further facets.

        Args:
            side: Number of the side.

        Returns:
            Names; None where not all are known.
        """
        return None if self.unlisted[side] else sorted({name for own, _, name in self.known if own == side})

    def types_of(self, side: int, name: str) -> tuple[bool, bool] | None:
        """Whether a field has texts, and numbers.

        Args:
            side: Number of the side.
            name: The field.

        Returns:
            Two flags; None where not all fields are known.
        """
        has = {kind: (side, kind, name) in self.known for kind in ("text", "date", "number")}
        return None if self.unlisted[side] else (has["text"] or has["date"], has["number"])

    def held(self, side: int, kind: str, name: str) -> tuple[Sequence[str], Sequence[str], str]:
        """The typed columns of a field, and the rows of which the metadata says what they do not.

        Args:
            side: Number of the side.
            kind: "text", "number" or "date".
            name: The field.

        Returns:
            Columns of single values, and of lists, of which an item with any has the first; and SQL, "" for no row: of
            these rows the long texts are missing, or without columns of lists all values.
        """
        field, long = self._field(side, kind, name), literal(LONG_SIGN)
        names = [f"{part}_{field.column}" for part in _PARTS[kind]] if field.column >= 0 else []
        lists = [f"{part}_{field.list_column}" for part in _PARTS["list"]] if field.list_column >= 0 else []
        rest = [] if lists else [own.possible for own in self._left(side, kind, name)]
        if kind == "text":
            rest += [f"starts_with({own}, {long})" for own in names[:1]]
            rest += [f"contains(array_to_string({own}, {literal(_BETWEEN)}), {long})" for own in lists[:1]]
        return names, lists, " OR ".join(rest)

    def filter(self, side: int, condition: Condition | AnyOf) -> Filter:
        """A condition as SQL; one on the words of texts is not among them.

        Args:
            side: Number of the side.
            condition: The condition.

        Returns:
            What certainly fulfils it, and what possibly does.
        """
        if isinstance(condition, AnyOf):
            found = _any(
                [_all([self.filter(side, own) for own in alternative]) for alternative in condition.alternatives]
            )
            return _not(found) if condition.negated else found
        require_comparable(condition)
        name, test = condition.field, condition.test
        assert name != TEXT
        if test == "!=":
            # What certainly is equal is not possibly unequal.
            return _not(self.filter(side, Condition(name, "in", list(condition.values), not condition.certain)))
        texts = [value for value in condition.others if isinstance(value, str)]
        if name == ID:
            part = fold(str(condition.value))
            ids = [str(value) for value in condition.values if can_hold(str(value))]
            has = f"contains(coalesce(folded, id), {literal(part)})"
            return _exact(has if test == "contains" else f"id IN ({literal(ids)})")
        if test == "contains":
            part, long = literal(fold(texts[0])), literal(LONG_SIGN)
            field = self._field(side, "text", name)
            filters = list[Filter]()
            if field.column >= 0:
                has, is_long = f"contains(text_{field.column}, {part})", f"starts_with(text_{field.column}, {long})"
                filters.append(Filter(f"({has} AND NOT {is_long})", f"({has} OR {is_long})"))
            if field.in_lists and field.list_column < 0:
                filters += self._left(side, "text", name)
            elif field.in_lists:
                joined = f"array_to_string({field.list_name}, {literal(_BETWEEN)})"
                has, is_long = f"contains({joined}, {part})", f"contains({joined}, {long})"
                filters.append(Filter(f"({has} AND NOT {is_long})", f"({has} OR {is_long})"))
            return _any(filters)
        dates = [self._within(side, condition, "=" if test == "in" else test, date) for date in condition.dates]
        if test in ("=", "in"):
            return _any([*self._equal(side, name, condition.others), *dates])
        numbers = [self._beyond(side, name, test, value) for value in condition.others if not isinstance(value, str)]
        return _any([*dates, *numbers])

    def _equal(self, side: int, name: str, others: Sequence[str | int | float]) -> list[Filter]:
        """Items of which a field has one of some texts and numbers."""
        filters = list[Filter]()
        for kind in ("text", "number"):
            field = self._field(side, kind, name)
            own = [value for value in others if isinstance(value, str) == (kind == "text") and value == value]
            held = [value for value in own if _is_held([value])]
            columns = [spelt(value) if isinstance(value, str) else split_float64(value)[0] for value in held]
            if field.column >= 0 and columns:
                filters.append(_exact(f"{kind}_{field.column} IN ({literal(list(dict.fromkeys(columns)))})"))
            if field.in_lists and own:
                listed = list(dict.fromkeys(map(_listed, own)))
                if field.list_column < 0:
                    listed = [_label(side, kind, name, value) for value in listed]
                filters.append(_exact(f"array_has_any({field.list_name}, [{literal(listed)}])"))
        return filters

    def _beyond(self, side: int, name: str, test: str, limit: float) -> Filter:
        """Items of which a field has a number below or above a limit."""
        field = self._field(side, "number", name)
        nearest, rest = split_float64(limit)
        if rest:  # The limit lies between two float64.
            test = test[0] + "=" * ((test[0] == "<") == (rest > 0))
        every = limit == -math.inf and test[0] == ">"
        written = "IS NOT NULL" if every else f"{test} {literal(nearest)}"
        filters = [_exact(f"number_{field.column} {written}")] if field.column >= 0 else []
        return _any([*filters, *self._left(side, "number", name)])

    def _within(self, side: int, condition: Condition, test: str, interval: DateInterval) -> Filter:
        """Items of which a field has a date that fulfils a test, possibly or certainly."""
        name = condition.field + DATE
        field, filters = self._field(side, "date", name), list[Filter]()
        tests = interval_tests(test, interval, certain=condition.certain)
        limits = [(end, sign, int(text) - END) for key, text in tests.items() for end, sign in [key.split()]]
        own = " AND ".join(f"{end}_{field.column} {sign} {limit}" for end, sign, limit in limits)
        if limits == [("last", ">=", -END)]:
            own = f"last_{field.column} IS NOT NULL"
        elif len(limits) == 2:
            # Both ends are bounded at both sides: the indexes give no more than what lies near.
            (before,) = (limit for _, sign, limit in limits if sign == "<")
            (after,) = (limit for _, sign, limit in limits if sign == ">=")
            first, last = f"first_{field.column}", f"last_{field.column}"
            near = f"{first} >= {after - field.longest} AND {first} < {before}"
            near += f" AND {last} >= {after} AND {last} < {before + field.longest}"
            ways = [f"{own} AND {near}"]
            if field.is_open:
                ways += [f"{own} AND {first} = {-END}", f"{own} AND {last} = {END - 2}"]
            own = " OR ".join(f"({way})" for way in ways)
        if field.column >= 0:
            filters.append(_exact(f"({own})"))
        return _any([*filters, *self._left(side, "date", name)])

    def _left(self, side: int, kind: str, name: str) -> list[Filter]:
        """Items that have a field in a list, which are decided by their metadata."""
        return [Filter("FALSE", self._in_list(side, kind, name))] if self._field(side, kind, name).in_lists else []

    def _in_list(self, side: int, kind: str, name: str) -> str:
        """Whether an item has a field in a list."""
        field = self._field(side, kind, name)
        if field.list_column >= 0:
            return f"{field.list_name} IS NOT NULL"
        return f"array_has_any({LABELS}, [{literal(_label(side, kind, name))}])"

    def _field(self, side: int, kind: str, name: str) -> TypedField:
        return self.known.get((side, kind, name)) or replace(_UNKNOWN, in_lists=self.unlisted[side])


_UNKNOWN = TypedField(list_column=-1)
"""A field that the state does not know."""


def _free(kind: str, taken: set[int]) -> int:
    """The first column of a kind that is not taken; -1 for none."""
    return next((number for number in range(COLUMNS[kind]) if number not in taken), -1)


def _exact(text: str) -> Filter:
    return Filter(text, text)


def _not(filter_: Filter) -> Filter:
    return Filter(f"({filter_.possible}) IS NOT TRUE", f"({filter_.certain}) IS NOT TRUE")


def _any(filters: Sequence[Filter]) -> Filter:
    return _joined(filters, " OR ", "FALSE")


def _all(filters: Sequence[Filter]) -> Filter:
    return _joined(filters, " AND ", "TRUE")


def _joined(filters: Sequence[Filter], between: str, nothing: str) -> Filter:
    """Several filters as one; those that are the same text stay the same."""
    parts = ([own for own in texts if own != nothing] for texts in zip(*filters, strict=True))
    joined = [f"({between.join(own)})" if len(own) > 1 else (*own, nothing)[0] for own in parts]
    return Filter(*joined) if joined else _exact(nothing)
