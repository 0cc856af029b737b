"""Images of a server: thumbnails that it shows, and uploads that it adds.

A thumbnail is scaled down and encoded again, so that no byte of a file leaves as it is; it is cached on disk. Added
items are a data set of their own in INDEX/added, so `index update` and `index move` find them; for an index that is no
folder, in `added` of its storage folder (--storage-dir).
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subtext.data.atomic import write_file
from subtext.data.config import DataConfig
from subtext.data.features import FeatureInput
from subtext.data.image_files import LARGEST_FILE, Gap, picture_gap, read_bytes, stored_size
from subtext.data.read import read
from subtext.errors import DataError, RequirementError, StoreError
from subtext.retrieval.build import WriteCounts, ingest
from subtext.retrieval.neighbours import refresh
from subtext.retrieval.stores.errors import IndexLockedError
from subtext.retrieval.stores.folder import Folder, writer_lock
from subtext.retrieval.stores.store import Store, Writer
from subtext.retrieval.traces import ADDED, CACHE, ROWS, added_rows, require_own, trace_name, write_rows
from subtext.server.decoding import Decoder
from subtext.server.refusal import Refusal

if TYPE_CHECKING:
    from subtext.retrieval.index import Index

SIZES = (96, 320, 1280)
"""Pixels of the longer side: for a contact sheet, for a grid on a dense screen, and for one image."""
SUFFIX = ".webp"
NO_PICTURE: Mapping[Gap, str] = {
    "no file": "no picture: this image was put in without a file (index update --data)",
    "not there": "no picture: its file is not at its place, and no thumbnail is kept (index update --data --images)",
    "outside": "no picture: its file lies outside the folders that are served (serve --image-folder)",
    "unreadable": "no picture: the server may not read its file, or it is cut off",
}
"""Why an image is not shown, and the option that mends it."""
_LIBC = ctypes.CDLL(None) if os.name == "posix" else None
SPLIT = "added"
LOCK_SECONDS = 3.0
"""Seconds that a change waits for another writer."""


class Thumbnails:
    """Thumbnails of an index's items, cached in INDEX/cache/thumbnails under names that are removed with the item.

    Args:
        roots: Folders whose images may be shown; a file elsewhere, or a link that leads there, is not.
        storage_dir: Folder for an index that is no folder itself; None to cache nothing of such an index.
        decoder: Decodes and scales down.
    """

    def __init__(self, roots: Sequence[Path], storage_dir: Path | None, decoder: Decoder) -> None:
        self.roots = [root.resolve() for root in roots]
        self.storage_dir = storage_dir
        self._decoder = decoder

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
        storage = storage_of(store.whole, self.storage_dir)
        if storage is None:
            return self._encode(Path(store.manifest.root), path, size), True
        file = storage / CACHE / "thumbnails" / f"{trace_name('images', name)}-{content.hex()[:16]}-{size}{SUFFIX}"
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
        if (gap := picture_gap(path, root, within=self.roots)) is not None:
            raise Refusal(HTTPStatus.NOT_FOUND, NO_PICTURE[gap])
        assert path is not None
        try:
            if (stored_size(path, root) or 0) > LARGEST_FILE * self._decoder.pixels:
                sentence = "the image of this item is too large to be shown (--max-pixels)"
                raise Refusal(HTTPStatus.NOT_FOUND, sentence)
            data = read_bytes(path, root, within=self.roots)
        except DataError as problem:
            raise Refusal(HTTPStatus.NOT_FOUND, "the image of this item cannot be shown") from problem
        except StoreError as problem:
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "the store of this image cannot be reached now") from problem
        try:
            return self._decoder.thumbnail(data, size)
        except Refusal as refusal:
            if refusal.status != HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                raise
            raise Refusal(HTTPStatus.NOT_FOUND, f"the image of this item cannot be shown: {refusal}") from refusal


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
    """The folder for an index's thumbnails and uploads: its own, or `storage_dir` where it is no folder.

    Args:
        store: The index.
        storage_dir: Folder for indexes that are no folders; None for none.

    Returns:
        The folder, or None. That of an index leads to the one that was opened, as long as the store is referenced.

    Raises:
        SearchIndexError: If one of them is a symbolic link inside an index.
    """
    if not isinstance(store, Folder):
        return storage_dir
    with store.held.naming():
        return require_own(store.held.here)


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
    store = index.store
    if storage_of(store, storage_dir) is None:
        sentence = "this server has no folder for uploaded images; start it with --storage-dir to allow them"
        raise Refusal(HTTPStatus.FORBIDDEN, sentence)
    if isinstance(index.model.image.input_spec, FeatureInput):
        raise RequirementError("this library's model reads precomputed features; images are added to its data set")
    rows = [upload.row for upload in uploads]
    with changing(store, "add", storage_dir) as writer:
        storage = storage_of(store, storage_dir)
        assert storage is not None
        folder = storage / ADDED
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
            recorded = Path(store.path) / ADDED if isinstance(store, Folder) else folder
            source = {**DataConfig(data=recorded).to_json(), "split": "all"}
            written = ingest(writer, index.model, dataset, source=source, again=True, batch_size=16, workers=0)
            refresh(writer)
            return written
        finally:
            batch.unlink(missing_ok=True)
            remove_orphans(store, storage_dir)
            # Else the allocator keeps what decoding took.
            if _LIBC is not None and hasattr(_LIBC, "malloc_trim"):
                _LIBC.malloc_trim(0)


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
    until, began = time.monotonic() + LOCK_SECONDS, False
    while True:
        try:
            with ExitStack() as stack:
                if storage is not None and not isinstance(store, Folder):
                    storage.mkdir(parents=True, exist_ok=True)
                    stack.enter_context(writer_lock(storage, verb))
                writer = stack.enter_context(store.writing(verb))
                began = True
                yield writer
            return
        except IndexLockedError as problem:
            if began:
                raise
            if time.monotonic() > until:
                sentence = "this library is being written by another process; nothing was changed; try again"
                raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, sentence, retry=5) from problem
            time.sleep(0.05)


def remove_orphans(store: Store, storage_dir: Path | None) -> None:
    """Remove uploads that never reached the index, as an addition failed or was cut off. Needs the writer.

    Args:
        store: The index.
        storage_dir: Folder of the uploads of an index that is no folder.
    """
    storage = storage_of(store, storage_dir)
    if storage is None:
        return
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
