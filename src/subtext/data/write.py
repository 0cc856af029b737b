"""Write a Dataset to a file that `read` reads as the same pairs: JSON lines or Parquet."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from subtext.data import atomic
from subtext.data.dataset import Dataset
from subtext.data.rows import described
from subtext.errors import DataError
from subtext.text_helpers import counted, json_text

SUFFIXES = (".jsonl", ".parquet")
"""Suffixes of the files that can be written."""


def write_dataset(pairs: Dataset, path: Path) -> None:
    """Write a row for each run of pairs of one image: id, image, captions, text_ids, split, group and metadata.

    An image without a text has a row of its own.

    Reading the file gives pairs of the same fingerprint, whatever the seed of splits. Paths of images stay relative
    to `pairs.root`, so a file elsewhere needs that folder as --images.

    Args:
        pairs: The data set.
        path: The file, .jsonl or .parquet.

    Raises:
        DataError: For another ending, for graded judgements, texts without an image and images that are no partner of
            the texts of their group, which rows cannot hold, and for what JSON lines cannot hold, such as images stored
            as bytes.
        OutputError: If it cannot be written.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise DataError(f"pairs are written to a file that ends in {' or '.join(SUFFIXES)}; it got {path.name}")
    if pairs.judgements is not None:
        raise DataError(
            "graded judgements cannot be written as rows of pairs; leave a data set that brings them in its own form"
        )
    textless = np.setdiff1d(np.arange(len(pairs.images)), pairs.links[:, 0])
    # Read again, an image without a text belongs to all texts of its group.
    lone = np.isin(pairs.images.groups[textless], pairs.texts.groups).sum()
    for noun, count in (("image", lone), ("text", len(pairs.texts) - len(np.unique(pairs.links[:, 1])))):
        if count:
            raise DataError(
                f"{counted(count, noun)} without a partner cannot be written as rows of pairs; leave it out"
            )
    write_rows(list(_rows(pairs)), path)


def write_rows(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write rows to a .parquet file, or as JSON lines, complete or not at all.

    Args:
        rows: The rows as mappings.
        path: The file.

    Raises:
        DataError: For what JSON lines cannot hold.
        OutputError: If it cannot be written.
    """
    if path.suffix.lower() == ".parquet":
        import pyarrow
        import pyarrow.parquet

        # Arrow takes the columns of the first row for those of all rows.
        names = dict.fromkeys(name for row in rows for name in row)
        try:
            table = pyarrow.Table.from_pylist([{name: row.get(name) for name in names} for row in rows])
        except pyarrow.ArrowException as error:
            raise DataError(f"Parquet needs values of one type in a column; {error}; write JSON lines") from error
        atomic.write_file(path, lambda file: pyarrow.parquet.write_table(table, file))
    else:
        lines = (json_text(row, default=_refuse) for row in rows)
        atomic.write_text(path, "".join(f"{line}\n" for line in lines))


def _refuse(value: Any) -> None:
    raise DataError(f"JSON lines cannot hold {described(value)} that the rows have; name a file that ends in .parquet")


def _rows(pairs: Dataset) -> Iterator[dict[str, Any]]:
    images, texts = pairs.images, pairs.texts
    members = np.bincount(images.groups, minlength=int(images.groups.max(initial=-1)) + 1)
    first = {int(group): images.ids[row] for row, group in reversed(list(enumerate(images.groups)))}
    entries, described_texts = [], set()
    for image, text in pairs.links.tolist():
        # A text in an earlier row has its columns there: those of a later row are the image's.
        items, row = (images, image) if text in described_texts else (texts, text)
        described_texts.add(text)
        metadata = {name: column[row] for name, column in items.metadata.items() if column[row] is not None}
        entries.append((image, texts.values[text] is None, metadata, text))
    waiting = deque(np.setdiff1d(np.arange(len(images)), pairs.links[:, 0]).tolist())
    for (image, wordless, metadata), run in groupby(entries, key=itemgetter(0, 1, 2)):
        while waiting and waiting[0] < image:
            yield _textless(pairs, waiting.popleft())
        rows = [text for *_, text in run]
        group = int(images.groups[image])
        columns = {
            "id": images.ids[image],
            "image": images.values[image],
            "captions": None if wordless else [texts.values[row] for row in rows],
            "text_ids": [texts.ids[row] for row in rows],
            "split": str(images.splits[image]),
            "group": first[group] if members[group] > 1 else None,
        }
        columns = {name: value for name, value in columns.items() if value is not None}
        yield columns | {name: value for name, value in metadata.items() if name not in columns}
    yield from (_textless(pairs, image) for image in waiting)


def _textless(pairs: Dataset, image: int) -> dict[str, Any]:
    items = pairs.images
    columns: dict[str, Any] = {
        "id": items.ids[image],
        "image": items.values[image],
        "captions": [],
        "split": str(items.splits[image]),
    }
    metadata = {name: column[image] for name, column in items.metadata.items() if name not in columns}
    return {name: value for name, value in (metadata | columns).items() if value is not None}
