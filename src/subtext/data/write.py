"""Dataset back to a file that `read` reads as the same pairs: JSON lines or Parquet."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from subtext.data import atomic
from subtext.data.dataset import Dataset
from subtext.data.rows import described
from subtext.errors import DataError, counted

SUFFIXES = (".jsonl", ".parquet")
"""What a written file may end in."""


def write_dataset(pairs: Dataset, path: Path) -> None:
    """Write a row for each run of pairs of one image: id, image, captions, text_ids, split, group, and what it had.

    Reading the file gives pairs of the same fingerprint, whatever the seed of splits. Paths of images stay relative
    to `pairs.root`, so a file elsewhere needs that folder as --images.

    Raises DataError for another ending, for graded judgements and lone items, which rows cannot hold, and for what JSON
    lines cannot hold, such as images stored as bytes; OutputError where it cannot be written.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise DataError(f"pairs are written to a file that ends in {' or '.join(SUFFIXES)}; it got {path.name}")
    _require_rows(pairs)
    rows = list(_rows(pairs))
    if path.suffix.lower() == ".parquet":
        atomic.write_file(path, lambda place: _parquet(rows, place))
        return
    lines = "".join(json.dumps(row, ensure_ascii=False, default=_refused) + "\n" for row in rows)

    def fill(target: Path) -> None:
        target.write_text(lines, encoding="utf-8")

    atomic.write_file(path, fill)


def _refused(value: Any) -> None:
    raise DataError(f"JSON lines cannot hold {described(value)} that the rows have; name a file that ends in .parquet")


def _require_rows(pairs: Dataset) -> None:
    if pairs.judgements is not None:
        raise DataError(
            "graded judgements cannot be written as rows of pairs; leave a data set that brings them in its own form"
        )
    for noun, items, column in (("image", pairs.images, 0), ("text", pairs.texts, 1)):
        lone = len(items) - len(np.unique(pairs.links[:, column]))
        if lone:
            raise DataError(f"{counted(lone, noun)} without a partner cannot be written as rows of pairs; leave it out")


def _rows(pairs: Dataset) -> Iterator[dict[str, Any]]:
    images, texts = pairs.images, pairs.texts
    members = np.bincount(images.groups, minlength=int(images.groups.max(initial=-1)) + 1)
    first = {int(group): images.ids[row] for row, group in reversed(list(enumerate(images.groups)))}
    run: dict[str, Any] = {}
    described: set[int] = set()
    for image, text in pairs.links.tolist():
        # Of a text that an earlier row told of, a later one tells nothing: its columns are those of the image.
        items, row = (images, image) if text in described else (texts, text)
        described.add(text)
        metadata = {name: column[row] for name, column in items.metadata.items() if column[row] is not None}
        kind = texts.values[text] is None, metadata
        if run.get("id") != images.ids[image] or run["kind"] != kind:
            yield from _row(run)
            group = int(images.groups[image])
            run = {
                "id": images.ids[image],
                "image": images.values[image],
                "captions": [],
                "text_ids": [],
                "split": str(images.splits[image]),
                "group": first[group] if members[group] > 1 else None,
                "kind": kind,
            }
        run["captions"].append(texts.values[text])
        run["text_ids"].append(texts.ids[text])
    yield from _row(run)


def _row(run: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A row as a file holds it; nothing for the run before the first."""
    if run:
        wordless, metadata = run["kind"]
        dropped = ("kind", "captions") if wordless else ("kind",)
        columns = {name: value for name, value in run.items() if name not in dropped and value is not None}
        yield {**columns, **{name: value for name, value in metadata.items() if name not in columns}}


def _parquet(rows: list[dict[str, Any]], target: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(_whole(rows)), target)


def _whole(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of the same columns: Arrow takes the columns of the first for those of all."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in names} for row in rows]
