"""An index whose place is taken by another one at a given moment of a change: what is left of both.

A place has two indexes: the one at `live`, which is opened and changed, and `other`, which takes its place. `swap` puts
the first one to `aside` and the other one to `live`, as `mv` or a new link do. A store is added by one more such class.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import stored_items

from subtext.retrieval.stores.item import Change
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


PLACES: dict[str, Callable[[Path], FolderPlace]] = {
    "folder": FolderPlace,
    "link": lambda folder: FolderPlace(folder, link=True),
}
"""What is put in the place of what, in which store."""


def made(place: FolderPlace, *, copy: bool) -> Store:
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


VERBS: dict[str, Callable[[Store], None]] = {
    "add": add, "update": update, "delete": delete, "compact": compact, "move": move,
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
