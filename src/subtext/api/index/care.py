"""`subtext index delete`, `compact`, `backup` and `restore`."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from subtext.api.index.telling import advice
from subtext.errors import DataError, RequirementError, counted
from subtext.report.text_table import size
from subtext.search.stores.compaction import compact as compacted
from subtext.search.stores.condition import parse
from subtext.search.stores.copying import backup as copied
from subtext.search.stores.copying import restore as restored
from subtext.search.stores.folder import PENDING, Folder, stores_left
from subtext.search.stores.item import Side
from subtext.search.stores.opened import is_address, open_store
from subtext.search.stores.shards import copy_shards, read_shards


def delete(
    index: Path | str,
    ids: Sequence[str],
    *,
    side: Side = "images",
    where: Sequence[str] = (),
    listed: Path | None = None,
    keep_texts: bool = False,
) -> str:
    """Delete items by id, by a list of ids in a file, or by conditions; says how many.

    Raises RequirementError where nothing is named, and for an id that is not there: then nothing is deleted.
    """
    folder = open_store(index)
    named = [*ids, *(_lines(listed) if listed is not None else [])]
    if not named and not where:
        raise RequirementError("a deletion needs ids, a file of them (--from), or a condition (--where); it got none")
    with folder.writing("delete") as writer:
        with folder.reading() as view:
            missing = sorted(set(named) - set(view.keys_of(side, named)))
            if missing:
                raise RequirementError(
                    f"a deletion needs ids that are there; {len(missing)} of {len(named)} are not, first "
                    f"'{missing[0]}'; nothing was deleted"
                )
            if where:
                keys = view.matching(side, [parse(text) for text in where])
                chosen = [item.id for item in view.items(side, keys)]
                named = [name for name in named if name in set(chosen)] if named else chosen
        counts = writer.delete(side, named, keep_texts=keep_texts)
    gone = f"{counted(counts['images'], 'picture')} and {counted(counts['texts'], 'text')} deleted"
    note = "their vectors go from the disk with `subtext index compact`"
    return "\n".join(
        [f"{folder.path}: {gone}; {note}" if sum(counts.values()) else f"{folder.path}: {gone}", *advice(folder)]
    )


def compact(index: Path | str, *, seed: int = 0) -> str:
    """Take deleted vectors off the disk, join segments, make lists where a side is large; says what was done."""
    if is_address(index):
        from subtext.api.index.database import compact as prepared

        return prepared(str(index))
    folder = Folder(Path(index))
    before = folder.bytes
    with folder.writing("compact") as writer:
        done = compacted(writer, seed=seed)
        left = [place for place in stores_left(folder.path) if not (place / PENDING).is_file()]
        for place in left:
            shutil.rmtree(place)
    told = [
        f"{index}: {counted(done.segments, 'segment')} became {len(done.sides)}, vectors of "
        f"{counted(done.dropped, 'deleted item')} removed; {size(before)} are now {size(folder.bytes)}"
    ]
    told += [f"{side}: {_recall(own)}" for side, own in done.recalls.items()]
    return "\n".join([*told, *([f"removed {place.name}, of an earlier model" for place in left])])


def upgrade(index: Path | str) -> str:
    """Upgrade the schema of an index in PostgreSQL to the one of this Subtext; says from which."""
    if is_address(index):
        from subtext.api.index.database import migrate as led

        return led(str(index))
    made = Folder(Path(index))
    return f"{made.path}: a folder of format {made.manifest.format}, which this Subtext reads; nothing was changed"


def migrate(shards: Path, new: Path) -> str:
    """Copy an index in shards, which an earlier Subtext built, into a new folder; says what is in it."""
    made = copy_shards(read_shards(shards.expanduser().resolve()), new)
    counts = made.counts
    items = f"{counted(counts['images'], 'picture')} and {counted(counts['texts'], 'text')}"
    return f"{made.path}: {items} copied from {shards}, {size(made.bytes)}"


def backup(index: Path | str, out: Path) -> str:
    """Copy an index as it is now into a new folder; says where."""
    _require_folder(index)
    made = copied(Folder(Path(index)), out)
    return (
        f"{out}: a copy of {index} as of change {made.manifest.generation:,}, {size(made.bytes)}, checked file by file"
    )


def restore(copy: Path, out: Path | str) -> str:
    """An index from a backup, checked first; says where."""
    _require_folder(out)
    made = restored(copy, Path(out))
    return f"{out}: restored from {copy}, {size(made.bytes)}"


def _require_folder(index: Path | str) -> None:
    """Raise RequirementError for an index in PostgreSQL, which has its own way of copying."""
    if is_address(index):
        raise RequirementError(
            "copies of an index in PostgreSQL are made by PostgreSQL's own tools, while it is in use: pg_dump "
            "--format=custom --schema=NAME --file=COPY DATABASE, and pg_restore --dbname=DATABASE COPY"
        )


def _lines(file: Path) -> list[str]:
    try:
        return [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as problem:
        raise DataError(f"--from needs a text file of ids, one a line; {file} cannot be read: {problem}") from problem


def _recall(own: dict[str, float | int]) -> str:
    parts = [f"{v:.3f} asked by {name.removeprefix('recall_of_')}" for name, v in own.items() if name != "probes"]
    return f"a query looks at {own['probes']} lists; recall@10 measured: {', '.join(parts)}"
