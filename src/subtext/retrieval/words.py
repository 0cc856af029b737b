"""Words of texts, as they are searched: the same in every database, whatever its language settings.

Letters, digits and private signs make words; capitals, accents and other marks do not count. This is what the folder
store's FTS5 does (tokenizer unicode61), so that both stores find the same texts by the same words. Signs that are
younger than its tables (Unicode 6.1) are words to FTS5, such as the skin tones of emoji; here they are none.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

LONGEST = 200
"""Letters of a word that are compared."""
POSITIONS, TIMES = 16_383, 255
"""Number of positions in a text, and of one word, that PostgreSQL stores."""
SATURATION, LENGTH = 1.2, 0.75
"""k1 and b of BM25, as FTS5 has them; `postgres_words.sql` has the same numbers."""
LEAST = 1e-6
"""Weight of a word that more than half of the texts have, as in FTS5."""


def words(text: str) -> list[str]:
    """The words of a text, in their order.

    Args:
        text: Any text.

    Returns:
        Words without capitals and accents.

    Example:
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
