"""A rough guess at the language of a text, for data without a language column: by script, then by common words."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence

from subtext.data.words import tokenise

UNKNOWN = "und"
"""What a text is called whose language cannot be told, as in ISO 639-2."""

_LITTLE = {
    "en": "a an the of in on and is are with to at for it this that his her their by from",
    "de": "der die das ein eine einen einem und ist mit auf im den dem zu von nicht sich für sind",
    "fr": "le la les un une des et est dans sur avec du au aux qui en pour il elle ce",
    "es": "el la los las un una unos y es en con de del al que por para su se como",
    "it": "il lo la gli un una di e è in con su del della che per sono alla nel dei",
    "pt": "o os um uma e é em com de do da na que por para ao dos uns pela pelo",
    "nl": "de het een en is in op met van aan voor zijn dat die niet te bij naar door uit",
    "sv": "en ett och är på med som av i till den det för att sig inte från har de vid",
    "pl": "i w na z do się nie jest to że po od za przez dla o jak są przy ze",
    "tr": "bir ve bu için ile da de çok olan gibi daha o ne mi var içinde üzerinde olarak",
}
_LANGUAGES = {
    word: tuple(language for language, words in _LITTLE.items() if word in words.split())
    for word in {word for words in _LITTLE.values() for word in words.split()}
}

# The name that Unicode gives to a letter begins with its script; one language stands for a script of several.
_SCRIPTS = {
    "CYRILLIC": "ru",
    "GREEK": "el",
    "ARABIC": "ar",
    "HEBREW": "he",
    "DEVANAGARI": "hi",
    "BENGALI": "bn",
    "TAMIL": "ta",
    "TELUGU": "te",
    "THAI": "th",
    "HANGUL": "ko",
    "HIRAGANA": "ja",
    "KATAKANA": "ja",
    "CJK": "zh",
    "GEORGIAN": "ka",
    "ARMENIAN": "hy",
}


def guess_language(text: str, words: Sequence[str] | None = None) -> str:
    """A two-letter language code, or "und", from a text and its words, where somebody has them already.

    A rough guess: it tells scripts, and ten languages in Latin letters by their most common words; Ukrainian is taken
    for Russian, Persian for Arabic, and a text of one or two words is mostly "und".
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
