"""Are the pictures there, and can they be decoded?"""

from __future__ import annotations

import os
import unicodedata
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from subtext.data.batches import read_ahead
from subtext.data.dataset import Dataset, Items
from subtext.data.image_files import image_exists, open_image
from subtext.data.rows import Problem, Progress
from subtext.errors import DataError


def check_images(
    pairs: Dataset, where: list[str], *, verify: bool, progress: Progress | None = None
) -> tuple[Dataset, list[Problem]]:
    """The pairs whose pictures can be used, and a problem for each that cannot.

    verify  decode every picture, in threads; else only look whether its file is there

    Where none is there it is the folder that is wrong, which is one problem and not one a row.
    """
    pairs = _respelt(pairs)
    lost = _missing(pairs.images, pairs.root)
    if len(lost) == len(pairs.images) > 1:
        first = (pairs.root / str(pairs.images.values[0])).absolute()
        what = f"none of the {len(lost):,} is there; the first was looked for at {first}; name their folder (--images)"
        return without_pictures(pairs, np.empty(0, dtype=np.int64)), [Problem("pictures", what)]
    found = _nameless(pairs.images) | lost
    if verify:
        found |= _undecodable(pairs, set(found), progress)
    if not found:
        return pairs, []
    keep = np.ones(len(pairs.images), dtype=bool)
    keep[list(found)] = False
    problems = [Problem(where[row], what, name=_named(pairs.images, row, what)) for row, what in sorted(found.items())]
    return without_pictures(pairs, np.flatnonzero(keep).astype(np.int64)), problems


def without_pictures(pairs: Dataset, kept: NDArray[np.int64]) -> Dataset:
    """The chosen pictures; texts go whose last picture goes."""
    keep = np.zeros(len(pairs.images), dtype=bool)
    keep[kept] = True
    had, has = (np.zeros(len(pairs.texts), dtype=bool) for _ in range(2))
    had[pairs.links[:, 1]] = True
    has[pairs.links[keep[pairs.links[:, 0]], 1]] = True
    return pairs.subset(kept, np.flatnonzero(has | ~had).astype(np.int64))


def _nameless(images: Items) -> dict[int, str]:
    """Pictures without a file, where others have one; where none has, all are known by features."""
    without = [row for row, value in enumerate(images.values) if value is None]
    if len(without) == len(images):
        return {}
    return {row: f"picture '{images.ids[row]}' has no file, and others have; fill in its 'image'" for row in without}


def _missing(images: Items, root: Path) -> dict[int, str]:
    """Pictures whose file is not there: each folder is listed once, which is faster than asking for each file."""
    listed: dict[str, set[str]] = {}
    missing = {}
    start = os.fspath(root)
    for row, value in enumerate(images.values):
        if not isinstance(value, str) or "?offset=" in value:
            continue
        folder, name = os.path.split(os.path.join(start, value))  # noqa: PTH118 (30,000 paths, once a picture)
        if folder not in listed:
            listed[folder] = _names_in(folder)
        if name not in listed[folder]:
            missing[row] = f"picture '{value}' is not in {root}; name the folder of the pictures (--images)"
    return missing


def _named(images: Items, row: int, what: str) -> str:
    """What the sentence calls the picture, as it stands there."""
    value = images.values[row]
    name = value if isinstance(value, str) else images.ids[row]
    return next((form for form in (f"'{name}'", name) if form in what), "")


def _respelt(pairs: Dataset) -> Dataset:
    """Paths as the disk spells them: an accent is one character or two, and archives of some systems swap them."""
    values = list(pairs.images.values)
    for row, value in enumerate(values):
        if isinstance(value, str) and not value.isascii() and not image_exists(value, pairs.root):
            forms = (unicodedata.normalize(form, value) for form in ("NFC", "NFD"))
            values[row] = next((form for form in forms if image_exists(form, pairs.root)), value)
    return replace(pairs, images=replace(pairs.images, values=values)) if values != pairs.images.values else pairs


def _names_in(folder: str) -> set[str]:
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries if not entry.is_dir()}
    except (OSError, ValueError):
        return set()


def _undecodable(pairs: Dataset, known: set[int], progress: Progress | None) -> dict[int, str]:
    rows = [row for row, value in enumerate(pairs.images.values) if value is not None and row not in known]

    def why(row: int) -> str | None:
        try:
            # The whole file is decoded, at a small scale where the format has one.
            open_image(pairs.images.values[row], pairs.root, at_least=32)
        except DataError as error:
            return str(error)
        return None

    found = {}
    for done, (row, what) in enumerate(zip(rows, read_ahead(rows, why, workers=os.cpu_count() or 1), strict=True), 1):
        if what is not None:
            found[row] = what
        if progress is not None:
            progress(done, len(rows))
    return found
