"""Pictures on their way out: made small and coded anew, so that no byte of a file leaves as it is; and kept."""

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
from subtext.server.refusals import Refusal

SIZES = (96, 320, 1280)
"""Pixels of the longer side that can be asked for: a sheet, a grid on a screen of twice the density, a look at one."""
KIND, ENDING = "image/webp", ".webp"
AT_ONCE = 2
"""Pictures that are decoded at one time, whatever many are asked for: each takes the memory of all its pixels."""


class Thumbnails:
    """Small pictures of the items of an index, kept in INDEX/cache/thumbnails under names that go with the item.

    roots  folders whose pictures may be shown; a file that lies elsewhere, or a link that leads there, is not
    place  the index, or what stands for its folder; None to keep nothing
    """

    def __init__(self, roots: Sequence[Path], place: Path | None) -> None:
        self.roots = [root.resolve() for root in roots]
        self.place = place
        self._turn = threading.Semaphore(AT_ONCE)

    def of(self, store: Store, name: str, size: int) -> tuple[bytes, bool]:
        """The picture of an item as WebP of at most `size` pixels a side, and whether it was made just now.

        Raises Refusal where there is no such item, it has no picture that may be shown, or it cannot be decoded.
        """
        with store.reading() as view:
            key = view.keys_of("images", [name]).get(name)
            if key is None:
                raise Refusal(HTTPStatus.NOT_FOUND, "there is no such picture in this library")
            path, content = view.items("images", [key])[0].path, view.content("images", key)
        if self.place is None:
            return self._made(Path(store.manifest.root), path, size), True
        file = self.place / CACHE / "thumbnails" / f"{trace_name('images', name)}-{content.hex()[:16]}-{size}{ENDING}"
        try:
            return file.read_bytes(), False
        except FileNotFoundError:
            pass
        data = self._made(Path(store.manifest.root), path, size)
        self._keep(store, name, file, data)
        return data, True

    def _made(self, root: Path, path: str | None, size: int) -> bytes:
        if path is None or not self.may_show(root, path):
            raise Refusal(HTTPStatus.NOT_FOUND, "this item has no picture that can be shown")
        with self._turn:
            try:
                image = open_image(path, root, at_least=size)
            except DataError as problem:
                raise Refusal(HTTPStatus.NOT_FOUND, "the picture of this item cannot be read") from problem
            image.thumbnail((size, size), Image.Resampling.LANCZOS)
            buffer = BytesIO()
            image.save(buffer, "WEBP", quality=82, method=2)
            return buffer.getvalue()

    def may_show(self, root: Path, path: str) -> bool:
        """Whether a picture lies in one of the folders that may be shown, links followed."""
        file = (root / path.partition("?offset=")[0]).resolve()
        return any(file.is_relative_to(own) for own in self.roots)

    def _keep(self, store: Store, name: str, file: Path, data: bytes) -> None:
        """Keep a small picture, unless its item was deleted while it was made. A full disk only means no cache."""
        # Not flushed: what a crash leaves half is not there under its name, and is made again.
        place = file.with_name(f"{file.name}.{os.getpid()}-{threading.get_ident()}")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
            place.replace(file)
        except OSError:
            place.unlink(missing_ok=True)
            return
        with store.reading() as view:
            if not view.keys_of("images", [name]):
                file.unlink(missing_ok=True)
