"""Which rows of a listing say what an index has already: they are counted, and neither held, read nor decoded.

An index keeps of each image, behind the size and the times of its file, a mark: a hash of the rows of the listing that
name it, and of its sidecars. A row whose mark and file are those of the index is passed over while the listing is read.
Of each image of the index 70 bytes of hashes are held, and 8 of each of its texts.
"""

from __future__ import annotations

import hashlib
import os
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from subtext.data.addresses import is_address
from subtext.data.dataset import KnownImage, RowIssue
from subtext.data.embedded import SIDECAR
from subtext.data.image_files import LARGEST_FILE, file_stamp, image_digest, most_pixels
from subtext.data.object_store import fetched, known_state, looked_up, release, was_asked
from subtext.data.rows import Progress, Row
from subtext.errors import DataError

_FORM = "1"
"""Of marks: another one where a row of a listing becomes another item."""
_SIDECARS = (SIDECAR, SIDECAR.upper())


class ReadAgain(Exception):
    """A row is about an image that was passed over: the listing is to be read as a whole."""


class ListedImage(NamedTuple):
    """An image of a store as the rows of a listing that stand together have it.

    Attributes:
        id: Id of the image.
        address: Its address.
        metadata: Its fields.
        fields: All fields of the images so far, in their order.
        split: Name of its split; "" for none.
        mark: As of `mark_of`.
    """

    id: str
    address: str
    metadata: Mapping[str, Any]
    fields: tuple[str, ...]
    split: str
    mark: str


@runtime_checkable
class ImageTaker(Protocol):
    """Takes the images of stores while a listing is read: after that, the bytes of each are needed no more."""

    def begin(self, root: Path, form: str, progress: Progress | None) -> None:
        """Begin a reading: the folder of relative paths, what the data are read as, and what is told of each image."""

    def is_done(self, address: str) -> bool:
        """Whether the bytes of an image were needed in this reading, and are no more."""

    def take(self, image: ListedImage) -> None:
        """Take an image, whose bytes were downloaded."""

    def leave(self, address: str) -> None:
        """Let an image go whose row cannot be used."""

    def finish(self) -> None:
        """Take what is left, at the end of the listing."""


def mark_of(rows: Iterable[Row], root: str | Path, sidecars: Collection[str] | None = None) -> str:
    """Hash all rows of an image, and the size and time of its sidecars.

    Args:
        rows: The rows, before anything is read of the image.
        root: Folder of relative image paths.
        sidecars: Paths of the .xmp files beside the image; None to look for them.

    Returns:
        16 hexadecimal digits; "" for an image that is no file, or of a group, which other rows may change.
    """
    parts = []
    for row in rows:
        if not isinstance(row.image, str) or row.group is not None or row.unpaired:
            return ""
        parts.append((row.image, row.image_id, row.texts, row.text_ids, row.split, row.metadata))
        name = row.image
    there = is_address(name)
    whole = name if there else os.path.join(root, name)  # noqa: PTH118 (a million paths)
    beside = there or sidecars is None or len(sidecars)
    for stem in (whole, os.path.splitext(whole)[0]) if beside else ():  # noqa: PTH122
        for suffix in _SIDECARS:
            if there:
                # Those that the listing of a folder has.
                parts += [(suffix, *state)] if (state := known_state(stem + suffix)) else []  # type: ignore[list-item]
                continue
            if sidecars is not None and stem + suffix not in sidecars:
                continue
            try:
                sidecar = os.stat(stem + suffix)  # noqa: PTH116
            except (OSError, ValueError):
                continue
            parts.append((suffix, sidecar.st_size, sidecar.st_mtime_ns))  # type: ignore[arg-type]
    return hashlib.blake2b(f"{_FORM}{parts!r}".encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def file_part(stamp: str | None) -> str | None:
    """The size and times of a stamp, without its mark.

    Args:
        stamp: Of an image of an index.

    Returns:
        The three numbers.
    """
    return stamp if stamp is None else " ".join(stamp.split(" ")[:3])


def _hash(text: str) -> int:
    """64 bits, of this process."""
    return hash(text) & 0xFFFFFFFFFFFFFFFF


class _Stamp(NamedTuple):
    """A stamp as numbers: size and time, the time of change, and the mark; 0 for none.

    The time of change stands alone: where it alone differs, the content is compared.
    """

    file: int
    changed: int
    mark: int

    @classmethod
    def of(cls, stamp: str) -> _Stamp:
        """That of a stamp, with its mark or without."""
        size, _, rest = stamp.partition(" ")
        modified, _, rest = rest.partition(" ")
        changed, _, mark = rest.partition(" ")
        return cls(_hash(f"{size} {modified}"), _hash(changed) & 0xFFFFFFFF, _hash(mark) if mark else 0)


class Unchanged:
    """The images of an index as hashes, and those of them that a listing was found to have unchanged.

    Args:
        images: The images.
        root: Folder that the paths of the index start from.
        count: Number of the images.
        verify_files: Whether every file is compared by its content.
    """

    def __init__(self, images: Iterable[KnownImage], root: Path, *, count: int, verify_files: bool) -> None:
        self.root, self.verify_files = root.resolve(), verify_files
        # A column each, in the order of the first: numbers of Python are read out of them faster than out of NumPy's.
        self._ids, self._paths, self._files, self._contents, self._marks = (
            array("Q", bytes(8 * count)) for _ in range(5)
        )
        self._keys, self._changed, self._first, self._count = (
            array(kind, bytes(array(kind).itemsize * count)) for kind in "qIII"
        )
        self._texts = array("q")
        for place, image in enumerate(images):
            stamp = _Stamp.of(image.stamp or "")
            self._ids[place] = _hash(image.id)
            self._paths[place] = _hash(image.path or f"\0{image.id}")
            self._files[place], self._changed[place], self._marks[place] = stamp
            self._contents[place] = _content(image.content)
            self._keys[place] = image.key
            self._first[place], self._count[place] = len(self._texts), len(image.texts)
            self._texts.extend(image.texts)
        order: NDArray[np.uint32] = np.argsort(_numbers(self._ids), kind="stable").astype(np.uint32)
        for column in (value for value in vars(self).values() if isinstance(value, array) and len(value) == count):
            if column is not self._texts:
                _numbers(column)[:] = _numbers(column)[order]
        self._by_path: array[int] | None = None
        self._sidecars: tuple[str, set[str]] = "", set()
        self.seen = bytearray(count)
        self.split, self.items, self.number = False, 0, count
        self._now = bytearray(count)
        self._passed = array("Q")
        self.touched: list[tuple[int, str]] = []
        self.passes = True
        self.taker: ImageTaker | None = None

    def begin(self) -> None:
        """Begin a listing."""
        self._now, self._passed, self.split, self.items = bytearray(len(self.seen)), array("Q"), False, 0

    def whole_listing(self) -> Unchanged:
        """The same that passes over nothing of the next listing.

        Returns:
            The same object.
        """
        self.passes = False
        return self

    def finish(self) -> int:
        """Note what a listing has, when it was read to its end.

        Returns:
            Number of images and texts that were passed over.
        """
        items, self.items = self.items, 0
        self.seen = bytearray(np.frombuffer(self.seen, np.uint8) | np.frombuffer(self._now, np.uint8))
        self.passes, self._now, self._passed = True, bytearray(len(self.seen)), array("Q")
        return items

    @property
    def keys(self) -> NDArray[np.int64]:
        """(N) keys of the images that were passed over, ascending."""
        keys: NDArray[np.int64] = _numbers(self._keys)[np.frombuffer(self.seen, np.bool_)]
        keys.sort()
        return keys

    @property
    def texts(self) -> NDArray[np.int64]:
        """(M) keys of their texts, ascending."""
        chosen = np.zeros(len(self._texts), dtype=np.bool_)
        seen, first, count = np.frombuffer(self.seen, np.bool_), _numbers(self._first), _numbers(self._count)
        for start in range(0, len(seen), _BLOCK):
            own = slice(start, start + _BLOCK)
            of_images = count[own][seen[own]].astype(np.int64)
            before = np.cumsum(of_images) - of_images
            chosen[np.arange(of_images.sum()) + np.repeat(first[own][seen[own]] - before, of_images)] = True
        texts: NDArray[np.int64] = _numbers(self._texts)[chosen]
        texts.sort()
        again = texts[1:] == texts[:-1]
        return np.unique(texts) if again.any() else texts

    def changed(self, rows: Iterable[Row | RowIssue], root: Path) -> Iterator[Row | RowIssue]:
        """Pass over the rows of images that the index has as they are; the others get their marks.

        Args:
            rows: The rows of a listing, before anything is read of their images.
            root: Folder of relative image paths.

        Yields:
            The other rows, and problems.

        Raises:
            ReadAgain: If an image that was passed over is named again, or is another name of a file.
        """
        root, new = root.resolve(), array("Q")
        base = str(root)  # A text is joined with a name in a third of the time.
        rows = looked_up(rows, self._address)
        if self.verify_files:
            rows = fetched(rows, self._address, most=LARGEST_FILE * most_pixels())
        for number, unit in enumerate(_units(rows)):
            if isinstance(unit, RowIssue):
                yield unit
                continue
            image = unit[0].image
            path = os.path.join(base, image) if isinstance(image, str) and not is_address(image) else None  # noqa: PTH118
            place, file = self._place(unit[0]), self._file(unit[0], path)
            if place is not None and self._now[place]:
                raise ReadAgain
            mark = mark_of(unit, base, self._sidecars_beside(path)) if file is not None else ""
            if file is not None:
                stamp, identity = f"{file[0]} {mark}", file[1]
                if place is not None and mark and self._is_stored(place, unit, stamp, root):
                    self._now[place] = 1
                    self._passed.append(identity)
                    self.split |= unit[0].split is not None
                    texts = sum(len(row.texts) for row in unit) if unit[0].inside is None else self._count[place]
                    self.items += 1 + texts
                    continue
                new.append(identity)
            for row in unit:
                yield replace(row, mark=(number, mark))
        if len(new) and len(self._passed):
            passed, files = _numbers(self._passed), _numbers(new)
            passed.sort()
            if (passed[np.minimum(np.searchsorted(passed, files), len(passed) - 1)] == files).any():
                raise ReadAgain

    def is_other(self, value: str | bytes, root: Path) -> bool:
        """Tell whether an image is no file that the index has as it is now; it need not be decoded again.

        Args:
            value: Path or bytes.
            root: Folder of relative image paths.

        Returns:
            Whether it is to be decoded.
        """
        if isinstance(value, bytes):
            return True
        if (place := self._place_of(self._stored_path(value, root.resolve()))) is None:
            return True
        stamp = file_stamp(value, root)
        if stamp and not self.verify_files:
            own = _Stamp.of(stamp)
            if (self._files[place], self._changed[place]) == (own.file, own.changed):
                return False
        try:
            # Copied, moved or given other rights: the same bytes have been decoded before.
            return not self._has_content(place, value, root)
        except DataError:
            return True

    def _place_of(self, path: str) -> int | None:
        """The place of an image that has a path."""
        if self._by_path is None:
            order = np.argsort(_numbers(self._paths), kind="stable").astype(np.uint32)
            self._by_path = array("I", order.tobytes())
        wanted = _hash(path)
        row = bisect_left(self._by_path, wanted, key=self._paths.__getitem__)
        place = self._by_path[row] if row < len(self._by_path) else None
        return place if place is not None and self._paths[place] == wanted else None

    def _has_content(self, place: int, value: str, root: Path) -> bool:
        """Whether an image has the content that the index has of it; that of a store is needed no more then."""
        same = _content(image_digest(value, root)) == self._contents[place]
        release([value] if same else [])
        return same

    def _place(self, row: Row) -> int | None:
        name = row.image_id or row.image
        if not isinstance(name, str) or not self.passes:
            return None
        wanted = _hash(name)
        place = bisect_left(self._ids, wanted)
        return place if place < len(self._ids) and self._ids[place] == wanted else None

    def _sidecars_beside(self, path: str | None) -> set[str]:
        """The paths of the .xmp files in the folder of an image; none for an image that is no file."""
        if path is None:
            return set()
        folder = os.path.dirname(path)  # noqa: PTH120
        if folder != self._sidecars[0]:
            try:
                with os.scandir(folder) as entries:
                    found = {os.path.join(folder, e.name) for e in entries if e.name.endswith(_SIDECARS)}  # noqa: PTH118
            except (OSError, ValueError):
                found = set()
            self._sidecars = folder, found
        return self._sidecars[1]

    def _file(self, row: Row, path: str | None) -> tuple[str, int] | None:
        """Size and times of the file of a row, and what its names have in common; None for no file."""
        if is_address(row.image):
            # Of an image that the index does not have, a download tells them.
            stamp = file_stamp(str(row.image), Path()) if self._place(row) is not None else "new"
            return (stamp, _hash(str(row.image))) if stamp else None
        if path is None or "?offset=" in str(row.image):
            return None
        try:
            file = os.stat(path)  # noqa: PTH116
        except (OSError, ValueError):
            return None
        stamp = f"{file.st_size} {file.st_mtime_ns} {file.st_ctime_ns}"
        return stamp, hash((file.st_dev, file.st_ino)) & 0xFFFFFFFFFFFFFFFF

    def _address(self, row: Row | RowIssue) -> str | None:
        """The address of a row whose state is compared, or was asked for in an earlier reading."""
        if not isinstance(row, Row) or not isinstance(row.image, str) or not is_address(row.image):
            return None
        return row.image if self._place(row) is not None or was_asked(row.image) else None

    def _is_stored(self, place: int, unit: list[Row], stamp: str, root: Path) -> bool:
        value, own = str(unit[0].image), _Stamp.of(stamp)
        if self._count[place] < sum(len(row.texts) for row in unit):
            return False
        if (self._files[place], self._marks[place]) != (own.file, own.mark):
            return False
        if self._paths[place] != _hash(self._stored_path(value, root)):
            return False
        if self._changed[place] == own.changed and not self.verify_files:
            return True
        try:
            same = self._has_content(place, value, root)
        except DataError:
            return False
        if same and self._changed[place] != own.changed:
            self.touched.append((self._keys[place], stamp))
        return same

    def _stored_path(self, value: str, root: Path) -> str:
        if root == self.root or is_address(value):
            return value
        file = (root / value).resolve()
        return file.relative_to(self.root).as_posix() if file.is_relative_to(self.root) else str(file)


_BLOCK = 65_536
"""Images whose texts are gathered at a time."""


def _numbers(column: array[int]) -> NDArray[Any]:
    """A column as an array of NumPy, which shares its memory."""
    return np.frombuffer(column, dtype=f"{'i' if column.typecode == 'q' else 'u'}{column.itemsize}")


def _content(digest: bytes) -> int:
    """The half of a digest, by which a file is compared with what it was."""
    return int.from_bytes(digest[:8], "little")


def _units(rows: Iterable[Row | RowIssue]) -> Iterator[list[Row] | RowIssue]:
    """Rows of one image that follow each other; and problems."""
    unit = list[Row]()
    for row in rows:
        if unit and (
            not isinstance(row, Row)
            or row.image is None
            or (row.image, row.image_id) != (unit[0].image, unit[0].image_id)
        ):
            yield unit
            unit = []
        if isinstance(row, Row):
            unit.append(row)
        else:
            yield row
    if unit:
        yield unit
