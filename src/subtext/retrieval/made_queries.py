"""Queries that an archive makes of its own texts, for an archive where nobody has asked yet.

A sentence is taken out of a text and becomes the query; the other sentences stay with the item, which is the answer
(inverse cloze task, Lee et al. 2019). Words taken out one by one would teach that a word in common is a bad sign: no
other text would lack just these words.
"""

from __future__ import annotations

import re

from subtext.retrieval.words import words

SPAN = (3, 8)
"""Words of a query that is a part of a sentence."""
_SENTENCE = re.compile(r"[^.!?…。！？\n]+(?:[.!?…]+(?=[\s\"'”’»)]|$)[\"'”’»)]*|[。！？\n]|[.!?…]+|$)")
_STRETCH = re.compile(r"\S+")


def sentences(text: str) -> list[str]:
    """The sentences of a text, with their marks.

    Args:
        text: Any text.

    Returns:
        Sentences with two words or more; a shorter one belongs to the one before.

    Example:
        >>> sentences("A man of 1.80 m waits. He reads! Why? Nobody knows.")
        ['A man of 1.80 m waits.', 'He reads! Why?', 'Nobody knows.']
    """
    found: list[str] = []
    rest = ""
    for match in _SENTENCE.finditer(text):
        # A full stop inside a number or a name ends nothing.
        rest += match[0]
        end = match.end()
        if end < len(text) and not text[end].isspace() and text[end - 1] not in "。！？\n":
            continue
        if found and len(words(rest)) < 2:
            found[-1] += rest
        else:
            found.append(rest)
        rest = ""
    found += [rest] if words(rest) else []
    return [sentence.strip() for sentence in found if words(sentence)]


def taken_out(text: str, chance: float) -> tuple[str, str] | None:
    """A query made of a text, and what is left of the text.

    Args:
        text: A text of an item.
        chance: A random number in [0, 1), which chooses the sentence or the span.

    Returns:
        A sentence, or three to eight words where there is one sentence only, and the rest; None for a text that is too
        short to be taken apart.

    Example:
        >>> taken_out("A dog waits. It rains.", 0.2), taken_out("A dog", 0.2)
        (('A dog waits.', 'It rains.'), None)
        >>> taken_out("justice, law, court, judgment, penalty, decision", 0.5)
        ('court, judgment, penalty', 'justice, law, decision')
    """
    own = sentences(text)
    if len(own) > 1:
        place = int(chance * len(own))
        return own[place], " ".join(own[:place] + own[place + 1 :])
    parts = _STRETCH.findall(text)
    least, most = SPAN
    longest = min(most, len(parts) // 2)
    if longest < least:
        return None
    # One number chooses the length, and what is left of it the place.
    scaled = chance * (longest - least + 1)
    length = least + int(scaled)
    place = int((scaled % 1) * (len(parts) - length + 1))
    query = " ".join(parts[place : place + length]).strip(",;:")
    return query, " ".join(parts[:place] + parts[place + length :])
