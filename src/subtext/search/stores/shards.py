"""An index in shards, as earlier versions of Subtext built it by Ray: it is read once, into an index of today.

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

from subtext.errors import IndexError_
from subtext.search.stores.folder import DOCUMENTS, Folder
from subtext.search.stores.item import SIDES, Change, Entry, JobUpdate, Side
from subtext.search.stores.manifest import CALIBRATION, PLOT, SHARDS, Calibration, Manifest, checksum
from subtext.search.stores.store import Store, View, Writer, create_store, exists, open_store

KIND, FORMAT = "subtext index in shards", 1
VERB = "migrate"
"""What the journal of the new index calls the copy."""
BLOCK = 8192
"""Items that are copied and acknowledged at a time."""


@dataclass(frozen=True)
class Shard:
    """One shard: its folder inside the index, and how many images and texts it was built with."""

    folder: str
    images: int
    texts: int


@dataclass(frozen=True)
class Shards:
    """The shards of an index in their order, and the manifest that they have in common."""

    path: Path
    manifest: Manifest
    shards: tuple[Shard, ...]

    def keys(self, number: int, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n) keys in the index of keys in one shard; ascending keys stay ascending.

        Images come first, in the order of the shards, then texts: the keys of one folder of all items. Items that a
        shard got later come after all of these, the shards taking turns.
        """
        before, own = self.shards[:number], self.shards[number]
        images = 1 + sum(shard.images for shard in before)
        texts = 1 + sum(shard.images for shard in self.shards) + sum(shard.texts for shard in before)
        total, built = sum(shard.images + shard.texts for shard in self.shards), own.images + own.texts
        first = np.where(keys <= own.images, images + keys - 1, texts + keys - own.images - 1)
        later = total + 1 + (keys - built - 1) * len(self.shards) + number
        return np.where(keys <= built, first, later).astype(np.int64)


def read_shards(path: Path) -> Shards:
    """The shards of an index. Raises IndexError_ where there are none, or building them was interrupted."""
    file = path / SHARDS
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        if found["kind"] != KIND or found["format"] != FORMAT or found.pop("checksum") != checksum(found):
            raise IndexError_(f"{file} is damaged, or of another format; build the index again")
        if not found["whole"]:
            raise IndexError_(f"{path} lacks some of its shards, as building it was interrupted; build the index again")
        manifest = Manifest.from_json(json.dumps(found["manifest"]), where=str(file))
        return Shards(path, manifest, tuple(Shard(**own) for own in found["shards"]))
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise IndexError_(f"{path} is not an index in shards; {file} cannot be read: {problem!r}") from problem


def copy_shards(source: Shards, out: Path | str) -> Store:
    """Copy all items and vectors into an index, which may hold some of them from an earlier, interrupted copy.

    The order of the items, links, deletions, the journal and the calibration are those of the shards. Raises
    IndexError_ for a shard that another model embedded, and for a location that holds anything else.
    """
    new = _target(source, out)
    with ExitStack() as stack:
        views: list[View] = []
        for shard in source.shards:
            folder = Folder(source.path / shard.folder)
            if folder.manifest.fingerprint != source.manifest.fingerprint:
                raise IndexError_(f"{folder.path} was embedded by another model than the other shards")
            stack.callback(folder.close)
            views.append(stack.enter_context(folder.reading()))
        orders = {side: _order(source, views, side) for side in SIDES}
        writer = stack.enter_context(new.writing("migrate"))
        migration = writer.begin(VERB, source={"shards": str(source.path)}, total=sum(map(len, orders.values())))
        done = 0
        for side, order in orders.items():
            for start in range(0, len(order), BLOCK):
                block = order[start : start + BLOCK]
                done += len(block)
                writer.put(_change(writer, views, side, block), job=migration, done=done)
        hashes = sorted({bytes(own) for view in views for (own,) in view.records("deleted")})
        writer.apply(Change(remembered=hashes))
        jobs = [job for view in views for job in view.jobs() if job.source is not None]
        for job in {json.dumps([job.verb, job.source], sort_keys=True): job for job in jobs}.values():
            number = writer.begin(job.verb, source=job.source, total=job.total)
            writer.apply(Change(job=JobUpdate(number, done=job.done, finished=job.finished is not None)))
        writer.compact_large()
        writer.finish(migration)
    calibration = source.path / DOCUMENTS[CALIBRATION]
    if calibration.is_file():
        old = Calibration.from_json(calibration.read_text(encoding="utf-8"), where=str(calibration))
        with new.reading() as view:
            last = {}
            for side in SIDES:
                count = int(np.searchsorted(orders[side][:, 0], old.last[side], side="right"))
                last[side] = int(view.keys(side)[count - 1]) if count else 0
        plot = (source.path / DOCUMENTS[PLOT]).read_text(encoding="utf-8")
        new.keep_calibration(replace(old, last=last), plot)
    return new


def _target(source: Shards, out: Path | str) -> Store:
    """A new index, or one that an interrupted copy of the same shards has begun."""
    if not exists(out):
        return create_store(out, replace(source.manifest, generation=0))
    new = open_store(out)
    with new.reading() as view:
        begun = [job.source for job in view.jobs() if job.verb == VERB and job.finished is None]
    if begun != [{"shards": str(source.path)}]:
        raise IndexError_(f"{new.path} is an index already; name a new one")
    return new


def _order(source: Shards, views: Sequence[View], side: Side) -> NDArray[np.int64]:
    """(N 3) key in the whole index, number of the shard, and key there, of each item, ascending."""
    columns = [np.zeros((0, 3), dtype=np.int64)]
    for number, view in enumerate(views):
        keys = view.matching(side, [])
        columns.append(np.stack([source.keys(number, keys), np.full_like(keys, number), keys], axis=1))
    order = np.concatenate(columns)
    return order[np.argsort(order[:, 0])]


def _change(writer: Writer, views: Sequence[View], side: Side, block: NDArray[np.int64]) -> Change:
    """The items of a block that are not in the new index yet, with their vectors and links, in their order."""
    entries: dict[int, Entry] = {}
    vectors: dict[int, NDArray[np.float32]] = {}
    links: list[tuple[str, str]] = []
    for number in np.unique(block[:, 1]):
        view, rows = views[number], block[block[:, 1] == number]
        keys = rows[:, 2]
        stored = {row.key: row.entry() for row in view.rows(side, keys=keys.tolist())}
        entries |= {whole: stored[key] for whole, _, key in rows.tolist()}
        vectors |= dict(zip(rows[:, 0].tolist(), view.vectors(side, keys), strict=True))
        if side == "texts":
            links += [(image, text.id) for text in view.items(side, keys) for image in text.metadata["images"]]
    copied = writer.rows_of(side, [entry.id for entry in entries.values()])
    missing = [key for key in block[:, 0].tolist() if entries[key].id not in copied]
    views_of, width = writer.manifest.views[side], writer.manifest.width
    stacked = np.array([vectors[key] for key in missing], dtype=np.float32).reshape(len(missing), views_of, width)
    return Change(side, [entries[key] for key in missing], stacked, links=links)
