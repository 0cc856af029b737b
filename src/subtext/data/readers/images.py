"""A folder of images without a table: every image in it, down to the last sub-folder, is an item.

Its texts and metadata are what is written inside the files, and in .xmp files beside them (`embedded`).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from subtext.data.dataset import Problem
from subtext.data.embedded import FIELDS, SIDECAR, TEXT_FIELDS, embedded_fields
from subtext.data.readers.table import TABLES
from subtext.data.rows import Columns, Row, Source, renamed, require_columns, rows_of
from subtext.errors import counted

PRIORITY = -1
LOOKS_FOR = "images (JPEG, PNG, WebP, TIFF, GIF, AVIF, HEIC)"
SUFFIXES = frozenset((".jpg", ".jpeg", ".jpe", ".png", ".webp", ".tif", ".tiff", ".gif", ".avif", ".heic", ".heif"))


def recognises(path: Path) -> bool:
    """Whether it is a folder with an image, and without tables, of which nobody says which one is meant."""
    if not path.is_dir() or any(file.suffix.lower() in TABLES for file in path.iterdir()):
        return False
    return any(_suffix(name) in SUFFIXES for name in _files(path))


def read(path: Path, images: Path | None, *, columns: Columns | None = None) -> Source:
    """One item per image; its id is its path from the folder, with "/" between the parts.

    columns  role -> fields of `embedded`; its texts are `headline` and `caption` where no others are named
    """
    columns = {"text": TEXT_FIELDS, **(columns or {})}
    require_columns(columns, FIELDS, "an image")
    folder = images if images is not None else path
    return Source(_rows(folder, columns), folder)


def _rows(folder: Path, columns: Columns) -> Iterator[Row | Problem]:
    names = sorted(_files(folder))
    every, others = set(names), Counter[str]()
    for name in names:
        if _suffix(name) not in SUFFIXES:
            others[_suffix(name) or "no suffix"] += _suffix(name) != SIDECAR
            continue
        # Lightroom writes a.xmp beside a.jpg; darktable and digiKam write a.jpg.xmp.
        sidecars = (stem + SIDECAR for stem in (name, os.path.splitext(name)[0]))  # noqa: PTH122 (100,000 paths)
        sidecar = next((folder / file for file in sidecars if file in every), None)
        fields, wrong = embedded_fields(folder / name, sidecar)
        for what in wrong:
            yield Problem(f"image {name}", what, fatal=False)
        yield from rows_of([(f"image {name}", renamed({"image": name, **fields}, columns))], None)
    if others.total():
        kinds = ", ".join(suffix for suffix, count in others.most_common(5) if count)
        note = f"{counted(others.total(), 'file')} of the folder left out, for it takes images only ({kinds})"
        yield Problem(folder.name, note, fatal=False)


def files_by_name(folder: Path) -> dict[str, str]:
    """Name of an image, with and without its suffix -> its path from the folder; of several, the first one."""
    found: dict[str, str] = {}
    for path in sorted(_files(folder)):
        name = path.rpartition("/")[2]
        if _suffix(name) in SUFFIXES:
            found.setdefault(name, path)
            found.setdefault(os.path.splitext(name)[0], path)  # noqa: PTH122 (100,000 paths)
    return found


def _files(folder: Path) -> Iterator[str]:
    """The paths of all files, from the folder; without hidden ones, which systems and editors write."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        inner = os.path.relpath(parent, folder).replace(os.sep, "/")
        yield from (name if inner == "." else f"{inner}/{name}" for name in sorted(names) if not name.startswith("."))


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1].lower()  # noqa: PTH122 (100,000 paths)
