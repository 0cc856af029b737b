"""Splits of published data sets that are lists of images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from subtext.data.dataset import RowIssue
from subtext.data.rows import Row, folder_of, lines_of, rows_of
from subtext.text_helpers import counted


def filled_lines(path: Path) -> list[str]:
    """The lines of a text file that are not empty, without white space around them; none where there is no file."""
    return [line.strip() for line in lines_of(path) if line.strip()] if path.is_file() else []


def rows_with_splits(
    images: Mapping[str, Mapping[str, Any]], splits: Mapping[str, str], lists: str, root: Path, folders: Sequence[str]
) -> Iterator[Row | RowIssue]:
    """The rows of images that have a split, and a note on the others; of all images where there are no splits.

    Args:
        images: Name -> its columns.
        splits: File name without suffix -> split.
        lists: The subject of the note.
        root: Folder of the data set.
        folders: Candidates for the folder of the images, relative to the root.

    Yields:
        Rows in the order of the images, after the note.
    """
    split_of = {name: splits.get(Path(columns["image"]).stem) for name, columns in images.items()}
    without = [name for name, split in split_of.items() if splits and split is None]
    if without:
        note = f"{lists} no split for {counted(len(without), 'image')}; left out"
        yield RowIssue(without[0], note, fatal=False)
    names = [name for name, split in split_of.items() if split is not None or not splits]
    folder = folder_of((images[name]["image"] for name in names), root, folders)
    records = ((f"image {name}", {**images[name], "split": split_of[name]}) for name in names)
    yield from rows_of(records, None, folder=folder)
