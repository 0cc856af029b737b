"""The split files of Karpathy and Fei-Fei 2015: dataset_coco.json, dataset_flickr8k.json, dataset_flickr30k.json."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from subtext.data.readers.columns import rows_of
from subtext.data.readers.rows import Problem, Source
from subtext.errors import DataError


def is_karpathy(path: Path) -> bool:
    """Whether a JSON file is one object with a list of `images` that have `sentences`; told from its first 64 KiB."""
    with path.open("rb") as file:
        start = file.read(65536)
    return start.lstrip().startswith(b"{") and b'"images"' in start and b'"sentences"' in start


def read_karpathy(path: Path, images: Path | None) -> Source:
    """Pictures with all their sentences; "restval" counts as train.

    A picture's id is its `cocoid` where it has one, else its file name; a text's id is its `sentid`. Its path is
    `filepath`/`filename`, or the file name alone where the pictures lie in one folder.

    Raises DataError when the file is no such JSON.
    """
    try:
        data = json.loads(path.read_bytes())
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{path} needs to be a JSON object with 'images'; {error}") from error
    entries = data.get("images") if isinstance(data, dict) else None
    if not isinstance(entries, list) or not entries:
        raise DataError(f"{path} needs a list of pictures in 'images'; it has none")
    root = images if images is not None else path.parent
    flat = not any(_path(entry, False) and (root / _path(entry, False)).is_file() for entry in entries[:20])
    flat = flat and any((root / _path(entry, True)).is_file() for entry in entries[:20] if _path(entry, True))
    return Source(rows_of(_raws(entries, flat), path.name), root)


def _raws(entries: list[Any], flat: bool) -> Iterator[tuple[str, dict[str, Any] | Problem]]:
    for number, entry in enumerate(entries, start=1):
        where = f"picture {number}"
        try:
            sentences = entry["sentences"]
            columns: dict[str, Any] = {
                "id": entry.get("cocoid", entry.get("id")),
                "image": _path(entry, flat),
                "captions": [sentence["raw"] for sentence in sentences],
                "split": entry.get("split"),
            }
            if sentences and all("sentid" in sentence for sentence in sentences):
                columns["text_ids"] = [sentence["sentid"] for sentence in sentences]
        except (TypeError, KeyError, AttributeError) as error:
            yield where, Problem(where, f"needs 'filename', and 'sentences' with 'raw' texts; it lacks {error}")
            continue
        taken = ("sentences", "filename", "filepath", "split", "sentids", "id")
        yield where, {name: value for name, value in entry.items() if name not in taken} | columns


def _path(entry: Any, flat: bool) -> str:
    if not isinstance(entry, dict) or not isinstance(entry.get("filename"), str):
        return ""
    folder = entry.get("filepath")
    return entry["filename"] if flat or not folder else f"{folder}/{entry['filename']}"
