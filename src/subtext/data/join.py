"""Rows of a table joined with the files of a folder: by path, by name alone, or by an inventory number.

What is written inside the files fills the fields that the table lacks. What is left on either side is named.
"""

from __future__ import annotations

import csv
import io
import os
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from subtext.data.addresses import is_address, joined_path, shown
from subtext.data.dataset import RowIssue
from subtext.data.dates import read_date
from subtext.data.embedded import TEXT_FIELDS, embedded_fields, note_of
from subtext.data.folders import IMAGES, as_listed, families, plain_name, suffix_of, survey
from subtext.data.image_files import image_exists
from subtext.data.rows import Row, Source
from subtext.data.sidecars import NearSidecars
from subtext.data.spool import KeySet
from subtext.text_helpers import counted, listed

_ABSOLUTE = re.compile(r"/|[a-z]:/|//", re.IGNORECASE)
_SIGNS = re.compile(r"[\W_]+")
_ADVICE = "`subtext data check --unmatched FILE` lists them"


class Finder:
    """Finds the images of a folder that a table names otherwise than by their path.

    Args:
        root: The folder.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.sidecars = root, NearSidecars(root)

    @cached_property
    def files(self) -> list[str]:
        """The images below the folder, each once."""
        return sorted(self.all_files(), key=as_listed)

    def all_files(self) -> Iterator[str]:
        """Give the images below the folder, each once; they are not held.

        Yields:
            Their paths.
        """
        listing = survey(self.root)
        for names in families(self.root, listing):
            yield from (name for name in names if suffix_of(name) in IMAGES and name not in listing.aliases)

    @cached_property
    def _by_end(self) -> Mapping[str, list[str]]:
        """Every end of a path, with and without its suffix -> the images whose paths end so."""
        found: dict[str, list[str]] = {}
        for file in self.files:
            plain = plain_name(file)
            for whole in (plain, os.path.splitext(plain)[0]):  # noqa: PTH122 (100,000 paths)
                for end in _ends(whole):
                    found.setdefault(end, []).append(file)
        return found

    @cached_property
    def _by_number(self) -> Mapping[str, list[str]]:
        """A name without suffix and signs, 1987 118 of 1987-118.tif -> the images that have it."""
        found: dict[str, list[str]] = {}
        for file in self.files:
            stem = posixpath.splitext(posixpath.basename(plain_name(file)))[0]
            found.setdefault(_number(stem), []).append(file)
        return found

    def find(self, name: str) -> list[str]:
        """Find the images that a path, a name alone or an inventory number may mean.

        A path that starts at another place has to share a folder with the file; one that starts at the top of a disk,
        which is another computer's, need not.

        Args:
            name: What a table has.

        Returns:
            Paths of images: none, one, or several of which nothing says which one is meant.
        """
        path = plain_name(name.replace("\\", "/").strip())
        ends = list(_ends(path.strip("/")))
        if len(ends) > 1 and not _ABSOLUTE.match(path):
            ends.pop()
        for end in ends:
            stem, suffix = posixpath.splitext(end)
            found = self._by_end.get(end) or (self._by_end.get(stem) if suffix in IMAGES else None)
            if found:
                return [file for file in found if suffix_of(file) == suffix] or found
        stem, suffix = posixpath.splitext(path)
        number = _number(stem if suffix in IMAGES else path)
        # A word alone is no number.
        return list(self._by_number.get(number, ())) if any(map(str.isdigit, number)) else []


def _ends(path: str) -> Iterator[str]:
    """The ends of a path, the longest first."""
    parts = path.split("/")
    return ("/".join(parts[start:]) for start in range(len(parts)))


def _number(text: str) -> str:
    return _SIGNS.sub(" ", text).strip()


def joined(source: Source, *, embedded: bool, finder: Finder | None = None) -> Source:
    """Join the rows of tables with the images of their folder.

    Args:
        source: Rows of tables (`Source.tables`).
        embedded: Whether what is written inside the images fills the fields that the table lacks.
        finder: Finds images and sidecars; None for one that lists the folder.

    Returns:
        The source whose rows have the paths of files that exist, where one is found; with notes.
    """
    return replace(source, rows=_Join(source, embedded, finder or Finder(source.root)).rows())


class _Join:
    """The state of one join: what was found otherwise, and what the files say.

    Args:
        source: See `joined`.
        embedded: See `joined`.
        finder: See `joined`.
    """

    def __init__(self, source: Source, embedded: bool, finder: Finder) -> None:
        self.source, self.embedded, self.finder = source, embedded, finder
        self.found: list[tuple[str, str]] = []
        self._named, self.any_named, self.lost = KeySet(), False, False
        self.filled, self.differing = Counter[str](), Counter[str]()
        self.columns: dict[str, str] = {}
        self.example = ""

    def rows(self) -> Iterator[Row | RowIssue]:
        """Join row by row; notes come last.

        Yields:
            Rows and problems.
        """
        for row in self.source.rows:
            if not isinstance(row, Row):
                self.lost |= row.fatal
                yield row
                continue
            if row.image is None and row.image_id is not None:
                row = self._by_id(row)
            elif isinstance(row.image, str) and "?offset=" not in row.image and not is_address(row.image):
                problem = self._by_path(row)
                if problem is not None:
                    self.lost = True
                    yield problem
                    continue
            new = isinstance(row.image, str) and self._is_new(row.image)
            # A pipe that a table names would be waited for.
            if new and self.embedded and image_exists(str(row.image), self.source.root):
                yield from self._fill(row)
            yield row
        yield from self._notes()

    def _is_new(self, name: str) -> bool:
        """Whether no earlier row has named an image; this one has now."""
        own = self._plain(self.source.root, name)
        if own in self._named:
            return False
        self._named.add(own)
        self.any_named = True
        return True

    def _by_id(self, row: Row) -> Row:
        """A row that has an id alone: that of the one image whose name it is, or what features are joined by."""
        files = self.finder.find(str(row.image_id))
        if len(files) != 1:
            return row
        self.found.append((str(row.image_id), files[0]))
        return replace(row, image=files[0])

    def _by_path(self, row: Row) -> RowIssue | None:
        """Give a row the file that its path means; the problem where several may be meant."""
        path = str(row.image)
        if image_exists(path, self.source.root):
            return None
        files = self.finder.find(path)
        if len(files) > 1:
            what = f"'{path}' may be any of {listed(files)}; write its folder, too"
            return RowIssue(row.where, what, name=f"'{path}'", item=row.image_id or path, files=(path,))
        if files:
            row.image_id, row.image = row.image_id or path, files[0]
            if plain_name(path.replace("\\", "/")) != plain_name(files[0]):
                self.found.append((path, files[0]))
        return None

    def _fill(self, row: Row) -> Iterator[RowIssue]:
        """Fill the fields of a row that its table lacks; where both have one, that of the table counts."""
        sidecar: str | None = None
        if not is_address(row.image):
            sidecar, notes = self.finder.sidecars.of(os.path.normpath(str(row.image)))
            yield from notes
        try:
            file = joined_path(self.source.root, str(row.image))
            fields, wrong = embedded_fields(file, None if sidecar is None else self.source.root / sidecar)
        except (OSError, ValueError):
            return  # Whether the file can be read is found when it is decoded.
        name = shown(row.image_id or str(row.image))
        yield from (note_of(shown(str(row.image)), what) for what in wrong)
        own = {column.casefold(): column for column in row.metadata}
        self.columns |= own
        texts = {_folded(text) for text in row.texts if text is not None}
        for field, value in fields.items():
            if field in TEXT_FIELDS and field not in own:
                if not texts and row.text_ids is None:
                    row.texts = [*row.texts, str(value)]
                    self.filled[field] += 1
                elif texts and _folded(value) not in texts:
                    self._differs(field, name, value, next(filter(None, row.texts)))
            elif field not in own:
                row.metadata[self.columns.get(field, field)] = value
                self.filled[field] += 1
            elif not _alike(row.metadata[own[field]], value):
                self._differs(field, name, value, row.metadata[own[field]])

    def _differs(self, field: str, name: str, inside: object, table: object) -> None:
        self.differing[field] += 1
        self.example = self.example or f"first {name}: {str(table)[:40]!r}, and {str(inside)[:40]!r} in the file"

    def _notes(self) -> Iterator[RowIssue]:
        where = self.source.tables[0].name
        if self.found:
            name, file = self.found[0]
            what = f"{counted(len(self.found), 'image')} found by name or number alone, first '{name}': {file}"
            yield RowIssue(where, what, fatal=False)
        if self.filled:
            what = f"fields that the table lacks are those inside the files (IPTC, XMP, EXIF): {_counts(self.filled)}"
            yield RowIssue(where, what, fatal=False)
        if self.differing:
            what = f"where table and file differ, the table counts: {_counts(self.differing)}; {self.example}"
            yield RowIssue(where, what, fatal=False)
        if (whole := self.source.whole) is not None and self.any_named:
            finder = self.finder if whole == self.source.root else Finder(whole)
            left = sorted(
                (name for name in finder.all_files() if self._plain(whole, name) not in self._named), key=as_listed
            )
            if left:
                inside = (table.is_relative_to(whole) for table in self.source.tables)
                names = [str(table.relative_to(whole)) if within else table.name
                         for table, within in zip(self.source.tables, inside, strict=True)]  # fmt: skip
                number, are = counted(len(left), "image"), "is" if len(left) == 1 else "are"
                what = (
                    f"{number} of the folder {are} in no {'usable ' * self.lost}row of {listed(names)} and {are} left"
                )
                what += f" out, first {left[0]}; {_ADVICE}"
                yield RowIssue(whole.name, what, fatal=False, files=tuple(left))

    @staticmethod
    def _plain(root: Path, name: str) -> str:
        if is_address(name):
            return name
        return plain_name(os.path.abspath(os.path.join(root, name.replace("\\", "/"))))  # noqa: PTH100, PTH118


def _counts(fields: Counter[str]) -> str:
    return ", ".join(f"{field} {count:,}" for field, count in fields.most_common())


def _folded(value: object) -> str:
    return " ".join(str(value).split()).casefold()


def _alike(one: Any, other: Any) -> bool:
    """Whether two values say the same, whatever their case, spaces, order and notation of dates."""
    lists = [value if isinstance(value, list) else [value] for value in (one, other)]
    if {*map(_folded, lists[0])} == {*map(_folded, lists[1])}:
        return True
    dates = [read_date(str(value)) for value in (one, other)]
    return all(dates) and (dates[0].first, dates[0].last) == (dates[1].first, dates[1].last)  # type: ignore[union-attr]


def unmatched_csv(problems: Iterable[RowIssue]) -> str:
    """Write the rows without a file, those that cannot be used otherwise, and the files without a row.

    People who correct a table can work through it.

    Args:
        problems: The problems of a data set.

    Returns:
        CSV that spreadsheets open.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(["kind", "where", "id", "name", "reason"])
    for problem in problems:
        if not problem.fatal:
            writer.writerows(["file without a row", "", problem.item, name, ""] for name in problem.files)
            continue
        kind = "row without a file" if problem.files else "row that cannot be used"
        for name in problem.files or ("",):
            writer.writerow([kind, problem.where, problem.item, name, problem.what])
    return out.getvalue()
