"""Items as an index stores them, and the changes that put items in or delete them."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from subtext.data.rows import RowError, id_error, plain_value
from subtext.errors import RequirementError, SearchIndexError
from subtext.retrieval.index_files import json_object, stored_object
from subtext.text_helpers import counted, listed

Side = Literal["images", "texts"]
SIDES: tuple[Side, Side] = ("images", "texts")
DerivedSpace = Literal["sentences", "neighbours"]
Space = Literal["images", "texts", "sentences", "neighbours"]
SPACES: tuple[Space, Space, Space, Space] = ("images", "texts", "sentences", "neighbours")
"""What an index holds vectors of: its two sides, and two spaces derived from them; see `DerivedRow`."""
DERIVED: tuple[DerivedSpace, DerivedSpace] = ("sentences", "neighbours")
MACHINE = "machine_text"
"""Metadata of a text that a machine wrote: what wrote it."""
MACHINES = ("ocr", "captioner")
"""What writes texts."""


def opposite(side: Side) -> Side:
    """The other side.

    Args:
        side: "images" or "texts".

    Returns:
        The other of the two sides.
    """
    return SIDES[1 - SIDES.index(side)]


def side_of(space: Space) -> Side:
    """The side whose items a space has vectors of.

    Args:
        space: One of `SPACES`.

    Returns:
        "images" or "texts".
    """
    return "images" if space in ("images", "neighbours") else "texts"


def vector_content(vectors: NDArray[np.float32]) -> bytes:
    """Digest of an imported item's vectors, in place of what was embedded; a byte longer than that.

    Args:
        vectors: (K D) of the item.

    Returns:
        17 bytes.
    """
    return hashlib.blake2b(np.ascontiguousarray(vectors).tobytes(), digest_size=16).digest() + b"v"


def is_of_vectors(content: bytes) -> bool:
    """Whether a digest is of vectors: what they were made of was not read.

    Args:
        content: Of an item.

    Returns:
        Whether `vector_content` made it.
    """
    return len(content) == 17


@dataclass(frozen=True)
class IndexEntry:
    """One item as it is put into an index.

    Attributes:
        id: Its name, unique on its side.
        content: Digest of what was embedded: the bytes of an image, the words of a text, or features; `vector_content`
            where only the vectors are known.
        path: Of an image, relative to the index's root; None for one without a file.
        text: Of a text; None for one that is known by features alone.
        metadata: Plain data: numbers, texts, booleans, and lists of them can be filtered by.
        stamp: Size and times of the file: an unchanged file need not be read again.
    """

    id: str
    content: bytes
    path: str | None = None
    text: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    stamp: str | None = None

    @cached_property
    def metadata_json(self) -> str:
        """The metadata as it is stored; what JSON cannot represent is stored as text, and NaN not at all.

        Raises:
            SearchIndexError: For a value that an index cannot hold.
        """
        with suppress(ValueError, TypeError, RecursionError):
            return json.dumps(dict(self.metadata), ensure_ascii=False, default=plain, allow_nan=False)
        try:
            plain_fields = {name: plain_value(value, name) for name, value in self.metadata.items()}
            return json.dumps(plain_fields, ensure_ascii=False)
        except RowError as problem:
            raise SearchIndexError(f"an index needs other metadata: item {self.id!r}: {problem}") from problem

    def digest(self, side: int, key: int) -> bytes:
        """16 bytes that change with everything that is stored of the item: what `verify` compares.

        Args:
            side: Number of the side in `SPACES`.
            key: Key of the item in the index.

        Returns:
            16 bytes.
        """
        return item_digest((key, side, self.id, self.path, self.text, self.metadata_json, self.content, self.stamp))


class StoredRow(NamedTuple):
    """One item as a store holds it.

    Attributes:
        key: Its number in the index; never used again for another item.
        id: Name of the item, unique on its side.
        path: Of an image, relative to the root of the index; None for an item without a file.
        text: Of a text; None for others.
        metadata: JSON.
        content: Digest of what was embedded.
        stamp: Size and times of the file; None for an item without a file.
        digest: Of all the rest, as it was when the item was written.
        links: Keys of the items of the other side that it is linked with, ascending; empty where they were not
            requested.
    """

    key: int
    id: str
    path: str | None
    text: str | None
    metadata: str
    content: bytes
    stamp: str | None
    digest: bytes
    links: tuple[int, ...] = ()

    def entry(self) -> IndexEntry:
        """The item as it was put into the index.

        Returns:
            The entry, with the metadata parsed.
        """
        return IndexEntry(self.id, self.content, self.path, self.text, self.fields, self.stamp)

    def says(self, other: StoredRow) -> bool:
        """Whether another row of the item has the same content, text, metadata and path.

        Args:
            other: The other row.

        Returns:
            True if it has; keys, stamps and links do not count.
        """
        return all(getattr(self, it) == getattr(other, it) for it in ("content", "text", "metadata", "path"))

    @property
    def fields(self) -> dict[str, Any]:
        """The metadata as plain data.

        Raises:
            SearchIndexError: If they are damaged.
        """
        return stored_object(self.metadata, f"item {self.id!r}")

    @property
    def shown(self) -> str | None:
        """The text as it is shown: behind what wrote it, in brackets, if a machine did."""
        writer = machine_of(self.metadata)
        return f"[{writer}] {self.text}" if writer and self.text is not None else self.text

    def is_intact(self, side: int) -> bool:
        """Whether the digest fits the row, and the metadata can be read.

        Args:
            side: Number of the side in `SPACES`.

        Returns:
            True for an intact row.
        """
        columns = (self.key, side, self.id, self.path, self.text, self.metadata, self.content, self.stamp)
        return item_digest(columns) == self.digest and json_object(self.metadata) is not None


def machine_of(metadata: str) -> str:
    """What wrote a text.

    Args:
        metadata: Of the text, as JSON.

    Returns:
        "ocr" or "captioner"; "" for a text of people.
    """
    if f'"{MACHINE}"' not in metadata:
        return ""
    writer = (json_object(metadata) or {}).get(MACHINE)
    return writer if isinstance(writer, str) else ""


@dataclass(frozen=True)
class Item:
    """One item as search returns it.

    Attributes:
        key: Key of the item in the index.
        id: Name of the item, unique on its side.
        path: Of an image, relative to the root of the index; None for an item without a file.
        captions: The texts of an image as they are shown, those of machines last; for a text hit, the text itself.
        metadata: As it was put in; of a text also "images", the ids of its images.
        machine_texts: How many of the captions a machine wrote.
    """

    key: int
    id: str
    path: str | None
    captions: list[str]
    metadata: dict[str, Any]
    machine_texts: int = 0

    @property
    def own_texts(self) -> list[str]:
        """The captions that people wrote."""
        return self.captions[: len(self.captions) - self.machine_texts]


@dataclass(frozen=True)
class Hits:
    """The best items of one query, best first.

    Attributes:
        keys: (T) int64 keys.
        scores: (T) float32 scores.
    """

    keys: NDArray[np.int64]
    scores: NDArray[np.float32]


NO_HITS = Hits(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32))


@dataclass(frozen=True)
class JobUpdate:
    """An entry of the journal that belongs to a change.

    Attributes:
        number: Number of an earlier job; None begins one, or resumes an unfinished one of the same verb and
            source.
        verb: Name of the command, such as "add".
        source: Where the items come from, as plain data; None for none.
        done: Items processed so far.
        total: Number of items to process.
        finished: Whether the job is done.
    """

    number: int | None = None
    verb: str = ""
    source: Mapping[str, Any] | None = None
    done: int = 0
    total: int = 0
    finished: bool = False

    @property
    def source_json(self) -> str | None:
        """The source as it is stored: equal sources are equal texts, of ASCII alone, which any database can hold."""
        return None if self.source is None else json.dumps(dict(self.source), sort_keys=True)


@dataclass(frozen=True)
class DerivedRow:
    """A row of a derived space: what an index computes of an item, beside the model's vectors.

    "sentences"   the vector of a text by the sentence encoder of the index
    "neighbours"  of an image the mean of the texts of its nearest images that have texts; see `retrieval.neighbours`

    A store holds it as a row of its own, with a key of its own, the id of the item, and as its content the key of the
    item and `farthest`. It goes in the change that removes what it was computed of: the item, one of the images that
    are near it, or a text of these.

    Attributes:
        vector: (E) float32, of unit length.
        near: Keys of the images whose texts it was computed of, nearest first.
        cosines: Of the image and these.
        farthest: Of neighbours, the cosine that a new one has to be above; -inf for any. NaN says that there is none:
            the row is there so that it is not computed again, and its vector is compared with nothing.
    """

    vector: NDArray[np.float32]
    near: Sequence[int] = ()
    cosines: Sequence[float] = ()
    farthest: float | None = None

    def entry(self, name: str, owner: int) -> IndexEntry:
        """The row as a store has it; an image is found by those that are near it, but not by the cosines.

        Args:
            name: Id of the item.
            owner: Key of the item.

        Returns:
            An entry with "near" and "cosines" as its metadata.
        """
        # What lies in a list in a list is no value to filter by.
        metadata = {"near": list(self.near), "cosines": [list(self.cosines)]} if self.near else {}
        farthest = b"" if self.farthest is None else struct.pack(">d", self.farthest)
        return IndexEntry(name, owner.to_bytes(8, "big") + farthest, metadata=metadata)


@dataclass(frozen=True)
class Change:
    """A change of one side, which is made completely or not at all.

    Attributes:
        side: The side that the change concerns.
        entries: N items that are new or whose content has changed.
        vectors: Their (N K D) vectors.
        amended: Items that are in the index, of which only paths, texts or metadata have changed.
        unless_deleted: Leaves out entries that another writer has deleted since it was seen that they are not. A store
            with one writer at a time need not look.
        links: (image id, text id) to be linked, where both are in the index.
        exact_texts: Ids of texts that are to have these links alone.
        deleted: Ids of items to delete, which the index remembers where `remember` is set: a data set that still has
            them does not bring them back; texts of deleted images only, unless `keep_texts`.
        keep_texts: Keeps the texts that have no other image when images are deleted.
        remember: Keeps a hash of each deleted item.
        remembered: Hashes of items that count as deleted; see `deletion_hash`.
        job: What the journal notes with the change.
        documents: Name -> text that the index keeps beside its items, such as a calibration.
        derived: Space -> id of an item -> its row there, in the place of a former one. Items may be among the entries;
            those that are not in the index get none.
        since: Random number of the change that the derived rows were computed after: a store refuses them where another
            change came between. None where they depend on the entries alone.
    """

    side: Side = "images"
    entries: Sequence[IndexEntry] = ()
    vectors: NDArray[np.float32] | None = None
    amended: Sequence[IndexEntry] = ()
    unless_deleted: bool = False
    links: Sequence[tuple[str, str]] = ()
    exact_texts: frozenset[str] = frozenset()
    deleted: Sequence[str] = ()
    keep_texts: bool = False
    remember: bool = True
    remembered: Sequence[bytes] = ()
    job: JobUpdate | None = None
    documents: Mapping[str, str] = field(default_factory=dict)
    derived: Mapping[DerivedSpace, Mapping[str, DerivedRow]] = field(default_factory=dict)
    since: str | None = None

    def without(self, deleted: Collection[bytes]) -> Change:
        """The change without entries that count as deleted.

        Args:
            deleted: Hashes of deleted items; see `deletion_hash`.

        Returns:
            A change with the other entries and their vectors.
        """
        rows = [n for n, entry in enumerate(self.entries) if deletion_hash(self.side, entry.id) not in deleted]
        vectors = None if self.vectors is None else self.vectors[rows]
        return replace(self, entries=[self.entries[row] for row in rows], vectors=vectors)

    def rounded(self, numbers: str) -> Change:
        """The change with vectors as a store keeps them: what is compared, checked and given back is the same.

        Args:
            numbers: "float32" or "float16".

        Returns:
            A change whose vectors, those of derived rows among them, are float32 of such numbers.
        """
        if numbers == "float32":
            return self
        derived = {
            space: {name: replace(row, vector=halved(row.vector)) for name, row in rows.items()}
            for space, rows in self.derived.items()
        }
        return replace(self, vectors=None if self.vectors is None else halved(self.vectors), derived=derived)

    def checked_vectors(self, views: int, width: int) -> NDArray[np.float32]:
        """The vectors of the entries, after checks.

        Args:
            views: K, vectors per item.
            width: D, numbers per vector.

        Returns:
            (N K D) float32 vectors; (0 K D) without entries.

        Raises:
            SearchIndexError: For vectors that are zero, not finite or of another shape, for an id that occurs twice,
                and for one with control characters.
        """
        vectors = self.vectors if self.vectors is not None else np.zeros((0, views, width), dtype=np.float32)
        if vectors.shape != (len(self.entries), views, width):
            raise SearchIndexError(
                f"this index needs {self.side} of {views} x {width}, and one an item; it got vectors of shape "
                f"{vectors.shape} for {len(self.entries)} items; embed them with the model that made it"
            )
        bad = np.flatnonzero(~has_direction(vectors))
        if len(bad):
            names = listed([repr(self.entries[row].id) for row in bad.tolist()])
            raise SearchIndexError(
                f"an index needs finite vectors that are not zero; {counted(len(bad), 'vector')} of {self.side} "
                f"{'is' if len(bad) == 1 else 'are'} not: {names}; look at the model, or at the file of vectors or "
                "features; an index of float16 has numbers from 6e-8 to 65,504"
            )
        for entry in (*self.entries, *self.amended):
            require_id(entry.id)
        ids = [entry.id for entry in self.entries]
        if len(set(ids)) < len(ids):
            twice = next(name for position, name in enumerate(ids) if name in ids[:position])
            raise SearchIndexError(
                f"an index needs an id once on each side; it got '{twice}' twice; rename one of the items"
            )
        return vectors


def halved(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """The nearest numbers of 16 bits.

    Args:
        vectors: Of any shape.

    Returns:
        The same shape in float32; infinity beyond 65,504.
    """
    with np.errstate(over="ignore"):
        return vectors.astype(np.float16).astype(np.float32)


def has_direction(vectors: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Whether vectors can be compared by a cosine: they are finite, and no view is zero.

    Args:
        vectors: (N K D).

    Returns:
        (N) flags.
    """
    present: NDArray[np.bool_] = (vectors != 0).any(axis=2)
    return np.asarray(np.isfinite(vectors).all(axis=(1, 2)) & present.all(axis=1))


def require_directions(vectors: NDArray[np.float32], subject: str) -> None:
    """Require vectors that can be compared.

    Args:
        vectors: (K D) vectors of one item or query.
        subject: What they are of, for the message.

    Raises:
        RequirementError: For a vector that is zero, or not finite.
    """
    if not has_direction(vectors[None])[0]:
        what = "zero" if np.isfinite(vectors).all() else "no numbers (NaN or infinite)"
        raise RequirementError(
            f"{subject} needs a vector to compare; the model's is {what}; nothing can be found by it"
        )


def require_id(name: str) -> None:
    """Require that a text is an id.

    Args:
        name: Any text.

    Raises:
        SearchIndexError: For an empty text, and one with control characters.
    """
    if reason := id_error(name):
        raise SearchIndexError(f"an id {reason}; rename item {name!r}")


@dataclass(frozen=True)
class Applied:
    """The result of a change.

    Attributes:
        deleted: Number of deleted items of each side.
        job: Number of the job; None where the change had none.
    """

    deleted: Mapping[Side, int]
    job: int | None = None


@dataclass(frozen=True)
class FieldValues:
    """The values of one metadata field over all items of one side.

    Attributes:
        has_texts: Whether some values are texts.
        has_numbers: Whether some values are numbers.
        distinct: Number of distinct values.
        common: The most frequent values, each with its number of items; empty if there are too many distinct ones.
        range: The least and the greatest number; None without numbers.
        date_range: Of a field with dates, the first and the last second since 1970; `data.dates.END` for an open end.
            None without dates.
    """

    has_texts: bool
    has_numbers: bool
    distinct: int
    common: tuple[tuple[str | int | float, int], ...] = ()
    range: tuple[float, float] | None = None
    date_range: tuple[int, int] | None = None


def deletion_hash(side: Side, name: str) -> bytes:
    """16 bytes that stand for a deleted item, and in the names of cached files for any item.

    Args:
        side: "images" or "texts".
        name: Id of the item.

    Returns:
        16 bytes.
    """
    return hashlib.blake2b(f"{side}/{name}".encode("utf-8", "surrogatepass"), digest_size=16).digest()


def item_digest(columns: tuple[Any, ...]) -> bytes:
    """16 bytes of a row of items: key, side, id, path, text, metadata, content and stamp.

    Args:
        columns: Key, side, id, path, text, metadata, content and stamp.

    Returns:
        16 bytes.
    """
    text = json.dumps([value.hex() if isinstance(value, bytes) else value for value in columns], ensure_ascii=False)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def vectors_digest(vectors: NDArray[np.float32], key: int) -> bytes:
    """16 bytes of an item's (K D) vectors: what `verify` compares. Those of another item are not its own.

    Args:
        vectors: (K D) float32.
        key: Key of the item in the index.

    Returns:
        16 bytes.
    """
    content = np.ascontiguousarray(vectors, dtype="<f4").tobytes() + key.to_bytes(8, "little")
    return hashlib.blake2b(content, digest_size=16).digest()


def plain(value: Any) -> Any:
    """NumPy numbers and dates as JSON represents them; else the value's text.

    Args:
        value: Any value.

    Returns:
        A value that `json` can write.
    """
    if isinstance(value, date | datetime):
        return value.isoformat()
    if hasattr(value, "tolist"):
        return value.tolist()
    return value if value is None or isinstance(value, dict | list | tuple) else str(value)


def row_sum(*columns: str | int | float | bytes | None) -> int:
    """The checksum of a row; the sum over all rows of a table, in any order, shows whether any is missing or changed.

    Args:
        *columns: Its values.

    Returns:
        A whole number below 2**56.
    """
    text = json.dumps([value.hex() if isinstance(value, bytes) else value for value in columns])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "little")


def facet_sum(side: int, name: str, value: str | int | float, written: str, key: int) -> int:
    """The checksum of a facet; the sum over all facets, in any order, shows whether any is missing.

    Args:
        side: Number of the side in `SPACES`.
        name: The field.
        value: One value of the field, a text folded.
        written: The value as it was put in; "" where the other says it.
        key: Key of the item.

    Returns:
        A whole number below 2**56.
    """
    text = repr((side, key, name, value, written))
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=7).digest(), "little")


def link_sum(image: str, text: str) -> int:
    """The checksum of a link; the sum over all links shows whether any is missing.

    Args:
        image: Id of the image.
        text: Id of the text.

    Returns:
        A whole number below 2**56.
    """
    return int.from_bytes(hashlib.blake2b(json.dumps([image, text]).encode(), digest_size=7).digest(), "little")
