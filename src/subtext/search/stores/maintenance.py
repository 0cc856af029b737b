"""What is done to an index folder as a whole: compaction, backup and restore, and verification."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
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
    Folder,
    FolderWriter,
    SqliteTables,
    read_manifest,
    segment_row,
)
from subtext.search.stores.item import SIDES, Side, facet_sum, link_sum
from subtext.search.stores.manifest import Manifest
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
    write_with_checksums,
)
from subtext.search.stores.sql import ROUND
from subtext.search.stores.store import Problem, verify

QUERIES = 512
"""Vectors of each side that the number of lists to search is measured with: 128 measured recall to a point only."""

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
    sides = [side for side in SIDES if _needs_work(segments[side])]
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


def _needs_work(segments: SegmentTable) -> bool:
    """Whether there are rows to remove, segments to merge, or lists to make or to remove."""
    by_lists = bool(segments.segments) and all(segment.lists for segment in segments.segments)
    large = segments.rows > segments.exact_up_to
    return len(segments.segments) > 1 or len(segments.deleted) > 0 or by_lists != large


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
    list_sums = write_with_checksums(
        store / list_name, lambda folder: np.save(folder / CENTROIDS, centroids, allow_pickle=False)
    )
    order = np.argsort(assigned, kind="stable")
    sums = write_segment(store / name, live.blocks(order), rows=count, width=width, offsets=offsets)
    segment = Segment.open(store / name, rows=count, width=width, lists=list_name)
    samples = {query_side: LiveRows(segments[query_side]).sample(QUERIES, seed=seed) for query_side in SIDES}
    queries = {query_side: vectors for query_side, vectors in samples.items() if len(vectors)}
    probes, recalls = ann.probes_needed(list(queries.values()), segment.vectors, centroids, offsets)
    figures = {f"recall_of_{of}": round(recall, 4) for of, recall in zip(queries, recalls, strict=True)}
    return {
        "segments": segment_row(name, side, count, sums, lists=list_name),
        "lists": (list_name, SIDES.index(side), probes, json.dumps(figures), json.dumps(list_sums)),
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
        self.owners = np.repeat(np.arange(len(alive), dtype=np.int32), [len(rows) for rows in alive])[order]

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
    state = dict(run("SELECT name, value FROM state"))
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
