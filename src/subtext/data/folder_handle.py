"""A folder in hand: what is opened, written and removed through it is its own, whatever takes its path.

`mv library old; mv new library` puts another folder at the path of one that is open. Every later step by that path
would read, write or remove files of the other one. Where the system has paths that lead through a descriptor (Linux) or
by the number of a folder (macOS), the steps go through these.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from weakref import finalize

THROUGH = ("/proc/self/fd/{descriptor}", "/.vol/{device}/{number}")
"""Paths to an open folder, wherever it is: through the descriptors of a process on Linux, by its number on macOS."""


class FolderHandle:
    """A folder, by a descriptor that is open until `close`, or as long as this object is referenced.

    Args:
        path: The folder.

    Attributes:
        path: The path that it was opened by, for messages; another folder may have taken it since.
        descriptor: Of the folder.
        through: A path to the folder itself, wherever it is; None where the system has no such paths.
        close: Closes the descriptor.

    Raises:
        OSError: If there is no folder, or it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._absolute = path, path.absolute()
        self.descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.close = finalize(self, os.close, self.descriptor)
        device, number = self._number = _numbers(os.fstat(self.descriptor))
        through = [Path(it.format(descriptor=self.descriptor, device=device, number=number)) for it in THROUGH]
        self.through = next((path for path in through if self._leads_here(path)), None)

    @property
    def is_there(self) -> bool:
        """Whether its path still leads to this folder."""
        return self._leads_here(self._absolute)

    def _leads_here(self, path: Path) -> bool:
        try:
            return _numbers(path.stat()) == self._number
        except OSError:
            return False

    def named(self, text: str) -> str:
        """A message that names the folder as its user does.

        Args:
            text: A message in which paths may lead through the descriptor or number.

        Returns:
            The message, with the path that the folder was opened by.
        """
        if self.through is None:
            return text
        return re.sub(rf"{re.escape(str(self.through))}(?!\d)", lambda _: str(self.path), text)


def _numbers(stat: os.stat_result) -> tuple[int, int]:
    return stat.st_dev, stat.st_ino
