"""What is told of items: as they are found, in pages, one by one, and what they can be filtered by."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from subtext.search import Hit
from subtext.search.stores.condition import Condition
from subtext.search.stores.item import Item, Side
from subtext.search.stores.store import Store, StoreView
from subtext.server.forms import Facet, Found, Shown, Text, Why
from subtext.server.library import Library

COMMON, SHOWN = 40, 200
"""Values of a field that are listed; different values beyond which a field of texts is no list to choose from."""


def found(library: Library, hit: Hit, side: Side) -> Found:
    """A hit as it is told: where its file lies on this machine is not."""
    root = library.store.manifest.root
    path = None if hit.path is None else _inside(root, hit.path)
    return Found(
        id=hit.id,
        score=hit.score,
        probability=hit.probability,
        uncertainty=hit.uncertainty,
        why=[Why(id=one.id, text=one.text, score=one.score, of=one.of) for one in hit.why],
        captions=hit.captions,
        metadata=hit.metadata,
        picture=_picture(side, hit.id, hit.path is not None, hit.metadata),
        file=path,
    )


def told(root: str, item: Item, side: Side) -> Found:
    """An item as it is told; `root` is the folder that its path starts from."""
    path = None if item.path is None else _inside(root, str(Path(root) / item.path))
    return Found(
        id=item.id,
        captions=item.captions,
        metadata=item.metadata,
        picture=_picture(side, item.id, item.path is not None, item.metadata),
        file=path,
    )


def page(store: Store, side: Side, where: Sequence[Condition], *, offset: int, top: int) -> tuple[int, list[Found]]:
    """How many items fulfil the conditions, and some of them, in the order in which they came in.

    Raises RequirementError for a field that none has.
    """
    root = store.manifest.root
    with store.reading() as view:
        if where:
            keys = view.matching(side, where)
            total, chosen = len(keys), keys[offset : offset + top].tolist()
        else:
            total, chosen = view.counts[side], view.page(side, offset=offset, top=top)
        return total, [told(root, item, side) for item in view.items(side, chosen)]


def shown(store: Store, side: Side, name: str) -> Shown | None:
    """One item with its partners and the score of each; None where it is not there."""
    root = store.manifest.root
    with store.reading() as view:
        key = view.keys_of(side, [name]).get(name)
        if key is None:
            return None
        item = view.items(side, [key])[0]
        if side == "texts":
            pictures = view.items("images", list(view.keys_of("images", item.metadata["images"]).values()))
            scores = _scores(view, "texts", key, [each.key for each in pictures])
            partners = [told(root, each, "images") for each in pictures]
            for partner, score in zip(partners, scores, strict=True):
                partner.score = score
            return Shown(item=told(root, item, side), texts=[], pictures=partners)
        linked = view.items("texts", view.partners("images", [key]).get(key, []))
        scores = _scores(view, "images", key, [each.key for each in linked])
        texts = [
            Text(id=each.id, text=each.captions[0] if each.captions else None, score=score)
            for each, score in zip(linked, scores, strict=True)
        ]
        return Shown(item=told(root, item, side), texts=texts, pictures=[])


def fields(store: Store, side: Side) -> list[Facet]:
    """What the items of a side can be filtered by, in the order of the names."""
    with store.reading() as view:
        return [_facet(view, side, name) for name in view.fields(side)]


def _facet(view: StoreView, side: Side, name: str) -> Facet:
    own = view.values(side, name, most=COMMON, choice=SHOWN)
    if own.dates is not None and not own.numbers:
        first, last = map(_day, own.dates)
        return Facet(name=name, kind="date", count=own.different, values=[], low=first, high=last)
    if own.texts:
        return Facet(name=name, kind="text", count=own.different, values=list(own.common))
    low, high = own.ends if own.ends is not None else (None, None)
    values = list(own.common) if own.different <= COMMON else []
    return Facet(name=name, kind="number", count=own.different, values=values, low=low, high=high)


def _scores(view: StoreView, side: Side, key: int, partners: Sequence[int]) -> list[float]:
    """The cosine of an item with each of its partners, of the views that fit best."""
    if not partners:
        return []
    other: Side = "texts" if side == "images" else "images"
    own = view.shelves[side].vectors_of(np.asarray([key], dtype=np.int64))[0]
    theirs = view.shelves[other].vectors_of(np.asarray(partners, dtype=np.int64))
    best: Any = np.einsum("kd,nld->nkl", own.astype(np.float64), theirs.astype(np.float64)).max(axis=(1, 2))
    return [float(score) for score in best]


def _picture(side: Side, name: str, has_file: bool, metadata: dict[str, Any]) -> str | None:
    if side == "images":
        return name if has_file else None
    return next(iter(metadata.get("images", [])), None)


def _inside(root: str, path: str) -> str | None:
    """A path against the collection's folder; the name alone of a file that lies elsewhere."""
    full = Path(path)
    return full.relative_to(root).as_posix() if full.is_relative_to(root) else full.name


def _day(when: float) -> str:
    return datetime.fromtimestamp(when, UTC).date().isoformat()
