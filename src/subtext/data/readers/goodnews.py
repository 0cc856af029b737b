"""GoodNews as its authors publish it (Biten et al. 2019): articles of the New York Times with pictures and captions.

A folder with `captioning_dataset.json` (or `article+caption.json`, the cleaned release), an object
ARTICLE -> {"images": {NUMBER: caption}, "article": ..., "headline": ...}; `img_splits.json`, an object
ARTICLE_NUMBER -> split; and the pictures ARTICLE_NUMBER.jpg in `images` (or `resized`). The caption is the text; the
article is not read. Without `img_splits.json` 80-10-10 are drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from subtext.data.columns import rows_of
from subtext.data.places import folder_of, joined, read_object
from subtext.data.rows import Problem, Source
from subtext.errors import DataError, counted

_FILES = ("captioning_dataset.json", "article+caption.json", "article_caption.json")
_SPLITS = "img_splits.json"
_IMAGES = ("images", "resized", "")


def goodnews_file(folder: Path) -> Path | None:
    """The file of the articles; None for a folder that is no GoodNews."""
    return next((folder / name for name in _FILES if (folder / name).is_file()), None)


def read_goodnews(folder: Path, images: Path | None) -> Source:
    """One picture and one caption a row, named ARTICLE_NUMBER; pictures that are in no split are left out.

    Raises DataError when a file is no such JSON.
    """
    file = goodnews_file(folder)
    assert file is not None
    root = images if images is not None else folder
    captions = _captions(read_object(file), file)
    splits = _splits(folder / _SPLITS)
    problems = []
    if splits and (left := [name for name in captions if name not in splits]):
        what = f"{_SPLITS} names no split for {counted(len(left), 'picture')}; left out"
        problems.append(Problem(left[0], what, fatal=False))
        captions = {name: told for name, told in captions.items() if name in splits}
    place = folder_of((f"{name}.jpg" for name in captions), root, _IMAGES)
    return Source([*problems, *rows_of(_raws(captions, splits, place), None)], root)


def _captions(articles: Mapping[str, Any], file: Path) -> dict[str, tuple[str, Any]]:
    """Picture -> its article and its caption."""
    found = {}
    for article, told in articles.items():
        pictures = told.get("images") if isinstance(told, dict) else None
        if not isinstance(pictures, dict):
            raise DataError(
                f"{file} needs an object of 'images' (NUMBER: caption) in each article; '{article[:80]}' has none"
            )
        for number, caption in pictures.items():
            found[f"{article}_{number}"] = (article, caption)
    return found


def _splits(file: Path) -> dict[str, str]:
    """Picture -> split; empty where there is no file."""
    if not file.is_file():
        return {}
    found = read_object(file)
    if not all(isinstance(split, str) for split in found.values()):
        raise DataError(f"{file} needs an object of PICTURE: split; it has other values; fetch it again")
    return {name.removesuffix(".jpg"): split for name, split in found.items()}


def _raws(
    captions: Mapping[str, tuple[str, Any]], splits: Mapping[str, str], place: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, (article, caption) in captions.items():
        columns = {"id": name, "image": joined(place, f"{name}.jpg"), "caption": caption, "article": article}
        yield f"picture {name}", columns | ({"split": splits[name]} if splits else {})
