"""The Hub's ImageFolder form: images in a folder, with metadata.csv, metadata.jsonl or metadata.parquet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from subtext.data.dataset import Problem
from subtext.data.readers.table import records
from subtext.data.rows import Row, Source, rows_of, split_in_name

PRIORITY = 90
LOOKS_FOR = "metadata.csv, metadata.jsonl or metadata.parquet (ImageFolder)"
_NAMES = ("metadata.jsonl", "metadata.csv", "metadata.parquet")


def recognises(path: Path) -> bool:
    """Whether it is a folder with metadata."""
    return path.is_dir() and bool(_metadata_files(path))


def _metadata_files(folder: Path) -> list[Path]:
    """The metadata of a folder, or of its sub-folders down to two levels; in the order of their names."""
    for pattern in ("", "*/", "*/*/"):
        files = sorted(path for name in _NAMES for path in folder.glob(pattern + name) if path.is_file())
        if files:
            return files
    return []


def read(path: Path, images: Path | None) -> Source:
    """`file_name` is relative to the metadata's own folder; a sub-folder named after a split is that split.

    Where the metadata has no split, and every image lies in a folder that is named after one, that is its split.
    """

    def rows() -> Iterator[Row | Problem]:
        for file in _metadata_files(path):
            folder = file.parent.relative_to(path).as_posix()
            folder = "" if folder == "." else folder
            prefix = f"{file.relative_to(path)} " if folder else ""
            split = split_in_name(folder) if folder else None
            yield from rows_of(records(file, prefix), file.name, folder=folder, split=split)

    return Source(_split_by_folder(list(rows())), images if images is not None else path)


def _split_by_folder(rows: list[Row | Problem]) -> list[Row | Problem]:
    usable = [row for row in rows if isinstance(row, Row)]
    if any(row.split is not None or not isinstance(row.image, str) for row in usable):
        return rows
    splits = {
        str(row.image): split_in_name(str(row.image).split("/")[0]) if "/" in str(row.image) else None for row in usable
    }
    if not splits or None in splits.values():
        return rows
    return [replace(row, split=splits[str(row.image)]) if isinstance(row, Row) else row for row in rows]
