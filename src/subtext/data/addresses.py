"""Addresses of images: s3://, gs://, az:// and https://, which stand where a path stands."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

SCHEMES = ("s3", "gs", "az", "https")
ADDRESS = re.compile(rf"(?P<scheme>{'|'.join(SCHEMES)}):/+(?P<rest>[^/].*)", re.IGNORECASE | re.DOTALL)
"""An address, also one that has lost a slash."""

_PlainPath = type(Path())


class StoreFolder(_PlainPath):  # type: ignore[misc, valid-type]
    """A place in a store where a path of a folder or a file is taken; no method asks the store.

    Args:
        *segments: An address, or its parts. An address of https stays as it was typed: `//`, `/./` and a `/` at the end
            mean something to its host.
    """

    _typed = ""

    def __new__(cls, *segments: str | os.PathLike[str]) -> StoreFolder:
        """Make a place; the arguments are those of the class."""
        made = super().__new__(cls, *segments)
        text = os.fspath(segments[0]) if len(segments) == 1 else ""
        if is_https(text) and is_address(text):
            made._typed = text
        return cast(StoreFolder, made)

    def __str__(self) -> str:
        scheme, *rest = self.parts
        return self._typed or f"{scheme.lower()}//{'/'.join(rest)}"

    def __fspath__(self) -> str:
        return str(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoreFolder) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __reduce__(self) -> tuple[type[StoreFolder], tuple[str]]:
        return StoreFolder, (str(self),)

    def __truediv__(self, name: str | os.PathLike[str]) -> StoreFolder:
        return StoreFolder(f"{str(self).rstrip('/')}/{os.fspath(name)}")

    def resolve(self, strict: bool = False) -> StoreFolder:
        """The place itself: an address is absolute.

        Args:
            strict: Not used.

        Returns:
            The same.
        """
        return self

    absolute = expanduser = resolve

    def exists(self, **_: Any) -> bool:
        """Whether it may be there: reading says whether it is.

        Returns:
            True.
        """
        return True

    def is_dir(self, **_: Any) -> bool:
        """Whether it is a folder of a disk.

        Returns:
            False.
        """
        return False

    is_file = is_dir


def is_address(value: object) -> bool:
    """Test whether an image or a folder lies in a store, or behind https.

    Args:
        value: A path, an address or bytes.

    Returns:
        Whether it does.
    """
    if isinstance(value, StoreFolder):
        return True
    return isinstance(value, str) and "://" in value[:9] and ADDRESS.match(value) is not None


def as_path(value: str | os.PathLike[str]) -> Path:
    """A path, or a place in a store: a `Path` of an address has lost one of its slashes.

    Args:
        value: As it was typed.

    Returns:
        A path with its `~` expanded, or a `StoreFolder`.
    """
    text = os.fspath(value)
    return StoreFolder(text) if ADDRESS.match(text) else Path(value).expanduser()


def joined_path(root: Path, value: str) -> Path:
    """The path of an image, whose address stands by itself.

    Args:
        root: Folder of relative paths.
        value: Path or address.

    Returns:
        The path.
    """
    if is_address(value):
        return StoreFolder(value)
    return Path(value) if os.path.isabs(value) else root / value  # noqa: PTH117 (30,000 paths)


def shown(address: str) -> str:
    """An address for messages: a query may have a signature that gives access.

    Args:
        address: The address.

    Returns:
        The address without its query.
    """
    return address.partition("?")[0] if is_https(address) else address


def address_error(value: str) -> str | None:
    """Explain why an address cannot be read.

    Args:
        value: An address.

    Returns:
        The end of a sentence; None for one that can be.
    """
    if not is_address(value):
        return f"addresses begin with {', '.join(f'{scheme}://' for scheme in SCHEMES)}; download it first"
    if is_https(value):
        try:
            parts = urlsplit(value)
            named, secret = bool(parts.hostname) and parts.port != 0, parts.username or parts.password
        except ValueError:
            named, secret = False, None
        if not named:
            return "an address needs a host and a path; correct it"
        return "a password does not belong into an address; take it out" if secret else None
    if "//" in value.partition("://")[2] or value.endswith("/"):
        return "a name in a store needs something between two slashes, and behind the last one; rename it"
    return None


def is_https(address: str) -> bool:
    """Test whether an address is of a host that speaks https.

    Args:
        address: The address.

    Returns:
        Whether it is.
    """
    return address[:6].lower() == "https:"
