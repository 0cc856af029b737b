"""What is done to a data set once, before it is trained on: texts cut or left out, splits drawn anew."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from subtext.data.dataset import Dataset
from subtext.data.sentences import first_sentences
from subtext.data.splits import draw_splits
from subtext.errors import DataError


def keep_texts(pairs: Dataset, keep: NDArray[np.bool_]) -> Dataset:
    """The marked texts, and the pictures that belong to one of them.

    Raises DataError when none is marked.
    """
    pictures = np.unique(pairs.links[keep[pairs.links[:, 1]], 0])
    if not len(pictures):
        raise DataError(f"of {len(pairs.texts):,} texts none would stay; ask for less")
    return pairs.subset(pictures, np.flatnonzero(keep).astype(np.int64))


def only_longer(pairs: Dataset, characters: int) -> Dataset:
    """Texts of more than so many characters (Thomas and Kovashka's code leaves out articles of up to 500)."""
    keep = np.array([isinstance(text, str) and len(text) > characters for text in pairs.texts.values], dtype=bool)
    return keep_texts(pairs, keep)


def cut_sentences(pairs: Dataset, count: int) -> Dataset:
    """The first so many sentences of each text (Thomas and Kovashka 2020, section 4.1: two of each article)."""
    values = [first_sentences(text, count) if isinstance(text, str) else text for text in pairs.texts.values]
    return replace(pairs, texts=replace(pairs.texts, values=values))


def draw_anew(pairs: Dataset, *, seed: int) -> Dataset:
    """Splits of 80-10-10 in place of those that the data set has, by group."""
    groups, first, of_image = np.unique(pairs.images.groups, return_index=True, return_inverse=True)
    splits = draw_splits([pairs.images.ids[row] for row in first], seed=seed)
    of_text = np.searchsorted(groups, pairs.texts.groups)
    return replace(
        pairs,
        images=replace(pairs.images, splits=splits[of_image]),
        texts=replace(pairs.texts, splits=splits[of_text]),
    )
