"""Runs of words counted as numbers: which of them stand in which text, and how often."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

from subtext.errors import DataError


@dataclass(frozen=True)
class Grams:
    """What stands in N texts: L entries, in the order of texts and of grams within a text.

    rows    (L) int64, the text         features  (L) int64 in [0, width), the gram
    counts  (L) int64, how often it stands there, 1 or more
    """

    rows: Int[np.ndarray, "l"]
    features: Int[np.ndarray, "l"]
    counts: Int[np.ndarray, "l"]
    width: int


@dataclass(frozen=True)
class Corpus:
    """Texts that refer to each other: R references in G groups, and C candidates; each different text is read once.

    texts       the different texts
    references  (R) int64, which text each reference is        groups  (R) int64, its group
    candidates  (C) int64, which text each candidate is        count   G
    """

    texts: list[str]
    references: Int[np.ndarray, "r"]
    groups: Int[np.ndarray, "r"]
    candidates: Int[np.ndarray, "c"]
    count: int

    @property
    def sizes(self) -> NDArray[np.int64]:
        """(G) how many references each group has."""
        return np.bincount(self.groups, minlength=self.count).astype(np.int64)


def corpus(
    references: Sequence[str], groups: Sequence[int] | NDArray[np.int64], candidates: Sequence[str], count: int | None
) -> Corpus:
    """Texts by number; groups are counted from 0, `count` of them (None for as many as the largest names).

    Raises DataError when there is no reference, not one group a reference, a group below 0 or beyond count, or a text
    that is none.
    """
    numbers = np.asarray(groups, dtype=np.int64)
    if not len(references) or numbers.shape != (len(references),):
        raise DataError(
            f"relevance needs at least one reference, and a group for each; it got {len(references)} references and "
            f"groups of shape {numbers.shape}"
        )
    highest = int(numbers.max()) + 1
    if numbers.min() < 0 or (count is not None and highest > count):
        raise DataError(
            f"groups need to be whole numbers from 0 to {(count or highest) - 1}; they go from {numbers.min()} to "
            f"{highest - 1}"
        )
    codes: dict[str, int] = {}
    for text in chain(references, candidates):
        if not isinstance(text, str):
            raise DataError(
                f"relevance needs texts; it got {type(text).__name__}; items known by features have no words"
            )
        codes.setdefault(text, len(codes))
    return Corpus(
        list(codes),
        np.array([codes[text] for text in references], dtype=np.int64),
        numbers,
        np.array([codes[text] for text in candidates], dtype=np.int64),
        highest if count is None else count,
    )


def counted(
    texts: Sequence[str], words_of: Callable[[str], list[str]], *, longest: int
) -> tuple[list[Grams], NDArray[np.int64]]:
    """Grams of 1, 2, ... `longest` words, and (N) how many words each text has.

    >>> (ones, twos), lengths = counted(["a b a b", "b a"], str.split, longest=2)
    >>> ones.counts.tolist(), twos.rows.tolist(), twos.counts.tolist(), lengths.tolist()
    ([2, 2, 1, 1], [0, 0, 1], [2, 1, 1], [4, 2])
    """
    codes: dict[str, int] = {}
    words = [words_of(text) for text in texts]
    flat = np.array([codes.setdefault(word, len(codes)) for one in words for word in one], dtype=np.int64)
    lengths = np.array([len(one) for one in words], dtype=np.int64)
    texts_of = np.repeat(np.arange(len(words), dtype=np.int64), lengths)
    begins, grams, width = np.arange(len(flat), dtype=np.int64), flat, len(codes)
    found = []
    for size in range(1, longest + 1):
        if size > 1:
            ends = begins + size - 1
            inside = ends < len(flat)
            inside[inside] = texts_of[ends[inside]] == texts_of[begins[inside]]
            begins, keys = begins[inside], grams[inside] * len(codes) + flat[ends[inside]]
            names, grams = np.unique(keys, return_inverse=True)
            width = len(names)
        keys, counts = np.unique(texts_of[begins] * max(1, width) + grams, return_counts=True)
        found.append(Grams(keys // max(1, width), keys % max(1, width), counts.astype(np.int64), width))
    return found, lengths
