"""Tables for people: aligned columns of plain text, the same in a terminal and in a file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from subtext.text_helpers import counted, json_text

Cell = str | float | int | None
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters, and those that turn the direction of the text after them."""


class Table(str):
    """A table as aligned text, which keeps its cells for HTML: (rows, columns) of text, the first row its head."""

    cells: Sequence[Sequence[str]]

    @property
    def html(self) -> str:
        """The same as an HTML table."""
        head, *rows = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in self.cells)
        return f"<table><tr>{head.replace('td>', 'th>')}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


class Report:
    """A result that consists of lines and tables: `print` shows it as text, a notebook as HTML."""

    def _lines(self) -> Sequence[str]:
        """Lines and `Table`s, in order."""
        raise NotImplementedError

    def to_json(self) -> Any:
        """Return the fields as plain data.

        Returns:
            Plain JSON values.
        """
        plain = lambda value: dict(value) if isinstance(value, Mapping) else str(value)  # noqa: E731
        return json.loads(json_text(vars(self), default=plain))

    def json_text(self) -> str:
        """Format `to_json` as indented JSON.

        Returns:
            The text.
        """
        return json_text(self.to_json(), indent=2)

    def __str__(self) -> str:
        return printable("\n".join(self._lines()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._lines()[0]})"

    def _repr_html_(self) -> str:
        return as_html(self._lines())


class SavedReport(Report):
    """A result that is also kept as JSON."""

    def save(self, path: Path) -> None:
        """Write `json_text` to a file, in one step.

        Args:
            path: The file.

        Raises:
            OutputError: If it cannot be written.
        """
        from subtext.data.atomic import write_text

        write_text(path, self.json_text() + "\n")


class TableReport(Report):
    """A result that is a list of mappings, its `entries`."""

    entries: tuple[dict[str, Any], ...]

    def __repr__(self) -> str:
        first = self._lines()[0]
        # A table in brackets would lose the places of its columns.
        return f"{type(self).__name__}({counted(len(self), 'row') if isinstance(first, Table) else first})"

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.entries)

    def to_json(self) -> list[dict[str, Any]]:
        """Return the entries.

        Returns:
            Plain JSON values.
        """
        return list(self.entries)


def as_html(lines: Sequence[str]) -> str:
    """Convert lines to paragraphs, and tables to HTML tables.

    Args:
        lines: The lines of a report.

    Returns:
        HTML.
    """
    return "".join(
        line.html if isinstance(line, Table) else f'<div style="white-space:pre-wrap">{escape(line)}</div>'
        for line in lines
    )


def table(head: Sequence[str], rows: Sequence[Sequence[Cell]], *, indent: int = 0) -> Table:
    """Format rows under a head; the first column to the left, numbers to the right, a dash for what is missing.

    Args:
        head: Names of the columns.
        rows: Cells of each row; None for a missing value.
        indent: Spaces before each line.

    Returns:
        The table.

    Example:
        >>> print(table(["recall", "@1"], [["model", 12.34], ["chance", None]]))
        recall    @1
        model   12.3
        chance     -
    """
    written = [[str(cell) for cell in head], *[[_cell(cell) for cell in row] for row in rows]]
    widths = [max(len(row[column]) for row in written) for column in range(len(head))]
    numeric = [
        column > 0
        and all(not isinstance(cell := row[column], str) or cell.removeprefix("-")[:1].isdigit() for row in rows)
        for column in range(len(head))
    ]
    lines = []
    for row in written:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        lines.append((" " * indent + "  ".join(cells)).rstrip())
    text = Table("\n".join(lines))
    text.cells = written
    return text


def printable(text: str) -> str:
    r"""Escape control characters but for tabs and line ends, so that a text cannot control the terminal.

    So are overrides of the direction of writing, which show a text in another order than it has.

    Args:
        text: The text.

    Returns:
        The escaped text.

    Example:
        >>> printable("a\x1b[2Jb")
        'a\\u001b[2Jb'
    """
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def shortened(text: str, width: int) -> str:
    """Shorten a text to the width of a cell.

    Args:
        text: The text.
        width: Largest number of characters.

    Returns:
        The text, or its start with an ellipsis.
    """
    return text if len(text) <= width else text[: width - 1] + "…"


def duration(seconds: float) -> str:
    """Format a time.

    Args:
        seconds: The time.

    Returns:
        Such as "1 min 15 s".

    Example:
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
    if isinstance(value, int):
        return f"{value:,}"
    # A cell is one line, as wide as it is printed.
    return " ".join(printable(value).splitlines()) if value else value
