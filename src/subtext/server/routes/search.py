"""/search, /similar and /score."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Body, Request
from fastapi import Query as QueryParameters

from subtext.data.features import FeatureInput
from subtext.data.text import cut_note
from subtext.errors import RequirementError
from subtext.search import Answer, Index, Query
from subtext.search.stores.item import Side
from subtext.server.library import Library
from subtext.server.schemas import (
    ImageSearch,
    ItemOut,
    PairScore,
    PairScores,
    PairScoring,
    Results,
    Similar,
    TextSearch,
    parse_conditions,
)
from subtext.server.security import Refusal, log_facts
from subtext.server.state import REFUSALS, Reading
from subtext.server.uploads import FORMATS, require_image

router = APIRouter(responses=REFUSALS, tags=["search"])

_IMAGE_BODY = {
    "requestBody": {
        "required": True,
        "content": {f"image/{name.lower()}": {"schema": {"type": "string", "format": "binary"}} for name in FORMATS},
    }
}


@router.get("/search")
def search_by_text(
    request: Request,
    server: Reading,
    form: Annotated[TextSearch, QueryParameters()],
) -> Results:
    """The images, or texts, that best match words, items of the library, or both."""
    return _search(request, server.library(form.index), form)


@router.post("/search", openapi_extra=_IMAGE_BODY)
def search_by_image(
    request: Request,
    server: Reading,
    form: Annotated[ImageSearch, QueryParameters()],
    image: Annotated[bytes, Body(media_type="image/jpeg")],
) -> Results:
    """The images, or texts, that best match the image in the body. It is not stored."""
    require_image(image, pixels=server.settings.limits.pixels)
    return _search(request, server.library(form.index), form, image)


def _search(request: Request, library: Library, form: Any, image: bytes | None = None) -> Results:
    options = form.model_dump(exclude={"index", "q"})
    lists = {name: tuple(value) for name, value in options.items() if isinstance(value, list)}
    query = Query(form.q, image, **{**options, **lists, "where": parse_conditions(form.where)})
    log_facts(request, {"index": library.name} | ({"words": form.q} if image is None else {}))
    # A client can bring no features.
    for value, branch, kind in (
        (query.text, library.index.model.text, "words"),
        (query.image, library.index.model.image, "images"),
    ):
        if value is not None and isinstance(branch.input_spec, FeatureInput):
            raise RequirementError(
                f"this library's model reads precomputed features, and no {kind}; search with an item of the library"
            )
    answer = library.batcher.answer(query)
    log_facts(request, {"hits": len(answer)})
    return _results(library, query.target, answer, text_only=query.text_only)


@router.get("/similar")
def similar(request: Request, server: Reading, form: Annotated[Similar, QueryParameters()]) -> Results:
    """The images, or texts, nearest to an item of the library, without the item itself."""
    library = server.library(form.index)
    _require_item(library.index, form.side, form.id)
    query = Query(like=((form.side, form.id),), top=form.top, target=form.target, where=parse_conditions(form.where))
    log_facts(request, {"index": library.name, "item": form.id})
    return _results(library, form.target, library.batcher.answer(query))


@router.post("/score")
def score(request: Request, server: Reading, form: PairScoring) -> PairScores:
    """The score of words with each of some images of the library: does the image support the text?"""
    library = server.library(form.index)
    manifest = library.store.manifest
    log_facts(request, {"index": library.name, "words": form.q})
    scores, note = library.batcher.run(lambda index: _scores(index, form.q, form.ids))
    pairs = [
        PairScore(id=name, score=value, scaled=manifest.scale * value + manifest.shift)
        for name, value in zip(form.ids, scores, strict=True)
    ]
    return PairScores(index=library.name, pairs=pairs, message=_sentences([] if note is None else [note]))


def _scores(index: Index, words: str, ids: list[str]) -> tuple[list[float], str | None]:
    """Scores of words with images, and a note where the words are longer than the model's input."""
    spec = index.model.text.input_spec
    if isinstance(spec, FeatureInput):
        raise RequirementError("this library's model reads precomputed features of texts; it cannot score words")
    if not words.strip():
        raise RequirementError("a score needs words; there are only spaces")
    text = index.model.embed_texts([words]).vectors[0].double().numpy()
    images = [_require_item(index, "images", name).astype(np.float64) for name in ids]
    return [float((text @ image.T).max()) for image in images], cut_note(spec, [words])


def _require_item(index: Index, side: Side, name: str) -> Any:
    """(K D) vectors of an item. Raises Refusal where it is not there."""
    vectors = index.vectors_of(side, name)
    if vectors is None:
        raise Refusal(HTTPStatus.NOT_FOUND, f"there is no such item among the {side} of this library")
    return vectors


def _results(library: Library, target: Side, answer: Answer, *, text_only: bool = True) -> Results:
    """The answer, with a message that says what to know before trusting it."""
    fits = None if answer.fit is None else not answer.fit.nothing
    sentences = []
    if answer.meaningless:
        fits = False if text_only else fits
        means = "so this answer means nothing" if text_only else "so they add nothing; take them away"
        sentences.append(f"the model knows none of these words, {means}")
    elif answer.unknown_words:
        names = ", ".join(answer.unknown_words[:8])
        sentences.append(f"the model does not know {names}; the answer uses only the other words")
    sentences += answer.notes
    if answer.fit is not None and answer.fit.nothing:
        sentences.append(answer.fit.sentence)
    if not answer.hits:
        fits = False
        sentences += [] if sentences else ["nothing in this library meets these conditions"]
    if answer.stale is not None:
        share = f"{100 * answer.stale:.0f} % of the items"
        sentences.append(f"{share} were added or deleted since probabilities were calibrated")
    root = library.store.manifest.root
    return Results(
        index=library.name,
        target=target,
        hits=[ItemOut.of_hit(hit, target, root) for hit in answer],
        unit="cosine" if answer.unit == "cosine" else "deviations",
        left_out=answer.left_out,
        unknown_words=answer.unknown_words,
        message=_sentences(sentences),
        fits=fits,
    )


def _sentences(sentences: list[str]) -> str | None:
    """The sentences as one message; None for none."""
    return ". ".join(text[0].upper() + text[1:] for text in sentences) + "." if sentences else None
