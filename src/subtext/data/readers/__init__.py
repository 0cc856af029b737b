"""Readers, one file per format: each recognises its own paths and reads them.

A reader is a module of this folder, or any object with the same names:

    LOOKS_FOR            the files that it looks for, for the message that no reader fits
    PRIORITY             readers of higher priority are tried first; the general ones of this folder have the lowest
    recognises(path)     whether a path is in this format
    read(path, images)   the Source of that path; `images` is the folder of the images, None for the data set's own.
                         With a parameter `columns`, it also takes the columns of each role (`rows.Columns`)
    part(path)           optional: which of the files of a folder it reads, as a text. An index keeps it, and an update
                         calls read(path, images, part=text): files that came since do not change what a folder is

A reader of another package needs one line that names it: `register(reader)`, or an entry point of the group
`subtext.readers` in its own package.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Protocol, cast, runtime_checkable

from subtext.data.rows import Source
from subtext.errors import RequirementError

GROUP = "subtext.readers"
"""The entry points by which other packages bring readers."""

_registered: list[Reader] = []


@runtime_checkable
class Reader(Protocol):
    """One format; see the module."""

    LOOKS_FOR: str
    PRIORITY: int

    def recognises(self, path: Path) -> bool:
        """Whether the path is in this format; cheap, and False for a path that is not there.

        Args:
            path: A file, a folder or a pattern of tars; it need not exist.

        Returns:
            Whether the path is in this format. The test is cheap, and False for a missing path.
        """

    def read(self, path: Path, images: Path | None) -> Source:
        """The rows of the data set.

        Args:
            path: A path that `recognises` accepts.
            images: Folder of the images; None for the data set's own.

        Returns:
            The rows and the folder that relative image paths start from.

        Raises:
            DataError: If it cannot be read.
        """


def register(reader: Any) -> Any:
    """Add a reader for another format; usable as a decorator of a class without arguments.

    Args:
        reader: An object with LOOKS_FOR, PRIORITY, recognises(path) and read(path, images), as a `Reader` has. It
            replaces one of the same class or module, such as that of a notebook cell that runs again.

    Returns:
        The reader, unchanged.

    Raises:
        RequirementError: If an object lacks one of these.
    """
    instance = reader() if isinstance(reader, type) else reader
    parts = ("LOOKS_FOR", "PRIORITY", "recognises", "read")
    if missing := [name for name in parts if not hasattr(instance, name)]:
        raise RequirementError(f"a reader needs {', '.join(parts)}; {reader!r} has no {', '.join(missing)}")
    _registered[:] = [other for other in _registered if _name_of(other) != _name_of(instance)]
    _registered.append(instance)
    return reader


def _name_of(reader: Any) -> str:
    named = reader if hasattr(reader, "__name__") else type(reader)
    return f"{named.__module__}.{named.__qualname__}" if isinstance(named, type) else str(named.__name__)


register_reader = register


def readers() -> list[Reader]:
    """All readers, highest priority first; of equal ones, those of other packages.

    Returns:
        All readers, highest priority first; of equal ones, external readers come first.
    """
    return sorted([*_registered, *_installed()], key=lambda reader: -reader.PRIORITY)


@cache
def _installed() -> tuple[Reader, ...]:
    external = [entry.load() for entry in entry_points(group=GROUP)]
    modules = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    return tuple(cast(Reader, reader) for reader in (*external, *modules))
