"""What is done to an index folder as a whole: compaction, backup and restore, verification, and the copy of shards.

An index in shards, as earlier versions of Subtext built it by Ray, is read once, into an index of today.

INDEX/shards.json     what the shards have in common, and their folders in the order of their items
INDEX/shards/0000/    the first shard, an index folder by itself
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.data.atomic import write_folder
from subtext.errors import IndexError_, OutputError, counted
from subtext.ops import draw
from subtext.search import ann
from subtext.search.stores import tables
from subtext.search.stores.folder import (
    ATTEMPTS,
    DOCUMENTS,
    MANIFEST,
    SHARDS,
    Folder,
    FolderWriter,
    SqliteTables,
    read_manifest,
    segment_row,
)
from subtext.search.stores.item import SIDES, Change, Entry, JobUpdate, Side, facet_sum, link_sum
from subtext.search.stores.manifest import CALIBRATION, PLOT, Calibration, Manifest, checksum
from subtext.search.stores.segments import (
    BLOCK,
    CENTROIDS,
    KEYS,
    Block,
    Segment,
    SegmentTable,
    checksums,
    mapped,
    write_segment,
)
from subtext.search.stores.sql import ROUND
from subtext.search.stores.store import Problem, Store, View, Writer, create_store, open_store, store_class, verify

QUERIES = 512
"""Vectors of each side that the number of lists to search is measured with: 128 measured recall to a point only."""
SHARDS_FORMAT = ("subtext index in shards", 1)
MIGRATE = "migrate"
"""What the journal of the new index calls the copy of shards."""
BATCH = 8192
"""Items of shards that are copied and acknowledged at a time."""

Run = Callable[..., list[tuple[Any, ...]]]
"""Runs a statement with values; its rows."""


def compact(writer: FolderWriter, *, seed: int = 0) -> list[str]:
    """Write the live rows of each side as one segment, without what was deleted, and defragment the tables.

    The rows of a large side are sorted by lists.

    seed  of the sample that the lists of a large side are trained on

    Readers keep what they have open. Needs as much free space as the vectors take. Raises OutputError when that is
    missing; then nothing has changed.
    """
    store = writer.store.store
    with writer.store.reading() as view:
        segments = view.sides
    sides: list[Side] = []
    for side in SIDES:
        parts, large = segments[side].segments, segments[side].rows > segments[side].exact_up_to
        by_lists = bool(parts) and all(segment.lists for segment in parts)
        if len(parts) > 1 or len(segments[side].deleted) or by_lists != large:
            sides.append(side)
    new = {side: _write(writer, side, segments, seed) for side in sides}
    with writer.changing():
        for side in sides:
            for table in ("segments", "lists", "tombstones"):
                writer.tables.run(f"DELETE FROM {table} WHERE side = ?", SIDES.index(side))
            for table, row in new[side].items():
                writer.tables.run(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", *row)
        writer.tables.run("INSERT INTO words (words) VALUES ('optimize')")
    writer.tables.run("VACUUM")
    with tables.translated(writer.tables.file):
        tables.empty_log(writer.connection)
    old = [segment.folder for side in sides for segment in segments[side].segments]
    former = [segments[side].lists for side in sides]
    writer.remove_folders([*old, *(store / lists.name for lists in former if lists is not None)])
    deleted = counted(sum(len(segments[side].deleted) for side in sides), "deleted item")
    lines = [f"{counted(len(old), 'segment')} became {len(sides)}, vectors of {deleted} removed"]
    for _, number, probes, recalls, _ in [rows["lists"] for rows in new.values() if "lists" in rows]:
        figures = [f"{value:.3f} for {of.removeprefix('recall_of_')}" for of, value in json.loads(recalls).items()]
        lines.append(f"{SIDES[number]}: a query searches {probes} lists; recall@10 {' and '.join(figures)}")
    return lines


def _write(
    writer: FolderWriter, side: Side, segments: Mapping[Side, SegmentTable], seed: int
) -> dict[str, tuple[Any, ...]]:
    """Write one side's segment, and its lists where it has so many rows; table -> its row of them."""
    live, store, width = LiveRows(segments[side]), writer.store.store, writer.manifest.width
    count = len(live.rows)
    everything = np.arange(count)
    if not count:
        return {}
    name = writer.new_name(side)
    if count <= segments[side].exact_up_to:
        sums = write_segment(store / name, live.blocks(everything), rows=count, width=width)
        return {"segments": segment_row(name, side, count, sums)}
    lists, list_count = segments[side].lists, ann.list_count(count)
    if lists is not None and len(lists.centroids) == list_count:
        centroids = lists.centroids
    else:
        centroids = ann.train(live.sample(list_count * ann.PER_LIST, seed=seed), list_count, seed=seed)
    assigned = np.concatenate([ann.assign(vectors, centroids) for vectors, _ in live.blocks(everything)])
    offsets = np.concatenate([[0], np.cumsum(np.bincount(assigned, minlength=list_count))]).astype(np.int64)
    list_name = writer.new_name(side, ".lists")
    write_folder(store / list_name, lambda folder: np.save(folder / CENTROIDS, centroids, allow_pickle=False))
    order = np.argsort(assigned, kind="stable")
    sums = write_segment(store / name, live.blocks(order), rows=count, width=width, offsets=offsets)
    segment = Segment.open(store / name, rows=count, width=width, lists=list_name)
    samples = {query_side: LiveRows(segments[query_side]).sample(QUERIES, seed=seed) for query_side in SIDES}
    queries = {query_side: vectors for query_side, vectors in samples.items() if len(vectors)}
    probes, recalls = ann.probes_needed(list(queries.values()), segment.vectors, centroids, offsets)
    figures = {f"recall_of_{of}": round(recall, 4) for of, recall in zip(queries, recalls, strict=True)}
    return {
        "segments": segment_row(name, side, count, sums, lists=list_name),
        "lists": (list_name, SIDES.index(side), probes, json.dumps(figures), json.dumps(checksums(store / list_name))),
    }


class LiveRows:
    """The rows of a side that belong to items in the index, in the order of the items."""

    def __init__(self, table: SegmentTable) -> None:
        self.segments = table.segments
        alive = [
            np.arange(len(segment), dtype=np.int64) if dead is None else np.flatnonzero(~dead)
            for segment, dead in zip(table.segments, table.dead, strict=True)
        ]
        nothing = np.zeros(0, dtype=np.int64)
        keys = np.concatenate([nothing, *(s.keys[rows] for s, rows in zip(table.segments, alive, strict=True))])
        # In the order of the items: equal ones keep their order from one compaction to the next.
        order = np.argsort(keys, kind="stable")
        self.keys = keys[order]
        self.rows: NDArray[np.int64] = np.concatenate([nothing, *alive])[order]
        owners = [np.full(len(rows), number) for number, rows in enumerate(alive)]
        self.owners: NDArray[np.int64] = np.concatenate([nothing, *owners])[order]

    def blocks(self, order: NDArray[np.int64]) -> Iterator[Block]:
        """Vectors and keys in that order, block by block."""
        for start in range(0, len(order), BLOCK):
            block = order[start : start + BLOCK]
            owners = self.owners[block]
            vectors = np.empty((len(block), self.segments[0].vectors.shape[1]), dtype=np.float32)
            for number in np.unique(owners):
                mine = owners == number
                vectors[mine] = self.segments[number].vectors[self.rows[block[mine]]]
            yield vectors, self.keys[block]

    def sample(self, count: int, *, seed: int) -> NDArray[np.float32]:
        """At most `count` vectors, sampled by the seed."""
        chosen = draw.permutation(len(self.rows), seed=seed, epoch=0, purpose="compaction: sample")[:count]
        vectors = [block for block, _ in self.blocks(np.sort(chosen))]
        return np.concatenate(vectors) if vectors else np.zeros((0, 1), dtype=np.float32)


def backup(folder: Folder, out: Path) -> Folder:
    """Copy an index into a new folder, completely or not at all, while it is read and written; the copy is an index.

    Every file is checked against its checksum on the way. Caches and logs stay behind. Raises IndexError_ when `out`
    holds something or a file is damaged, OutputError when there is no space.
    """
    Folder.require_free(out)

    def fill(target: Path) -> None:
        store = target / folder.store.name
        for attempt in range(ATTEMPTS):
            store.mkdir()
            try:
                _copy(folder, store)
                break
            except FileNotFoundError:
                # A compaction has removed a segment meanwhile; the next attempt reads its successor.
                shutil.rmtree(store)
                if attempt == ATTEMPTS - 1:
                    raise
        (target / MANIFEST).write_text(folder.manifest.to_json(), encoding="utf-8")

    write_folder(out, fill)
    return Folder(out)


def _copy(folder: Folder, store: Path) -> None:
    """Tables, segments and documents of one moment."""
    with folder.reading() as view:
        file = store / tables.TABLES
        with tables.translated(file), closing(sqlite3.connect(file)) as target:
            view.tables.connection.backup(target)
        for table in ("segments", "lists"):
            for name, expected in view.tables.run(f"SELECT name, checksums FROM {table}"):
                (store / name).mkdir()
                for part in json.loads(expected):
                    shutil.copyfile(folder.store / name / part, store / name / part)
                if checksums(store / name) != json.loads(expected):
                    raise IndexError_(
                        f"{folder.store / name} is damaged, and no copy of it is made; `subtext index verify` says "
                        "what is wrong"
                    )
    for document in DOCUMENTS.values():
        if (folder.store / document).is_file():
            shutil.copyfile(folder.store / document, store / document)


def restore(copy: Path, out: Path) -> Folder:
    """An index from a backup, which is verified first; `out` is new or empty.

    Raises IndexError_ when the backup is damaged, naming what is.
    """
    Folder.require_free(out)
    problems = verify(copy)
    if problems:
        damage = "; ".join(f"{problem.where}: {problem.what}" for problem in problems[:3])
        raise IndexError_(f"{copy} is damaged and cannot be restored; {damage}; take another backup")
    return backup(Folder(copy), out)


def check(path: Path) -> list[Problem]:
    """Damage of an index folder: every byte of vectors against its checksum, and the tables; empty for an intact one.

    Reads every byte of vectors once, while the index is read and written: it reads again where a compaction has removed
    files meanwhile.
    """
    problems: list[Problem] = []
    for _ in range(ATTEMPTS):
        manifest = read_manifest(path)
        problems = _check(path / manifest.store / tables.TABLES, manifest)
        if not problems or read_manifest(path).generation == manifest.generation:
            break
    return problems


def _check(file: Path, manifest: Manifest) -> list[Problem]:
    """Damage at one moment."""
    problems: list[Problem] = []
    try:
        with closing(tables.to_read(file)) as connection, tables.transaction(connection, file):
            run = SqliteTables(connection, file).run
            problems += _check_tables(run, manifest)
            problems += _check_files(run, file.parent)
            problems += _check_vectors(run, manifest, file.parent)
        problems += _check_words(file)
    except (IndexError_, OutputError) as problem:
        problems.append(Problem(tables.TABLES, str(problem)))
    except (ValueError, TypeError, KeyError) as problem:
        # A damaged cell may hold anything.
        problems.append(Problem(tables.TABLES, f"holds a value that cannot be read: {problem}"))
    return problems


def _check_tables(run: Run, manifest: Manifest) -> Iterator[Problem]:
    """Acknowledged changes, SQLite's own check, and the sums of all facets and links that were put in."""
    state: dict[str, int] = dict(run("SELECT name, value FROM state"))
    if state["generation"] < manifest.generation:
        changes = counted(state["generation"], "change")
        yield Problem(tables.TABLES, f"has {changes}, of {manifest.generation} acknowledged: some were lost")
    for (line,) in run("PRAGMA integrity_check(20)"):
        if line != "ok":
            yield Problem(tables.TABLES, str(line))
    sums = {
        "facets": sum(facet_sum(*row) for row in run("SELECT side, name, value, key FROM facets")),
        "links": sum(link_sum(image, text) for image, text in run("SELECT image, text FROM links")),
    }
    for name, total in sums.items():
        if total % ROUND != state.get(name):
            yield Problem(tables.TABLES, f"{name} changed or damaged")


def _check_files(run: Run, store: Path) -> Iterator[Problem]:
    """Each file of each segment, and of the lists, against its checksum."""
    for name, expected in run("SELECT name, checksums FROM segments UNION ALL SELECT name, checksums FROM lists"):
        actual = checksums(store / name) if (store / name).is_dir() else {}
        for file, digest in json.loads(expected).items():
            if file not in actual:
                yield Problem(f"{store.name}/{name}/{file}", "is missing")
            elif actual[file] != digest:
                yield Problem(f"{store.name}/{name}/{file}", "changed or damaged: its checksum is another")


def _check_vectors(run: Run, manifest: Manifest, store: Path) -> Iterator[Problem]:
    """Whether each item has its rows of vectors, and each live row its item."""
    for number, side in enumerate(SIDES):
        segments = run("SELECT name, row_count FROM segments WHERE side = ?", number)
        try:
            rows = [np.asarray(mapped(store / name / KEYS, np.dtype(np.int64), (count,))) for name, count in segments]
        except IndexError_ as problem:
            yield Problem(f"{store.name}", str(problem))
            continue
        deleted = np.array([key for (key,) in run("SELECT key FROM tombstones WHERE side = ?", number)], dtype=np.int64)
        keys = np.array([key for (key,) in run("SELECT key FROM items WHERE side = ?", number)], dtype=np.int64)
        stored, counts = np.unique(np.concatenate([np.zeros(0, np.int64), *rows]), return_counts=True)
        alive = ~np.isin(stored, deleted)
        missing, extra = np.setdiff1d(keys, stored[alive]), np.setdiff1d(stored[alive], keys)
        if len(missing):
            yield Problem(f"{store.name}", f"{len(missing):,} {side} have no vectors")
        if len(extra):
            yield Problem(f"{store.name}", f"{len(extra):,} vectors of {side} belong to no item")
        if (counts[alive] != manifest.views[side]).any():
            yield Problem(f"{store.name}", f"some {side} have another number of vectors than {manifest.views[side]}")


def _check_words(file: Path) -> Iterator[Problem]:
    """The words that texts are searched by, against the texts, and their own structure by SQLite's check."""
    statement = (
        "SELECT count(*) FROM (SELECT key, text FROM items WHERE side = 1 AND text IS NOT NULL EXCEPT "
        "SELECT rowid, text FROM words UNION ALL SELECT * FROM (SELECT rowid, text FROM words EXCEPT "
        "SELECT key, text FROM items WHERE side = 1))"
    )
    writable = os.access(file.parent, os.W_OK)
    with closing(tables.to_write(file) if writable else tables.to_read(file)) as connection:
        run = SqliteTables(connection, file).run
        ((differing,),) = run(statement)
        if differing:
            yield Problem(tables.TABLES, f"the words of {counted(differing, 'text')} differ from the texts")
        elif writable:
            # A statement that changes nothing, and yet needs the right to write.
            run("INSERT INTO words (words) VALUES ('integrity-check')")


@dataclass(frozen=True)
class Shards:
    """The folders of the shards in their order, and the manifest that they have in common.

    counts  (S 2) images and texts that each shard was built with
    """

    path: Path
    manifest: Manifest
    folders: tuple[str, ...]
    counts: NDArray[np.int64]


def read_shards(path: Path) -> Shards:
    """The shards of an index. Raises IndexError_ where there are none, or building them was interrupted."""
    file = path / SHARDS
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if (content["kind"], content["format"]) != SHARDS_FORMAT or content.pop("checksum") != checksum(content):
            raise IndexError_(f"{file} is damaged, or of another format; build the index again")
        if not content["whole"]:
            raise IndexError_(f"{path} lacks some of its shards, as building it was interrupted; build the index again")
        manifest = Manifest.from_json(json.dumps(content["manifest"]), where=str(file))
        folders = tuple(shard["folder"] for shard in content["shards"])
        counts = np.array([(shard["images"], shard["texts"]) for shard in content["shards"]], dtype=np.int64)
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise IndexError_(f"{path} is not an index in shards; {file} cannot be read: {problem!r}") from problem
    return Shards(path, manifest, folders, counts)


def copy_shards(source: Shards, out: Path | str) -> Store:
    """Copy all items and vectors into an index, which may hold some of them from an earlier, interrupted copy.

    The order of the items, links, deletions, the journal and the calibration are those of the shards. Raises
    IndexError_ for a shard that another model embedded, and for a location that holds anything else.
    """
    new = _target(source, out)
    with ExitStack() as stack:
        views: list[View] = []
        for name in source.folders:
            folder = Folder(source.path / name)
            if folder.manifest.fingerprint != source.manifest.fingerprint:
                raise IndexError_(f"{folder.path} was embedded by another model than the other shards")
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
    if not store_class(out).exists(str(out)):
        return create_store(out, replace(source.manifest, generation=0))
    new = open_store(out)
    with new.reading() as view:
        begun = [job.source for job in view.jobs() if job.verb == MIGRATE and job.finished is None]
    if begun != [{"shards": str(source.path)}]:
        raise IndexError_(f"{new.path} is an index already; name a new one")
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
    items: dict[int, tuple[Entry, NDArray[np.float32]]] = {}
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
