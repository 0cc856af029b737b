"""An index in shards, as earlier versions of Subtext built it by Ray, is read once, into an index of today.

INDEX/shards.json     what the shards have in common, and their folders in the order of their items
INDEX/shards/0000/    the first shard, an index folder by itself
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from subtext.errors import SearchIndexError
from subtext.retrieval.calibration import Calibration
from subtext.retrieval.index_files import inside
from subtext.retrieval.journal import journal
from subtext.retrieval.manifest import Manifest, checksum
from subtext.retrieval.stores.documents import CALIBRATION, PLOT
from subtext.retrieval.stores.folder import DOCUMENTS, SHARDS, Folder
from subtext.retrieval.stores.item import SIDES, Change, IndexEntry, JobUpdate, Side
from subtext.retrieval.stores.registry import create_store, open_store, store_class
from subtext.retrieval.stores.store import Store, View, Writer

SHARDS_FORMAT = ("subtext index in shards", 1)
MIGRATE = "migrate"
"""What the journal of the new index calls the copy of shards."""
BATCH = 8192
"""Items of shards that are copied and acknowledged at a time."""


@dataclass(frozen=True)
class Shards:
    """The folders of the shards in their order, and the manifest that they have in common.

    Attributes:
        counts: (S 2) images and texts that each shard was built with.
    """

    path: Path
    manifest: Manifest
    folders: tuple[str, ...]
    counts: NDArray[np.int64]


def read_shards(path: Path) -> Shards:
    """The shards of an index.

    Raises:
        SearchIndexError: If there are none, or building them was interrupted.
    """
    file = path / SHARDS
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if (content["kind"], content["format"]) != SHARDS_FORMAT or content.pop("checksum") != checksum(content):
            raise SearchIndexError(f"{file} is damaged, or of another format; build the index again")
        if not content["whole"]:
            raise SearchIndexError(
                f"{path} lacks some of its shards, as building it was interrupted; build the index again"
            )
        manifest = Manifest.from_json(json.dumps(content["manifest"]), where=str(file))
        folders = tuple(shard["folder"] for shard in content["shards"])
        counts = np.array([(shard["images"], shard["texts"]) for shard in content["shards"]], dtype=np.int64)
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise SearchIndexError(f"{path} is not an index in shards; {file} cannot be read: {problem!r}") from problem
    return Shards(path, manifest, folders, counts)


def copy_shards(source: Shards, out: Path | str) -> Store:
    """Copy all items and vectors into an index, which may hold some of them from an earlier, interrupted copy.

    The order of the items, links, deletions, the journal and the calibration are those of the shards.

    Raises:
        SearchIndexError: For a shard that another model embedded, and for a location that holds anything else.
    """
    if store_class(out).exists(str(out)):
        new = open_store(out)
        with new.reading() as view:
            begun = [job.source for job in journal(view) if job.verb == MIGRATE and job.finished is None]
        if begun != [{"shards": str(source.path)}]:
            raise SearchIndexError(f"{new.path} is an index already; name a new one")
    else:
        new = create_store(out, replace(source.manifest, generation=0))
    with ExitStack() as stack:
        views: list[View] = []
        for name in source.folders:
            folder = Folder(inside(source.path, name))
            if folder.manifest.fingerprint != source.manifest.fingerprint:
                raise SearchIndexError(f"{folder.path} was embedded by another model than the other shards")
            stack.callback(folder.close)
            views.append(stack.enter_context(folder.reading()))
        orders = {side: _order(source, views, side) for side in SIDES}
        writer = stack.enter_context(new.writing("migrate"))
        migration = writer.begin(MIGRATE, source={"shards": str(source.path)}, total=sum(map(len, orders.values())))
        done = 0
        for side, order in orders.items():
            for start in range(0, len(order), BATCH):
                block = order[start : start + BATCH]
                done += len(block)
                writer.put(_change(writer, views, side, block), job=migration, done=done)
        writer.apply(Change(remembered=sorted({bytes(row) for view in views for (row,) in view.records("deleted")})))
        with new.reading() as view:
            copied = [(job.verb, job.source) for job in journal(view) if job.finished is not None]
        jobs = [job for view in views for job in journal(view) if job.source is not None]
        jobs = [job for job in jobs if (job.verb, job.source) not in copied]
        for job in {json.dumps([job.verb, job.source], sort_keys=True): job for job in jobs}.values():
            number = writer.begin(job.verb, source=job.source, total=job.total)
            writer.apply(Change(job=JobUpdate(number, done=job.done, finished=job.finished is not None)))
        calibration = source.path / DOCUMENTS[CALIBRATION]
        if calibration.is_file():
            old = Calibration.from_json(calibration.read_text(encoding="utf-8"), where=str(calibration))
            with new.reading() as view:
                last = {}
                for side in SIDES:
                    count = int(np.searchsorted(orders[side][:, 0], old.last[side], side="right"))
                    last[side] = int(view.keys(side)[count - 1]) if count else 0
            plot = (source.path / DOCUMENTS[PLOT]).read_text(encoding="utf-8")
            writer.apply(Change(documents={PLOT: plot, CALIBRATION: replace(old, last=last).to_json()}))
        writer.compact_large()
        writer.finish(migration)
    return new


def _order(source: Shards, views: Sequence[View], side: Side) -> NDArray[np.int64]:
    """(N 3) key in the index of all shards, number of the shard, and key there, of each item, ascending.

    Images come first, in the order of the shards, then texts: the keys of one folder of all items. Items that a shard
    got later come after all of these, the shards taking turns.
    """
    images, texts = source.counts.T
    columns = [np.zeros((0, 3), dtype=np.int64)]
    for number, view in enumerate(views):
        keys, built = view.select(side), images[number] + texts[number]
        of_images = images[:number].sum() + keys
        of_texts = images.sum() + texts[:number].sum() + keys - images[number]
        later = source.counts.sum() + 1 + (keys - built - 1) * len(views) + number
        joint = np.where(keys <= images[number], of_images, np.where(keys <= built, of_texts, later))
        columns.append(np.stack([joint, np.full_like(keys, number), keys], axis=1))
    order = np.concatenate(columns)
    return order[np.argsort(order[:, 0])]


def _change(writer: Writer, views: Sequence[View], side: Side, block: NDArray[np.int64]) -> Change:
    """The items of a block that are not in the new index yet, with their vectors and links, in their order."""
    items: dict[int, tuple[IndexEntry, NDArray[np.float32]]] = {}
    links: list[tuple[str, str]] = []
    for number in np.unique(block[:, 1]):
        view, rows = views[number], block[block[:, 1] == number]
        keys = rows[:, 2]
        entries = {row.key: row.entry() for row in view.rows(side, keys=keys.tolist())}
        for (joint, _, key), vectors in zip(rows.tolist(), view.vectors(side, keys), strict=True):
            items[joint] = entries[key], vectors
        if side == "texts":
            links += [(image, text.id) for text in view.items(side, keys) for image in text.metadata["images"]]
    copied = writer.rows_of(side, [entry.id for entry, _ in items.values()])
    missing = [items[key] for key in block[:, 0].tolist() if items[key][0].id not in copied]
    shape = (len(missing), writer.manifest.views[side], writer.manifest.width)
    stacked = np.array([vectors for _, vectors in missing], dtype=np.float32).reshape(shape)
    return Change(side, [entry for entry, _ in missing], stacked, links=links)
