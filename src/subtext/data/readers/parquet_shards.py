"""Parquet shards as the Hub stores them: several files that are one data set, named after their splits."""

from __future__ import annotations

from pathlib import Path

from subtext.data.folders import visible
from subtext.data.readers.table import records
from subtext.data.rows import Source, rows_of, split_in_name

PRIORITY = 60
LOOKS_FOR = "Parquet shards"


def recognises(path: Path) -> bool:
    """Recognise a folder with Parquet files, or one with them in `data`.

    Args:
        path: Folder; it need not exist.

    Returns:
        Whether it has Parquet files.
    """
    return path.is_dir() and bool(_files(path))


def _files(folder: Path) -> list[Path]:
    return sorted([*visible(folder, "*.parquet"), *visible(folder / "data", "*.parquet")])


def read(path: Path, images: Path | None) -> Source:
    """Read all rows of all files; the files' names give the splits where each of them names one.

    Args:
        path: Folder of the shards.
        images: Folder of relative image paths; None for `path`.

    Returns:
        The rows of all shards.
    """
    files = _files(path)
    splits = [split_in_name(file.name) for file in files]
    rows = (
        row
        for file, split in zip(files, splits, strict=True)
        for row in rows_of(records(file, f"{file.relative_to(path)} "), file.name, split=split if all(splits) else None)
    )
    root = images if images is not None else path
    return Source(rows, root, tables=tuple(files), whole=root)
