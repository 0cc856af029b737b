"""A text as Doc2Vec reads it (Thomas and Kovashka 2020, by their code): few, plain, long words."""

from __future__ import annotations

import re

from subtext.data.sentences import first_sentences
from subtext.errors import RequirementError

_TAG = re.compile(r"<[^>]+>")
_GAP = re.compile(r"[!-/:-@\[-`{-~\s]+")
SHORTEST = 3
"""Letters of the shortest word that is kept."""


def doc2vec_words(text: str, *, sentences: int | None = None) -> list[str]:
    """Lower-case words without tags, punctuation and gensim's 337 stop-words, of three letters or more.

    Characters beyond ASCII become "?", as in the authors' code, and so part a word: this reading is for English.
    Letters and digits that touch stay together ("25bn"), as in the authors' output.

    sentences  only the first so many are read (two for Politics); None for the whole text

    Raises RequirementError where gensim is not installed.

    >>> " ".join(doc2vec_words("The <b>Border-wall</b> plan is a 5-year, $25bn idea; it isn't cheap!"))
    'border wall plan year 25bn idea isn cheap'
    """
    stopped = _stop_words()
    if sentences is not None:
        text = first_sentences(text, sentences)
    plain = text.encode("ascii", "replace").decode("ascii").lower()
    return [word for word in _GAP.split(_TAG.sub("", plain)) if len(word) >= SHORTEST and word not in stopped]


def _stop_words() -> frozenset[str]:
    try:
        from gensim.parsing.preprocessing import STOPWORDS
    except ImportError as problem:
        raise RequirementError(
            "the space doc2vec needs gensim, which is not installed; pip install 'subtext[neighbours]', or use the "
            "space lsa"
        ) from problem
    found: frozenset[str] = STOPWORDS
    return found
