"""A folder of images without a table: every image in it, down to the last sub-folder, is an item without a text."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from subtext.data.dataset import Problem
from subtext.data.readers.table import TABLES
from subtext.data.rows import Row, Source
from subtext.errors import counted

PRIORITY = -1
LOOKS_FOR = "images (JPEG, PNG, WebP, TIFF, GIF, AVIF, HEIC)"
SUFFIXES = frozenset((".jpg", ".jpeg", ".jpe", ".png", ".webp", ".tif", ".tiff", ".gif", ".avif", ".heic", ".heif"))


def recognises(path: Path) -> bool:
    """Whether it is a folder with an image, and without tables, of which nobody says which one is meant."""
    if not path.is_dir() or any(file.suffix.lower() in TABLES for file in path.iterdir()):
        return False
    return any(_is_image(name) for name in _files(path))


def read(path: Path, images: Path | None) -> Source:
    """One item per image; its id is its path from the folder, with "/" between the parts."""
    folder = images if images is not None else path
    return Source(_rows(folder), folder)


def _rows(folder: Path) -> Iterator[Row | Problem]:
    others: Counter[str] = Counter()
    for name in sorted(_files(folder)):
        if _is_image(name):
            yield Row(f"image {name}", name, None, [])
        else:
            others[os.path.splitext(name)[1].lower() or "no suffix"] += 1  # noqa: PTH122 (100,000 paths)
    if others:
        kinds = ", ".join(suffix for suffix, _ in others.most_common(5))
        note = f"{counted(others.total(), 'file')} of the folder left out, for it takes images only ({kinds})"
        yield Problem(folder.name, note, fatal=False)


def _files(folder: Path) -> Iterator[str]:
    """The paths of all files, from the folder; without hidden ones, which systems and editors write."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        inner = os.path.relpath(parent, folder).replace(os.sep, "/")
        yield from (name if inner == "." else f"{inner}/{name}" for name in sorted(names) if not name.startswith("."))


def _is_image(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in SUFFIXES  # noqa: PTH122 (100,000 paths)
