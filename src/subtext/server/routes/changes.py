"""/add and /delete: for those who have the token."""

from __future__ import annotations

import base64
import binascii
from http import HTTPStatus

from fastapi import APIRouter, Request

from subtext.data.lengths import cut_note
from subtext.search.stores.traces import trace_name
from subtext.server.added import TAKEN, Incoming, add, changing
from subtext.server.forms import Addition, Changed, Deletion, NewItem
from subtext.server.pictures import require_picture
from subtext.server.refusals import Refusal, note
from subtext.server.routes.open import REFUSALS, Writing

router = APIRouter(responses=REFUSALS, tags=["changes"])


@router.post("/add", status_code=HTTPStatus.CREATED)
def add_items(request: Request, served: Writing, addition: Addition) -> Changed:
    """Put pictures with their texts in, all or none: searchable, and on the disk, when this answers."""
    library = served.library(addition.index)
    items = [_incoming(item, served.settings.limits.pixels) for item in addition.items]
    texts = [caption for item in items for caption in item.captions]
    grown, cut = library.answering.do(
        lambda engine: (add(engine, items, keep=library.place), cut_note(engine.model.text.input_spec, texts))
    )
    served.metrics.event("items_added", grown.embedded)
    note(request, {"index": library.name, "added": [item.id for item in items]})
    told = "; ".join(filter(None, ["searchable now", cut]))
    return Changed(index=library.name, pictures=len(items), texts=len(texts), note=told)


@router.post("/delete")
def delete_items(request: Request, served: Writing, deletion: Deletion) -> Changed:
    """Take items out, all or none: they, their small pictures and their lines in the log are gone when this answers."""
    library = served.library(deletion.index)
    with changing(library.store, "delete", library.place) as writer:
        with library.store.reading() as view:
            keys = view.keys_of(deletion.target, deletion.ids)
            paths = {item.id: item.path for item in view.items(deletion.target, list(keys.values()))}
        missing = set(deletion.ids) - set(keys)
        if missing:
            sentence = f"{len(missing)} of these {deletion.target} are not there; nothing was deleted"
            raise Refusal(HTTPStatus.NOT_FOUND, sentence)
        counts = writer.delete(deletion.target, deletion.ids, keep_texts=deletion.keep_texts)
        library.sweep({trace_name(deletion.target, name): [name, path or name] for name, path in paths.items()})
    served.metrics.event("items_deleted", sum(counts.values()))
    note(request, {"index": library.name, "deleted": sum(counts.values())})
    return Changed(
        index=library.name,
        pictures=counts["images"],
        texts=counts["texts"],
        note="no longer found; `subtext index compact` takes their vectors off the disk",
    )


def _incoming(item: NewItem, pixels: int) -> Incoming:
    try:
        data = base64.b64decode(item.picture, validate=True)
    except (binascii.Error, ValueError) as problem:
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, "a picture has to be written in base64") from problem
    taken = sorted(set(item.metadata) & set(TAKEN))
    if taken:
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, f"metadata cannot be called '{taken[0]}'; name it otherwise")
    if any(not caption.strip() for caption in item.captions):
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, "a caption has to hold more than spaces")
    return Incoming(item.id, data, require_picture(data, pixels=pixels), tuple(item.captions), item.metadata)
