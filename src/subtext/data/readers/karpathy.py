"""The split files of Karpathy and Fei-Fei 2015: dataset_coco.json, dataset_flickr8k.json, dataset_flickr30k.json."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from subtext.data.columns import rows_of
from subtext.data.image_files import image_exists
from subtext.data.rows import Problem, Source
from subtext.errors import DataError

_IMAGES = re.compile(rb'"images"\s*:\s*\[')


def is_karpathy(path: Path) -> bool:
    """Whether a JSON file is one object with a list of `images`; told from its first 64 KiB."""
    with path.open("rb") as file:
        start = file.read(65536).removeprefix(b"\xef\xbb\xbf")
    return start.lstrip().startswith(b"{") and _IMAGES.search(start) is not None


def read_karpathy(path: Path, images: Path | None) -> Source:
    """Pictures with all their sentences; "restval" counts as train.

    A picture's id is its `cocoid` where it has one, else its file name; a text's id is its `sentid`. Its path is
    `filepath`/`filename`, or the file name alone where the pictures lie in one folder.

    Raises DataError when the file is no such JSON.
    """
    try:
        data = json.loads(path.read_bytes().removeprefix(b"\xef\xbb\xbf"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} needs to be a JSON object with 'images'; {str(error)[:200]}") from error
    entries = data.get("images") if isinstance(data, dict) else None
    if not isinstance(entries, list) or not entries:
        raise DataError(f"{path} needs a list of pictures in 'images'; it has none")
    if not any(isinstance(entry, dict) and "sentences" in entry for entry in entries):
        raise DataError(
            f"{path} needs 'sentences' for the pictures in 'images', as Karpathy's dataset_coco.json has them; it has "
            "none; take that file, or make JSON lines of this one"
        )
    root = images if images is not None else path.parent
    nested, flat = (any(image_exists(_path(entry, one), root) for entry in entries[:20]) for one in (False, True))
    return Source(rows_of(_raws(entries, flat and not nested), None), root)


def _raws(entries: list[Any], flat: bool) -> Iterator[tuple[str, dict[str, Any] | Problem]]:
    for number, entry in enumerate(entries, start=1):
        where = f"picture {number}"
        sentences: Any = entry.get("sentences") if isinstance(entry, dict) else None
        if not isinstance(sentences, list) or not all(
            isinstance(sentence, dict) and "raw" in sentence for sentence in sentences
        ):
            yield where, Problem(where, "needs 'filename', and in 'sentences' a list of objects with a 'raw' text each")
            continue
        columns: dict[str, Any] = {
            "id": entry.get("cocoid", entry.get("id")),
            "image": _path(entry, flat),
            "captions": [sentence["raw"] for sentence in sentences],
            "split": entry.get("split"),
        }
        if sentences and all("sentid" in sentence for sentence in sentences):
            columns["text_ids"] = [sentence["sentid"] for sentence in sentences]
        taken = ("sentences", "filename", "filepath", "split", "sentids", "id")
        yield where, {name: value for name, value in entry.items() if name not in taken} | columns


def _path(entry: Any, flat: bool) -> str:
    if not isinstance(entry, dict) or not isinstance(entry.get("filename"), str):
        return ""
    folder = entry.get("filepath")
    return entry["filename"] if flat or not folder else f"{folder}/{entry['filename']}"
