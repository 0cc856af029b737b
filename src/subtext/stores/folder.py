"""A search index as a folder that describes itself.

INDEX/manifest.json            format, model and its fingerprint, width, counts, source
INDEX/images/, INDEX/texts/    vectors.npy (N K D float32) and items.jsonl (one item a line, in the same order)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.data import atomic
from subtext.errors import IndexError_
from subtext.stores.manifest import Manifest
from subtext.stores.shelf import Shelf, write_shelf

MANIFEST = "manifest.json"
Side = tuple[NDArray[np.float32], Sequence[Mapping[str, Any]]]
"""(N K D) vectors and N items, each with an "id"."""


class Folder:
    """An index on disk, opened: its manifest, and a shelf of pictures and one of texts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = read_manifest(path)
        counts, views = self.manifest.counts, self.manifest.views
        width = self.manifest.width
        self.images = Shelf(path / "images", count=counts["images"], views=views["images"], width=width)
        self.texts = Shelf(path / "texts", count=counts["texts"], views=views["texts"], width=width)

    @property
    def bytes(self) -> int:
        """Its size on disk."""
        return sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())


def read_manifest(path: Path) -> Manifest:
    """The manifest of an index folder.

    Raises IndexError_ when there is none.
    """
    file = path / MANIFEST
    if not file.is_file():
        what = "is not there" if not path.exists() else f"has no {MANIFEST}"
        raise IndexError_(f"{path} needs to be a folder that `subtext index build` wrote; it {what}")
    try:
        return Manifest.from_json(file.read_text(encoding="utf-8"), where=str(file))
    except UnicodeDecodeError as problem:
        raise IndexError_(f"{file} needs to be JSON; it is not text; build the index again") from problem


def require_new(path: Path) -> None:
    """Raise IndexError_ unless an index can be written there: a path that is free, or an empty folder."""
    if path.is_dir() and not any(path.iterdir()):
        return
    if path.exists() or path.is_symlink():
        raise IndexError_(f"an index needs a new or empty folder; {path} holds something; name another, or remove it")


def write_folder(path: Path, manifest: Manifest, *, images: Side, texts: Side) -> Folder:
    """Write an index, whole or not at all: it is made under another name beside `path`, and renamed.

    The manifest's counts, views and width are taken from the vectors. Raises IndexError_ when `path` holds something,
    or vectors and items do not agree; OutputError when it cannot be written.
    """
    require_new(path)
    sides = {"images": images, "texts": texts}
    widths = {vectors.shape[-1] for vectors, _ in sides.values()}
    if len(widths) != 1:
        raise IndexError_(f"an index needs pictures and texts of one width; it got {sorted(widths)}")
    manifest = replace(
        manifest,
        width=widths.pop(),
        counts={name: len(items) for name, (_, items) in sides.items()},
        views={name: vectors.shape[1] for name, (vectors, _) in sides.items()},
    )

    def fill(place: Path) -> None:
        for name, (vectors, items) in sides.items():
            write_shelf(place / name, vectors, items)
        (place / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")

    atomic.write_folder(path, fill)
    return Folder(path)
