"""The Hub's ImageFolder form: images in a folder, with metadata.csv, metadata.jsonl or metadata.parquet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from subtext.data.dataset import RowIssue
from subtext.data.folders import visible
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


def part(path: Path) -> str:
    """Say how far down the metadata lie: those on another level, which come later, are not what the folder is made of.

    Args:
        path: A path that `recognises` accepts.

    Returns:
        The number of folders above them: "0", "1" or "2"; "" where there are none.
    """
    files = _metadata_files(path)
    return str(len(files[0].relative_to(path).parts) - 1) if files else ""


def _metadata_files(folder: Path, part: str = "") -> list[Path]:
    """The metadata of a folder, or of its sub-folders down to two levels; in the order of their names."""
    folders = [folder]
    for level in range(3):
        files = sorted(path for above in folders for name in _NAMES if (path := above / name).is_file())
        if str(level) == part or (files and not part):
            return files
        folders = [path for above in folders for path in visible(above) if path.is_dir()]
    return []


def read(path: Path, images: Path | None, *, columns: Columns | None = None, part: str = "") -> Source:
    """Read the metadata of images; `file_name` is relative to the metadata's own folder.

    Where the metadata has no split, and every image lies in a folder that is named after one, that is its split.

    Args:
        path: Folder with metadata, in it or in its sub-folders.
        images: Folder of the images; None for `path`.
        columns: Role -> columns, where they have other names.
        part: Level of the metadata; "" for the highest that has some.

    Returns:
        The rows of all metadata files.
    """
    files = _metadata_files(path, part)

    def rows() -> Iterator[Row | RowIssue]:
        for file in files:
            folder = "" if file.parent == path else file.parent.relative_to(path).as_posix()
            prefix = f"{file.relative_to(path)} " if folder else ""
            name = None if columns else file.name
            yield from rows_of(typed_records(file, columns, prefix), name, folder=folder, split=split_in_name(folder))

    def with_splits() -> Iterator[Row | RowIssue]:
        by_folder = all(row.split is None and _split_of(row) is not None for row in rows() if isinstance(row, Row))
        for row in rows():
            if by_folder and isinstance(row, Row):
                row.split = _split_of(row)
            yield row

    root = images if images is not None else path
    return Source(with_splits(), root, tables=tuple(files), whole=root)


def _split_of(row: Row) -> str | None:
    """The split that the first folder of an image is named after."""
    parent, slash, _ = row.image.partition("/") if isinstance(row.image, str) else ("", "", "")
    return split_in_name(parent) if slash else None
