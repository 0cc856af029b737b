"""Words of texts, as they are searched: the same in every database, whatever its language settings.

Letters, digits and private signs make words; capitals, accents and other marks do not count. This is what the folder
store's FTS5 does (tokenizer unicode61), so that both stores find the same texts by the same words. Signs that are
younger than its tables (Unicode 6.1) are words to FTS5, such as the skin tones of emoji; here they are none.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from subtext.search.stores.postgres.connection import Connection

LONGEST = 200
"""Letters of a word that count."""
POSITIONS, TIMES = 16_383, 255
"""PostgreSQL stores so many positions in a text, and so many of one word."""
SATURATION, LENGTH = 1.2, 0.75
"""k1 and b of BM25, as FTS5 has them."""
LEAST = 1e-6
"""Weight of a word that more than half of the texts have, as in FTS5."""


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
    statement = (
        "WITH query AS (SELECT word, count(*) AS times FROM unnest(%(query)s::text[]) AS q(word) GROUP BY word), "
        f"weighed AS (SELECT word, times * greatest({LEAST}::float8, ln((%(number)s::float8 - n + 0.5) / (n + 0.5))) "
        "AS weight FROM query, LATERAL (SELECT count(*)::float8 AS n FROM items "
        "WHERE words @@ ('''' || word || '''')::tsquery) AS c) "
        f"SELECT key, sum(weight * f * ({SATURATION}::float8 + 1) / "
        f"(f + {SATURATION}::float8 * (1 - {LENGTH}::float8 + {LENGTH}::float8 * length / %(mean)s::float8))) AS score "
        "FROM items CROSS JOIN LATERAL unnest(words) AS u(lexeme, places, weights) "
        "JOIN weighed ON word = lexeme CROSS JOIN LATERAL (SELECT cardinality(places)::float8 AS f) AS t "
        "WHERE words @@ %(any)s::tsquery GROUP BY key ORDER BY score DESC, key LIMIT %(top)s"
    )
    values = {
        "query": query,
        "any": " | ".join(f"'{word}'" for word in dict.fromkeys(query)),
        "number": float(number),
        "mean": total / number,
        "top": top,
    }
    return [(int(key), float(score)) for key, score in connection.execute(statement, values)]
