"""Files and folders that are written whole or not at all.

What is written goes under another name in the same folder, is flushed to the disk and renamed into place: a reader sees
what stood there before, or all of the new, and a process that is killed leaves a hidden name behind, never half a file.

Files that a command will write: whether they can be, is found out before the work and not after it.
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
"""What the name of an unfinished file or folder begins with."""

_ADVICE = {
    (errno.ENOSPC, errno.EDQUOT, errno.EFBIG): (
        "there is no free space left for it",
        "free some space and do it again, a training with --resume",
    ),
    (errno.EACCES, errno.EPERM, errno.EROFS): (
        "its folder is closed to this user",
        "name a place that you may write to, or change the rights",
    ),
    (errno.ENOTDIR, errno.EEXIST): ("a file stands where a folder has to be", "name another place, or move that file"),
}
"""What the operating system's refusals mean, and what to do."""


def write_file(path: Path, fill: Callable[[Path], None]) -> None:
    """Let `fill` write a file under another name, then put it in place; the folder is made where it is missing.

    Raises OutputError when the disk is full, a folder stands there or it may not be written; what stood there before
    stays.
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
            _flush(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str, *, errors: Literal["strict", "surrogateescape"] = "strict") -> None:
    """Write a file of UTF-8, whole or not at all.

    errors  "surrogateescape" gives back the bytes of names that were no UTF-8, as they were

    Raises OutputError as `write_file` does.
    """

    def fill(target: Path) -> None:
        target.write_text(text, encoding="utf-8", errors=errors)

    write_file(path, fill)


def write_folder(path: Path, fill: Callable[[Path], None], *, replace: bool = True) -> None:
    """Let `fill` write into a new folder, then put it in place, instead of what may stand there.

    replace  False keeps a folder that another process has put there meanwhile, for contents that are equal anyway

    Raises OutputError when the disk is full, a file stands there or it may not be written; what stood there before
    stays.
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
            if not replace:
                _put_unless_there(temporary, path)
            elif path.exists():
                aside = _beside(path)
                path.replace(aside)
                temporary.replace(path)
                shutil.rmtree(aside, ignore_errors=True)
            else:
                temporary.replace(path)
            _flush(path.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _beside(path: Path) -> Path:
    """A name that no other writer has, on this machine or on another that shares the folder."""
    return path.with_name(f"{HIDDEN}{os.getpid()}-{secrets.token_hex(4)}-{path.name}")


def _put_unless_there(temporary: Path, path: Path) -> None:
    """Rename, which fails where a folder that holds something stands already: whoever came first stays."""
    try:
        temporary.rename(path)
    except OSError:
        if not path.is_dir():
            raise


@contextmanager
def written_to(path: Path) -> Iterator[None]:
    """Inside the block `path` is written: what the system refuses becomes an OutputError that says what to do."""
    try:
        yield
    except (OSError, SafetensorError) as problem:
        reason, advice = _meaning(problem)
        raise OutputError(
            f"{path} needs to be written, and cannot be: {reason}; what stood there before still stands; {advice}"
        ) from problem


def _meaning(problem: OSError | SafetensorError) -> tuple[str, str]:
    """Why, and what to do."""
    number = problem.errno if isinstance(problem, OSError) else None
    if number is None and (match := re.search(r"os error (\d+)", str(problem))):
        number = int(match[1])
    if number is None and re.search(r"\d+ requested and \d+ written", str(problem)):
        number = errno.ENOSPC  # NumPy's words, which keep the system's to themselves.
    for numbers, meaning in _ADVICE.items():
        if number in numbers:
            return meaning
    return (os.strerror(number) if number else str(problem)), "see to that and do it again"


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def require_file(path: Path) -> None:
    """Raise OutputError unless a file can be written at `path`; folders that are missing there would be made.

    Nothing stays behind. A disk that is full later is told when the file is written.
    """
    if path.is_dir():
        raise OutputError(f"{path} needs to be free for a file; a folder stands there; name a file")
    folder = path.parent
    while not folder.exists():
        folder = folder.parent
    with written_to(path), tempfile.TemporaryFile(dir=folder):
        pass
