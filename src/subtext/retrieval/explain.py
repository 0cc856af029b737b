"""Why a hit is where it is: what each signal adds to its score, and the texts and fields that it is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.retrieval.answer import Reason
from subtext.retrieval.confidence import best_products
from subtext.retrieval.evidence import Gatherer, ItemScores, Part, PartScores
from subtext.retrieval.ranker import BY_MACHINES, OWN, Signal
from subtext.retrieval.stores.item import StoredRow
from subtext.retrieval.words import query_words, words

SHOWN = 3
"""Texts of similar images, and fields, that a reason names."""


def explain(gatherer: Gatherer, scored: ItemScores, keys: NDArray[np.int64]) -> list[list[Reason]]:
    """The reasons of some hits.

    Args:
        gatherer: What gathered the evidence.
        scored: The evidence.
        keys: (T) int64 keys of hits.

    Returns:
        T lists, the largest amount first; the amounts of a hit sum to its score.
    """
    view, side = gatherer.view, gatherer.side
    places = np.searchsorted(scored.keys, keys).tolist()
    items = {row.key: row for row in view.rows(side, keys=keys.tolist())}
    reasons: list[list[Reason]] = [[] for _ in places]
    for part in scored.parts:
        named = dict[Signal, dict[int, dict[str, Any]]]()
        for signal in part.values:
            if signal == "neighbours":
                named[signal] = _lent_texts(gatherer, part.part, keys)
            elif signal in ("words", "machine_words"):
                named[signal] = _own_words(gatherer, signal, part.part, keys)
            elif signal in (*OWN, *BY_MACHINES) and side == "images":
                named[signal] = _own_texts(gatherer, signal, part.part, keys)
        for number, place in enumerate(places):
            key = int(keys[number])
            for reason in _amounts(part, place):
                about: Mapping[str, Any] = {}
                if reason.value is not None and reason.signal == "fields":
                    about = _fields(items[key], part.part.text or "")
                elif reason.value is not None:
                    about = named.get(reason.signal, {}).get(key, {})
                reasons[number].append(replace(reason, **about))
    return [with_shares(own) for own in reasons]


def with_shares(reasons: Sequence[Reason]) -> list[Reason]:
    """Reasons with their shares of the sum of positive amounts.

    Args:
        reasons: Of one hit.

    Returns:
        The reasons that add or take something, or are missing; the largest amount first.
    """
    total = sum(max(0.0, reason.amount) for reason in reasons)
    shared = [replace(own, share=own.amount / total if own.amount > 0 else None) for own in reasons]
    return sorted((own for own in shared if own.amount), key=lambda own: -own.amount)


def part_name(part: Part, *, is_text: bool) -> str:
    """What a reason calls a part of a query.

    Args:
        part: The part.
        is_text: Whether it is text of the query, and no image or item.

    Returns:
        "text", "image" or "item", with a minus before it for a negative part.
    """
    name = "text" if is_text else "image" if part.key is None else "item"
    return f"-{name}" if part.weight < 0 else name


def _amounts(part: PartScores, place: int) -> list[Reason]:
    """The reasons of one item for one part, without texts."""
    name = part_name(part.part, is_text=part.part.text is not None)
    found = []
    for signal, values in part.values.items():
        moments, value, amount = part.moments[signal], float(values[place]), float(part.amounts[signal][place])
        lacks = bool(np.isnan(value))
        weight = float(part.weights[signal][place])
        found.append(
            Reason(
                signal,
                amount,
                part=name,
                value=None if lacks else value,
                weight=weight,
                mean=moments.mean,
                deviation=moments.deviation,
            )
        )
    return found


def _texts_of(gatherer: Gatherer, signal: Signal, keys: NDArray[np.int64]) -> dict[int, list[int]]:
    """Key of an image -> keys of its texts that a signal is of."""
    found: dict[int, list[int]] = {}
    for image, text in zip(*(own.tolist() for own in gatherer.own_texts(np.unique(keys), signal)), strict=True):
        found.setdefault(image, []).append(text)
    return found


def _own_texts(gatherer: Gatherer, signal: Signal, part: Part, keys: NDArray[np.int64]) -> dict[int, dict[str, Any]]:
    """Key of an image -> its best text, by vectors; where they are missing, the first."""
    view, partners = gatherer.view, _texts_of(gatherer, signal, keys)
    texts = sorted({key for own in partners.values() for key in own})
    scores = _text_scores(gatherer, part, texts)
    rows = {row.key: row for row in view.rows("texts", keys=texts)}
    best = {image: max(own, key=lambda key: scores[key]) for image, own in partners.items()}
    return {image: {"id": rows[key].id, "text": rows[key].shown} for image, key in best.items()}


def _own_words(gatherer: Gatherer, signal: Signal, part: Part, keys: NDArray[np.int64]) -> dict[int, dict[str, Any]]:
    """Key of an item -> the words of a query that its texts have."""
    view, partners = gatherer.view, {key: [key] for key in keys.tolist()}
    if gatherer.side == "images":
        partners = _texts_of(gatherer, signal, keys)
    texts = sorted({key for own in partners.values() for key in own})
    rows = {row.key: set(words(row.text or "")) for row in view.rows("texts", keys=texts)}
    asked = list(dict.fromkeys(query_words(part.text or "")))
    found = {}
    for item, own in partners.items():
        there = set().union(*(rows[key] for key in own if key in rows))
        found[item] = {"text": ", ".join(word for word in asked if word in there) or None}
    return found


def _lent_texts(gatherer: Gatherer, part: Part, keys: NDArray[np.int64]) -> dict[int, dict[str, Any]]:
    """Key of an image -> the texts of its neighbours that are nearest to the query, and the image of the first."""
    view = gatherer.view
    owners, rows = view.owners("neighbours")
    asked = np.isin(owners, keys)
    wanted = dict(zip(rows[asked].tolist(), owners[asked].tolist(), strict=True))
    near = {
        wanted[row.key]: list(map(int, row.fields.get("near", []))) for row in view.rows("neighbours", keys=[*wanted])
    }
    images = sorted({key for own in near.values() for key in own})
    partners = view.partners("images", images)
    texts = sorted({key for own in partners.values() for key in own})
    scores = _text_scores(gatherer, part, texts)
    said = {row.key: row.shown or "" for row in view.rows("texts", keys=texts)}
    ids = {row.key: row.id for row in view.rows("images", keys=images)}
    found = {}
    for image, own in near.items():
        pairs = sorted(
            ((scores[text], text, other) for other in own for text in partners.get(other, ())), reverse=True
        )[:SHOWN]
        if pairs:
            shown = list(dict.fromkeys(said[text] for _, text, _ in pairs))
            found[image] = {"id": ids[pairs[0][2]], "text": " | ".join(shown)}
    return found


def _text_scores(gatherer: Gatherer, part: Part, texts: Sequence[int]) -> dict[int, float]:
    """Key of a text -> its score with a part; the lowest for a text without a vector."""
    vectors = gatherer.compared(part)
    if not texts or vectors is None:
        return dict.fromkeys(texts, 0.0)
    rows, there = gatherer.view.vectors_in(gatherer.text_space, np.array(texts, dtype=np.int64))
    scores = np.where(there, best_products(vectors[None], rows)[0], -np.inf)
    return dict(zip(texts, scores.tolist(), strict=True))


def _fields(row: StoredRow, text: str) -> dict[str, Any]:
    """The fields of an image that have words of a query."""
    asked = set(query_words(text))
    file = "" if row.path is None else row.path.rpartition("/")[2]
    named = {"id": row.id, "file name": file if file not in row.id else "", **row.fields}
    said = {name: "; ".join(map(str, value if isinstance(value, list) else [value])) for name, value in named.items()}
    found = {name: value for name, value in said.items() if asked & set(words(value)) and name != "split"}
    shown = list(found)[:SHOWN]
    return {"fields": tuple(found), "text": ", ".join(f"{name} {found[name]}" for name in shown)}
