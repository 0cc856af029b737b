"""The folder of an index, in hand while the index is open: see `data.folder_handle`.

Where the system has no paths that lead through a descriptor, its path is checked before each step.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from subtext.data.folder_handle import FolderHandle
from subtext.errors import OutputError, SearchIndexError, SubtextError
from subtext.retrieval.stores.errors import IndexMovedError


class HeldFolder(FolderHandle):
    """The folder of an index; its errors are those of an index.

    Args:
        path: The folder.

    Raises:
        SearchIndexError: If there is no folder, or it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        try:
            super().__init__(path)
        except OSError as problem:
            reason = (
                "is not there" if isinstance(problem, FileNotFoundError) else f"cannot be opened: {problem.strerror}"
            )
            raise SearchIndexError(
                f"{path} needs to be a folder that `subtext index build` wrote; it {reason}"
            ) from problem

    @property
    def here(self) -> Path:
        """A path to the folder itself; valid while this object is referenced.

        Raises:
            IndexMovedError: Where the system has no such paths, if another folder has taken its path.
        """
        if self.through is not None:
            return self.through
        self.require_there()
        return self.path

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
