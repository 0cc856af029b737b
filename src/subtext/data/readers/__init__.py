"""Readers, one file per format: each recognises its own paths and reads them.

A reader is a module of this folder, or any object with the same names:

    LOOKS_FOR            the files that it looks for, for the message that no reader fits
    PRIORITY             readers of higher priority are tried first; the general ones of this folder have the lowest
    recognises(path)     whether a path is in this format
    read(path, images)   the Source of that path; `images` is the folder of the images, None for the data set's own

A reader outside of the package needs one line that names it: `register(reader)`, or an entry point of the group
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

GROUP = "subtext.readers"
"""The entry points by which other packages bring readers."""

_registered: list[Reader] = []


@runtime_checkable
class Reader(Protocol):
    """One format; see the module."""

    LOOKS_FOR: str
    PRIORITY: int

    def recognises(self, path: Path) -> bool:
        """Whether the path is in this format; cheap, and False for a path that is not there."""

    def read(self, path: Path, images: Path | None) -> Source:
        """The rows of the data set. Raises DataError when it cannot be read."""


def register(reader: Any) -> Any:
    """Add a reader for another format; usable as a decorator of a class without arguments.

    reader  an object with LOOKS_FOR, PRIORITY, recognises(path) and read(path, images), as a `Reader` has
    """
    _registered.append(reader() if isinstance(reader, type) else reader)
    return reader


register_reader = register


def readers() -> list[Reader]:
    """All readers, highest priority first; of equal ones, those from outside of the package."""
    return sorted([*_registered, *_installed()], key=lambda reader: -reader.PRIORITY)


@cache
def _installed() -> tuple[Reader, ...]:
    external = [entry.load() for entry in entry_points(group=GROUP)]
    modules = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    return tuple(cast(Reader, reader) for reader in (*external, *modules))
