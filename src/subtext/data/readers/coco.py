"""COCO as its authors publish it (Lin et al. 2014, Chen et al. 2015): captions_*.json, and instances_*.json beside it.

A folder with `annotations/captions_train2014.json` and `annotations/captions_val2014.json` (or those of 2017), the
pictures in `train2014` and `val2014`. Where `annotations/instances_*.json` are there too, the names of the objects in a
picture become its `labels`, which judge what is plausible beyond the pairs. Where Karpathy's `dataset_coco.json` is
there, its splits and sentences are read instead of those of the captions files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from subtext.data.columns import rows_of
from subtext.data.places import folder_of, joined, read_object
from subtext.data.readers.karpathy import is_karpathy, read_karpathy
from subtext.data.rows import Problem, Row, Source
from subtext.data.splits import MERGED
from subtext.errors import DataError

_CAPTIONS = re.compile(r"captions_([a-z]+)(\d*)\.json")
_KARPATHY = "dataset_coco.json"


def coco_files(path: Path) -> list[Path]:
    """The captions files of a folder (in it, or in `annotations`), or a captions file itself; else empty."""
    if path.is_file():
        return [path] if _is_cocos(path) else []
    for folder in (path / "annotations", path):
        found = sorted(file for file in folder.glob("captions_*.json") if _is_cocos(file))
        if found:
            return found
    return []


def read_coco(path: Path, images: Path | None) -> Source:
    """Pictures with all their captions; ids are COCO's own. The files' names give the splits.

    Raises DataError when a file is no such JSON.
    """
    files = coco_files(path)
    home = files[0].parent
    root = images if images is not None else (home.parent if home.name == "annotations" else home)
    karpathy = path / _KARPATHY
    if path.is_dir() and karpathy.is_file():
        labels = _labels([file.parent for file in files[:1]])
        source = read_karpathy(karpathy, root)
        return replace(source, rows=_labelled(source.rows, labels))
    return Source((row for file in files for row in _rows(file, root)), root)


def _is_cocos(file: Path) -> bool:
    """Whether it is named and begins as COCO's: one's own table, or one in Karpathy's form, may have that name."""
    if not _CAPTIONS.fullmatch(file.name) or not is_karpathy(file):
        return False
    with file.open("rb") as opened:
        return b'"sentences"' not in opened.read(65536)


def _rows(file: Path, root: Path) -> Iterator[Row | Problem]:
    data = read_object(file)
    entries, annotations = data.get("images"), data.get("annotations")
    if not isinstance(entries, list) or not isinstance(annotations, list):
        raise DataError(f"{file} needs lists of 'images' and 'annotations', as COCO publishes them; it has others")
    found = _CAPTIONS.fullmatch(file.name)
    assert found is not None
    instances = file.with_name(file.name.replace("captions_", "instances_"))
    labels = _objects(instances) if instances.is_file() else {}
    split = found[1] + found[2]
    names = (str(entry["file_name"]) for entry in entries if isinstance(entry, dict) and "file_name" in entry)
    folder = folder_of(names, root, (split, "", "images", f"images/{split}"))
    yield from rows_of(_raws(entries, annotations, labels, folder), None, split=MERGED.get(found[1], found[1]))


def _raws(
    entries: list[Any], annotations: list[Any], labels: Mapping[str, list[str]], folder: str
) -> Iterator[tuple[str, dict[str, Any] | Problem]]:
    captions: dict[str, list[tuple[Any, Any]]] = {}
    for annotation in annotations:
        if isinstance(annotation, dict):
            of = captions.setdefault(str(annotation.get("image_id")), [])
            of.append((annotation.get("id"), annotation.get("caption")))
    for number, entry in enumerate(entries, start=1):
        where = f"picture {number}"
        if not isinstance(entry, dict) or "file_name" not in entry or "id" not in entry:
            yield where, Problem(where, "needs 'id' and 'file_name'")
            continue
        name = str(entry["id"])
        texts = captions.get(name, [])
        columns = {
            "id": name,
            "image": joined(folder, str(entry["file_name"])),
            "captions": [text for _, text in texts],
        }
        if texts and all(number is not None for number, _ in texts):
            columns["text_ids"] = [number for number, _ in texts]
        yield where, columns | ({"labels": labels[name]} if name in labels else {})


def _objects(file: Path) -> dict[str, list[str]]:
    """Picture id -> the names of the objects in it, in order."""
    data = read_object(file)
    try:
        names = {category["id"]: str(category["name"]) for category in data["categories"]}
        found: dict[str, set[str]] = {}
        for annotation in data["annotations"]:
            found.setdefault(str(annotation["image_id"]), set()).add(names[annotation["category_id"]])
    except (KeyError, TypeError) as error:
        raise DataError(
            f"{file} needs 'categories' and 'annotations' with 'image_id' and 'category_id'; {error!r} is wrong there; "
            "fetch it again, or take it away (labels are then absent)"
        ) from error
    return {name: sorted(objects) for name, objects in found.items()}


def _labels(folders: list[Path]) -> dict[str, list[str]]:
    files = [file for folder in folders for file in sorted(folder.glob("instances_*.json"))]
    return {name: objects for file in files for name, objects in _objects(file).items()}


def _labelled(rows: Any, labels: Mapping[str, list[str]]) -> Iterator[Row | Problem]:
    for row in rows:
        if isinstance(row, Row) and row.image_id is not None and row.image_id in labels:
            row.more = {**row.more, "labels": labels[row.image_id]}
        yield row
