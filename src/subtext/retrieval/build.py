"""Building an index: new and changed items of a data set are embedded, chunk by chunk.

The chunks are embedded in this process, or on a Ray cluster, whose workers take smaller parts of them, cut where this
process begins a new batch: the vectors are the same. Workers write their parts of a new index in LanceDB themselves,
and this process makes them an index in one change. In other stores it puts what they embedded in, in its order.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

from subtext.data.addresses import is_address, joined_path
from subtext.data.dataset import Dataset, Items
from subtext.data.features import FeatureInput
from subtext.data.image_files import LARGEST_FILE, file_stamp, image_digest, most_pixels
from subtext.data.object_store import fetched, look, release
from subtext.data.output_cache import OutputCache, user_cache
from subtext.data.unchanged import Unchanged, file_part
from subtext.errors import DataError, RequirementError, SearchIndexError, Setting
from subtext.evaluation.embedding import embed_items
from subtext.models.checkpoint import fingerprint
from subtext.models.encoders.languages import languages_read
from subtext.models.heads.gaussian import DistanceVectors
from subtext.models.heads.mean import Passthrough
from subtext.models.model import Branch, Model
from subtext.retrieval.cluster import Cluster, bytes_of, require_seen
from subtext.retrieval.journal import deleted_before, journal
from subtext.retrieval.lists import listed_images, rename_images
from subtext.retrieval.manifest import EncoderRecord, Manifest
from subtext.retrieval.sentences import SentenceVectors
from subtext.retrieval.stores.item import (
    SIDES,
    Change,
    DerivedRow,
    DerivedSpace,
    IndexEntry,
    Side,
    StoredRow,
    is_of_vectors,
    machine_of,
)
from subtext.retrieval.stores.store import IndexParts, Store, View, Writer, WrittenPart
from subtext.text_helpers import counted
from subtext.version import __version__

CHUNK = 2048
"""Items that are embedded and stored at a time: no more than these are lost when an add is killed."""
UNIT = 256
"""Texts of which equal ones are embedded once, about; parts of a chunk that workers take are made of such units."""


@dataclass(frozen=True)
class WriteCounts:
    """Numbers of items of a data set (images and texts together) by what happened to them.

    Attributes:
        embedded: New ones and changed ones.
        amended: Only their paths, texts, metadata or links changed.
        unchanged: In the index already.
        deleted: No longer in the data.
        left_out: Deleted before, and not added again.
        renamed: New names of content that the data had under others.
    """

    embedded: int = 0
    amended: int = 0
    unchanged: int = 0
    deleted: int = 0
    left_out: int = 0
    renamed: int = 0

    def __add__(self, other: WriteCounts) -> WriteCounts:
        """Both together."""
        return WriteCounts(
            *(mine + theirs for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True))
        )


def model_fingerprint(model: Model) -> str:
    """32 hexadecimal digits that change with any weight, and with how images and texts are read.

    A file of features is not part of it: it is the data's, not the model's.

    Args:
        model: The model.

    Returns:
        32 hexadecimal digits.
    """
    digest = hashlib.blake2b(fingerprint(model.state_dict()).encode(), digest_size=16)
    for branch in (model.image, model.text):
        if not isinstance(branch.input_spec, FeatureInput):
            digest.update(branch.input_spec.fingerprint.encode())
    return digest.hexdigest()


def require_model(store: Store, manifest: Manifest, model: Model) -> None:
    """Require that a model is the one that made an index.

    Args:
        store: The index.
        manifest: Describes the index.
        model: The model.

    Raises:
        SearchIndexError: If another model made the index.
    """
    actual = model_fingerprint(model)
    if actual != manifest.fingerprint:
        raise SearchIndexError(
            f"{store.path} needs the model that made it, {manifest.run or manifest.model_name} "
            f"({manifest.fingerprint[:12]}); it got another ({actual[:12]}){_width_of(model, manifest)}"
            f"{', or that run trained further' * bool(manifest.run)}; use that model, build the index again with this "
            "model, or move it (subtext index move)"
        )


def _width_of(model: Model, manifest: Manifest) -> str:
    """The difference of the widths of a model and an index, for a message; "" if there is none, or it is unknown."""
    width = getattr(model.image.encoder, "pooled_width", None)
    shown = isinstance(model.image.head, Passthrough) and width != manifest.width
    return f" of {width} numbers where the index has {manifest.width}" if shown else ""


def new_manifest(
    model: Model | None,
    *,
    views: Mapping[str, int],
    width: int,
    root: Path,
    run: str = "",
    model_name: str = "",
    pretrained: Mapping[str, str] | None = None,
    source: Mapping[str, Any] | None = None,
    encoder: EncoderRecord | None = None,
) -> Manifest:
    """The manifest of a new index of vectors of a model.

    Args:
        model: The model; None for vectors of an unknown model.
        views: Number of vectors per item of each side.
        width: D, numbers per vector.
        root: Folder that relative image paths start from.
        run: Folder of the run; see `Manifest`.
        model_name: Recipe or pretrained model; see `Manifest`.
        pretrained: Name, revision and prompt of a pretrained model; see `Manifest`.
        source: Where the first items come from, as plain data.
        encoder: The sentence encoder; None for none.

    Returns:
        The manifest, with the time and version of now.
    """
    similarity = None if model is None else model.similarity
    if encoder is not None and model is not None:
        encoder = replace(encoder, compared=compared_width(model, width))
    # Vectors of an unknown model are taken to be of the same one where they have the same width.
    unknown = hashlib.blake2b(f"unknown {width}".encode(), digest_size=16).hexdigest()
    return Manifest(
        fingerprint=unknown if model is None else model_fingerprint(model),
        run=run,
        model_name=model_name,
        width=width,
        scale=torch.as_tensor(getattr(similarity, "scale", 1.0), dtype=torch.float64).item(),
        shift=torch.as_tensor(getattr(similarity, "shift", 0.0), dtype=torch.float64).item(),
        views=dict(views),
        root=str(root.resolve()),
        data=dict(source or {}),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
        pretrained=dict(pretrained or {}),
        encoder=encoder,
        languages=() if model is None else languages_read(model.text, trained=not model.text.frozen),
    )


def compared_width(model: Model, width: int) -> int:
    """How many of the first numbers of an image's vector two images are compared by.

    Args:
        model: That of the index.
        width: D of its vectors.

    Returns:
        The width of a mean, where vectors stand for distributions; else 0, for all.
    """
    head = model.image.head
    return head.width(np.zeros((0, 1, width), dtype=np.float32)) if isinstance(head, DistanceVectors) else 0


def ingest(
    writer: Writer,
    model: Model,
    pairs: Dataset,
    *,
    verb: str = "add",
    source: Mapping[str, Any] | None = None,
    exact: bool = False,
    again: bool = False,
    renames: bool = False,
    gone: Mapping[Side, Sequence[str]] | None = None,
    unread: Mapping[Side, set[str]] | None = None,
    verify_files: bool = False,
    finish: bool = True,
    only: Mapping[Side, set[str]] | None = None,
    former: Store | None = None,
    cache: OutputCache | None = None,
    note: Callable[[str], None] | None = None,
    batch_size: int = 128,
    workers: int = 2,
    cluster: Cluster | None = None,
    taken: TakenImages | None = None,
    progress: Callable[[int], None] | None = None,
) -> WriteCounts:
    """Put a data set into an index. Called again after an interruption, it resumes: what is stored is not embedded.

    Args:
        writer: Changes the index.
        model: The model.
        pairs: Images and texts with their links.
        verb: "build", "add" or "update", for the journal.
        source: Where the data came from, as plain data: the journal identifies the job by it.
        exact: A text keeps no links but those of the data.
        again: Also adds items that were deleted before.
        renames: A new item takes over the vectors of one of the same content that the data set has no more.
        gone: Ids of the items that the data set has no more; None for all that are not in `pairs`.
        unread: Ids of items of the index that the data set names and that cannot be read now: they stay as they are.
        verify_files: Reads also the files whose size and times are those of the index.
        finish: False leaves the job unfinished, since more belongs to it.
        only: Ids of each side to add; None for all.
        former: An index whose sentence vectors of equal texts are taken over; None for none.
        cache: Of outputs of frozen encoders; that of the user by default.
        note: Called with a sentence where outputs could not be cached.
        batch_size: Items embedded together.
        workers: Threads that read ahead.
        cluster: The Ray cluster that embeds; None for this process.
        taken: Images of the data set that were put in while it was read; None for none.
        progress: Receives the number of images and texts processed so far.

    Returns:
        Number of items by what happened to them.

    Raises:
        SearchIndexError: If another model made the index, or a cluster has begun to build it.
        DataError: If an item cannot be read: the chunks before it are stored.
        RequirementError: For what `require_readable` refuses.
        IndexLockedError: If the cluster of another process builds the index.
    """
    from subtext.retrieval.make_text_side import keep_text_side

    parts = writer.parts
    if parts is not None and any(writer.store.counts.values()):
        if verb == "build":
            parts.remove()  # They were committed, and the command was killed before it could remove them.
        parts = None
    if cluster is not None:
        require_readable(model)
    else:
        require_no_cluster(writer)
    require_model(writer.store, writer.manifest, model)
    training = model.training
    model.eval()
    try:
        job = writer.begin(verb, source=source, total=len(pairs.images) + len(pairs.texts))
        record = writer.manifest.encoder
        followed = dict[bytes, str]()
        sentences = None if record is None else SentenceVectors(record, writer.store.path, former, cache, note)
        embed = ChunkEmbedder(
            model, (pairs.root, Path(writer.manifest.root)), (batch_size, workers), cache, note, sentences
        )
        embed.verify_files, embed.taken = verify_files, taken
        # Before a cluster shares the model: to compare arrays takes as much memory as these have.
        reason = keep_text_side(writer, model, pairs.texts.values)
        if reason and verb == "build" and note is not None:
            note(f"note: each search by words opens the model with PyTorch, which takes seconds; {reason}")
        if sentences is not None and (reason := sentences.keep(writer, pairs.texts.values)) and note is not None:
            note(f"note: a search compares texts by PyTorch, which takes seconds to load; {reason}")
        if renames:
            embed.store, embed.absent = writer.store, _absent(writer, pairs, unread, gone)
            with writer.store.reading() as view:
                named = listed_images(view)
            absent = embed.absent.get("images", {})
            followed = {content: own for content, ids in absent.items() for own in ids if own in named}
        if cluster is not None and parts is not None:
            total = _ingest_parts(writer, parts, embed, pairs, cluster, job=job, note=note, progress=progress)
        else:
            linked = set[str]() if unread is None else unread["texts"]
            links, total, done = _Links(pairs), WriteCounts(), 0
            for chunk, prepared in _prepared(writer, embed, pairs, cluster, again=again, only=only):
                side, new = chunk.side, prepared.new
                change = Change(
                    side,
                    entries=new,
                    vectors=prepared.vectors,
                    amended=prepared.amended,
                    unless_deleted=not again,
                    links=[] if side == "images" else links.of(chunk.rows),
                    exact_texts=frozenset(set(chunk.items.ids) - linked if exact and side == "texts" else ()),
                    derived=prepared.derived,
                )
                done += chunk.count
                writer.put(change, job=job, done=done)
                if side == "images":
                    # A saved list goes on with an image that only has another name.
                    rename_images(writer, {followed[own.content]: own.id for own in new if own.content in followed})
                total += _counts(chunk, prepared, taken)
                if progress is not None:
                    progress(done)
            if taken is not None:
                prune(writer, {"images": taken.strays(pairs), "texts": []})
                total += taken.written
        if finish:
            writer.finish(job)
    finally:
        model.train(training)
    return total


@runtime_checkable
class TakenImages(Protocol):
    """Images that were put into an index while the listing of their data set was read.

    Attributes:
        written: What happened to them; those that `ingest` counts as unchanged are fewer by these.
    """

    written: WriteCounts

    def has(self, value: object) -> bool:
        """Whether an image was put in."""

    def strays(self, pairs: Dataset) -> list[str]:
        """Ids of those that the data set, read to its end, leaves out."""


def require_no_cluster(writer: Writer) -> None:
    """Require that no cluster has begun to build an index.

    Args:
        writer: Changes the index.

    Raises:
        SearchIndexError: If one has.
    """
    if writer.parts is not None and not any(writer.store.counts.values()) and writer.parts.begun:
        raise SearchIndexError(
            f"{writer.store.path} holds the work of a cluster that has not ended; go on with one (",
            Setting("ray", "ADDRESS"),
            "; local for this machine), or remove the index",
        )


def require_readable(model: Model) -> None:
    """Require a model that reads images and texts, which the workers of a cluster can read as well.

    Args:
        model: The model.

    Raises:
        RequirementError: If it reads precomputed features.
    """
    if any(isinstance(branch.input_spec, FeatureInput) for branch in (model.image, model.text)):
        raise RequirementError(
            "a Ray cluster embeds images and texts that its workers read; this model reads precomputed features, a "
            "file on this machine; leave out the address of the cluster"
        )


def _counts(chunk: Chunk, prepared: EmbeddedChunk, taken: TakenImages | None) -> WriteCounts:
    """What happened to the items of a chunk; those that were taken are counted as unchanged."""
    new, amended, side = prepared.new, prepared.amended, chunk.side
    known = (entry for entry in amended if taken is None or side == "texts" or not taken.has(entry.path))
    changed = sum(not _is_touched(chunk.stored[entry.id], entry, side) for entry in known)
    unchanged, left_out = len(chunk.rows) - len(new) - changed, chunk.count - len(chunk.rows)
    return WriteCounts(len(new) - prepared.renamed, changed, unchanged, left_out=left_out, renamed=prepared.renamed)


def _is_touched(stored: StoredRow, entry: IndexEntry, side: Side) -> bool:
    """Whether an item is as it was but for the times of its file, and the content that an import did not know."""
    content = stored.content if is_of_vectors(stored.content) else entry.content
    return replace(entry, stamp=stored.stamp, content=content).digest(SIDES.index(side), stored.key) == stored.digest


def _is_embedded(stored: StoredRow, entry: IndexEntry) -> bool:
    """Whether the vectors of an item are of what it is now."""
    # The content of a text that is read as features says nothing of its words.
    if stored.text != entry.text:
        return False
    if not is_of_vectors(stored.content):
        return stored.content == entry.content
    # Imported: a file that has other times than at the import is another one.
    is_same_file = not stored.stamp or file_part(stored.stamp) == file_part(entry.stamp)
    return stored.path == entry.path and is_same_file


def _is_first_seen(stored: StoredRow, entry: IndexEntry) -> bool:
    """Whether the file of an imported image becomes known now."""
    return is_of_vectors(stored.content) and (entry.content != stored.content or not stored.stamp)


@dataclass(frozen=True, eq=False)
class Chunk:
    """Items of a side that are embedded and stored together.

    Attributes:
        side: "images" or "texts".
        rows: Rows of the data set without those that are left out.
        items: The items of these rows.
        count: With those that are left out.
        stored: Id -> row of those that are in the index.
        splits: Whether their splits are metadata: those that were drawn say nothing of them.
    """

    side: Side
    rows: NDArray[np.int64]
    items: Items
    count: int
    stored: Mapping[str, StoredRow]
    splits: bool


class EmbeddedChunk(NamedTuple):
    """What is made of a chunk.

    Attributes:
        new: New entries.
        vectors: Their (N K D) vectors; None if there are none.
        amended: Entries whose vectors stay.
        renamed: How many of the new ones only have another name.
        derived: Sentence vectors of new texts.
    """

    new: Sequence[IndexEntry]
    vectors: NDArray[np.float32] | None
    amended: Sequence[IndexEntry]
    renamed: int
    derived: Mapping[DerivedSpace, Mapping[str, DerivedRow]]


@dataclass(frozen=True, eq=False)
class IndexPart(Chunk):
    """A part of a new index, which a worker writes.

    Attributes:
        key: Of its first item; the others count on.
        derived_key: Of what is derived of its first item.
        links: (image id, text id) of its texts.
    """

    key: int = 0
    derived_key: int = 0
    links: Sequence[tuple[str, str]] = ()

    @property
    def name(self) -> str:
        """Side and key."""
        return f"{self.side}-{self.key:012d}"

    def mark(self, root: Path) -> str:
        """32 hexadecimal digits that change with the items, and with the size and times of their files.

        Args:
            root: Folder of relative paths.

        Returns:
            32 hexadecimal digits.
        """
        items, digest = self.items, hashlib.blake2b(digest_size=16)
        images = items.values if self.side == "images" else ()
        look(value for value in images if isinstance(value, str) and is_address(value))
        about = (__version__, self.key, self.derived_key, items.ids, self.links, items.metadata, list(items.marks))
        digest.update(repr((*about, items.splits.tolist() if self.splits else ())).encode("utf-8", "surrogatepass"))
        for value in items.values:
            if isinstance(value, bytes):
                digest.update(_digest(value))
            else:
                stamp = file_stamp(value, root) if self.side == "images" and value is not None else ""
                digest.update(repr((value, stamp)).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


class _Links:
    """The links of a data set, by their texts.

    Args:
        pairs: The data set.
    """

    def __init__(self, pairs: Dataset) -> None:
        self.pairs = pairs
        texts = pairs.links[:, 1]
        # Most listings have them in this order already: then nothing is held twice.
        is_sorted = bool((texts[1:] >= texts[:-1]).all())
        self._by_text = pairs.links if is_sorted else pairs.links[np.argsort(texts, kind="stable")]

    def of(self, rows: NDArray[np.int64]) -> list[tuple[str, str]]:
        """(image id, text id) of some texts that stand near to one another.

        Args:
            rows: Of texts, in their order.

        Returns:
            The links.
        """
        if not len(rows):
            return []
        first = bisect_left(self._by_text, rows[0], key=itemgetter(1))  # NumPy's search would copy the column.
        last = bisect_right(self._by_text, rows[-1], key=itemgetter(1))
        near = self._by_text[first:last]
        images, texts = self.pairs.images.ids, self.pairs.texts.ids
        return [(images[image], texts[text]) for image, text in near[np.isin(near[:, 1], rows)].tolist()]


def _absent(
    writer: Writer,
    pairs: Dataset,
    unread: Mapping[Side, set[str]] | None,
    gone: Mapping[Side, Sequence[str]] | None,
) -> dict[Side, dict[bytes, list[str]]]:
    """Content -> ids of items of the index that the data set does not have; empty where it has no new items."""
    absent: dict[Side, dict[bytes, list[str]]] = {}
    for side, items in zip(SIDES, (pairs.images, pairs.texts), strict=True):
        absent[side] = {}
        if gone is not None:
            missing = gone[side]
        else:
            stored, present = writer.ids(side), set(items.ids) | (set() if unread is None else unread[side])
            missing = [] if set(items.ids).issubset(stored) else [name for name in stored if name not in present]
        for row in filter(lambda row: row.content, writer.rows_of(side, missing).values()):
            absent[side].setdefault(row.content, []).append(row.id)
    return absent


def _chunks(
    writer: Writer, pairs: Dataset, *, again: bool, only: Mapping[Side, set[str]] | None, size: int = CHUNK
) -> Iterator[Chunk]:
    for side, items in zip(SIDES, (pairs.images, pairs.texts), strict=True):
        for start, stop in _pieces(len(items), size):
            ids = items.ids[start:stop]
            deleted = set[str]()
            if not again:
                with writer.store.reading() as view:
                    deleted = deleted_before(view, side, ids)
            skipped = deleted if only is None else deleted | set(ids) - only[side]
            rows = np.array([start + n for n, name in enumerate(ids) if name not in skipped], dtype=np.int64)
            chunk = items.take(rows)
            yield Chunk(side, rows, chunk, len(ids), writer.rows_of(side, chunk.ids), pairs.own_splits)


def _pieces(count: int, size: int) -> Iterator[tuple[int, int]]:
    """The first row and the end of each part; a part lies in one chunk, where batches begin anew."""
    for chunk in range(0, count, CHUNK):
        end = min(chunk + CHUNK, count)
        yield from ((start, min(start + size, end)) for start in range(chunk, end, size))


def _parts(pairs: Dataset, size: int) -> Iterator[IndexPart]:
    """The parts of a new index. Keys are those that one process gives: images, texts, what is derived of texts."""
    links, images, both = _Links(pairs), len(pairs.images), len(pairs.images) + len(pairs.texts)
    for side, items, before in zip(SIDES, (pairs.images, pairs.texts), (0, images), strict=True):
        for start, stop in _pieces(len(items), size):
            rows = np.arange(start, stop, dtype=np.int64)
            linked = links.of(rows) if side == "texts" else ()
            own = items.take(rows)
            yield IndexPart(
                side, rows, own, len(rows), {}, pairs.own_splits, before + start + 1, both + start + 1, linked
            )


def _prepared(
    writer: Writer,
    embed: ChunkEmbedder,
    pairs: Dataset,
    cluster: Cluster | None,
    *,
    again: bool,
    only: Mapping[Side, set[str]] | None,
) -> Iterator[tuple[Chunk, EmbeddedChunk]]:
    """Each chunk with what is made of it, in their order; on a cluster, each part of a chunk."""
    if cluster is None:
        yield from ((chunk, embed(chunk)) for chunk in _chunks(writer, pairs, again=again, only=only, size=CHUNK))
        return
    size = _prepare_cluster(cluster, embed, pairs)
    chunks = _chunks(writer, pairs, again=again, only=only, size=size)
    yield from cluster.map(_OnCluster(embed), chunks, gpu=embed.on_gpu, ordered=True, size=_bytes_of)


def _prepare_cluster(cluster: Cluster, embed: ChunkEmbedder, pairs: Dataset) -> int:
    """Require the machines of a cluster; items of a part."""
    embed.note = None
    if embed.sentences is not None:
        embed.sentences = replace(embed.sentences, note=None)
        # Opened here, so that no machine but this one needs its files.
        assert embed.sentences.encoder is not None
    cluster.require_machines(pairs)
    items = max(len(pairs.images), len(pairs.texts))
    return min(CHUNK, cluster.size_of_task(items, embed.unit, gpu=embed.on_gpu))


def _bytes_of(chunk: Chunk) -> int:
    return bytes_of(chunk.items.values)


def _ingest_parts(
    writer: Writer,
    parts: IndexParts,
    embed: ChunkEmbedder,
    pairs: Dataset,
    cluster: Cluster,
    *,
    job: int,
    note: Callable[[str], None] | None,
    progress: Callable[[int], None] | None,
) -> WriteCounts:
    """Let the workers of a cluster write a new index, which one change then makes of what they wrote."""
    written, done, total = list[WrittenPart](), 0, WriteCounts()
    with parts.driving(_prepare_cluster(cluster, embed, pairs), note) as size:
        fields = parts.choose_columns(_all_metadata(pairs))
        work = _OnCluster(embed, parts)
        for part, (found, is_new) in cluster.map(work, _parts(pairs, size), gpu=embed.on_gpu, size=_bytes_of):
            parts.require_driving()
            written.append(found)
            done += part.count
            total += WriteCounts(part.count) if is_new else WriteCounts(unchanged=part.count)
            if progress is not None:
                progress(done)
        writer.add_parts(written, fields=fields, job=job, done=done)
        parts.remove()
    return total


@dataclass
class ChunkEmbedder:
    """Embeds the new items of chunks; on a cluster each worker has one.

    Args:
        roots: Folders that paths of the data set and of the index start from.
        reading: Items embedded together; threads that read ahead.
        cache: See `ingest`.
        note: See `ingest`.
        sentences: Of the sentence encoder of the index; None for none.
        store: The index.
        absent: What `_absent` gives, where renamed items keep their vectors.
        verify_files: See `ingest`.
        taken: See `ingest`.
    """

    model: Model
    roots: tuple[Path, Path]
    reading: tuple[int, int]
    cache: OutputCache | None = None
    note: Callable[[str], None] | None = None
    sentences: SentenceVectors | None = None
    store: Store | None = None
    absent: Mapping[Side, dict[bytes, list[str]]] = field(default_factory=dict)
    verify_files: bool = False
    taken: TakenImages | None = None

    @property
    def on_gpu(self) -> bool:
        """Whether the model computes on a GPU."""
        return next(self.model.parameters()).device.type == "cuda"

    @property
    def unit(self) -> int:
        """Whole batches of about `UNIT` items: a chunk is embedded in such units, whoever takes how many of them."""
        return min(CHUNK, self.reading[0] * max(1, UNIT // self.reading[0]))

    def __call__(self, chunk: Chunk) -> EmbeddedChunk:
        """Embed the new items of a chunk.

        Args:
            chunk: The chunk.

        Returns:
            What is made of it.
        """
        side, new, amended = chunk.side, list[int](), list[IndexEntry]()
        branch = self.model.image if side == "images" else self.model.text
        known = chunk.stored
        if self.verify_files:
            # What was taken has been read just now.
            known = {n: row for n, row in known.items() if self.taken is not None and self.taken.has(row.path)}
        entries = _entries(chunk, branch.input_spec, *self.roots, known=known)
        for row, entry in enumerate(entries):
            before = chunk.stored.get(entry.id)
            if before is None or not _is_embedded(before, entry):
                new.append(row)
            elif before.digest != entry.digest(SIDES.index(side), before.key):
                amended.append(entry)
                if side == "images" and self.note is not None and _is_first_seen(before, entry):
                    self.note("note: files of imported images are read once, and taken as those of their vectors")
        absent = self.absent.get(side, {})
        former = [ids.pop() if (ids := absent.get(entries[row].content)) else None for row in new]
        renamed = [name for name in former if name is not None]
        unknown = np.array([row for row, name in zip(new, former, strict=True) if name is None], dtype=np.int64)
        parts = []
        if renamed:
            assert self.store is not None
            with self.store.reading() as view:
                parts.append(view.vectors_of(side, renamed))
        if len(unknown):
            parts.append(self._embed(chunk, branch, unknown))
        # The renamed ones came first: back to the order of the items.
        order = np.argsort(np.argsort([name is None for name in former], kind="stable"))
        vectors = np.concatenate(parts)[order] if parts else None
        release(chunk.items.values if side == "images" else ())
        added = [entries[row] for row in new]
        return EmbeddedChunk(added, vectors, amended, len(renamed), self._derived(side, added))

    def _embed(self, chunk: Chunk, branch: Branch, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """(N K D) vectors of some items of a chunk."""
        step = self._step(branch, len(rows)) if chunk.side == "texts" else len(rows)
        vectors = []
        for start in range(0, len(rows), step):
            items = chunk.items.take(rows[start : start + step])
            embedded = embed_items(
                self.model, branch, items, self.roots[0], reading=self.reading, cache=self.cache, note=self.note
            )
            vectors.append(embedded.vectors.float().numpy())
        return np.concatenate(vectors)

    def _derived(self, side: Side, added: Sequence[IndexEntry]) -> dict[DerivedSpace, Mapping[str, DerivedRow]]:
        """The sentence vectors of new texts."""
        if self.sentences is None or side != "texts" or not added:
            return {}
        step, rows = self._step(self.sentences.encoder.text, len(added)), dict[str, DerivedRow]()
        for start in range(0, len(added), step):
            rows |= self.sentences(added[start : start + step])
        return {"sentences": rows}

    def _step(self, branch: Branch, count: int) -> int:
        """Texts that are embedded by one call.

        Equal texts of a call are embedded once, and which batch a text is in changes its last bits. Only what the cache
        keeps is the same in any batch.
        """
        is_kept = branch.frozen and (self.cache or user_cache()) is not None
        return count if is_kept else self.unit


@dataclass
class _OnCluster:
    """What a worker of a cluster does with a chunk, or with a part that it writes.

    Args:
        worker: Embeds it.
        parts: Where it is written; None for a chunk that the process of the command stores.
    """

    worker: ChunkEmbedder
    parts: IndexParts | None = None

    def __call__(self, chunk: Chunk) -> Any:
        root = self.worker.roots[0]
        try:
            if not isinstance(chunk, IndexPart) or self.parts is None:
                return self.worker(chunk)
            mark = chunk.mark(root)
            if (found := self.parts.finished(chunk.name, mark)) is not None:
                return found, False
            made = self.worker(chunk)
        except DataError as problem:
            if chunk.side == "images":
                require_seen(problem, chunk.items.values, root)
            raise
        change = Change(chunk.side, made.new, made.vectors, links=chunk.links, derived=made.derived)
        keys = {"key": chunk.key, "derived_key": chunk.derived_key}
        return self.parts.write(chunk.name, mark, change, **keys), True


CHANGES = "changes"
"""Key of a job's source that is a list of changes; no data set is read by it again."""
FEW, SHARE = 10, 0.1
"""An update deletes no more than either of these without a word: items, and their share of the index."""


@dataclass(frozen=True)
class Missing:
    """The items of an index that its data no longer has.

    Attributes:
        ids: Of each side, in the order of the index.
        total: Items of the index.
        lost: Those whose content no new item of the data has: the others are renamed. It is counted only where it
            matters, else it is the number of all.
        lost_images: The images among those that are lost; None where all are.
    """

    ids: Mapping[Side, list[str]]
    total: int
    lost: int
    lost_images: int | None = None

    @property
    def count(self) -> int:
        """Number of all of them."""
        return sum(map(len, self.ids.values()))

    def require_allowed(self, allowed: int | None, subject: str, command: str, *, named: bool = False) -> None:
        """Require that so many items may be deleted: data that is half written or not mounted looks the same.

        Args:
            allowed: How many; None for `FEW`, or `SHARE` of the index.
            subject: The index, for the message.
            command: What deletes them all the same.
            named: Whether changes name the items, and no data lacks them.

        Raises:
            DataError: If they are more; nothing was deleted.
        """
        many = self.lost >= FEW and self.lost > SHARE * self.total if allowed is None else self.lost > allowed
        if many:
            first = next(chain.from_iterable(self.ids.values()))
            images = len(self.ids["images"]) if self.lost_images is None else self.lost_images
            of_side = {"image": images, "text": self.lost - images}
            lost = " and ".join(counted(number, kind) for kind, number in of_side.items() if number)
            counts = f"{lost}, of its {self.total:,} items, first '{first}'"
            why = (
                f"the changes delete {counts}"
                if named
                else (f"its data no longer has {counts}, as if a table were half written or a disk not mounted")
            )
            raise DataError(f"{subject} stays as it is: {why}; where they are to be deleted: `{command}`")


def find_missing(
    writer: Writer,
    keep: Mapping[Side, Iterable[str]],
    readings: Sequence[tuple[Model, Dataset]],
    *,
    unchanged: Unchanged,
    allowed: int | None,
) -> Missing:
    """Find the items that the data of an index no longer has.

    Args:
        writer: Changes the index.
        keep: Ids to keep on each side: those of the data sets.
        readings: The data sets, each with the model that reads it.
        unchanged: Images that are kept with all their texts.
        allowed: See `Missing.require_allowed`: fewer are not told apart from renamed ones.

    Returns:
        The missing items.
    """
    gone, lost_images = dict[Side, list[str]](), list[int]()
    with writer.store.reading() as view:
        for side in SIDES:
            lost = _keys_without(view.keys(side), _keys_of(view, side, keep[side]))
            lost = _keys_without(lost, unchanged.keys if side == "images" else unchanged.texts)
            rows = sorted(view.rows(side, keys=lost.tolist(), links=side == "texts"), key=lambda row: row.key)
            # Texts of a machine stand in no data; they go with their images.
            others = {key for row in rows for key in row.links}.difference(lost_images)
            gone[side] = [row.id for row in rows if not machine_of(row.metadata) or others.isdisjoint(row.links)]
            lost_images = lost.tolist()
        total = sum(view.counts.values())
    count = sum(map(len, gone.values()))
    missing = Missing(gone, total, count)
    if count <= (max(FEW - 1, SHARE * total) if allowed is None else allowed):
        return missing
    with writer.store.reading() as view:
        # An update that was cut off before it deleted has put the new names in already.
        unfinished = [job for job in journal(view) if job.finished is None and job.verb == "update"]
    cut_off = any(CHANGES not in (job.source or {}) for job in unfinished)
    known = dict[Side, set[str]]()
    if not cut_off:
        with writer.store.reading() as view:
            for side in SIDES:
                items = (pairs.images if side == "images" else pairs.texts for _, pairs in readings)
                known[side] = set(view.keys_of(side, [name for own in items for name in own.ids]))
    return without_renamed(writer, missing, readings, known=known)


_HELD, _BLOCK = 8192, 65_536
"""Rows of an index that are read, and keys that are compared at a time."""


def _keys_without(keys: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.int64]:
    """Keys, each once, without those that stand among others, too."""
    others = np.sort(others)
    kept = np.ones(len(keys), dtype=bool)
    for start in range(0, len(keys) if len(others) else 0, _BLOCK):
        some = keys[start : start + _BLOCK]
        kept[start : start + _BLOCK] = others[np.minimum(np.searchsorted(others, some), len(others) - 1)] != some
    found: NDArray[np.int64] = keys[kept]
    return found


def _keys_of(view: View, side: Side, ids: Iterable[str]) -> NDArray[np.int64]:
    """Keys of those items that an index has."""
    remaining, keys = iter(ids), array("q")
    while some := list(islice(remaining, _HELD)):
        keys.extend(view.keys_of(side, some).values())
    return np.frombuffer(keys, dtype=np.int64)


def restamp(writer: Writer, stamps: Sequence[tuple[int, str]]) -> None:
    """Store the times of files that have others and the same content.

    Args:
        writer: Changes the index.
        stamps: Key of an image, and its stamp.
    """
    for start in range(0, len(stamps), CHUNK):
        now = dict(stamps[start : start + CHUNK])
        with writer.store.reading() as view:
            rows = view.rows("images", keys=sorted(now))
        writer.put(Change("images", amended=[replace(row.entry(), stamp=now[row.key]) for row in rows]))


def without_renamed(
    writer: Writer, missing: Missing, readings: Sequence[tuple[Model, Dataset]], *, known: Mapping[Side, set[str]]
) -> Missing:
    """Tell those of the missing items that have only another name from those that are lost.

    Args:
        writer: Changes the index.
        missing: The missing items.
        readings: The data sets, each with the model that reads it.
        known: Ids of each side that are no new names; empty where any of the data may be one.

    Returns:
        The same items, with the number of the lost ones.
    """
    roots, present = Path(writer.manifest.root), Counter[tuple[Side, bytes]]()
    for model, pairs in readings:
        for side, items, branch in zip(SIDES, (pairs.images, pairs.texts), (model.image, model.text), strict=True):
            own = known.get(side, set())
            rows = np.array([row for row, name in enumerate(items.ids) if name not in own], dtype=np.int64)
            new = items.take(rows)
            rows_stored = {} if known else writer.rows_of(side, new.ids)
            chunk = Chunk(side, rows, new, len(rows), rows_stored, pairs.own_splits)
            entries = _entries(chunk, branch.input_spec, pairs.root, roots)
            present.update((side, entry.content) for entry in entries)
    gone = missing.ids
    former = Counter((side, row.content) for side in SIDES for row in writer.rows_of(side, gone[side]).values())
    lost = former - present
    images = sum(count for (side, _), count in lost.items() if side == "images")
    return replace(missing, lost=lost.total(), lost_images=images)


def unstored(writer: Writer, model: Model, pairs: Dataset) -> int:
    """Count the items of a data set that an index does not have as they are, or would take again: nothing is written.

    Args:
        writer: Changes the index.
        model: The model of the index.
        pairs: Images and texts.

    Returns:
        Number of items that are new or changed.
    """
    count, roots = 0, (pairs.root, Path(writer.manifest.root))
    for chunk in _chunks(writer, pairs, again=False, only=None):
        branch = model.image if chunk.side == "images" else model.text
        for entry in _entries(chunk, branch.input_spec, *roots):
            before = chunk.stored.get(entry.id)
            count += before is None or before.digest != entry.digest(SIDES.index(chunk.side), before.key)
    return count


def prune(writer: Writer, ids: Mapping[Side, Sequence[str]]) -> WriteCounts:
    """Delete items; a source that has them again brings them back.

    Args:
        writer: Changes the index.
        ids: Of each side.

    Returns:
        The number of deleted items.
    """
    deleted = 0
    for side in SIDES:
        if ids[side]:
            deleted += sum(writer.delete(side, ids[side], keep_texts=True, remember=False).values())
    return WriteCounts(deleted=deleted)


def stored_path(value: str, data_root: Path, index_root: Path) -> str:
    """The path of an image as an index has it; the folders that both start from are resolved.

    Args:
        value: Path of the image, relative to the root of the data set.
        data_root: Folder that paths of the data set start from.
        index_root: Folder that paths of the index start from.

    Returns:
        An address as it is; a path relative to `index_root` if it lies inside, else an absolute one.
    """
    if data_root == index_root or is_address(value):
        return value
    file = (data_root / value).resolve()
    return file.relative_to(index_root).as_posix() if file.is_relative_to(index_root) else str(file)


def conflicting_ids(writer: Writer, pairs: Dataset) -> list[tuple[str, Path, Path]]:
    """Images of a data set whose ids name other files in an index.

    Args:
        writer: Changes the index.
        pairs: Images and texts to be added.

    Returns:
        (id, file in the index, file of the data set) of each; copies of the same file are left out.
    """
    data_root, index_root, taken = pairs.root.resolve(), Path(writer.manifest.root).resolve(), []
    stored: Mapping[str, StoredRow] = {}
    for number, (name, value) in enumerate(zip(pairs.images.ids, pairs.images.values, strict=True)):
        if number % _HELD == 0:
            stored = writer.rows_of("images", pairs.images.ids[number : number + _HELD])
        row = stored.get(name)
        if row is None or not row.path or not row.stamp or not isinstance(value, str):
            continue  # Features may have been read of it, and no file.
        files = joined_path(index_root, row.path).resolve(), joined_path(data_root, value).resolve()
        is_other = stored_path(value, data_root, index_root) != row.path and files[0] != files[1]
        if is_other and file_stamp(value, data_root) and image_digest(value, data_root) != row.content:
            taken.append((name, *files))
    return taken


def _entries(
    chunk: Chunk, input_spec: Any, data_root: Path, index_root: Path, *, known: Mapping[str, StoredRow] | None = None
) -> list[IndexEntry]:
    """The entries of items; a file with the path, size and times of a stored one is not read again.

    Args:
        chunk: The items, and what the index has of them.
        input_spec: How the model reads them.
        data_root: Folders that the items' paths and those of the index start from.
        index_root: See `data_root`.
        known: Id -> row of those whose files are compared by size and times; None for all that the index has.

    Returns:
        One entry per item, in their order.

    Raises:
        DataError: If an image's file, or an item's features, cannot be read.
    """
    items, side, digests = chunk.items, chunk.side, None
    known = chunk.stored if known is None else known
    if isinstance(input_spec, FeatureInput):
        hashes = [hashlib.blake2b(digest_size=16) for _ in items.ids]
        arrays = input_spec.of_rows(input_spec.rows(items.ids, items.values)).values() if hashes else ()
        for array in arrays:
            for digest, features in zip(hashes, array, strict=True):
                digest.update(np.ascontiguousarray(features).tobytes())
        digests = [digest.digest() for digest in hashes]
    data_root, index_root = data_root.resolve(), index_root.resolve()
    entries = []

    def changed(item: tuple[str, Any]) -> str | None:
        """The address of an image that is read here."""
        name, value = item
        if side != "images" or digests is not None or not is_address(value):
            return None
        stored = known.get(name)
        return None if stored is not None and _is_stored(stored, value, file_stamp(value, data_root)) else value

    named = zip(items.ids, items.values, strict=True)
    for row, (name, value) in enumerate(fetched(named, changed, most=LARGEST_FILE * most_pixels())):
        text = path = stamp = None
        content = b"" if digests is None else digests[row]
        if isinstance(value, str) and side == "texts":
            text = value
            content = content or _digest(value.encode("utf-8", "surrogatepass"))
        elif isinstance(value, str):
            path = stored_path(value, data_root, index_root)
            if digests is None:
                stored = known.get(name)
                content, stamp = _file_digest(value, data_root, path, stored)
                mark = items.marks[row] if items.marks else ""
                stamp = f"{stamp} {mark}" if mark and stamp else stamp
        elif isinstance(value, bytes) and digests is None:
            content = _digest(value)
        metadata = _metadata(items, row, splits=chunk.splits)
        entries.append(IndexEntry(name, content, path=path, text=text, metadata=metadata, stamp=stamp))
    return entries


def _metadata(items: Items, row: int, *, splits: bool) -> dict[str, Any]:
    """What is known of an item; its split, where the data set has its own."""
    own = {key: column[row] for key, column in items.metadata.items() if column[row] is not None}
    return {**({"split": str(items.splits[row])} if splits else {}), **own}


def _all_metadata(pairs: Dataset) -> Iterator[tuple[Side, dict[str, Any]]]:
    """What is known of every item, in the order in which one process puts them in."""
    for side, items in zip(SIDES, (pairs.images, pairs.texts), strict=True):
        for start, stop in _pieces(len(items), CHUNK):
            taken = items.take(np.arange(start, stop, dtype=np.int64))
            yield from ((side, _metadata(taken, row, splits=pairs.own_splits)) for row in range(len(taken)))


def _file_digest(source: str, root: Path, path: str, stored: StoredRow | None) -> tuple[bytes, str]:
    """The digest of an image, and its file's stamp; the stored digest where path, size and times are the same."""
    stamp = file_stamp(source, root)
    # A file of an imported image is read once, so that it is known again; of a store, its stamp tells that.
    if (
        stored is not None
        and _is_stored(stored, path, stamp)
        and (is_address(source) or not is_of_vectors(stored.content))
    ):
        return stored.content, stamp
    return image_digest(source, root), stamp


def _is_stored(stored: StoredRow, path: str, stamp: str) -> bool:
    return file_part(stored.stamp) == stamp and stored.path == path


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()
