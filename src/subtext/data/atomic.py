"""Files and folders that are written whole or not at all.

What is written goes under another name in the same folder, is flushed to the disk and renamed into place: a reader sees
what stood there before, or all of the new, and a process that is killed leaves a hidden name behind, never half a file.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from subtext.errors import CheckpointError

HIDDEN = ".writing-"
"""What the name of an unfinished file or folder begins with."""
_FULL = (errno.ENOSPC, errno.EDQUOT)


def write_file(path: Path, fill: Callable[[Path], None]) -> None:
    """Let `fill` write a file under another name, then put it in place; the folder is made where it is missing.

    Raises CheckpointError when the disk is full, or a folder stands there; what stood there before stays.
    """
    if path.is_dir():
        raise CheckpointError(f"a file is to be written to {path}, which is a folder; name a file")
    place = path.with_name(f"{HIDDEN}{os.getpid()}-{path.name}")
    with _plain_words(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            fill(place)
            _flush(place)
            place.replace(path)
            _flush(path.parent)
        finally:
            place.unlink(missing_ok=True)


def write_folder(path: Path, fill: Callable[[Path], None], *, replace: bool = True) -> None:
    """Let `fill` write into a new folder, then put it in place, instead of what may stand there.

    replace  False keeps a folder that another process has put there meanwhile, for contents that are equal anyway

    Raises CheckpointError when the disk is full.
    """
    place = path.with_name(f"{HIDDEN}{os.getpid()}-{path.name}")
    with _plain_words(path):
        try:
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
            fill(place)
            for file in sorted(place.rglob("*")):
                _flush(file)
            _flush(place)
            if not replace:
                _put_unless_there(place, path)
            elif path.exists():
                aside = path.with_name(f"{HIDDEN}{os.getpid()}-old-{path.name}")
                path.replace(aside)
                place.replace(path)
                shutil.rmtree(aside, ignore_errors=True)
            else:
                place.replace(path)
            _flush(path.parent)
        finally:
            shutil.rmtree(place, ignore_errors=True)


def _put_unless_there(place: Path, path: Path) -> None:
    """Rename, which fails where a folder that holds something stands already: whoever came first stays."""
    try:
        place.rename(path)
    except OSError:
        if not path.is_dir():
            raise


@contextmanager
def _plain_words(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError) as problem:
        full = isinstance(problem, OSError) and problem.errno in _FULL
        if full or "os error 28" in str(problem) or "os error 122" in str(problem):
            raise CheckpointError(
                f"writing {path} needs free space on the disk, and there is none left; nothing of it was kept and what "
                "stood there before still stands; free some space and go on with --resume"
            ) from problem
        raise


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
