"""The languages that the texts of a model may be in."""

from __future__ import annotations

from typing import Any

from subtext.data.languages import of_vocabulary
from subtext.data.text import MARKS, SubwordInput, WordInput
from subtext.models.encoders.backbone import Pretrained
from subtext.models.encoders.dual import SingleTower
from subtext.models.encoders.families import FORMS, family_of


def languages_read(branch: Any, *, trained: bool) -> tuple[str, ...]:
    """The languages that a text branch reads.

    Args:
        branch: Of the texts, of a `Model`.
        trained: Whether its encoder has learnt from the user's texts, whose languages it then reads as well.

    Returns:
        Codes of languages; `data.languages.MANY` for many; none where nobody knows.
    """
    spec, encoder = branch.input_spec, getattr(branch, "encoder", None)  # An ensemble has several.
    if isinstance(spec, WordInput):
        words = spec.vocabulary
        return of_vocabulary({word: words.count(word) for word in words.tokens[len(MARKS) :]})
    if not isinstance(spec, SubwordInput) or trained:
        return ()
    if isinstance(encoder, SingleTower):
        family = family_of(encoder.config.model_type, spec.tokeniser)
        return () if family is None else FORMS[family].languages
    return ("en",) if isinstance(encoder, Pretrained) and encoder.installed else ()  # MiniLM, of `starter`.
