"""GoodNews as its authors publish it (Biten et al. 2019): articles of the New York Times with images and captions.

A folder with `captioning_dataset.json` (or `article+caption.json`, the cleaned release), an object
ARTICLE -> {"images": {NUMBER: caption}, "article": ..., "headline": ...}; `img_splits.json`, an object
ARTICLE_NUMBER -> split; and the images ARTICLE_NUMBER.jpg in `images` (or `resized`). The caption is the text; the
article is not read. Without `img_splits.json` the split is 80-10-10 at random.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from subtext.data.dataset import Problem
from subtext.data.rows import Record, Source, folder_of, joined, read_object, rows_of
from subtext.errors import DataError, counted

PRIORITY = 52
LOOKS_FOR = "captioning_dataset.json (GoodNews)"
_FILES = ("captioning_dataset.json", "article+caption.json", "article_caption.json")
_SPLITS = "img_splits.json"
_IMAGES = ("images", "resized", "")


def recognises(path: Path) -> bool:
    """Whether it is a folder with the articles."""
    return path.is_dir() and _articles(path) is not None


def _articles(folder: Path) -> Path | None:
    return next((folder / name for name in _FILES if (folder / name).is_file()), None)


def read(path: Path, images: Path | None) -> Source:
    """One image and one caption per row, named ARTICLE_NUMBER; images without a split are left out.

    Raises DataError when a file is no such JSON.
    """
    file = _articles(path)
    assert file is not None
    root = images if images is not None else path
    captions = _captions(read_object(file), file)
    splits = _splits(path / _SPLITS)
    problems = []
    if splits and (without := [name for name in captions if name not in splits]):
        problem = f"{_SPLITS} names no split for {counted(len(without), 'image')}; left out"
        problems.append(Problem(without[0], problem, fatal=False))
        captions = {name: caption for name, caption in captions.items() if name in splits}
    folder = folder_of((f"{name}.jpg" for name in captions), root, _IMAGES)
    return Source([*problems, *rows_of(_records(captions, splits, folder), None)], root)


def _captions(articles: Mapping[str, Any], file: Path) -> dict[str, tuple[str, Any]]:
    """Image -> its article and its caption."""
    captions = {}
    for article, content in articles.items():
        images = content.get("images") if isinstance(content, dict) else None
        if not isinstance(images, dict):
            raise DataError(
                f"{file} needs an object of 'images' (NUMBER: caption) in each article; '{article[:80]}' has none"
            )
        for number, caption in images.items():
            captions[f"{article}_{number}"] = (article, caption)
    return captions


def _splits(file: Path) -> dict[str, str]:
    """Image -> split; empty where there is no file."""
    if not file.is_file():
        return {}
    splits = read_object(file)
    if not all(isinstance(split, str) for split in splits.values()):
        raise DataError(f"{file} needs an object of IMAGE: split; it has other values; download it again")
    return {name.removesuffix(".jpg"): split for name, split in splits.items()}


def _records(captions: Mapping[str, tuple[str, Any]], splits: Mapping[str, str], folder: str) -> Iterator[Record]:
    for name, (article, caption) in captions.items():
        columns = {"id": name, "image": joined(folder, f"{name}.jpg"), "caption": caption, "article": article}
        yield f"image {name}", columns | ({"split": splits[name]} if splits else {})
