"""Conceptual Captions as its authors publish it (Sharma et al. 2018): captions with the URLs of images.

A folder with `Train_GCC-training.tsv` and, for validation, `Validation_GCC-1.1.0-Validation.tsv` (or the names of
another release that hold "GCC"), without a header: the caption, a tab, the URL. Downloaded images lie in
`training` and `validation` under the names that the usual scripts give them, with or without a suffix: the CRC-32 of
the URL, ROW_CRC, or ROW, counted from 0. A URL that was not downloaded (many are dead by now) is left out with a note.
Without those folders all images are known by features alone, under the names training/ROW and validation/ROW.

The shards of `img2dataset --output_format webdataset` need none of this: they are WebDataset.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from subtext.data.dataset import RowIssue
from subtext.data.rows import MERGED, Row, Source, rows_of
from subtext.errors import DataError
from subtext.text_helpers import counted

PRIORITY = 51
LOOKS_FOR = "*GCC*.tsv (Conceptual Captions)"
_FIRST = 2**16
"""Bytes of the first line that are inspected."""
_FOLDERS = {"training": ("training", "train"), "validation": ("validation", "val")}


def recognises(path: Path) -> bool:
    """Whether it is a folder with such files."""
    return path.is_dir() and bool(_files(path))


def _files(folder: Path) -> dict[str, Path]:
    """The files by "training" and "validation"; empty for another folder."""
    files: dict[str, Path] = {}
    for file in sorted(folder.glob("*GCC*.tsv")):
        with file.open("rb") as lines:
            cells = lines.readline(_FIRST).rstrip(b"\r\n").split(b"\t")
        # Other tables begin with the names of their columns.
        if "labels" in file.name.lower() or len(cells) != 2 or b"://" not in cells[1]:
            continue
        kind = next((kind for kind in _FOLDERS if kind in file.name.lower()), None)
        if kind is None or kind in files:
            raise DataError(
                f"{folder} needs one file with 'training' and one with 'validation' in its name; {file.name} is another"
            )
        files[kind] = file
    return files


def read(path: Path, images: Path | None) -> Source:
    """One image and one caption per row; the files are train and val, and there is no test."""
    root = images if images is not None else path
    folders = {
        kind: next((root / name for name in names if (root / name).is_dir()), None) for kind, names in _FOLDERS.items()
    }
    downloads = {
        kind: {file.name.partition(".")[0]: f"{folder.name}/{file.name}" for file in sorted(folder.iterdir())}
        for kind, folder in folders.items()
        if folder is not None
    }
    return Source((row for kind, file in _files(path).items() for row in _rows(file, kind, downloads)), root)


def _rows(file: Path, kind: str, downloads: Mapping[str, Mapping[str, str]]) -> Iterator[Row | RowIssue]:
    """The rows of one file; `downloads` has the images of each kind by name, without their suffixes."""
    paths = downloads.get(kind, {})
    missing, count = "", 0
    with file.open("rb") as lines:
        for number, line in enumerate(lines):
            where = f"{file.name} line {number + 1}"
            cells = line.rstrip(b"\r\n").decode("utf-8", "surrogateescape").split("\t")
            if len(cells) < 2:
                yield RowIssue(where, "needs a caption, a tab and a URL")
                continue
            columns: dict[str, object] = {"id": f"{kind}/{number}", "caption": cells[0]}
            if downloads:
                crc = zlib.crc32(cells[1].encode("utf-8", "surrogateescape"))
                names = (f"{number}_{crc}", str(crc), str(number))
                columns["image"] = next((paths[name] for name in names if name in paths), None)
                if columns["image"] is None:
                    missing, count = missing or where, count + 1
                    continue
            yield from rows_of([(where, columns)], None, split=MERGED.get(kind, kind))
    if count:
        yield RowIssue(missing, f"{counted(count, 'image')} of {file.name} not downloaded; left out", fatal=False)
