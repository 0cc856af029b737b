"""Locks of files: one writer at a time, on one machine or on several that share a disk.

The system takes a lock back from a process that ends, however it ends.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from datetime import UTC, datetime
from pathlib import Path

from subtext.errors import OutputError


def acquire(descriptor: int, file: Path, *, verb: str, advice: str) -> str:
    """Take the lock of a file without waiting, and write into the file who has it.

    Args:
        descriptor: Of the file, open for reading and writing; closing it frees the lock.
        file: Its path, for messages.
        verb: What the lock is taken for, as a command: `subtext index add`.
        advice: What to do where the disk has no locks.

    Returns:
        Empty where the lock is taken; otherwise who has it, as a clause of a sentence.

    Raises:
        OutputError: If the disk has no locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _owner(descriptor)
    except OSError as problem:
        raise OutputError(
            f"{file} needs a disk with locks, which keep a second writer out; this one has none ({problem.strerror}); "
            f"{advice}"
        ) from problem
    since = datetime.now(UTC).isoformat(timespec="seconds")
    about = {"verb": verb, "process": os.getpid(), "host": socket.gethostname(), "since": since}
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(about).encode(), 0)
    return ""


def _owner(descriptor: int) -> str:
    """The writer that the file names."""
    try:
        owner = json.loads(os.pread(descriptor, 4096, 0))
        return f"`{owner['verb']}` (process {owner['process']} on {owner['host']}) since {owner['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process is writing"
