"""Splits: what data sets call them, and drawing them where there are none."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from subtext.ops import draw

SHARES = {"train": 0.8, "val": 0.1, "test": 0.1}
"""Of groups, where a data set has no splits of its own."""

MERGED: Mapping[str, str] = {
    "restval": "train",
    "training": "train",
    "dev": "val",
    "valid": "val",
    "validation": "val",
    "testing": "test",
}
"""Names of splits that are read as another; "restval" are COCO's validation images that everyone trains on."""

_NAMES = re.compile(r"(?:^|[^a-z])(train(?:ing)?|val(?:id(?:ation)?)?|dev|test(?:ing)?)(?:[^a-z]|$)")


def split_in_name(name: str) -> str | None:
    """The split that a file or folder is named after ("train-00000-of-00002", "validation"), or None."""
    match = _NAMES.search(name.lower())
    return None if match is None else MERGED.get(match[1], match[1])


def draw_splits(names: Sequence[str], *, seed: int) -> NDArray[np.character]:
    """80-10-10 of groups, each by the name of its first image alone: a row added elsewhere moves no other.

    Of three groups or more every split gets one: the group whose draw is nearest to it is moved where none fell in.
    """
    draws = draw.uniform(draw.keys(list(names)), seed=seed, epoch=0, purpose="split")[:, 0]
    bounds = np.cumsum([SHARES["train"], SHARES["val"]])
    codes = np.searchsorted(bounds, draws, side="right")
    middles = (SHARES["train"] / 2, bounds[0] + SHARES["val"] / 2, 1 - SHARES["test"] / 2)
    if len(names) >= 3:
        for part in (1, 2, 0):
            if not (codes == part).any():
                # Only from a split that keeps a group of its own.
                free = np.bincount(codes, minlength=3)[codes] > 1
                codes[np.argmin(np.where(free, np.abs(draws - middles[part]), np.inf))] = part
    return np.array(list(SHARES))[codes]
