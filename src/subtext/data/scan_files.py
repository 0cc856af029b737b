"""Folders in SCAN's "precomp" form (Lee et al. 2018): one array of region features and one file of captions a split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.data.arrays import open_npy
from subtext.errors import DataError

SPLIT_FILES = {"train": "train", "dev": "val", "val": "val", "test": "test", "testall": "testall"}
"""Names that a folder in SCAN's form begins its files with, and the splits that they are."""


def scan_splits(folder: Path) -> dict[str, tuple[NDArray[Any], Path, int]]:
    """What a folder in SCAN's form has: prefix -> (array, its captions file, rows from one image to the next).

    The array has a row per image, or the same row five times, once a caption.

    Raises DataError when an array has no captions file beside it.
    """
    splits = {}
    for prefix in SPLIT_FILES:
        path = folder / f"{prefix}_ims.npy"
        if not path.is_file():
            continue
        captions = folder / f"{prefix}_caps.txt"
        if not captions.is_file():
            raise DataError(f"{path.name} needs its captions beside it; {captions} is not there")
        array = open_npy(path)
        if array.ndim < 2:
            raise DataError(f"{path} needs a row of numbers per image, or several; it has shape {array.shape}")
        splits[prefix] = (array, captions, 5 if _repeated(array) else 1)
    if not splits:
        raise DataError(f"{folder} needs train_ims.npy, dev_ims.npy or test_ims.npy for features in SCAN's form")
    return splits


def scan_names(prefix: str, count: int) -> list[str]:
    """The names of the images of one file in SCAN's form: "train/0", "train/1", ..."""
    return [f"{prefix}/{number}" for number in range(count)]


def _repeated(array: NDArray[Any]) -> bool:
    """Whether each row stands five times, told from groups of five spread over the file."""
    if len(array) < 5 or len(array) % 5:
        return False
    groups = np.unique(np.linspace(0, len(array) // 5 - 1, 20).astype(np.int64))
    return all(bool((array[5 * g : 5 * g + 5] == array[5 * g]).all()) for g in groups)
