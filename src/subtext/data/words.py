"""The words of a text in any script, and a guess at its language."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

# A word may have apostrophes, and points or commas within numbers; clitics are split off afterwards.
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
_FLAGS, _TONES = range(0x1F1E6, 0x1F200), range(0x1F3FB, 0x1F400)


def tokenise(text: str) -> list[str]:
    """Split a text into words, in lower case, without punctuation; a text of punctuation alone has none.

    Words are runs of letters, digits and their marks in any script; English clitics stand alone ("don't": do, n't);
    scripts without spaces (Chinese, Japanese kana, Thai, ...) give one token a character; an emoji is one token with
    its skin tone, its joined parts and its flag letters.

    Args:
        text: The text.

    Returns:
        The words in order.

    Example:
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
    for index, letter in enumerate(text):
        kind = _kind(letter)
        if kind == "emoji":
            flags = len(emoji) == 1 and ord(emoji) in _FLAGS and ord(letter) in _FLAGS
            if not (emoji and (emoji[-1] == _JOINER or ord(letter) in _TONES or flags)):
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
        # Joiners, apostrophes, and points within numbers belong to the word on both sides of them.
        after = text[index + 1 : index + 2]
        inner = (word and after) and (
            letter in (_JOINER, _NON_JOINER)
            or (letter == "'" and word[-1].isalnum() and after.isalpha())
            or (letter in ".,:" and word[-1].isdigit() and after.isdigit())
        )
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
    if category == "So" or 0x1F000 <= code <= 0x1FAFF:
        return "emoji"
    return "gap"


UNKNOWN = "und"
"""The code of an unknown language, as in ISO 639-2."""

# Frequent words of languages in Latin letters; scripts of others, the first word of the Unicode names of their letters.
# One language stands for all languages of a script.
_TABLES = json.loads(Path(__file__).with_name("languages.json").read_text(encoding="utf-8"))
_COMMON: dict[str, str] = _TABLES["words"]
_SCRIPTS: dict[str, str] = _TABLES["scripts"]
_LANGUAGES = {
    word: tuple(language for language, words in _COMMON.items() if word in words.split())
    for word in {word for words in _COMMON.values() for word in words.split()}
}


def languages_of_word(word: str) -> tuple[str, ...]:
    """The languages that have a word among their frequent ones.

    Args:
        word: In lower case.

    Returns:
        Codes of two letters.
    """
    return _LANGUAGES.get(word, ())


def guess_language(text: str, words: Sequence[str] | None = None) -> str:
    """Guess the language of a text.

    A rough guess by script, and by common words of ten languages in Latin letters: Ukrainian counts as Russian, Persian
    as Arabic, and a text of one or two words that are not everyday words is mostly "und".

    Args:
        text: The text.
        words: Its words, if they are already known.

    Returns:
        A two-letter code, or "und".
    """
    if not text.isascii():
        scripts = Counter(unicodedata.name(letter, "?").split()[0] for letter in text if letter.isalpha())
        if scripts.keys() & {"HIRAGANA", "KATAKANA"}:
            return "ja"
        if scripts:
            script = scripts.most_common(1)[0][0]
            if script != "LATIN":
                return _SCRIPTS.get(script, UNKNOWN)
    words = tokenise(text) if words is None else words
    counts = Counter(language for word in words for language in _LANGUAGES.get(word, ()))
    best = counts.most_common(2)
    return best[0][0] if best and (len(best) == 1 or best[0][1] > best[1][1]) else UNKNOWN
