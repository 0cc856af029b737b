"""What is kept of an item outside the tables and the vectors, by whoever serves an index, and how it goes with it.

INDEX/cache/**/NAME*        thumbnails and the like; NAME is `trace_name` of the item
INDEX/logs/**/*.jsonl       a line of JSON a request; one that names an item, as a text of its own, goes with the item
INDEX/added/NAME*           images that were handed in over the network; metadata.jsonl beside them is their data set
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path

from subtext.data.atomic import write_text
from subtext.search.stores.item import Side, deletion_hash
from subtext.search.stores.manifest import inside

CACHE, LOGS, ADDED = "cache", "logs", "added"
ROWS = "metadata.jsonl"


def trace_name(side: Side, name: str) -> str:
    """32 hexadecimal digits that stand for an item in the names of cached files: ids may be of any length and letters.

    >>> len(trace_name("images", "a/b.jpg"))
    32
    """
    return deletion_hash(side, name).hex()


def require_own(index: Path) -> Path:
    """The folder of an index. Raises IndexError_ where what is kept beside its items is a symbolic link."""
    for name in (CACHE, f"{CACHE}/thumbnails", LOGS, ADDED):
        inside(index, name)
    return index


def remove_traces(index: Path, gone: Mapping[str, Sequence[str]]) -> int:
    """Remove cached files and log lines of items; gives how many files and lines.

    gone  trace name -> texts that name the item in logs: its id, and its path

    Raises OutputError when a log cannot be written.
    """
    removed = 0
    for file in [*(index / CACHE).rglob("*"), *(index / ADDED).glob("*")]:
        if file.is_file() and file.name[:32] in gone:
            file.unlink(missing_ok=True)
            removed += 1
    # As JSON writes it, in either of its spellings, quotation marks and all: a part of a longer name is none.
    written = {
        json.dumps(name, ensure_ascii=plain) for names in gone.values() for name in names for plain in (True, False)
    }
    for log in (index / LOGS).rglob("*.jsonl") if written else []:
        # Not splitlines: an id may have a line separator of Unicode in it.
        lines = list(StringIO(log.read_text(encoding="utf-8", errors="surrogateescape")))
        remaining = [line for line in lines if not any(name in line for name in written)]
        if len(remaining) < len(lines):
            removed += len(lines) - len(remaining)
            write_text(log, "".join(remaining), errors="surrogateescape")
    # Images that are gone leave the data set of added ones, and texts the rows of the others.
    rows = index / ADDED / ROWS
    lines = list(StringIO(rows.read_text(encoding="utf-8"))) if rows.is_file() else []
    remaining = [line for line in (_without(line, gone) for line in lines) if line]
    if remaining != lines:
        write_text(rows, "".join(remaining), errors="surrogateescape")
    return removed + len(lines) - len(remaining)


def _without(line: str, gone: Mapping[str, Sequence[str]]) -> str:
    """A row without its texts that are gone; "" where the image is, or no text is left."""
    row = json.loads(line)
    if trace_name("images", row["id"]) in gone:
        return ""
    pairs = list(zip(row["text_ids"], row["captions"], strict=True))
    remaining = [(name, text) for name, text in pairs if trace_name("texts", name) not in gone]
    if len(remaining) == len(pairs):
        return line
    row |= {"text_ids": [name for name, _ in remaining], "captions": [text for _, text in remaining]}
    return json.dumps(row, ensure_ascii=False) + "\n" if remaining else ""
