"""Tables for people: aligned columns of plain text, the same in a terminal and in a file."""

from __future__ import annotations

from collections.abc import Sequence

Cell = str | float | int | None


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
        column > 0 and all(not isinstance(row[column], str) or _is_number(row[column]) for row in rows)
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


def size(count: int) -> str:
    """Bytes for people.

    >>> size(1_536_000)
    '1.5 MB'
    """
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


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


def _is_number(value: Cell) -> bool:
    return isinstance(value, str) and value[:1].isdigit()
