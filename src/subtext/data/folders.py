"""The files of a folder of data: which are read, which are images, and which are tables."""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from heapq import merge
from itertools import chain
from pathlib import Path
from typing import Generic, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from subtext.data.dataset import RowIssue
from subtext.text_helpers import counted

IMAGES = frozenset(
    {
        *(".jpg", ".jpeg", ".jpe", ".jfif", ".jfi", ".jif", ".mpo", ".png", ".apng", ".webp", ".tif", ".tiff", ".gif"),
        *(
            ".bmp",
            ".dib",
            ".avif",
            ".avifs",
            ".heic",
            ".heif",
            ".heics",
            ".hif",
            ".jp2",
            ".j2k",
            ".j2c",
            ".jpc",
            ".jpf",
        ),
        *(".jpx", ".ppm", ".pgm", ".pbm", ".pnm", ".tga"),
    }
)
"""Suffixes of image files."""
SAME_SUFFIX = (
    {".jpg", ".jpeg", ".jpe", ".jfif", ".jfi", ".jif"},
    {".tif", ".tiff"},
    {".heic", ".heif", ".hif", ".heics"},
)
"""Suffixes of one format, under which a file may be named in a table or a sidecar."""
TABLES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".xlsx")
"""Suffixes of tables."""
SYSTEM = re.compile(
    r"@eaDir|@tmp|@Recycle|@Recently-Snapshot|@Transcode|@sharebin|[#~@]?snapshots?|#recycle|\$RECYCLE\.BIN|RECYCLE[DR]"
    r"|__MACOSX|\.Trash.*|Network Trash Folder|Temporary Items|lost\+found|FOUND\.\d{3}|System Volume Information"
    r"|\._.*",
    re.IGNORECASE,
)
"""Names that network storage, Windows, macOS and Linux give to folders of thumbnails, deleted files and old states."""


@dataclass
class Listing:
    """What a folder of data holds, down to its last sub-folder.

    Attributes:
        files: Paths from the folder, with "/" between their parts, in the order of `families`; of `survey`, none.
        images: Number of images among them, with their further names.
        aliases: Path of an image -> the path among `files` that is the same file on the disk.
        system: System folder -> number of its images, which are left out.
        hidden: Names of images that are hidden, or lie in hidden folders, and are left out.
        special: Pipes, sockets and devices, which are left out.
        own: Folders of indexes, which are left out.
        outside: Link to a folder -> where it leads, which is out of the folder.
        again: Folders that are listed under another name, or cannot be read.
        linked: Folders that are listed by a link that leads to them, and their paths on the disk.
    """

    files: list[str] = field(default_factory=list)
    images: int = 0
    aliases: dict[str, str] = field(default_factory=dict)
    system: Counter[str] = field(default_factory=Counter)
    hidden: list[str] = field(default_factory=list)
    special: list[str] = field(default_factory=list)
    own: list[str] = field(default_factory=list)
    outside: dict[str, str] = field(default_factory=dict)
    again: set[str] = field(default_factory=set)
    linked: dict[str, str] = field(default_factory=dict)

    def notes(self, folder: Path) -> Iterator[RowIssue]:
        """Say what is left out, and how much of it.

        Args:
            folder: The folder, for messages.

        Yields:
            One note for each kind; one for each link that leads out.
        """
        number = self.system.total()
        names = ", ".join(f"{name} {count:,}" for name, count in self.system.most_common(5))
        parts = [f"{counted(number, 'image')} in system folders ({names})"] if number else []
        parts += [f"{counted(len(self.hidden), 'hidden image')} ({self.hidden[0]})"] if self.hidden else []
        if self.special:
            parts.append(f"{counted(len(self.special), 'special file')} (pipe, socket or device: {self.special[0]})")
        if self.own:
            parts.append(f"{counted(len(self.own), 'index folder')} ({self.own[0]})")
        if parts:
            yield RowIssue(folder.name, f"left out: {'; '.join(parts)}", fatal=False)
        for link, target in self.outside.items():
            what = f"link '{link}' leads out of the folder, to {target}, and is not followed; add that folder by itself"
            yield RowIssue(f"link {link}", what, fatal=False, name=f"'{link}'")
        if self.aliases:
            other, first = next(iter(self.aliases.items()))
            what = f"{counted(len(self.aliases), 'further name')} of the same file left out, for one file is one item"
            yield RowIssue(folder.name, f"{what}; {other} is {first}", fatal=False)


Refuse = Callable[[OSError], NoReturn]
"""Called for a sub-folder that cannot be read."""


def survey(folder: Path, refuse: Refuse | None = None) -> Listing:
    """Look at a folder and its sub-folders, without what systems, editors and servers write there.

    Each folder is looked at once, whichever links lead to it. A link to a folder inside is followed where the folder is
    not found by its own path, as it is hidden; a link that leads out is not followed. No names of files are held, but 8
    bytes of each image.

    Args:
        folder: The folder.
        refuse: Called for a sub-folder that cannot be read; None passes over it, which is enough to recognise a format.

    Returns:
        What is left out, and which images are further names of a file.
    """
    found, root = Listing(), os.path.realpath(folder)
    waiting, links, seen = [("", os.fspath(folder))], list[tuple[str, str]](), set[tuple[int, int]]()
    inodes: dict[int, array[int]] = {}
    while waiting or links:
        linked = not waiting
        inner, path = waiting.pop() if waiting else links.pop(0)
        folders, others = list[tuple[str, str]](), list[tuple[str, os.DirEntry[str], str]]()
        try:
            about = os.stat(path)  # noqa: PTH116 (100,000 folders)
            identity = (about.st_dev, about.st_ino)
            if identity in seen and about.st_ino:
                found.again.add(inner)
                continue
            seen.add(identity)
            with os.scandir(path) as scanned:
                for entry in scanned:
                    kind = _kind(entry)
                    if kind != "file" or entry.name.startswith("."):
                        others.append((entry.name, entry, kind))
                    elif suffix_of(entry.name) in IMAGES:
                        found.images += 1
                        if (own := _identity(entry, about.st_dev)) is not None:
                            inodes.setdefault(own[0], array("Q")).append(own[1])
        except OSError as problem:
            if refuse is not None and not linked:
                refuse(problem)
            found.again.add(inner)
            continue
        if linked:
            found.linked[inner] = path
        for plain, entry, kind in sorted(others, key=lambda other: other[0]):
            name = f"{inner}{plain}"
            if kind == "folder":
                if SYSTEM.fullmatch(plain):
                    found.system[plain] += len(_images_below(entry.path))
                elif plain.startswith("."):
                    found.hidden += [f"{name}/{image}" for image in _images_below(entry.path)]
                elif is_of_subtext(entry.path):
                    found.own.append(name)
                else:
                    folders.append((f"{name}/", entry.path))
            elif kind == "link":
                target = os.path.realpath(entry.path)
                inside = Path(os.path.relpath(target, root)).parts
                if plain.startswith(".") or any(map(SYSTEM.fullmatch, [plain, *inside])):
                    continue
                if inside[:1] == (os.pardir,):
                    found.outside[name] = target
                elif not is_of_subtext(target):
                    links.append((f"{name}/", entry.path))
            elif kind == "special":
                found.special.append(name)
            else:
                found.hidden += [name] * (suffix_of(name) in IMAGES)
        waiting += reversed(folders)
    found.aliases = _aliases(folder, found, {device: _repeated(numbers) for device, numbers in inodes.items()})
    return found


def _repeated(numbers: array[int]) -> set[int]:
    """The numbers that are there more than once."""
    ordered = np.sort(np.frombuffer(numbers, dtype=np.uint64))
    return set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())


def _aliases(folder: Path, listing: Listing, inodes: Mapping[int, set[int]]) -> dict[str, str]:
    """Images that are further names of a file -> its first name, which is no link where it has such a name."""
    names_of: dict[tuple[int, int], list[tuple[bool, str]]] = {}
    for names in families(folder, listing) if any(inodes.values()) else ():
        for name in names:
            path = os.path.join(folder, name)  # noqa: PTH118 (100,000 paths)
            if suffix_of(name) in IMAGES and (own := file_identity(path)) and own[1] in inodes.get(own[0], ()):
                names_of.setdefault(own, []).append((os.path.islink(path), name))  # noqa: PTH114
    aliases = dict[str, str]()
    for same in names_of.values():
        first = min(same)[1]
        aliases |= {name: first for _, name in sorted(same)[1:]}
    return aliases


def families(folder: Path, listing: Listing, refuse: Refuse | None = None) -> Iterator[list[str]]:
    """Give the files of a folder in the order of their paths; of the names, those of one sub-folder are held, packed.

    Args:
        folder: The folder.
        listing: That of `survey`.
        refuse: As for `survey`.

    Yields:
        Paths of files of one sub-folder that have the same name up to its first point: a file and its sidecars.
    """
    places = [_families("", os.fspath(folder), listing, refuse)]
    places += [_families(name, path, listing, None) for name, path in listing.linked.items()]
    yield from merge(*places, key=lambda names: names[0]) if len(places) > 1 else places[0]


def _families(inner: str, path: str, listing: Listing, refuse: Refuse | None) -> Iterator[list[str]]:
    names, folders = Names(), list[str]()
    try:
        with os.scandir(path) as scanned:
            for entry in scanned:
                kind = _kind(entry)
                if entry.name.startswith(".") or kind not in ("file", "folder"):
                    continue
                if kind == "file":
                    names.add(entry.name)
                elif not SYSTEM.fullmatch(entry.name):
                    folders.append(f"{entry.name}/")
    except OSError as problem:
        if refuse is not None:
            refuse(problem)
        return

    def below(name: str) -> Iterator[list[str]]:
        if f"{inner}{name}" not in listing.again and f"{inner}{name[:-1]}" not in listing.own:
            yield from _families(f"{inner}{name}", f"{path}/{name[:-1]}", listing, refuse)

    yield from _in_order(inner, names, folders, below)


def _in_order(
    inner: str, names: Iterable[str], folders: Iterable[str], below: Callable[[str], Iterator[list[str]]]
) -> Iterator[list[str]]:
    """The families of a folder and of those below it, each folder in the place of its name."""
    family, between = list[str](), list[str]()
    for name in chain(merge(names, sorted(folders)), [""]):
        if family and (not name or family[0].partition(".")[0] != name.partition(".")[0]):
            yield [f"{inner}{own}" for own in family]
            for folder in between:
                yield from below(folder)
            family, between = [], []
        if not name.endswith("/"):
            family.append(name)
        elif family:
            between.append(name)  # A folder a.b stands between a.JPG and a.xmp.
        else:
            yield from below(name)


def families_of(names: Sequence[str], inner: str = "") -> Iterator[list[str]]:
    """Give files that were listed elsewhere in the order of `families`.

    Args:
        names: Paths of all files, sorted.
        inner: Part that all of them begin with.

    Yields:
        Paths of files of one sub-folder that have the same name up to its first point.
    """
    files, folders = list[str](), dict[str, list[str]]()
    for name in names:
        first, slash, _ = name[len(inner) :].partition("/")
        if slash:
            folders.setdefault(f"{first}/", []).append(name)
        else:
            files.append(first)
    yield from _in_order(inner, files, folders, lambda first: families_of(folders[first], f"{inner}{first}"))


class Names:
    """Names of files that come out in their order; many are packed, since each would take a hundred bytes."""

    def __init__(self) -> None:
        self._packed, self._last = list[NDArray[np.bytes_]](), list[str]()

    def add(self, name: str) -> None:
        """Add a name.

        Args:
            name: Any name of the disk.
        """
        self._last.append(name)
        if len(self._last) >= _PACKED:
            self._pack()

    def _pack(self) -> None:
        self._packed += [np.array([os.fsencode(name) for name in self._last])] if self._last else []
        self._last = []

    def __iter__(self) -> Iterator[str]:
        if not self._packed:
            yield from sorted(self._last)
            return
        self._pack()
        packed = np.concatenate(self._packed)
        self._packed = [packed]
        packed.sort()
        for start in range(0, len(packed), _PACKED):
            yield from map(os.fsdecode, packed[start : start + _PACKED].tolist())


_PACKED = 4096
"""Names that are packed at a time."""


def _kind(entry: os.DirEntry[str]) -> str:
    """One of "folder", "link" (to a folder), "special" and "file": also a link that leads nowhere, named later."""
    try:
        if entry.is_dir():
            return "link" if entry.is_symlink() else "folder"
        if entry.is_file() or (entry.is_symlink() and not Path(entry.path).exists()):
            return "file"
        return "special"
    except OSError:
        return "file"  # Such as a circle of links: reading it says so.


def _identity(entry: os.DirEntry[str], device: int) -> tuple[int, int] | None:
    """Device and inode of a file, which all of its names share; None where the file system has none."""
    if not entry.is_symlink():
        return (device, entry.inode()) if entry.inode() else None
    return file_identity(entry.path)


def file_identity(path: str) -> tuple[int, int] | None:
    """Get what all names of a file share, whatever links lead to it.

    Args:
        path: The path.

    Returns:
        Device and inode; None if there is no such file, or its file system has no inodes.
    """
    try:
        about = os.stat(path)  # noqa: PTH116 (100,000 paths)
    except (OSError, ValueError):
        return None
    return (about.st_dev, about.st_ino) if about.st_ino and stat.S_ISREG(about.st_mode) else None


About = TypeVar("About")


class Folders(Generic[About]):
    """What folders hold, some of them at a time: to list a folder once is faster than to look at each of its files.

    Args:
        about: What is kept of an entry.
    """

    def __init__(self, about: Callable[[os.DirEntry[str]], About]) -> None:
        self._about, self._held, self._number = about, dict[str, dict[str, About]](), 0
        self._large, self._before, self._jumping = set[str](), set[int](), False

    def of(self, folder: str) -> Mapping[str, About] | None:
        """List a folder, unless it was listed just before.

        Args:
            folder: Its path.

        Returns:
            Name -> what is kept of it; nothing for a folder that cannot be listed. None where looking at each file is
            better: it is large, or the paths jump between more folders than can be kept.
        """
        if folder in self._held:
            return self._held[folder]
        if self._jumping or folder in self._large:
            return None
        if hash(folder) in self._before:
            self._jumping = True
            return None
        names: dict[str, About] = {}
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if len(names) >= _MOST_HELD:
                        self._large.add(folder)
                        return None
                    names[entry.name] = self._about(entry)
        except (OSError, ValueError):
            names = {}
        self._number += len(names) + 1
        while self._held and self._number > _MOST_HELD:
            first = next(iter(self._held))
            self._number -= len(self._held.pop(first)) + 1
            self._before.add(hash(first))
        self._held[folder] = names
        return names


_MOST_HELD = 10_000
"""Entries of folders that are kept."""


def _images_below(folder: str) -> list[str]:
    below = ((os.path.relpath(parent, folder), names) for parent, _, names in os.walk(folder))
    return [
        os.path.normpath(f"{inner}/{name}") for inner, names in below for name in names if suffix_of(name) in IMAGES
    ]


def is_of_subtext(folder: str) -> bool:
    """Test whether a folder is an index, or what a server keeps for one: its images are no items.

    Args:
        folder: The folder.

    Returns:
        Whether it is.
    """
    try:
        with open(os.path.join(folder, "manifest.json"), "rb") as file:  # noqa: PTH118, PTH123 (once per folder)
            if re.match(rb'\s*\{\s*"kind":\s*"subtext index"', file.read(256)):
                return True
    except OSError:
        pass
    if folder.endswith(".lance") and os.path.isdir(os.path.join(folder, "_versions")):  # noqa: PTH112, PTH118
        return True
    try:
        logs = os.listdir(os.path.join(folder, "logs"))  # noqa: PTH118, PTH208
    except OSError:
        return False
    return any(name.startswith("serve-") and name.endswith(".jsonl") for name in logs)


def iter_files(folder: Path, refuse: Refuse | None = None) -> Iterator[str]:
    """Give the files of a folder and its sub-folders in the order of their paths; see `survey`.

    Args:
        folder: The folder.
        refuse: As for `survey`.

    Yields:
        The paths from the folder, with "/" between their parts.
    """
    for names in families(folder, survey(folder, refuse), refuse):
        yield from names


def as_listed(name: str) -> list[tuple[bool, str]]:
    """The place of a path where people look for it: files of a folder before its sub-folders.

    Args:
        name: Path of a file, with "/" between its parts.

    Returns:
        What paths are sorted by.
    """
    *folders, file = name.split("/")
    return [*((True, folder) for folder in folders), (False, file)]


def visible(folder: Path, pattern: str = "*") -> list[Path]:
    """List what lies in a folder itself, without hidden names, system folders and indexes.

    Args:
        folder: The folder.
        pattern: Of the names.

    Returns:
        The paths, sorted; none for a path that is no folder.

    Raises:
        OSError: If the folder cannot be read: what lies in it is not gone.
    """
    names = sorted(folder.iterdir()) if folder.is_dir() else []
    found = [path for path in names if not path.name.startswith(".") and fnmatchcase(path.name, pattern)]
    return [path for path in found if not (path.is_dir() and (SYSTEM.fullmatch(path.name) or is_of_subtext(str(path))))]


def suffix_of(name: str) -> str:
    """Return the suffix of a path in small letters, with its point; "" for none.

    Args:
        name: The path.

    Returns:
        The suffix.
    """
    return os.path.splitext(name)[1].lower()  # noqa: PTH122 (100,000 paths)


def plain_name(name: str) -> str:
    """A path for comparison, without the difference of case, and of accents as one or two characters.

    Args:
        name: The path.

    Returns:
        The plain path.
    """
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
