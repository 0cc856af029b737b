"""Numbers and lists as the words of a message."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def json_text(value: Any, *, indent: int | None = None, default: Callable[[Any], Any] | None = None) -> str:
    """A value as JSON for a file, a terminal or a client: null stands for a number that is infinite or none.

    JSON has no such numbers, and most other programs refuse a text that has them.

    Args:
        value: What `json.dumps` takes.
        indent: Columns of each level; None for one line.
        default: Makes plain values of others.

    Returns:
        The text; letters are not escaped.

    Example:
        >>> json_text({"recall": float("nan"), "place": ["Zürich", float("inf")]})
        '{"recall": null, "place": ["Zürich", null]}'
    """
    try:
        return json.dumps(value, indent=indent, default=default, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(finite_json(value), indent=indent, default=default, ensure_ascii=False, allow_nan=False)


def finite_json(value: Any) -> Any:
    """The same values with null for a number that is infinite or none; tuples become lists.

    Args:
        value: Nested mappings, lists and tuples of plain values.

    Returns:
        What JSON can hold.
    """
    if isinstance(value, Mapping):
        return {name: finite_json(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite_json(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def counted(number: int, noun: str) -> str:
    """A number and what it counts.

    Args:
        number: 0 or more.
        noun: In the singular; its plural ends in "s".

    Returns:
        The number with thousands separated, then the noun.

    Example:
        >>> counted(1, "image"), counted(2000, "image")
        ('1 image', '2,000 images')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(names: Sequence[str], count: int = 3, *, separator: str = ", ", conjunction: str = " and") -> str:
    """The first of some names, and how many more there are.

    Args:
        names: Any number of names.
        count: How many are written out.
        separator: Between two names.
        conjunction: Before the number of the others.

    Returns:
        The text; empty for no names.

    Example:
        >>> listed(["a", "b", "c"], 2)
        'a, b and 1 more'
    """
    more = f"{conjunction} {len(names) - count:,} more" if len(names) > count else ""
    return separator.join(names[:count]) + more


def install_hint(extra: str) -> str:
    """Say how to install the packages of an extra, for messages.

    Subtext is on no package index yet. Once it is, this says `pip install 'subtext-retrieval[EXTRA]'`.

    Args:
        extra: Name of the extra, as in `pyproject.toml`.

    Returns:
        The command, and where to run it.

    Example:
        >>> install_hint("serve")
        "pip install '.[serve]' in a clone of Subtext"
    """
    return f"pip install '.[{extra}]' in a clone of Subtext"


def size(count: int) -> str:
    """Format a number of bytes.

    Args:
        count: Bytes.

    Returns:
        Such as "1.5 MB".

    Example:
        >>> size(1_536_000)
        '1.5 MB'
    """
    value, power = float(count), 0
    while value >= 1000 and power < 4:
        value, power = value / 1000, power + 1
    return f"{value:.1f} {('B', 'kB', 'MB', 'GB', 'TB')[power]}" if power else f"{count} B"
