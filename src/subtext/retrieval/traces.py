"""Traces of items that a server stores outside the tables and vectors; they are removed with the item.

INDEX/cache/**/NAME*        thumbnails and the like; NAME is `trace_name` of the item
INDEX/logs/**/*.jsonl       a line of JSON a request; one that names an item, as a text of its own, goes with the item
INDEX/added/NAME*           images that were handed in over the network; metadata.jsonl beside them is their data set
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from subtext.data.atomic import write_text
from subtext.errors import SearchIndexError
from subtext.retrieval.index_files import inside
from subtext.retrieval.stores.item import Side, deletion_hash

CACHE, LOGS, ADDED = "cache", "logs", "added"
ROWS = "metadata.jsonl"


def trace_name(side: Side, name: str) -> str:
    """32 hexadecimal digits that stand for an item in the names of cached files: ids may be of any length and letters.

    Args:
        side: "images" or "texts".
        name: Id of the item.

    Returns:
        32 hexadecimal digits.

    Example:
        >>> len(trace_name("images", "a/b.jpg"))
        32
    """
    return deletion_hash(side, name).hex()


def require_own(index: Path) -> Path:
    """Require that the folders beside the items of an index are no symbolic links.

    Args:
        index: Folder of the index.

    Returns:
        The folder.

    Raises:
        SearchIndexError: If what is kept beside its items is a symbolic link.
    """
    for name in (CACHE, f"{CACHE}/thumbnails", LOGS, ADDED):
        inside(index, name)
    return index


def remove_traces(index: Path, deleted: Mapping[str, Sequence[str]]) -> int:
    """Remove cached files and log lines of deleted items.

    Args:
        index: Folder of the index, or the storage folder of an index in a database.
        deleted: Trace name -> texts that name the item in logs: its id, and its path.

    Returns:
        Number of removed files and lines.

    Raises:
        OutputError: If a log cannot be written.
    """
    removed = 0
    for file in [*(index / CACHE).rglob("*"), *(index / ADDED).glob("*")]:
        if file.is_file() and file.name[:32] in deleted:
            file.unlink(missing_ok=True)
            removed += 1
    # As JSON writes it, in either of its spellings, quotation marks and all: a part of a longer name is none.
    written = {
        json.dumps(name, ensure_ascii=plain) for names in deleted.values() for name in names for plain in (True, False)
    }
    for log in (index / LOGS).rglob("*.jsonl") if written else []:
        if log.is_symlink() or not log.is_file():
            continue
        # Not splitlines: an id may have a line separator of Unicode in it.
        lines = list(StringIO(log.read_text(encoding="utf-8", errors="surrogateescape")))
        remaining = [line for line in lines if not any(name in line for name in written)]
        if len(remaining) < len(lines):
            removed += len(lines) - len(remaining)
            write_text(log, "".join(remaining), errors="surrogateescape")
    # Deleted images leave the data set of added ones, and texts the rows of the others.
    rows = added_rows(index)
    left = [row for row in (_without(row, deleted) for row in rows) if row]
    if left != rows:
        write_rows(index / ADDED / ROWS, left)
    return removed + len(rows) - len(left)


def added_rows(index: Path) -> list[dict[str, Any]]:
    """The rows of the data set of added items.

    Args:
        index: Folder of the index.

    Returns:
        The rows; empty without such a data set.

    Raises:
        SearchIndexError: If they are damaged, or a symbolic link.
    """
    file = inside(index, f"{ADDED}/{ROWS}")
    try:
        # Not splitlines: an id may have a line separator of Unicode in it.
        lines = file.read_text(encoding="utf-8").split("\n") if file.is_file() else []
        rows = [json.loads(line) for line in lines if line.strip()]
        for row in rows:
            if not all(isinstance(row[name], str) for name in ("id", "file_name")):
                raise ValueError("'id' and 'file_name' are texts")
            if len(row["text_ids"]) != len(row["captions"]):
                raise ValueError("there is one of 'text_ids' for each of 'captions'")
    except (ValueError, KeyError, TypeError) as problem:
        raise SearchIndexError(
            f"{file} needs a row of JSON for each added image; {problem!r}; restore a backup, or remove the file"
        ) from problem
    return rows


def write_rows(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the rows of a data set of added items.

    Args:
        file: The file; it is replaced.
        rows: The rows, as plain data.

    Raises:
        OutputError: If the file cannot be written.
    """
    write_text(file, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def _without(row: dict[str, Any], deleted: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """A row without its deleted texts; empty if the image is deleted, or no text is left."""
    if trace_name("images", row["id"]) in deleted:
        return {}
    pairs = list(zip(row["text_ids"], row["captions"], strict=True))
    remaining = [(name, text) for name, text in pairs if trace_name("texts", name) not in deleted]
    if len(remaining) == len(pairs):
        return row
    texts = {"text_ids": [name for name, _ in remaining], "captions": [text for _, text in remaining]}
    return {**row, **texts} if remaining else {}
