"""An index by its name: a folder's path, or the address of one in PostgreSQL.

`library` is a folder; `postgresql://user@host/database?index=library` an index in a database.
What PostgreSQL needs (the extra "postgres") is imported only when such an address is opened.
"""

from __future__ import annotations

import importlib
import importlib.util
import shutil
from pathlib import Path
from types import ModuleType

from subtext.errors import IndexError_, RequirementError
from subtext.search.stores import folder
from subtext.search.stores.compaction import compact
from subtext.search.stores.folder import Folder, create, require_new
from subtext.search.stores.item import SIDES
from subtext.search.stores.manifest import MANIFEST, Manifest
from subtext.search.stores.store import Store, StoreWriter
from subtext.search.stores.writer import Writer

SCHEMES = ("postgresql://", "postgres://")
"""How the address of an index in PostgreSQL begins."""


def is_address(index: Path | str) -> bool:
    """Whether an index is named by an address, and not by a folder.

    >>> is_address("postgresql://localhost/archive?index=library"), is_address("library")
    (True, False)
    """
    return isinstance(index, str) and index.startswith(SCHEMES)


def name_of(index: Path | str) -> str:
    """What an index is called: the name of its folder, or of the schema in its database; nothing secret is in it."""
    if is_address(index):
        database()
        return str(importlib.import_module("subtext.search.stores.postgres.address").Address.parse(index).name)
    return Path(index).expanduser().resolve().name


def open_store(index: Path | str) -> Store:
    """The index of that name.

    Raises IndexError_ when there is none, or it cannot be read; RequirementError for an address without the extra
    "postgres".
    """
    if is_address(index):
        opened: Store = database().Database(str(index))
        return opened
    return Folder(Path(index).expanduser())


def create_store(index: Path | str, manifest: Manifest) -> Store:
    """An empty index. Raises IndexError_ when the name is taken, OutputError when it may not be written there."""
    if is_address(index):
        made: Store = database().create(str(index), manifest)
        return made
    return create(Path(index), manifest)


def exists(index: Path | str) -> bool:
    """Whether there is an index of that name."""
    return bool(database().exists(str(index))) if is_address(index) else (Path(index) / MANIFEST).is_file()


def require_free(index: Path | str) -> None:
    """Raise IndexError_ unless an index of that name can be made."""
    if is_address(index):
        database().require_free(str(index))
    else:
        require_new(Path(index))


def remove_store(store: Store) -> None:
    """Remove an index of which nothing was acknowledged, wholly."""
    store.close()
    if isinstance(store, Folder):
        shutil.rmtree(store.path, ignore_errors=True)
    else:
        database().drop(store)


def beside(store: Store, manifest: Manifest) -> Store:
    """An index for the vectors of another model beside one that goes on serving; see `folder.beside`."""
    if isinstance(store, Folder):
        return folder.beside(store, manifest)
    made: Store = _moving().beside(store, manifest)
    return made


def swap(store: Store, new: Store, *, generation: int) -> Store:
    """Put the index that was made beside another one in its place.

    generation  that the other one had when the move began

    Raises IndexError_ when it was changed since.
    """
    if isinstance(store, Folder):
        assert isinstance(new, Folder)
        with store.writing("move") as writer:
            if writer.manifest.generation != generation:
                raise IndexError_(
                    f"{store.path} was changed while it was moved; give the move again: it embeds what is new, and "
                    "nothing else"
                )
            return folder.swap(store, new)
    done: Store = _moving().swap(store, new, generation=generation)
    return done


def _moving() -> ModuleType:
    return importlib.import_module("subtext.search.stores.postgres.moving")


def make_lists(writer: StoreWriter) -> None:
    """Prepare an index that is too large to compare every vector: lists in a folder, graphs in a database."""
    if all(writer.shelf(side).rows <= writer.manifest.exact_up_to for side in SIDES):
        return
    if isinstance(writer, Writer):
        compact(writer)
    else:
        importlib.import_module("subtext.search.stores.postgres.compaction").compact(writer)


def database() -> ModuleType:
    """The module `postgres.database`, which opens indexes there. Raises RequirementError without the extra."""
    missing = [name for name in ("psycopg", "pgvector") if importlib.util.find_spec(name) is None]
    if missing:
        raise RequirementError(
            f"an index in PostgreSQL needs {' and '.join(missing)}; it is not installed; install the extra: "
            "pip install 'subtext[postgres]'"
        )
    return importlib.import_module("subtext.search.stores.postgres.database")
