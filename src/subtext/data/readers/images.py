"""A folder of images without a table: every image in it, down to the last sub-folder, is an item.

Its texts and metadata are what is written inside the files, and in .xmp files beside them (`embedded`).
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import compress, takewhile
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from urllib.parse import unquote, urlsplit

from subtext.data.dataset import RowIssue
from subtext.data.embedded import FIELDS, SIDECAR, TEXT_FIELDS, embedded_fields, note_of
from subtext.data.folders import IMAGES, TABLES, families, iter_files, suffix_of, survey, visible
from subtext.data.rows import Columns, Record, Row, Source, renamed, require_columns, rows_of
from subtext.data.sidecars import Sidecars
from subtext.data.spool import RowFinder, Spool
from subtext.errors import DataError
from subtext.text_helpers import counted

PRIORITY = -1
LOOKS_FOR = "images (JPEG, PNG, WebP, TIFF, GIF, BMP, JPEG 2000, AVIF, HEIC)"
_SIZE = re.compile(r"/(full|square|(pct:)?[\d.]+,[\d.]+,[\d.]+,[\d.]+)/[^/]+/!?[\d.]+/[a-z]+\.[a-z0-9]+$")
"""The end of an address of IIIF's Image API: region, size, rotation, quality and format."""


def recognises(path: Path) -> bool:
    """Recognise a folder with an image and without tables, since with a table it would be unclear which is meant.

    Args:
        path: Folder; it need not exist.

    Returns:
        Whether it is such a folder.
    """
    if not path.is_dir() or any(file.suffix.lower() in TABLES for file in visible(path)):
        return False
    return survey(path).images > 0


def read(path: Path, images: Path | None, *, columns: Columns | None = None) -> Source:
    """Read one item per image; its id is its path from the folder, with "/" between the parts.

    Args:
        path: Folder, read down to its last sub-folder.
        images: Another folder of the images; None for `path`.
        columns: Role -> fields of `embedded`; its texts are `headline` and `caption` where no others are named.

    Returns:
        The rows, with the metadata inside the files, and a note on files that are no images.
    """
    columns = {"text": TEXT_FIELDS, **(columns or {})}
    require_columns(columns, FIELDS, "an image")
    folder = images if images is not None else path
    return Source(_rows(folder, columns), folder)


def _rows(folder: Path, columns: Columns) -> Iterator[Row | RowIssue]:
    listing = survey(folder, refuse=_refuse)
    yield from listing.notes(folder)
    others, unused = Counter[str](), list[str]()
    for names in families(folder, listing, refuse=_refuse):
        sidecars = Sidecars(folder, names)
        for name in names:
            if suffix_of(name) not in IMAGES:
                others[suffix_of(name) or "no suffix"] += suffix_of(name) != SIDECAR
                continue
            if name in listing.aliases:
                continue
            sidecar, notes = sidecars.of(name)
            inside = partial(fields_inside, folder, name, sidecar, notes, columns)
            # Of an image that an index has unchanged, nothing is read.
            yield Row(f"image {name}", name, None, [], metadata=dict(columns), inside=inside)
        unused += sidecars.unused()
    yield from left_out(folder, unused, others)


def left_out(folder: Path, unused: Sequence[str], others: Counter[str]) -> Iterator[RowIssue]:
    """Say which files of a folder are no images.

    Args:
        folder: The folder, for messages.
        unused: Sidecars of no image.
        others: Suffix -> number of other files.

    Yields:
        Notes.
    """
    if unused:
        what = f"{counted(len(unused), 'sidecar')} left out, for no image here has its name, first {unused[0]}"
        yield RowIssue(folder.name, what, fatal=False)
    if others.total():
        kinds = ", ".join(f"{count:,} {suffix}" for suffix, count in others.most_common() if count)
        note = f"{counted(others.total(), 'file')} of the folder left out, for it takes images only ({kinds})"
        yield RowIssue(folder.name, note, fatal=False)


def fields_inside(
    folder: Path, name: str, sidecar: str | None, notes: Sequence[RowIssue], columns: Columns
) -> Iterator[Row | RowIssue]:
    """Read the row of an image by what is written inside it.

    Args:
        folder: The folder.
        name: Path of the image.
        sidecar: Path of its .xmp file; None for none.
        notes: On its sidecars.
        columns: Role -> fields of `embedded`.

    Yields:
        Notes, and the row.
    """
    try:
        fields, wrong = embedded_fields(folder / name, None if sidecar is None else folder / sidecar)
    except OSError as error:
        yield RowIssue(f"image {name}", f"cannot be read: {error.strerror}", item=name)
        return
    yield from notes
    yield from (note_of(name, what) for what in wrong)
    yield from rows_of([(f"image {name}", renamed({"image": name, **fields}, columns))], None)


def files_with(path: Path, suffix: str, mark: str) -> list[Path]:
    """Find the files of a format by their content.

    Args:
        path: A file, or a folder whose own files are inspected.
        suffix: Suffix of the files, such as ".xml".
        mark: Text that the first 64 KiB of a file contain.

    Returns:
        The files, sorted by name.
    """
    return [file for file in _named(path, suffix) if mark.encode() in _first_bytes(file)]


def _named(path: Path, suffix: str) -> list[Path]:
    files = visible(path) if path.is_dir() else [path]
    return [file for file in files if file.suffix.lower() == suffix and file.is_file()]


def _first_bytes(file: Path) -> bytes:
    with file.open("rb") as start:
        return start.read(2**16)


class FilesByName:
    """The images of a folder by every end of their paths, from the name alone to the whole; they lie in a file.

    Some 9 bytes of each end are held.

    Args:
        folder: Folder of the images, with sub-folders.
    """

    def __init__(self, folder: Path) -> None:
        self._paths, self._rows = Spool[tuple[str]](lambda fields: (fields[0],)), RowFinder()
        for path in iter_files(folder, refuse=_refuse):
            if suffix_of(path) in IMAGES:
                for end in _ends(os.path.splitext(path)[0]):  # noqa: PTH122 (100,000 paths)
                    self._rows.add(end, len(self._paths))
                self._paths.append((path,))

    def __iter__(self) -> Iterator[str]:
        return (path for (path,) in self._paths)

    def ending(self, end: str) -> list[str]:
        """Give the images whose paths without suffix end so, sorted.

        Args:
            end: Last parts of a path.

        Returns:
            The paths from the folder.
        """
        found = list[str]()

        def keep(row: int) -> bool:
            (path,) = self._paths[row]
            if f"/{os.path.splitext(path)[0]}".endswith(f"/{end}"):  # noqa: PTH122
                found.append(path)
            return False

        self._rows.find(end, keep)
        return sorted(found)


def _ends(path: str) -> list[str]:
    """The ends of a path, the longest first."""
    parts = path.split("/")
    return ["/".join(parts[start:]) for start in range(len(parts))]


def files_at(address: str, files: FilesByName) -> list[str]:
    """Find the images that an address or a path may mean.

    Of the images that have the name at its end, with the same suffix or another, those count that share most folders
    with it, from the end upwards; of these, those that have its suffix if there are some. An address of
    IIIF's Image API means the file under the same folders, else the one that has the name of its identifier: all
    images share the name at the end.

    Args:
        address: A URL or a path.
        files: The images of the folder.

    Returns:
        Paths of images: none, one, or several of which nothing says which one is meant.
    """
    path, identifier = _paths(address)
    for end in (*(_ends(path)[:-4] if path != identifier else ()), *_ends(identifier)):
        stem, suffix = os.path.splitext(end)  # noqa: PTH122 (100,000 paths)
        # The end of MS.2 is no suffix.
        if found := (files.ending(stem) if suffix.lower() in IMAGES else []) or files.ending(end):
            return [file for file in found if file.endswith(suffix)] or found
    return []


def _paths(address: str) -> tuple[str, str]:
    """The path of an address, and that without what IIIF's Image API appends to the identifier of an image."""
    path = unquote(unquote(urlsplit(address.strip()).path)).replace("\\", "/").rstrip("/").removesuffix("/info.json")
    return path, _SIZE.sub("", path)


Addressed = tuple[str, str, dict[str, Any] | RowIssue]
"""Position at which an image is named, its address, and its row or the reason why it has none."""


class _Named(NamedTuple):
    """An `Addressed` that goes to a file and comes back; a problem stays in memory."""

    where: str
    address: str
    row: dict[str, Any] | RowIssue


def images_of(
    descriptions: Iterable[Path],
    records: Callable[[Path, FilesByName], Iterable[Addressed]],
    path: Path,
    images: Path | None,
    columns: Columns | None,
) -> Source:
    """Read files that describe the images beside them; each image belongs to one address.

    Where several addresses end at one image, it is that of the address that has most of its folders; where nothing
    says which one that is, each of them becomes a problem.

    Args:
        descriptions: The files that describe images.
        records: The rows of a description, by the images of the folder.
        path: The data set: a file, or a folder.
        images: Folder of the images; None for the folder of `path`.
        columns: Role -> fields; the texts are `headline` and `caption` where no others are named.

    Returns:
        A row per image that is there.
    """
    root = images if images is not None else (path if path.is_dir() else path.parent)
    files, columns = FilesByName(root), {"text": TEXT_FIELDS, **(columns or {})}
    rows, usable = Spool(_Named._make), bytearray()
    for file in descriptions:
        # One file that cannot be read is a problem of itself, and no row of it counts.
        try:
            for named in records(file, files):
                rows.append(_Named(*named))
            problem = None
        except OSError as error:
            problem = RowIssue(file.name, f"cannot be read: {error.strerror or error}")
        except _UNREADABLE as error:
            what = str(error) if isinstance(error, DataError) else f"is not read: {str(error)[:160] or repr(error)}"
            problem = RowIssue(file.name, what)
        usable.extend(bytes([problem is None]) * (len(rows) - len(usable)))
        if problem is not None:
            rows.append(_Named(file.name, "", problem))
            usable.append(1)
    # Of most images there is one address, which its row has.
    rivals, first = dict[str, dict[str, str]](), RowFinder()

    def is_of(image: str) -> Callable[[int], bool]:
        return lambda number: _image_of(rows[number]) == image

    for number in compress(range(len(rows)), usable):
        if (image := _image_of(rows[number])) is None:
            continue
        if (earlier := first.find(image, is_of(image))) is None:
            first.add(image, number)
        elif (other := rows[earlier].address) != rows[number].address:
            own = rivals.setdefault(image, {_paths(other)[1]: other})
            own.setdefault(_paths(rows[number].address)[1], rows[number].address)

    def single() -> Iterator[Record]:
        for where, address, row in compress(rows, usable):
            if isinstance(row, RowIssue):
                yield where, row
                continue
            image, identifier = row["image"], _paths(address)[1]
            if image not in rivals:
                yield where, _with_languages(row, columns)
                continue
            shared = {rival: _shared_folders(image, rival) for rival in rivals[image]}
            nearest = [rival for rival, count in shared.items() if count == max(shared.values())]
            if nearest == [identifier]:
                yield where, _with_languages(row, columns)
                continue
            second = next(rivals[image][rival] for rival in nearest if rival != identifier)
            reason = f"'{address}' and '{second}' both end at {image}; keep the folders of the addresses"
            yield where, RowIssue(where, reason, name=address)

        yield from _left_out(path, root, descriptions)
        if path.is_dir() and len(first):
            left = [image for image in files if first.find(image, is_of(image)) is None]
            if left:
                what = f"{counted(len(left), 'image')} left out, which no description names, first {min(left)}"
                yield root.name, RowIssue(root.name, what, fatal=False)

    return Source(rows_of(single(), None), root)


_UNREADABLE = (DataError, ValueError, TypeError, AttributeError, LookupError, RecursionError)
"""What a file of another form than it says may raise."""


def _with_languages(row: dict[str, Any], columns: Columns) -> dict[str, Any]:
    """The row under the names of roles; its headline and caption, of several languages, are texts or one field."""
    languages = row.get("language")
    new = renamed(row, columns)
    for name in TEXT_FIELDS:
        values = new.pop(name, None)
        if values and name not in columns["text"]:
            new[name] = "; ".join(values) if isinstance(values, list) else values
    if isinstance(languages, Mapping):
        new["language"] = [languages.get(text, "und") for text in new.get("captions", ())]
    return new


def _image_of(named: _Named) -> str | None:
    return None if isinstance(named.row, RowIssue) else named.row["image"]


def _left_out(path: Path, root: Path, descriptions: Iterable[Path]) -> Iterator[Record]:
    """Notes on files that look like descriptions and are none."""
    descriptions = list(descriptions)
    if path.is_dir() and descriptions:
        suffix = descriptions[0].suffix.lower()
        others = [file.name for file in _named(path, suffix) if file not in descriptions]
        if others:
            number = counted(len(others), f"{suffix} file")
            what = f"{number} left out, for nothing in it says what it is, first {others[0]}"
            yield path.name, RowIssue(path.name, what, fatal=False)


def _shared_folders(image: str, identifier: str) -> int:
    """Count the folders at the end of two paths that are the same."""
    ends = zip(reversed(image.split("/")[:-1]), reversed(identifier.split("/")[:-1]), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], ends))


def ambiguous(where: str, address: str, files: Sequence[str]) -> RowIssue:
    """Describe an address for which `files_at` returned several images.

    Args:
        where: Position of the row.
        address: The address.
        files: The images.

    Returns:
        The problem, for the row.
    """
    names = f"{', '.join(files[:3])}{', ...' if len(files) > 3 else ''}"
    return RowIssue(where, f"'{address}' may be any of {names}; keep the address' folders, or one file", name=address)


def _refuse(error: OSError) -> NoReturn:
    # Without it, the images of the folder would be missing in silence, and an update of an index would delete them.
    raise DataError(
        f"a folder of images needs to be readable to its last sub-folder; {error.filename}: {error.strerror or error}; "
        "correct it, or move it out of the folder"
    ) from error
