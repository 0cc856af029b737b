"""The cache of what frozen encoders give for images and texts, shared by every command of a user.

    FOLDER/KEY/about.json            what KEY is a hash of: the encoder, how it reads, what is kept of its outputs
    FOLDER/KEY/SEGMENT/contents.npy  (N 16) uint8, a digest of each item: of the bytes of its image, or of its text
    FOLDER/KEY/SEGMENT/outputs.npy   (N) int64, which of the M outputs is that of each item: texts of equal subwords
                                     share one
    FOLDER/KEY/SEGMENT/lengths.npy   (M) int64, rows of each output in parts.npy
    FOLDER/KEY/SEGMENT/parts.npy     (rows E) the parts of all outputs, one after the other, without masked ones
    FOLDER/KEY/SEGMENT/pooled.npy    (M G)
    FOLDER/KEY/SEGMENT/sums.npy      (M) uint32, a checksum of each output
    FOLDER/KEY/SEGMENT/masked        there if the encoder masks parts
    FOLDER/KEY/unpacked/             instead of segments: files of an installed package, see `unpacked`

An item is known by its content: its name, its folder and its time may change. A segment is put in place in one step and
never changed, so that any number of processes read and write at once; at worst two of them compute the same. Arrays are
memory-mapped. What is damaged is removed, and computed again. Above its limit, the cache removes what was not used for
longest.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from subtext.data.atomic import HIDDEN, write_folder, write_text, written_to
from subtext.errors import ArgumentError, OutputError
from subtext.text_helpers import size as shown

PLACE, LIMIT = "SUBTEXT_CACHE", "SUBTEXT_CACHE_LIMIT"
"""Variables of the environment: the folder of the cache, and its largest size."""
LARGEST = 10 * 10**9
"""Bytes that the cache may take unless the environment says otherwise."""
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_ABOUT, _MASKED, _UNPACKED = "about.json", "masked", "unpacked"
_SEGMENT = 2**26
"""Bytes after which a segment is written: what a kill loses at most."""
_MANY, _SMALL = 32, 2**22
"""From so many segments of fewer than so many bytes, they become one."""
_ABANDONED = 3600.0
"""Seconds without a write after which the writer of an unfinished segment counts as killed."""


def content_digest(content: bytes) -> bytes:
    """The digest by which an item is known, in the cache as in an index.

    Args:
        content: The bytes of an image, or a text in UTF-8.

    Returns:
        16 bytes.
    """
    return hashlib.blake2b(content, digest_size=16).digest()


@dataclass(frozen=True)
class OutputSegment:
    """A part of the cache that was written in one step; see the module.

    Attributes:
        path: Its folder.
        contents: (N 16) uint8.
        outputs: (N) int64.
        lengths: (M) int64.
        sums: (M) uint32.
        parts: (rows E), mapped; None where they are not kept.
        pooled: (M G), mapped; None where it is not kept.
        masked: Whether the encoder masks parts, so that outputs of fewer of them have a mask.
    """

    path: Path
    contents: NDArray[np.uint8]
    outputs: NDArray[np.int64]
    lengths: NDArray[np.int64]
    sums: NDArray[np.uint32]
    parts: NDArray[Any] | None
    pooled: NDArray[Any] | None
    masked: bool

    @staticmethod
    def open(path: Path) -> OutputSegment | None:
        """Open a segment.

        Args:
            path: Its folder.

        Returns:
            The segment; None for one that is damaged, or that another process has removed meanwhile.
        """
        try:
            contents, outputs, lengths, sums = (
                np.load(path / f"{name}.npy", allow_pickle=False) for name in ("contents", "outputs", "lengths", "sums")
            )
            parts, pooled = (
                np.load(file, mmap_mode="r", allow_pickle=False) if (file := path / f"{name}.npy").is_file() else None
                for name in ("parts", "pooled")
            )
            count, rows = len(lengths), int(lengths.sum())
            whole = contents.shape == (len(outputs), 16) and contents.dtype == np.uint8 and sums.shape == (count,)
            whole &= bool(np.isin(outputs, np.arange(count)).all()) and bool((lengths >= 0).all())
            whole &= all(
                array is None or (array.ndim == 2 and len(array) == size)
                for array, size in ((parts, rows), (pooled, count))
            )
        except (OSError, ValueError, EOFError, TypeError, AttributeError):
            return None
        masked = (path / _MASKED).is_file()
        return OutputSegment(path, contents, outputs, lengths, sums, parts, pooled, masked) if whole else None

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """(M + 1) the first row of each output in `parts`."""
        return np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)

    def output(self, number: int) -> tuple[NDArray[Any] | None, NDArray[Any] | None]:
        """One output.

        Args:
            number: Which of the M.

        Returns:
            (P E) parts and (G) pooled vector.
        """
        start, stop = self.starts[number : number + 2]
        parts = None if self.parts is None else self.parts[start:stop]
        return parts, None if self.pooled is None else self.pooled[number]

    def is_whole(self, number: int) -> bool:
        """Compare an output with its checksum.

        Args:
            number: Which of the M.

        Returns:
            False for one that is damaged.
        """
        return int(self.sums[number]) == _sum(*self.output(number))


def _sum(parts: NDArray[Any] | None, pooled: NDArray[Any] | None) -> int:
    value = 0
    for array in (parts, pooled):
        value = value if array is None else crc32(np.ascontiguousarray(array).tobytes(), value)
    return value


@dataclass(frozen=True)
class CachedOutputs:
    """Where the outputs of items are.

    Attributes:
        segments: Those that have any of them.
        rows: Digest of an item -> segment, and output in it; items without an output are left out.
    """

    segments: Sequence[OutputSegment]
    rows: Mapping[bytes, tuple[int, int]]


@dataclass(frozen=True)
class CachedEncoderInfo:
    """What the cache has of one encoder.

    Attributes:
        key: Name of its folder.
        about: What the key is a hash of.
        items: Items with an output.
        size: Bytes.
    """

    key: str
    about: Mapping[str, Any]
    items: int
    size: int


@dataclass(frozen=True)
class OutputCache:
    """A cache of outputs of frozen encoders.

    Attributes:
        folder: Created when something is written.
        limit: Largest size in bytes; None for no limit.
    """

    folder: Path
    limit: int | None = None

    def find(self, about: Mapping[str, Any], wanted: set[bytes]) -> CachedOutputs:
        """Find the outputs of items by an encoder, and mark them as used; what is damaged is removed.

        Args:
            about: The encoder, how it reads, and what is kept of its outputs.
            wanted: Digests of the items.

        Returns:
            Where they are.
        """
        segments: list[OutputSegment] = []
        rows: dict[bytes, tuple[int, int]] = {}
        for path in _segments(self.folder / key_of(about)):
            segment = OutputSegment.open(path)
            if segment is not None:
                held = zip(map(bytes, segment.contents), segment.outputs.tolist(), strict=True)
                here = {content: output for content, output in held if content in wanted and content not in rows}
                if all(map(segment.is_whole, set(here.values()))):
                    if here:
                        rows |= {content: (len(segments), output) for content, output in here.items()}
                        segments.append(segment)
                        _touch(path)
                    continue
            shutil.rmtree(path, ignore_errors=True)
        return CachedOutputs(segments, rows)

    def make_room(self, needed: int) -> None:
        """Remove what was not used for longest, until there is room for more.

        Args:
            needed: Bytes that are to be written.

        Raises:
            OutputError: If the limit, or what is free of the disk, is less than these.
        """
        if self.limit is not None:
            if needed > self.limit:
                raise OutputError(
                    f"the cache of encoders' outputs, {self.folder}, needs {shown(needed)} for these; its limit is "
                    f"{shown(self.limit)}; raise it ({LIMIT})"
                )
            segments = sorted((*_used(path), path) for folder in _folders(self.folder) for path in _segments(folder))
            total = sum(size for _, size, _ in segments)
            for _, size, path in segments:
                if total + needed <= self.limit:
                    break
                shutil.rmtree(path, ignore_errors=True)
                total -= size
        place = next(folder for folder in (self.folder, *self.folder.absolute().parents) if folder.exists())
        with written_to(self.folder):
            free = shutil.disk_usage(place).free
        if needed > free:
            raise OutputError(
                f"the cache of encoders' outputs, {self.folder}, needs {shown(needed)} for these; {shown(free)} of "
                f"its disk are free; free some, or name another folder ({PLACE})"
            )

    def unpacked(self, about: Mapping[str, Any], size: int, fill: Callable[[Path], None]) -> Path:
        """The folder of files that were unpacked once, and count and go as outputs do.

        Args:
            about: What they are.
            size: Bytes of the files.
            fill: Writes the files into an empty folder, where they are not there yet.

        Returns:
            The folder.

        Raises:
            OutputError: If the cache has no room for them, or cannot be written.
        """
        folder = self.folder / key_of(about)
        path = folder / _UNPACKED
        if not path.is_dir():
            self.make_room(size)
            write_folder(path, fill, existing="keep")
            write_text(folder / _ABOUT, json.dumps(about))
        _touch(path)
        return path

    def encoders(self) -> list[CachedEncoderInfo]:
        """What the cache has of each encoder.

        Returns:
            One entry per encoder.
        """
        result = []
        for folder in _folders(self.folder):
            try:
                about = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
            except (OSError, ValueError):
                continue
            paths = _segments(folder)
            items = {bytes(row) for segment in filter(None, map(OutputSegment.open, paths)) for row in segment.contents}
            result.append(CachedEncoderInfo(folder.name, about, len(items), sum(_used(path)[1] for path in paths)))
        return result

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(_used(path)[1] for folder in _folders(self.folder) for path in _segments(folder))

    def forget(self, contents: Iterable[bytes]) -> int:
        """Remove all outputs of items, so that nothing of them is left in the cache.

        Args:
            contents: The digest of each item (`content_digest`), which an index keeps as an item's content.

        Returns:
            How many outputs were removed: one per item and encoder.

        Raises:
            OutputError: If the cache cannot be written.
        """
        gone, count = frozenset(contents), 0
        for folder in _folders(self.folder):
            _remove_abandoned(folder)
            for path in _segments(folder):
                if path.name == _UNPACKED:
                    continue  # Nothing of any item is in it.
                segment = OutputSegment.open(path)
                if segment is None:
                    _remove(path)  # Nobody can tell what is in a damaged one.
                elif held := sum(bytes(row) in gone for row in segment.contents):
                    _merge(folder, [segment], without=gone)
                    count += held
        return count

    def clear(self) -> None:
        """Remove everything; the folder stays.

        Raises:
            OutputError: If the cache cannot be written.
        """
        for folder in _folders(self.folder):
            _remove(folder)


@dataclass
class OutputWriter:
    """Writes outputs of one encoder into a cache, a segment at a time.

    Attributes:
        cache: The cache.
        about: The encoder; see `OutputCache.find`.
        dtype: Precision of what is stored.

    Raises:
        OutputError: If the cache's folder cannot be made.
    """

    cache: OutputCache
    about: Mapping[str, Any]
    dtype: np.dtype[Any]
    _contents: list[bytes] = field(default_factory=list)
    _outputs: list[int] = field(default_factory=list)
    _parts: list[NDArray[Any]] = field(default_factory=list)
    _pooled: list[NDArray[Any]] = field(default_factory=list)
    _bytes: int = 0
    _masked: bool = False
    _first: bool = True

    def __post_init__(self) -> None:
        # Before anything is encoded: a folder that is closed to this user is found at once.
        with written_to(self.cache.folder):
            self.cache.folder.mkdir(parents=True, exist_ok=True)

    def add(
        self,
        contents: Sequence[Sequence[bytes]],
        parts: Sequence[NDArray[Any]] | None,
        pooled: NDArray[Any] | None,
        *,
        left: int,
        masked: bool = False,
    ) -> None:
        """Add a few outputs.

        Args:
            contents: Digests of the items of each of the M outputs.
            parts: M times (P E); None where they are not kept.
            pooled: (M G); None where it is not kept.
            left: How many outputs, these among them, are still to come: room is made for all of them at first.
            masked: Whether the encoder masks parts.

        Raises:
            OutputError: If there is no room, or the cache cannot be written.
        """
        first = self._lines
        self._masked |= masked
        for number, shared in enumerate(contents):
            self._contents += shared
            self._outputs += [first + number] * len(shared)
        if parts is not None:
            self._parts += [array.astype(self.dtype) for array in parts]
        if pooled is not None:
            self._pooled += list(pooled.astype(self.dtype))
        added = sum(array.nbytes for array in (*self._parts[first:], *self._pooled[first:]))
        self._bytes += added
        if self._first:
            self.cache.make_room(added * left // max(1, len(contents)))
            self._first = False
        if self._bytes >= _SEGMENT:
            self.flush()

    @property
    def _lines(self) -> int:
        return max(len(self._parts), len(self._pooled))

    def flush(self) -> None:
        """Write what was added as a segment.

        Raises:
            OutputError: If the cache cannot be written.
        """
        if not self._contents:
            return
        folder = self.cache.folder / key_of(self.about)
        self.cache.make_room(self._bytes)
        _remove_abandoned(folder)
        if not (folder / _ABOUT).is_file():
            write_text(folder / _ABOUT, json.dumps(self.about, indent=1) + "\n")
        _write(folder, self._contents, self._outputs, self._parts, self._pooled, masked=self._masked)
        self._contents, self._outputs, self._parts, self._pooled, self._bytes = [], [], [], [], 0
        small = [path for path in _segments(folder) if _used(path)[1] < _SMALL]
        if len(small) >= _MANY:
            with suppress(OutputError):  # They stay as they are.
                _merge(folder, [segment for segment in map(OutputSegment.open, small) if segment is not None])


def user_cache() -> OutputCache | None:
    """The cache of this user: the folder that SUBTEXT_CACHE names, or `subtext` among the user's caches.

    Returns:
        The cache; None where its limit is 0, and where the system knows no folder of the user.

    Raises:
        ArgumentError: If the limit in the environment is no size.
    """
    limit = _limit()
    if not limit:
        return None
    if place := os.environ.get(PLACE):
        return OutputCache(Path(place).expanduser(), limit)
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # A relative path is to be ignored (XDG Base Directory Specification).
        try:
            base = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
        except RuntimeError:
            return None
    return OutputCache(base / "subtext", limit)


def forget(contents: Iterable[bytes]) -> int:
    """Remove all outputs of items from the cache of this user; see `OutputCache.forget`.

    Args:
        contents: The digest of each item.

    Returns:
        How many outputs were removed.

    Raises:
        OutputError: If the cache cannot be written.
    """
    cache = user_cache()
    return 0 if cache is None else cache.forget(contents)


def key_of(about: Mapping[str, Any]) -> str:
    """The name of an encoder's folder.

    Args:
        about: The encoder; see `OutputCache.find`.

    Returns:
        32 hexadecimal digits.
    """
    return hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=16).hexdigest()


def _limit() -> int:
    given = os.environ.get(LIMIT, "").strip()
    plain = given.upper().replace(" ", "")
    number = plain.rstrip("KMGTB")
    try:
        size = float(number) * _UNITS[plain.removeprefix(number)] if plain else LARGEST
        return max(0, int(size))
    except (ValueError, KeyError, OverflowError):
        raise ArgumentError(
            f"{LIMIT} needs a size such as 20GB, or 0 to keep nothing; it got {given!r}; change it in the environment"
        ) from None


def _folders(folder: Path) -> list[Path]:
    """The folders of encoders; none where there is no cache, or this user may not read it."""
    return [path for path in _entries(folder) if (path / _ABOUT).is_file()]


def _segments(folder: Path) -> list[Path]:
    return [path for path in _entries(folder) if path.is_dir()]


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError:
        return []


def _used(path: Path) -> tuple[float, int]:
    """When a segment was last used, and its bytes; zeros for one that another process has removed."""
    try:
        return path.stat().st_mtime, sum(file.stat().st_size for file in path.iterdir())
    except OSError:
        return 0.0, 0


def _touch(path: Path) -> None:
    try:
        os.utime(path)
    except OSError:
        return  # The cache of another user can be read, and not marked.


def _remove_abandoned(folder: Path) -> None:
    """Remove what killed writers have left. A writer at work has written a moment ago."""
    for path in folder.glob(f"{HIDDEN}*") if folder.is_dir() else ():
        try:
            latest = max(file.stat().st_mtime for file in (path, *path.rglob("*")))
        except OSError:
            continue  # Its writer has just finished.
        if time.time() - latest > _ABANDONED:
            shutil.rmtree(path, ignore_errors=True)


def _write(
    folder: Path,
    contents: Sequence[bytes],
    outputs: Sequence[int],
    parts: Sequence[NDArray[Any]],
    pooled: Sequence[NDArray[Any]],
    *,
    masked: bool,
) -> None:
    """Write a segment."""
    count = max(len(parts), len(pooled))
    sums = [_sum(parts[row] if parts else None, pooled[row] if pooled else None) for row in range(count)]

    def fill(new: Path) -> None:
        np.save(new / "contents.npy", np.frombuffer(b"".join(contents), np.uint8).reshape(-1, 16))
        np.save(new / "outputs.npy", np.array(outputs, np.int64))
        np.save(new / "lengths.npy", np.array([len(array) for array in parts] or [0] * count, np.int64))
        np.save(new / "sums.npy", np.array(sums, np.uint32))
        if parts:
            np.save(new / "parts.npy", np.concatenate(parts))
        if pooled:
            np.save(new / "pooled.npy", np.stack(pooled))
        if masked:
            (new / _MASKED).touch()

    write_folder(folder / secrets.token_hex(8), fill)


def _merge(folder: Path, segments: Sequence[OutputSegment], *, without: frozenset[bytes] = frozenset()) -> None:
    """Write several segments as one, without some items, and remove them; outputs that are damaged are left out."""
    contents: list[bytes] = []
    outputs: list[int] = []
    parts: list[NDArray[Any]] = []
    pooled: list[NDArray[Any]] = []
    for segment in segments:
        numbers: dict[int, int] = {}
        for content, output in _items(segment):
            if content in without or (output not in numbers and not segment.is_whole(output)):
                continue
            if output not in numbers:
                numbers[output] = max(len(parts), len(pooled))
                rows, vector = segment.output(output)
                parts += [] if rows is None else [np.array(rows)]
                pooled += [] if vector is None else [np.array(vector)]
            contents.append(content)
            outputs.append(numbers[output])
    if contents:
        _write(folder, contents, outputs, parts, pooled, masked=any(segment.masked for segment in segments))
    for segment in segments:
        _remove(segment.path)


def _remove(path: Path) -> None:
    """Remove a folder that another process may have removed already."""
    with written_to(path):
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            shutil.rmtree(path, ignore_errors=True)


def _items(segment: OutputSegment) -> Iterator[tuple[bytes, int]]:
    return zip(map(bytes, segment.contents), segment.outputs.tolist(), strict=True)
