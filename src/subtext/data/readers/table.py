"""JSON-lines, CSV and Parquet: one row a picture with its texts, or a row for each of them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subtext.data.columns import Raw, described, rows_of, valid
from subtext.data.rows import Problem, Row, Source
from subtext.errors import DataError

if TYPE_CHECKING:
    import pyarrow

TABLES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
"""Endings of the files that `raws` reads."""

_MARK = b"\xef\xbb\xbf"
"""What some editors put before UTF-8."""

_LONGEST_FIELD = 64 * 2**20


def read_table(path: Path, images: Path | None) -> Source:
    """One file; relative picture paths start at `images`, or else at the file's folder."""
    return Source(rows_of(raws(path), path.name), images if images is not None else path.parent)


def read_tables(paths: list[Path], splits: list[str | None], images: Path | None, root: Path) -> Source:
    """Several files that are one data set, such as the Parquet shards of the Hub, with the split that each names."""

    def rows() -> Iterator[Row | Problem]:
        for path, split in zip(paths, splits, strict=True):
            yield from rows_of(raws(path, f"{path.relative_to(root)} "), path.name, split=split)

    return Source(rows(), images if images is not None else root)


def raws(path: Path, prefix: str = "") -> Iterator[Raw]:
    """The rows of one file as columns, each with where it stands ("line 17").

    Raises DataError when the file cannot be read at all.
    """
    ending = path.suffix.lower()
    try:
        if ending == ".parquet":
            yield from _parquet(path, prefix)
        elif ending in (".csv", ".tsv"):
            yield from _csv(path, prefix, "\t" if ending == ".tsv" else ",")
        else:
            yield from _json(path, prefix)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def _json(path: Path, prefix: str) -> Iterator[Raw]:
    with path.open("rb") as file:
        start = file.read(4096)
        _utf8(path, start)
        file.seek(3 if start.startswith(_MARK) else 0)
        if path.suffix.lower() == ".json":
            first = start.removeprefix(_MARK).lstrip().partition(b"\n")[0].strip()
            if first.startswith(b"["):
                yield from _json_list(path, file.read(), prefix)
                return
            if first == b"{":
                raise DataError(f"{path} needs to be a JSON list, or one JSON object a line; it is one long object")
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
                # A ValueError that is not of JSON's is a whole number of thousands of digits.
                yield where, Problem(where, f"is no JSON: {_short(error)}", name=_short(error))
                continue
            yield where, _object(value, where)


def _json_list(path: Path, data: bytes, prefix: str) -> Iterator[Raw]:
    try:
        values = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} needs to be a JSON list, or one JSON object a line; {_short(error)}") from error
    for number, value in enumerate(values, start=1):
        where = f"{prefix}entry {number}"
        yield where, _object(value, where)


def _object(value: Any, where: str) -> Mapping[str, Any] | Problem:
    if isinstance(value, dict):
        return value
    return Problem(where, f'needs a JSON object ({{"image": ..., "captions": [...]}}); it is {described(value)}')


def _csv(path: Path, prefix: str, separator: str) -> Iterator[Raw]:
    with path.open("rb") as raw:
        _utf8(path, raw.read(4))
    before = csv.field_size_limit(_LONGEST_FIELD)
    try:
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            # Strict: else a quote that nothing closes would make one text of all the lines that follow.
            reader = csv.reader(file, delimiter=separator, strict=True)
            header = _header(reader, path)
            if not header:
                raise DataError(f"{path} needs a first line that names its columns; the file is empty")
            header = [name.strip() for name in header]
            if len(set(header)) != len(header):
                raise DataError(f"{path} needs columns with different names; they are {', '.join(header)}")
            while True:
                where = f"{prefix}line {reader.line_num + 1}"
                try:
                    cells = next(reader, None)
                except csv.Error as error:
                    yield where, Problem(where, f"is no CSV: {error}; a quote inside of quotes is written twice")
                    continue
                if cells is None:
                    return
                if cells:
                    yield where, _cells(header, cells, where)
    finally:
        csv.field_size_limit(before)


def _header(reader: Iterator[list[str]], path: Path) -> list[str]:
    """The first line that holds something."""
    try:
        return next(filter(None, reader), [])
    except csv.Error as error:
        raise DataError(f"{path} needs a first line that names its columns; it is no CSV: {error}") from error


def _cells(header: list[str], cells: list[str], where: str) -> Mapping[str, Any] | Problem:
    if len(cells) != len(header):
        return Problem(
            where, f"needs {len(header)} cells, as the first line; it has {len(cells)}; put texts with commas in quotes"
        )
    if not all(map(valid, cells)):
        return Problem(where, "is not valid UTF-8; save the file as UTF-8")
    return {name: cell if cell != "" else None for name, cell in zip(header, cells, strict=True)}


def _parquet(path: Path, prefix: str) -> Iterator[Raw]:
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if len(set(names)) != len(names):
                raise DataError(f"{path} needs columns with different names; they are {', '.join(names)}")
            for batch in file.iter_batches(batch_size=1024):
                for value in _values(batch):
                    number += 1
                    where = f"{prefix}row {number}"
                    yield where, value if isinstance(value, dict) else Problem(where, value)
    except pyarrow.ArrowException as error:
        raise DataError(f"{path} needs to be a Parquet file; after {number} rows: {_short(error)}") from error


def _values(batch: pyarrow.RecordBatch) -> list[dict[str, Any] | str]:
    """Rows as dictionaries, or why one of them cannot be read."""
    try:
        return batch.to_pylist()
    except ValueError:
        pass
    # A string that is no UTF-8, or a time that Python has no number for, spoils its own row alone.
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
