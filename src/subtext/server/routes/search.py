"""/search, /similar and /score."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from fastapi import APIRouter, Body, Query, Request

from subtext.data.features import FeatureInput
from subtext.data.lengths import cut_note
from subtext.errors import RequirementError
from subtext.search import Engine, Order
from subtext.search import Query as Asking
from subtext.search.stores.item import Side
from subtext.server.answering import Answered as Given
from subtext.server.answering import Asked, vectors_of
from subtext.server.conditions import conditions
from subtext.server.forms import Answered, ByItem, ByPicture, ByWords, Pair, Pairs, Scored
from subtext.server.library import Library
from subtext.server.pictures import FORMATS, require_picture
from subtext.server.refusals import note
from subtext.server.routes.open import REFUSALS, Reading
from subtext.server.telling import found

router = APIRouter(responses=REFUSALS, tags=["search"])

_PICTURE = {
    "requestBody": {
        "required": True,
        "content": {f"image/{name.lower()}": {"schema": {"type": "string", "format": "binary"}} for name in FORMATS},
    }
}


@router.get("/search")
def search_by_words(request: Request, served: Reading, wanted: Annotated[ByWords, Query()]) -> Answered:
    """The pictures, or texts, that go best with words, with items of the library, or with both."""
    library = served.library(wanted.index)
    query = Asking(wanted.q, None, wanted.like, wanted.unlike, wanted.without, wanted.image_weight)
    note(request, {"index": library.name, "words": wanted.q})
    return _answered(request, library, wanted, query)


@router.post("/search", openapi_extra=_PICTURE)
def search_by_picture(
    request: Request,
    served: Reading,
    wanted: Annotated[ByPicture, Query()],
    picture: Annotated[bytes, Body(media_type="image/jpeg")],
) -> Answered:
    """The pictures, or texts, that go best with a picture, whose bytes are the body. It is not kept."""
    library = served.library(wanted.index)
    require_picture(picture, pixels=served.settings.limits.pixels)
    query = Asking(wanted.q, picture, wanted.like, wanted.unlike, wanted.without, wanted.image_weight)
    note(request, {"index": library.name})
    return _answered(request, library, wanted, query)


@router.get("/similar")
def similar(request: Request, served: Reading, wanted: Annotated[ByItem, Query()]) -> Answered:
    """The pictures, or texts, that are nearest to an item of the library; without the item itself."""
    library = served.library(wanted.index)
    asked = Asked(item=(wanted.side, wanted.id), top=wanted.top, target=wanted.target, where=conditions(wanted.where))
    note(request, {"index": library.name, "item": wanted.id})
    return _told(library, wanted.target, library.answering.ask(asked))


@router.post("/score")
def score(request: Request, served: Reading, asked: Scored) -> Pairs:
    """How well words go with each of some pictures of the library: does this picture support this text?"""
    library = served.library(asked.index)
    manifest = library.store.manifest
    note(request, {"index": library.name, "words": asked.q})
    scores, cut = library.answering.do(lambda engine: _scores(engine, asked.q, asked.ids))
    pairs = [
        Pair(id=name, score=value, scaled=manifest.scale * value + manifest.shift)
        for name, value in zip(asked.ids, scores, strict=True)
    ]
    return Pairs(index=library.name, pairs=pairs, message=_sentences([] if cut is None else [cut]))


def _scores(engine: Engine, words: str, ids: list[str]) -> tuple[list[float], str | None]:
    """Scores of words with pictures, and a sentence where the words are longer than the model reads."""
    if isinstance(engine.model.text.input_spec, FeatureInput):
        raise RequirementError("this library's model reads precomputed features of texts; it cannot score words")
    if not words.strip():
        raise RequirementError("a score needs words; there are only spaces")
    query = engine.model.embed_texts([words]).vectors[0].double().numpy()
    own = [vectors_of(engine, "images", name).astype(np.float64) for name in ids]
    return [float((query @ vectors.T).max()) for vectors in own], cut_note(engine.model.text.input_spec, [words])


def _answered(request: Request, library: Library, wanted: ByWords | ByPicture, query: Asking) -> Answered:
    asked = Asked(
        query,
        top=wanted.top,
        target=wanted.target,
        where=conditions(wanted.where),
        order=Order(wanted.by_words, wanted.hubs, wanted.diversity),
        least=wanted.min_probability,
        why=wanted.why,
    )
    answered = library.answering.ask(asked)
    note(request, {"hits": len(answered.answer.hits)})
    return _told(library, wanted.target, answered, alone=query.words_alone)


def _told(library: Library, target: Side, answered: Given, *, alone: bool = True) -> Answered:
    """The answer with what has to be said before it is believed; `alone`: nothing but words was asked for."""
    answer = answered.answer
    unknown = [word for word, known in answered.words or () if not known]
    fits = None if answer.fit is None else not answer.fit.nothing
    said = []
    if answered.words is not None and not any(known for _, known in answered.words):
        fits = False if alone else fits
        means = "so this answer means nothing" if alone else "so what they add means nothing; take them away"
        said.append(f"the model knows none of these words, {means}")
    elif unknown:
        said.append(f"the model does not know {', '.join(unknown[:8])}; the answer rests on the other words")
    if answered.cut is not None:
        said.append(answered.cut)
    if answer.fit is not None and answer.fit.nothing:
        said.append(answer.fit.sentence)
    if not answer.hits:
        fits = False
        said += [] if said else ["nothing in this library fulfils these conditions"]
    if answer.stale is not None:
        said.append(f"{100 * answer.stale:.0f} % of the items came or went since probabilities were calibrated")
    return Answered(
        index=library.name,
        target=target,
        hits=[found(library, hit, target) for hit in answer.hits],
        unit=answer.unit,
        left_out=answer.left_out,
        unknown_words=unknown,
        message=_sentences(said),
        fits=fits,
    )


def _sentences(said: list[str]) -> str | None:
    """What is said, as sentences; None for nothing."""
    return ". ".join(one[0].upper() + one[1:] for one in said) + "." if said else None
