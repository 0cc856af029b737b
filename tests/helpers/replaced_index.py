"""An index whose place is taken by another one at a given moment of a change: what is left of both.

A place has two indexes: the one at `live`, which is opened and changed, and `other`, which takes its place. `swap` puts
the first one to `aside` and the other one to `live`, as `mv` or a new link do. A store is added by one more such class.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import psycopg
import stored_items

from subtext.retrieval.calibration import Calibration, store_calibration
from subtext.retrieval.stores.item import Change
from subtext.retrieval.stores.postgres import Address
from subtext.retrieval.stores.registry import open_store
from subtext.retrieval.stores.store import Store

OWN, OTHER = range(40), range(500, 530)
"""Numbers of the images of the index that is opened, and of the one that takes its place."""
GONE = "p24"
"""What the other index does not have if it is a copy; a near image of what the tests search for."""
ADDED = [range(100 + 4 * piece, 104 + 4 * piece) for piece in range(4)]
DELETED = [range(4 * piece, 4 * piece + 4) for piece in range(4)]


class FolderPlace:
    """Two index folders.

    Args:
        folder: An empty folder.
        link: The live path is a symbolic link, which is set anew.
    """

    def __init__(self, folder: Path, *, link: bool = False) -> None:
        self.link = link
        self.live, self.other = str(folder / "live"), str(folder / "other")
        self._first, self.aside = folder / "first", str(folder / ("first" if link else "aside"))

    def begin(self) -> None:
        """Called when the index at `live` is made."""
        if self.link:
            Path(self.live).rename(self._first)
            Path(self.live).symlink_to(self._first)

    def copy(self) -> None:
        """Make the other index a copy of the first."""
        shutil.copytree(self.live, self.other)

    def swap(self) -> None:
        """Put the other index in the place of the first."""
        if self.link:
            new = Path(f"{self.live}.new")
            new.symlink_to(self.other)
            new.replace(self.live)
        else:
            os.rename(self.live, self.aside)  # noqa: PTH104  (a path of pathlib would be a call that is counted)
            os.rename(self.other, self.live)  # noqa: PTH104

    def content(self, address: str) -> object:
        """All that the index at an address consists of; equal only if nobody has changed it."""
        files = [file for file in sorted(Path(address).rglob("*")) if file.is_file()]
        ours = [file for file in files if file.name != "lock" and not file.name.endswith(("-wal", "-shm"))]
        return {str(file.relative_to(address)): file.read_bytes() for file in ours}


class LancePlace:
    """Two folders of LanceDB; see `FolderPlace`."""

    def __init__(self, folder: Path, *, link: bool = False) -> None:
        self.paths = FolderPlace(folder, link=link)
        self.begin, self.copy, self.swap = self.paths.begin, self.paths.copy, self.paths.swap
        names = (self.paths.live, self.paths.other, self.paths.aside)
        self.live, self.other, self.aside = (f"lance://{name}" for name in names)

    def content(self, address: str) -> object:
        """See `FolderPlace`; files that no version names, as a refused change leaves them, do not count."""
        return self.paths.content(address.removeprefix("lance://"))


class DatabasePlace:
    """Two schemas of the server `server`; see `FolderPlace`."""

    server: ClassVar[Any] = None

    def __init__(self, folder: Path) -> None:
        names = [f"{name}_{uuid.uuid4().hex[:8]}" for name in ("live", "other", "aside")]
        self.names = names
        self.live, self.other, self.aside = map(self.server.address, names)
        self._dump, self._swapping = folder / "dump", threading.Thread(target=self._swap)

    def begin(self) -> None:
        """Nothing is to be done."""

    def _run(self, statements: str) -> None:
        with psycopg.connect(**Address.parse(self.live).parameters, autocommit=True) as connection:
            connection.execute(f"SET lock_timeout TO '100ms'; {statements}")

    def copy(self) -> None:
        """See `FolderPlace`."""
        live, other, _ = self.names
        self.server.run("pg_dump", f"--schema={live}", f"--file={self._dump}", "postgres")
        self._run(f"ALTER SCHEMA {live} RENAME TO waiting")
        self.server.run("psql", "--quiet", "--dbname=postgres", f"--file={self._dump}")
        self._run(f"ALTER SCHEMA {live} RENAME TO {other}; ALTER SCHEMA waiting RENAME TO {live}")

    def swap(self) -> None:
        """See `FolderPlace`; where the change holds a lock on the name, as soon as it is free."""
        self._swapping.start()
        self._swapping.join(0.2)

    def _swap(self) -> None:
        live, other, aside = self.names
        for _ in range(300):
            with suppress(psycopg.errors.LockNotAvailable, psycopg.errors.UndefinedObject):
                self._run(f"ALTER SCHEMA {live} RENAME TO {aside}; ALTER SCHEMA {other} RENAME TO {live}")
                return
            time.sleep(0.02)

    def content(self, address: str) -> object:
        """See `FolderPlace`."""
        if self._swapping.ident is not None:
            self._swapping.join()
        name = Address.parse(address).name
        tables = ("manifest", "state", "items", "links", "facets", "images_vectors", "forgotten", "jobs", "kept")
        with psycopg.connect(**Address.parse(address).parameters) as connection:
            return {
                table: connection.execute(f'SELECT t::text FROM "{name}".{table} AS t ORDER BY 1').fetchall()  # type: ignore[call-overload]
                for table in tables
            }


PLACES: dict[str, Callable[[Path], Any]] = {
    "folder": FolderPlace,
    "link": lambda folder: FolderPlace(folder, link=True),
    "lance": LancePlace,
    "lance link": lambda folder: LancePlace(folder, link=True),
    "postgresql": DatabasePlace,
}
"""What is put in the place of what, in which store."""


def made(place: Any, *, copy: bool) -> Store:
    """Both indexes; the one at `live`, opened. A copy has its identity, and other changes since."""
    store = stored_items.made(place.live)
    with store.writing("delete") as writer:
        writer.put(stored_items.images(range(40, 44)))
        writer.delete("images", [f"p{number}" for number in range(40, 44)])
    store.close()
    place.begin()
    if copy:
        place.copy()
        with open_store(place.other).writing("delete") as writer:
            writer.delete("images", [GONE])
    else:
        other = stored_items.made(place.other, pictures=0, words=0)
        with other.writing("add") as writer:
            writer.put(stored_items.images(OTHER))
        other.close()
    return open_store(place.live)


def add(store: Store) -> None:
    """Several pieces of items."""
    with store.writing("add") as writer:
        job = writer.begin("add", source={"data": "/data"}, total=16)
        for numbers in ADDED:
            writer.put(stored_items.images(numbers), job=job)
        writer.finish(job)


def update(store: Store) -> None:
    """Items with another content, and some that are not in the data any more."""
    with store.writing("update") as writer:
        for numbers in DELETED:
            changed = [replace(stored_items.picture(number), content=b"new") for number in numbers]
            writer.put(Change("images", changed, stored_items.vectors(numbers, stored_items.VIEWS)))
        gone = [name for name in writer.ids("images") if name in {f"p{number}" for number in range(30, 36)}]
        writer.delete("images", gone, keep_texts=True, remember=False)


def delete(store: Store) -> None:
    """Several pieces of items."""
    with store.writing("delete") as writer:
        for numbers in DELETED:
            writer.delete("images", [f"p{number}" for number in numbers])


def compact(store: Store) -> None:
    """Everything."""
    with store.writing("compact") as writer:
        writer.compact()


def move(store: Store) -> None:
    """To another model."""
    with store.reading() as view:
        since, names = view.revision, [row.id for row in view.rows("images", keys=view.keys("images").tolist())]
    new = store.create_replacement(replace(stored_items.manifest(), fingerprint="e" * 32))
    with new.writing("move") as writer:
        for start in range(0, len(names), 20):
            numbers = [int(name[1:]) for name in names[start : start + 20]]
            for number in numbers:
                writer.put(stored_items.images(range(number, number + 1)))
    store.replace_with(new, since=since)


def calibrate(store: Store) -> None:
    """A calibration and its plot."""
    line, last = {"xs": [0.0], "ys": [0.5]}, {"images": 1, "texts": 1}
    made_for = Calibration({}, line, {}, dict(store.counts), last, store.manifest.identity)
    store_calibration(store, made_for, "<svg/>")


VERBS: dict[str, Callable[[Store], None]] = {
    "add": add, "update": update, "delete": delete, "compact": compact, "move": move,
    "calibrate": calibrate,
}  # fmt: skip


@contextmanager
def at_call(number: int, act: Callable[[], None]) -> Iterator[list[int]]:
    """Inside the block `act` is done at that call of a function; the number of calls so far."""
    made = [0]

    def hear(frame: object, event: str, argument: object) -> None:
        made[0] += 1
        if made[0] == number:
            sys.setprofile(None)
            act()

    sys.setprofile(hear)
    try:
        yield made
    finally:
        sys.setprofile(None)
