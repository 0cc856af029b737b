"""COCO as its authors publish it (Lin et al. 2014, Chen et al. 2015): captions_*.json, and instances_*.json beside it.

A folder with `annotations/captions_train2014.json` and `annotations/captions_val2014.json` (or those of 2017), the
images in `train2014` and `val2014`. Where `annotations/instances_*.json` exist, the names of the objects in an image
become its `labels`, by which PMRP and other relevances judge. Where Karpathy's `dataset_coco.json` exists, its splits
and sentences are read instead of those of the captions files.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from subtext.data.dataset import RowIssue
from subtext.data.folders import TABLES, visible
from subtext.data.readers import karpathy
from subtext.data.rows import MERGED, Record, Row, Source, folder_of, read_object, rows_of
from subtext.errors import DataError

PRIORITY = 40
LOOKS_FOR = "captions_*.json (COCO)"
_CAPTIONS = re.compile(r"captions_([a-z]+)(\d*)\.json")
_KARPATHY = "dataset_coco.json"


def recognises(path: Path) -> bool:
    """Recognise a captions file, or a folder with some and without a table, which would be made from them.

    Args:
        path: File or folder; it need not exist.

    Returns:
        Whether it is one of these.
    """
    if not _captions_files(path):
        return False
    return path.is_file() or not any(file.suffix.lower() in set(TABLES) - {".json"} for file in path.iterdir())


def _captions_files(path: Path) -> list[Path]:
    """The captions files of a folder (in it, or in `annotations`), or a captions file itself; else empty."""
    if path.is_file():
        return [path] if _is_coco(path) else []
    folders = (path / "annotations", path)
    lists = (list(filter(_is_coco, visible(folder, "captions_*.json"))) for folder in folders)
    return next(filter(None, lists), [])


def read(path: Path, images: Path | None) -> Source:
    """Read images with all their captions; ids are COCO's own. The files' names give the splits.

    Args:
        path: A captions file or a folder with some.
        images: Folder of the images; None for the folder above `annotations`.

    Returns:
        A row per image, with labels where there are instances.

    Raises:
        DataError: If a file is no such JSON.
    """
    files = _captions_files(path)
    folder = files[0].parent
    root = images if images is not None else (folder.parent if folder.name == "annotations" else folder)
    if path.is_dir() and (path / _KARPATHY).is_file():
        objects = [_objects(file) for file in sorted(folder.glob("instances_*.json"))]
        labels: dict[str | None, list[str]] = {name: names for image in objects for name, names in image.items()}
        source = karpathy.read(path / _KARPATHY, root)
        rows = list(source.rows)
        for row in rows:
            if isinstance(row, Row) and row.image_id in labels:
                row.metadata["labels"] = labels[row.image_id]
        return replace(source, rows=rows)
    return Source((row for file in files for row in _rows(file, root)), root)


def _is_coco(file: Path) -> bool:
    """Whether it is named and begins as COCO's: any table, or one in Karpathy's form, may have that name."""
    if not _CAPTIONS.fullmatch(file.name) or not karpathy.has_images(file):
        return False
    with file.open("rb") as start:
        return b'"sentences"' not in start.read(65536)


def _rows(file: Path, root: Path) -> Iterator[Row | RowIssue]:
    data = read_object(file)
    entries, annotations = data.get("images"), data.get("annotations")
    if not isinstance(entries, list) or not isinstance(annotations, list):
        raise DataError(f"{file} needs lists of 'images' and 'annotations', as COCO publishes them; it has others")
    match = _CAPTIONS.fullmatch(file.name)
    assert match is not None
    instances = file.with_name(file.name.replace("captions_", "instances_"))
    labels = _objects(instances) if instances.is_file() else {}
    split = match[1] + match[2]
    names = (str(entry["file_name"]) for entry in entries if isinstance(entry, dict) and "file_name" in entry)
    folder = folder_of(names, root, (split, "", "images", f"images/{split}"))
    records = _records(entries, annotations, labels)
    yield from rows_of(records, None, folder=folder, split=MERGED.get(match[1], match[1]))


def _records(entries: list[Any], annotations: list[Any], labels: Mapping[str, list[str]]) -> Iterator[Record]:
    captions: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for annotation in annotations:
        if isinstance(annotation, dict):
            captions[str(annotation.get("image_id"))].append(annotation)
    for number, entry in enumerate(entries, start=1):
        where = f"image {number}"
        if not isinstance(entry, dict) or "file_name" not in entry or "id" not in entry:
            yield where, RowIssue(where, "needs 'id' and 'file_name'")
            continue
        name = str(entry["id"])
        columns: dict[str, Any] = {"id": name, "image": str(entry["file_name"])}
        columns["captions"] = [text.get("caption") for text in captions[name]]
        text_ids = [text.get("id") for text in captions[name]]
        if text_ids and None not in text_ids:
            columns["text_ids"] = text_ids
        yield where, columns | ({"labels": labels[name]} if name in labels else {})


def _objects(file: Path) -> dict[str, list[str]]:
    """Image id -> the names of the objects in it, in order."""
    data = read_object(file)
    try:
        names = {category["id"]: str(category["name"]) for category in data["categories"]}
        objects: dict[str, set[str]] = defaultdict(set)
        for annotation in data["annotations"]:
            objects[str(annotation["image_id"])].add(names[annotation["category_id"]])
    except (KeyError, TypeError) as error:
        raise DataError(
            f"{file} needs 'categories' and 'annotations' with 'image_id' and 'category_id'; {error!r} is wrong there; "
            "download it again, or remove it (labels are then absent)"
        ) from error
    return {name: sorted(names) for name, names in objects.items()}
