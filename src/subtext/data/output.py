"""Files that a command will write: whether they can be, is found out before the work and not after it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from subtext.data.atomic import written_to
from subtext.errors import OutputError


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
