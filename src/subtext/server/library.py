"""One index as the server holds it: opened again when it changes, with its thumbnails, uploads and query batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from subtext.errors import IndexError_, OutputError
from subtext.search import Index
from subtext.search.stores.folder import Folder
from subtext.search.stores.store import Store
from subtext.search.stores.traces import ADDED, remove_traces
from subtext.server.batching import Batcher, Cache
from subtext.server.monitoring import Metrics
from subtext.server.security import Refusal
from subtext.server.settings import Limits
from subtext.server.thumbnails import Thumbnails
from subtext.server.uploads import changing, remove_orphans, storage_of

CHECK_SECONDS = 5.0
"""Seconds between checks whether an index was re-embedded, or items were deleted, by another process."""


class Library:
    """An index that is served.

    name           by which requests name it
    open_index     opens it; called again when it was re-embedded with another model
    image_folders  further folders whose images may be shown
    storage_dir    folder for thumbnails and uploads of an index that is no folder; None for nowhere
    """

    def __init__(
        self,
        name: str,
        open_index: Callable[[], Index],
        *,
        limits: Limits,
        metrics: Metrics,
        image_folders: Sequence[Path] = (),
        storage_dir: Path | None = None,
    ) -> None:
        self.name = name
        self._open = open_index
        self._index = open_index()
        self._checked = time.monotonic()
        self._swept = -1
        self._reopening = threading.Lock()
        store = self._index.store
        self.storage = storage_of(store, storage_dir)
        added = [] if self.storage is None else [self.storage / ADDED]
        self.thumbnails = Thumbnails([Path(store.manifest.root), *added, *image_folders], self.storage)
        self.batcher = Batcher(
            lambda: self.index, cached_hits=limits.cached_hits, seconds=limits.answer_seconds, metrics=metrics
        )
        self.fields: Cache[Any] = Cache(1000)
        if self.storage is not None and (self.storage / ADDED).is_dir():
            # Another process may be writing, or the folder be read-only: then the next addition does it.
            with suppress(Refusal, OutputError), changing(store, "serve", self.storage):
                remove_orphans(store, self.storage)

    @property
    def index(self) -> Index:
        """The index: a new one soon after it was re-embedded with another model.

        Raises StoreGone while the server of a database is away.
        """
        now = time.monotonic()
        if now - self._checked > CHECK_SECONDS and self._reopening.acquire(blocking=False):
            try:
                self._checked = now
                if self._index.store.moved:
                    self._index = self._open()
                self._sweep_changes()
            finally:
                self._reopening.release()
        return self._index

    @property
    def store(self) -> Store:
        """The index's store."""
        return self.index.store

    def sweep(self, deleted: Mapping[str, Sequence[str]]) -> None:
        """Remove what is stored of deleted items beside a database; a folder does that by itself.

        deleted  see `remove_traces`; the index names their texts, and other deleted items
        """
        store = self._index.store
        if self.storage is not None and not isinstance(store, Folder):
            remove_traces(self.storage, {**dict.fromkeys(store.deleted(), ()), **deleted})

    def _sweep_changes(self) -> None:
        """The same for deletions by other processes."""
        if self.storage is None or isinstance(self._index.store, Folder):
            return
        with self._index.store.reading() as view:
            generation = view.generation
        if generation != self._swept:
            with suppress(OutputError, IndexError_):
                self.sweep({})
                self._swept = generation

    def close(self) -> None:
        """Finish the queries that wait."""
        self.batcher.close()
