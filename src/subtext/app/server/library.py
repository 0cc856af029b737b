"""One index as the server has it: its engine, what answers on it, its pictures, and what is told of its items."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from subtext.app.server.added import changing, tidy
from subtext.app.server.answering import Answering
from subtext.app.server.folder import folder_of
from subtext.app.server.kept import Kept
from subtext.app.server.metrics import Metrics
from subtext.app.server.refusals import Refusal
from subtext.app.server.settings import Limits
from subtext.app.server.thumbnails import Thumbnails
from subtext.errors import OutputError
from subtext.search import Engine
from subtext.stores.folder import Folder
from subtext.stores.traces import ADDED

LOOK = 5.0
"""Seconds between two looks whether an index has been moved to another model."""


class Library:
    """An index that is served.

    name      by which requests name it
    opened    opens its engine; again when the index was moved to another model
    pictures  further folders whose pictures may be shown
    """

    def __init__(
        self,
        name: str,
        opened: Callable[[], Engine],
        *,
        limits: Limits,
        metrics: Metrics,
        pictures: Sequence[Path] = (),
    ) -> None:
        self.name = name
        self._open = opened
        self._engine = opened()
        self._looked = time.monotonic()
        self._reopening = threading.Lock()
        folder = folder_of(self._engine)
        self.thumbnails = Thumbnails([Path(folder.manifest.root), folder.path / ADDED, *pictures])
        self.answering = Answering(
            lambda: self.engine, kept=limits.kept, seconds=limits.answer_seconds, metrics=metrics
        )
        self.told: Kept[Any] = Kept(1000)
        if (folder.path / ADDED).is_dir():
            # Somebody else may be writing, or the folder may be closed: then the next addition does it.
            with suppress(Refusal, OutputError), changing(folder, "serve"):
                tidy(folder)

    @property
    def engine(self) -> Engine:
        """The engine: a new one soon after the index was moved to another model."""
        now = time.monotonic()
        if now - self._looked > LOOK and self._reopening.acquire(blocking=False):
            try:
                self._looked = now
                if folder_of(self._engine).moved:
                    self._engine = self._open()
            finally:
                self._reopening.release()
        return self._engine

    @property
    def folder(self) -> Folder:
        """The index."""
        return folder_of(self.engine)

    def close(self) -> None:
        """Finish what waits."""
        self.answering.close()
