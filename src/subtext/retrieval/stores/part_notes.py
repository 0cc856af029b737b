"""Notes beside an index that the workers of a cluster build: which parts are written, and which process drives them.

PARTS/NAME.json     a part: what it was made of, as a hash, and what was written
PARTS/driver.json   the process that drives the build, a number that it counts up, and the size of the parts

Whether a process on this machine still runs, the system knows. One on another machine counts as gone when its number
has not changed for some time. If two begin at the same moment, the commit takes the parts of one of them only.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyarrow import fs

from subtext.retrieval.index_files import json_object
from subtext.retrieval.stores.errors import IndexLockedError

PARTS = "_parts"
"""Folder of the notes, in that of the table."""
DRIVER = "driver"
BEAT = 5.0
"""Seconds after which the process that drives counts up."""
STILL = 3
"""Beats without a new number after which it is gone."""


@dataclass
class PartNotes:
    """The notes on the parts of an index.

    Args:
        filesystem: Of pyarrow.
        folder: Of the table, in that file system.
        where: Address of the index, for messages.
        token: Of this process while it drives; "" otherwise.
    """

    filesystem: Any
    folder: str
    where: str
    token: str = ""
    _lost: threading.Event = field(default_factory=threading.Event)

    def read(self, name: str) -> dict[str, Any] | None:
        """A note.

        Args:
            name: Of the part.

        Returns:
            Its content; None if there is none, or a killed process has written half of it.
        """
        with suppress(FileNotFoundError), self.filesystem.open_input_stream(self._path(name)) as stream:
            return json_object(stream.read().decode("utf-8", "replace"))
        return None

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a note in the place of a former one.

        Args:
            name: Of the part.
            content: Plain data.
        """
        path = self._path(name)
        local = isinstance(self.filesystem, fs.LocalFileSystem)
        if local:
            self.filesystem.create_dir(f"{self.folder}/{PARTS}")
        # On a disk two writers at once would mix their notes; a store takes each as a whole.
        own = self._path(f".{uuid.uuid4().hex}") if local else path
        with self.filesystem.open_output_stream(own) as stream:
            stream.write(json.dumps(content).encode())
        if local:
            self.filesystem.move(own, path)

    def names(self) -> list[str]:
        """Names of the parts that are noted.

        Returns:
            The names, in their order.
        """
        found = self.filesystem.get_file_info(fs.FileSelector(f"{self.folder}/{PARTS}", allow_not_found=True))
        names = {info.base_name.removesuffix(".json") for info in found if info.is_file}
        return sorted(name for name in names if name != DRIVER and not name.startswith("."))

    def remove(self) -> None:
        """Remove all notes."""
        with suppress(FileNotFoundError):
            self.filesystem.delete_dir(f"{self.folder}/{PARTS}")

    @property
    def begun(self) -> bool:
        """Whether a build has left parts, or goes on."""
        return bool(self.names() or (self.read(DRIVER) or {}).get("token"))

    def require_free(self, note: Callable[[str], None] | None) -> dict[str, Any]:
        """Require that no other process drives the build.

        Args:
            note: Called with a sentence before it waits.

        Returns:
            The note of the one that has driven it; empty if there was none.

        Raises:
            IndexLockedError: If another one does.
        """
        before = self.read(DRIVER) or {}
        if before.get("token") and self._runs(before, note):
            raise self._locked(before)
        return before

    @contextmanager
    def driving(self, size: int, note: Callable[[str], None] | None = None) -> Iterator[int]:
        """Inside the block this process drives the build.

        Args:
            size: Items of a part, if no build is interrupted.
            note: Called with a sentence before it waits.

        Yields:
            The number of items of a part.

        Raises:
            IndexLockedError: If another process drives it.
        """
        before = self.require_free(note)
        if type(before.get("size")) is int and before["size"] > 0:
            size = before["size"]
        self.token = uuid.uuid4().hex
        mine = {"token": self.token, **_this_process(), "beat": 0, "size": size}
        self.write(DRIVER, mine)
        time.sleep(BEAT / 10)
        self.require_driving(look=True)
        ended = threading.Event()
        heart = threading.Thread(target=self._beat, args=(mine, ended), daemon=True)
        heart.start()
        try:
            yield size
        finally:
            ended.set()
            heart.join()
            # A storage that is gone keeps the note; the process does not run any more.
            with suppress(OSError):
                if not self._lost.is_set() and self.names():
                    self.write(DRIVER, {**mine, "token": ""})
                elif not self._lost.is_set():
                    self.remove()  # A beat may have come after the notes were removed.
            self.token = ""

    def require_driving(self, *, look: bool = False) -> None:
        """Require that no other process has taken over.

        Args:
            look: Read the note now; otherwise what the last beat has seen counts.

        Raises:
            IndexLockedError: If one has.
        """
        now = (self.read(DRIVER) or {}) if look or self._lost.is_set() else {}
        if self._lost.is_set() or now.get("token", self.token) != self.token:
            raise self._locked(now)

    def _beat(self, mine: dict[str, Any], ended: threading.Event) -> None:
        while not ended.wait(BEAT):
            with suppress(OSError):
                now = self.read(DRIVER)
                if now is not None and now.get("token") != self.token:
                    self._lost.set()
                    return
                mine["beat"] += 1
                self.write(DRIVER, mine)

    def _runs(self, other: Mapping[str, Any], note: Callable[[str], None] | None) -> bool:
        """Whether the process that has written a note still runs."""
        here = _this_process()
        if here["boot"] and other.get("boot") == here["boot"] and other.get("host") == here["host"]:
            return _started(other.get("process")) == other.get("started")
        if note is not None:
            note(
                f"note: {self.where} was being built by a process on {other.get('host')}; waiting {STILL * BEAT:.0f} "
                "seconds to see whether it still runs"
            )
        for _ in range(STILL * 2):
            time.sleep(BEAT / 2)
            now = self.read(DRIVER) or {}
            if (now.get("token"), now.get("beat")) != (other.get("token"), other.get("beat")):
                return bool(now.get("token"))
        return False

    def _locked(self, other: Mapping[str, Any]) -> IndexLockedError:
        by = f"process {other['process']} on {other['host']}" if "process" in other else "another process"
        return IndexLockedError(f"{self.where} is being built by {by}; wait until it has ended, or name another index")

    def _path(self, name: str) -> str:
        return f"{self.folder}/{PARTS}/{name}.json"


def _this_process() -> dict[str, Any]:
    """What tells this process from every other, on this machine and elsewhere."""
    boot = ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    number = os.getpid()
    return {"host": socket.gethostname(), "boot": boot, "process": number, "started": _started(number)}


def _started(process: Any) -> int | None:
    """When a process of this machine was started, in ticks since the machine was; None for one that does not run."""
    with suppress(OSError, ValueError, IndexError):
        status = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return None if status[0] == "Z" else int(status[19])
    return None
