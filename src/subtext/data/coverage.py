"""Does a file of features have a row for everything that is to be read from it?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from subtext.data.dataset import Items
from subtext.data.feature_file import FeatureFile
from subtext.errors import DataError, counted


@dataclass(frozen=True)
class Coverage:
    """What a file of features has for the pictures, or the texts, of a data set.

    told    in one sentence
    whole   whether each of them has finite features
    splits  the splits all of whose items have them
    """

    told: str
    whole: bool
    splits: tuple[str, ...]


def coverage(path: Path, items: Items, what: Literal["picture", "text"]) -> Coverage:
    """Read the features of all items, split by split, and tell; a file that cannot be used covers no split."""
    splits = tuple(map(str, np.unique(items.splits)))
    try:
        file = FeatureFile.open(path)
        shape = file.shape(items.ids, items.values)
    except DataError as error:
        return Coverage(str(error), False, tuple(name for name in splits if _covers(path, items, name)))
    widths = " and ".join(
        f"{name} {width}" for name, width in (("pooled", shape.pooled), ("grid", shape.grid)) if width
    )
    return Coverage(f"{path}: features of all {counted(len(items), what)} ({widths})", True, splits)


def _covers(path: Path, items: Items, split: str) -> bool:
    part = items.take(np.flatnonzero(items.splits == split).astype(np.int64))
    try:
        FeatureFile.open(path).shape(part.ids, part.values)
    except DataError:
        return False
    return True
