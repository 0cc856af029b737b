"""From a text to its words, in any script."""

from __future__ import annotations

import re
import unicodedata

# A word may hold apostrophes and inner points or commas of numbers; what clings to it is split off afterwards.
_ASCII = re.compile(r"[0-9]+(?:[.,:][0-9]+)*|[a-z0-9_]+(?:'[a-z]+)*")
_CLITIC = re.compile(r"(n't|'(?:s|m|d|re|ve|ll))$")
_APOSTROPHES = str.maketrans({"’": "'", "ʼ": "'", "＇": "'"})

# Scripts written without spaces between words: one token a character.
_SPACELESS = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x0F00, 0x0FFF),  # Tibetan
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x3005, 0x3007),  # iteration mark, zero
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)
_JOINER, _NON_JOINER = "\u200d", "\u200c"


def tokenise(text: str) -> list[str]:
    """The words of a text, in lower case, without punctuation; a text of punctuation alone has none.

    Words are runs of letters, digits and their marks in any script; English clitics stand alone ("don't": do, n't);
    scripts without spaces (Chinese, Japanese kana, Thai, ...) give one token a character; an emoji is one token with
    its skin tone, its joined parts and its flag letters.

    >>> tokenise("A dog isn't in Zoë's boat 🚣🏽, 3.5 km")
    ['a', 'dog', 'is', "n't", 'in', 'zoë', "'s", 'boat', '🚣🏽', '3.5', 'km']
    """
    lowered = text.lower()
    if lowered.isascii():
        words = _ASCII.findall(lowered)
    else:
        words = _scan(unicodedata.normalize("NFC", lowered).translate(_APOSTROPHES))
    if "'" not in lowered and "’" not in lowered:
        return words
    return [token for word in words for token in _split(word)]


def _split(word: str) -> list[str]:
    clitic = _CLITIC.search(word) if "'" in word else None
    if clitic is None or clitic.start() == 0:
        return [word]
    return [*_split(word[: clitic.start()]), clitic[0]]


def _scan(text: str) -> list[str]:
    """Words of a text with letters beyond ASCII, character by character."""
    words: list[str] = []
    word, emoji = "", ""
    last = len(text) - 1
    for index, letter in enumerate(text):
        kind = _kind(letter)
        if kind == "emoji":
            joined = emoji and (emoji[-1] == _JOINER or _tone(letter) or _flag_pair(emoji, letter))
            if not joined:
                words += [token for token in (word, emoji) if token]
                emoji = ""
            word, emoji = "", emoji + letter
            continue
        if emoji and (letter in (_JOINER, "\ufe0f", "\u20e3") or 0xE0020 <= ord(letter) <= 0xE007F):
            emoji += letter
            continue
        if emoji:
            words.append(emoji.rstrip(_JOINER))
            emoji = ""
        inner = word and index < last and _inner(word[-1], letter, text[index + 1])
        if kind == "word" or (kind == "mark" and word) or inner:
            word += letter
        elif kind == "single":
            words += [word, letter] if word else [letter]
            word = ""
        elif kind == "mark" and words:
            words[-1] += letter
        elif kind != "mark":
            words += [word] if word else []
            word = ""
    words += [token for token in (word, emoji.rstrip(_JOINER)) if token]
    return words


def _kind(letter: str) -> str:
    code = ord(letter)
    category = unicodedata.category(letter)
    if category[0] == "M":
        return "mark"
    if category[0] in "LN" or letter == "_":
        return "single" if code > 0xE00 and any(low <= code <= high for low, high in _SPACELESS) else "word"
    if category == "So" or _tone(letter) or 0x1F000 <= code <= 0x1FAFF:
        return "emoji"
    return "gap"


def _inner(before: str, letter: str, after: str) -> bool:
    """Whether a sign between two characters belongs to their word."""
    if letter in (_JOINER, _NON_JOINER):
        return True
    if letter == "'":
        return before.isalnum() and after.isalpha()
    return letter in ".,:" and before.isdigit() and after.isdigit()


def _tone(letter: str) -> bool:
    return 0x1F3FB <= ord(letter) <= 0x1F3FF


def _flag_pair(emoji: str, letter: str) -> bool:
    return len(emoji) == 1 and all(0x1F1E6 <= ord(part) <= 0x1F1FF for part in (emoji, letter))
