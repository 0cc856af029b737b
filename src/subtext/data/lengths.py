"""Texts longer than a model takes: how many there are, and a sentence that tells of them before their ends are cut."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from subtext.data.inputs import Input
from subtext.data.text import OpenClipInput, SubwordInput, WordInput, tokenise
from subtext.errors import counted

MARKS = 2
"""Places that the start and end marks take."""


def too_long(input_spec: Input, texts: Iterable[object]) -> int:
    """How many texts lose their end when they are read; 0 for an input of which that is not known.

    Cost   splitting into words the texts that have more characters than the model takes tokens, and no others.
    """
    if isinstance(input_spec, WordInput):
        room = input_spec.max_tokens - MARKS
        return sum(len(tokenise(text)) > room for text in texts if isinstance(text, str) and len(text) > room)
    if isinstance(input_spec, SubwordInput):
        # A subword has a byte or more.
        long = _longer(texts, than=input_spec.max_tokens - MARKS)
        encoded = input_spec.tokeniser(long, truncation=False, verbose=False)["input_ids"] if long else []
        return sum(len(codes) > input_spec.max_tokens for codes in encoded)
    if isinstance(input_spec, OpenClipInput):
        # Half of the room, since cleaning may add to a text.
        return _too_long(input_spec, _longer(texts, than=input_spec.max_tokens // 2))
    return 0


def word_counts(texts: Iterable[object]) -> NDArray[np.int64]:
    """(T) words of each text; 0 of what is no text.

    >>> word_counts(["two dogs run", None]).tolist()
    [3, 0]
    """
    return np.array([len(tokenise(text)) if isinstance(text, str) else 0 for text in texts], dtype=np.int64)


def _longer(texts: Iterable[object], *, than: int) -> list[str]:
    """The texts of more than so many bytes."""
    return [text for text in texts if isinstance(text, str) and len(text.encode("utf-8", "replace")) > than]


def _too_long(input_spec: OpenClipInput, texts: list[str]) -> int:
    """How many texts have another token where there is room for one more: what reads them only says what is left."""
    if not texts:
        return 0
    tokens, wider = (
        input_spec.tokens(["", *texts], room=room) for room in (input_spec.max_tokens, input_spec.max_tokens + 1)
    )
    # What nothing is filled up with, behind its marks; of some tokenisers the last place is a mark, too.
    filled = (tokens != tokens[0, -2]).sum(dim=1), (wider != wider[0, -2]).sum(dim=1)
    return int((filled[1] > filled[0]).sum())


def cut_note(input_spec: Input, texts: Iterable[object], *, of: str = "text") -> str | None:
    """A sentence on texts that are cut; None where all are read to their end.

    of  what one of them is called
    """
    every = list(texts)
    cut = too_long(input_spec, every)
    if not cut:
        return None
    assert isinstance(input_spec, WordInput | SubwordInput | OpenClipInput)
    option = "" if isinstance(input_spec, OpenClipInput) else " (--max-tokens when it is trained)"
    return (
        f"{counted(cut, of)} of {len(every):,} {'is' if cut == 1 else 'are'} longer than the {input_spec.max_tokens} "
        f"tokens that the model takes{option}: what is beyond is not read"
    )
