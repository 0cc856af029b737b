"""The Hub's ImageFolder form: images in a folder, with metadata.csv, metadata.jsonl or metadata.parquet."""

from __future__ import annotations

from pathlib import Path

from subtext.data.dataset import RowIssue
from subtext.data.folders import with_unlisted
from subtext.data.readers.table import typed_records
from subtext.data.rows import Columns, Row, Source, rows_of, split_in_name

PRIORITY = 90
LOOKS_FOR = "metadata.csv, metadata.jsonl or metadata.parquet (ImageFolder)"
_NAMES = ("metadata.jsonl", "metadata.csv", "metadata.parquet")


def recognises(path: Path) -> bool:
    """Recognise a folder with metadata.

    Args:
        path: Folder; it need not exist.

    Returns:
        Whether it has a metadata file.
    """
    return path.is_dir() and bool(_metadata_files(path))


def _metadata_files(folder: Path) -> list[Path]:
    """The metadata of a folder, or of its sub-folders down to two levels; in the order of their names."""
    levels = (
        sorted(path for name in _NAMES for path in folder.glob(pattern + name) if path.is_file())
        for pattern in ("", "*/", "*/*/")
    )
    return next(filter(None, levels), [])


def read(path: Path, images: Path | None, *, columns: Columns | None = None) -> Source:
    """Read the metadata of images; `file_name` is relative to the metadata's own folder.

    Where the metadata has no split, and every image lies in a folder that is named after one, that is its split.

    Args:
        path: Folder with metadata, in it or in its sub-folders.
        images: Folder of the images; None for `path`.
        columns: Role -> columns, where they have other names.

    Returns:
        The rows of all metadata files.
    """
    rows: list[Row | RowIssue] = []
    files = _metadata_files(path)
    for file in files:
        folder = "" if file.parent == path else file.parent.relative_to(path).as_posix()
        prefix = f"{file.relative_to(path)} " if folder else ""
        name = None if columns else file.name
        rows += rows_of(typed_records(file, columns, prefix), name, folder=folder, split=split_in_name(folder))
    if images is None:
        rows = list(with_unlisted(rows, path, files))
    usable = [row for row in rows if isinstance(row, Row)]
    if all(row.split is None for row in usable):
        parents = [row.image.partition("/") if isinstance(row.image, str) else ("", "", "") for row in usable]
        splits = [split_in_name(parent) if slash else None for parent, slash, _ in parents]
        for row, split in zip(usable, splits if all(splits) else [], strict=False):
            row.split = split
    return Source(rows, images if images is not None else path)
