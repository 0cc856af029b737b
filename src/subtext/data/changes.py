"""Changes of a data set: rows of items that are new or changed, and `{"id": ..., "deleted": true}`.

A row has the columns of the data set's table, and says all of its image: the texts that it does not name are gone. Of
two lines about one id the last one counts.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from subtext.data.addresses import is_address, shown
from subtext.data.dataset import Dataset, Items, RowIssue
from subtext.data.image_files import image_exists
from subtext.data.join import Finder, joined
from subtext.data.object_store import begin, look
from subtext.data.objects import Rows, records_of
from subtext.data.read import UnusableData, read, row_in_store
from subtext.data.readers.table import json_lines, typed_rows
from subtext.data.rows import Columns, Record, Row, RowError, Source, image_of, name_of, renamed, rows_of
from subtext.data.sidecars import NearSidecars
from subtext.data.unchanged import mark_of
from subtext.errors import DataError

STANDARD_INPUT = "-"
DELETED = "deleted"
"""The column of a line that deletes an item."""


@dataclass
class Changes:
    """Lines of changes, each id once.

    Attributes:
        digest: Of the content, by which a run that was cut off is known again.
        lines: Number of lines.
        rows: Id -> the row of a new or changed item.
        deleted: Id of an item that is deleted -> its line.
        problems: Lines that cannot be used; and notes, which are not fatal.
    """

    digest: str
    lines: int = 0
    rows: dict[str, Row] = field(default_factory=dict)
    deleted: dict[str, str] = field(default_factory=dict)
    problems: list[RowIssue] = field(default_factory=list)


def read_changes(changes: str | Path | Rows, columns: Columns) -> Changes:
    """Read changes; nothing is looked up on the disk yet.

    Args:
        changes: A file of JSON lines; "-" for standard input; or rows that are mappings.
        columns: Role -> columns of the rows, where they have other names.

    Returns:
        The changes.

    Raises:
        DataError: If the file is not there, or cannot be read.
    """
    digest = hashlib.blake2b(digest_size=16)
    if isinstance(changes, str | os.PathLike):
        content = _content(changes)
        digest.update(content)
        lines: Iterable[Record] = json_lines(BytesIO(content))
    else:
        lines = records_of(changes).rows
        digest.update(repr(lines).encode("utf-8", "surrogatepass"))
    read_lines = list(lines)
    found = Changes(digest.hexdigest(), len(read_lines))
    rows, where_of = list[Record](), dict[str, str]()
    for where, line in read_lines:
        if isinstance(line, RowIssue):
            found.problems.append(line)
        elif DELETED not in line or line[DELETED] is False:
            rows.append((where, {name: value for name, value in line.items() if name != DELETED}))
        else:
            try:
                name = _deleted_id(renamed(line, columns) if columns else line)
            except RowError as error:
                found.problems.append(error.at(where))
            else:
                found.deleted[name] = where
    places = {where: number for number, (where, _) in enumerate(read_lines)}
    for row in rows_of(typed_rows(rows, columns, "the changes", header=False), None):
        if isinstance(row, RowIssue):
            found.problems.append(row)
            continue
        name = row.image_id or (row.image if isinstance(row.image, str) else "")
        if row.group is not None or not name:
            need = "a group is of several rows" if name else "an image of bytes is known by its id"
            what = f"needs an id of its own and no group: {need}; add it to the data, and run `subtext index update`"
            found.problems.append(RowIssue(row.where, what, item=name))
            continue
        former = found.rows.get(name)
        earlier = [own for own in (found.deleted.get(name), former and former.where) if own]
        latest = max((*earlier, row.where), key=places.__getitem__)
        where_of |= {own: name for own in (*earlier, row.where) if own != latest}
        if latest == row.where:
            found.rows[name] = row
            found.deleted.pop(name, None)
        else:
            found.rows.pop(name, None)
    for where, name in where_of.items():
        what = f"a later line is about '{name}' as well, and counts"
        found.problems.append(RowIssue(where, what, fatal=False, name=f"'{name}'"))
    return found


def _content(changes: str | os.PathLike[str]) -> bytes:
    if str(changes) == STANDARD_INPUT:
        return sys.stdin.buffer.read()
    try:
        return Path(changes).expanduser().read_bytes()
    except OSError as error:
        raise DataError(
            f"changes need a file of JSON lines, or - for standard input; {changes} cannot be read: {error.strerror}",
            field="changes",
        ) from error


def _deleted_id(line: Mapping[str, Any]) -> str:
    """The id of a line that deletes an item.

    Raises:
        RowError: If it has none, or `deleted` is neither true nor false.
    """
    if line[DELETED] is not True:
        shown = json.dumps(line[DELETED], default=str)[:40]
        raise RowError(f"'{DELETED}' needs to be true or false; it is {shown}", shown)
    image = image_of(line)[0]
    name = name_of(line, "id") or (image if isinstance(image, str) else None)
    if name is None:
        raise RowError(f'needs the id of what is deleted: {{"id": ..., "{DELETED}": true}}')
    return name


class _Beside(Finder):
    """Finds the sidecars of a few images by their names, without a list of the folder.

    Args:
        root: The folder.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.sidecars = NearSidecars(root, few=True)

    def find(self, name: str) -> list[str]:
        """Nothing: to look for an image elsewhere takes a list of all files.

        Args:
            name: What a row has.

        Returns:
            No path.
        """
        return []


def changed_dataset(
    changes: Changes,
    root: Path,
    paths: Mapping[str, str],
    *,
    need_images: bool,
    verify: Callable[[str | bytes, Path], bool],
) -> Dataset:
    """The rows of changes as a data set, with the fields inside the images; what cannot be used is added to `problems`.

    Args:
        changes: The changes.
        root: Folder of relative image paths.
        paths: Id -> path that the index has: of an image whose row has no path, or names it otherwise than by its path.
        need_images: False if features replace the images.
        verify: Tells which images are decoded to check them.

    Returns:
        The data set, which may be empty.
    """
    rows, named = list[Row](), dict(changes.rows)
    if is_address(root):
        named = {name: row_in_store(root, row) for name, row in named.items()}
    whole = root.resolve()
    begin()  # What a listing of this process had may have changed.
    look(row.image for row in named.values() if isinstance(row.image, str) and is_address(row.image))
    for number, (name, row) in enumerate(named.items()):
        if isinstance(row.image, bytes) or (isinstance(row.image, str) and image_exists(row.image, root)):
            rows.append(replace(row, mark=(number, mark_of([row], root))))
        else:
            own = paths.get(name)
            if own is not None and not is_address(own) and Path(own).is_relative_to(whole):
                own = Path(own).relative_to(whole).as_posix()
            if own is not None and (row.image is None or _may_mean(row.image, own, root)):
                if row.image is not None:
                    named_so = f"'{row.image!s}': {own}"
                    what = f"an image is found by name or number alone, {named_so}"
                    changes.problems.append(RowIssue(row.where, what, fatal=False, name=named_so))
                row = replace(row, image=own)
            rows.append(replace(row, image_id=name))
    source = Source(rows, root)
    if need_images:
        source = joined(replace(source, tables=(Path("the changes"),)), embedded=True, finder=_Beside(root))
    try:
        dataset = read(source, need_images=need_images, verify=need_images and verify, on_error="skip")
    except UnusableData as problem:
        changes.problems += problem.problems
        nothing = np.zeros(0, dtype=np.int64)
        none = Items([], [], nothing, np.zeros(0, dtype="U1"))
        return Dataset(none, none, nothing.reshape(0, 2), root)
    changes.problems += dataset.problems
    return replace(dataset, problems=())


def _may_mean(image: str | bytes, path: str, root: Path) -> bool:
    """Whether a row names an image of the index otherwise than by its path, as a table may; it may name another one.

    Args:
        image: What the row has.
        path: The path that the index has, from the folder where it is below it.
        root: Folder of relative image paths.
    """
    if not isinstance(image, str) or is_address(image) or is_address(path) or Path(path).is_absolute():
        return False
    finder = Finder(root)
    finder.files = [path]
    return bool(finder.find(image))


def unknown_id(where: str, name: str) -> RowIssue:
    """The problem of a line that deletes what an index does not have.

    Args:
        where: Position of the line.
        name: The id.

    Returns:
        The problem.
    """
    what = f"'{shown(name)}'"
    return RowIssue(where, f"deletes {what}, which the index does not have", name=what, item=name)


_SHOWN = 5
"""Lines with one reason that have a sentence each; more share one, with the numbers of all."""


def by_line(problems: Iterable[RowIssue]) -> tuple[str, ...]:
    """Describe problems: each line is named.

    Args:
        problems: The problems of lines.

    Returns:
        Sentences.

    Example:
        >>> by_line([RowIssue(f"line {n}", f"has {n}", name=str(n)) for n in (2, 3, 4, 5, 6, 9)])
        ('6 lines (2-6, 9), first line 2: has 2',)
    """
    kinds: dict[str, list[RowIssue]] = {}
    for problem in sorted(problems, key=_number):
        kinds.setdefault(problem.kind, []).append(problem)
    sentences = list[str]()
    for alike in kinds.values():
        places = [_number(problem) for problem in alike]
        if len(alike) <= _SHOWN or 0 in places:
            sentences += map(str, alike)
            continue
        runs = [list(run) for _, run in groupby(enumerate(places), lambda place: place[1] - place[0])]
        shown = ", ".join(f"{run[0][1]}-{run[-1][1]}" if len(run) > 1 else str(run[0][1]) for run in runs)
        sentences.append(f"{len(alike):,} {alike[0].where.partition(' ')[0]}s ({shown}), first {alike[0]}")
    return tuple(sentences)


def _number(problem: RowIssue) -> int:
    """The number of a line; 0 for what is about all of them."""
    match = re.fullmatch(r"(?:line|row) (\d+)", problem.where)
    return 0 if match is None else int(match[1])
