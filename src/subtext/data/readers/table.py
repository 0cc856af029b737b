"""JSON-lines, CSV and Parquet: a row per image with its texts, or a row per pair."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subtext.data.arrays import parquet_batches
from subtext.data.dataset import Problem
from subtext.data.rows import MARK, RESERVED, Record, Source, described, rows_of, valid
from subtext.errors import DataError

if TYPE_CHECKING:
    import pyarrow

PRIORITY = 0
LOOKS_FOR = "one JSON-lines, CSV or Parquet file"

TABLES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
"""Suffixes of the files that `records` reads."""

_NUMBER = re.compile(r"-?(0|[1-9]\d{0,14})(\.\d+)?", re.ASCII)
"""What is a number in a cell; 007 is a name."""
_MAX_FIELD_SIZE = 64 * 2**20


def recognises(path: Path) -> bool:
    """Whether it is such a file, or a folder with just one."""
    return _file(path) is not None


def _file(path: Path) -> Path | None:
    candidates = path.iterdir() if path.is_dir() else [path]
    files = [file for file in candidates if file.suffix.lower() in TABLES and file.is_file()]
    return files[0] if len(files) == 1 else None


def read(path: Path, images: Path | None) -> Source:
    """One file; relative image paths start at `images`, or else at the file's folder."""
    file = _file(path)
    assert file is not None
    return Source(rows_of(with_numbers(records(file), file), file.name), images if images is not None else file.parent)


def records(path: Path, prefix: str = "") -> Iterator[Record]:
    """The rows of one file as columns, each with its position ("line 17").

    Raises DataError when the file cannot be read at all.
    """
    suffix = path.suffix.lower()
    try:
        if suffix == ".parquet":
            yield from _parquet(path, prefix)
        elif suffix in (".csv", ".tsv"):
            yield from _csv(path, prefix, "\t" if suffix == ".tsv" else ",")
        else:
            yield from _json(path, prefix)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def with_numbers(rows: Iterator[Record], path: Path) -> Iterator[Record]:
    """The rows of a file of pairs; in CSV, further columns whose cells are all numbers become numbers, as in JSON."""
    texts = {*RESERVED, "labels"}
    tables = path.suffix.lower() in (".csv", ".tsv")
    for _, row in records(path) if tables else ():
        if not isinstance(row, Problem):
            texts |= {name for name, cell in row.items() if cell is not None and not _NUMBER.fullmatch(cell)}
    for where, row in rows:
        if tables and not isinstance(row, Problem):
            row = {name: cell if cell is None or name in texts else json.loads(cell) for name, cell in row.items()}
        yield where, row


def _json(path: Path, prefix: str) -> Iterator[Record]:
    with path.open("rb") as file:
        start = file.read(4096)
        _utf8(path, start)
        file.seek(3 if start.startswith(MARK) else 0)
        if path.suffix.lower() == ".json":
            first = start.removeprefix(MARK).lstrip().partition(b"\n")[0].strip()
            if first.startswith(b"["):
                try:
                    values = json.loads(file.read())
                except (ValueError, RecursionError) as error:
                    raise DataError(
                        f"{path} needs to be a JSON list, or one JSON object per line; {_short(error)}"
                    ) from error
                for number, value in enumerate(values, start=1):
                    yield f"{prefix}entry {number}", _object(value, f"{prefix}entry {number}")
                return
            if first == b"{":
                raise DataError(f"{path} needs to be a JSON list, or one JSON object per line; it is one long object")
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            where = f"{prefix}line {number}"
            try:
                value = json.loads(line)
            except UnicodeDecodeError:
                yield where, Problem(where, "is not valid UTF-8; save the file as UTF-8")
                continue
            except (ValueError, RecursionError) as error:
                # A ValueError from outside of JSON is an integer of thousands of digits.
                yield where, Problem(where, f"is no JSON: {_short(error)}", name=_short(error))
                continue
            yield where, _object(value, where)


def _object(value: Any, where: str) -> Mapping[str, Any] | Problem:
    if isinstance(value, dict):
        return value
    return Problem(where, f'needs a JSON object ({{"image": ..., "captions": [...]}}); it is {described(value)}')


def _csv(path: Path, prefix: str, separator: str) -> Iterator[Record]:
    with path.open("rb") as raw:
        _utf8(path, raw.read(4))
    before = csv.field_size_limit(_MAX_FIELD_SIZE)
    try:
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            # Strict: otherwise an unclosed quote would make one text of all lines that follow.
            reader = csv.reader(file, delimiter=separator, strict=True)
            try:
                header = [name.strip() for name in next(filter(None, reader), [])]
            except csv.Error as error:
                raise DataError(f"{path} needs a first line that names its columns; it is no CSV: {error}") from error
            if not header:
                raise DataError(f"{path} needs a first line that names its columns; the file is empty")
            if len(set(header)) != len(header):
                raise DataError(f"{path} needs columns with different names; they are {', '.join(header)}")
            while True:
                where = f"{prefix}line {reader.line_num + 1}"
                try:
                    cells = next(reader, None)
                except csv.Error as error:
                    yield where, Problem(where, f"is no CSV: {error}; write a quote inside of quotes twice")
                    continue
                if cells is None:
                    return
                if cells:
                    yield where, _cells(header, cells, where)
    finally:
        csv.field_size_limit(before)


def _cells(header: list[str], cells: list[str], where: str) -> Mapping[str, Any] | Problem:
    if len(cells) != len(header):
        return Problem(
            where, f"needs {len(header)} cells, as the first line; it has {len(cells)}; put texts with commas in quotes"
        )
    if not all(map(valid, cells)):
        return Problem(where, "is not valid UTF-8; save the file as UTF-8")
    return {name: cell if cell != "" else None for name, cell in zip(header, cells, strict=True)}


def _parquet(path: Path, prefix: str) -> Iterator[Record]:
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if len(set(names)) != len(names):
                raise DataError(f"{path} needs columns with different names; they are {', '.join(names)}")
            for batch in parquet_batches(file, path):
                for value in _values(batch):
                    number += 1
                    where = f"{prefix}row {number}"
                    yield where, value if isinstance(value, dict) else Problem(where, value)
    except pyarrow.ArrowException as error:
        raise DataError(f"{path} needs to be a Parquet file; after {number} rows: {_short(error)}") from error


def _values(batch: pyarrow.RecordBatch) -> list[dict[str, Any] | str]:
    """Rows as dictionaries, or the reason why one cannot be read."""
    try:
        return batch.to_pylist()
    except ValueError:
        pass
    # A string that is no UTF-8, or a time out of range, makes its own row unusable and no other.
    values: list[dict[str, Any] | str] = []
    for row in range(batch.num_rows):
        try:
            values += batch.slice(row, 1).to_pylist()
        except UnicodeDecodeError:
            values.append("is not valid UTF-8; write it as UTF-8")
        except ValueError as error:
            values.append(f"has a value that cannot be read: {_short(error)}")
    return values


def _utf8(path: Path, start: bytes) -> None:
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{path} needs to be UTF-8 text; it is UTF-16; save it again as UTF-8")


def _short(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
