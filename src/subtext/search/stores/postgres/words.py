"""Words of texts, as they are searched: the same in every database, whatever its language settings.

Letters, digits and private signs make words; capitals, accents and other marks do not count. This is what the folder
store's FTS5 does (tokenizer unicode61), so that both stores find the same texts by the same words. Signs that are
younger than its tables (Unicode 6.1) are words to FTS5, such as the skin tones of emoji; here they are none.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from pathlib import Path

from subtext.search.stores.postgres.connection import Connection

LONGEST = 200
"""Letters of a word that count."""
POSITIONS, TIMES = 16_383, 255
"""PostgreSQL stores so many positions in a text, and so many of one word."""
_SEARCH = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")


def words(text: str) -> list[str]:
    """The words of a text, in their order.

    >>> words("The café's N°7 — ÉTÉ!")
    ['the', 'cafe', 's', 'n', '7', 'ete']
    """
    plain = "".join(
        sign if unicodedata.category(sign)[0] in "LN" or unicodedata.category(sign) == "Co" else " "
        for sign in unicodedata.normalize("NFD", text)
        if unicodedata.category(sign) != "Mn"
    )
    return [word[:LONGEST] for word in plain.casefold().split()]


def as_vector(text: Sequence[str]) -> str:
    """Words and their positions, as PostgreSQL writes a tsvector.

    >>> as_vector(["a", "dog", "a"])
    "'a':1,3 'dog':2"
    """
    positions: dict[str, list[str]] = {}
    for position, word in enumerate(text[:POSITIONS], start=1):
        positions.setdefault(word, []).append(str(position))
    return " ".join(f"'{word}':{','.join(numbers[:TIMES])}" for word, numbers in positions.items())


def phrase_query(text: str) -> str:
    """A tsquery for all words of a text in their order; "" for none.

    >>> phrase_query("a dog's day")
    "'a' <-> 'dog' <-> 's' <-> 'day'"
    """
    return " <-> ".join(f"'{word}'" for word in words(text))


def search_words(connection: Connection, text: str, *, top: int, counts: tuple[int, int]) -> list[tuple[int, float]]:
    """The `top` texts that have some of the words, as (key, BM25 score).

    counts  texts that have words, and their words

    sum over words of idf f (k1 + 1) / (f + k1 (1 - b + b length / mean length)), idf = log((N - n + .5) / (n + .5)).
    """
    query = words(text)
    number, total = counts
    if not query or not number:
        return []
    values = {
        "query": query,
        "any": " | ".join(f"'{word}'" for word in dict.fromkeys(query)),
        "number": float(number),
        "mean": total / number,
        "top": top,
    }
    return [(int(key), float(score)) for key, score in connection.execute(_SEARCH, values)]
