"""Files and folders that are written completely or not at all.

New content gets another name in the same folder, is flushed to the disk and renamed into place: a reader sees the old
or the new content, and a process that is killed leaves a hidden name behind, never half a file.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from safetensors import SafetensorError

from subtext.errors import OutputError

HIDDEN = ".writing-"
"""The prefix of the name of an unfinished file or folder."""

_ADVICE = {
    (errno.ENOSPC, errno.EDQUOT, errno.EFBIG): (
        "there is no free space left for it",
        "free some space and do it again, a training with --resume",
    ),
    (errno.EACCES, errno.EPERM, errno.EROFS): (
        "its folder is closed to this user",
        "name a place that you may write to, or change the rights",
    ),
    (errno.EIO,): (
        "the disk, or the network to it, reports an error",
        "look to the disk, or name a place on another one, and do it again",
    ),
    (errno.ENOTDIR, errno.EEXIST): ("a file stands where a folder has to be", "name another place, or move that file"),
}
"""Error numbers of the operating system -> what they mean, and what to do."""


def write_file(path: Path, fill: Callable[[Path], object]) -> None:
    """Let `fill` write a file under another name, then put it in place; its folder is created where it is missing.

    Args:
        path: The file.
        fill: Writes the content to the path that it gets.

    Raises:
        OutputError: If the disk is full, a folder is in the way or it may not be written; an old file stays.
    """
    temporary = _beside(path)
    with written_to(path):
        if path.is_dir():
            raise OutputError(f"{path} needs to be free for a file; a folder stands there; name a file")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            fill(temporary)
            _flush(temporary)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    with written_to(path, done=True):
        _flush(path.parent)


def write_text(path: Path, text: str, *, errors: Literal["strict", "surrogateescape"] = "strict") -> None:
    """Write a file of UTF-8, completely or not at all.

    Args:
        path: The file.
        text: Its content.
        errors: "surrogateescape" restores the bytes of names that were no UTF-8.

    Raises:
        OutputError: As `write_file` does.
    """
    content = text.encode("utf-8", errors)
    write_file(path, lambda target: target.write_bytes(content))


def write_folder(
    path: Path, fill: Callable[[Path], None], *, existing: Literal["replace", "keep", "refuse"] = "replace"
) -> None:
    """Let `fill` write into a new folder, then put it in place of an old one.

    Args:
        path: The folder.
        fill: Writes the content into the empty folder that it gets.
        existing: What happens to a folder that has something in it, also if another process has put it there
            meanwhile: "keep" is for contents that are equal anyway.

    Raises:
        OutputError: If the disk is full, a file is in the way or it may not be written; an old folder stays.
    """
    temporary = _beside(path)
    with written_to(path):
        if path.exists() and not path.is_dir():
            raise OutputError(f"{path} needs to be free for a folder; a file stands there; name another place")
        try:
            temporary.mkdir(parents=True)
            fill(temporary)
            for file in sorted(temporary.rglob("*")):
                _flush(file)
            _flush(temporary)
            aside = _beside(path)
            if existing == "replace" and path.exists():
                path.replace(aside)
            try:
                temporary.rename(path)
            except OSError as problem:
                # Renaming fails where another process has put a folder with content.
                if existing == "refuse" and path.is_dir():
                    raise OutputError(f"{path} was taken by another folder meanwhile; name another place") from problem
                if existing != "keep" or not path.is_dir():
                    raise
            shutil.rmtree(aside, ignore_errors=True)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    with written_to(path, done=True):
        _flush(path.parent)


def _beside(path: Path) -> Path:
    """A name that no other writer has, on any machine that shares the folder."""
    return path.with_name(f"{HIDDEN}{os.getpid()}-{secrets.token_hex(4)}-{path.name}")


@contextmanager
def written_to(path: Path, *, done: bool = False) -> Iterator[None]:
    """Turn errors of the system within the block, which writes `path`, into an OutputError that says what to do.

    Args:
        path: The path that the block writes.
        done: The new content is in its place already: the block makes sure that it stays there.

    Yields:
        Nothing.

    Raises:
        OutputError: For an error of the system within the block.
    """
    try:
        yield
    except (OSError, SafetensorError) as problem:
        number = problem.errno if isinstance(problem, OSError) else None
        if number is None and (match := re.search(r"os error (\d+)", str(problem))):
            number = int(match[1])
        if number is None and re.search(r"\d+ requested and \d+ written", str(problem)):
            number = errno.ENOSPC  # NumPy's message, which hides the system's.
        reason, advice = next(
            (meaning for numbers, meaning in _ADVICE.items() if number in numbers),
            (os.strerror(number) if number else str(problem), "see to that and do it again"),
        )
        failed = "needs to be written, and cannot be"
        state = "what stood there before still stands"
        if done:
            failed, state = "is written, but may be lost if the machine stops now", "the new content stands"
        raise OutputError(f"{path} {failed}: {reason}; {state}; {advice}") from problem


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def require_file(path: Path) -> None:
    """Require that a file can be written at `path`, in folders that may not exist yet; nothing is left.

    A full disk is reported when the file is written.

    Args:
        path: The file.

    Raises:
        OutputError: If it cannot be written.
    """
    if path.is_dir():
        raise OutputError(f"{path} needs to be free for a file; a folder stands there; name a file")
    folder = path.parent
    while not folder.exists():
        folder = folder.parent
    with written_to(path), tempfile.TemporaryFile(dir=folder):
        pass
