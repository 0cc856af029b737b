"""One writer at a time: a lock that the system takes back from a process that ends, however it ends."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from subtext.data.atomic import written_to
from subtext.errors import IndexError_

LOCK = "lock"


class WriterBusy(IndexError_):
    """Another process is writing to the index: try again."""


class StoreGone(IndexError_):
    """The server of an index cannot be reached, or went away: try again."""


@contextmanager
def writer_lock(path: Path, verb: str) -> Iterator[None]:
    """Inside the block no other process, and no other writer of this one, writes to the index at `path`.

    verb  what is done, for the message that a second writer gets

    Raises WriterBusy when somebody writes there already, OutputError when the folder may not be written.
    """
    file = path / LOCK
    with written_to(file):
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WriterBusy(
                f"{path} takes one writer at a time; {_owner(descriptor)}; wait until it is done"
            ) from None
        about = {"verb": verb, "process": os.getpid(), "host": socket.gethostname(), "since": _now()}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(about).encode(), 0)
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _owner(descriptor: int) -> str:
    """Who is writing, as the lock file says."""
    try:
        owner = json.loads(os.pread(descriptor, 4096, 0))
        return f"`subtext index {owner['verb']}` (process {owner['process']} on {owner['host']}) since {owner['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process is writing"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
