"""Images that clients upload: checked before they are decoded, and added to an index.

Added items are a data set of their own in INDEX/added, so `index update` and `index move` find them; for an index that
is no folder, in `added` of its storage folder (--storage-dir).
"""

from __future__ import annotations

import json
import os
import time
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image, UnidentifiedImageError

from subtext.api.load import Sources
from subtext.data.atomic import write_file
from subtext.data.features import FeatureInput
from subtext.data.image_files import open_image
from subtext.data.read import read
from subtext.errors import DataError, RequirementError
from subtext.search import Index
from subtext.search.build import Grown, grow
from subtext.search.stores.folder import Folder, writer_lock
from subtext.search.stores.store import Store, Writer, WriterBusy
from subtext.search.stores.traces import ADDED, ROWS, trace_name
from subtext.server.security import Refusal

FORMATS = {"JPEG": ".jpg", "PNG": ".png", "WEBP": ".webp", "GIF": ".gif", "BMP": ".bmp", "TIFF": ".tif"}
"""Accepted formats and their suffixes. No format that can hold a program, a document or an address."""
SPLIT = "added"
RESERVED = frozenset(
    {
        "id", "image", "file_name", "captions", "caption", "text", "text_id", "text_ids", "split", "group", "images",
    }
)  # fmt: skip
"""Names that metadata cannot have: columns of a data set with a meaning of their own."""
LOCK_SECONDS = 3.0
"""Seconds that a change waits for another writer."""
_MARKUP = (b"<script", b"<html", b"<svg", b"<!doctype", b"<?php", b"<iframe")
_HEAD, _TAIL = 1024, 2**16 + 22
"""Bytes in which readers of PDF and ZIP look for their marks."""


def require_image(data: bytes, *, pixels: int) -> str:
    """The suffix for a file with this image, which is complete and nothing else besides.

    pixels  that it may have, width times height; checked before anything is decoded

    Raises Refusal: 415 for another format, and for an image that is also a page, document or archive; 413 for too many
    pixels; 422 for an image that is cut off.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(BytesIO(data), formats=tuple(FORMATS)) as image:
                form, size = str(image.format), image.size
    except Image.DecompressionBombError as problem:
        raise _too_many_pixels(pixels) from problem
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError) as problem:
        raise _unusable(f"it needs {', '.join(FORMATS)}; this is another kind of file") from problem
    if size[0] * size[1] > pixels:
        raise _too_many_pixels(pixels)
    lower = data.lower()
    archive = b"PK\x05\x06" in data[-_TAIL:] and zipfile.is_zipfile(BytesIO(data))
    if any(mark in lower for mark in _MARKUP) or b"%PDF-" in data[:_HEAD] or archive:
        raise _unusable("it is also a page, a document or an archive; save it again as an image")
    try:
        open_image(data, at_least=64)
    except DataError as problem:
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, f"the image cannot be decoded: {problem}") from problem
    return FORMATS.get(form, ".jpg")


def _too_many_pixels(pixels: int) -> Refusal:
    return Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"an image may have {pixels:,} pixels; this one has more")


def _unusable(reason: str) -> Refusal:
    return Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the image cannot be used: {reason}")


@dataclass(frozen=True)
class Upload:
    """One image with its texts; `suffix` is that of its format."""

    id: str
    image: bytes
    suffix: str
    captions: tuple[str, ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def file(self) -> str:
        """The name of its file, which is removed with the item."""
        return trace_name("images", self.id) + self.suffix

    @property
    def text_ids(self) -> list[str]:
        """The ids of its texts."""
        return [f"{self.id}/{number}" for number in range(len(self.captions))]

    @property
    def row(self) -> dict[str, Any]:
        """Its row in the data set of added items."""
        columns = {"id": self.id, "file_name": self.file, "captions": list(self.captions), "text_ids": self.text_ids}
        return {**columns, "split": SPLIT, **self.metadata}


def storage_of(store: Store, storage_dir: Path | None) -> Path | None:
    """The folder for an index's thumbnails, log and uploads: its own, or `storage_dir` where it is no folder."""
    return store.path if isinstance(store, Folder) else storage_dir


def add_uploads(index: Index, uploads: Sequence[Upload], *, storage_dir: Path | None = None) -> Grown:
    """Add items; they are on the disk and searchable when this returns.

    storage_dir  folder for the images of an index that is no folder

    Raises Refusal: 409 for an id that exists, 503 while another process writes, 403 without a folder for images;
    RequirementError for a model that reads no images; DataError for what cannot be read. Then nothing is added.
    """
    store, storage = index.store, storage_of(index.store, storage_dir)
    if storage is None:
        sentence = "this server has no folder for uploaded images; start it with --storage-dir to allow them"
        raise Refusal(HTTPStatus.FORBIDDEN, sentence)
    if isinstance(index.model.image.input_spec, FeatureInput):
        raise RequirementError("this library's model reads precomputed features; images are added to its data set")
    folder = storage / ADDED
    with changing(store, "add", storage) as writer:
        _require_new(store, uploads)
        batch = folder / f".new-{os.getpid()}.jsonl"
        try:
            for upload in uploads:
                write_file(folder / upload.file, lambda path, data=upload.image: _write(path, data))  # type: ignore[misc]
            _write_rows(batch, [upload.row for upload in uploads])
            dataset = read(batch, images=folder)
            _write_rows(folder / ROWS, [*added_rows(folder), *(upload.row for upload in uploads)])
            source = {**Sources(data=folder).to_json(), "split": "all"}
            return grow(writer, index.model, dataset, source=source, again=True, batch_size=16, workers=0)
        finally:
            batch.unlink(missing_ok=True)
            remove_orphans(store, storage)


@contextmanager
def changing(store: Store, verb: str, storage: Path | None) -> Iterator[Writer]:
    """The store's writer, after a short wait for another one.

    storage  folder of an index that is none itself: only one process at a time changes it

    Raises Refusal while another process writes.
    """
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            with ExitStack() as stack:
                if storage is not None and not isinstance(store, Folder):
                    storage.mkdir(parents=True, exist_ok=True)
                    stack.enter_context(writer_lock(storage, verb))
                yield stack.enter_context(store.writing(verb))
            return
        except WriterBusy as problem:
            if time.monotonic() > until:
                sentence = "this library is being written by another process; nothing was changed; try again"
                raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, sentence, retry=5) from problem
            time.sleep(0.05)


def added_rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of the data set of added items."""
    file = folder / ROWS
    if not file.is_file():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]


def remove_orphans(store: Store, storage: Path) -> None:
    """Remove uploads that never reached the index, as an addition failed or was cut off. Needs the writer."""
    folder = storage / ADDED
    rows = added_rows(folder)
    with store.reading() as view:
        indexed = set(view.keys_of("images", [row["id"] for row in rows]))
    present = [row for row in rows if row["id"] in indexed]
    if len(present) < len(rows):
        _write_rows(folder / ROWS, present)
    files = {row["file_name"] for row in present} | {ROWS}
    for file in folder.glob("*"):
        if file.is_file() and file.name not in files:
            file.unlink(missing_ok=True)


def _require_new(store: Store, uploads: Sequence[Upload]) -> None:
    ids = [upload.id for upload in uploads]
    texts = [name for upload in uploads for name in upload.text_ids]
    with store.reading() as view:
        present = [*view.keys_of("images", ids), *view.keys_of("texts", texts)]
    if present or len(set(ids)) < len(ids):
        which = f"'{present[0]}' exists" if present else "one is given twice"
        raise Refusal(HTTPStatus.CONFLICT, f"an addition needs new ids; {which}; delete it first, or rename")


def _write_rows(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    write_file(file, lambda path: _write(path, text.encode()))


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)
