"""Arrays in files, which are mapped instead of read, and the names of their rows.

Files are npy, npz (stored members are mapped), and folders in SCAN's "precomp" form (Lee et al. 2018), which have one
array of region features and one file of captions per split.
"""

from __future__ import annotations

import json
import math
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from subtext.errors import DataError

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.parquet

SPLIT_FILES = {"train": "train", "dev": "val", "val": "val", "test": "test", "testall": "testall"}
"""Prefixes of the files of a folder in SCAN's form -> their splits."""
MOST_INFLATED, MOST_RATIO = 2**28, 100
"""Bytes above which what is stored compressed may have this many times its bytes in the file, and no more."""
NUMBERS = "fiu"
"""Kinds of arrays that are read as numbers; of complex ones float32 would lose a part."""
LARGEST = 1e16
"""Size of a feature from which on the sum of the squares of a million such numbers overflows float32."""
_LOCAL_HEADER = struct.Struct("<4s5H3I2H")


@dataclass(frozen=True)
class Rows:
    """Arrays one after the other, read by row as if they were one.

    Attributes:
        arrays: (rows, ...) in memory or mapped, of equal shape except for their length.
        steps: One per array: 1 for every row, 5 where a file repeats each row five times.
    """

    arrays: tuple[NDArray[Any], ...]
    steps: tuple[int, ...] = (1,)

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows, then the shape of one."""
        return (len(self), *self.arrays[0].shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the numbers on disk."""
        return self.arrays[0].dtype

    def __len__(self) -> int:
        """The number of rows."""
        return sum(map(len, self._stepped))

    def take(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Read the chosen rows as float32.

        Args:
            rows: (N) indices.

        Returns:
            (N, ...) the rows, in this order.
        """
        if len(self.arrays) == 1:
            return as_float32(np.asarray(self.arrays[0][rows * self.steps[0]]))
        taken = np.empty((len(rows), *self.shape[1:]), dtype=np.float32)
        start = 0
        for array in self._stepped:
            inside = (rows >= start) & (rows < start + len(array))
            taken[inside] = as_float32(array[rows[inside] - start])
            start += len(array)
        return taken

    def blocks(self, size: int) -> Iterator[NDArray[Any]]:
        """Read all rows in order as they are on disk.

        Args:
            size: Bytes of a block, about.

        Yields:
            Contiguous blocks of rows.
        """
        rows = max(1, size // max(1, self.dtype.itemsize * int(np.prod(self.shape[1:]))))
        for array in self._stepped:
            for start in range(0, len(array), rows):
                yield np.ascontiguousarray(array[start : start + rows])

    @property
    def _stepped(self) -> list[NDArray[Any]]:
        return [array[::step] for array, step in zip(self.arrays, self.steps, strict=True)]


def padded(items: Sequence[Any], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Pad items of different lengths with zeros at the end.

    Args:
        items: (N) arrays of shape (parts, *shape).
        shape: Shape of one part.

    Returns:
        (N P *shape) float32; P is the largest number of parts, at least 1.
    """
    table = np.zeros((len(items), max(map(len, items), default=1), *shape), dtype=np.float32)
    for row, item in zip(table, items, strict=True):
        row[: len(item)] = as_float32(item)
    return table


def as_float32(array: NDArray[Any]) -> NDArray[np.float32]:
    """Convert numbers to float32; those that are too large become infinite.

    Args:
        array: Numbers of any shape.

    Returns:
        The same shape.
    """
    with np.errstate(over="ignore"):
        return array.astype(np.float32, copy=False)


def unusable(rows: NDArray[np.float32]) -> tuple[int, str] | None:
    """Find the first row with a number that no model can compute with.

    Numbers that are not finite, and those of more than `LARGEST` in size.

    Args:
        rows: (N ...) numbers.

    Returns:
        Its index and a description of the number; None if all rows are usable.
    """
    # A number that is none makes a comparison false.
    if not rows.size or (rows.min() >= -LARGEST and rows.max() <= LARGEST):
        return None
    sizes = np.abs(rows.reshape(len(rows), -1)).max(axis=1)
    row = int(np.flatnonzero(~(sizes <= LARGEST))[0])
    return row, f"a number of {sizes[row]:.3g} in size" if np.isfinite(sizes[row]) else "NaN or infinity"


def open_npz(path: Path, names: Sequence[str] | None, *, empty: bool = False) -> dict[str, NDArray[Any]]:
    """Open the members of these names that exist: stored ones mapped, compressed ones read; never unpickled.

    Args:
        path: The file.
        names: None for all.
        empty: Whether the file may have none of them.

    Returns:
        Name -> array.

    Raises:
        DataError: If the file is no npz, a member holds Python objects, or one is far larger than the file.
    """
    try:
        with path.open("rb") as end:
            end.seek(max(0, path.stat().st_size - 22))
            end.read()  # Where the disk reports an error, zipfile says "not a zip file".
        with zipfile.ZipFile(path) as archive, path.open("rb") as raw:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            names = list(members) if names is None else names
            arrays = {}
            for name in (name for name in names if name in members):
                if members[name].compress_type == zipfile.ZIP_STORED:
                    arrays[name] = _mapped(path, raw, members[name])
                    continue
                with archive.open(members[name]) as member:
                    _require_size(member, members[name])
                with archive.open(members[name]) as member:
                    arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
    except (zipfile.BadZipFile, zlib.error, RuntimeError, OSError, ValueError, struct.error, EOFError) as error:
        raise DataError(f"{path} needs to be an npz of plain arrays; reading it failed: {_reason(error)}") from error
    if not arrays and not empty:
        raise DataError(
            f"{path} needs members named {', '.join(names)}; it holds {', '.join(members) or 'nothing'}; "
            "save it with numpy.savez(file, names=..., pooled=...)"
        )
    return arrays


def open_npy(path: Path) -> NDArray[Any]:
    """Map an npy file.

    Args:
        path: The file.

    Returns:
        The array.

    Raises:
        DataError: If it is none, or holds Python objects.
    """
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} needs to be an npy of plain numbers; reading it failed: {_reason(error)}") from error


def _mapped(path: Path, raw: Any, info: zipfile.ZipInfo) -> NDArray[Any]:
    raw.seek(info.header_offset)
    header = _LOCAL_HEADER.unpack(raw.read(_LOCAL_HEADER.size))
    raw.seek(header[-2] + header[-1], 1)
    shape, fortran, dtype = _header(raw, info)
    if 0 in shape:
        return np.empty(shape, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="r", offset=raw.tell(), shape=shape, order="F" if fortran else "C")


def _header(file: Any, info: zipfile.ZipInfo) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """The shape, order and type of a member, from its head."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    if dtype.hasobject:
        raise ValueError(f"{info.filename} holds Python objects; save names as strings, not as objects")
    return shape, fortran, dtype


def _require_size(file: Any, info: zipfile.ZipInfo) -> None:
    """Raise ValueError unless a compressed member has the bytes that its head declares, and not far more than the file.

    No array is made before: its memory would be that of the declared shape.
    """
    shape, _, dtype = _header(file, info)
    size = math.prod(shape) * dtype.itemsize
    if file.tell() + size != info.file_size:
        raise ValueError(f"{info.filename} declares {size:,} bytes of numbers in {info.file_size:,} bytes")
    if size > max(MOST_INFLATED, MOST_RATIO * info.compress_size):
        raise ValueError(
            f"{info.filename} has {info.compress_size:,} bytes that inflate to {size:,}, more than {MOST_RATIO} times "
            "as many; save it with numpy.savez, which does not compress"
        )


def require_inflated(path: Path, size: int, stored: int) -> None:
    """Refuse compressed numbers that inflate to far more bytes than the file has.

    Args:
        path: The file, for the message.
        size: Bytes in memory.
        stored: In the file.

    Raises:
        DataError: If they do.
    """
    if size > max(MOST_INFLATED, MOST_RATIO * stored):
        raise DataError(
            f"{path} has {stored:,} bytes that inflate to {size:,} or more, over {MOST_RATIO} times as many; write it "
            "without compression and dictionaries"
        )


def parquet_batches(
    file: pyarrow.parquet.ParquetFile, path: Path, columns: Sequence[str] | None = None
) -> Iterator[pyarrow.RecordBatch]:
    """Read a Parquet file in batches of rows.

    Args:
        file: The open file.
        path: Its path, for messages.
        columns: Names of the columns; None for all.

    Yields:
        The batches.

    Raises:
        DataError: If they inflate to far more bytes than it has.
    """
    stored, size = path.stat().st_size, 0
    groups = (file.metadata.row_group(number) for number in range(file.metadata.num_row_groups))
    require_inflated(path, sum(group.total_byte_size for group in groups), stored)
    for batch in file.iter_batches(batch_size=1024, columns=columns):
        size += batch.nbytes
        require_inflated(path, size, stored)
        yield batch


def record_values(batch: pyarrow.RecordBatch) -> list[dict[str, Any] | str]:
    """The rows of a batch; a cell that cannot be read makes its own row unusable, and no other.

    Args:
        batch: Of a table.

    Returns:
        Each row as a dictionary, or the reason why it cannot be read.
    """
    try:
        return batch.to_pylist()
    except ValueError:
        pass
    # A string that is no UTF-8, or a time out of range, makes its own row unusable and no other.
    values: list[dict[str, Any] | str] = []
    for row in range(batch.num_rows):
        try:
            values += batch.slice(row, 1).to_pylist()
        except UnicodeDecodeError:
            values.append("is not valid UTF-8; write it as UTF-8")
        except ValueError as error:
            values.append(f"has a value that cannot be read: {_reason(error)[:200]}")
    return values


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def ids_beside(path: Path, name: str = "ids") -> list[str]:
    """Read the names in FILE.NAME.json or FILE.NAME.txt beside a file.

    Args:
        path: FILE.
        name: NAME.

    Returns:
        The names in order.

    Raises:
        DataError: If there are none.
    """
    text, listed = (path.with_suffix(suffix.replace("ids", name)) for suffix in (".ids.txt", ".ids.json"))
    if not listed.is_file() and not text.is_file():
        raise DataError(
            f"{path} needs '{name}' in it, or in {text.name} (one a line) or {listed.name}; rows are joined by name, "
            "not by position"
        )
    return read_ids(listed if listed.is_file() else text)


def read_ids(file: Path) -> list[str]:
    """Read the names in a file: a JSON list, or one per line.

    Args:
        file: The file.

    Returns:
        The names in order.

    Raises:
        DataError: If it cannot be read.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} needs to be a file of UTF-8 text; {error}") from error
    return listed_ids(text, f"{file}") if file.suffix == ".json" else text.removesuffix("\n").split("\n")


def listed_ids(text: str, where: str) -> list[str]:
    """Parse the names in a JSON list.

    Args:
        text: The JSON.
        where: Its origin, for messages.

    Returns:
        The names in order.

    Raises:
        DataError: If it is something else.
    """
    try:
        names = json.loads(text)
    except ValueError as error:
        raise DataError(f"{where} needs to be a JSON list of ids; {error}") from error
    if not isinstance(names, list):
        raise DataError(f"{where} needs to be a JSON list of ids; it got {type(names).__name__}")
    return [str(name) for name in names]


def ids_of_array(array: NDArray[Any], where: str) -> list[str]:
    """Convert an array of strings or integers to names.

    Args:
        array: (N) the array.
        where: Its origin, for messages.

    Returns:
        The names in order.

    Raises:
        DataError: If it is something else.
    """
    if array.ndim != 1 or array.dtype.kind not in "USiu":
        raise DataError(f"{where} needs one string a row; it got {array.dtype} of shape {array.shape}")
    return [name.decode("utf-8") if isinstance(name, bytes) else str(name) for name in array.tolist()]


def require_unique(names: Sequence[str], path: Path) -> None:
    """Require that names are unique.

    Args:
        names: The names.
        path: Their file, for the message.

    Raises:
        DataError: If a name occurs twice.
    """
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise DataError(
            f"{path} needs ids that are unique; {len(twice)} come more than once, first {first_names(twice)}"
        )


def rows_by_name(
    row_of: Mapping[str, int], ids: Sequence[str], values: Sequence[Any] | None, path: Path
) -> NDArray[np.int64]:
    """Find the row of each item: by its id, else by its value (a path or a text), else by the path's file name.

    Args:
        row_of: Name -> row.
        ids: (N) ids of the items.
        values: (N) paths or texts; None to look up ids alone.
        path: The file of the rows, for messages.

    Returns:
        (N) the rows.

    Raises:
        DataError: If items have no row; the message counts them and names the first three.
    """
    rows = [row_of.get(name, -1) for name in ids]
    for index, row in enumerate(rows if values is not None and -1 in rows else ()):
        if row < 0 and values is not None and isinstance(value := values[index], str):
            rows[index] = row_of.get(value, row_of.get(PurePosixPath(value).name, -1))
    if missing := [name for name, row in zip(ids, rows, strict=True) if row < 0]:
        raise DataError(
            f"{path} needs a row for every item; {len(missing)} of {len(ids)} have none, first {first_names(missing)}; "
            f"it names {first_names(list(row_of))}: names are joined to an item's id, path or file name"
        )
    return np.array(rows, dtype=np.int64)


def first_names(names: Sequence[str]) -> str:
    """Join the first three names, for a message.

    Args:
        names: The names.

    Returns:
        The quoted names with commas between them.
    """
    return ", ".join(repr(name) for name in names[:3])


def scan_splits(folder: Path) -> dict[str, tuple[NDArray[Any], Path, int]]:
    """Open the splits of a folder in SCAN's form.

    The array has a row per image, or the same row five times, once per caption.

    Args:
        folder: The folder.

    Returns:
        Prefix -> (array, its captions file, step from one image to the next).

    Raises:
        DataError: If an array has no captions file beside it.
    """
    splits = {}
    for prefix in SPLIT_FILES:
        path, captions = folder / f"{prefix}_ims.npy", folder / f"{prefix}_caps.txt"
        if not path.is_file():
            continue
        if not captions.is_file():
            raise DataError(f"{path.name} needs its captions beside it; {captions} is not there")
        array = open_npy(path)
        if array.ndim < 2:
            raise DataError(f"{path} needs a row of numbers per image, or several; it has shape {array.shape}")
        # Groups of five rows that are sampled over the file tell whether each row occurs five times.
        groups = np.unique(np.linspace(0, len(array) // 5 - 1, 20).astype(np.int64))
        repeated = len(array) >= 5 and len(array) % 5 == 0
        repeated = repeated and all((array[5 * g : 5 * g + 5] == array[5 * g]).all() for g in groups)
        splits[prefix] = (array, captions, 5 if repeated else 1)
    if not splits:
        raise DataError(f"{folder} needs train_ims.npy, dev_ims.npy or test_ims.npy for features in SCAN's form")
    return splits


def scan_names(prefix: str, count: int) -> list[str]:
    """Name the images of one file in SCAN's form: "train/0", "train/1", ...

    Args:
        prefix: Prefix of the file.
        count: Number of images.

    Returns:
        The names.
    """
    return [f"{prefix}/{number}" for number in range(count)]
