"""Checks that image files exist and can be decoded."""

from __future__ import annotations

import os
import unicodedata
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from subtext.data.batches import read_ahead
from subtext.data.dataset import Dataset, Items, Problem
from subtext.data.image_files import image_exists, open_image
from subtext.data.rows import Progress
from subtext.errors import DataError


def check_images(
    dataset: Dataset, where: list[str], *, verify: bool, progress: Progress | None = None
) -> tuple[Dataset, list[Problem]]:
    """The dataset whose images can be used, and a problem for each image that cannot.

    verify  decode every image, in threads; otherwise only check that its file exists

    Where no file exists the folder is wrong, which is one problem and not one per row.
    """
    dataset = _respelled(dataset)
    missing = _missing(dataset.images, dataset.root)
    if len(missing) == len(dataset.images) > 1:
        first = (dataset.root / str(dataset.images.values[0])).absolute()
        message = f"none of the {len(missing):,} exists; the first path was {first}; name their folder (--images)"
        return keep_images(dataset, np.empty(0, dtype=np.int64)), [Problem("images", message)]
    reasons = _without_file(dataset.images) | missing
    if verify:
        reasons |= _undecodable(dataset, set(reasons), progress)
    if not reasons:
        return dataset, []
    keep = np.ones(len(dataset.images), dtype=bool)
    keep[list(reasons)] = False
    problems = [
        Problem(where[row], message, name=_name_in(message, dataset.images, row))
        for row, message in sorted(reasons.items())
    ]
    return keep_images(dataset, np.flatnonzero(keep).astype(np.int64)), problems


def keep_images(dataset: Dataset, rows: NDArray[np.int64]) -> Dataset:
    """The images at these rows, and the texts that still have an image or never had one."""
    keep = np.zeros(len(dataset.images), dtype=bool)
    keep[rows] = True
    had, has = (np.zeros(len(dataset.texts), dtype=bool) for _ in range(2))
    had[dataset.links[:, 1]] = True
    has[dataset.links[keep[dataset.links[:, 0]], 1]] = True
    return dataset.subset(rows, np.flatnonzero(has | ~had).astype(np.int64))


def _without_file(images: Items) -> dict[int, str]:
    """Images without a file, where others have one; where none has, all are known by features."""
    without = [row for row, value in enumerate(images.values) if value is None]
    if len(without) == len(images):
        return {}
    return {row: f"image '{images.ids[row]}' has no file, and others have one; fill in its 'image'" for row in without}


def _missing(images: Items, root: Path) -> dict[int, str]:
    """Images whose file does not exist: each folder is listed once, which is faster than a check per file."""
    listed: dict[str, set[str]] = {}
    missing = {}
    start = os.fspath(root)
    for row, value in enumerate(images.values):
        if not isinstance(value, str) or "?offset=" in value:
            continue
        folder, name = os.path.split(os.path.join(start, value))  # noqa: PTH118 (30,000 paths, once per image)
        if folder not in listed:
            listed[folder] = _names_in(folder)
        if name not in listed[folder]:
            missing[row] = f"image '{value}' is not in {root}; name the folder of the images (--images)"
    return missing


def _name_in(sentence: str, images: Items, row: int) -> str:
    """The name of the image as the sentence has it."""
    value = images.values[row]
    name = value if isinstance(value, str) else images.ids[row]
    return next((form for form in (f"'{name}'", name) if form in sentence), "")


def _respelled(dataset: Dataset) -> Dataset:
    """Paths as the disk spells them: an accent is one character or two, and some archivers convert between them."""
    values = list(dataset.images.values)
    for row, value in enumerate(values):
        if isinstance(value, str) and not value.isascii() and not image_exists(value, dataset.root):
            forms = (unicodedata.normalize(form, value) for form in ("NFC", "NFD"))
            values[row] = next((form for form in forms if image_exists(form, dataset.root)), value)
    return (
        replace(dataset, images=replace(dataset.images, values=values)) if values != dataset.images.values else dataset
    )


def _names_in(folder: str) -> set[str]:
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries if not entry.is_dir()}
    except (OSError, ValueError):
        return set()


def _undecodable(dataset: Dataset, skipped: set[int], progress: Progress | None) -> dict[int, str]:
    rows = [row for row, value in enumerate(dataset.images.values) if value is not None and row not in skipped]

    def decode(row: int) -> str | None:
        try:
            # The full file is decoded, at a small scale where the format has one.
            open_image(dataset.images.values[row], dataset.root, at_least=32)
        except DataError as error:
            return str(error)
        return None

    reasons = {}
    for done, (row, reason) in enumerate(
        zip(rows, read_ahead(rows, decode, workers=os.cpu_count() or 1), strict=True), 1
    ):
        if reason is not None:
            reasons[row] = reason
        if progress is not None:
            progress(done, len(rows))
    return reasons
