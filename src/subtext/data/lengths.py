"""Texts longer than a model takes: how many there are, and a sentence that tells of them before their ends are cut."""

from __future__ import annotations

from collections.abc import Iterable

from subtext.data.inputs import Input
from subtext.data.text import SubwordInput, WordInput, tokenise
from subtext.errors import counted

MARKS = 2
"""Places that the start and end marks take."""


def too_long(reads: Input, texts: Iterable[object]) -> int:
    """How many texts lose their end when they are read; 0 for an input of which that is not known.

    Cost   splitting into words the texts that have more characters than the model takes tokens, and no others.
    """
    if isinstance(reads, WordInput):
        room = reads.max_tokens - MARKS
        return sum(len(tokenise(text)) > room for text in texts if isinstance(text, str) and len(text) > room)
    if isinstance(reads, SubwordInput):
        # A subword has a byte or more.
        room = reads.max_tokens - MARKS
        long = [text for text in texts if isinstance(text, str) and len(text.encode("utf-8", "replace")) > room]
        found = reads.tokeniser(long, truncation=False, verbose=False)["input_ids"] if long else []
        return sum(len(codes) > reads.max_tokens for codes in found)
    return 0


def cut_note(reads: Input, texts: Iterable[object], *, of: str = "text") -> str | None:
    """A sentence on texts that are cut; None where all are read to their end.

    of  what one of them is called
    """
    every = list(texts)
    cut = too_long(reads, every)
    if not cut:
        return None
    assert isinstance(reads, WordInput | SubwordInput)
    return (
        f"{counted(cut, of)} of {len(every):,} {'is' if cut == 1 else 'are'} longer than the {reads.max_tokens} "
        "tokens that the model takes (--max-tokens when it is trained): what is beyond is not read"
    )
