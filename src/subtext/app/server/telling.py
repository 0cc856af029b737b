"""What is told of items: as they are found, in pages, one by one, and what they can be filtered by."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from subtext.app.server.forms import Facet, Found, Shown, Text, Why
from subtext.app.server.library import Library
from subtext.search import Hit
from subtext.stores.condition import Condition
from subtext.stores.folder import Folder
from subtext.stores.item import DATE, SIDES, Item, Side
from subtext.stores.view import View

COMMON, SHOWN = 40, 200
"""Values of a field that are listed; different values beyond which a field of texts is no list to choose from."""


def found(library: Library, hit: Hit, side: Side) -> Found:
    """A hit as it is told: where its file lies on this machine is not."""
    root = library.folder.manifest.root
    path = None if hit.path is None else _inside(root, hit.path)
    return Found(
        id=hit.id,
        score=hit.score,
        probability=hit.probability,
        why=[Why(id=one.id, text=one.text, score=one.score, of=one.of) for one in hit.why],
        captions=hit.captions,
        metadata=hit.metadata,
        picture=_picture(side, hit.id, hit.path is not None, hit.metadata),
        file=path,
    )


def told(folder: Folder, item: Item, side: Side) -> Found:
    """An item as it is told."""
    path = None if item.path is None else _inside(folder.manifest.root, str(Path(folder.manifest.root) / item.path))
    return Found(
        id=item.id,
        captions=item.captions,
        metadata=item.metadata,
        picture=_picture(side, item.id, item.path is not None, item.metadata),
        file=path,
    )


def page(folder: Folder, side: Side, where: Sequence[Condition], *, offset: int, top: int) -> tuple[int, list[Found]]:
    """How many items fulfil the conditions, and some of them, in the order in which they came in.

    Raises RequirementError for a field that none has.
    """
    with folder.reading() as view:
        if where:
            keys = view.matching(side, where)
            total, chosen = len(keys), keys[offset : offset + top].tolist()
        else:
            total = view.counts[side]
            rows = view.connection.execute(_PAGE, (SIDES.index(side), top, offset))
            chosen = [key for (key,) in rows]
        return total, [told(folder, item, side) for item in view.items(side, chosen)]


def shown(folder: Folder, side: Side, name: str) -> Shown | None:
    """One item with its partners and the score of each; None where it is not there."""
    with folder.reading() as view:
        key = view.keys_of(side, [name]).get(name)
        if key is None:
            return None
        item = view.items(side, [key])[0]
        if side == "texts":
            pictures = view.items("images", list(view.keys_of("images", item.metadata["images"]).values()))
            scores = _scores(view, "texts", key, [each.key for each in pictures])
            partners = [told(folder, each, "images") for each in pictures]
            for partner, score in zip(partners, scores, strict=True):
                partner.score = score
            return Shown(item=told(folder, item, side), texts=[], pictures=partners)
        linked = view.connection.execute(_TEXTS, (name,)).fetchall()
        scores = _scores(view, "images", key, [row[0] for row in linked])
        texts = [Text(id=i, text=text, score=score) for (_, i, text), score in zip(linked, scores, strict=True)]
        return Shown(item=told(folder, item, side), texts=texts, pictures=[])


def fields(folder: Folder, side: Side) -> list[Facet]:
    """What the items of a side can be filtered by, in the order of the names."""
    with folder.reading() as view:
        dated = {str(name) for (name,) in view.connection.execute(_DATED, (SIDES.index(side), f"%{DATE}"))}
        return [_facet(view.connection, side, name, dated=name + DATE in dated) for name in view.fields(side)]


def _facet(connection: sqlite3.Connection, side: Side, name: str, *, dated: bool) -> Facet:
    number = SIDES.index(side)
    texts, numbers, different = connection.execute(_KINDS, (number, name)).fetchone()
    if dated and not numbers:
        low, high = connection.execute(_ENDS, (number, name + DATE)).fetchone()
        return Facet(name=name, kind="date", count=different, values=[], low=_day(low), high=_day(high))
    if texts:
        rows = connection.execute(_COMMON, (number, name, COMMON)).fetchall() if different <= SHOWN else []
        return Facet(name=name, kind="text", count=different, values=[(value, many) for value, many in rows])
    low, high = connection.execute(_ENDS, (number, name)).fetchone()
    rows = connection.execute(_COMMON, (number, name, COMMON)).fetchall() if different <= COMMON else []
    return Facet(name=name, kind="number", count=different, values=[tuple(row) for row in rows], low=low, high=high)


def _scores(view: View, side: Side, key: int, partners: Sequence[int]) -> list[float]:
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


_PAGE = "SELECT key FROM items WHERE side = ? ORDER BY key LIMIT ? OFFSET ?"
_TEXTS = (
    "SELECT t.key, t.id, t.text FROM links l CROSS JOIN items t ON t.side = 1 AND t.id = l.text "
    "WHERE l.image = ? ORDER BY t.key"
)
_DATED = "SELECT DISTINCT name FROM facets WHERE side = ? AND name LIKE ?"
_KINDS = (
    "SELECT coalesce(sum(typeof(value) = 'text'), 0), coalesce(sum(typeof(value) != 'text'), 0), "
    "count(DISTINCT value) FROM facets WHERE side = ? AND name = ?"
)
_ENDS = "SELECT min(value), max(value) FROM facets WHERE side = ? AND name = ?"
_COMMON = (
    "SELECT value, count(*) FROM facets WHERE side = ? AND name = ? GROUP BY value "
    "ORDER BY count(*) DESC, value LIMIT ?"
)
