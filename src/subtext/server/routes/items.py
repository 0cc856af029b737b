"""/items, /item, /thumbnail and /fields: what a library holds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from subtext.search.query import opposite
from subtext.search.stores.item import Side
from subtext.search.stores.store import Store, View
from subtext.server.batching import state_of
from subtext.server.schemas import (
    Facet,
    Fields,
    ItemDetail,
    ItemOut,
    Library,
    Listing,
    Name,
    Page,
    TextOut,
    parse_conditions,
)
from subtext.server.security import Refusal, etag_response, log_facts
from subtext.server.state import REFUSALS, Reading
from subtext.server.thumbnails import MEDIA_TYPE, SIZES

router = APIRouter(responses=REFUSALS, tags=["items"])

COMMON_VALUES, MAX_CHOICES = 40, 200
"""Values of a field that are listed; number of values above which a text field offers no list."""


@router.get("/items")
def items(request: Request, server: Reading, form: Annotated[Listing, Query()]) -> Page:
    """Items that meet the conditions, in the order in which they were added."""
    library = server.library(form.index)
    root, conditions = library.store.manifest.root, parse_conditions(form.where)
    with library.store.reading() as view:
        if conditions:
            keys = view.matching(form.target, conditions)
            total, page = len(keys), keys[form.offset : form.offset + form.top].tolist()
        else:
            total, page = view.counts[form.target], view.page(form.target, offset=form.offset, top=form.top)
        rows = [ItemOut.of_item(item, form.target, root) for item in view.items(form.target, page)]
    log_facts(request, {"index": library.name, "hits": len(rows)})
    return Page(index=library.name, total=total, items=rows)


@router.get("/item")
def item(
    request: Request,
    server: Reading,
    id: Annotated[Name, Query()],
    target: Annotated[Side, Query()] = "images",
    index: Annotated[Library, Query()] = None,
) -> ItemDetail:
    """One item with its metadata, and the score of each of its texts (or images)."""
    library = server.library(index)
    detail = _detail(library.store, target, id)
    if detail is None:
        raise Refusal(HTTPStatus.NOT_FOUND, f"there is no such item among the {target} of this library")
    log_facts(request, {"index": library.name, "item": id})
    return detail


@router.get(
    "/thumbnail",
    response_class=Response,
    responses={200: {"content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}}, 304: {}},
)
def thumbnail(
    request: Request,
    server: Reading,
    id: Annotated[Name, Query()],
    size: Annotated[int, Query(description=f"Pixels of the longer side: {', '.join(map(str, SIZES))}.")] = 320,
    index: Annotated[Library, Query()] = None,
) -> Response:
    """The image of an item, scaled down and encoded again."""
    if size not in SIZES:
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, f"size is one of {', '.join(map(str, SIZES))}; it got {size}")
    library = server.library(index)
    data, fresh = library.thumbnails.of(library.store, id, size)
    if fresh:
        server.metrics.event("thumbnails_made")
    # Revalidated each time: a deleted image must also disappear from the page.
    return etag_response(request, data, MEDIA_TYPE, cache="private, no-cache")


@router.get("/fields")
def fields(
    server: Reading, target: Annotated[Side, Query()] = "images", index: Annotated[Library, Query()] = None
) -> Fields:
    """The metadata to filter by, with its most common values."""
    library = server.library(index)
    state = state_of(library.index)
    facets = library.fields.get(state, target)
    if facets is None:
        with library.store.reading() as view:
            facets = [_facet(view, target, name) for name in view.fields(target)]
        library.fields.put(state, target, facets, weight=1)
    return Fields(index=library.name, fields=facets)


def _detail(store: Store, side: Side, name: str) -> ItemDetail | None:
    """An item with its partners and their scores; None where it is not there."""
    root = store.manifest.root
    with store.reading() as view:
        key = view.keys_of(side, [name]).get(name)
        if key is None:
            return None
        item = view.items(side, [key])[0]
        shown = ItemOut.of_item(item, side, root)
        if side == "texts":
            keys = list(view.keys_of("images", item.metadata["images"]).values())
        else:
            keys = view.partners("images", [key]).get(key, [])
        partners = view.items(opposite(side), keys)
        scores = _scores(view, side, key, [partner.key for partner in partners])
    if side == "texts":
        images = [ItemOut.of_item(partner, "images", root) for partner in partners]
        for image, score in zip(images, scores, strict=True):
            image.score = score
        return ItemDetail(item=shown, texts=[], pictures=images)
    texts = [
        TextOut(id=partner.id, text=partner.captions[0] if partner.captions else None, score=score)
        for partner, score in zip(partners, scores, strict=True)
    ]
    return ItemDetail(item=shown, texts=texts, pictures=[])


def _scores(view: View, side: Side, key: int, partners: Sequence[int]) -> list[float]:
    """The cosine of an item with each of its partners, of the best matching views."""
    if not partners:
        return []
    vectors = view.vectors(side, np.array([key]))[0]
    others = view.vectors(opposite(side), np.array(partners))
    best: Any = np.einsum("kd,nld->nkl", vectors.astype(np.float64), others.astype(np.float64)).max(axis=(1, 2))
    return [float(score) for score in best]


def _facet(view: View, side: Side, name: str) -> Facet:
    values = view.values(side, name, most=COMMON_VALUES, choice=MAX_CHOICES)
    if values.dates is not None and not values.numbers:
        first, last = (datetime.fromtimestamp(when, UTC).date().isoformat() for when in values.dates)
        return Facet(name=name, kind="date", count=values.different, values=[], low=first, high=last)
    if values.texts:
        return Facet(name=name, kind="text", count=values.different, values=list(values.common))
    low, high = values.ends if values.ends is not None else (None, None)
    common = list(values.common) if values.different <= COMMON_VALUES else []
    return Facet(name=name, kind="number", count=values.different, values=common, low=low, high=high)
