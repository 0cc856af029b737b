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
    left = count
    for found in _END.finditer(text):
        if _goes_on(text, found):
            continue
        left -= 1
        if left == 0:
            return text[: found.end()]
    return text


def _goes_on(text: str, found: re.Match[str]) -> bool:
    after = text[found.end() :]
    if found[0] != ".":
        # A question in quotes may be followed by who asked it, and be a sentence none the less.
        return found[0].startswith(".") and _LOWER.match(after) is not None
    word = text[: found.start()].rpartition(" ")[2].lstrip("\"'“‘([").lower()
    initial = len(word) == 1 and word.isalpha() and word != "i"
    return initial or word in _SHORT or _LOWER.match(after) is not None
