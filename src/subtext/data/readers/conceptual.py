"""Conceptual Captions as its authors publish it (Sharma et al. 2018): captions with the addresses of pictures.

A folder with `Train_GCC-training.tsv` and, for validation, `Validation_GCC-1.1.0-Validation.tsv` (or the names of
another release that hold "GCC"), without a first line of names: the caption, a tab, the address. Fetched pictures lie
in `training` and `validation` under the names that the usual scripts give them, with or without an ending: the CRC-32
of the address, ROW_CRC, or ROW, counted from 0. An address that was not fetched (many are dead by now) is left out with
a note. Without those folders all pictures are known by features alone, under the names training/ROW and validation/ROW.

The shards of `img2dataset --output_format webdataset` need none of this: they are WebDataset.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

from subtext.data.columns import rows_of
from subtext.data.rows import Problem, Row, Source
from subtext.data.splits import MERGED
from subtext.errors import DataError, counted

_FIRST = 2**16
"""Bytes of the first line that are looked at."""
_FOLDERS = {"training": ("training", "train"), "validation": ("validation", "val")}


def conceptual_files(folder: Path) -> dict[str, Path]:
    """The files by "training" and "validation"; empty for a folder that is no Conceptual Captions."""
    found: dict[str, Path] = {}
    for file in sorted(folder.glob("*GCC*.tsv")):
        if "labels" in file.name.lower() or not _is_published(file):
            continue
        kind = next((kind for kind in _FOLDERS if kind in file.name.lower()), None)
        if kind is None or kind in found:
            raise DataError(
                f"{folder} needs one file with 'training' and one with 'validation' in its name; {file.name} is another"
            )
        found[kind] = file
    return found


def _is_published(file: Path) -> bool:
    """Whether the first line is a caption and an address: a table of one's own begins with names of columns."""
    with file.open("rb") as lines:
        cells = lines.readline(_FIRST).rstrip(b"\r\n").split(b"\t")
    return len(cells) == 2 and b"://" in cells[1]


def read_conceptual(folder: Path, images: Path | None) -> Source:
    """One picture and one caption a row; the files are train and val, and there is no test."""
    root = images if images is not None else folder
    files = conceptual_files(folder)
    places = {kind: next((root / name for name in _FOLDERS[kind] if (root / name).is_dir()), None) for kind in _FOLDERS}
    fetched = any(places.values())
    rows = (row for kind, file in files.items() for row in _rows(file, kind, places[kind], fetched))
    return Source(rows, root)


def _rows(file: Path, kind: str, place: Path | None, fetched: bool) -> Iterator[Row | Problem]:
    names = {file.name.partition(".")[0]: file.name for file in sorted(place.iterdir())} if place is not None else {}
    missing, count = "", 0
    with file.open("rb") as lines:
        for number, line in enumerate(lines):
            where = f"{file.name} line {number + 1}"
            cells = line.rstrip(b"\r\n").decode("utf-8", "surrogateescape").split("\t")
            if len(cells) < 2:
                yield Problem(where, "needs a caption, a tab and an address")
                continue
            columns: dict[str, object] = {"id": f"{kind}/{number}", "caption": cells[0]}
            if fetched:
                crc = zlib.crc32(cells[1].encode("utf-8", "surrogateescape"))
                name = next((names[n] for n in (f"{number}_{crc}", str(crc), str(number)) if n in names), None)
                if name is None or place is None:
                    missing, count = missing or where, count + 1
                    continue
                columns["image"] = f"{place.name}/{name}"
            yield from rows_of([(where, columns)], None, split=MERGED.get(kind, kind))
    if count:
        yield Problem(missing, f"{counted(count, 'picture')} of {file.name} not fetched; left out", fatal=False)
