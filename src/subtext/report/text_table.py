"""Tables for people: aligned columns of plain text, the same in a terminal and in a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

Cell = str | float | int | None


class Printed:
    """A result that a notebook shows as its text."""

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


class Saved(Printed):
    """A result that is also kept as JSON."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        raise NotImplementedError(f"{type(self).__name__} needs to_json")

    def json_text(self) -> str:
        """The same as indented JSON."""
        return json.dumps(self.to_json(), indent=2, ensure_ascii=False, allow_nan=False)

    def save(self, path: Path) -> None:
        """Write the JSON file atomically. Raises OutputError when it cannot be written."""
        from subtext.data.atomic import write_text

        write_text(path, self.json_text() + "\n")


def table(head: Sequence[str], rows: Sequence[Sequence[Cell]], *, indent: int = 0) -> str:
    """Rows under a head; the first column to the left, numbers to the right, a dash for what is missing.

    >>> print(table(["recall", "@1"], [["model", 12.34], ["chance", None]]))
    recall    @1
    model   12.3
    chance     -
    """
    written = [[str(cell) for cell in head], *[[_cell(cell) for cell in row] for row in rows]]
    widths = [max(len(row[column]) for row in written) for column in range(len(head))]
    numeric = [
        column > 0 and all(not isinstance(cell := row[column], str) or cell[:1].isdigit() for row in rows)
        for column in range(len(head))
    ]
    lines = []
    for row in written:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        lines.append((" " * indent + "  ".join(cells)).rstrip())
    return "\n".join(lines)


def shortened(text: str, width: int) -> str:
    """The start of a text that is longer than a cell."""
    return text if len(text) <= width else text[: width - 1] + "…"


def size(count: int) -> str:
    """Bytes for people.

    >>> size(1_536_000)
    '1.5 MB'
    """
    value, power = float(count), 0
    while value >= 1000 and power < 4:
        value, power = value / 1000, power + 1
    return f"{value:.1f} {('B', 'kB', 'MB', 'GB', 'TB')[power]}" if power else f"{count} B"


def duration(seconds: float) -> str:
    """A time for people.

    >>> duration(75)
    '1 min 15 s'
    """
    total_seconds = round(seconds)
    if total_seconds < 60:
        return f"{total_seconds} s"
    minutes, rest_seconds = divmod(total_seconds, 60)
    if minutes < 60:
        return f"{minutes} min {rest_seconds} s"
    return f"{minutes // 60} h {minutes % 60} min"


def _cell(value: Cell) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.1f}"
    return f"{value:,}" if isinstance(value, int) else value
