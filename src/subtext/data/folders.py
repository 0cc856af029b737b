"""The files of a folder of data: which are images, and which are tables."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from subtext.data.dataset import RowIssue
from subtext.data.rows import Row
from subtext.text_helpers import counted, listed

IMAGES = frozenset(".jpg .jpeg .jpe .png .webp .tif .tiff .gif .bmp .avif .heic .heif".split())  # noqa: SIM905
"""Suffixes of image files."""
TABLES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".xlsx")
"""Suffixes of tables."""


def list_files(folder: Path, refuse: Callable[[OSError], NoReturn] | None = None) -> Iterator[str]:
    """List the files of a folder and its sub-folders, without hidden ones, which systems and editors write.

    Args:
        folder: The folder.
        refuse: Called for a sub-folder that cannot be read; None passes over it, which is enough to recognise a format.

    Yields:
        The paths from the folder, with "/" between their parts, sorted within each sub-folder.
    """
    for parent, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        inner = os.path.relpath(parent, folder).replace(os.sep, "/")
        yield from (name if inner == "." else f"{inner}/{name}" for name in sorted(names) if not name.startswith("."))


def suffix_of(name: str) -> str:
    """Return the suffix of a path in small letters, with its point; "" for none.

    Args:
        name: The path.

    Returns:
        The suffix.
    """
    return os.path.splitext(name)[1].lower()  # noqa: PTH122 (100,000 paths)


def with_unlisted(rows: Iterable[Row | RowIssue], folder: Path, tables: Sequence[Path]) -> Iterator[Row | RowIssue]:
    """Add a note on the images of a folder that no row of its tables names.

    Args:
        rows: The rows of all tables of the folder.
        folder: The folder.
        tables: Its tables, for the note.

    Yields:
        The rows, then the note if there are such images.
    """
    named, usable = set[str](), ""
    for row in rows:
        if isinstance(row, Row) and isinstance(row.image, str):
            named.add(row.image)
        elif isinstance(row, RowIssue) and row.fatal:
            usable = "usable "
        yield row
    plain = {_plain(folder, name) for name in named}
    found = (name for name in (list_files(folder) if named else ()) if suffix_of(name) in IMAGES)
    # Paths of a table may start in the folder `images`.
    left = [name for name in found if plain.isdisjoint(_plain(folder, n) for n in (name, name.removeprefix("images/")))]
    if left:
        files, are = listed([str(table.relative_to(folder)) for table in tables]), "is" if len(left) == 1 else "are"
        note = f"{counted(len(left), 'image')} of the folder {are} in no {usable}row of {files} and {are} left out"
        yield RowIssue(folder.name, f"{note}, first {left[0]}", fatal=False)


def _plain(folder: Path, name: str) -> str:
    """A path for comparison: tables may write backslashes, another case, and accents as two characters."""
    path = os.path.join(folder, name.replace("\\", "/"))  # noqa: PTH118 (100,000 paths)
    return unicodedata.normalize("NFC", os.path.abspath(path)).casefold()  # noqa: PTH100
