"""JSON-lines, CSV and Parquet: one row a picture with its texts, or a row for each of them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from subtext.data.readers.columns import Raw, rows_of, valid
from subtext.data.readers.rows import Problem, Row, Source
from subtext.errors import DataError

TABLES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
"""Endings of the files that `raws` reads."""

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
    try:
        if path.suffix == ".parquet":
            yield from _parquet(path, prefix)
        elif path.suffix in (".csv", ".tsv"):
            yield from _csv(path, prefix, "\t" if path.suffix == ".tsv" else ",")
        else:
            yield from _json(path, prefix)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def _json(path: Path, prefix: str) -> Iterator[Raw]:
    with path.open("rb") as file:
        start = file.read(4)
        _utf8(path, start)
        file.seek(3 if start.startswith(b"\xef\xbb\xbf") else 0)
        if path.suffix == ".json" and _listed(start):
            yield from _json_list(path, file.read(), prefix)
            return
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            where = f"{prefix}line {number}"
            try:
                value = json.loads(line)
            except UnicodeDecodeError:
                yield where, Problem(where, "is not valid UTF-8; save the file as UTF-8")
                continue
            except (json.JSONDecodeError, RecursionError) as error:
                yield where, Problem(where, f"is no JSON: {_short(error)}")
                continue
            yield where, _object(value, where)


def _json_list(path: Path, data: bytes, prefix: str) -> Iterator[Raw]:
    try:
        values = json.loads(data)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{path} needs to be a JSON list, or one JSON object a line; {_short(error)}") from error
    for number, value in enumerate(values, start=1):
        where = f"{prefix}entry {number}"
        yield where, _object(value, where)


def _listed(start: bytes) -> bool:
    return start.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")


def _object(value: Any, where: str) -> Mapping[str, Any] | Problem:
    if isinstance(value, dict):
        return value
    return Problem(where, f'needs a JSON object ({{"image": ..., "captions": [...]}}); it is {type(value).__name__}')


def _csv(path: Path, prefix: str, separator: str) -> Iterator[Raw]:
    with path.open("rb") as raw:
        _utf8(path, raw.read(4))
    before = csv.field_size_limit(_LONGEST_FIELD)
    try:
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            reader = csv.reader(file, delimiter=separator, strict=False)
            header = next(reader, None)
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
                    yield where, Problem(where, f"is no CSV: {error}")
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


def _parquet(path: Path, prefix: str) -> Iterator[Raw]:
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1024):
                for value in batch.to_pylist():
                    number += 1
                    yield f"{prefix}row {number}", value
    except pyarrow.ArrowException as error:
        raise DataError(f"{path} needs to be a Parquet file; after {number} rows: {_short(error)}") from error


def _utf8(path: Path, start: bytes) -> None:
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{path} needs to be UTF-8 text; it is UTF-16; save it again as UTF-8")


def _short(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
