"""One-time changes of a data set: shorter or fewer texts, new splits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from subtext.data.dataset import Dataset
from subtext.data.sentences import first_sentences
from subtext.data.splits import draw_splits
from subtext.errors import DataError


def keep_texts(pairs: Dataset, keep: NDArray[np.bool_]) -> Dataset:
    """The marked texts, and their images.

    Raises DataError when none is marked.
    """
    images = np.unique(pairs.links[keep[pairs.links[:, 1]], 0])
    if not len(images):
        raise DataError(f"of {len(pairs.texts):,} texts none would remain; use a weaker filter")
    return pairs.subset(images, np.flatnonzero(keep).astype(np.int64))


def only_longer(pairs: Dataset, characters: int) -> Dataset:
    """Texts of more than so many characters (Thomas and Kovashka's code removes articles of up to 500)."""
    keep = np.array([isinstance(text, str) and len(text) > characters for text in pairs.texts.values], dtype=bool)
    return keep_texts(pairs, keep)


def cut_sentences(pairs: Dataset, count: int) -> Dataset:
    """The first `count` sentences of each text (Thomas and Kovashka 2020, section 4.1: two of each article)."""
    values = [first_sentences(text, count) if isinstance(text, str) else text for text in pairs.texts.values]
    return replace(pairs, texts=replace(pairs.texts, values=values))


def resplit_groups(pairs: Dataset, *, seed: int) -> Dataset:
    """A random 80-10-10 split by group, in place of the data set's own."""
    groups, first, of_image = np.unique(pairs.images.groups, return_index=True, return_inverse=True)
    splits = draw_splits([pairs.images.ids[row] for row in first], seed=seed)
    of_text = np.searchsorted(groups, pairs.texts.groups)
    return replace(
        pairs,
        images=replace(pairs.images, splits=splits[of_image]),
        texts=replace(pairs.texts, splits=splits[of_text]),
    )
