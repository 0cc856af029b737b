"""The log of a server: a line of JSON a request, in the index, so that a deleted item's lines go with the item."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from subtext.search.stores.traces import LOGS

DAYS = 30
"""After so many days a log is removed."""


class Log:
    """Writes lines to INDEX/logs/serve-DAY-PROCESS.jsonl, to standard output, or nowhere.

    place  an index's folder, "-" for standard output, "" for nowhere

    A deletion replaces a log by one without the item's lines: whether that happened is looked at before each line.
    """

    def __init__(self, place: Path | str) -> None:
        self.place = place
        self._lock = threading.Lock()
        self._file: TextIO | None = None
        self._path: Path | None = None
        if isinstance(place, Path):
            _remove_old(place / LOGS)

    def line(self, facts: Mapping[str, Any]) -> None:
        """Write one line. A log that cannot be written stops no answer: that is told once, and no log is kept."""
        if self.place == "":
            return
        now = datetime.now(UTC)
        text = json.dumps({"at": now.isoformat(timespec="milliseconds"), **facts}, ensure_ascii=False, default=str)
        with self._lock:
            if not isinstance(self.place, Path):
                print(text, file=sys.stdout, flush=True)
                return
            try:
                file = self._opened(self.place / LOGS / f"serve-{now:%Y-%m-%d}-{os.getpid()}.jsonl")
                file.write(text.encode("utf-8", "replace").decode("utf-8") + "\n")
                file.flush()
            except OSError as problem:
                print(f"no log is kept: {problem}", file=sys.stderr, flush=True)
                self.place = ""

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = self._path = None

    def _opened(self, path: Path) -> TextIO:
        if self._file is not None and path == self._path and _same(self._file, path):
            return self._file
        if self._file is not None:
            self._file.close()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file, self._path = path.open("a", encoding="utf-8"), path
        return self._file


def _same(file: TextIO, path: Path) -> bool:
    """Whether the open file is still the one of that name."""
    try:
        return os.fstat(file.fileno()).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False


def _remove_old(folder: Path) -> None:
    for file in folder.glob("serve-*.jsonl"):
        try:
            if file.stat().st_mtime < time.time() - DAYS * 86_400:
                file.unlink()
        except OSError:
            continue  # Another process removed it, or the folder is closed to this user.
