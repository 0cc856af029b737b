"""Numbers on disk, read in place: stored members of an npz are mapped where they lie in the file.

Folders in SCAN's "precomp" form (Lee et al. 2018): one array of region features and one file of captions a split.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.errors import DataError

_LOCAL_HEADER = struct.Struct("<4s5H3I2H")


@dataclass(frozen=True)
class Rows:
    """Arrays one after the other as if they were one, read by row; every `step`-th row of a piece counts.

    pieces  (rows, ...) arrays, in memory or mapped, alike but for their length
    step    one a piece: 1 for every row, 5 where a file repeats each row five times
    """

    pieces: tuple[NDArray[Any], ...]
    steps: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows, then the shape of one."""
        return (len(self), *self.pieces[0].shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """What the numbers are on disk."""
        return self.pieces[0].dtype

    def __len__(self) -> int:
        """How many rows count."""
        return sum(self._lengths())

    def take(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The chosen rows as float32, in the order given."""
        if len(self.pieces) == 1:
            return np.asarray(self.pieces[0][rows * self.steps[0]]).astype(np.float32, copy=False)
        taken = np.empty((len(rows), *self.shape[1:]), dtype=np.float32)
        start = 0
        for array, step, length in zip(self.pieces, self.steps, self._lengths(), strict=True):
            inside = (rows >= start) & (rows < start + length)
            if inside.any():
                taken[inside] = array[(rows[inside] - start) * step]
            start += length
        return taken

    def blocks(self, size: int) -> Iterator[NDArray[Any]]:
        """All rows in order as they are on disk, contiguous, about `size` bytes at a time."""
        rows = max(1, size // max(1, self.dtype.itemsize * int(np.prod(self.shape[1:]))))
        for array, step in zip(self.pieces, self.steps, strict=True):
            counted = array[::step]
            for start in range(0, len(counted), rows):
                yield np.ascontiguousarray(counted[start : start + rows])

    def _lengths(self) -> list[int]:
        return [-(-len(array) // step) for array, step in zip(self.pieces, self.steps, strict=True)]


def one_array(array: NDArray[Any]) -> Rows:
    """Every row of one array."""
    return Rows((array,), (1,))


def open_npz(path: Path, names: Sequence[str], *, empty: bool = False) -> dict[str, NDArray[Any]]:
    """The wanted members that are there. Stored ones are mapped, compressed ones read into memory; never unpickled.

    empty  whether none of them needs to be there

    Raises DataError when the file is no npz, or a member holds Python objects.
    """
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as raw:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            arrays = {}
            for name in names:
                if name not in members:
                    continue
                info = members[name]
                if info.compress_type == zipfile.ZIP_STORED:
                    arrays[name] = _mapped(path, raw, info)
                else:
                    with archive.open(info) as member:
                        arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
            if not arrays and not empty:
                raise DataError(
                    f"{path} needs members named {', '.join(names)}; it holds {', '.join(members) or 'nothing'}; "
                    "save it with numpy.savez(file, names=..., pooled=...)"
                )
            return arrays
    except (zipfile.BadZipFile, OSError, ValueError, struct.error, EOFError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} needs to be an npz of plain arrays; reading it failed: {_why(error)}") from error


def open_npy(path: Path) -> NDArray[Any]:
    """An npy, mapped. Raises DataError when it is none, or holds Python objects."""
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} needs to be an npy of plain numbers; reading it failed: {_why(error)}") from error


def _mapped(path: Path, raw: Any, info: zipfile.ZipInfo) -> NDArray[Any]:
    raw.seek(info.header_offset)
    header = _LOCAL_HEADER.unpack(raw.read(_LOCAL_HEADER.size))
    raw.seek(header[-2] + header[-1], 1)
    version = np.lib.format.read_magic(raw)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(raw)
    if dtype.hasobject:
        raise ValueError(f"{info.filename} holds Python objects; save names as strings, not as objects")
    if 0 in shape:
        return np.empty(shape, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="r", offset=raw.tell(), shape=shape, order="F" if fortran else "C")


def _why(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


SPLIT_FILES = {"train": "train", "dev": "val", "val": "val", "test": "test", "testall": "testall"}
"""Names that a folder in SCAN's form begins its files with, and the splits that they are."""


def scan_splits(folder: Path) -> dict[str, tuple[NDArray[Any], Path, int]]:
    """What a folder in SCAN's form has: prefix -> (array, its captions file, rows from one image to the next).

    The array has a row per image, or the same row five times, once a caption.

    Raises DataError when an array has no captions file beside it.
    """
    splits = {}
    for prefix in SPLIT_FILES:
        path = folder / f"{prefix}_ims.npy"
        if not path.is_file():
            continue
        captions = folder / f"{prefix}_caps.txt"
        if not captions.is_file():
            raise DataError(f"{path.name} needs its captions beside it; {captions} is not there")
        array = open_npy(path)
        if array.ndim < 2:
            raise DataError(f"{path} needs a row of numbers per image, or several; it has shape {array.shape}")
        splits[prefix] = (array, captions, 5 if _repeated(array) else 1)
    if not splits:
        raise DataError(f"{folder} needs train_ims.npy, dev_ims.npy or test_ims.npy for features in SCAN's form")
    return splits


def scan_names(prefix: str, count: int) -> list[str]:
    """The names of the images of one file in SCAN's form: "train/0", "train/1", ..."""
    return [f"{prefix}/{number}" for number in range(count)]


def _repeated(array: NDArray[Any]) -> bool:
    """Whether each row stands five times, told from groups of five spread over the file."""
    if len(array) < 5 or len(array) % 5:
        return False
    groups = np.unique(np.linspace(0, len(array) // 5 - 1, 20).astype(np.int64))
    return all(bool((array[5 * g : 5 * g + 5] == array[5 * g]).all()) for g in groups)
