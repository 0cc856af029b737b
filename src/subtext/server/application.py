"""The FastAPI application: searches, the items of a library, changes for clients with the token, and its page.

A guard stands before all routes; see `security.Guard`.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import signal
import sys
import threading
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast, no_type_check

import anyio.to_thread
import numpy as np
from fastapi import APIRouter, Depends, FastAPI, Query as QueryParameters, Request
from fastapi.responses import PlainTextResponse, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from numpy.typing import NDArray
from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import models_json_schema

from subtext.data.dates import DateInterval, days
from subtext.data.features import FeatureInput
from subtext.data.pixels import PixelInput, ReadImage
from subtext.data.text import cut_note
from subtext.errors import ArgumentError, RequirementError
from subtext.retrieval.condition import as_conditions, count_dates, is_of_dates, matching, places_by_date
from subtext.retrieval.index import Answer, Index, Query
from subtext.retrieval.lists import change_lists, new_list, stored_lists
from subtext.retrieval.neighbours import refresh
from subtext.retrieval.stores.item import Side, opposite
from subtext.retrieval.stores.saved_lists import JUDGED, SavedList
from subtext.retrieval.stores.store import View, keys_after
from subtext.retrieval.traces import trace_name
from subtext.server import schemas
from subtext.server.decoding import FORMATS, MEDIA_TYPE
from subtext.server.images import Upload, add_uploads, changing
from subtext.server.refusal import Refusal
from subtext.server.security import ERROR_HANDLERS, Guard, client_of, etag_response, log_facts
from subtext.server.settings import Settings
from subtext.server.state import Library, ServerState, state_of
from subtext.version import __version__

SETTINGS = "SUBTEXT_SERVE"
"""Names the variable in which a server passes its settings to its further processes."""
PAGE = Path(__file__).parent / "page"
PAGE_TYPES = {
    ".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml",
}  # fmt: skip
SWITCH_SECONDS = 0.001
"""Seconds of Python that a thread computes before another one may."""
SPARE_THREADS = 16
"""Threads for what is answered however busy the server is."""
REFERENCE = "#/components/schemas/{model}"
"""How the OpenAPI description names a schema."""
FormT = TypeVar("FormT", bound=schemas.Form)
REFUSALS: dict[int, str] = {
    400: "not a readable request",
    401: "a token is missing or wrong",
    403: "a page of another site asks, or the server takes no changes",
    404: "no such library, item or image",
    408: "the request came too slowly",
    413: "too many bytes or pixels",
    422: "a value or a parameter that cannot be used",
    429: "too many requests; Retry-After names the seconds to wait",
    500: "the server made a mistake",
    503: "the server is busy; Retry-After names the seconds to wait",
}
NO_IMAGE = {415: "a body of another kind, or more than an image"}
NO_CHANGE = {409: "the id exists", 507: "the library cannot be written"}
"""Answers that refuse, for the OpenAPI description of every route, of those that take images, and of changes."""
COMMON_VALUES, MAX_CHOICES = 40, 200
"""Values of a field that are listed; number of values above which a text field offers no list."""
_IMAGE_BODY = {
    "requestBody": {
        "required": True,
        "content": {f"image/{name.lower()}": {"schema": {"type": "string", "format": "binary"}} for name in FORMATS},
    }
}


def _router(tag: str, refusals: Mapping[int, str]) -> APIRouter:
    responses: dict[int | str, dict[str, Any]] = {
        status: {"model": schemas.ErrorResponse, "description": text} for status, text in sorted(refusals.items())
    }
    return APIRouter(responses=responses, tags=[tag])


ROUTERS = searching, items, changes, about = (
    _router("search", REFUSALS | NO_IMAGE),
    _router("items", REFUSALS | {409: "a page of an index that was replaced"}),
    _router("changes", REFUSALS | NO_IMAGE | NO_CHANGE),
    _router("about", REFUSALS),
)


async def _no_parameters(_: Annotated[schemas.NoParameters, QueryParameters()]) -> None:
    """Refuse any parameter: a misspelt one would have no effect."""


NO_PARAMETERS = [Depends(_no_parameters)]
"""For routes without parameters; those of the others are refused by their forms."""

BEARER = HTTPBearer(auto_error=False, description="The token that the server was started with.")


async def _state(request: Request) -> ServerState:
    return request.app.state.server


async def _described(
    request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)]
) -> ServerState:
    """The state; the description of the route names the token, which `security.Guard` requires."""
    return request.app.state.server


PublicAccess = Annotated[ServerState, Depends(_state)]
"""The state for a request that needs no token."""
Access = Annotated[ServerState, Depends(_described)]
"""The state for a request that may need a token."""


def _body(form: type[schemas.Form]) -> dict[str, Any]:
    """The description of a body of JSON, for OpenAPI; see `_form`."""
    schema = {"$ref": REFERENCE.format(model=form.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _form(form: type[FormT]) -> Callable[[Request], FormT]:
    """A dependency that reads the body, in the thread of the request: FastAPI would in the one that all wait for."""

    def read(request: Request) -> FormT:
        return schemas.from_json(form, request.scope["subtext.body"])

    return read


@searching.get("/search")
def search_by_text(
    request: Request,
    server: Access,
    form: Annotated[schemas.TextSearch, QueryParameters()],
) -> schemas.Results:
    """The images, or texts, that best match words, items of the library, or both."""
    return _search(request, server.library(form.index), form)


@searching.post("/search", openapi_extra=_IMAGE_BODY)
def search_by_image(
    request: Request,
    server: Access,
    form: Annotated[schemas.ImageSearch, QueryParameters()],
) -> schemas.Results:
    """The images, or texts, that best match the image in the body. It is not stored."""
    image = request.scope["subtext.body"]
    library = server.library(form.index)
    spec, read = library.index.model.image.input_spec, cast(Any, None)
    if isinstance(spec, PixelInput) and not form.rerank:
        side, pixels = server.uploads.square(image, spec.square)
        read = ReadImage(np.frombuffer(pixels, np.uint8).reshape(side, side, 3), spec.fingerprint)
    else:
        read = server.uploads.image(image)
    return _search(request, library, form, read)


def _search(request: Request, library: Library, form: Any, image: Any = None) -> schemas.Results:
    query = query_of(library, form, image=image)
    log_facts(request, {"index": library.name} | ({"words": form.q} if image is None else {}))
    server: ServerState = request.app.state.server
    reranker = server.reranker if form.rerank else None
    if form.rerank and reranker is None:
        raise RequirementError(
            "rerank needs a second model; this server has none; start it with --rerank RUN", field="rerank"
        )
    if reranker is not None:
        try:
            reranker.check(query)
        except ArgumentError as problem:
            raise RequirementError(str(problem)) from problem
    answer = library.batcher.answer(query, client=client_of(request.scope), rerank=reranker)
    log_facts(request, {"hits": len(answer)})
    return results_of(library, answer)


def query_of(
    library: Library, form: Any, *, image: Any = None, like: Sequence[tuple[Side, str]] | None = None
) -> Query:
    """The query of a form.

    Args:
        library: That is searched.
        form: `TextSearch`, `ImageSearch` or `Similar`.
        image: An image of the request; None for none.
        like: The example of `Similar`; None for another form.

    Returns:
        The query.

    Raises:
        Refusal: If there is no such example.
        RequirementError: If the model reads features of what the query has.
    """
    options = form.model_dump(exclude={"index", "q", "rerank", "id", "side"})
    lists = {name: tuple(value) for name, value in options.items() if isinstance(value, list)}
    options |= lists | {"where": schemas.parse_conditions(form.where)}
    if like is not None:
        for side, name in like:
            _vectors(library.index, side, name)
        return Query(**(options | {"like": tuple(like)}))
    query = Query(text=form.q, image=image, **options)
    # A client can bring no features.
    model = library.index.model
    for value, branch, kind in ((query.text, model.text, "words"), (query.image, model.image, "images")):
        if value is not None and isinstance(branch.input_spec, FeatureInput):
            raise RequirementError(
                f"this library's model reads precomputed features, and no {kind}; search with an item of the library"
            )
    return query


@searching.get("/similar")
def similar(request: Request, server: Access, form: Annotated[schemas.Similar, QueryParameters()]) -> schemas.Results:
    """The images, or texts, nearest to an item of the library, without the item itself."""
    library = server.library(form.index)
    query = query_of(library, form, like=((form.side, form.id),))
    log_facts(request, {"index": library.name, "item": form.id})
    return results_of(library, library.batcher.answer(query, client=client_of(request.scope)))


@searching.post("/score", dependencies=NO_PARAMETERS, openapi_extra=_body(schemas.ScoreRequest))
def score(
    request: Request, server: Access, form: Annotated[schemas.ScoreRequest, Depends(_form(schemas.ScoreRequest))]
) -> schemas.ScoreResponse:
    """The score of words with each of some images of the library: does the image support the text?"""
    library = server.library(form.index)
    manifest = library.store.manifest
    log_facts(request, {"index": library.name, "words": form.q})

    def scores(index: Index) -> tuple[list[float], str | None]:
        spec = index.model.text.input_spec
        if isinstance(spec, FeatureInput):
            raise RequirementError("this library's model reads precomputed features of texts; it cannot score words")
        text = index.model.embed_texts([form.q]).vectors[0].double().numpy()
        images = [_vectors(index, "images", name).astype(np.float64) for name in form.ids]
        return [float((text @ image.T).max()) for image in images], cut_note(spec, [form.q])

    values, note = library.batcher.run(scores, client=client_of(request.scope))
    pairs = [
        schemas.PairScore(id=name, score=value, scaled=manifest.scale * value + manifest.shift)
        for name, value in zip(form.ids, values, strict=True)
    ]
    return schemas.ScoreResponse(index=library.name, pairs=pairs, message=_message([] if note is None else [note]))


def _vectors(index: Index, side: Side, name: str) -> NDArray[np.float32]:
    """(K D) vectors of an item.

    Raises:
        Refusal: If it is not there.
    """
    vectors = index.vectors_of(side, name)
    if vectors is None:
        raise Refusal(HTTPStatus.NOT_FOUND, f"there is no such item among the {side} of this library")
    return vectors


def results_of(library: Library, answer: Answer) -> schemas.Results:
    """The answer, with a message that says what to know before trusting it.

    Args:
        library: That was searched.
        answer: To a query.

    Returns:
        What a client gets.
    """
    fits = None if answer.fit is None else not answer.fit.has_no_match
    if not answer.hits or (answer.meaningless and answer.text_only):
        fits = False
    root = library.store.manifest.root
    return schemas.Results(
        index=library.name,
        target=answer.target,
        hits=[schemas.ItemOut.of(hit, answer.target, root) for hit in answer],
        unit=answer.unit,
        left_out=answer.left_out,
        approximate=answer.approximate,
        dates=answer.dates,
        unknown_words=answer.unknown_words,
        exact_words=list(answer.exact_words),
        did_you_mean=dict(answer.suggestions),
        message=_message([*answer.summary, *answer.warnings]),
        fits=fits,
    )


def _message(sentences: list[str]) -> str | None:
    """The sentences as one message; None for none."""
    ended = (text if text.endswith("?") else f"{text}." for text in sentences)
    return " ".join(text[0].upper() + text[1:] for text in ended) or None


@items.get("/items")
def list_items(
    request: Request, server: Access, form: Annotated[schemas.ListQuery, QueryParameters()]
) -> schemas.ItemPage:
    """Items that meet the conditions, in the order in which they were added, or of the dates of a field."""
    library = server.library(form.index)
    conditions = as_conditions(schemas.parse_conditions(form.where), certain=form.dates == "certain")
    root = library.store.manifest.root
    with library.store.reading() as view:
        # Keys are of one index: after a move to another model, or in an index that was built anew, they mean others.
        mark = view.revision.identity[:8]
        after, _, of_index = (form.after or "").rpartition("-")
        keys, counts = matching(view, form.target, conditions), count_dates(view, form.target, conditions)
        if after and (of_index != mark or ("." in after) != (form.order is not None)):
            raise Refusal(
                HTTPStatus.CONFLICT,
                "after is of a page of another order, or of an index that was replaced; begin with the first page",
            )
        *place, key = map(int, after.split(".")) if after else (-1,)
        if form.order is None:
            page = keys_after(keys, key, form.top + 1)
            marks = list(map(str, page))
        else:
            places = places_by_date(view, form.target, keys, form.order, descending=form.descending)
            start = bisect_right(places, (tuple(place), key)) if after else 0
            shown = places[start : start + form.top + 1]
            page = np.array([key for _, key in shown], dtype=np.int64)
            marks = [".".join(map(str, (*place, key))) for place, key in shown]
        rows = [schemas.ItemOut.of(item, form.target, root) for item in view.items(form.target, page[: form.top])]
        total = len(keys)
    following = f"after={marks[form.top - 1]}-{mark}" if len(marks) > form.top else None
    log_facts(request, {"index": library.name, "hits": len(rows)})
    return schemas.ItemPage(index=library.name, total=total, dates=counts, items=rows, next=following)


@items.get("/item")
def item(request: Request, server: Access, form: Annotated[schemas.ItemQuery, QueryParameters()]) -> schemas.ItemDetail:
    """One item with its metadata, and the score of each of its texts (or images)."""
    library = server.library(form.index)
    detail = detail_of(library, form)
    log_facts(request, {"index": library.name, "item": form.id})
    return detail


def detail_of(library: Library, form: schemas.ItemQuery) -> schemas.ItemDetail:
    """One item with its metadata and its partners.

    Args:
        library: The library.
        form: Names the item.

    Returns:
        The item, with the score of each partner.

    Raises:
        Refusal: If there is no such item.
    """
    target = form.target
    root, facing = library.store.manifest.root, opposite(target)
    with library.store.reading() as view:
        known = view.resolve(target, [form.id])
        key = next(iter(view.keys_of(target, list(known.values())).values()), None)
        if key is None:
            raise Refusal(HTTPStatus.NOT_FOUND, f"there is no such item among the {target} of this library")
        content = view.items(target, [key])[0]
        keys = view.partners(target, [key]).get(key, [])
        if target == "texts":
            keys = list(view.keys_of("images", content.metadata["images"]).values())
        partners = view.items(facing, keys)
        vectors = view.vectors(target, np.array([key]))[0].astype(np.float64)
        partner_vectors = view.vectors(facing, np.array(keys, dtype=np.int64)).astype(np.float64)
    products: NDArray[np.float64] = np.einsum("kd,nld->nkl", vectors, partner_vectors)
    scores = products.max(axis=(1, 2), initial=-np.inf).tolist()
    detail = schemas.ItemDetail(item=schemas.ItemOut.of(content, target, root), texts=[], images=[])
    for partner, value in zip(partners, scores, strict=True):
        if target == "texts":
            detail.images.append(schemas.ItemOut.of(partner, "images", root).model_copy(update={"score": value}))
        else:
            text = partner.captions[0] if partner.captions else None
            detail.texts.append(schemas.TextOut(id=partner.id, text=text, score=value))
    return detail


@items.get(
    "/thumbnail",
    response_class=Response,
    responses={200: {"content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}}, 304: {}},
)
def thumbnail(request: Request, server: Access, form: Annotated[schemas.ThumbnailQuery, QueryParameters()]) -> Response:
    """The image of an item, scaled down and encoded again."""
    library = server.library(form.index)
    data, fresh = library.thumbnails.of(library.store, form.id, form.size)
    if fresh:
        server.metrics.event("thumbnails_made")
    # Revalidated each time: a deleted image must also disappear from the page.
    return etag_response(request, data, MEDIA_TYPE, cache="private, no-cache")


@items.get("/fields")
def fields(server: Access, form: Annotated[schemas.FieldsQuery, QueryParameters()]) -> schemas.Fields:
    """The metadata to filter by, with its most common values."""
    library = server.library(form.index)
    return schemas.Fields(index=library.name, fields=facets_of(library, form.target))


def facets_of(library: Library, target: Side) -> list[schemas.Facet]:
    """The metadata to filter by.

    Args:
        library: The library.
        target: "images" or "texts".

    Returns:
        The fields, from memory where the index has not changed.
    """
    index = library.index
    with index.store.reading() as view:
        state = state_of(index)
        facets = library.fields.get((state, target))
        if facets is None:
            facets = [_facet(view, target, name) for name in view.fields(target)]
            library.fields.put((state, target), facets)
    return facets


def _facet(view: View, side: Side, name: str) -> schemas.Facet:
    values = view.values(side, name)
    if values.date_range is not None and is_of_dates(view, side, name):
        low_day, high_day = days(DateInterval(*values.date_range, ""))
        return schemas.Facet(
            name=name, kind="date", count=values.distinct, values=[], low=low_day or None, high=high_day or None
        )
    most = MAX_CHOICES if values.has_texts else COMMON_VALUES
    common = list(view.values(side, name, limit=COMMON_VALUES).common) if values.distinct <= most else []
    if values.has_texts:
        return schemas.Facet(name=name, kind="text", count=values.distinct, values=common)
    low, high = values.range if values.range is not None else (None, None)
    return schemas.Facet(name=name, kind="number", count=values.distinct, values=common, low=low, high=high)


@changes.post(
    "/add", status_code=HTTPStatus.CREATED, dependencies=NO_PARAMETERS, openapi_extra=_body(schemas.AddRequest)
)
def add_items(
    request: Request, server: Access, addition: Annotated[schemas.AddRequest, Depends(_form(schemas.AddRequest))]
) -> schemas.ChangeResult:
    """Add images with their texts, all or none: on the disk, and searchable, when this answers."""
    library, uploads = server.library(addition.index), []
    if server.settings.where:
        sentence = "this server shows a part of its libraries (--where), and adds nothing: an id may be taken unseen"
        raise Refusal(HTTPStatus.FORBIDDEN, sentence)
    for item in addition.items:
        try:
            data = base64.b64decode(item.image, validate=True)
        except (binascii.Error, ValueError) as problem:
            raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, "an image must be written in base64") from problem
        suffix = server.uploads.check(data)
        uploads.append(Upload(item.id, data, suffix, tuple(item.captions), item.metadata))
    texts = [caption for upload in uploads for caption in upload.captions]
    written, cut = library.batcher.run(
        lambda index: (
            add_uploads(index, uploads, storage_dir=library.storage_dir),
            cut_note(index.model.text.input_spec, texts),
        ),
        client=client_of(request.scope),
    )
    server.metrics.event("items_added", written.embedded)
    log_facts(request, {"index": library.name, "added": [upload.id for upload in uploads]})
    note = "; ".join(filter(None, ["searchable now", cut]))
    return schemas.ChangeResult(index=library.name, image_count=len(uploads), text_count=len(texts), note=note)


@changes.post("/delete", dependencies=NO_PARAMETERS, openapi_extra=_body(schemas.DeleteRequest))
def delete_items(
    request: Request, server: Access, deletion: Annotated[schemas.DeleteRequest, Depends(_form(schemas.DeleteRequest))]
) -> schemas.ChangeResult:
    """Delete items, all or none: they, their thumbnails and their lines in the log are gone when this answers."""
    library = server.library(deletion.index)
    with changing(library.store.whole, "delete", library.storage_dir) as writer:
        with library.store.reading() as view:
            known = view.resolve(deletion.target, deletion.ids)
            keys = view.keys_of(deletion.target, list(known.values()))
            paths = {item.id: item.path for item in view.items(deletion.target, list(keys.values()))}
        missing = set(deletion.ids) - set(known)
        if missing:
            sentence = f"{len(missing)} of these {deletion.target} are not there; nothing was deleted"
            raise Refusal(HTTPStatus.NOT_FOUND, sentence)
        counts = writer.delete(deletion.target, list(paths), keep_texts=deletion.keep_texts)
        refresh(writer)
        library.sweep({trace_name(deletion.target, name): [name, path or name] for name, path in paths.items()})
    deleted = sum(counts.values())
    server.metrics.event("items_deleted", deleted)
    log_facts(request, {"index": library.name, "deleted": deleted})
    note = "deleted items disappear from results immediately; `subtext index compact` removes their vectors"
    return schemas.ChangeResult(index=library.name, image_count=counts["images"], text_count=counts["texts"], note=note)


@items.get("/lists")
def saved_lists(server: Access, form: Annotated[schemas.ListsQuery, QueryParameters()]) -> schemas.SavedLists:
    """The saved lists of a library, the newest first."""
    library = server.library(form.index)
    with library.store.reading() as view:
        found = stored_lists(view)
    rows = [
        schemas.ListSummary(name=one.name, link=one.link, items=len(one.ids), query=one.query, created=one.created)
        for one in found
    ]
    return schemas.SavedLists(index=library.name, lists=rows)


@items.get("/lists/{link}")
def saved_list(
    request: Request, server: Access, link: str, form: Annotated[schemas.ListsQuery, QueryParameters()]
) -> schemas.ListOut:
    """A saved list with its images."""
    found = list_of(server.library(form.index), link)
    log_facts(request, {"index": found.index, "list": link})
    return found


def list_of(library: Library, link: str) -> schemas.ListOut:
    """A saved list.

    Args:
        library: The library.
        link: Of the list.

    Returns:
        The list with its images.

    Raises:
        Refusal: If there is no such list.
    """
    with library.store.reading() as view:
        one = next((one for one in stored_lists(view) if one.link == link), None)
        if one is None:
            raise _no_list()
        keys = view.keys_of("images", one.ids)
        found = view.items("images", [keys[name] for name in one.ids])
    rows = [schemas.ItemOut.of(item, "images", library.store.manifest.root) for item in found]
    return schemas.ListOut(
        index=library.name,
        name=one.name,
        link=one.link,
        ids=list(one.ids),
        query=one.query,
        created=one.created,
        judged={kind: list(own) for kind, own in one.judged.items()},
        items=rows,
    )


def _no_list() -> Refusal:
    return Refusal(HTTPStatus.NOT_FOUND, "there is no such list in this library")


def _require_images(library: Library, names: Sequence[str]) -> None:
    """Require images that can be seen.

    Raises:
        Refusal: 404 for one that is not there.
    """
    with library.store.reading() as view:
        missing = set(names) - view.keys_of("images", list(names)).keys()
    if missing:
        sentence = f"{len(missing)} of these images are not in this library; nothing was saved"
        raise Refusal(HTTPStatus.NOT_FOUND, sentence)


@changes.post(
    "/lists", status_code=HTTPStatus.CREATED, dependencies=NO_PARAMETERS, openapi_extra=_body(schemas.NewList)
)
def save_list(
    request: Request, server: Access, form: Annotated[schemas.NewList, Depends(_form(schemas.NewList))]
) -> schemas.ListOut:
    """Save a list of images under a link of its own."""
    library = server.library(form.index)
    judged = form.judged.model_dump()
    _require_images(library, [*form.ids, *form.judged.like, *form.judged.not_like])
    new = new_list(form.name, form.ids, form.query, judged)
    with changing(library.store.whole, "list", library.storage_dir) as writer:
        change_lists(writer, lambda lists: [*lists, new])
    log_facts(request, {"index": library.name, "list": new.link})
    return list_of(library, new.link)


@changes.put("/lists/{link}", dependencies=NO_PARAMETERS, openapi_extra=_body(schemas.ListChange))
def edit_list(
    request: Request,
    server: Access,
    link: str,
    form: Annotated[schemas.ListChange, Depends(_form(schemas.ListChange))],
) -> schemas.ListOut:
    """Change the name of a saved list, its images, its query or its judgements; what is left out stays."""
    library = server.library(form.index)
    list_of(library, link)  # Raises where there is none.
    given = {"ids": form.ids} | ({} if form.judged is None else form.judged.model_dump())
    _require_images(library, [name for ids in given.values() for name in ids or ()])

    def edited(one: SavedList) -> SavedList:
        with library.store.reading() as view:
            there = view.keys_of("images", sorted(one.every_id))

        def replaced(before: Sequence[str], ids: Sequence[str] | None) -> tuple[str, ...]:
            # Images that are hidden from this server stay in the list.
            return tuple(before if ids is None else dict.fromkeys([*ids, *(own for own in before if own not in there)]))

        judged = {kind: replaced(one.judged.get(kind, ()), given.get(kind)) for kind in JUDGED}
        ids = replaced(one.ids, given["ids"])
        return replace(one, name=form.name or one.name, query=form.query or one.query, ids=ids, judged=judged)

    with changing(library.store.whole, "list", library.storage_dir) as writer:
        change_lists(writer, lambda lists: [edited(one) if one.link == link else one for one in lists])
    log_facts(request, {"index": library.name, "list": link})
    return list_of(library, link)


@changes.delete("/lists/{link}")
def delete_list(
    request: Request, server: Access, link: str, form: Annotated[schemas.ListsQuery, QueryParameters()]
) -> schemas.ListOut:
    """Delete a saved list, and no image; the answer is what it was."""
    library = server.library(form.index)
    before = list_of(library, link)
    with changing(library.store.whole, "list", library.storage_dir) as writer:
        change_lists(writer, lambda lists: [one for one in lists if one.link != link])
    log_facts(request, {"index": library.name, "list": link})
    return before


@about.get("/healthz", dependencies=NO_PARAMETERS)
async def healthz() -> schemas.Health:
    """Whether the process answers."""
    return schemas.Health(status="ok", version=__version__)


@about.get("/readyz", dependencies=NO_PARAMETERS)
def readyz(server: PublicAccess) -> schemas.Ready:
    """Whether the libraries can be searched: models are loaded, indexes are open and warm. It tells no names."""
    for library in server.libraries.values():
        state_of(library.index)
    return schemas.Ready(status="ready", libraries=len(server.libraries))


@about.get("/metrics", response_class=PlainTextResponse, dependencies=NO_PARAMETERS)
def metrics(server: Access) -> str:
    """Metrics for Prometheus."""
    return server.metrics.text(server.item_counts())


@about.get("/libraries", dependencies=NO_PARAMETERS)
def libraries(server: Access) -> schemas.Libraries:
    """The libraries that can be searched here."""
    rows = []
    for name, library in server.libraries.items():
        model = library.index.model
        with library.store.reading() as view:
            counts, generation = view.counts, view.revision.generation
        rows.append(
            schemas.LibraryInfo(
                name=name,
                image_count=counts["images"],
                text_count=counts["texts"],
                model=library.store.manifest.model_name,
                generation=generation,
                accepts_images=not isinstance(model.image.input_spec, FeatureInput),
                accepts_text=not isinstance(model.text.input_spec, FeatureInput),
            )
        )
    return schemas.Libraries(libraries=rows, version=__version__, writable=bool(server.settings.token))


def build(settings: Settings) -> FastAPI:
    """The application with its indexes open. Raises what opening an index raises.

    Args:
        settings: The settings.

    Returns:
        The application.
    """
    state = ServerState(settings)

    @asynccontextmanager
    @no_type_check
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        # Requests mostly wait for the one thread that computes: each may have a thread to wait in.
        anyio.to_thread.current_default_thread_limiter().total_tokens = settings.limits.max_requests + SPARE_THREADS
        # The thread that reads requests gets its turn among them soon.
        sys.setswitchinterval(SWITCH_SECONDS)
        if threading.current_thread() is threading.main_thread() and not sys.stdin.isatty():
            # In a terminal, SIGHUP says that the terminal has gone.
            asyncio.get_running_loop().add_signal_handler(
                signal.SIGHUP, lambda: threading.Thread(target=state.reload, name="reload", daemon=True).start()
            )
        yield
        state.close()

    app = FastAPI(
        title="Subtext",
        version=__version__,
        description="Images for words and words for images, from an index of Subtext.",
        lifespan=lifespan,
        exception_handlers=ERROR_HANDLERS,
        docs_url=None,
        redoc_url=None,
        # A redirection would name a host and a scheme that the client gave, or the server guessed.
        redirect_slashes=False,
    )
    app.state.server = state
    for router in ROUTERS:
        app.include_router(router)
    # The files of the page are read once; no other file can be named.
    files = {file.name: file.read_bytes() for file in sorted(PAGE.iterdir()) if file.suffix in PAGE_TYPES}

    @app.get("/", include_in_schema=False)
    async def start(request: Request) -> Response:
        return etag_response(request, files["index.html"], PAGE_TYPES[".html"])

    @app.get("/page/{name}", include_in_schema=False)
    async def page_file(request: Request, name: str) -> Response:
        if name not in files:
            raise Refusal(HTTPStatus.NOT_FOUND, "the page has no such file")
        return etag_response(request, files[name], PAGE_TYPES[Path(name).suffix])

    app.add_middleware(Guard, state=state)
    described = app.openapi()
    bodies: tuple[type[BaseModel], ...] = (
        schemas.ScoreRequest, schemas.AddRequest, schemas.DeleteRequest, schemas.NewList, schemas.ListChange,
    )  # fmt: skip
    forms: list[tuple[type[BaseModel], Literal["validation"]]] = [(form, "validation") for form in bodies]
    described["components"]["schemas"] |= models_json_schema(forms, ref_template=REFERENCE)[1]["$defs"]
    if not settings.read_token:
        # This server needs a token for changes alone.
        for operation in (one for operations in described["paths"].values() for one in operations.values()):
            if changes.tags[0] not in operation["tags"]:
                operation.pop("security", None)
    return app


def from_environment() -> FastAPI:
    """The application by the settings that the first process of a server left in the environment.

    Returns:
        The application.
    """
    return build(TypeAdapter(Settings).validate_json(os.environ[SETTINGS]))
