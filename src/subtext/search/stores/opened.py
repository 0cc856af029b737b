"""An index by its location: a folder's path, or an address whose scheme names the store that opens it.

`library` is a folder; `postgresql://user@host/database?index=library` an index in PostgreSQL. Other schemes are
those of installed entry points of the group "subtext.stores"; see `store`.
"""

from __future__ import annotations

import importlib
import importlib.util
from importlib.metadata import entry_points
from pathlib import Path

from subtext.errors import IndexError_, RequirementError
from subtext.search.stores.folder import Folder
from subtext.search.stores.lock import StoreGone
from subtext.search.stores.manifest import Manifest
from subtext.search.stores.store import Problem, Store

GROUP = "subtext.stores"
"""Entry points of stores from outside the package."""
POSTGRES = ("postgresql", "postgres")
NEEDED = ("psycopg", "pgvector")


def is_address(index: Path | str) -> bool:
    """Whether an index is named by an address, and not by a folder.

    >>> is_address("postgresql://localhost/archive?index=library"), is_address("library")
    (True, False)
    """
    return isinstance(index, str) and "://" in index


def store_class(index: Path | str) -> type[Store]:
    """The store that opens an index of this location.

    Raises RequirementError for a scheme that no installed store has, or an address in PostgreSQL without the extra
    "postgres".
    """
    if not is_address(index):
        return Folder
    scheme = str(index).partition("://")[0]
    if scheme in POSTGRES:
        missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            raise RequirementError(
                f"an index in PostgreSQL needs {' and '.join(missing)}; it is not installed; install the extra: "
                "pip install 'subtext[postgres]'"
            )
        postgres: type[Store] = importlib.import_module("subtext.search.stores.postgres.database").Database
        return postgres
    for point in entry_points(group=GROUP, name=scheme):
        loaded = point.load()
        if not (isinstance(loaded, type) and issubclass(loaded, Store)):
            raise RequirementError(f"the entry point '{scheme}' of {GROUP} needs to be a Store; it is {loaded!r}")
        return loaded
    installed = sorted({point.name for point in entry_points(group=GROUP)} | set(POSTGRES))
    raise RequirementError(f"no store opens addresses of {scheme}://; installed are {', '.join(installed)}")


def name_of(index: Path | str) -> str:
    """A short name of an index: that of its folder, or of the index in its database; nothing secret is in it."""
    return store_class(index).name_of(str(index))


def open_store(index: Path | str) -> Store:
    """The index of that location.

    Raises IndexError_ when there is none, or it cannot be read; RequirementError without the store's extra.
    """
    return store_class(index)(str(index))  # type: ignore[call-arg]


def create_store(index: Path | str, manifest: Manifest) -> Store:
    """An empty index. Raises IndexError_ when the name is taken, OutputError when it cannot be written there."""
    return store_class(index).create(str(index), manifest)


def exists(index: Path | str) -> bool:
    """Whether there is an index at that location."""
    return store_class(index).exists(str(index))


def require_free(index: Path | str) -> None:
    """Raise IndexError_ unless an index can be created at that location."""
    store_class(index).require_free(str(index))


def verify(index: Path | str) -> list[Problem]:
    """All damage of an index; empty for an intact one. Raises IndexError_ only where there is no index at all."""
    kind = store_class(index)
    try:
        store = open_store(index)
    except StoreGone:
        raise
    except IndexError_ as problem:
        if not kind.exists(str(index)):
            raise
        return kind.damage(str(index), problem)
    try:
        return store.problems()
    finally:
        store.close()
