"""Conditions as SQL for PostgreSQL: constant pieces, with fields and values as parameters only.

Numbers are compared as `numeric`, which holds both 64-bit integers and floats exactly; parts of texts in the letters
that Python folds, so that a database's own language settings change no answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

from psycopg import sql

from subtext.errors import RequirementError
from subtext.search.stores.condition import ID, TEXT, Condition, Value, moment
from subtext.search.stores.item import DATE
from subtext.search.stores.postgres.words import phrase

Part = tuple[sql.Composable, list[Any]]
"""SQL that gives keys, and its parameters."""

_RANGES: Mapping[str, sql.SQL] = {
    "<": sql.SQL("SELECT key FROM facets WHERE side = %s AND name = %s AND number < %s"),
    "<=": sql.SQL("SELECT key FROM facets WHERE side = %s AND name = %s AND number <= %s"),
    ">": sql.SQL("SELECT key FROM facets WHERE side = %s AND name = %s AND number > %s"),
    ">=": sql.SQL("SELECT key FROM facets WHERE side = %s AND name = %s AND number >= %s"),
}
_NUMBERS = sql.SQL("SELECT key FROM facets WHERE side = %s AND name = %s AND number = ANY(%s::numeric[])")
_WORDS = sql.SQL(
    "SELECT key FROM facets WHERE side = %s AND name = %s AND word IS NOT NULL "
    "AND left(word, 200) IN (SELECT left(w, 200) FROM unnest(%s::text[]) AS u(w)) AND word = ANY(%s::text[])"
)
_HOLDING = sql.SQL("SELECT key FROM facets WHERE side = %s AND name = %s AND strpos(folded, %s) > 0")
_EVERY = sql.SQL("SELECT key FROM items WHERE side = %s")
_IDS = sql.SQL("SELECT key FROM items WHERE side = %s AND id = ANY(%s::text[])")
_IDS_HOLDING = sql.SQL("SELECT key FROM items WHERE side = %s AND strpos(folded_id, %s) > 0")
_SAYING = sql.SQL("SELECT key FROM items WHERE side = 1 AND words @@ %s::tsquery")
_ILLUSTRATING = sql.SQL(
    "SELECT i.key FROM items t JOIN links l ON l.text = t.id JOIN items i ON i.side = 0 AND i.id = l.image "
    "WHERE t.side = 1 AND t.words @@ %s::tsquery"
)


def matching(side: int, where: Sequence[Condition]) -> Part:
    """SQL for the keys of that side's items that fulfil every condition; for all of them where there is none."""
    parts = [keys(condition, side) for condition in where] or [(_EVERY, [side])]
    both = sql.SQL(" INTERSECT ").join(sql.SQL("({})").format(one) for one, _ in parts)
    return both, [value for _, values in parts for value in values]


def keys(condition: Condition, side: int) -> Part:
    """SQL for the keys of that side's items that fulfil a condition.

    Raises RequirementError for a text that no database can hold.
    """
    field, test, value = _held(condition.field), condition.test, condition.value
    if field == TEXT:
        asked = phrase(str(value))
        return (_SAYING if side == 1 else _ILLUSTRATING), [asked]
    if test == "!=":
        several = not isinstance(value, str | int | float | date)
        equal, values = keys(Condition(condition.field, "in" if several else "=", value), side)
        return sql.SQL("{} EXCEPT ({})").format(_EVERY, equal), [side, *values]
    chosen: Sequence[Value] = [value] if isinstance(value, str | int | float | date) else value
    if field == ID:
        if test == "contains":
            return _IDS_HOLDING, [side, _held(str(value)).casefold()]
        return _IDS, [side, [_held(str(one)) for one in chosen]]
    if test == "contains":
        return _HOLDING, [side, field, _held(str(value)).casefold()]
    if test in ("=", "in"):
        return _equal(side, field, chosen)
    (one,) = chosen
    assert not isinstance(one, str)
    dated = isinstance(one, date)
    return _RANGES[test], [side, field + DATE if dated else field, _number(one)]


def _equal(side: int, field: str, chosen: Sequence[Value]) -> Part:
    texts = [_held(value) for value in chosen if isinstance(value, str)]
    numbers = [_number(value) for value in chosen if not isinstance(value, str | date)]
    dates = [_number(value) for value in chosen if isinstance(value, date)]
    parts: list[Part] = [
        (_NUMBERS, [side, field, numbers]),
        (_NUMBERS, [side, field + DATE, dates]),
        (_WORDS, [side, field, texts, texts]),
    ]
    some = [part for part in parts if part[1][2]] or parts[:1]
    return sql.SQL(" UNION ").join(one for one, _ in some), [value for _, values in some for value in values]


def _number(value: Value) -> Decimal | None:
    """As PostgreSQL compares it exactly; None, which nothing is equal to, for what is no number."""
    number = moment(value) if isinstance(value, date) else value
    assert not isinstance(number, str | date)
    return None if isinstance(number, float) and math.isnan(number) else Decimal(number)


def _held(text: str) -> str:
    """A text that PostgreSQL can hold."""
    if "\0" in text or any("\ud800" <= sign <= "\udfff" for sign in text):
        raise RequirementError(
            f"a condition needs texts without the sign NUL and without halves of signs; it got {text!r}; leave them out"
        )
    return text
