"""JSON-lines, CSV, TSV, Excel and Parquet: a row per image with its texts, or a row per pair."""

from __future__ import annotations

import codecs
import csv
import json
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime, time
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any

from subtext.data.arrays import parquet_batches, record_values
from subtext.data.dataset import RowIssue
from subtext.data.dates import days, read_date
from subtext.data.folders import TABLES, visible
from subtext.data.rows import (
    MARK,
    RESERVED,
    Columns,
    Record,
    Source,
    clean_name,
    described,
    rows_of,
    valid,
    with_lists,
    with_roles,
)
from subtext.errors import DataError
from subtext.text_helpers import counted, install_hint

PRIORITY = 0
LOOKS_FOR = "one JSON-lines, CSV, TSV, Excel or Parquet file"

SEPARATORS = {".csv": ",", ".tsv": "\t"}
"""Suffix of a table of texts -> the usual separator of its cells; the one that its first line has most often counts."""

_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,14})(?:([.,])\d+)?", re.ASCII)
"""A number in a cell; 007 is a name. A comma is a point where semicolons separate the cells."""
_UNCLEAR = re.compile(r"-?\d+((\.\d{3})*,\d+|(,\d{3})+\.\d+)", re.ASCII)
"""A number of more than one meaning: 1,250."""
_SLASHES = re.compile(r"(\d\d?)[/-](\d\d?)[/-]\d{4}", re.ASCII)
_TEXTS = {*RESERVED, "labels"}
"""Columns that are no numbers and no dates, whatever they look like."""
_MAX_FIELD_SIZE = 64 * 2**20


def recognises(path: Path) -> bool:
    """Recognise a table, or a folder with just one.

    Args:
        path: File or folder; it need not exist.

    Returns:
        Whether it is one of these.
    """
    return _file(path) is not None


def _file(path: Path) -> Path | None:
    candidates = visible(path) if path.is_dir() else [path]
    files = [file for file in candidates if file.suffix.lower() in TABLES and file.is_file()]
    return files[0] if len(files) == 1 else None


def part(path: Path) -> str:
    """Name the table of a folder, which stays its table when others come into the folder.

    Args:
        path: A path that `recognises` accepts.

    Returns:
        Name of the file; "" for a path that is the file itself.
    """
    file = _file(path)
    return file.name if file and path.is_dir() else ""


def read(path: Path, images: Path | None, *, columns: Columns | None = None, part: str = "") -> Source:
    """Read one table.

    Args:
        path: The file, or a folder with just one.
        images: Folder of relative image paths; None for the file's folder.
        columns: Of each role, where they have other names.
        part: Name of the table in the folder; "" for its only one.

    Returns:
        The rows, to be joined with the files of their folder.
    """
    file = path / part if part else _file(path)
    assert file is not None
    rows = rows_of(typed_records(file, columns), None if columns else file.name)
    folder = file.parent if images is None else images
    # Who names a table, or its own folder as that of the images, means these rows.
    whole = images or (path if path.is_dir() else None)
    return Source(rows, folder, tables=(file,), whole=None if images == file.parent else whole)


def records(path: Path, prefix: str = "") -> Iterator[Record]:
    """Read the rows of one file as columns.

    Args:
        path: The file, with a suffix of `folders.TABLES`.
        prefix: Text before the position of each row, such as the name of a shard.

    Yields:
        The position ("line 17") with the columns, or the reason why the row cannot be used.

    Raises:
        DataError: If the file cannot be read at all.
    """
    suffix = path.suffix.lower()
    try:
        if suffix == ".parquet":
            yield from _parquet(path, prefix)
        elif suffix == ".xlsx":
            yield from _excel(path, prefix)
        elif suffix in SEPARATORS:
            yield from _csv(path, prefix)
        else:
            yield from _json(path, prefix)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def typed_records(path: Path, columns: Columns | None = None, prefix: str = "") -> Iterator[Record]:
    """Read a file of pairs under the names of roles; in CSV, columns of numbers alone become these.

    Other cells stay as they are written; dates are compared as such wherever they stand, and so are numbers. A column
    of mixed kinds gets a note.

    Args:
        path: The file.
        columns: Role -> columns, where they have other names.
        prefix: Text before the position of each row.

    Yields:
        As `records`, with notes on columns of mixed kinds.
    """
    suffix = path.suffix.lower()
    header = suffix in (*SEPARATORS, ".xlsx", ".parquet")
    if suffix not in SEPARATORS:
        yield from typed_rows(records(path, prefix), columns or {}, path.name, header=header)
        return

    def named() -> Iterator[Record]:
        for where, row in with_roles(records(path, prefix), columns or {}, path.name, header=header):
            yield where, row if isinstance(row, RowIssue) else with_lists(row)

    cells = _Cells(_separator(path) == ";")
    for where, row in named():
        if not isinstance(row, RowIssue):
            cells.count(where, row)
    yield from cells.notes(path.name)
    for where, row in named():
        if not isinstance(row, RowIssue):
            row = {n: json.loads(c.replace(",", ".")) if c and n in cells.numeric else c for n, c in row.items()}
        yield where, row


def typed_rows(table: Iterable[Record], columns: Columns, name: str, *, header: bool) -> Iterator[Record]:
    """Give the records of a table with types of its own, in a file or in memory, the names of roles.

    Args:
        table: Position and columns of each row.
        columns: Role -> columns, where they have other names.
        name: Of the table, for messages.
        header: Whether every record has all columns.

    Yields:
        The records, with notes on columns of mixed kinds.
    """
    cells = _Cells(None)
    for where, row in with_roles(table, columns, name, header=header):
        if isinstance(row, RowIssue):
            yield where, row
            continue
        row = with_lists(row)
        cells.count(where, row)
        yield where, row
    yield from cells.notes(name)


_FEW = 10
"""Of so many texts a number or a date among them is one of the words, not of another kind of cell."""


class _Cells:
    """Counts the kinds of cells in each column.

    Args:
        semicolons: Whether semicolons separate the cells of CSV; None for a format that has numbers of its own.
    """

    def __init__(self, semicolons: bool | None) -> None:
        self.is_csv, self.points, self.semicolons = semicolons is not None, dict[str, str](), semicolons
        self.kinds: dict[str, Counter[str]] = {}
        self.first: dict[tuple[str, str], tuple[str, str]] = {}
        self.read_as: dict[str, tuple[str, str, tuple[str, str]]] = {}

    def count(self, where: str, row: Mapping[str, Any]) -> None:
        """Count the cells of a row.

        Args:
            where: Position of the row.
            row: Column -> cell.
        """
        for name, cell in row.items():
            is_number = isinstance(cell, int | float) and not isinstance(cell, bool) and cell == cell
            if name in _TEXTS or not (is_number or (isinstance(cell, str) and cell)):
                continue
            kind = "number" if is_number else self._kind(where, name, cell)
            kinds = self.kinds.get(name)
            if kinds is None:
                kinds = self.kinds[name] = Counter()
            if kind not in kinds:
                self.first[name, kind] = where, str(cell)
            kinds[kind] += 1

    def _kind(self, where: str, name: str, cell: str) -> str:
        if self.is_csv and (number := _NUMBER.fullmatch(cell)):
            # Of 1.250 and 12,50 in one column, nothing says which one is a thousand.
            point = number[1] and self.points.setdefault(name, number[1] if self.semicolons else ".")
            return "number" if point == number[1] else "unclear number"
        if (interval := read_date(cell)) is not None:
            if (parts := _SLASHES.fullmatch(cell)) and parts[1] != parts[2] and max(int(parts[1]), int(parts[2])) <= 12:
                self.read_as.setdefault(name, (where, cell, days(interval)))
            return "date"
        return "unclear number" if self.is_csv and _UNCLEAR.fullmatch(cell) else "text"

    @property
    def numeric(self) -> set[str]:
        """Columns of numbers alone."""
        return {name for name, kinds in self.kinds.items() if kinds.keys() == {"number"}}

    def notes(self, file: str) -> Iterator[Record]:
        """A note on each column of mixed kinds, and on one whose days and months may be exchanged.

        Args:
            file: Name of the file.

        Yields:
            The notes.
        """
        for name, kinds in self.kinds.items():
            texts, dates = kinds["text"], kinds["date"]
            few = (kinds.total() - texts) * _FEW < texts and texts >= 5 * _FEW
            only_dates = kinds.total() == texts + dates and dates <= texts
            (main, count), *rest = kinds.most_common()
            if (rest and not (few and self.is_csv) and not only_dates) or kinds.keys() == {"unclear number"}:
                more = kinds.total() - count
                shown, _ = rest[0] if rest else (main, count)
                where, cell = self.first[name, shown]
                also = f"and {counted(more, 'other cell')}, {'first ' * (more > 1)}" if rest else "such as "
                mixed = f"{counted(count, main)} {also}'{cell:.40}'"
                note = (
                    f"column '{name}' has {mixed} ({where}); "
                    "< and > compare its numbers and its dates, and pass over the others"
                )
                yield file, RowIssue(file, note, name=f"'{name}'", fatal=False)
        for name, (where, cell, (day, _)) in self.read_as.items():
            note = f"column '{name}' has '{cell}' ({where}), which is read as {day}: the day stands before the month"
            yield file, RowIssue(file, note, name=f"'{name}'", fatal=False)


def _json(path: Path, prefix: str) -> Iterator[Record]:
    with path.open("rb") as file:
        start = file.peek()
        _utf8(path, start)
        if path.suffix.lower() == ".json":
            first = start.removeprefix(MARK).lstrip().partition(b"\n")[0].strip()
            if first.startswith(b"["):
                for number, value in enumerate(_list_entries(file, path), start=1):
                    yield f"{prefix}entry {number}", _object(value, f"{prefix}entry {number}")
                return
            if first == b"{":
                raise DataError(f"{path} needs to be a JSON list, or one JSON object per line; it is one long object")
        yield from json_lines(file, prefix)


_PIECE, _NEAR = 2**16, 16
"""Letters of a list that are read at a time; so near to the end of what was read, an error may be one of the cut."""
_SPACE = re.compile(r"[ \t\n\r]*")


def _list_entries(file: IO[bytes], path: Path) -> Iterator[Any]:
    """The values of a JSON list, one after the other: of the file, no more is held than a value needs."""
    letters = codecs.getreader("utf-8")(file)
    text, place, before, lines, column = "", 0, 0, 0, 0

    def read_on() -> bool:
        """Forget what was parsed, and read as much again as there is, so that a long value is not tried often."""
        nonlocal text, place, before, lines, column
        if not (more := letters.read(max(_PIECE, len(text) - place))):
            return False
        before, breaks = before + place, text.count("\n", 0, place)
        lines, column = lines + breaks, place - text.rfind("\n", 0, place) - 1 if breaks else column + place
        text, place = text[place:] + more, 0
        return True

    def after_space() -> str:
        """The next letter that is no space; "" at the end."""
        nonlocal place
        while True:
            place = _SPACE.match(text, place).end()  # type: ignore[union-attr]
            if place < len(text):
                return text[place]
            if not read_on():
                return ""

    def refused(what: str, at: int) -> ValueError:
        breaks = text.count("\n", 0, at)
        in_line = at - text.rfind("\n", 0, at) if breaks else column + at + 1
        return ValueError(f"{what}: line {lines + breaks + 1} column {in_line} (char {before + at})")

    def value() -> Any:
        nonlocal place
        while True:
            try:
                found, end = _DECODER.raw_decode(text, place)
                # Of a number at the end, the rest may come.
                if end < len(text) or not read_on():
                    place = min(end, len(text))
                    return found
            except json.JSONDecodeError as error:
                is_cut = error.pos > len(text) - _NEAR or error.msg.startswith("Unterminated string")
                if not is_cut or not read_on():
                    raise refused(error.msg, error.pos) from error

    try:
        if after_space() == "\ufeff":
            place += 1
            after_space()
        place += 1
        sign = after_space()
        while sign != "]":
            yield value()
            if (sign := after_space()) == ",":
                place += 1
                if after_space() == "]":
                    raise refused("Illegal trailing comma before end of array", place)
            elif sign != "]":
                raise refused("Expecting ',' delimiter", place)
        place += 1
        if after_space():
            raise refused("Extra data", place)
    except (ValueError, RecursionError) as error:
        # Also bytes that are no UTF-8, a name twice in one object, or lists in lists without end.
        what = "it is not valid UTF-8; save it as UTF-8" if isinstance(error, UnicodeDecodeError) else _short(error)
        raise DataError(f"{path} needs to be a JSON list, or one JSON object per line; {what}") from error


def json_lines(lines: Iterable[bytes], prefix: str = "") -> Iterator[Record]:
    """Read JSON lines.

    Args:
        lines: The lines, such as a file; empty ones are passed over.
        prefix: Text before the position of each row.

    Yields:
        The position ("line 17") with the object, or the reason why the line is none.
    """
    for number, line in enumerate(lines, start=1):
        line = line.removeprefix(MARK)
        if not line.strip():
            continue
        where = f"{prefix}line {number}"
        try:
            value = _DECODER.decode(line.decode("utf-8", "surrogatepass"))
        except UnicodeDecodeError:
            yield where, RowIssue(where, "is not valid UTF-8; save the file as UTF-8")
            continue
        except (ValueError, RecursionError) as error:
            # A ValueError from outside of JSON is an integer of thousands of digits.
            yield where, RowIssue(where, f"is no JSON: {_short(error)}", name=_short(error))
            continue
        yield where, _object(value, where)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, none of whose names is there twice."""
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for position, name in enumerate(names) if name in names[:position])
        raise ValueError(f"the name {twice!r} is there twice in one object; rename one")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_once)
"""To make one for each line takes longer than to read the line."""


def _object(value: Any, where: str) -> Mapping[str, Any] | RowIssue:
    if isinstance(value, dict):
        return value
    return RowIssue(where, f'needs a JSON object ({{"image": ..., "captions": [...]}}); it is {described(value)}')


def _separator(path: Path) -> str:
    """The separator of cells: that of a first line of Excel ("sep=;"), or the most frequent one of the first line."""
    with path.open("rb") as raw:
        start = raw.peek()
    _utf8(path, start)
    first, usual = start.removeprefix(MARK).strip().partition(b"\n")[0], SEPARATORS[path.suffix.lower()]
    if match := re.fullmatch(rb"sep=([,;|\t])\r?", first):
        return match[1].decode()
    # Spreadsheets of many countries save CSV with semicolons.
    return max((usual, ",", ";", "\t"), key=lambda mark: first.count(mark.encode()))


def _csv(path: Path, prefix: str) -> Iterator[Record]:
    separator = _separator(path)
    encoding = "utf-8-sig"
    if _is_windows(path):
        encoding = "cp1252"
        yield path.name, RowIssue(path.name, "is not UTF-8; it was read as Windows-1252 (cp1252)", fatal=False)
    before = csv.field_size_limit(_MAX_FIELD_SIZE)
    try:
        with path.open(encoding=encoding, errors="surrogateescape", newline="") as file:
            # Strict: otherwise an unclosed quote would make one text of all lines that follow.
            reader = csv.reader(file, delimiter=separator, strict=True)
            try:
                first = (row for row in reader if any(map(str.strip, row)) and row != ["sep=", ""])
                header = [name.strip() for name in next(first, [])]
            except csv.Error as error:
                raise DataError(f"{path} needs a first line that names its columns; it is no CSV: {error}") from error
            if not header:
                raise DataError(f"{path} needs a first line that names its columns; the file is empty")
            header, notes = _distinct(header, path.name)
            yield from notes
            while True:
                where = f"{prefix}line {reader.line_num + 1}"
                try:
                    cells = next(reader, None)
                except csv.Error as error:
                    yield where, RowIssue(where, f"is no CSV: {error}; write a quote inside of quotes twice")
                    continue
                if cells is None:
                    return
                if any(map(str.strip, cells)):  # Spreadsheets write rows of separators alone.
                    yield where, _cells(header, cells, where)
    finally:
        csv.field_size_limit(before)


def _distinct(header: Sequence[str], file: str) -> tuple[list[str], list[Record]]:
    """Names of columns, each once, with a note where some have none or the same."""
    names, changed, unnamed = list[str](), list[str](), list[str]()
    for number, name in enumerate(header, start=1):
        new = clean_name(name) or f"column {number}"
        again = 2
        while new in names or (new != name and new in header):
            new, again = f"{name or f'column {number}'} ({again})", again + 1
        names.append(new)
        changed += [new] if name and new != name else []
        unnamed += [] if name else [new]
    notes = []
    if changed:
        notes.append(f"needs columns with different names; the later ones are read as {', '.join(map(repr, changed))}")
    if unnamed and not (len(unnamed) == 1 and names[-1] == unnamed[0]):
        notes.append(f"has columns without a name; they are read as {', '.join(map(repr, unnamed))}")
    return names, [(file, RowIssue(file, note, fatal=False)) for note in notes]


def _cells(header: list[str], cells: list[str], where: str) -> Mapping[str, Any] | RowIssue:
    try:
        row = {name: cell or None for name, cell in zip(header, cells, strict=True)}
    except ValueError:
        needs = f"needs {len(header)} cells, as the first line; it has {len(cells)}; put texts with commas in quotes"
        return RowIssue(where, needs)
    return row if all(map(valid, cells)) else RowIssue(where, "is not valid UTF-8; save the file as UTF-8")


def _is_windows(path: Path) -> bool:
    """Whether a file has lines that are no UTF-8, and none whose accents are: a damaged line alone changes nothing."""
    windows = False
    with path.open("rb") as lines:
        for line in lines:
            if line.isascii():
                continue
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                windows = True
            else:
                return False
    return windows


def _excel(path: Path, prefix: str) -> Iterator[Record]:
    """The rows of the first sheet, as Excel shows them: whole numbers without a point, dates in ISO 8601."""
    try:
        import openpyxl
    except ImportError as error:
        raise DataError(f"{path} is Excel, which needs openpyxl; {install_hint('excel')}") from error
    try:
        with closing(openpyxl.load_workbook(path, read_only=True, data_only=True)) as book:
            rows = book.worksheets[0].iter_rows(values_only=True)
            header = [str(name).strip() if name is not None else "" for name in next(rows, ())]
            if not any(header):
                raise DataError(f"{path} needs a first row that names its columns; it is empty")
            header, notes = _distinct(header, path.name)
            yield from notes
            for number, cells in enumerate(rows, start=2):
                where, row = f"{prefix}row {number}", [_cell(cell) for cell in cells]
                if any(cell is not None for cell in row[len(header) :]):
                    yield (
                        where,
                        RowIssue(
                            where,
                            f"needs {len(header)} cells, as the first row; it has {len(cells)}; name all columns there",
                        ),
                    )
                elif any(cell is not None for cell in row):
                    yield where, dict(zip_longest(header, row[: len(header)]))
    except (zipfile.BadZipFile, KeyError, SyntaxError, ValueError, EOFError, zlib.error) as error:
        raise DataError(f"{path} needs to be an Excel workbook (.xlsx); reading it failed: {_short(error)}") from error


def _cell(value: Any) -> Any:
    if isinstance(value, datetime):
        # Excel stores a day as its first moment.
        return value.date().isoformat() if value.time() == time() else value.isoformat()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if value == "":
        return None
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _parquet(path: Path, prefix: str) -> Iterator[Record]:
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            names, notes = _distinct(file.schema_arrow.names, path.name)
            yield from notes
            for batch in parquet_batches(file, path):
                for value in record_values(batch.rename_columns(names)):
                    number += 1
                    where = f"{prefix}row {number}"
                    yield where, value if isinstance(value, dict) else RowIssue(where, value)
    except pyarrow.ArrowException as error:
        raise DataError(f"{path} needs to be a Parquet file; after {number} rows: {_short(error)}") from error


def _utf8(path: Path, start: bytes) -> None:
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{path} needs to be UTF-8 text; it is UTF-16; save it again as UTF-8")


def _short(error: Exception) -> str:
    first, *_ = str(error).splitlines() or [type(error).__name__]
    return f"{first:.200}"
