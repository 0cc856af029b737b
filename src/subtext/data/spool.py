"""The items of a long listing in a temporary file: of each, the place of its record and some hashes are held.

A `RowFinder` finds rows by hashes, and asks the record whether a hash means what it seems to; a `Column` is a list of
one field of all records.
"""

from __future__ import annotations

import json
import tempfile
import threading
import weakref
from array import array
from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from subtext.errors import OutputError

Record = TypeVar("Record", bound=tuple[Any, ...])

_PENDING = 2**20
"""Bytes that are written at a time."""
_GUESS = 1024
"""Bytes that are read of a record whose length is not known yet."""
_RECENT, _SMALL = 1024, 4096
"""Records that are kept as they are, and the most bytes of each."""
FEW = 4096
"""Rows that are taken of a column as a list; more stay in the file."""


def _packed(record: tuple[Any, ...]) -> bytes:
    """The fields as JSON, and behind it those that are bytes."""
    fields = [[len(field)] if isinstance(field, bytes) else None for field in record]
    plain = [None if isinstance(field, bytes) else field for field in record]
    head = json.dumps([plain, fields], separators=(",", ":")).encode("ascii")
    return b"".join((len(head).to_bytes(8, "little"), head, *(field for field in record if isinstance(field, bytes))))


def _unpacked(content: bytes) -> list[Any]:
    """The fields of a record."""
    start = 8 + int.from_bytes(content[:8], "little")
    plain, fields = json.loads(content[8:start])
    for number, size in enumerate(fields):
        if size is not None:
            plain[number], start = content[start : start + size[0]], start + size[0]
    values: list[Any] = plain
    return values


class _Starts:
    """Where records start in a file, most of which follow each other: some 4 bytes are held of each."""

    def __init__(self) -> None:
        self._blocks, self._behind = array("q"), array("I")
        self._far = dict[int, int]()

    def __len__(self) -> int:
        return len(self._behind)

    def append(self, start: int) -> None:
        if len(self._behind) % _BLOCK == 0:
            self._blocks.append(start)
        self._behind.append(0)
        self[len(self._behind) - 1] = start

    def __getitem__(self, row: int) -> int:
        behind = self._behind[row]
        return self._blocks[row // _BLOCK] + behind if behind != _FAR else self._far[row]

    def __setitem__(self, row: int, start: int) -> None:
        behind = start - self._blocks[row // _BLOCK]
        if behind >= _FAR:
            self._far[row] = start
        self._behind[row] = min(behind, _FAR)


_BLOCK = 64
"""Records whose starts are told from that of the first one."""
_FAR = 0xFFFFFFFF
"""In the place of a start that is farther away, as that of a record which was written again much later."""


class Spool(Generic[Record]):
    """Records in a temporary file without a name, which ends with this object; some 4 bytes are held of each.

    A record that JSON cannot write, as a reader of another package may give one, stays in memory. Threads may read.

    Args:
        make: Makes a record of the list of its fields, each of which is bytes, or plain data.
    """

    def __init__(self, make: Callable[[list[Any]], Record]) -> None:
        self._make, self._odd = make, dict[int, Record]()
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (ends with this object)
        weakref.finalize(self, self._file.close)
        self._starts, self._pending, self._written = _Starts(), bytearray(), 0
        self._recent: dict[int, Record] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._starts)

    def append(self, record: Record) -> None:
        """Add a record.

        Args:
            record: A tuple.

        Raises:
            OutputError: If the disk is full.
        """
        self._starts.append(self._put(record, len(self)))

    def __setitem__(self, row: int, record: Record) -> None:
        self._starts[row] = self._put(record, row)

    def __getitem__(self, row: int) -> Record:
        row = range(len(self))[row]
        record = self._recent.get(row) or self._odd.get(row)
        if record is None:
            content = self._bytes(self._starts[row])
            record = self._make(_unpacked(content))
            self._keep(row, record, len(content))
        return record

    def __iter__(self) -> Iterator[Record]:
        return (self[row] for row in range(len(self)))

    def _keep(self, row: int, record: Record, size: int) -> None:
        if len(self._recent) >= _RECENT:
            self._recent = {}
        if size <= _SMALL:
            self._recent[row] = record
        else:
            self._recent.pop(row, None)

    def _put(self, record: Record, row: int) -> int:
        self._odd.pop(row, None)
        try:
            content = _packed(record)
        except (TypeError, ValueError, RecursionError):
            content, self._odd[row] = b"", record
        with self._lock:
            start = self._written + len(self._pending)
            self._pending += len(content).to_bytes(8, "little")
            self._pending += content
            self._keep(row, record, len(content))
            if len(self._pending) > _PENDING:
                self._write()
        return start

    def _write(self) -> None:
        left = memoryview(self._pending)
        try:
            self._file.seek(self._written)
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            raise OutputError(
                f"a listing of many items needs room in the folder of temporary files, {tempfile.gettempdir()}: "
                f"{error.strerror}; free some, or name another folder (TMPDIR)"
            ) from error
        self._written, self._pending = self._written + len(self._pending), bytearray()

    def _bytes(self, start: int) -> bytes:
        with self._lock:
            if start >= self._written:
                from_pending = start - self._written
                size = int.from_bytes(self._pending[from_pending : from_pending + 8], "little")
                return bytes(self._pending[from_pending + 8 : from_pending + 8 + size])
            self._file.seek(start)
            content: bytes = self._file.read(_GUESS)
            size = 8 + int.from_bytes(content[:8], "little")
            while len(content) < size:
                content += self._file.read(size - len(content))
        return content[8:size]


class RowFinder:
    """Finds a row by what it has: some 9 bytes are held of each, a part of a hash and the number of the row.

    They lie in the order of these parts, in as many short arrays as make it cheap to put another one between.
    """

    def __init__(self) -> None:
        self._count = 0
        self._places: list[array[int] | None] = [None] * _ARRAYS

    def __len__(self) -> int:
        return self._count

    def find(self, key: Hashable, same: Callable[[int], bool]) -> int | None:
        """Find the row that has a key.

        Args:
            key: The key.
            same: Tells of a row of an equal hash whether it has this key.

        Returns:
            The row; None for none.
        """
        number, part = _parts(key)
        if (places := self._places[number]) is None:
            return None
        for place in range(bisect_left(places, part), len(places)):
            row = places[place] - part
            if row > _MOST_ROWS:
                return None
            if same(row):
                return row
        return None

    def add(self, key: Hashable, row: int) -> None:
        """Add a row under a key that no row has.

        Args:
            key: The key.
            row: The number, 0 to 4,294,967,295.
        """
        number, part = _parts(key)
        if (places := self._places[number]) is None:
            places = self._places[number] = array("Q")
        insort(places, part + row)
        self._count += 1


_ARRAYS = 1024
"""Arrays of a finder."""
_MOST_ROWS = 0xFFFFFFFF


def _parts(key: Hashable) -> tuple[int, int]:
    """The array of a key, and a part of its hash behind which a row has room."""
    number = _hash(key)
    return number % _ARRAYS, number & 0xFFFFFFFF00000000


def _hash(key: Hashable) -> int:
    """64 bits."""
    return hash(key if isinstance(key, str | bytes) else (key,)) & 0xFFFFFFFFFFFFFFFF


class KeySet:
    """Keys, by 64 bits of a hash of each: some 9 bytes are held."""

    def __init__(self) -> None:
        self._hashes: list[array[int] | None] = [None] * _ARRAYS

    def __contains__(self, key: Hashable) -> bool:
        own = _hash(key)
        hashes = self._hashes[own % _ARRAYS]
        if hashes is None:
            return False
        place = bisect_left(hashes, own)
        return place < len(hashes) and hashes[place] == own

    def add(self, key: Hashable) -> None:
        """Add a key that is not among them.

        Args:
            key: The key.
        """
        own = _hash(key)
        if (hashes := self._hashes[own % _ARRAYS]) is None:
            hashes = self._hashes[own % _ARRAYS] = array("Q")
        insort(hashes, own)


class Column(Sequence[Any]):
    """One field of records in a file, as a list that is read where it is used.

    Args:
        records: The records.
        cell: Gives the field of a record.
        rows: (N) rows of the records that the column has; None for all.
        other: Row of the records -> the value that takes the place of its field.
    """

    def __init__(
        self,
        records: Spool[Any],
        cell: Callable[[Any], Any],
        rows: NDArray[np.int64] | None = None,
        other: Mapping[int, Any] | None = None,
    ) -> None:
        self._records, self._cell, self._rows, self._other = records, cell, rows, other or {}

    def __len__(self) -> int:
        return len(self._records) if self._rows is None else len(self._rows)

    @overload
    def __getitem__(self, row: int) -> Any: ...
    @overload
    def __getitem__(self, row: slice) -> list[Any]: ...
    def __getitem__(self, row: int | slice) -> Any:
        if isinstance(row, slice):
            return [self[number] for number in range(*row.indices(len(self)))]
        number = range(len(self))[row] if self._rows is None else int(self._rows[row])
        return self._other[number] if number in self._other else self._cell(self._records[number])

    def __iter__(self) -> Iterator[Any]:
        return (self[row] for row in range(len(self)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process gets a list."""
        return list, (list(self),)

    def take(self, rows: NDArray[np.int64], known: dict[int, NDArray[np.int64]] | None = None) -> Column:
        """Select rows, which stay in the file.

        Args:
            rows: (N) indices.
            known: What the columns of some items share: their rows.

        Returns:
            The column of these rows, in this order.
        """
        own, known = self._rows, {} if known is None else known
        chosen = known.get(id(own))
        if chosen is None:
            chosen = known[id(own)] = np.asarray(rows, dtype=np.int64) if own is None else own[rows]
        return Column(self._records, self._cell, chosen, self._other)

    def changed(self, cells: Mapping[int, Any]) -> Column:
        """Replace cells.

        Args:
            cells: Row -> its new value.

        Returns:
            The column with these values.
        """
        rows = self._rows
        named = {row if rows is None else int(rows[row]): value for row, value in cells.items()}
        return Column(self._records, self._cell, rows, {**self._other, **named})


class Splits:
    """The split of each item, as an array of texts would have it; a number of each is held.

    Args:
        names: The splits.
        codes: (N) of each item, the place of its split in `names`.
    """

    def __init__(self, names: Sequence[str] | NDArray[Any], codes: NDArray[Any]) -> None:
        self._names, self._codes = np.array(names), codes

    def __len__(self) -> int:
        return len(self._codes)

    def __getitem__(self, rows: Any) -> Any:
        codes = self._codes[rows]
        return Splits(self._names, codes) if isinstance(codes, np.ndarray) else self._names[codes]

    def __iter__(self) -> Iterator[str]:
        return (self._names[code] for code in self._codes)

    def __eq__(self, other: object) -> Any:
        """(N) which items have a split."""
        return (self._names == other)[self._codes]

    def __ne__(self, other: object) -> Any:
        """(N) which items do not have a split."""
        return (self._names != other)[self._codes]

    __hash__ = None  # type: ignore[assignment]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """(N) as texts."""
        return self._names[self._codes].astype(dtype or self._names.dtype)

    def tolist(self) -> list[str]:
        """As texts.

        Returns:
            The split of each item.
        """
        return list(map(self._names.tolist().__getitem__, self._codes.tolist()))


def taken(
    column: Sequence[Any], rows: NDArray[np.int64], known: dict[int, NDArray[np.int64]] | None = None
) -> Sequence[Any]:
    """Select rows of a column, in memory or in a file.

    Args:
        column: A list or a `Column`.
        rows: (N) indices.
        known: See `Column.take`.

    Returns:
        A list; a `Column` of one where the rows are many.
    """
    if isinstance(column, Column) and len(rows) > FEW:
        return column.take(rows, known)
    return [column[row] for row in rows.tolist()]


def changed(column: Sequence[Any], cells: Mapping[int, Any]) -> Sequence[Any]:
    """Replace cells of a column, in memory or in a file.

    Args:
        column: A list or a `Column`.
        cells: Row -> its new value.

    Returns:
        A column with these values.
    """
    if isinstance(column, Column):
        return column.changed(cells)
    return [cells.get(row, value) for row, value in enumerate(column)]
