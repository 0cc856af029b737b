"""A disk that loses what was not flushed to it: writes of a process are recorded (disk.c), and played with losses."""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import struct
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
SECTOR = 512
"""Bytes that a disk writes completely or not at all."""


def library() -> Path | None:
    """The compiled recorder; None without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    built = Path(tempfile.gettempdir()) / f"subtext-disk-{os.getuid()}-{(HERE / 'disk.c').stat().st_mtime_ns}.so"
    if not built.exists():
        partial = built.with_suffix(f".{os.getpid()}")
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(partial), str(HERE / "disk.c"), "-ldl"]
        subprocess.run(command, check=True)
        partial.replace(built)
    return built


def record(folder: Path, log: Path, *, most: int = 0) -> None:
    """From now on this process records what it writes below a folder; it has to run with the recorder preloaded.

    Args:
        folder: The folder.
        log: The record; os.devnull where only `most` counts.
        most: Writes, flushes and changes of names after which the process is killed; 0 for never.
    """
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    os.set_inheritable(descriptor, True)
    recorder = ctypes.CDLL(None)
    recorder.record_to(descriptor, os.fsencode(folder.resolve()))
    recorder.die_after(ctypes.c_long(most))


@dataclass
class File:
    """One file: what is on the disk, and what was written since it was flushed: (offset, data), None for a cut."""

    kept: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)

    def apply(self, offset: int, data: bytes | None) -> None:
        missing = offset - len(self.kept)
        if missing > 0:
            self.kept += bytes(missing)
        if data is None:
            del self.kept[offset:]
        else:
            self.kept[offset : offset + len(data)] = data

    def lose(self, draws: random.Random) -> None:
        """Only some of the pending writes came to the disk, and some of these in part."""
        style = draws.choice(("none", "some", "first"))
        last = draws.randint(0, len(self.pending))
        for number, (offset, data) in enumerate(self.pending):
            if style == "none" or (style == "first" and number > last) or (style == "some" and draws.random() < 0.5):
                continue
            torn = data is not None and draws.random() < 0.3
            self.apply(offset, data[: SECTOR * draws.randint(0, len(data) // SECTOR)] if torn and data else data)
        self.pending.clear()


def entries(log: Path) -> list[tuple[str, str, int, bytes]]:
    """What was recorded: letter, path, offset and data; see disk.c."""
    found, data, at = [], log.read_bytes(), 0
    while at + 9 <= len(data):
        (size,) = struct.unpack_from("<Q", data, at + 1)
        if at + 25 + size > len(data):
            break
        offset, length = struct.unpack_from("<QQ", data, at + 9 + size)
        end = at + 25 + size + length
        if end > len(data):
            break  # The last one, when the process was killed.
        found.append((chr(data[at]), os.fsdecode(data[at + 9 : at + 9 + size]), offset, data[at + 25 + size : end]))
        at = end
    return found


def crash(folder: Path, before: Path, log: Path, *, seed: int) -> None:
    """Make a folder what a disk may have after a loss of power.

    Contents that were flushed are there. Names come in their order: all up to the last one whose folder, or file, was
    flushed, and some after it.

    Args:
        folder: The folder that was written; it is replaced.
        before: A copy of it from before the record.
        log: The record.
        seed: Decides what is lost.
    """
    draws, root = random.Random(seed), str(folder.resolve())
    names = {str(folder.resolve() / p.relative_to(before)): File(bytearray(p.read_bytes())) for p in _files(before)}
    folders = {root, *(str(folder.resolve() / p.relative_to(before)) for p in before.rglob("*") if p.is_dir())}
    live, steps, certain = dict(names), list[tuple[str, str, str, File | None]](), 0
    for letter, path, offset, data in entries(log):
        if letter in "wtc":
            if path not in live:
                live[path] = File()
                steps.append(("link", path, "", live[path]))
            if letter != "c":
                live[path].pending.append((offset, data if letter == "w" else None))
        elif letter in "sf":
            if letter == "f":
                file = live.setdefault(path, File())
                file.kept, file.pending = bytearray(data), []
            for number, (_, one, two, _) in enumerate(steps, 1):
                if any(name and path in (name, str(Path(name).parent)) for name in (one, two)):
                    certain = max(certain, number)
        else:
            target = os.fsdecode(data)
            steps.append((letter, path, target, None))
            _step(live, set(), letter, path, target, None)
    for step in steps[: draws.randint(certain, len(steps))]:
        _step(names, folders, *step)
    shutil.rmtree(folder)
    for path in sorted(folders):
        if path == root or path.startswith(f"{root}/"):
            Path(path).mkdir(parents=True, exist_ok=True)
    for path, file in sorted(names.items()):
        file.lose(draws)
        # The index of SQLite's log is memory that processes share: it does not outlive the machine.
        if not path.endswith("-shm") and path.startswith(f"{root}/"):
            Path(path).write_bytes(file.kept)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _step(names: dict[str, File], folders: set[str], kind: str, path: str, target: str, file: File | None) -> None:
    """One change of names."""
    if kind == "link" and file is not None:
        names[path] = file
    elif kind == "u":
        names.pop(path, None)
    elif kind == "m":
        folders.add(path)
    elif kind == "d":
        folders.discard(path)
    elif kind == "r":
        for name in [it for it in names if it == path or it.startswith(f"{path}/")]:
            names[f"{target}{name[len(path) :]}"] = names.pop(name)
        for name in [it for it in folders if it == path or it.startswith(f"{path}/")]:
            folders.discard(name)
            folders.add(f"{target}{name[len(path) :]}")
