"""An index that is changed by a process which is killed, and what it must not lose.

The child says what was acknowledged through a pipe; the parent kills it, opens the index, and looks. Half of the kills
come at a drawn call of a function, so that each place between two of them is met; the others at a drawn moment, which
may be in the midst of SQLite's own writing.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import stored_items

from subtext.api.index.maintain import delete_from_index, restore_index
from subtext.retrieval.stores.folder import Folder, backup
from subtext.retrieval.stores.item import Change, IndexEntry
from subtext.retrieval.traces import trace_name

STEP = 4
Tell = Callable[[int], None]


def adding(path: Path, tell: Tell) -> None:
    """Six pieces of new pictures with a text each; one of them replaces pictures that were there."""
    with Folder(path).writing("add") as writer:
        for piece in range(6):
            numbers = range(100 + piece * STEP, 100 + (piece + 1) * STEP)
            writer.put(stored_items.images(numbers))
            entries = [stored_items.text(number) for number in numbers]
            links = [(f"p{number}", f"t{number}") for number in numbers]
            writer.put(Change("texts", entries, stored_items.vectors(numbers, 1), links=links))
            tell(piece)


def deleting(path: Path, tell: Tell) -> None:
    """Six pieces of pictures, with their texts and thumbnails."""
    with Folder(path).writing("delete") as writer:
        for piece in range(6):
            writer.delete("images", [f"p{number}" for number in range(piece * STEP, (piece + 1) * STEP)])
            tell(piece)


def compacting(path: Path, tell: Tell) -> None:
    """What two writers left in pieces, by lists on one side."""
    with Folder(path).writing("compact") as writer:
        writer.compact()
        tell(0)


def deleting_ids(path: Path, tell: Tell) -> None:
    """What `subtext index delete INDEX p0 p1 p2` does."""
    delete_from_index(path, ("p0", "p1", "p2"))
    tell(0)


def deleting_where(path: Path, tell: Tell) -> None:
    """Delete all items that have a field: nothing has it afterwards."""
    delete_from_index(path, where=("rare = true",))
    tell(0)


def copying(path: Path, tell: Tell) -> None:
    """A backup beside the index."""
    backup(Folder(path), path.parent / "copy")
    tell(0)


def restoring(path: Path, tell: Tell) -> None:
    """An index from a backup; the prepared one serves as such."""
    restore_index(path, path.parent / "copy")
    tell(0)


CAPTION = "Quincunx of Zanzibar"


def with_secret(path: Path) -> Folder:
    """An index of 40 pictures, and one more, 'secret', with a caption of words that no other has."""
    folder = stored_items.made(path)
    with folder.writing("add") as writer:
        writer.put(SECRET)
        writer.put(SECRET_TEXT)
    folder.close()
    return folder


def begun(folder: Folder, letter: str) -> Folder:
    """A store of another model beside an index, with all of its items that are not in it yet; not put in use."""
    with folder.reading() as view:
        ids = {item.id for item in view.items("images", view.keys("images"))}
    new = folder.create_replacement(replace(stored_items.manifest(), fingerprint=letter * 32))
    with new.writing("move") as writer:
        writer.put(stored_items.images(range(40)))
        writer.put(stored_items.texts(range(60)))
        if "secret" in ids:
            writer.put(SECRET)
            writer.put(SECRET_TEXT)
    return new


def moving(path: Path, tell: Tell) -> None:
    """The items of an index get vectors of another model."""
    folder = Folder(path)
    folder.replace_with(begun(folder, "e"), since=folder.manifest.revision)
    tell(0)


def deleting_secret(path: Path, tell: Tell = lambda piece: None) -> None:
    """The picture 'secret' is deleted, with its caption."""
    with Folder(path).writing("delete") as writer:
        writer.delete("images", ["secret"])
    tell(0)


SECRET = Change(
    "images", [IndexEntry("secret", b"s", path="secret.png")], stored_items.vectors(range(500, 501), stored_items.VIEWS)
)
SECRET_TEXT = Change(
    "texts",
    [IndexEntry("secret/0", b"s", text=CAPTION)],
    stored_items.vectors(range(500, 501), 1),
    links=[("secret", "secret/0")],
)
VERBS = {
    "add": adding,
    "delete": deleting,
    "compact": compacting,
    "delete ids": deleting_ids,
    "delete where": deleting_where,
    "backup": copying,
    "restore": restoring,
    "move": moving,
    "delete secret": deleting_secret,
    "compact stores": compacting,
}


def prepared(path: Path, verb: str) -> Folder:
    """The index before: 40 pictures, 60 texts, and thumbnails; for a compaction in several pieces, some deleted."""
    if verb in ("move", "delete secret", "compact stores"):
        folder = with_secret(path)
        if verb != "move":
            folder = folder.replace_with(begun(folder, "c"), since=folder.manifest.revision)
            begun(folder, "e").close()
            folder.close()
        if verb == "compact stores":
            deleting_secret(path)
        return folder
    folder = stored_items.made(path, exact_up_to=50 if verb == "compact" else 200_000)
    (path / "cache").mkdir()
    for number in range(40):
        (path / "cache" / f"{trace_name('images', f'p{number}')}.webp").write_bytes(b"small")
    if verb == "compact":
        with folder.writing("add") as writer:
            for start in range(40, 52, STEP):
                writer.put(stored_items.images(range(start, start + STEP)))
            writer.delete("images", [f"p{number}" for number in range(STEP)])
    folder.close()
    return folder


def length_of(path: Path, verb: str) -> tuple[int, float]:
    """How many calls of functions the verb makes when nobody stops it, and about how many seconds it takes."""
    started = time.monotonic()
    reading, writing = os.pipe()
    child = _forked(path, verb, writing, at_call=10**9, count_to=writing)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as told:
        return int(told.read().split(b"#")[1]), time.monotonic() - started


def killed(path: Path, verb: str, *, seed: int, length: tuple[int, float]) -> tuple[bool, list[int]]:
    """Run the verb and kill it; whether it was killed, and the pieces that it had acknowledged."""
    draws = random.Random(seed)
    reading, writing = os.pipe()
    by_call = seed % 2 == 0
    child = _forked(path, verb, writing, at_call=draws.randint(1, length[0]) if by_call else None)
    os.close(writing)
    if not by_call:
        time.sleep(draws.uniform(0.0, length[1]))
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as told:
        pieces = list(told.read())
    if not os.WIFSIGNALED(status) and os.waitstatus_to_exitcode(status):
        raise AssertionError(f"the {verb} failed by itself")
    return os.WIFSIGNALED(status), pieces


def _forked(path: Path, verb: str, writing: int, *, at_call: int | None, count_to: int | None = None) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        made = [0]

        def hear(frame: object, event: str, argument: object) -> None:
            made[0] += 1
            if made[0] == at_call:
                os.kill(os.getpid(), signal.SIGKILL)

        if at_call is not None:
            sys.setprofile(hear)
        VERBS[verb](path, lambda piece: os.write(writing, bytes([piece])) and None)
        sys.setprofile(None)
        if count_to is not None:
            os.write(count_to, b"#%d#" % made[0])
        code = 0
    finally:
        # The child must not go on into its parent's program, whatever happened.
        if code:
            traceback.print_exc()
        os._exit(code)
