"""One index as the server has it: its engine, what answers on it, its pictures, and what is told of its items."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from subtext.errors import IndexError_, OutputError
from subtext.search import Engine
from subtext.search.stores.folder import Folder
from subtext.search.stores.store import Store
from subtext.search.stores.traces import ADDED, remove_traces
from subtext.server.added import changing, tidy
from subtext.server.answering import Answering
from subtext.server.folder import place_of
from subtext.server.kept import Kept
from subtext.server.metrics import Metrics
from subtext.server.refusals import Refusal
from subtext.server.settings import Limits
from subtext.server.thumbnails import Thumbnails

LOOK = 5.0
"""Seconds between two looks whether an index has been moved to another model, or items of it were deleted elsewhere."""


class Library:
    """An index that is served.

    name      by which requests name it
    opened    opens its engine; again when the index was moved to another model
    pictures  further folders whose pictures may be shown
    keep      where small copies and added pictures of an index are kept that is no folder; None for nowhere
    """

    def __init__(
        self,
        name: str,
        opened: Callable[[], Engine],
        *,
        limits: Limits,
        metrics: Metrics,
        pictures: Sequence[Path] = (),
        keep: Path | None = None,
    ) -> None:
        self.name = name
        self._open = opened
        self._engine = opened()
        self._looked = time.monotonic()
        self._swept = -1
        self._reopening = threading.Lock()
        store = self._engine.folder
        self.place = place_of(store, keep)
        added = [] if self.place is None else [self.place / ADDED]
        self.thumbnails = Thumbnails([Path(store.manifest.root), *added, *pictures], self.place)
        self.answering = Answering(
            lambda: self.engine, kept=limits.kept, seconds=limits.answer_seconds, metrics=metrics
        )
        self.told: Kept[Any] = Kept(1000)
        if self.place is not None and (self.place / ADDED).is_dir():
            # Somebody else may be writing, or the folder may be closed: then the next addition does it.
            with suppress(Refusal, OutputError), changing(store, "serve", self.place):
                tidy(store, self.place)

    @property
    def engine(self) -> Engine:
        """The engine: a new one soon after the index was moved to another model.

        Raises StoreGone while the server of a database is away.
        """
        now = time.monotonic()
        if now - self._looked > LOOK and self._reopening.acquire(blocking=False):
            try:
                self._looked = now
                if self._engine.folder.moved:
                    self._engine = self._open()
                self._sweep_what_went_elsewhere()
            finally:
                self._reopening.release()
        return self._engine

    @property
    def store(self) -> Store:
        """The index."""
        return self.engine.folder

    def sweep(self, gone: Mapping[str, Sequence[str]]) -> None:
        """Remove what is kept of deleted items beside a database; a folder does that by itself.

        gone  see `remove_traces`; their texts, and whatever else was deleted, are asked of the index
        """
        store = self._engine.folder
        if self.place is not None and not isinstance(store, Folder):
            remove_traces(self.place, {**dict.fromkeys(store.gone(), ()), **gone})

    def _sweep_what_went_elsewhere(self) -> None:
        """The same after others have changed the index: their deletions reach this server's copies here."""
        if self.place is None or isinstance(self._engine.folder, Folder):
            return
        with self._engine.folder.reading() as view:
            generation = view.generation
        if generation != self._swept:
            with suppress(OutputError, IndexError_):
                self.sweep({})
                self._swept = generation

    def close(self) -> None:
        """Finish what waits."""
        self.answering.close()
