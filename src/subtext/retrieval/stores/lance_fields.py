"""Typed columns of metadata in a table of LanceDB, which its own indexes search, and conditions as filters on them.

A field of a side has a column of its own for each kind of value that it has, numbered in the order in which they came:

    text_N             folded; of a long text a digest, since an index holds its values
    number_N           float64
    first_N, last_N    seconds of the first and the last end of what a text says as a date

The state of the index names the field of each column. `labels` holds what has no place there: several values of a field
in one item, numbers that float64 does not hold exactly, and fields beyond those columns; each value as JSON, and once
the field. So equality is exact for all values. What else is asked of these, and what long texts contain, is decided by
the metadata of the rows that are left: a condition has two filters, one that gives rows which certainly fulfil it, and
one that gives all which possibly do. They are the same for most.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from subtext.data.dates import END
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

COLUMNS = {"text": 64, "number": 64, "date": 24}
"""Columns of each kind of value, for the fields of both sides together."""
LISTED = 1024
"""Fields and kinds that the state counts."""
LONG = 200
"""Letters of the longest text that a column holds as it is."""
_LONG = "\x1f"
"""What the digest of a long text begins with; no folded text does."""
_TYPES = {"text": pa.string(), "number": pa.float64(), "first": pa.int64(), "last": pa.int64()}
LABELS = "labels"

Values = Mapping[tuple[str, str], Sequence[str | int | float]]
"""(kind, field) -> the values of an item."""


class Filter(NamedTuple):
    """A condition as SQL: what certainly fulfils it, and what possibly does."""

    certain: str
    possible: str


def columns() -> dict[str, pa.DataType]:
    """All typed columns with their types."""
    names = [(part, n) for kind, count in COLUMNS.items() for n in range(count) for part in _parts(kind)]
    return {f"{part}_{n}": _TYPES[part] for part, n in names} | {LABELS: pa.list_(pa.string())}


def _parts(kind: str) -> tuple[str, ...]:
    return ("first", "last") if kind == "date" else (kind,)


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


def _held(kind: str, values: Sequence[str | int | float]) -> bool:
    """Whether a typed column holds the values of a field in one item."""
    if len(values) > 1:
        return False
    nearest, rest = (0.0, 0) if isinstance(values[0], str) else split_float64(values[0])
    return rest == 0 and math.isfinite(nearest)


def _spelt(text: str) -> str:
    """A text as its column holds it."""
    folded = fold(text)
    digest = hashlib.blake2b(folded.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return folded if len(folded) <= LONG else _LONG + digest


def _label(side: int, name: str, value: str | int | float | None = None) -> str:
    """A value of a field as a label, or the field."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # Equal numbers are one label.
    own = _spelt(value) if isinstance(value, str) and not name.endswith(DATE) else value
    return str(side) + json.dumps([name] if own is None else [name, own], ensure_ascii=False)


class Fields:
    """The fields of an index: their columns, and how many items have them. A change counts in a copy.

    Args:
        counted: Of the state: "SIDE KIND FIELD" -> number of its column or -1, items that have it, those of them that
            have it as labels, and seconds of its longest date that is bounded at both ends, or 1 where others are open.
        unlisted: Values of fields that are not counted, of each side.
    """

    def __init__(self, state: Mapping[str, Any]) -> None:
        self.counted: dict[str, list[int]] = {key: list(own) for key, own in state["fields"].items()}
        self.unlisted = list(state["unlisted"])

    def as_state(self) -> dict[str, Any]:
        """The entries of the state."""
        return {"fields": self.counted, "unlisted": self.unlisted}

    def used(self) -> list[str]:
        """Names of the typed columns that some item may have a value in."""
        pairs = ((key.split(" ", 2)[1], own[0]) for key, own in self.counted.items() if own[0] >= 0)
        return [f"{part}_{slot}" for kind, slot in sorted(pairs) for part in _parts(kind)] + [LABELS]

    def count(self, side: int, values: Values, sign: int = 1) -> None:
        """Count an item, and give new fields their columns.

        Args:
            side: Number of its side.
            values: Its values.
            sign: -1 counts it no more.
        """
        for (kind, name), own in values.items():
            key = f"{side} {kind} {name}"
            entry = self.counted.get(key)
            if entry is None and (sign < 0 or any(self.unlisted) or len(self.counted) >= LISTED):
                self.unlisted[side] += sign
                continue
            if entry is None:
                taken = {other[0] for at, other in self.counted.items() if at.split(" ", 2)[1] == kind}
                free = (slot for slot in range(COLUMNS[kind]) if slot not in taken)
                entry = self.counted[key] = [next(free, -1), 0, 0, 0, 0]
            entry[1] += sign
            entry[2] += sign * (entry[0] < 0 or not _held(kind, own))
            for first, last in map(interval_at, map(str, own)) if kind == "date" and sign > 0 else ():
                is_open = first <= -END or last >= END
                entry[3 + is_open] = max(entry[3 + is_open], 1 if is_open else last - first)
            if not entry[1]:
                del self.counted[key]

    def counts_of(self, side: int, values: Values) -> dict[tuple[str, int], int]:
        """What an item adds to the counts of a side.

        Args:
            side: Number of its side.
            values: Its values.

        Returns:
            ("SIDE KIND FIELD", 1 or 2), as in `counted`, or ("", 0) for fields that are not counted -> count.
        """
        found: dict[tuple[str, int], int] = {}
        for (kind, name), own in values.items():
            key = f"{side} {kind} {name}"
            if entry := self.counted.get(key):
                found[key, 1] = 1
                found[key, 2] = int(entry[0] < 0 or not _held(kind, own))
            else:
                found["", 0] = found.get(("", 0), 0) + 1
        return found

    def counts(self, side: int) -> dict[tuple[str, int], int]:
        """The counts of a side; see `counts_of`.

        Args:
            side: Number of the side.

        Returns:
            Counts.
        """
        own = {key: entry for key, entry in self.counted.items() if key.startswith(f"{side} ")}
        return {(key, n): entry[n] for key, entry in own.items() for n in (1, 2)} | {("", 0): self.unlisted[side]}

    def columns(self, side: int, values: Values) -> dict[str, Any]:
        """The typed columns of an item.

        Args:
            side: Number of its side.
            values: Its values.

        Returns:
            Column -> value; those that are left out have none.
        """
        row, labels = dict[str, Any](), set[str]()
        for (kind, name), own in values.items():
            slot = self.counted.get(f"{side} {kind} {name}", (-1,))[0]
            if slot < 0 or not _held(kind, own):
                labels |= {_label(side, name), *(_label(side, name, value) for value in own)}
            elif kind == "date":
                row |= {f"first_{slot}": _seconds(str(own[0])[:DIGITS]), f"last_{slot}": _seconds(str(own[0])[DIGITS:])}
            else:
                row[f"{kind}_{slot}"] = split_float64(own[0])[0] if kind == "number" else _spelt(str(own[0]))  # type: ignore[arg-type]
        return row | {LABELS: sorted(labels) or None}

    def names(self, side: int) -> list[str] | None:
        """The metadata fields and their further facets; None where not all are counted."""
        keys = (key.split(" ", 2) for key in self.counted)
        return None if self.unlisted[side] else sorted({name for own, _, name in keys if own == str(side)})

    def types_of(self, side: int, name: str) -> tuple[bool, bool] | None:
        """Whether a field has texts, and numbers; None where it is not counted, and may be there."""
        has = [f"{side} {kind} {name}" in self.counted for kind in ("text", "date", "number")]
        return None if self.unlisted[side] and not any(has) else (has[0] or has[1], has[2])

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
            return _exact(f"contains(folded, {literal(part)})" if test == "contains" else f"id IN ({literal(ids)})")
        if test == "contains":
            part = literal(fold(texts[0]))
            return self._tested(side, "text", name, lambda column: Filter(
                f"(contains({column}, {part}) AND NOT starts_with({column}, {literal(_LONG)}))",
                f"(contains({column}, {part}) OR starts_with({column}, {literal(_LONG)}))",
            ))  # fmt: skip
        dates = [self._within(side, condition, "=" if test == "in" else test, date) for date in condition.dates]
        if test in ("=", "in"):
            return _any([*self._equal(side, name, condition.others), *dates])
        numbers = [self._beyond(side, name, test, value) for value in condition.others if not isinstance(value, str)]
        return _any([*dates, *numbers])

    def _equal(self, side: int, name: str, others: Sequence[str | int | float]) -> list[Filter]:
        """Items of which a field has one of some texts and numbers."""
        filters = list[Filter]()
        for kind in ("text", "number"):
            own = [value for value in others if isinstance(value, str) == (kind == "text") and value == value]
            slot, _, labelled, *_ = self._entry(side, kind, name)
            held = [value for value in own if _held(kind, [value])]
            spelt = [_spelt(value) if isinstance(value, str) else split_float64(value)[0] for value in held]
            if slot >= 0 and spelt:
                filters.append(_exact(f"{kind}_{slot} IN ({literal(list(dict.fromkeys(spelt)))})"))
            if labelled and own:
                labels = list(dict.fromkeys(_label(side, name, value) for value in own))
                filters.append(_exact(f"array_has_any({LABELS}, [{literal(labels)}])"))
        return filters

    def _beyond(self, side: int, name: str, test: str, limit: float) -> Filter:
        """Items of which a field has a number below or above a limit."""
        nearest, rest = split_float64(limit)
        if rest:  # The limit lies between two float64.
            test = test[0] + "=" * ((test[0] == "<") == (rest > 0))
        every = limit == -math.inf and test[0] == ">"
        written = "IS NOT NULL" if every else f"{test} {literal(nearest)}"
        return self._tested(side, "number", name, lambda column: _exact(f"{column} {written}"))

    def _within(self, side: int, condition: Condition, test: str, interval: Any) -> Filter:
        """Items of which a field has a date that fulfils a test, possibly or certainly."""
        tests = {end: _seconds(text) for end, text in interval_tests(test, interval, certain=condition.certain).items()}
        name = condition.field + DATE
        _, _, _, longest, is_open = self._entry(side, "date", name)

        def written(column: str) -> Filter:
            slot = column.partition("_")[2]
            first, last = f"first_{slot}", f"last_{slot}"
            own = [f"{end.replace(' ', f'_{slot} ')} {seconds}" for end, seconds in tests.items()]
            if tests == {"last >=": -END}:
                return _exact(f"{last} IS NOT NULL")
            if len(tests) == 2:
                # Both ends bounded at both sides: the indexes give no more than what lies near.
                (before,) = (seconds for end, seconds in tests.items() if end.endswith("<"))
                (after,) = (seconds for end, seconds in tests.items() if end.endswith(">="))
                near = [f"{first} < {before}", f"{first} >= {after - longest}"]
                near += [f"{last} >= {after}", f"{last} < {before + longest}"]
                bounded = " AND ".join([*own, *near])
                if is_open and not condition.certain:
                    begun = " AND ".join([*own, f"{first} = {-END}"])
                    open_end = " AND ".join([*own, f"{last} = {END - 2}"])
                    return _exact(f"(({bounded}) OR ({begun}) OR ({open_end}))")
                return _exact(f"({bounded})")
            return _exact(f"({' AND '.join(own)})")

        return self._tested(side, "date", name, written)

    def _tested(self, side: int, kind: str, name: str, written: Callable[[str], Filter]) -> Filter:
        """A test of a column; those that have labels of the field are decided by their metadata."""
        slot, _, labelled, *_ = self._entry(side, kind, name)
        filters = [written(f"{kind}_{slot}")] if slot >= 0 else []
        if labelled:
            filters.append(Filter("FALSE", f"array_has_any({LABELS}, [{literal(_label(side, name))}])"))
        return _any(filters)

    def _entry(self, side: int, kind: str, name: str) -> Sequence[int]:
        entry = self.counted.get(f"{side} {kind} {name}")
        return (-1, 0, self.unlisted[side], 0, 1) if entry is None else entry


def _seconds(text: str) -> int:
    """One end of an interval of its digits; see `facets.digits`."""
    return int(text) - END


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
