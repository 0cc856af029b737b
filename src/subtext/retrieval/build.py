"""Building an index: new and changed items of a data set are embedded, chunk by chunk.

The chunks are embedded in this process, or by the workers of a Ray cluster, which do the same with each of them. Either
way this process puts them into the store, in their order.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from subtext.data.dataset import Dataset, Items
from subtext.data.features import FeatureInput
from subtext.data.image_files import file_stamp, image_digest, limit_pixels, most_pixels
from subtext.data.output_cache import OutputCache
from subtext.data.unchanged import KnownImage, Unchanged, file_part
from subtext.errors import DataError, RequirementError, SearchIndexError, SubtextError
from subtext.evaluation.embedding import embed_items
from subtext.models.checkpoint import fingerprint
from subtext.models.encoders.languages import languages_read
from subtext.models.heads.gaussian import DistanceVectors
from subtext.models.heads.mean import Passthrough
from subtext.models.model import Branch, Model
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
    machine_of,
)
from subtext.retrieval.stores.store import Store, View, Writer
from subtext.text_helpers import install_hint
from subtext.version import __version__

CHUNK = 2048
"""Items that are embedded and stored at a time: no more than these are lost when an add is killed."""


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
    ray: str | None = None,
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
        ray: Address of the Ray cluster that embeds; None for this process.
        progress: Receives the number of images and texts processed so far.

    Returns:
        Number of items by what happened to them.

    Raises:
        SearchIndexError: If another model made the index.
        DataError: If an item cannot be read: the chunks before it are stored.
        RequirementError: For what `require_ray` refuses.
    """
    if ray is not None:
        require_ray(model)
    require_model(writer.store, writer.manifest, model)
    training = model.training
    model.eval()
    try:
        job = writer.begin(verb, source=source, total=len(pairs.images) + len(pairs.texts))
        total, done, record = WriteCounts(), 0, writer.manifest.encoder
        followed = dict[bytes, str]()
        sentences = None if record is None else SentenceVectors(record, writer.store.path, former, cache, note)
        chunks, links_of = _chunks(writer, pairs, again=again, only=only), _Links(pairs.links)
        embed = _Worker(model, (pairs.root, Path(writer.manifest.root)), (batch_size, workers), cache)
        embed.note = note if ray is None else None
        embed.verify_files, linked = verify_files, set[str]() if unread is None else unread["texts"]
        if renames:
            embed.store, embed.absent = writer.store, _absent(writer, pairs, unread, gone)
            with writer.store.reading() as view:
                named = listed_images(view)
            absent = embed.absent.get("images", {})
            followed = {content: own for content, ids in absent.items() for own in ids if own in named}
        prepared = ((chunk, embed(chunk)) for chunk in chunks) if ray is None else _on_cluster(ray, embed, list(chunks))
        for chunk, (new, vectors, amended, renamed) in prepared:
            side, rows = chunk.side, chunk.rows
            derived = dict[DerivedSpace, dict[str, DerivedRow]]()
            if sentences is not None and side == "texts" and new:
                derived["sentences"] = sentences(new)
            links = [] if side == "images" else links_of(rows).tolist()
            change = Change(
                side,
                entries=new,
                vectors=vectors,
                amended=amended,
                unless_deleted=not again,
                links=[(pairs.images.ids[image], pairs.texts.ids[text]) for image, text in links],
                exact_texts=frozenset(set(chunk.items.ids) - linked if exact and side == "texts" else ()),
                derived=derived,
            )
            done += chunk.count
            writer.put(change, job=job, done=done)
            if side == "images":
                # A saved list goes on with an image that only has another name.
                rename_images(writer, {followed[own.content]: own.id for own in new if own.content in followed})
            changed = sum(not _is_touched(chunk.stored[entry.id], entry, side) for entry in amended)
            unchanged = len(rows) - len(new) - changed
            left_out = chunk.count - len(rows)
            total += WriteCounts(len(new) - renamed, changed, unchanged, left_out=left_out, renamed=renamed)
            if progress is not None:
                progress(done)
        if sentences is not None and (reason := sentences.keep(writer, pairs.texts.values)) and note is not None:
            note(f"note: a search compares texts by PyTorch, which takes seconds to load; {reason}")
        if finish:
            writer.finish(job)
    finally:
        model.train(training)
    return total


class _Links:
    """Finds the pairs of some texts; to look through all of them for each chunk would cost the square of their number.

    Args:
        links: (L, 2) rows of images and texts.
    """

    def __init__(self, links: NDArray[np.int64]) -> None:
        self.links, texts = links, links[:, 1]
        in_order = bool((texts[1:] >= texts[:-1]).all())
        self.order: Any = range(len(links)) if in_order else np.argsort(texts, kind="stable")

    def __call__(self, texts: NDArray[np.int64]) -> NDArray[np.int64]:
        """The (N, 2) pairs of texts, whose rows ascend, in the order of all pairs."""
        if not len(texts):
            return self.links[:0]
        begin = bisect_left(self.order, texts[0], key=lambda row: self.links[row, 1])
        end = bisect_right(self.order, texts[-1], key=lambda row: self.links[row, 1])
        found = self.links[np.sort(np.asarray(self.order[begin:end], dtype=np.int64))]
        return found[np.isin(found[:, 1], texts)]


def _is_touched(stored: StoredRow, entry: IndexEntry, side: Side) -> bool:
    """Whether an item is as it was but for the times of its file."""
    return replace(entry, stamp=stored.stamp).digest(SIDES.index(side), stored.key) == stored.digest


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


Prepared = tuple[Sequence[IndexEntry], NDArray[np.float32] | None, Sequence[IndexEntry], int]
"""New entries of a chunk, their (N K D) vectors, entries whose vectors stay; how many of the new ones were renamed."""


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


def _chunks(writer: Writer, pairs: Dataset, *, again: bool, only: Mapping[Side, set[str]] | None) -> Iterator[Chunk]:
    for side, items in zip(SIDES, (pairs.images, pairs.texts), strict=True):
        for start in range(0, len(items), CHUNK):
            ids = items.ids[start : start + CHUNK]
            deleted = set[str]()
            if not again:
                with writer.store.reading() as view:
                    deleted = deleted_before(view, side, ids)
            skipped = deleted if only is None else deleted | set(ids) - only[side]
            rows = np.array([start + n for n, name in enumerate(ids) if name not in skipped], dtype=np.int64)
            chunk = items.take(rows)
            yield Chunk(side, rows, chunk, len(ids), writer.rows_of(side, chunk.ids), pairs.own_splits)


@dataclass
class _Worker:
    """Embeds the new items of chunks; on a cluster each worker has one.

    Args:
        roots: Folders that paths of the data set and of the index start from.
        reading: Items embedded together; threads that read ahead.
        cache: See `ingest`.
        note: See `ingest`.
        store: The index.
        absent: What `_absent` gives, where renamed items keep their vectors.
        verify_files: See `ingest`.
        pixels: The largest image that is decoded.
    """

    model: Model
    roots: tuple[Path, Path]
    reading: tuple[int, int]
    cache: OutputCache | None = None
    note: Callable[[str], None] | None = None
    store: Store | None = None
    absent: Mapping[Side, dict[bytes, list[str]]] = field(default_factory=dict)
    verify_files: bool = False
    pixels: int = field(default_factory=most_pixels)

    def __call__(self, chunk: Chunk) -> Prepared:
        side, new, amended = chunk.side, list[int](), list[IndexEntry]()
        branch = self.model.image if side == "images" else self.model.text
        entries = _entries(chunk, branch.input_spec, *self.roots, verify_files=self.verify_files)
        for row, entry in enumerate(entries):
            before = chunk.stored.get(entry.id)
            # The content of a text that is read as features says nothing of its words.
            if before is None or before.content != entry.content or before.text != entry.text:
                new.append(row)
            elif before.digest != entry.digest(SIDES.index(side), before.key):
                amended.append(entry)
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
        return [entries[row] for row in new], vectors, amended, len(renamed)

    def _embed(self, chunk: Chunk, branch: Branch, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """(N K D) vectors of some items of a chunk."""
        items, reading = chunk.items.take(rows), self.reading
        embedded = embed_items(
            self.model, branch, items, self.roots[0], reading=reading, cache=self.cache, note=self.note
        )
        return embedded.vectors.float().numpy()


class _OnCluster:
    """A worker of a Ray cluster: a dictionary of chunks becomes one of what each of them gives, or its error."""

    def __init__(self, stored: Any) -> None:
        import ray

        self.worker: _Worker = ray.get(stored)
        limit_pixels(self.worker.pixels / 1_000_000)

    def __call__(self, batch: dict[str, NDArray[Any]]) -> dict[str, list[Any]]:
        try:
            return {"prepared": [self.worker(chunk) for chunk in batch["chunk"]]}
        except SubtextError as problem:
            return {"prepared": [problem]}


def require_ray(model: Model) -> None:
    """Require that Ray is installed and the model reads images and texts.

    Args:
        model: The model.

    Raises:
        RequirementError: If Ray is not installed, or the model reads precomputed features.
    """
    if any(importlib.util.find_spec(name) is None for name in ("ray", "pandas")):
        raise RequirementError(f"a Ray cluster needs Ray Data; it is not installed; {install_hint('ray')}")
    if any(isinstance(branch.input_spec, FeatureInput) for branch in (model.image, model.text)):
        raise RequirementError(
            "a Ray cluster embeds images and texts that its workers read; this model reads precomputed features, a "
            "file on this machine; leave out the address of the cluster"
        )


def _on_cluster(address: str, worker: _Worker, chunks: Sequence[Chunk]) -> Iterator[tuple[Chunk, Prepared]]:
    """Each chunk with what the workers of a cluster made of it, in order.

    A worker that ends is started again, and its chunk done again.

    Raises:
        RequirementError: For a cluster that cannot be reached, and what a chunk raises, after those before it.
    """
    import ray
    import ray.data

    begun = not ray.is_initialized()
    if begun:
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError) as problem:
            raise RequirementError(
                "embedding on a cluster needs one that can be reached: HOST:PORT, auto for the one of this machine, or "
                f"local to start one; it got {address}: {str(problem).partition('. ')[0]}"
            ) from problem
    try:
        kind = next(worker.model.parameters()).device.type
        unit = {"num_gpus": 1} if kind == "cuda" else {"num_cpus": 1}
        most = max(1, min(len(chunks), int(ray.cluster_resources().get("GPU" if kind == "cuda" else "CPU", 1))))
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        context = ray.data.DataContext.get_current().copy()
        context.execution_options.preserve_order, context.enable_progress_bars = True, False
        with ray.data.DataContext.current(context):
            stored = ray.put(worker)  # In scope to the end: a worker that is started again reads it again.
            rows = ray.data.from_items([{"chunk": chunk} for chunk in chunks], override_num_blocks=len(chunks))
            rows = rows.map_batches(
                _OnCluster,
                fn_constructor_args=(stored,),
                batch_size=1,
                compute=ray.data.ActorPoolStrategy(  # All at once: one alone soon has half of a few chunks.
                    min_size=1, initial_size=most, max_size=most, max_tasks_in_flight_per_actor=2
                ),
                **unit,
            )
            for chunk, row in zip(chunks, rows.iter_rows(), strict=True):
                if isinstance(row["prepared"], SubtextError):
                    raise row["prepared"]
                yield chunk, row["prepared"]
    finally:
        if begun:
            ray.shutdown()


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
    """

    ids: Mapping[Side, list[str]]
    total: int
    lost: int

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
            counts = f"{self.lost:,} of its {self.total:,} items, first '{first}'"
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


_HELD = 8192
"""Rows of an index that are read at a time."""


def _keys_without(keys: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.int64]:
    """Keys, each once, without those that stand among others, too."""
    found: NDArray[np.int64] = keys[~np.isin(keys, others, assume_unique=True)]
    return found


def _keys_of(view: View, side: Side, ids: Iterable[str]) -> NDArray[np.int64]:
    """Keys of those items that an index has."""
    remaining, keys = iter(ids), array("q")
    while some := list(islice(remaining, _HELD)):
        keys.extend(view.keys_of(side, some).values())
    return np.array(keys, dtype=np.int64)


def known_images(view: View) -> Iterator[KnownImage]:
    """What an index has of its images, some at a time.

    Args:
        view: The index at one moment.

    Yields:
        The images, in any order.
    """
    keys = view.keys("images")
    for start in range(0, len(keys), _HELD):
        for row in view.rows("images", keys=keys[start : start + _HELD].tolist(), links=True):
            yield KnownImage(row.key, row.id, row.path, row.stamp, row.content, row.links)


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
    return replace(missing, lost=(former - present).total())


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
        A path relative to `index_root` if it lies inside, else an absolute one.
    """
    if data_root == index_root:
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
        files = (index_root / row.path).resolve(), (data_root / value).resolve()
        is_other = stored_path(value, data_root, index_root) != row.path and files[0] != files[1]
        if is_other and file_stamp(value, data_root) and image_digest(value, data_root) != row.content:
            taken.append((name, *files))
    return taken


def _entries(
    chunk: Chunk, input_spec: Any, data_root: Path, index_root: Path, *, verify_files: bool = False
) -> list[IndexEntry]:
    """The entries of items; a file with the path, size and times of a stored one is not read again.

    Args:
        chunk: The items, and what the index has of them.
        input_spec: How the model reads them.
        data_root: Folders that the items' paths and those of the index start from.
        index_root: See `data_root`.
        verify_files: Reads all files.

    Returns:
        One entry per item, in their order.

    Raises:
        DataError: If an image's file, or an item's features, cannot be read.
    """
    items, side, digests = chunk.items, chunk.side, None
    if isinstance(input_spec, FeatureInput):
        hashes = [hashlib.blake2b(digest_size=16) for _ in items.ids]
        arrays = input_spec.of_rows(input_spec.rows(items.ids, items.values)).values() if hashes else ()
        for array in arrays:
            for digest, features in zip(hashes, array, strict=True):
                digest.update(np.ascontiguousarray(features).tobytes())
        digests = [digest.digest() for digest in hashes]
    data_root, index_root = data_root.resolve(), index_root.resolve()
    entries = []
    for row, (name, value) in enumerate(zip(items.ids, items.values, strict=True)):
        text = path = stamp = None
        content = b"" if digests is None else digests[row]
        if isinstance(value, str) and side == "texts":
            text = value
            content = content or _digest(value.encode("utf-8", "surrogatepass"))
        elif isinstance(value, str):
            path = stored_path(value, data_root, index_root)
            if digests is None:
                stored = None if verify_files else chunk.stored.get(name)
                content, stamp = _file_digest(value, data_root, path, stored)
                mark = items.marks[row] if items.marks else ""
                stamp = f"{stamp} {mark}" if mark and stamp else stamp
        elif isinstance(value, bytes) and digests is None:
            content = _digest(value)
        metadata = {key: column[row] for key, column in items.metadata.items() if column[row] is not None}
        metadata = {**({"split": str(items.splits[row])} if chunk.splits else {}), **metadata}
        entries.append(IndexEntry(name, content, path=path, text=text, metadata=metadata, stamp=stamp))
    return entries


def _file_digest(source: str, root: Path, path: str, stored: StoredRow | None) -> tuple[bytes, str]:
    """The digest of an image, and its file's stamp; the stored digest where path, size and times are the same."""
    stamp = file_stamp(source, root)
    if stored is not None and file_part(stored.stamp) == stamp and stored.path == path:
        return stored.content, stamp
    return image_digest(source, root), stamp


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()
