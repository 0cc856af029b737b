"""/items, /item, /thumbnail and /fields: what a library holds."""

from __future__ import annotations

import hashlib
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from subtext.server import telling
from subtext.server.conditions import conditions
from subtext.server.folder import state_of
from subtext.server.forms import SIDE, Fields, Index, Listed, Name, Page, Shown
from subtext.server.refusals import Refusal, note
from subtext.server.routes.open import REFUSALS, Reading
from subtext.server.thumbnails import KIND, SIZES

router = APIRouter(responses=REFUSALS, tags=["items"])


@router.get("/items")
def items(request: Request, served: Reading, wanted: Annotated[Listed, Query()]) -> Page:
    """Items that fulfil the conditions, in the order in which they came in."""
    library = served.library(wanted.index)
    total, chosen = telling.page(
        library.store, wanted.target, conditions(wanted.where), offset=wanted.offset, top=wanted.top
    )
    note(request, {"index": library.name, "hits": len(chosen)})
    return Page(index=library.name, total=total, items=chosen)


@router.get("/item")
def item(
    request: Request,
    served: Reading,
    id: Annotated[Name, Query()],
    target: Annotated[SIDE, Query()] = "images",
    index: Annotated[Index, Query()] = None,
) -> Shown:
    """All that is known of one item, and how well its own texts (or pictures) go with it."""
    library = served.library(index)
    shown = telling.shown(library.store, target, id)
    if shown is None:
        raise Refusal(HTTPStatus.NOT_FOUND, f"there is no such item among the {target} of this library")
    note(request, {"index": library.name, "item": id})
    return shown


@router.get(
    "/thumbnail",
    response_class=Response,
    responses={200: {"content": {KIND: {"schema": {"type": "string", "format": "binary"}}}}, 304: {}},
)
def thumbnail(
    request: Request,
    served: Reading,
    id: Annotated[Name, Query()],
    size: Annotated[int, Query(description=f"Pixels of the longer side: {', '.join(map(str, SIZES))}.")] = 320,
    index: Annotated[Index, Query()] = None,
) -> Response:
    """The picture of an item, made small and coded anew."""
    if size not in SIZES:
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, f"size is one of {', '.join(map(str, SIZES))}; it got {size}")
    library = served.library(index)
    data, fresh = library.thumbnails.of(library.store, id, size)
    if fresh:
        served.metrics.event("thumbnails_made")
    tag = f'"{hashlib.blake2b(data, digest_size=12).hexdigest()}"'
    # Not kept without asking: a deleted picture has to be gone from the page as well.
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(data, media_type=KIND, headers=headers)


@router.get("/fields")
def fields(
    served: Reading, target: Annotated[SIDE, Query()] = "images", index: Annotated[Index, Query()] = None
) -> Fields:
    """The metadata that items can be filtered by, with its commonest values."""
    library = served.library(index)
    state = state_of(library.engine)
    known = library.told.get(state, target)
    if known is None:
        known = telling.fields(library.store, target)
        library.told.put(state, target, known, weight=1)
    return Fields(index=library.name, fields=known)
