"""Whether a model's vocabulary is that of its training texts and of no others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from subtext.data.text import WordInput
from subtext.data.vocabulary import MARKS, Vocabulary
from subtext.data.words import tokenise
from subtext.errors import DataError, counted
from subtext.evaluation.audit import Check

_SHOWN = 5


def vocabulary(
    input_spec: object, train: Sequence[str], audited: Sequence[str], *, min_count: int | None = None
) -> Check:
    """Build the vocabulary anew from the training texts and compare.

    input_spec  the input of the text branch
    train      texts that the run learnt from       audited  texts of the audited split
    min_count  how often the run wanted to see a word; None where it does not say
    """
    did = (
        "The vocabulary was built anew from the texts of the training split"
        f"{'' if min_count is None else f', words seen {min_count} times or more'}, and compared with the model's."
    )
    if not isinstance(input_spec, WordInput):
        why = f"texts are read by {type(input_spec).__name__}, which has no vocabulary made from this data"
        return Check("vocabulary", did, "not applicable", why)
    own = input_spec.vocabulary.tokens[len(MARKS) :]
    seen = Counter(word for text in train for word in tokenise(text))
    foreign = [word for word in own if not seen[word]]
    rare = [word for word in own if 0 < seen[word] < (min_count or 1)]
    lacking = [] if min_count is None else sorted(set(_built(train, min_count)) - set(own))
    figures = {"words": len(own), "foreign": foreign, "rare": rare, "lacking": lacking}
    told = []
    if foreign:
        there = {word for text in audited for word in tokenise(text)}.intersection(foreign)
        told.append(
            f"{len(foreign):,} of {counted(len(own), 'word')} are in no training text, {len(there):,} of them in the "
            f"audited split ({_some(foreign)})"
        )
    if rare:
        told.append(f"{counted(len(rare), 'word')} seen less than {min_count} times in training ({_some(rare)})")
    if lacking:
        told.append(f"{counted(len(lacking), 'word')} of the training texts lacking ({_some(lacking)})")
    if told:
        return Check("vocabulary", did, "fail", "; ".join(told), figures)
    return Check("vocabulary", did, "pass", f"{counted(len(own), 'word')}, all of the training texts alone", figures)


def _built(texts: Sequence[str], min_count: int) -> tuple[str, ...]:
    try:
        return Vocabulary.build(texts, min_count=min_count).tokens[len(MARKS) :]
    except DataError:
        # No word is frequent enough; then every word that the model has is too many.
        return ()


def _some(words: Sequence[str]) -> str:
    more = f" and {len(words) - _SHOWN:,} more" if len(words) > _SHOWN else ""
    return ", ".join(words[:_SHOWN]) + more
