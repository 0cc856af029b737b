"""`subtext search`: an index is asked, and what it finds is told in words or as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from subtext.api.load import choose_device, choose_precision, open_engine
from subtext.api.two_stage import Rerank, read_again, reorder, require_order
from subtext.data.lengths import cut_note
from subtext.report.progress import say
from subtext.report.text_table import Cell, table
from subtext.search import Answer, Engine, Hit, Order, Query
from subtext.search.stores.condition import parse

WIDTH = 72
"""Longest cell of a caption in the table."""
SHOWN = 8
"""Words that a warning lists before it counts the others; the JSON lists all."""


@dataclass(frozen=True)
class Places:
    """Where things are now, and what computes: None is what the index remembers.

    rerank  a second model, or none      bf16  whether it scores in bfloat16; None for what it was trained with
    """

    run: Path | None = None
    features: Path | None = None
    device: str = "cpu"
    rerank: Rerank | None = None
    bf16: bool | None = None


@dataclass(frozen=True)
class Question:
    """What is asked, and how the answer is to be: the options of `subtext search` by their names."""

    text: str | None = None
    image: Path | None = None
    like: Sequence[str] = ()
    unlike: Sequence[str] = ()
    without: str | None = None
    image_weight: float = 0.5
    unlike_weight: float = 0.5
    top: int = 10
    target: Literal["images", "texts"] = "images"
    where: Sequence[str] = ()
    by_words: bool = False
    hubs: Literal["csls", "softmax"] | None = None
    diversity: float = 0.0
    min_probability: float | None = None
    why: bool = False

    @staticmethod
    def from_options(values: Mapping[str, Any]) -> Question:
        """The question among a command's options."""
        own = {f.name: values[f.name] for f in fields(Question) if f.name != "text"}
        return Question(text=values["words"], **own)

    @property
    def query(self) -> Query:
        """What is asked for. Raises RequirementError for nothing."""
        return Query(self.text, self.image, self.like, self.unlike, self.without, self.image_weight, self.unlike_weight)

    def asked(self, engine: Engine) -> dict[str, Any]:
        """What was asked for, for the JSON: what was left out is left out."""
        found: dict[str, Any] = {} if self.text is None else {"text": self.text}
        if self.image is not None:
            found |= {"image": str(self.image), "features_of": engine.named(self.image)}
        if self.text is not None and (self.image is not None or self.like):
            found["image_weight"] = self.image_weight
        more = {"like": list(self.like), "unlike": list(self.unlike), "without": self.without}
        return found | {name: value for name, value in more.items() if value}


def ask(index: Path | str, question: Question, *, places: Places, as_json: bool) -> str:
    """What the index finds; words that the model does not know are told on standard error.

    Raises what opening and searching raise.
    """
    device = choose_device(places.device)
    conditions = [parse(condition) for condition in question.where]
    order = Order(question.by_words, question.hubs, question.diversity)
    engine = open_engine(index, run=places.run, features=places.features, device=device)
    # What the second model cannot order is said before the first one searches.
    second = None if places.rerank is None else places.rerank.open(device).model
    if second is not None:
        choose_precision(second, places.bf16)
        require_order(second, text=question.text, image=question.image, target=question.target)
    shown = question.top if places.rerank is None else max(question.top, *places.rerank.candidates)
    answer = engine.answer(
        question.query,
        top=shown,
        target=question.target,
        where=conditions,
        order=order,
        min_probability=question.min_probability,
        why=question.why,
    )
    unit: str = answer.unit
    again: str | None = None
    if second is not None:
        again = cut_note(second.text.input_spec, read_again(answer.hits, text=question.text))
        found = reorder(second, answer.hits, text=question.text, image=question.image, target=question.target)
        # The probability was that of the first model's score.
        answer = replace(answer, hits=[replace(hit, probability=None) for hit in found[: question.top]])
        unit = "score"
    known = None if question.text is None else engine.words(question.text)
    unread = None if known is None else _warning(known)
    cut = None if question.text is None else cut_note(engine.model.text.input_spec, [question.text])
    again = None if again is None else f"the re-ranking run: {again}"
    warnings = [warning for warning in (unread, cut, again, _stale(answer)) if warning is not None]
    for warning in warnings:
        say(f"warning: {warning}")
    if not as_json:
        return _text(answer, question, unit)
    told = {
        "query": question.asked(engine),
        "unknown_words": [word for word, knows in (known or {}).items() if not knows],
        "warning": "; ".join(warnings) or None,
        "for": question.target,
        "where": list(question.where),
        "index": str(engine.folder.path),
        **({} if places.rerank is None else {"rerank": str(places.rerank.run), "candidates": shown}),
        "unit": unit,
        "nothing_matches_well": None if answer.fit is None else answer.fit.nothing,
        "fit": None if answer.fit is None else answer.fit.to_json(),
        "left_out": answer.left_out,
        "hits": [hit.to_json() for hit in answer.hits],
    }
    return json.dumps(told, indent=2, ensure_ascii=False)


def _stale(answer: Answer) -> str | None:
    """That probabilities speak of the index as it was."""
    if answer.stale is None:
        return None
    return (
        f"{100 * answer.stale:.0f} % of the items came or went since the index was calibrated: probabilities are those "
        "of before; calibrate it again (subtext index calibrate)"
    )


def _warning(known: Mapping[str, bool]) -> str | None:
    """What is to be said before an answer to these words is believed; None where the model knows them all."""
    unknown = [word for word, knows in known.items() if not knows]
    if not any(known.values()):
        which = f": {_listed(unknown)}" if unknown else "; there is none in it"
        return f"the model knows no word of the query{which}; this answer means nothing"
    return f"the model does not know {_listed(unknown)}; the answer rests on the other words" if unknown else None


def _listed(words: Sequence[str]) -> str:
    """Words in quotation marks, the first few of many."""
    more = f" and {len(words) - SHOWN:,} more" if len(words) > SHOWN else ""
    return ", ".join(f"'{word[:WIDTH]}'" for word in words[:SHOWN]) + more


def _text(answer: Answer, question: Question, unit: str) -> str:
    """The answer for people: whether anything fits, what was found, and why."""
    lines = []
    if answer.fit is not None and answer.fit.nothing:
        lines.append(answer.fit.sentence)
    if answer.left_out:
        lines.append(f"{answer.left_out} left out, less likely than {question.min_probability:g}")
    if answer.hits or not answer.left_out:
        lines.append(_table(answer.hits, question.target, unit))
    for place, hit in enumerate(answer.hits, start=1):
        told = [
            f"{reason.score:.3f} {'its own' if reason.of == 'own' else 'nearest'} {_short(reason.text or reason.id)}"
            for reason in hit.why
        ]
        if told:
            lines.append("\n".join([f"why {place}:", *(f"  {each}" for each in told)]))
    return "\n".join(lines)


def _table(hits: list[Hit], target: str, unit: str) -> str:
    if not hits:
        return f"the index holds no such {'pictures' if target == 'images' else target}"
    likely = any(hit.probability is not None for hit in hits)
    rows: list[list[Cell]] = []
    for place, hit in enumerate(hits, start=1):
        words = _short(" | ".join(hit.captions) or "-")
        where = (hit.path or hit.id) if target == "images" else ", ".join(hit.metadata.get("images", [])[:3]) or hit.id
        chance = [] if not likely else ["-" if hit.probability is None else f"{hit.probability:.2f}"]
        rows.append([str(place), f"{hit.score:.3f}", *chance, words, where])
    head = ["", unit, *(["probability"] if likely else []), "texts" if target == "images" else "text", "picture"]
    return table(head, rows)


def _short(words: str) -> str:
    return words if len(words) <= WIDTH else words[: WIDTH - 1] + "…"
