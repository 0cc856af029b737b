"""The split files of Karpathy and Fei-Fei 2015: dataset_coco.json, dataset_flickr8k.json, dataset_flickr30k.json."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from subtext.data.dataset import RowIssue
from subtext.data.folders import visible
from subtext.data.image_files import image_exists
from subtext.data.rows import MARK, Record, Source, read_object, rows_of
from subtext.errors import DataError

PRIORITY = 30
LOOKS_FOR = "dataset_*.json (Karpathy)"
_IMAGES = re.compile(rb'"images"\s*:\s*\[')
_RESERVED = ("sentences", "filename", "filepath", "split", "sentids", "id")


def recognises(path: Path) -> bool:
    """Recognise Karpathy's JSON, or a folder with one.

    Args:
        path: File or folder; it need not exist.

    Returns:
        Whether it is one of these.
    """
    return _file(path) is not None


def _file(path: Path) -> Path | None:
    candidates = visible(path) if path.is_dir() else [path]
    files = [file for file in candidates if file.suffix.lower() == ".json" and file.is_file() and has_images(file)]
    return files[0] if len(files) == 1 else None


def has_images(path: Path) -> bool:
    """Test by the first 64 KiB whether a JSON file is one object with a list of `images`.

    Args:
        path: A file.

    Returns:
        Whether it is.
    """
    with path.open("rb") as file:
        start = file.read(65536).removeprefix(MARK)
    return start.lstrip().startswith(b"{") and _IMAGES.search(start) is not None


def read(path: Path, images: Path | None) -> Source:
    """Read images with all their sentences; "restval" counts as train.

    An image's id is its `cocoid` where it has one, else its file name; a text's id is its `sentid`. Its path is
    `filepath`/`filename`, or the file name alone where the images lie in one folder.

    Args:
        path: The JSON file or its folder.
        images: Folder of the images; None for the folder of the file.

    Returns:
        A row per image.

    Raises:
        DataError: If the file is no such JSON.
    """
    file = _file(path)
    assert file is not None
    entries = read_object(file, " with 'images'").get("images")
    if not isinstance(entries, list) or not entries:
        raise DataError(f"{file} needs a list of images in 'images'; it has none")
    if not any(isinstance(entry, dict) and "sentences" in entry for entry in entries):
        raise DataError(
            f"{file} needs 'sentences' for each image in 'images', as Karpathy's dataset_coco.json has them; it has "
            "none; use that file, or convert this one to JSON lines"
        )
    root = images if images is not None else file.parent
    nested, flat = (
        any(image_exists(_path(entry, is_flat), root) for entry in entries[:20]) for is_flat in (False, True)
    )
    return Source(rows_of(_records(entries, flat and not nested), None), root)


def _records(entries: list[Any], flat: bool) -> Iterator[Record]:
    for number, entry in enumerate(entries, start=1):
        where = f"image {number}"
        sentences: Any = entry.get("sentences") if isinstance(entry, dict) else None
        if not isinstance(sentences, list) or not all(
            isinstance(sentence, dict) and "raw" in sentence for sentence in sentences
        ):
            yield (
                where,
                RowIssue(where, "needs 'filename', and in 'sentences' a list of objects with a 'raw' text each"),
            )
            continue
        columns: dict[str, Any] = {
            "id": entry.get("cocoid", entry.get("id")),
            "image": _path(entry, flat),
            "captions": [sentence["raw"] for sentence in sentences],
            "split": entry.get("split"),
        }
        if sentences and all("sentid" in sentence for sentence in sentences):
            columns["text_ids"] = [sentence["sentid"] for sentence in sentences]
        yield where, {name: value for name, value in entry.items() if name not in _RESERVED} | columns


def _path(entry: Any, flat: bool) -> str:
    if not isinstance(entry, dict) or not isinstance(entry.get("filename"), str):
        return ""
    folder = entry.get("filepath")
    return entry["filename"] if flat or not folder else f"{folder}/{entry['filename']}"
