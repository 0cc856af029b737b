"""Letters and words as they are compared: the same for words, filters, ids and lists of values, in every store.

`fold` makes one spelling of those that differ only in case, accents (as one character or two) or form: ß is ss, final
sigma a sigma, Ё is Е, a ligature its letters, and a Turkish i with or without a dot an i. `words` are made of folded
letters, digits and private signs. A text without spaces (Chinese, Japanese, Thai, Lao, Khmer, Burmese) has each sign
and each pair of neighbours as its words, as in Lucene's CJKAnalyzer; a query has its pairs.

Databases get the folded words and split nothing themselves.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

LONGEST = 200
"""Letters of a word that are compared."""
POSITIONS, TIMES = 16_383, 255
"""Number of positions in a text, and of one word, that PostgreSQL stores."""
SATURATION, LENGTH = 1.2, 0.75
"""k1 and b of BM25, as FTS5 has them; `postgres_words.sql` has the same numbers."""
LEAST = 1e-6
"""Weight of a word that more than half of the texts have, as in FTS5."""

_LETTERS = {"ı": "i", "æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "ħ": "h", "ŧ": "t"}
"""Letters that Unicode does not take apart, and that readers write otherwise."""
_MEANT = {0, 7, 8, 9, *range(84, 133)}
"""Combining classes of marks that make another letter: vowels of India and Thailand, か and が; others are accents."""
_UNSEEN = re.compile("[\u034f\u180b-\u180d\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""Variation selectors; joiners, soft hyphens and marks of direction are not seen either."""
_ASCII_WORD = re.compile(r"[a-z0-9]+")
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u303b\u3040-\u30ff"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua9e0-\ua9ff\uaa60-\uaa7f\uf900-\ufaff\U00020000-\U0003ffff]+"
)


class _Folded(dict[int, str]):
    """What each character is folded to, computed once; for words, what separates them is a space."""

    def __init__(self, *, for_words: bool) -> None:
        super().__init__()
        self.for_words = for_words

    def __missing__(self, code: int) -> str:
        signs = []
        apart = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", chr(code)).casefold())
        for sign in apart:
            kind = unicodedata.category(sign)
            accent = kind == "Mn" and unicodedata.combining(sign) not in _MEANT
            if accent or kind == "Cf" or _UNSEEN.fullmatch(sign):
                continue
            signs.append(_LETTERS.get(sign, sign))
        folded = unicodedata.normalize("NFC", "".join(signs))
        if self.for_words:
            folded = "".join(
                sign if unicodedata.category(sign)[0] in "LNM" or unicodedata.category(sign) == "Co" else " "
                for sign in folded
            )
        self[code] = folded
        return folded


_VALUES, _WORDS = _Folded(for_words=False), _Folded(for_words=True)


@lru_cache(1 << 16)
def fold(text: str) -> str:
    """One spelling of a text for those that differ only in case, accents or form; spaces are one each.

    Args:
        text: Any text.

    Returns:
        The text as it is compared.

    Example:
        >>> fold("Zürich") == fold("ZU\u0308RICH"), fold("Große  Straße"), fold("ΟΔΟΣ") == fold("οδός")
        (True, 'grosse strasse', True)
        >>> fold("Ёлка") == fold("елка"), fold("ﬁne œuvre"), fold("İzmir") == fold("ızmir")
        (True, 'fine oeuvre', True)
    """
    plain = text.lower() if text.isascii() else unicodedata.normalize("NFC", text).translate(_VALUES)
    return " ".join(plain.split())


def words(text: str) -> list[str]:
    """The words of a text, in their order.

    Args:
        text: Any text.

    Returns:
        Folded words.

    Example:
        >>> words("The café's N°7 — ÉTÉ! IMG_2041, 1987-118, re16tgk")
        ['the', 'cafe', 's', 'n', '7', 'ete', 'img', '2041', '1987', '118', 're16tgk']
        >>> words("白い犬")
        ['白', '白い', 'い', 'い犬', '犬']
    """
    if text.isascii():
        return [word[:LONGEST] for word in _ASCII_WORD.findall(text.lower())]
    folded = unicodedata.normalize("NFC", text).translate(_WORDS)
    return [part for word in folded.split() for part in _parts(word)]


def query_words(text: str) -> list[str]:
    """The words by which a query is ranked: of a text without spaces the pairs, which say more than single signs.

    Args:
        text: Words of a query.

    Returns:
        Folded words.

    Example:
        >>> query_words("白い犬 dog"), query_words("犬")
        (['白い', 'い犬', 'dog'], ['犬'])
    """
    if text.isascii():
        return words(text)
    folded = unicodedata.normalize("NFC", text).translate(_WORDS)
    return [part for word in folded.split() for part in _parts(word, single=False)]


def bm25(
    times: NDArray[np.int64], lengths: NDArray[np.int64], *, weights: Sequence[int], number: int, total: int
) -> NDArray[np.float64]:
    """BM25 of texts that have some of the words of a query, as FTS5 has it.

    sum over words of idf f (k1 + 1) / (f + k1 (1 - b + b length / mean length)), idf = log((N - n + .5) / (n + .5))

    Args:
        times: (W T) f: how often each word occurs in each text.
        lengths: (T) words of each text.
        weights: (W) how often each word occurs in the query.
        number: N, all texts.
        total: Words of all of them.

    Returns:
        (T) scores.
    """
    length = SATURATION * (1 - LENGTH + LENGTH * lengths * number / max(total, 1))
    scores = np.zeros(len(lengths))
    for weight, own in zip(weights, times, strict=True):
        texts = int(np.count_nonzero(own))
        # A damaged index may count fewer texts than have the word.
        idf = max(LEAST, math.log((max(number, texts) - texts + 0.5) / (texts + 0.5)))
        scores += weight * idf * own * (SATURATION + 1) / (own + length)
    return scores


def _parts(word: str, *, single: bool = True) -> list[str]:
    """A word, or the signs and pairs of its stretches that are written without spaces."""
    if not _UNSPACED.search(word):
        return [word[:LONGEST]]
    parts, end = list[str](), 0
    for match in _UNSPACED.finditer(word):
        parts += [word[end : match.start()][:LONGEST]] if match.start() > end else []
        signs = list[str]()
        for sign in match[0]:
            if signs and unicodedata.category(sign)[0] == "M":
                signs[-1] += sign
            else:
                signs.append(sign)
        for number, sign in enumerate(signs):
            parts += [sign] if single or len(signs) == 1 else []
            parts += [sign + signs[number + 1]] if number + 1 < len(signs) else []
        end = match.end()
    return parts + ([word[end:][:LONGEST]] if end < len(word) else [])


def spaced(text: str) -> str:
    """The words of a text between spaces, as FTS5 gets them.

    Args:
        text: Any text.

    Returns:
        Its words, joined.
    """
    return " ".join(words(text))


def as_vector(text: Sequence[str]) -> str:
    """Words and their positions, as PostgreSQL writes a tsvector.

    Args:
        text: Words in their order.

    Returns:
        A text that PostgreSQL reads as tsvector.

    Example:
        >>> as_vector(["a", "dog", "a"])
        "'a':1,3 'dog':2"
    """
    positions: dict[str, list[str]] = {}
    for position, word in enumerate(text[:POSITIONS], start=1):
        positions.setdefault(word, []).append(str(position))
    return " ".join(f"'{word}':{','.join(numbers[:TIMES])}" for word, numbers in positions.items())


def phrase_query(text: str) -> str:
    """A tsquery for all words of a text in their order; "" for none.

    Args:
        text: Words of the phrase.

    Returns:
        A text that PostgreSQL reads as tsquery.

    Example:
        >>> phrase_query("a dog's day")
        "'a' <-> 'dog' <-> 's' <-> 'day'"
    """
    return " <-> ".join(f"'{word}'" for word in words(text))
