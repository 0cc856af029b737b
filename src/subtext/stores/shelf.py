"""One modality of an index on disk: vectors that are memory-mapped, and a line of JSON an item."""

from __future__ import annotations

import json
import mmap
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.errors import IndexError_

VECTORS, ITEMS = "vectors.npy", "items.jsonl"


class Shelf:
    """Vectors and items in a folder, read when they are asked for.

    vectors  (N K D) float32, memory-mapped
    """

    def __init__(self, folder: Path, *, count: int, views: int, width: int) -> None:
        self.folder = folder
        self.vectors = _mapped(folder / VECTORS, (count, views, width))
        if self.count_of_lines != count:
            raise IndexError_(
                f"{folder / ITEMS} needs {count} lines, one an item; it has {self.count_of_lines}; "
                "build the index again"
            )

    def __len__(self) -> int:
        """How many items."""
        return int(self.vectors.shape[0])

    @property
    def count_of_lines(self) -> int:
        """Lines of the items' file."""
        return len(self._ends)

    def item(self, row: int) -> dict[str, Any]:
        """What is known of one item: "id", and "path" or "text" and more.

        Raises IndexError_ when its line is damaged.
        """
        start = 0 if row == 0 else int(self._ends[row - 1]) + 1
        line = self._text[start : int(self._ends[row])]
        try:
            found = json.loads(line)
        except ValueError as problem:
            raise IndexError_(f"{self.folder / ITEMS}, line {row + 1}, is not JSON; build the index again") from problem
        if not isinstance(found, dict) or not isinstance(found.get("id"), str):
            raise IndexError_(f"{self.folder / ITEMS}, line {row + 1}, has no item with an id; build the index again")
        return found

    @cached_property
    def _text(self) -> bytes | mmap.mmap:
        path = self.folder / ITEMS
        try:
            with path.open("rb") as file:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else b""
        except OSError as problem:
            raise IndexError_(f"{path} cannot be read: {problem.strerror}; build the index again") from problem

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        """Where each line ends: items are found without reading those before them."""
        found = np.frombuffer(self._text, dtype=np.uint8) == ord("\n") if len(self._text) else np.zeros(0, dtype=bool)
        return np.flatnonzero(found).astype(np.int64)


def write_shelf(folder: Path, vectors: NDArray[np.float32], items: Sequence[Mapping[str, Any]]) -> None:
    """Write (N K D) vectors and N items into a new folder.

    Raises IndexError_ when they are not as many, or a vector is not finite.
    """
    if vectors.ndim != 3 or len(vectors) != len(items):
        raise IndexError_(f"an index needs (N K D) vectors and N items; it got shape {vectors.shape} and {len(items)}")
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=(1, 2)))
    if len(bad):
        raise IndexError_(
            f"an index needs finite vectors; {len(bad)} are not, the first of item '{items[bad[0]]['id']}'; look at "
            "the training log of the model"
        )
    folder.mkdir()
    np.save(folder / VECTORS, np.ascontiguousarray(vectors, dtype=np.float32), allow_pickle=False)
    with (folder / ITEMS).open("w", encoding="utf-8", newline="\n") as file:
        for item in items:
            file.write(json.dumps(item, ensure_ascii=False, default=str) + "\n")


def _mapped(path: Path, shape: tuple[int, int, int]) -> NDArray[np.float32]:
    try:
        found = np.load(path, mmap_mode="r" if shape[0] else None, allow_pickle=False)
    except (OSError, ValueError, EOFError) as problem:
        raise IndexError_(f"{path} needs to be a whole file of vectors; {problem}; build the index again") from problem
    if found.shape != shape or found.dtype != np.float32:
        raise IndexError_(
            f"{path} needs float32 vectors of shape {shape} as the manifest says; it has {found.dtype} {found.shape}; "
            "build the index again"
        )
    return found
