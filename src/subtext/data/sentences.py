"""Where sentences end, for texts of which only the first ones are read (Thomas and Kovashka 2020 read two)."""

from __future__ import annotations

import re

_END = re.compile(r"[.!?…]+[\"'”’)\]]*(?=\s)|[。！？]+[」』”’）]*")
_LOWER = re.compile(r"\s+[a-z,;]")
# fmt: off
_SHORT = frozenset((
    "mr", "mrs", "ms", "dr", "prof", "rev", "gen", "sen", "rep", "gov", "lt", "col", "sgt", "capt", "st", "vs", "vol",
    "fig", "jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "sept", "oct", "nov", "dec", "u.s", "u.k", "u.n",
    "e.g", "i.e", "a.m", "p.m",
))
# fmt: on
"""What a point stands after without ending a sentence, where a capital may follow."""


def first_sentences(text: str, count: int) -> str:
    """The first so many sentences of a text, as they stand in it.

    A point ends no sentence after an initial or a usual abbreviation (Mr., U.S.), nor before a small letter. Whether
    "the U.S. Senate" goes on or "... in the U.S. It ..." ends cannot be told by such rules: the first is taken.

    >>> first_sentences('Mr. Lee went. "Did he?" asked J. Doe. He did.', 2)
    'Mr. Lee went. "Did he?"'
    >>> first_sentences("one only", 2)
    'one only'
    """
    text = text.strip()
    remaining = count
    for match in _END.finditer(text):
        if _goes_on(text, match):
            continue
        remaining -= 1
        if remaining == 0:
            return text[: match.end()]
    return text


def _goes_on(text: str, match: re.Match[str]) -> bool:
    after = text[match.end() :]
    if match[0] != ".":
        # A question in quotes may be followed by who asked it, and be a sentence none the less.
        return match[0].startswith(".") and _LOWER.match(after) is not None
    word = text[: match.start()].rpartition(" ")[2].lstrip("\"'“‘([").lower()
    initial = len(word) == 1 and word.isalpha() and word != "i"
    return initial or word in _SHORT or _LOWER.match(after) is not None
