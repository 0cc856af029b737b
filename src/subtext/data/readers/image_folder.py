"""The Hub's ImageFolder form: pictures in a folder, with metadata.csv, metadata.jsonl or metadata.parquet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from subtext.data.columns import rows_of
from subtext.data.readers.table import raws
from subtext.data.rows import Problem, Row, Source
from subtext.data.splits import split_in_name

_NAMES = ("metadata.jsonl", "metadata.csv", "metadata.parquet")


def metadata_files(folder: Path) -> list[Path]:
    """The metadata of a folder, or of its sub-folders down to two levels; in the order of their names."""
    for pattern in ("", "*/", "*/*/"):
        found = sorted(path for name in _NAMES for path in folder.glob(pattern + name) if path.is_file())
        if found:
            return found
    return []


def read_image_folder(folder: Path, images: Path | None) -> Source:
    """`file_name` is relative to the metadata's own folder; a sub-folder named after a split is that split.

    Where the metadata has no split, and every picture lies in a folder that is named after one, that is its split.
    """
    root = images if images is not None else folder

    def rows() -> Iterator[Row | Problem]:
        for path in metadata_files(folder):
            inner = path.parent.relative_to(folder)
            prefix = "" if path.parent == folder else f"{path.relative_to(folder)} "
            split = split_in_name(inner.as_posix()) if inner.parts else None
            yield from rows_of(
                raws(path, prefix), path.name, folder=inner.as_posix() if inner.parts else "", split=split
            )

    return Source(_split_by_folder(list(rows())), root)


def _split_by_folder(rows: list[Row | Problem]) -> list[Row | Problem]:
    whole = [row for row in rows if isinstance(row, Row)]
    if any(row.split is not None or not isinstance(row.image, str) for row in whole):
        return rows
    named = {
        str(row.image): split_in_name(str(row.image).split("/")[0]) if "/" in str(row.image) else None for row in whole
    }
    if not named or None in named.values():
        return rows
    return [replace(row, split=named[str(row.image)]) if isinstance(row, Row) else row for row in rows]
