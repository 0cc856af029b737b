"""Which store opens an index: by the scheme of its address, or as a folder."""

from __future__ import annotations

import importlib
import importlib.util
import re
from importlib.metadata import entry_points
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from subtext.errors import RequirementError
from subtext.retrieval.manifest import Manifest
from subtext.retrieval.stores.store import Store
from subtext.text_helpers import install_hint

GROUP = "subtext.stores"
"""Entry points of stores from outside the package."""
INSTALLED = {
    "postgres": (("postgresql", "postgres"), ("psycopg", "pgvector"), "postgres:Database"),
    "lance": (("lance", "s3", "gs"), ("lance",), "lance:LanceStore"),
}
"""Extra -> the schemes of its store's addresses, the packages that it needs, and its store."""

_ADDRESS = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?:(?P<user>[^:/?#@]*)(?::(?P<password>[^/?#@]*))?@)?"
    r"(?P<host>(?:\[[^/?#@\[\]]*\]|[^:/?#@\[\],]*)(?::\d*)?(?:,(?:\[[^/?#@\[\]]*\]|[^:/?#@\[\],]*)(?::\d*)?)*)"
    r"(?P<path>/[^?#@]*)?(?:\?(?P<query>[^#@]*))?"
)
_MISTYPED = re.compile(r"(postgres(?:ql)?)(?::/?|//)(?!/)", re.IGNORECASE)
"""The begin of an address whose :// is mistyped, and in which a password may follow."""


class AddressParts(NamedTuple):
    """An address as it is written, taken apart; nothing is decoded.

    Attributes:
        scheme: Before "://".
        user: Before the password; "" for none.
        password: "" for none. Never shown.
        host: Hosts with their ports.
        path: With the slash that it begins with; "" for none.
        query: Behind the question mark; "" for none. It may hold a password.
    """

    scheme: str
    user: str
    password: str
    host: str
    path: str
    query: str


def take_apart(address: str) -> AddressParts | None:
    """The parts of an address of a server: what every message about an address begins with.

    Args:
        address: An address, such as postgresql://USER:PASSWORD@HOST:PORT/DATABASE?index=NAME.

    Returns:
        Its parts; None where they cannot be told apart, as a password has signs that are not written as %XX: then no
        part of it may be shown.

    Example:
        >>> take_apart("postgresql://me:secret@db:5433/archive?index=library").host
        'db:5433'
        >>> take_apart("postgresql://me:se@cret@db/archive")
    """
    found = _ADDRESS.fullmatch(address)
    return None if found is None else AddressParts(*(part or "" for part in found.groups()))


def is_address(index: Path | str) -> bool:
    """Whether an index is named by an address, and not by a folder.

    Args:
        index: A folder, or an address such as postgresql://HOST/DATABASE.

    Returns:
        True for an address.

    Example:
        >>> is_address("postgresql://localhost/archive?index=library"), is_address("library")
        (True, False)
    """
    return isinstance(index, str) and "://" in index


def store_class(index: Path | str) -> type[Store]:
    """The class of the store that opens an index.

    Args:
        index: Folder or address of the index.

    Returns:
        A subclass of `Store`: by the scheme of the address, or `Folder`.

    Raises:
        RequirementError: For a scheme without an installed store, a store whose extra is not installed, or an entry
            point that is no `Store`.
    """
    if not is_address(index):
        if mistyped := _MISTYPED.match(str(index)):
            raise RequirementError(
                f"an address needs {mistyped[1].lower()}:// before its host; this one has not (it is not repeated, as "
                "a password may be in it)"
            )
        return importlib.import_module("subtext.retrieval.stores.folder").Folder
    scheme = str(index).partition("://")[0]
    for extra, (schemes, packages, kind) in INSTALLED.items():
        if scheme in schemes:
            missing = [name for name in packages if importlib.util.find_spec(name) is None]
            if missing:
                raise RequirementError(
                    f"an index at {scheme}:// needs {' and '.join(missing)}; it is not installed; {install_hint(extra)}"
                )
            module, _, name = kind.partition(":")
            return getattr(importlib.import_module(f"subtext.retrieval.stores.{module}"), name)
    for point in entry_points(group=GROUP, name=scheme):
        loaded = point.load()
        if not (isinstance(loaded, type) and issubclass(loaded, Store)):
            raise RequirementError(f"the entry point '{scheme}' of {GROUP} needs to be a Store; it is {loaded!r}")
        return loaded
    built_in = chain(*(schemes for schemes, _, _ in INSTALLED.values()))
    installed = sorted({point.name for point in entry_points(group=GROUP)}.union(built_in))
    named = f"{scheme}://" if re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme) else "this scheme"
    raise RequirementError(f"no store opens addresses of {named}; installed are {', '.join(installed)}")


def open_store(index: Path | str) -> Store:
    """Open an index.

    Args:
        index: Folder or address of the index.

    Returns:
        The open index.

    Raises:
        SearchIndexError: If there is none, or it cannot be read.
        RequirementError: Without the store's extra.
    """
    return store_class(index)(str(index))  # type: ignore[call-arg]


def create_store(index: Path | str, manifest: Manifest) -> Store:
    """Create an empty index.

    Args:
        index: Folder or address of the new index.
        manifest: Describes the index: model, width and views of the vectors, root of the paths.

    Returns:
        The open index.

    Raises:
        SearchIndexError: If the name is taken.
        OutputError: If it cannot be written there.
    """
    return store_class(index).create(str(index), manifest)
