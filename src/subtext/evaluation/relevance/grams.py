"""Runs of words counted as numbers: which of them stand in which text, and how often.

Words as the makers of published relevance scores cut them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

from subtext.data.words import tokenise
from subtext.errors import DataError


@dataclass(frozen=True)
class Grams:
    """What stands in N texts: L entries, in the order of texts and of grams within a text.

    Attributes:
        rows: (L) int64, the text.
        features: (L) int64 in [0, width), the gram.
        counts: (L) int64, how often it stands there, 1 or more.
        width: Number of different grams.
    """

    rows: Int[np.ndarray, "l"]
    features: Int[np.ndarray, "l"]
    counts: Int[np.ndarray, "l"]
    width: int


@dataclass(frozen=True)
class Corpus:
    """Texts that refer to each other: R references in G groups, and C candidates; each different text is read once.

    Attributes:
        texts: The different texts.
        references: (R) int64, which text each reference is.
        groups: (R) int64, its group.
        candidates: (C) int64, which text each candidate is.
        count: G.
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

    Args:
        references: (R) texts of the groups.
        groups: (R) group of each reference, from 0.
        candidates: (C) texts.
        count: Number of groups; None for the largest plus one.

    Returns:
        The different texts, and where each stands.

    Raises:
        DataError: If there is no reference, not one group a reference, a group below 0 or beyond count, or a text that
            is none.
    """
    numbers = np.asarray(groups, dtype=np.int64)
    if not len(references) or numbers.shape != (len(references),):
        raise DataError(
            f"relevance needs at least one reference, and a group for each; it got {len(references)} references and "
            f"groups of shape {numbers.shape}",
            field="relevance",
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
                f"relevance needs texts; it got {type(text).__name__}; items known by features have no words",
                field="relevance",
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

    Args:
        texts: Texts.
        words_of: Text -> its words.
        longest: Longest n-gram, 1 or more.

    Returns:
        Grams of each length, and (N) int64 numbers of words.

    Example:
        >>> (ones, twos), lengths = counted(["a b a b", "b a"], str.split, longest=2)
        >>> ones.counts.tolist(), twos.rows.tolist(), twos.counts.tolist(), lengths.tolist()
        ([2, 2, 1, 1], [0, 0, 1], [2, 1, 1], [4, 2])
    """
    codes: dict[str, int] = {}
    words = [words_of(text) for text in texts]
    flat = np.array([codes.setdefault(word, len(codes)) for sentence in words for word in sentence], dtype=np.int64)
    lengths = np.array([len(sentence) for sentence in words], dtype=np.int64)
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


_LONG = re.compile(r"\b\w\w+\b")
_APOSTROPHES = str.maketrans({"’": "'", "ʼ": "'", "＇": "'", "‘": "'"})
_LAST_LATIN = "\u024f"
_CLITIC = re.compile(r"(n't|'(?:s|m|d|re|ve|ll))$")
# The first branch is that of most words; a point stays with initials, with titles and with words grown together.
_WORD = re.compile(
    r"[a-z]+(?![^\s,])"
    r"|\d+(?:[.,:]\d+)+"
    r"|(?:[a-z]\.){2,}(?![^\W_])"
    r"|(?:mrs?|ms|dr|st|jr|sr|vs|ave|blvd|mt|ft|co|inc)\.(?=\s+\w)"
    r"|[^\W_]+(?:[-/'&_.][^\W_]+)*"
    r"|'(?:s|m|d|re|ve|ll)\b"
    r"|[&%$#@*=+/()\[\]{}~|<>\\^]"
)


def long_words(text: str) -> list[str]:
    """Lower-case runs of two or more letters, digits or underscores: what scikit-learn's CountVectorizer counts.

    Args:
        text: A text.

    Returns:
        Its words.

    Example:
        >>> long_words("A dog isn't in Zoë's boat")
        ['dog', 'isn', 'in', 'zoë', 'boat']
    """
    return _LONG.findall(text.lower())


def treebank_words(text: str) -> list[str]:
    """Lower-case words as the Penn Treebank tokeniser of Stanford's tools parts them, without punctuation.

    English clitics stand alone, words with hyphens and slashes stay whole, brackets and signs such as & are words. On
    25,000 captions of COCO and 35,000 of Flickr8k all but 1 and 7 come out as from that program. A text with letters
    beyond the Latin ones is read by the house's own tokeniser, which knows other scripts.

    Args:
        text: A text.

    Returns:
        Its words.

    Example:
        >>> treebank_words("A dog isn't at St. Mary's, an ice-cream stand (12:45).")
        ['a', 'dog', 'is', "n't", 'at', 'st.', 'mary', "'s", 'an', 'ice-cream', 'stand', '(', '12:45', ')']
    """
    lowered = text.lower()
    if not lowered.isascii():
        lowered = lowered.translate(_APOSTROPHES)
        if any(letter > _LAST_LATIN and letter.isalpha() for letter in lowered):
            return tokenise(text)
    tokens: list[str] = []
    for word in _WORD.findall(lowered):
        clitic = _CLITIC.search(word) if "'" in word else None
        if word == "cannot":
            tokens += ["can", "not"]
        elif clitic is None or clitic.start() == 0:
            tokens.append(word)
        else:
            tokens += [word[: clitic.start()], clitic[0]]
    return tokens
