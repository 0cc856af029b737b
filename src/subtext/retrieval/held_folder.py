"""A folder that stays in hand: what is opened, written and removed through it is its own, whatever takes its path.

`mv library old; mv new library` puts another folder at the path of an index that is open. Every later step by that path
would read, write or remove files of the other one. Where the system has paths that lead through a descriptor (Linux)
or by the number of a folder (macOS), the steps go through these. Elsewhere the path is checked before each step.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from weakref import finalize

from subtext.errors import OutputError, SearchIndexError, SubtextError
from subtext.retrieval.stores.errors import IndexMovedError

THROUGH = ("/proc/self/fd/{descriptor}", "/.vol/{device}/{number}")
"""Paths to an open folder, wherever it is: through the descriptors of a process on Linux, by its number on macOS."""


class HeldFolder:
    """A folder, by a descriptor that is open as long as this object is referenced.

    Args:
        path: The folder.

    Attributes:
        path: The path that it was opened by, for messages; another folder may have taken it since.

    Raises:
        SearchIndexError: If there is no folder, or it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as problem:
            reason = (
                "is not there" if isinstance(problem, FileNotFoundError) else f"cannot be opened: {problem.strerror}"
            )
            raise SearchIndexError(
                f"{path} needs to be a folder that `subtext index build` wrote; it {reason}"
            ) from problem
        finalize(self, os.close, self._descriptor)
        device, number = self._number = _numbers(os.fstat(self._descriptor))
        through = [Path(it.format(descriptor=self._descriptor, device=device, number=number)) for it in THROUGH]
        self._through = next((path for path in through if self._leads_here(path)), None)

    @property
    def here(self) -> Path:
        """A path to the folder itself; valid while this object is referenced.

        Raises:
            IndexMovedError: Where the system has no such paths, if another folder has taken its path.
        """
        if self._through is not None:
            return self._through
        self.require_there()
        return self.path

    @property
    def is_there(self) -> bool:
        """Whether its path still leads to this folder."""
        return self._leads_here(self.path)

    def _leads_here(self, path: Path) -> bool:
        try:
            return _numbers(path.stat()) == self._number
        except OSError:
            return False

    def require_there(self, done: str = "nothing of this change was made") -> None:
        """Require that its path still leads to this folder.

        Args:
            done: What was done of the work so far, for the message.

        Raises:
            IndexMovedError: If another folder has taken its path, or none is there.
        """
        if not self.is_there:
            raise IndexMovedError(
                f"{self.path} was moved away, removed or replaced while it was used; {done}; what was acknowledged "
                "before stands in the folder that was there; run the command again on the index that it is for"
            )

    def named(self, text: str) -> str:
        """A message that names the folder as its user does.

        Args:
            text: A message in which paths may lead through the descriptor or number.

        Returns:
            The message, with the path that the folder was opened by.
        """
        if self._through is None:
            return text
        return re.sub(rf"{re.escape(str(self._through))}(?!\d)", lambda _: str(self.path), text)

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Inside the block errors name the folder as its user does, and errors of its disk name a file.

        Returns:
            A context manager.

        Raises:
            SearchIndexError: For an error of the system that concerns the folder.
        """
        try:
            yield
        except SubtextError as problem:
            problem.args = tuple(self.named(part) if isinstance(part, str) else part for part in problem.args)
            raise
        except OSError as problem:
            file = self.named(str(problem.filename or ""))
            if isinstance(problem, FileNotFoundError):
                raise  # Of a compaction: the caller reads what came after it.
            if problem.errno not in (errno.EIO, errno.ESTALE) and not Path(file).is_relative_to(self.path):
                raise
            kind = OutputError if problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS) else SearchIndexError
            raise kind(
                f"{file or self.path} cannot be used: {problem.strerror}; see to the disk, then to the index "
                "(`subtext index verify`)"
            ) from problem


def _numbers(stat: os.stat_result) -> tuple[int, int]:
    return stat.st_dev, stat.st_ino
