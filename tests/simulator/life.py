"""An archive that lives: a seed draws what happens to its files and its index, and a plain model says what must be.

The model is dictionaries. Every operation on the index runs in a child of its own, which may be killed; another child
then reads the whole index, which must be what the model says: after an operation that ended, what comes after it; after
one that was killed, each item as it was before or as it comes after. A disk that loses what was not flushed is `disk`.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import random
import re
import shutil
import signal
import sys
import tarfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from io import BytesIO
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import coloured_images
import numpy as np
from PIL import Image

from simulator import disk

LOCKED: set[Path] = set()
"""Files that nobody may read at this moment: the rights of a file do not hold back an administrator."""
CLOCK = [timedelta()]
"""What is added to the time of the day."""
MODELS: dict[str, tuple[Any, Any]] = {}
"""Folder of a run -> its model and its record, opened once for all children."""
VECTORS: dict[tuple[str, str, bytes | str], np.ndarray] = {}
"""Letter of the model, side, and content -> vectors."""
OTHERS = ("@eaDir", "other index")
"""Folders whose files are no items: of a system, and another index."""
WORDS = "river gavel market harbour tower bridge garden window winter letter".split()  # noqa: SIM905


class Disagreement(AssertionError):
    """The index is not what the model says."""


@dataclass
class State:
    """What an index must hold.

    Attributes:
        images: Id -> (bytes of the file, metadata).
        texts: Id -> (words, ids of the linked images).
        removed: (side, id) of items that were deleted by hand and stay away.
        sources: Data sets that an update reads.
        model: Letter of the model.
    """

    images: dict[str, tuple[bytes, dict[str, Any]]] = field(default_factory=dict)
    texts: dict[str, tuple[str, frozenset[str]]] = field(default_factory=dict)
    removed: set[tuple[str, str]] = field(default_factory=set)
    sources: list[str] = field(default_factory=list)
    model: str = "a"


@dataclass
class Outcome:
    """How an operation in a child ended: "done" with its value, "refused" with the message, or "killed"."""

    kind: str
    value: Any = None


def prepare(place: Path) -> None:
    """Two runs of random weights, opened once; what children must not do to the machine is put in front of it."""
    from subtext.api import load
    from subtext.retrieval import build, sentences
    from subtext.retrieval.stores import folder, sql

    runs = coloured_images.runs(place / "runs", "run", "other")
    plain = load.ModelSource.open

    def opened(source: Any, **options: Any) -> tuple[Any, Any]:
        key = str(source.run)
        if key not in MODELS:
            MODELS[key] = plain(source, **options)
        return MODELS[key]

    load.ModelSource.open = opened  # type: ignore[method-assign]
    for name in ("run", "other"):
        opened(load.ModelSource(runs / name), device="cpu")

    # The sentence encoder, too, is opened once.
    encoder = sentences.open_sentence_encoder("starter")
    digest = sentences.encoder_fingerprint(encoder.text)
    sentences.open_sentence_encoder = lambda name: encoder  # type: ignore[assignment]
    sentences.encoder_fingerprint = lambda branch: digest  # type: ignore[assignment]

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + CLOCK[0]

    for module in (build, folder, sql):
        module.datetime = Clock  # type: ignore[attr-defined]
    from_disk = Path.open

    def guarded(path: Path, *words: Any, **options: Any) -> Any:
        if LOCKED and path.absolute() in LOCKED:
            raise PermissionError(13, "Permission denied", str(path))
        return from_disk(path, *words, **options)

    Path.open = guarded  # type: ignore[method-assign, assignment]


def run_of(place: Path, letter: str) -> Path:
    return place / "runs" / {"a": "run", "b": "other"}[letter]


def vectors_of(place: Path, letter: str, side: str, contents: list[Any]) -> np.ndarray:
    """(N D) vectors of contents, each computed once."""
    model = MODELS[str(run_of(place, letter))][0]
    for content in contents:
        if (letter, side, content) not in VECTORS:
            embed = model.embed_images if side == "images" else model.embed_texts
            VECTORS[letter, side, content] = embed([content]).vectors.float().numpy().reshape(-1)
    return np.stack([VECTORS[letter, side, content] for content in contents])


def child(work: Callable[[], Any], *, kill: Callable[[], None] | None = None, wait: float | None = None) -> Outcome:
    """Do something in a forked process; `kill` arms what ends it, and `wait` seconds end it from outside."""
    reading, writing = os.pipe()
    number = os.fork()
    if not number:
        code = 1
        try:
            os.close(reading)
            sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123
            if kill is not None:
                kill()
            from subtext.errors import SubtextError

            try:
                answer = Outcome("done", work())
            except SubtextError as problem:
                answer = Outcome("refused", f"{type(problem).__name__}: {problem}")
            except Exception:  # noqa: BLE001 (told to the parent)
                answer = Outcome("failed", traceback.format_exc())
            sys.setprofile(None)
            with os.fdopen(writing, "wb") as told:
                told.write(pickle.dumps(answer))
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    if wait is not None:
        time.sleep(wait)
        os.kill(number, signal.SIGKILL)
    with os.fdopen(reading, "rb") as told:
        data = told.read()
    os.waitpid(number, 0)
    if not data:
        return Outcome("killed")
    answer: Outcome = pickle.loads(data)  # noqa: S301 (of our own child)
    if answer.kind == "failed":
        raise Disagreement(answer.value)
    return answer


def dying(number: int) -> Callable[[], None]:
    """The process kills itself at its n-th call or return of a function."""

    def arm() -> None:
        left = [number]

        def hear(frame: object, event: str, argument: object) -> None:
            left[0] -= 1
            if left[0] <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.setprofile(hear)

    return arm


def dying_at_statement(number: int) -> Callable[[], None]:
    """The process kills itself before its n-th statement to PostgreSQL."""

    def arm() -> None:
        import psycopg

        left, plain = [number], psycopg.Cursor.execute

        def run(*words: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return plain(*words, **options)

        psycopg.Cursor.execute = run  # type: ignore[method-assign]

    return arm


class Life:
    """One archive with its index, from a seed.

    Args:
        place: Folder with the runs, for all lives.
        seed: Draws everything.
        store: "folder", "lance" or "postgresql".
        address: Of an index in a store that is no folder.
        losing: Whether the recorder of `disk` is there.
    """

    def __init__(self, place: Path, seed: int, store: str, *, address: str = "", losing: bool = False) -> None:
        self.draws, self.store, self.losing, self.seed = random.Random(f"{seed} {store}"), store, losing, seed
        self.runs, self.place = place, place / f"life-{store}-{seed}"
        self.place.mkdir()
        self.photos, self.table, self.pictures = (self.place / n for n in ("photos", "table.jsonl", "pictures"))
        self.index = address or str(self.place / "index")
        self.state, self.rows, self.count, self.trace = State(), dict[str, dict[str, Any]](), 0, list[str]()
        self.cut, self.cut_off, self.begun_move, self.killed = False, False, False, set[str]()
        self.backup: tuple[Path, State, set[str]] | None = None
        self.eyes: tuple[Connection, int] | None = None
        LOCKED.clear()
        CLOCK[0] = timedelta()
        for _ in range(self.draws.randint(5, 9)):
            self.add_photo()
        for _ in range(self.draws.randint(8, 12)):
            self.add_row()
        self.write_table()
        first, data = self.draws.choice([("photos", self.photos), ("table", self.table)])
        self.state.sources = [first]
        wanted, _ = self.after_reading([first], deleting=False, base=State(sources=[first]))
        built = self.run(lambda: self.api().build_index(self.index, data, run=run_of(self.runs, "a"), **QUIET))
        self.require(built.kind == "done", f"build: {built}")
        self.state = wanted
        self.check()

    def api(self) -> Any:
        from subtext.api.index import build

        return build

    def require(self, right: bool, what: str) -> None:
        if not right:
            raise Disagreement(what)

    # What happens to the files.

    def new_picture(self) -> bytes:
        self.count += 1
        buffer, colour = BytesIO(), tuple(self.draws.randrange(256) for _ in range(3))
        Image.new("RGB", (8, 8), colour).save(buffer, "bmp")
        return buffer.getvalue()

    def write(self, file: Path, content: bytes) -> None:
        """In place or by a rename, sometimes with the time of before or of another year."""
        file.parent.mkdir(parents=True, exist_ok=True)
        before = file.stat().st_mtime_ns if file.exists() else None
        if self.draws.random() < 0.5:
            file.with_name(".new").write_bytes(content)
            file.with_name(".new").replace(file)
        else:
            file.write_bytes(content)
        if before is not None and self.draws.random() < 0.5:
            os.utime(file, ns=(before, before))
        elif self.draws.random() < 0.2:
            second = self.draws.choice((0, 2_000_000_000))
            os.utime(file, (second, second))

    def some(self, folder: Path) -> Path | None:
        found = sorted(p for p in folder.rglob("*.bmp") if p.is_file() and not p.is_symlink() and p not in LOCKED)
        found = [p for p in found if not any(it.startswith((".", *OTHERS)) for it in p.relative_to(folder).parts)]
        return self.draws.choice(found) if found else None

    def add_photo(self) -> str:
        name = f"{self.draws.choice(('', 'a/', 'b/'))}p{self.count}.bmp"
        self.write(self.photos / name, self.new_picture())
        return name

    def rename_photo(self) -> str:
        if (file := self.some(self.photos)) is None:
            return "nothing"
        self.count += 1
        target = self.photos / self.draws.choice(("a", "c", "")) / f"r{self.count}.bmp"
        target.parent.mkdir(exist_ok=True)
        file.rename(target)
        return f"{file.name} to {target.name}"

    def rename_folder(self) -> str:
        found = sorted(self.photos.iterdir()) if self.photos.is_dir() else []
        folders = [p for p in found if p.is_dir() and not p.is_symlink() and p.name not in OTHERS]
        if not folders:
            return "nothing"
        self.count += 1
        self.draws.choice(folders).rename(self.photos / f"f{self.count}")
        return "an album"

    def replace_file(self) -> str:
        if (file := self.some(self.draws.choice((self.photos, self.pictures)))) is None:
            return "nothing"
        content = self.new_picture()
        self.write(file, content)
        return file.name

    def damage(self) -> str:
        if (file := self.some(self.draws.choice((self.photos, self.pictures)))) is None:
            return "nothing"
        content = file.read_bytes()
        self.write(file, content[: self.draws.choice((0, 20, len(content) - 40))])
        return file.name

    def repair(self) -> str:
        LOCKED.clear()
        for folder in (self.photos, self.pictures):
            for file in sorted(folder.rglob("*.bmp")):
                if file.is_file() and not readable(file):
                    self.write(file, self.new_picture())
        return ""

    def lock(self) -> str:
        if (file := self.some(self.draws.choice((self.photos, self.pictures)))) is None:
            return "nothing"
        os.utime(file, ns=(file.stat().st_mtime_ns, file.stat().st_mtime_ns))  # Its rights change, and so its stamp.
        LOCKED.add(file)
        return file.name

    def remove_file(self) -> str:
        if (file := self.some(self.draws.choice((self.photos, self.photos, self.pictures)))) is None:
            return "nothing"
        file.unlink()
        return file.name

    def unmount(self) -> str:
        away = self.place / "photos.away"
        if away.exists():
            shutil.rmtree(self.photos, ignore_errors=True)
            away.rename(self.photos)
            return "mounted again"
        self.photos.rename(away)
        if self.draws.random() < 0.7:
            self.photos.mkdir()
        return "unmounted"

    def stray(self) -> str:
        """Something that must not become an item, nor change what the folder is."""
        if not self.photos.is_dir():
            return "nothing"
        kind = self.draws.choice(("table", "metadata", "tar", "system", "pipe", "link", "hard link", "out", "index"))
        file = self.some(self.photos)
        if kind == "table":
            (self.photos / "captions.csv").write_text("file_name,caption\nnothing.bmp,words\n")
        elif kind == "metadata" and file:
            (file.parent / "metadata.csv").write_text(f"file_name,caption\n{file.name},words\n")
        elif kind == "tar" and file:
            with tarfile.open(self.photos / "all.tar", "w") as tar:
                tar.add(file, file.name)
        elif kind == "system":
            (self.photos / "@eaDir").mkdir(exist_ok=True)
            (self.photos / "@eaDir" / "thumb.bmp").write_bytes(self.new_picture())
        elif kind == "pipe" and not (self.photos / "pipe.bmp").exists():
            os.mkfifo(self.photos / "pipe.bmp")
        elif kind in ("link", "hard link") and file:
            self.count += 1
            name = self.photos / f"{self.draws.choice('az')}l{self.count}.bmp"
            name.symlink_to(file.resolve()) if kind == "link" else os.link(file, name)
        elif kind == "out" and not (self.photos / "out").is_symlink():
            (self.place / "elsewhere").mkdir(exist_ok=True)
            (self.place / "elsewhere" / "e.bmp").write_bytes(self.new_picture())
            (self.photos / "out").symlink_to(self.place / "elsewhere")
        elif kind == "index":
            other = self.photos / "other index"
            (other / "cache").mkdir(parents=True, exist_ok=True)
            (other / "manifest.json").write_text('{\n  "kind": "subtext index",\n')
            (other / "cache" / "t.bmp").write_bytes(self.new_picture())
        return kind

    def add_row(self) -> str:
        name = f"t{self.count}"
        self.write(self.pictures / f"{name}.bmp", self.new_picture())
        self.rows[name] = self.filled({"image": f"pictures/{name}.bmp", "id": name})
        return name

    def filled(self, row: dict[str, Any]) -> dict[str, Any]:
        self.count += 1
        # No other text has the last word: after a compaction nothing is left of it.
        words = " ".join([*self.draws.sample(WORDS, 3), f"only{self.seed}x{self.count}x"])
        return {
            **row,
            "caption": words,
            "number": self.draws.randrange(100),
            "town": self.draws.choice(("Ulm", "Bern")),
        }

    def edit_table(self) -> str:
        kind = self.draws.choice(("add", "add", "remove", "change", "change", "id", "cut", "half", "spelling"))
        name = self.draws.choice(sorted(self.rows)) if self.rows else ""
        self.cut, kept = False, dict(self.rows)
        if kind == "add" or not name:
            self.add_row()
        elif kind == "remove":
            del self.rows[name]
        elif kind == "change":
            self.rows[name] = self.filled(self.rows[name])
        elif kind == "spelling":
            image = self.rows[name]["image"]
            spelt = str(self.place / image) if not image.startswith("/") else os.path.relpath(image, self.place)
            self.rows[name]["image"] = spelt
        elif kind == "id":
            self.count += 1
            self.rows = {(f"n{self.count}" if it == name else it): row for it, row in self.rows.items()}
            self.rows[f"n{self.count}"]["id"] = f"n{self.count}"
        self.cut = kind == "cut"
        if kind == "half":
            self.rows = dict(list(kept.items())[: len(kept) // 2])
        self.write_table()
        if kind == "half" and self.draws.random() < 0.7:
            self.rows = kept  # Written whole by the next edit.
        return f"{kind} {name}"

    def change_row(self) -> str:
        name = self.draws.choice(sorted(self.rows))
        self.rows[name], self.cut = self.filled(self.rows[name]), False
        self.write_table()
        return name

    def write_table(self) -> None:
        lines = "".join(json.dumps(row) + "\n" for row in self.rows.values())
        self.write(self.table, (lines + ('{"image": "pictu' if self.cut else "")).encode())

    # What an update must make of them, in a loop.

    def photos_read(self) -> tuple[dict[str, bytes], set[str], bool]:
        """Id -> bytes of the photos; ids of those that cannot be read; and whether there is anything at all."""
        names: dict[int, list[tuple[bool, str]]] = {}
        for parent, folders, files in os.walk(self.photos):
            folders[:] = [name for name in folders if name not in OTHERS]
            for name in files:
                path = Path(parent, name)
                if path.suffix == ".bmp" and not name.startswith(".") and (path.is_file() or path.is_symlink()):
                    about = path.stat() if path.exists() else path.lstat()
                    names.setdefault(about.st_ino, []).append((path.is_symlink(), str(path.relative_to(self.photos))))
        found, unread = dict[str, bytes](), set[str]()
        for same in names.values():
            name = min(same)[1]
            path = self.photos / name
            if path in LOCKED or not path.exists() or not readable(path):
                unread.add(name)
            else:
                found[name] = path.read_bytes()
        return found, unread, bool(found)

    def table_read(self) -> tuple[dict[str, tuple[bytes, dict[str, Any], str]], set[str], bool, bool]:
        """Id -> (bytes, metadata, caption); unreadable ids; whether anything can be used; whether a row is cut off."""
        found, unread = dict[str, tuple[bytes, dict[str, Any], str]](), set[str]()
        lines, unclear = self.table.read_text().splitlines(), False
        for line in lines:
            try:
                row = json.loads(line)
            except ValueError:
                unclear = True
                continue
            path = self.place / row["image"]
            if path in LOCKED or not path.is_file() or not readable(path):
                unread.add(row["id"])
            else:
                found[row["id"]] = path.read_bytes(), {n: row[n] for n in ("number", "town")}, row["caption"]
        return found, unread, bool(found), unclear

    def after_reading(
        self, sources: list[str], *, deleting: bool, base: State | None = None, again: bool = False,
        allowed: int | None = None,
    ) -> tuple[State, bool]:  # fmt: skip
        """The state after data sets were read, and whether that is refused instead."""
        before = self.state if base is None else base
        after, present, unread, unclear = deepcopy(before), State(), set[str](), False
        for source in sources:
            if source == "photos":
                photos, bad, usable = self.photos_read()
                present.images |= {name: (content, {}) for name, content in photos.items()}
            else:
                table, bad, usable, cut = self.table_read()
                unclear |= cut
                present.images |= {name: (content, about) for name, (content, about, _) in table.items()}
                present.texts |= {f"{n}#0": (words, frozenset({n})) for n, (_, _, words) in table.items()}
            unread |= bad
            if not usable:
                return before, True
        linked = {name for name, (_, images) in before.texts.items() if images & unread}
        missing = {name for name in before.images if name not in present.images and name not in unread}
        lost = {name for name in before.texts if name not in present.texts and name not in linked}
        if deleting and not (unclear and allowed is None):
            count, total = len(missing) + len(lost), len(before.images) + len(before.texts)
            gone = Counter([before.images[name][0] for name in missing] + [before.texts[name][0] for name in lost])
            known = (set(), set()) if self.cut_off else (before.images.keys(), before.texts.keys())
            new: list[Any] = [content for name, (content, _) in present.images.items() if name not in known[0]]
            new += [words for name, (words, _) in present.texts.items() if name not in known[1]]
            really = (gone - Counter(new)).total()
            if allowed is None and really >= 10 and count > 0.1 * total and really > 0.1 * total:
                return before, True
            for name in missing:
                del after.images[name]
            for name in lost:
                del after.texts[name]
        for name, item in present.images.items():
            if again or ("images", name) not in before.removed:
                after.images[name] = item
                after.removed.discard(("images", name))
        for name, (words, images) in present.texts.items():
            if again or ("texts", name) not in before.removed:
                after.texts[name] = words, images
                after.removed.discard(("texts", name))
        # A link needs both of its ends.
        after.texts = {name: (words, images & after.images.keys()) for name, (words, images) in after.texts.items()}
        return after, False

    # What is done to the index.

    def run(self, work: Callable[[], Any], *, killing: bool = False) -> Outcome:
        """An operation in a child; sometimes it is killed, and sometimes the disk loses what was not flushed."""
        losing = self.losing and self.store == "folder" and Path(self.index).exists() and self.draws.random() < 0.3
        if not killing and not losing:
            return child(work)
        log, copy, place = self.place / "record", self.place / "before", Path(self.index.removeprefix("lance://"))
        if losing:
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(self.index, copy)
        number, arms = int(2 ** self.draws.uniform(0, 17)), list[Callable[[], None]]()
        at_write = self.losing and self.store != "postgresql" and (losing or self.draws.random() < 0.6)
        if at_write:
            most = int(2 ** self.draws.uniform(0, 9)) if killing else 0
            arms.append(lambda: disk.record(place, log if losing else Path(os.devnull), most=most))
        elif killing and self.store == "postgresql" and self.draws.random() < 0.6:
            arms.append(dying_at_statement(1 + number % 150))
        elif killing:
            arms.append(dying(number))
        outcome = child(work, kill=lambda: [arm() for arm in arms] and None)
        if losing and log.exists():
            self.close()  # No process outlives the machine.
            disk.crash(Path(self.index), copy, log, seed=self.draws.randrange(2**32))
            self.trace[-1] += " (power lost)"
        return outcome

    def do(self, name: str, work: Callable[[], Any], after: State, *, refused: bool) -> None:
        """An operation with what must come after it; when it is killed, it may have come half of the way."""
        killing = self.draws.random() < 0.35
        outcome = self.run(work, killing=killing)
        self.trace[-1] += f": {outcome.kind}"
        if outcome.kind == "killed":
            self.killed |= {{"watch": "update"}.get(name, name)} | ({"add"} if name == "move" else set())
            self.adopt(after if not refused else self.state)
            return
        if outcome.kind == "refused" and refused:
            self.trace[-1] += f" ({outcome.value[:150]})"
        self.require(
            (outcome.kind == "refused") == refused, f"{name} was {outcome.kind}, not as the model says: {outcome}"
        )
        self.state = after if not refused else self.state
        if name in ("update", "watch") and not refused:
            self.killed.discard("update")

    def update(self) -> str:
        allowed = None if self.draws.random() < 0.8 else 10_000
        after, refused = self.after_reading(self.state.sources, deleting=True, allowed=allowed)
        options = {**QUIET, "allow_deleting": allowed, "verify_files": self.draws.random() < 0.2}
        self.do("update", lambda: self.api().update_index(self.index, **options), after, refused=refused)
        return ""

    def watch(self) -> str:
        after, refused = self.after_reading(self.state.sources, deleting=True)
        after = self.state if refused else after
        killed = set(self.killed)
        self.do("watch", lambda: self.api().watch_index(self.index, max_checks=1, quiet=True), after, refused=False)
        if refused:  # It watches on where its update was refused, and a killed one waits for the next.
            self.killed |= killed
        return ""

    def add(self) -> str:
        source = self.draws.choice(("photos", "table"))
        data, again = {"photos": self.photos, "table": self.table}[source], self.draws.random() < 0.4
        if source == "photos" and source not in self.state.sources and any(self.photos.glob("*.csv")):
            return "nothing"  # It would be a folder with a table.
        if source not in self.state.sources and any((*self.photos.rglob("metadata.csv"), *self.photos.glob("*.tar"))):
            return "nothing"
        after, refused = self.after_reading([source], deleting=False, again=again)
        if not refused and source not in after.sources:
            after.sources = [*after.sources, source]
        options = {**QUIET, "restore_deleted": again}
        self.do("add", lambda: self.api().add_to_index(self.index, data, **options), after, refused=refused)
        return source

    def without(self, state: State, names: list[str]) -> State:
        after = deepcopy(state)
        for name in names:
            del after.images[name]
            after.removed.add(("images", name))
            for text, (_, images) in state.texts.items():
                if images == {name}:
                    after.texts.pop(text, None)
                    after.removed.add(("texts", text))
        return after

    def delete(self) -> str:
        from subtext.api.index.maintain import delete_from_index

        if len(self.state.images) < 4:
            return "nothing"
        if self.draws.random() < 0.7:
            names = self.draws.sample(sorted(self.state.images), self.draws.randint(1, 2))
            self.do(
                "delete",
                lambda: delete_from_index(self.index, tuple(names)),
                self.without(self.state, names),
                refused=False,
            )
            return " ".join(names)
        limit = self.draws.randrange(60)
        has_field = any("number" in about for _, about in self.state.images.values())
        names = sorted(n for n, (_, about) in self.state.images.items() if about.get("number", 1000) < limit)
        if not has_field or not names:
            return "nothing"
        after, condition = self.without(self.state, names), f"number < {limit}"
        self.do("delete", lambda: delete_from_index(self.index, where=(condition,)), after, refused=False)
        return condition

    def compact(self) -> str:
        from subtext.api.index.maintain import compact_index

        self.do("compact", lambda: compact_index(self.index), self.state, refused=False)
        if self.trace[-1] == "compact: done" and self.store == "folder":
            kept = {word for words, _ in self.state.texts.values() for word in words.split()}
            for file in filter(Path.is_file, sorted(Path(self.index).rglob("*"))):
                left = {word.decode() for word in re.findall(rb"only\d+x\d+x", file.read_bytes())} - kept
                self.require(not left, f"what was deleted is still on the disk: {left} in {file}")
        return ""

    def move_model(self) -> str:
        letter = {"a": "b", "b": "a"}[self.state.model]
        read, refused = self.after_reading(self.state.sources, deleting=False, base=State(), again=True)
        after = deepcopy(self.state)
        after.model = letter
        after.images = {name: item for name, item in read.images.items() if name in self.state.images}
        after.texts = {
            name: (words, images & after.images.keys())
            for name, (words, images) in read.texts.items()
            if name in self.state.texts
        }
        refused |= len(after.images) < len(self.state.images) or len(after.texts) < len(self.state.texts)
        if refused and self.begun_move:
            return "nothing"  # What the earlier attempt embedded may have been removed from the data since: it is kept.
        options = {**QUIET, "run": run_of(self.runs, letter), "even_if_worse": True}
        self.do("move", lambda: self.api().move_index(self.index, **options), after, refused=refused)
        self.begun_move = self.state.model != letter
        return letter

    def two_writers(self) -> str:
        """An update beside a deletion: whatever came first, what was deleted is gone."""
        from subtext.api.index.maintain import delete_from_index

        after, refused = self.after_reading(self.state.sources, deleting=True)
        names = sorted(name for name in self.state.images if name in after.images)
        if refused or len(names) < 4 or self.state.model == "moved":
            return "nothing"
        # What the update puts anew, where it could undo the deletion.
        anew = [name for name in names if after.images[name] != self.state.images[name]]
        chosen, delay = self.draws.choice(anew or names), self.draws.uniform(0, 0.15)
        beside = os.fork()
        if not beside:
            try:
                time.sleep(delay)
                told = child(lambda: delete_from_index(self.index, (chosen,)))
                (self.place / "beside").write_text(f"{told.kind} {told.value if told.kind == 'refused' else ''}")
            finally:
                os._exit(0)
        outcome = child(lambda: self.api().update_index(self.index, **QUIET))
        os.waitpid(beside, 0)
        deleted, _, why = (self.place / "beside").read_text().partition(" ")
        self.trace[-1] += f" {chosen}: {outcome.kind}, {deleted} {why[:150]}"
        busy = "IndexLockedError" in (str(outcome.value) if outcome.kind == "refused" else why)
        self.require(busy or outcome.kind == deleted == "done", f"two writers: {outcome}; {deleted} {why}")
        if outcome.kind == "done":
            self.state = after
        if deleted == "done":
            self.state = self.without(self.state, [chosen]) if chosen in self.state.images else self.state
        return ""

    def back_up(self) -> str:
        from subtext.api.index.maintain import backup_index

        if self.store != "folder":
            return "nothing"
        self.count += 1
        out = self.place / f"backup-{self.count}"
        self.do("backup", lambda: backup_index(self.index, out), self.state, refused=False)
        if out.exists():
            self.backup = out, deepcopy(self.state), set(self.killed)
        return ""

    def restore(self) -> str:
        from subtext.api.index.maintain import restore_index

        if self.backup is None:
            return "nothing"
        shutil.rmtree(self.index)
        copy, self.state, self.killed = self.backup[0], deepcopy(self.backup[1]), set(self.backup[2])
        self.close()
        outcome = child(lambda: restore_index(copy, self.index))
        self.require(outcome.kind == "done", f"restore: {outcome}")
        return ""

    def move_index(self) -> str:
        if self.store != "folder":
            return "nothing"
        self.count += 1
        target = self.place / f"index-{self.count}"
        self.close()
        Path(self.index).rename(target)
        self.index = str(target)
        return target.name

    def jump(self) -> str:
        CLOCK[0] = timedelta(days=self.draws.choice((-4000, -1, 0, 1, 4000)))
        return str(CLOCK[0])

    # Whether it is so.

    def step(self) -> None:
        """One thing that happens, and the comparison after it."""
        of_files = (
            self.add_photo, self.rename_photo, self.rename_folder, self.replace_file, self.damage, self.repair,
            self.lock, self.remove_file, self.unmount, self.stray, self.edit_table, self.edit_table, self.jump,
        )  # fmt: skip
        of_index = (
            self.update, self.update, self.update, self.watch, self.add, self.delete, self.compact, self.move_model,
            self.two_writers, self.back_up, self.restore, self.move_index,
        )  # fmt: skip
        what = self.draws.choice(of_files if self.draws.random() < 0.5 else of_index)
        if self.begun_move and self.rows and self.draws.random() < 0.5:
            # What a move that was cut off has embedded must follow what changes meanwhile.
            what = self.draws.choice((self.change_row, self.update, self.compact))
        if what == self.add_photo and not self.photos.is_dir():
            return
        self.trace.append(what.__name__)
        what_of = what()
        self.trace[-1] += f" {what_of}"
        if what in of_index:
            self.check()

    def observed(self, *others: State) -> dict[str, Any]:
        """The whole index as a child reads it."""
        asked = set().union(self.state.removed, *(other.removed for other in others))
        outcome = child(lambda: read_whole(self.index, asked, self.queries()))
        self.require(outcome.kind == "done", f"the index cannot be read: {outcome}")
        found: dict[str, Any] = outcome.value
        self.require(not found["damage"], f"verify: {found['damage']}")
        self.cut_off = "update" in found["open"]
        return found

    def look(self, ids: dict[str, list[str]], nearest: Any) -> None:
        """A reader that has had the index open for long sees the same, or says that it has to open it again."""
        for _ in range(2):
            if self.eyes is None:
                mine, theirs = Pipe()
                number = os.fork()
                if not number:
                    mine.close()
                    _look_on(theirs, self.index, self.queries())
                theirs.close()
                self.eyes = mine, number
            connection = self.eyes[0]
            connection.send("look")
            seen = connection.recv()
            if not isinstance(seen, str):
                break
            self.close()
        self.require(not isinstance(seen, str), f"a new reader cannot look: {seen}")
        self.require(seen[0] == ids, f"a reader of long ago sees {seen[0]}, not {ids}")
        for side in ("images", "texts"):
            scores = [
                [np.round(own, 4) for own in (one[1], two[1])]
                for one, two in zip(seen[1][side], nearest[side], strict=True)
            ]
            self.require(
                all(np.allclose(one, two, atol=1e-3) for one, two in scores), f"a reader of long ago finds other {side}"
            )

    def close(self) -> None:
        """End the reader."""
        if self.eyes is not None:
            self.eyes[0].close()
            os.waitpid(self.eyes[1], 0)
            self.eyes = None

    def queries(self) -> np.ndarray:
        return np.random.default_rng(self.seed).standard_normal((3, 16)).astype(np.float32)

    def adopt(self, after: State) -> None:
        """After a kill: each item is as before or as after; that is what the model has from now on."""
        found = self.observed(after)
        choices = [self.state, after]
        model = next((it.model for it in choices if run_of(self.runs, it.model).name == Path(found["run"]).name), None)
        self.require(model is not None, f"the index has the model {found['run']}")
        if self.state.model != after.model:
            self.state = self.state if model == self.state.model else after  # All of it, or nothing.
            return
        now = State(model=self.state.model, sources=self.state.sources)
        for side in ("images", "texts"):
            known, mine = found[side], getattr(now, side)
            for name in {*known, *getattr(self.state, side), *getattr(after, side)}:
                items = [getattr(it, side).get(name) for it in choices]
                wanted = [None if item is None else plain(side, item) for item in items]
                got = known.get(name)
                if side == "texts" and got is not None and got not in wanted:
                    # A text may have come before its link was made, or its image may be gone already.
                    words = [
                        item
                        for item in wanted
                        if item is not None and item[0] == got[0] and set(got[1]) <= set(item[1])
                    ]
                    self.require(bool(words), f"{name} is {got}, neither of {wanted}")
                    mine[name] = got[0], frozenset(got[1])
                    continue
                self.require(got in wanted, f"after a kill, {side} {name}: {got}, neither of {wanted}")
                if got is not None:
                    mine[name] = items[wanted.index(got)]
        for name in self.state.removed | after.removed:
            if name[1] in found["removed"][name[0]]:
                now.removed.add(name)
        certain = self.state.removed & after.removed
        self.require(certain <= now.removed, f"forgotten that these were deleted: {certain - now.removed}")
        now.sources = [
            it for it in after.sources if it in self.state.sources or str(self.path_of(it)) in found["sources"]
        ]
        self.state = now

    def path_of(self, source: str) -> Path:
        return {"photos": self.photos, "table": self.table}[source]

    def check(self) -> None:
        """The index is what the model says, in every way in which it can be asked."""
        found, state = self.observed(), self.state
        for side in ("images", "texts"):
            wanted = {name: plain(side, item) for name, item in getattr(state, side).items()}
            same = found[side] == wanted
            differing = {} if same else {n: (found[side].get(n), wanted.get(n)) for n in {*found[side], *wanted}
                                         if found[side].get(n) != wanted.get(n)}  # fmt: skip
            self.require(same, f"{side}: (index, model) {differing}")
            contents = [getattr(state, side)[name][0] for name in found["order"][side]]
            if contents:
                vectors = vectors_of(self.runs, state.model, side, contents)
                self.require(np.allclose(vectors, found["vectors"][side], atol=1e-5), f"vectors of {side} are others")
                scores = self.queries() @ vectors.T
                for query, (names, got) in enumerate(found["nearest"][side]):
                    best = np.sort(scores[query])[::-1][:5]
                    self.require(
                        np.allclose(best, got, atol=1e-4), f"nearest {side}: {names} {got}, a loop says {best}"
                    )
        removed = {(side, name) for side in ("images", "texts") for name in found["removed"][side]}
        self.require(state.removed <= removed, f"forgotten that these were deleted: {state.removed - removed}")
        self.require(set(found["open"]) <= self.killed, f"jobs that nobody finished: {found['open']}")
        for word in WORDS:
            wanted_texts = {name for name, (words, _) in state.texts.items() if word in words.split()}
            self.require(
                set(found["words"][word]) == wanted_texts, f"{word} is in {found['words'][word]}, not {wanted_texts}"
            )
        low = {name for name, (_, about) in state.images.items() if about.get("number", 1000) < 50}
        town = {name for name, (_, about) in state.images.items() if about.get("town") == "Ulm"}
        self.require(
            set(found["low"]) == low and set(found["town"]) == town, f"filters: {found['low']} {found['town']}"
        )
        paths = [str(self.path_of(source)) for source in state.sources]
        self.require(found["sources"] == paths, f"an update reads {found['sources']}, not {paths}")
        run = run_of(self.runs, state.model).name
        self.look({side: sorted(getattr(state, side)) for side in ("images", "texts")}, found["nearest"])
        self.require(Path(found["run"]).name == run, f"the index has the model {found['run']}, not {run}")


QUIET: dict[str, Any] = {"quiet": True, "on_error": "skip", "workers": 0}


def plain(side: str, item: Any) -> Any:
    """An item as `read_whole` gives it."""
    if side == "images":
        return hashlib.blake2b(item[0], digest_size=16).hexdigest(), dict(item[1])
    return item[0], sorted(item[1])


def readable(file: Path) -> bool:
    """Whether a picture is whole, by its length alone."""
    content = file.read_bytes()
    return len(content) > 54 and len(content) == int.from_bytes(content[2:6], "little")


def _look_on(connection: Connection, index: str, queries: np.ndarray) -> None:
    """A process that opens an index once, and says what it sees whenever it is asked."""
    from subtext.errors import SubtextError
    from subtext.retrieval.stores.registry import open_store

    try:
        store: Any = None
        while True:
            connection.recv()
            try:
                store = store or open_store(index)
                if store.was_replaced:
                    connection.send("replaced")
                    break
                sides: Any = ("images", "texts")
                with store.reading() as view:
                    ids = {s: sorted(row.id for row in view.rows(s, keys=view.keys(s).tolist())) for s in sides}
                    near = {
                        s: [([], hits.scores.tolist()) for hits in view.nearest(s, queries[:, None], top=5)]
                        for s in sides
                    }
                connection.send((ids, near))
            except SubtextError as problem:
                connection.send(f"{problem}")
                break
    except (EOFError, OSError):
        pass
    finally:
        os._exit(0)


def read_whole(index: str, asked: set[tuple[str, str]], queries: np.ndarray) -> dict[str, Any]:
    """Everything that an index says, as plain data; of some items whether they are remembered as deleted."""
    from subtext.api.index.maintain import recorded_sources
    from subtext.retrieval.journal import deleted_before, journal
    from subtext.retrieval.stores.facets import Condition
    from subtext.retrieval.stores.registry import open_store
    from subtext.retrieval.verification import verify

    found: dict[str, Any] = {"damage": [str(problem) for problem in verify(index)]}
    store = open_store(index)
    with store.reading() as view:
        sides: Any = ("images", "texts")
        rows = {side: view.rows(side, keys=view.keys(side).tolist(), links=True) for side in sides}
        ids = {side: {row.key: row.id for row in rows[side]} for side in sides}
        found["images"] = {row.id: (row.content.hex(), row.fields) for row in rows["images"]}
        found["texts"] = {row.id: (row.text, sorted(ids["images"][key] for key in row.links)) for row in rows["texts"]}
        found["order"] = {side: sorted(ids[side].values()) for side in sides}
        found["vectors"] = {side: view.vectors_of(side, found["order"][side])[:, 0] for side in sides}
        found["nearest"] = {
            side: [
                ([ids[side][int(key)] for key in hits.keys], hits.scores.tolist())
                for hits in view.nearest(side, queries[:, None], top=5)
            ]
            for side in sides
        }
        found["removed"] = {side: deleted_before(view, side, [n for of, n in asked if of == side]) for side in sides}
        found["open"] = [job.verb for job in journal(view) if job.finished is None]
        found["words"] = {w: [ids["texts"][key] for key, _ in view.search_text(w, top=1000)] for w in WORDS}
        for name, condition in {"low": Condition("number", "<", 50), "town": Condition("town", "=", "Ulm")}.items():
            found[name] = [ids["images"][int(key)] for key in view.select("images", [condition])]
        if view.counts != {side: len(rows[side]) for side in sides}:
            raise Disagreement(f"counts {view.counts}")
    found["sources"] = [str(sources.data) for sources, _ in recorded_sources(store)]
    found["run"] = store.manifest.run
    return found
