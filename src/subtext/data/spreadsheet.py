"""CSV as spreadsheets open it: with the separator of the country, and no cell that would be run as a formula."""

from __future__ import annotations

import csv
import io
import locale
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from subtext.data.atomic import write_text
from subtext.errors import ArgumentError

Separator = Literal["auto", "comma", "semicolon", "tab"]
SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t"}
_COMMA_FOR_DECIMALS = frozenset(
    {
        "af", "az", "be", "bg", "bs", "ca", "cs", "da", "de", "el", "es", "et", "eu", "fi", "fo", "fr", "gl", "hr",
        "hu", "hy", "id", "is", "it", "ka", "kk", "lt", "lv", "mk", "mn", "nb", "nl", "nn", "no", "pl", "pt", "ro",
        "ru", "sk", "sl", "sq", "sr", "sv", "tr", "uk", "uz", "vi",
    }
)  # fmt: skip
"""Languages whose spreadsheets separate cells by semicolons, as the comma is in their numbers."""
_WITH_POINT = ("de_CH", "es_MX", "es_US", "it_CH")
"""Countries of these languages whose numbers have a point."""
_FORMULA = re.compile(r"[=+\-@＝＋－＠\t\r\n]")
_NUMBER = re.compile(r"-?[\d.,]+(e-?\d+)?", re.IGNORECASE)

Cell = str | int | float | Sequence[str] | None


def separator_of(name: Separator) -> str:
    """The sign between cells.

    Args:
        name: "comma", "semicolon" or "tab"; "auto" for a semicolon where the locale of the user writes a decimal comma.

    Returns:
        One character.

    Raises:
        ArgumentError: For another name.

    Example:
        >>> separator_of("semicolon")
        ';'
    """
    if name != "auto":
        if name not in SEPARATORS:
            raise ArgumentError(f"separator needs auto, {', '.join(SEPARATORS)}; it got {name!r}", field="separator")
        return SEPARATORS[name]
    asked = (os.environ.get(name) for name in ("LC_ALL", "LC_NUMERIC", "LANG"))
    spoken = next((value for value in asked if value), None) or locale.getlocale()[0] or ""
    language = re.split(r"[_.@-]", spoken)[0].lower()
    return ";" if language in _COMMA_FOR_DECIMALS and not spoken.startswith(_WITH_POINT) else ","


def write_spreadsheet(
    file: str | Path, columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, separator: Separator = "auto"
) -> None:
    """Write a table as CSV, completely or not at all; a file that is there is replaced.

    It is UTF-8 with a mark that spreadsheets need to see that. With semicolons, decimals have a comma.

    Args:
        file: The file.
        columns: Names of the columns.
        rows: A cell for each column; lists are joined by " | ".
        separator: See `separator_of`.

    Raises:
        ArgumentError: For an unknown separator.
        OutputError: If it cannot be written.
    """
    sign, buffer = separator_of(separator), io.StringIO()
    table = csv.writer(buffer, delimiter=sign)
    table.writerow([_written(name, sign) for name in columns])
    table.writerows([_written(cell, sign) for cell in row] for row in rows)
    write_text(Path(file).expanduser(), "\ufeff" + buffer.getvalue())


def _written(cell: Cell, sign: str) -> str:
    """A cell as text; what a spreadsheet would take for a formula begins with an apostrophe."""
    if isinstance(cell, float) and not isinstance(cell, bool):
        return repr(cell).replace(".", ",") if sign == ";" else repr(cell)
    if cell is None or isinstance(cell, str | int):
        text = "" if cell is None else str(cell)
    else:
        text = " | ".join(map(str, cell))
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text
