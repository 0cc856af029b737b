"""/add and /delete: for clients with the token."""

from __future__ import annotations

import base64
import binascii
from http import HTTPStatus

from fastapi import APIRouter, Request

from subtext.data.text import cut_note
from subtext.search.stores.traces import trace_name
from subtext.server.schemas import Addition, Changed, Deletion, NewItem
from subtext.server.security import Refusal, log_facts
from subtext.server.state import REFUSALS, Writing
from subtext.server.uploads import RESERVED, Upload, add_uploads, changing, require_image

router = APIRouter(responses=REFUSALS, tags=["changes"])


@router.post("/add", status_code=HTTPStatus.CREATED)
def add_items(request: Request, server: Writing, addition: Addition) -> Changed:
    """Add images with their texts, all or none: on the disk, and searchable, when this answers."""
    library = server.library(addition.index)
    uploads = [_upload(item, server.settings.limits.pixels) for item in addition.items]
    texts = [caption for upload in uploads for caption in upload.captions]
    grown, cut = library.batcher.run(
        lambda index: (
            add_uploads(index, uploads, storage_dir=library.storage),
            cut_note(index.model.text.input_spec, texts),
        )
    )
    server.metrics.event("items_added", grown.embedded)
    log_facts(request, {"index": library.name, "added": [upload.id for upload in uploads]})
    note = "; ".join(filter(None, ["searchable now", cut]))
    return Changed(index=library.name, pictures=len(uploads), texts=len(texts), note=note)


@router.post("/delete")
def delete_items(request: Request, server: Writing, deletion: Deletion) -> Changed:
    """Delete items, all or none: they, their thumbnails and their lines in the log are gone when this answers."""
    library = server.library(deletion.index)
    with changing(library.store, "delete", library.storage) as writer:
        with library.store.reading() as view:
            keys = view.keys_of(deletion.target, deletion.ids)
            paths = {item.id: item.path for item in view.items(deletion.target, list(keys.values()))}
        missing = set(deletion.ids) - set(keys)
        if missing:
            sentence = f"{len(missing)} of these {deletion.target} are not there; nothing was deleted"
            raise Refusal(HTTPStatus.NOT_FOUND, sentence)
        counts = writer.delete(deletion.target, deletion.ids, keep_texts=deletion.keep_texts)
        library.sweep({trace_name(deletion.target, name): [name, path or name] for name, path in paths.items()})
    deleted = sum(counts.values())
    server.metrics.event("items_deleted", deleted)
    log_facts(request, {"index": library.name, "deleted": deleted})
    return Changed(
        index=library.name,
        pictures=counts["images"],
        texts=counts["texts"],
        note="deleted items disappear from results immediately; `subtext index compact` removes their vectors",
    )


def _upload(item: NewItem, pixels: int) -> Upload:
    try:
        data = base64.b64decode(item.picture, validate=True)
    except (binascii.Error, ValueError) as problem:
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, "an image must be written in base64") from problem
    reserved = sorted(set(item.metadata) & RESERVED)
    if reserved:
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, f"metadata cannot be called '{reserved[0]}'; rename it")
    if any(not caption.strip() for caption in item.captions):
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, "a caption needs more than spaces")
    return Upload(item.id, data, require_image(data, pixels=pixels), tuple(item.captions), item.metadata)
