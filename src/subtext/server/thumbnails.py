"""Thumbnails: images scaled down and encoded again, so that no byte of a file leaves as it is; cached on disk."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from http import HTTPStatus
from io import BytesIO
from pathlib import Path

from PIL import Image

from subtext.data.image_files import open_image
from subtext.errors import DataError
from subtext.search.stores.store import Store
from subtext.search.stores.traces import CACHE, trace_name
from subtext.server.security import Refusal

SIZES = (96, 320, 1280)
"""Pixels of the longer side: for a contact sheet, for a grid on a dense screen, and for one image."""
MEDIA_TYPE, SUFFIX = "image/webp", ".webp"
DECODERS = 2
"""Images that are decoded at one time: each takes the memory of all its pixels."""


class Thumbnails:
    """Thumbnails of an index's items, cached in INDEX/cache/thumbnails under names that are removed with the item.

    roots    folders whose images may be shown; a file elsewhere, or a link that leads there, is not
    storage  the folder of the index, or for it; None to cache nothing
    """

    def __init__(self, roots: Sequence[Path], storage: Path | None) -> None:
        self.roots = [root.resolve() for root in roots]
        self.storage = storage
        self._decoding = threading.Semaphore(DECODERS)

    def of(self, store: Store, name: str, size: int) -> tuple[bytes, bool]:
        """The thumbnail of an item as WebP of at most `size` pixels a side, and whether it was made just now.

        Raises Refusal where there is no such item, it has no image that may be shown, or it cannot be decoded.
        """
        with store.reading() as view:
            key = view.keys_of("images", [name]).get(name)
            if key is None:
                raise Refusal(HTTPStatus.NOT_FOUND, "there is no such image in this library")
            path, content = view.items("images", [key])[0].path, view.content("images", key)
        if self.storage is None:
            return self._encode(Path(store.manifest.root), path, size), True
        file = self.storage / CACHE / "thumbnails" / f"{trace_name('images', name)}-{content.hex()[:16]}-{size}{SUFFIX}"
        try:
            return file.read_bytes(), False
        except FileNotFoundError:
            pass
        data = self._encode(Path(store.manifest.root), path, size)
        self._cache(store, name, file, data)
        return data, True

    def _encode(self, root: Path, path: str | None, size: int) -> bytes:
        if path is None or not self.may_show(root, path):
            raise Refusal(HTTPStatus.NOT_FOUND, "this item has no image that can be shown")
        with self._decoding:
            try:
                image = open_image(path, root, at_least=size)
            except DataError as problem:
                raise Refusal(HTTPStatus.NOT_FOUND, "the image of this item cannot be read") from problem
            image.thumbnail((size, size), Image.Resampling.LANCZOS)
            buffer = BytesIO()
            image.save(buffer, "WEBP", quality=82, method=2)
            return buffer.getvalue()

    def may_show(self, root: Path, path: str) -> bool:
        """Whether an image lies in one of the folders that may be shown, links followed."""
        file = (root / path.partition("?offset=")[0]).resolve()
        return any(file.is_relative_to(folder) for folder in self.roots)

    def _cache(self, store: Store, name: str, file: Path, data: bytes) -> None:
        """Cache a thumbnail, unless its item was deleted meanwhile. A full disk only means no cache."""
        # Not flushed: a file that a crash cuts off does not have its final name.
        temporary = file.with_name(f"{file.name}.{os.getpid()}-{threading.get_ident()}")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(data)
            temporary.replace(file)
        except OSError:
            temporary.unlink(missing_ok=True)
            return
        with store.reading() as view:
            if not view.keys_of("images", [name]):
                file.unlink(missing_ok=True)
