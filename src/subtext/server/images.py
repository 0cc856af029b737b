"""Images of a server: thumbnails that it shows, and uploads that it checks before they are decoded, and adds.

A thumbnail is scaled down and encoded again, so that no byte of a file leaves as it is; it is cached on disk. Added
items are a data set of their own in INDEX/added, so `index update` and `index move` find them; for an index that is no
folder, in `added` of its storage folder (--storage-dir).
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image, UnidentifiedImageError

from subtext.data.atomic import write_file
from subtext.data.config import DataConfig
from subtext.data.features import FeatureInput
from subtext.data.image_files import identify, open_image, prepare_decoder, read_bytes, stored_size
from subtext.data.read import read
from subtext.errors import DataError, RequirementError
from subtext.retrieval.build import WriteCounts, ingest
from subtext.retrieval.stores.errors import IndexLockedError
from subtext.retrieval.stores.folder import Folder, writer_lock
from subtext.retrieval.stores.store import Store, Writer
from subtext.retrieval.traces import ADDED, CACHE, ROWS, added_rows, require_own, trace_name, write_rows
from subtext.server.refusal import RETRY_SECONDS, Refusal

if TYPE_CHECKING:
    from subtext.retrieval.index import Index

SIZES = (96, 320, 1280)
"""Pixels of the longer side: for a contact sheet, for a grid on a dense screen, and for one image."""
MEDIA_TYPE, SUFFIX = "image/webp", ".webp"
TRIMMED = 2**20
"""Pixels of an image whose memory is given back to the system at once."""
OWN_PAGES = 2**23
"""Bytes of a block that always has pages of its own: in freed memory, a WebP's header would fill its whole canvas."""
_MMAP_THRESHOLD = -3
_LIBC = ctypes.CDLL(None) if os.name == "posix" else None
DECODE_SECONDS = 5.0
"""Seconds that an image waits until there is memory to decode it."""

FORMATS = {
    "JPEG": ".jpg", "PNG": ".png", "WEBP": ".webp", "GIF": ".gif", "BMP": ".bmp", "TIFF": ".tif", "AVIF": ".avif",
    **({"HEIF": ".heic"} if find_spec("pillow_heif") else {}),
}  # fmt: skip
"""Accepted formats and their suffixes. No format that can hold a program, a document or an address."""
PIXEL_BYTES = 4
"""Bytes of memory of a decoded pixel; no file needs more of them."""
HEAVY = {"WEBP": 4, "TIFF": 2, "AVIF": 4, "HEIF": 4}
"""Formats whose decoders need more memory per pixel, and how many times as much."""
SPLIT = "added"
LOCK_SECONDS = 3.0
"""Seconds that a change waits for another writer."""
_NO_IMAGE = (UnidentifiedImageError, OSError, ValueError, SyntaxError)
_MARKUP = (b"<script", b"<html", b"<svg", b"<!doctype", b"<?php", b"<iframe")
_HEAD, _TAIL = 1024, 2**16 + 22
"""Bytes in which readers of PDF and ZIP look for their marks."""


class Decoding:
    """Bounds the images that are decoded at one time: many small ones, or a large one alone.

    Args:
        pixels: Of an image that is alone; smaller ones count twice their pixels, as not all are scaled down at once.
    """

    def __init__(self, pixels: int) -> None:
        self.pixels = self._free = pixels
        self._changed = threading.Condition()
        if _LIBC is not None and hasattr(_LIBC, "mallopt"):
            _LIBC.mallopt(_MMAP_THRESHOLD, OWN_PAGES)

    @contextmanager
    def hold(self, pixels: int) -> Iterator[None]:
        """Reserve memory while an image is decoded.

        Args:
            pixels: Pixels of the image that is decoded.

        Returns:
            A context manager.

        Raises:
            Refusal: (503) where that has to wait too long.
        """
        share = min(2 * pixels, self.pixels)
        with self._changed:
            if not self._changed.wait_for(lambda: self._free >= share, timeout=DECODE_SECONDS):
                sentence = "the server is busy with other images; try again in a moment"
                raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, sentence, retry=RETRY_SECONDS)
            self._free -= share
        try:
            yield
        finally:
            # Else the allocator keeps the memory, for each thread that decoded.
            if pixels > TRIMMED and _LIBC is not None and hasattr(_LIBC, "malloc_trim"):
                _LIBC.malloc_trim(0)
            with self._changed:
                self._free += share
                self._changed.notify_all()


class Thumbnails:
    """Thumbnails of an index's items, cached in INDEX/cache/thumbnails under names that are removed with the item.

    Args:
        roots: Folders whose images may be shown; a file elsewhere, or a link that leads there, is not.
        storage: The folder of the index, or for it; None to cache nothing.
        decoding: Bounds the memory of decoding.
    """

    def __init__(self, roots: Sequence[Path], storage: Path | None, decoding: Decoding) -> None:
        self.roots = [root.resolve() for root in roots]
        self.storage = storage
        self._decoding = decoding

    def of(self, store: Store, name: str, size: int) -> tuple[bytes, bool]:
        """The thumbnail of an item as WebP of at most `size` pixels a side, and whether it was made just now.

        Args:
            store: The index.
            name: Id of the image.
            size: Pixels of the longer side; one of `SIZES`.

        Returns:
            The bytes, and whether the thumbnail was made just now.

        Raises:
            Refusal: If there is no such item, it has no image that may be shown, or it cannot be decoded.
        """
        with store.reading() as view:
            rows = view.rows("images", ids=list(view.resolve("images", [name]).values()))
        if not rows:
            raise Refusal(HTTPStatus.NOT_FOUND, "there is no such image in this library")
        name, path, content = rows[0].id, rows[0].path, rows[0].content
        if self.storage is None:
            return self._encode(Path(store.manifest.root), path, size), True
        file = self.storage / CACHE / "thumbnails" / f"{trace_name('images', name)}-{content.hex()[:16]}-{size}{SUFFIX}"
        try:
            # An index comes from anywhere: a link in its cache may lead to any file of this machine.
            if file.is_symlink() or not file.is_file():
                raise FileNotFoundError(file)
            return file.read_bytes(), False
        except FileNotFoundError:
            data = self._encode(Path(store.manifest.root), path, size)
        # Not flushed: a file that a crash cuts off does not have its final name. A full disk only means no cache.
        temporary = file.with_name(f"{file.name}.{os.getpid()}-{threading.get_ident()}")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("xb") as new:
                new.write(data)
            temporary.replace(file)
        except OSError:
            temporary.unlink(missing_ok=True)
        else:
            with store.reading() as view:
                # The item may have been deleted meanwhile.
                if not view.keys_of("images", [name]):
                    file.unlink(missing_ok=True)
        return data, True

    def _encode(self, root: Path, path: str | None, size: int) -> bytes:
        if path is None:
            raise Refusal(HTTPStatus.NOT_FOUND, "this item has no image that can be shown")
        too_large = Refusal(HTTPStatus.NOT_FOUND, "the image of this item is too large to be shown (--max-pixels)")
        try:
            if (stored_size(path, root) or 0) > PIXEL_BYTES * self._decoding.pixels:
                raise too_large
            data = read_bytes(path, root, within=self.roots)
            form, pixels = _header(data)
            # A JPEG is decoded at an eighth of its sides.
            if form != "JPEG" and pixels > self._decoding.pixels:
                raise too_large
            with self._decoding.hold(pixels):
                image = open_image(data, at_least=size, thumbnail=True)
                image.thumbnail((size, size), Image.Resampling.LANCZOS)
        except (DataError, *_NO_IMAGE) as problem:
            raise Refusal(HTTPStatus.NOT_FOUND, "the image of this item cannot be shown") from problem
        buffer = BytesIO()
        image.save(buffer, "WEBP", quality=82, method=2)
        return buffer.getvalue()


def _header(data: bytes, formats: tuple[str, ...] | None = None) -> tuple[str, int]:
    """The format of an image, and its pixels, times HEAVY.

    Raises one of _NO_IMAGE.

    Raises:
        DataError: If a format needs a package.
    """
    prepare_decoder(data[:64], "it")
    # Pillow knows HEIF from the first file on.
    registered = formats and tuple(form for form in formats if form != "HEIF" or form in Image.OPEN)
    with identify(BytesIO(data), "it", registered) as image:
        form = str(image.format)
        return form, image.width * image.height * HEAVY.get(form, 1)


def require_image(data: bytes, *, pixels: int) -> tuple[str, int]:
    """The suffix for a file with this image, and its pixels, times HEAVY; it is nothing besides. Decodes nothing.

    Args:
        data: Bytes of the image.
        pixels: That it may have: width times height, times HEAVY.

    Returns:
        Suffix, and number of pixels.

    Raises:
        Refusal: 415 for another format, and for an image that is also a page, document or archive; 413 for too many
            pixels.
    """
    try:
        form, size = _header(data, tuple(FORMATS))
    except (DataError, *_NO_IMAGE) as problem:
        sentence = f"the image cannot be used: it needs {', '.join(FORMATS)}; this is another kind of file"
        raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, sentence) from problem
    if size > pixels:
        sentence = f"an image of {form} may have {pixels // HEAVY.get(form, 1):,} pixels; this one has more"
        raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, sentence)
    lower = data.lower()
    archive = b"PK\x05\x06" in data[-_TAIL:] and zipfile.is_zipfile(BytesIO(data))
    if any(mark in lower for mark in _MARKUP) or b"%PDF-" in data[:_HEAD] or archive:
        sentence = "the image cannot be used: it is also a page, a document or an archive; save it again as an image"
        raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, sentence)
    return FORMATS.get(form, ".jpg"), size


@dataclass(frozen=True)
class Upload:
    """One image with its texts.

    Attributes:
        id: Id of the image.
        image: Bytes of the image.
        suffix: Suffix of its format, such as ".png".
        captions: Its texts.
        metadata: Plain data.
    """

    id: str
    image: bytes
    suffix: str
    captions: tuple[str, ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def row(self) -> dict[str, Any]:
        """Its row in the data set of added items; its file is named after the item, and removed with it."""
        return {
            "id": self.id,
            "file_name": trace_name("images", self.id) + self.suffix,
            "captions": list(self.captions),
            "text_ids": [f"{self.id}/{number}" for number in range(len(self.captions))],
            "split": SPLIT,
            **self.metadata,
        }


def storage_of(store: Store, storage_dir: Path | None) -> Path | None:
    """The folder for an index's thumbnails, log and uploads: its own, or `storage_dir` where it is no folder.

    Args:
        store: The index.
        storage_dir: Folder for indexes that are no folders; None for none.

    Returns:
        The folder, or None.

    Raises:
        SearchIndexError: If one of them is a symbolic link inside an index.
    """
    return require_own(store.path) if isinstance(store, Folder) else storage_dir


def add_uploads(index: Index, uploads: Sequence[Upload], *, storage_dir: Path | None = None) -> WriteCounts:
    """Add items; they are on the disk and searchable when this returns.

    Args:
        index: The index with its model.
        uploads: Images with their texts; all are added, or none.
        storage_dir: Folder for the images of an index that is no folder.

    Returns:
        Number of items by what happened to them.

    Raises:
        Refusal: 409 for an id that exists, 503 while another process writes, 403 without a folder for images.
        RequirementError: If a model reads no images.
        DataError: For what cannot be read. Then nothing is added.
    """
    store, storage = index.store, storage_of(index.store, storage_dir)
    if storage is None:
        sentence = "this server has no folder for uploaded images; start it with --storage-dir to allow them"
        raise Refusal(HTTPStatus.FORBIDDEN, sentence)
    if isinstance(index.model.image.input_spec, FeatureInput):
        raise RequirementError("this library's model reads precomputed features; images are added to its data set")
    folder, rows = storage / ADDED, [upload.row for upload in uploads]
    with changing(store, "add", storage) as writer:
        ids = [upload.id for upload in uploads]
        with store.reading() as view:
            texts = [name for row in rows for name in row["text_ids"]]
            present = [*view.keys_of("images", ids), *view.keys_of("texts", texts)]
        if present or len(set(ids)) < len(ids):
            reason = f"'{present[0]}' exists" if present else "one is given twice"
            raise Refusal(HTTPStatus.CONFLICT, f"an addition needs new ids; {reason}; delete it first, or rename")
        batch = folder / f".new-{os.getpid()}.jsonl"
        try:
            for upload, row in zip(uploads, rows, strict=True):
                write_file(folder / row["file_name"], partial(Path.write_bytes, data=upload.image))
            write_rows(batch, rows)
            dataset = read(batch, images=folder)
            write_rows(folder / ROWS, [*added_rows(storage), *rows])
            source = {**DataConfig(data=folder).to_json(), "split": "all"}
            return ingest(writer, index.model, dataset, source=source, again=True, batch_size=16, workers=0)
        finally:
            batch.unlink(missing_ok=True)
            remove_orphans(store, storage)


@contextmanager
def changing(store: Store, verb: str, storage: Path | None) -> Iterator[Writer]:
    """The store's writer, after a short wait for another one.

    Args:
        store: The index.
        verb: Name of the command, shown to others who want to write.
        storage: Folder of an index that is none itself: only one process at a time changes it.

    Returns:
        A context manager.

    Raises:
        Refusal: While another process writes.
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
        except IndexLockedError as problem:
            if time.monotonic() > until:
                sentence = "this library is being written by another process; nothing was changed; try again"
                raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, sentence, retry=5) from problem
            time.sleep(0.05)


def remove_orphans(store: Store, storage: Path) -> None:
    """Remove uploads that never reached the index, as an addition failed or was cut off. Needs the writer.

    Args:
        store: The index.
        storage: Folder of the uploads.
    """
    folder = storage / ADDED
    rows = added_rows(storage)
    with store.reading() as view:
        indexed = set(view.keys_of("images", [row["id"] for row in rows]))
    present = [row for row in rows if row["id"] in indexed]
    if len(present) < len(rows):
        write_rows(folder / ROWS, present)
    files = {row["file_name"] for row in present} | {ROWS}
    for file in folder.glob("*"):
        if file.is_file() and file.name not in files:
            file.unlink(missing_ok=True)
