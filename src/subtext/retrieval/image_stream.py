"""Images of stores are put into a new index while their listing is read: the bytes of few are held at a time.

An image is downloaded once, ahead of the one that is read: what is inside it, the check, its digest and its vector are
of the same bytes, which are let go then. `ingest`, which follows, finds the images as an interrupted command leaves
them; it amends those of which later rows say more, and puts the texts in. Batches begin where `ingest` begins them: the
vectors are those of images on a disk.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from subtext.data.batches import read_ahead
from subtext.data.dataset import Dataset, Items, RowIssue
from subtext.data.embedded import note_of
from subtext.data.image_files import PAGES, open_image, pages_note, read_bytes
from subtext.data.object_store import is_there, listed, release
from subtext.data.output_cache import OutputCache
from subtext.data.read import decoded_images
from subtext.data.rows import Progress
from subtext.data.spool import RowFinder
from subtext.data.unchanged import ListedImage
from subtext.data.web_images import key_of
from subtext.errors import DataError
from subtext.models.model import Model
from subtext.retrieval.build import (
    CHUNK,
    Chunk,
    ChunkEmbedder,
    EmbeddedChunk,
    WriteCounts,
    require_model,
    require_no_cluster,
)
from subtext.retrieval.stores.item import Change
from subtext.retrieval.stores.store import Writer

PIECE = 2**27
"""Bytes of images from which they are embedded together, if they make a whole batch."""
TOGETHER = 32
"""Images that are checked together; a batch, if that has fewer."""
_READ, _CHECKED, _TAKEN = 1, 2, 4
"""Of an image: its bytes were needed in this reading; it can be decoded; it was put in."""


class _Flags:
    """Flags of addresses; 30 bytes are held of each."""

    def __init__(self) -> None:
        self._finder, self._keys, self._flags = RowFinder(), array("Q"), bytearray()

    def get(self, address: str) -> int:
        """The flags of an address; 0 for none."""
        row = self._row(key_of(address))
        return 0 if row is None else self._flags[row]

    def add(self, address: str, flag: int) -> None:
        """Set a flag."""
        key = key_of(address)
        row = self._row(key)
        if row is None:
            row = len(self._keys)
            self._finder.add(key, row)
            self._keys.append(key)
            self._flags.append(0)
        self._flags[row] |= flag

    def clear(self, flag: int) -> None:
        """Take a flag from all."""
        np.frombuffer(self._flags, np.uint8)[:] &= np.uint8(0xFF ^ flag)

    def _row(self, key: int) -> int | None:
        return self._finder.find(key, lambda row: self._keys[row] == key)


class Target(NamedTuple):
    """Where images are put.

    Attributes:
        writer: Changes the index.
        job: Number of the job that the images belong to.
    """

    writer: Writer
    job: int


class First(NamedTuple):
    """What is known when the first image is ready.

    Attributes:
        model: Embeds.
        record: Of its run; None for none.
        images: That image.
        root: Folder of relative paths.
        form: What the data are read as.
    """

    model: Model
    record: Any
    images: Items
    root: Path
    form: str


class _Usable(NamedTuple):
    """An image that can be decoded."""

    image: ListedImage
    size: int


class ImageStream:
    """Takes images (`data.unchanged.ImageTaker`), and decodes those that are left (`data.read.ImageDecoder`).

    Args:
        open_target: Gives where images are put, when the first one is ready.
        reading: Items embedded together; threads that read ahead.
        cache: Of outputs of frozen encoders; that of the user by default.
        note: Called with a sentence where outputs could not be cached.

    Attributes:
        written: See `TakenImages`.
    """

    def __init__(
        self,
        open_target: Callable[[First], Target],
        *,
        reading: tuple[int, int],
        cache: OutputCache | None = None,
        note: Callable[[str], None] | None = None,
    ) -> None:
        self._open_target, self._embedding = open_target, (cache, note)
        self._reading = reading
        self._verify: bool | Callable[[str | bytes, Path], bool] = True
        self._model: Model | None = None
        self._record: Any = None
        self._target: Target | None = None
        self._place = Path(), ""
        self._progress: Progress | None = None
        self._number = 0
        self._flags, self._broken, self._pages = _Flags(), dict[str, str](), dict[str, int]()
        self._waiting, self._ready = list[ListedImage](), list[_Usable]()
        self._made, self._embedded = list[EmbeddedChunk](), list[str]()
        self._in_chunk = self._count = 0
        self.written = WriteCounts()

    def leave_to(self, verify: bool | Callable[[str | bytes, Path], bool]) -> None:
        """Set what becomes of images that are not taken.

        Args:
            verify: Whether they are decoded, or which.
        """
        self._verify = verify

    def use(self, model: Model, record: Any) -> None:
        """Set the model that embeds.

        Args:
            model: The model.
            record: Of its run; None for none.
        """
        self._model, self._record = model.to_indexable("an index").eval(), record

    def begin(self, root: Path, form: str, progress: Progress | None) -> None:
        """Begin a reading; see `ImageTaker`.

        Args:
            root: Folder of relative paths.
            form: What the data are read as.
            progress: Called with the number of images that were taken or left, and of all that are listed so far.
        """
        self._place, self._progress, self._number = (root.resolve(), form), progress, 0
        self.flush()
        self._flags.clear(_READ)
        release([*(image.address for image in self._waiting), *(usable.image.address for usable in self._ready)])
        self._waiting, self._ready = [], []
        self._broken.clear()  # They are downloaded again.

    def is_done(self, address: str) -> bool:
        """Whether the bytes of an image were needed in this reading, and are no more.

        Args:
            address: Of the image.

        Returns:
            Whether it is so.
        """
        return bool(self._flags.get(address) & _READ)

    def has(self, value: object) -> bool:
        """Whether an image was put in.

        Args:
            value: An address; other values are of no image that is taken.

        Returns:
            Whether it was.
        """
        return isinstance(value, str) and bool(self._flags.get(value) & _TAKEN)

    def leave(self, address: str) -> None:
        """Let an image go whose row cannot be used.

        Args:
            address: Of the image.
        """
        if not any(image.address == address for image in (*self._waiting, *(usable.image for usable in self._ready))):
            release([address])

    def take(self, image: ListedImage) -> None:
        """Take an image, whose bytes were downloaded.

        Args:
            image: The image.
        """
        flags = self._flags.get(image.address)
        self._flags.add(image.address, _READ)
        if flags & _READ or not is_there(image.address):
            return
        self._number += 1
        if self._progress is not None:
            self._progress(self._number, max(self._number, listed()))
        if flags & _TAKEN or image.address in self._broken:
            release([image.address])
            return
        self._waiting.append(image)
        if len(self._waiting) >= min(TOGETHER, self._reading[0]):
            self._check()
            self._embed_whole_batches()

    def finish(self) -> None:
        """Take what is left, at the end of the listing."""
        self._check()
        self._embed_whole_batches()
        if self._ready:
            self._embed(len(self._ready))
        self.flush()

    def _check(self) -> None:
        """Decode those that wait, and see which of them are put in."""
        images, self._waiting = self._waiting, []
        found = read_ahead(images, self._look_at, workers=os.cpu_count() or 1)
        for image, (reason, pages, size) in zip(images, found, strict=True):
            if reason:
                self._broken[image.address] = reason
                release([image.address])
                continue
            self._flags.add(image.address, _CHECKED)
            if pages > 1:
                self._pages[image.address] = pages
            self._ready.append(_Usable(image, size))

    def _look_at(self, image: ListedImage) -> tuple[str, int, int]:
        """Why an image cannot be decoded, its pages and bytes."""
        try:
            pages = int(open_image(image.address, at_least=32, thumbnail=True).info.get(PAGES, 1))
            return "", pages, len(read_bytes(image.address, Path()))
        except DataError as problem:
            return str(problem), 1, 0

    def _open(self, first: ListedImage) -> Target:
        """Where images are put."""
        if self._target is None:
            assert self._model is not None
            root, form = self._place
            self._target = self._open_target(First(self._model, self._record, _items([first]), root, form))
            require_no_cluster(self._target.writer)
            require_model(self._target.writer.store, self._target.writer.manifest, self._model)
        return self._target

    def _embed_whole_batches(self) -> None:
        """Embed what makes a whole chunk, or whole batches of many bytes."""
        batch = self._reading[0]
        while True:
            room = CHUNK - self._in_chunk
            if len(self._ready) >= room:
                self._embed(room)
            elif len(self._ready) >= batch and sum(usable.size for usable in self._ready) >= PIECE:
                self._embed(len(self._ready) // batch * batch)
            else:
                return

    def _embed(self, count: int) -> None:
        """Embed the first images that are ready."""
        images, self._ready = [usable.image for usable in self._ready[:count]], self._ready[count:]
        target = self._open(images[0])
        items = _items(images)
        assert self._model is not None
        roots = self._place[0], Path(target.writer.manifest.root)
        embed = ChunkEmbedder(self._model, roots, self._reading, *self._embedding)
        stored = target.writer.rows_of("images", items.ids)
        splits = any(image.split for image in images)
        self._made.append(embed(Chunk("images", np.arange(count), items, count, stored, splits)))
        self._embedded += [image.address for image in images]
        self._advance(count)

    def _advance(self, count: int) -> None:
        """Go on in the chunk, which is put in as a whole."""
        self._in_chunk = (self._in_chunk + count) % CHUNK
        if not self._in_chunk:
            self.flush()

    def flush(self) -> None:
        """Put in what is embedded, also where reading ends early."""
        made, addresses, self._made, self._embedded = self._made, self._embedded, [], []
        if not made:
            return
        assert self._target is not None
        new, amended = ([entry for part in made for entry in getattr(part, name)] for name in ("new", "amended"))
        vectors = [part.vectors for part in made if part.vectors is not None]
        self._count += len(addresses)
        change = Change("images", entries=new, vectors=np.concatenate(vectors) if vectors else None, amended=amended)
        self._target.writer.put(change, job=self._target.job, done=self._count)
        for address in addresses:
            self._flags.add(address, _TAKEN)
        self.written += WriteCounts(embedded=len(new), amended=len(amended), unchanged=-len(new) - len(amended))

    def __call__(self, value: str | bytes, root: Path) -> bool:
        """Whether an image is decoded, or something is to be said of it; see `ImageDecoder`.

        Args:
            value: The image.
            root: Folder of relative paths.

        Returns:
            Whether it is so.
        """
        if isinstance(value, str) and (value in self._broken or value in self._pages):
            return True
        if isinstance(value, str) and self._flags.get(value) & _CHECKED:
            return False
        return self._verify(value, root) if callable(self._verify) else self._verify

    def decode(
        self, dataset: Dataset, rows: NDArray[np.int64], progress: Callable[[int, int], None] | None
    ) -> tuple[dict[int, str], list[RowIssue]]:
        """Decode the images that are left; see `ImageDecoder`.

        Args:
            dataset: Of the images.
            rows: Of those that are decoded, or that something is said of.
            progress: Called with the number of decoded images and their total.

        Returns:
            The images that cannot be decoded, and why; and notes on those of several pages.
        """
        values, reasons, notes, left = dataset.images.values, dict[int, str](), list[RowIssue](), list[int]()
        for row in map(int, rows):
            value = values[row]
            if isinstance(value, str) and value in self._broken:
                reasons[row] = self._broken[value]
            elif isinstance(value, str) and value in self._pages:
                notes.append(note_of(value, pages_note(self._pages[value])))
            else:
                left.append(row)
        others, more = decoded_images(dataset.images, dataset.root, np.array(left, dtype=np.int64), progress)
        return {**reasons, **others}, [*notes, *more]

    def strays(self, pairs: Dataset) -> list[str]:
        """Ids of the images that the data set, read to its end, leaves out, such as those without a split.

        Args:
            pairs: The data set.

        Returns:
            The ids.
        """
        if self._target is None or sum(map(self.has, pairs.images.values)) == self._count:
            return []
        present, found = set(pairs.images.ids), list[str]()
        with self._target.writer.store.reading() as view:
            keys = view.keys("images")
            for start in range(0, len(keys), CHUNK):
                rows = view.items("images", keys[start : start + CHUNK])
                found += [row.id for row in rows if self.has(row.path) and row.id not in present]
        self.written += WriteCounts(embedded=-len(found), unchanged=len(found))
        return found


def _items(images: Sequence[ListedImage]) -> Items:
    """Images as columns; each has all fields that were known when the last one was read."""
    fields = images[-1].fields
    metadata: dict[str, list[Any]] = {name: [image.metadata.get(name) for image in images] for name in fields}
    splits = np.array([image.split for image in images])
    marks = [image.mark for image in images]
    count = len(images)
    return Items(
        [image.id for image in images],
        [image.address for image in images],
        np.arange(count, dtype=np.int64),
        splits,
        metadata,
        marks if any(marks) else [],
    )
