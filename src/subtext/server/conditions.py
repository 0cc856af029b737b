"""Conditions as a request brings them: typed, as for `subtext search --where`, or as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, get_args

from subtext.errors import RequirementError
from subtext.search.stores.condition import Condition, Test, Value, parse
from subtext.search.stores.item import seconds

LONGEST, MOST, VALUES = 2000, 20, 200
"""Letters of a condition; conditions of a request; values of a condition."""


def conditions(written: Sequence[str]) -> tuple[Condition, ...]:
    """Each of them: `year >= 1990`, or {"field": "place", "test": "in", "value": ["Paris", "Wien"]}.

    In JSON a text that is a date compares with dates; a value of several is for "in" and "!=".

    Raises RequirementError for what is no condition, or more than SQLite can be asked.

    >>> conditions(['{"field": "year", "test": ">=", "value": 1990}']) == conditions(["year >= 1990"])
    True
    """
    if len(written) > MOST:
        raise RequirementError(f"a request may have {MOST} conditions; it got {len(written)}")
    return tuple(_one(text) for text in written)


def _one(text: str) -> Condition:
    if len(text) > LONGEST or "\0" in text:
        raise RequirementError(f"a condition needs at most {LONGEST} letters, none of them null; it got {len(text)}")
    try:
        found = _of_json(text) if text.lstrip().startswith("{") else parse(text)
    except (ValueError, OverflowError) as problem:
        if isinstance(problem, RequirementError):
            raise
        raise RequirementError(f"a condition needs a value that can be compared; {problem}") from problem
    values = found.value if isinstance(found.value, list | tuple) else [found.value]
    if len(values) > VALUES:
        raise RequirementError(f"a condition may have {VALUES} values; it got {len(values)}")
    if any(isinstance(value, int) and abs(value) >= 2**63 for value in values):
        raise RequirementError(f"'{found.field}' needs numbers of 64 bits; it got a larger one")
    return found


def _of_json(text: str) -> Condition:
    try:
        raw = json.loads(text)
        json.dumps(raw, ensure_ascii=False).encode()  # Half a letter (a lone surrogate) is a ValueError here.
    except RecursionError as problem:
        raise RequirementError("a condition needs plain JSON; it is too deep") from problem
    if not isinstance(raw, dict) or set(raw) != {"field", "test", "value"} or not isinstance(raw["field"], str):
        raise RequirementError('a condition in JSON needs {"field": ..., "test": ..., "value": ...} and nothing else')
    value, test = raw["value"], raw["test"]
    several = value if isinstance(value, list) else [value]
    if not several or any(not isinstance(one, str | int | float) for one in several) or "\\u0000" in json.dumps(raw):
        raise RequirementError(f"'{raw['field']}' needs a text, a number, or a list of them to be compared with")
    if test not in get_args(Test):
        raise RequirementError(f"a condition needs one of {', '.join(get_args(Test))}; it got another test")
    ranged = test in ("<", "<=", ">", ">=")
    typed = [_date(one) if ranged and isinstance(one, str) else _plain(one) for one in several]
    return Condition(raw["field"], test, typed if isinstance(value, list) else typed[0])


def _plain(value: Any) -> Value:
    return int(value) if isinstance(value, bool) else value


def _date(text: str) -> Value:
    when = seconds(text)
    return text if when is None else datetime.fromtimestamp(when, UTC)
