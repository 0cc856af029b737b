"""How the families of dual encoders were given texts when they were trained: one table, and the form of one model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import transformers

from subtext.data.languages import MANY

UNLIMITED = 10**6
"""A tokeniser that does not know the longest text of its model names a greater number than this."""
_GEMMA = {"<pad>": 0, "<eos>": 1, "<bos>": 2}
"""The first tokens of Gemma's vocabulary, by which a SigLIP 2 is known: its config.json calls itself `siglip`."""


@dataclass(frozen=True)
class TextForm:
    """The form in which a model was given texts.

    Attributes:
        padding: Token that fills a text up; None for the tokeniser's own. Where texts are masked it changes nothing.
        full_length: Whether every text has the longest length, nothing masked: the last token is the text's vector.
        lower: Whether capitals become small letters before the tokeniser gets a text. That of SigLIP does so itself,
            and removes punctuation; that of SigLIP 2, Gemma's, does not, although the model learnt without capitals.
        end: Whether a text always ends with the end token, also where it is cut.
        prompt: Words around every text. No family learnt with one; `--text-prompt` is for short labels.
        longest: Most tokens that the family's processor makes; None for as many as the model has positions.
        languages: What the family was trained on: codes of languages, or `data.languages.MANY`; none if not known.
    """

    padding: str | None = None
    full_length: bool = False
    lower: bool = False
    end: bool = True
    prompt: str = ""
    longest: int | None = None
    languages: tuple[str, ...] = ()


FORMS = {
    "CLIP": TextForm(languages=("en",)),
    "SigLIP": TextForm(padding="</s>", full_length=True, languages=("en",)),
    "SigLIP 2": TextForm(padding="<pad>", full_length=True, lower=True, languages=(MANY,)),
    "SigLIP 2 of variable size": TextForm(padding="<pad>", full_length=True, lower=True, languages=(MANY,)),
}
"""Family -> its form."""


def family_of(model_type: str, tokeniser: Any) -> str | None:
    """Find the family of a model.

    Args:
        model_type: As its configuration has it.
        tokeniser: Its tokeniser.

    Returns:
        A key of `FORMS`; None for another family.
    """
    if model_type == "siglip2":
        return "SigLIP 2 of variable size"
    if model_type == "siglip":
        gemma = type(tokeniser).__name__.startswith(("Gemma", "Siglip2"))
        known = gemma or all(tokeniser.convert_tokens_to_ids(token) == code for token, code in _GEMMA.items())
        return "SigLIP 2" if known else "SigLIP"
    return "CLIP" if model_type == "clip" else None


def text_form(config: Any, tokeniser: Any, positions: int) -> tuple[TextForm, str]:
    """The form of one model's texts, and a note on what its files do not say. Its tokeniser gets the padding token.

    Args:
        config: Configuration of the model.
        tokeniser: Its tokeniser, changed where it has no padding token.
        positions: Most tokens of a text that the model can read.

    Returns:
        The form, whose `padding` and `longest` are those of this model; and a sentence, "" for none.
    """
    family = family_of(config.model_type, tokeniser)
    form, notes = FORMS[family] if family is not None else _processor_form(config, tokeniser), list[str]()
    if family is None:
        notes.append(
            f"models of the family '{config.model_type}' are not in the table of how models were trained; its texts "
            "are read as its own tokeniser and processor read them"
        )
    said = int(getattr(tokeniser, "model_max_length", UNLIMITED + 1))
    longest = min(positions, form.longest or positions, positions if form.full_length or said > UNLIMITED else said)
    if tokeniser.pad_token is None:
        usual = next((t for t in (form.padding, "<pad>", "[PAD]") if t is not None and _has(tokeniser, t)), None)
        tokeniser.pad_token = usual or tokeniser.eos_token or tokeniser.unk_token
        if form.full_length:
            notes.append(f"its tokeniser names no padding token; '{tokeniser.pad_token}' is taken, as {family} has it")
    elif form.padding is not None and tokeniser.pad_token != form.padding and _has(tokeniser, form.padding):
        notes.append(
            f"its tokeniser fills texts up with '{tokeniser.pad_token}', and {family} was trained with "
            f"'{form.padding}'; the tokeniser's own is taken"
        )
    codes = tokeniser(["a a"])["input_ids"][0]
    if form.end and family is not None and (not codes or codes[-1] not in _ends(config, tokeniser)):
        notes.append(
            f"its tokeniser puts no end token behind a text, and {family} was trained with one; correct its files"
        )
    adapted = TextForm(tokeniser.pad_token, form.full_length, form.lower, form.end, form.prompt, longest)
    return adapted, "; ".join(notes)


def _has(tokeniser: Any, token: str) -> bool:
    return token in tokeniser.get_vocab()


def _ends(config: Any, tokeniser: Any) -> set[int]:
    """Codes of tokens that end a text."""
    text = getattr(config, "text_config", config)
    named = (tokeniser.eos_token_id, tokeniser.sep_token_id, getattr(text, "eos_token_id", None))
    return {code for code in named if isinstance(code, int)}


def _processor_form(config: Any, tokeniser: Any) -> TextForm:
    """What the processor of another family does with texts by itself: as they are masked, only the length counts."""
    mapping = transformers.models.auto.processing_auto.PROCESSOR_MAPPING_NAMES
    processor = getattr(transformers, str(mapping.get(config.model_type, "")), None)
    # Of transformers before 5.20, the settings stand in a class beside it.
    former = getattr(getattr(processor, "valid_processor_kwargs", None), "_defaults", {})
    settings = getattr(processor, "text_kwargs", None) or former.get("text_kwargs") or {}
    longest = settings.get("max_length")
    if settings.get("padding") == "max_length" and longest is None:
        longest = getattr(tokeniser, "model_max_length", None)
    return TextForm(end=False, longest=longest if isinstance(longest, int) and longest <= UNLIMITED else None)
