"""GoodNews as its authors publish it (Biten et al. 2019): articles of the New York Times with images and captions.

A folder with `captioning_dataset.json` (or `article+caption.json`, the cleaned release), an object
ARTICLE -> {"images": {NUMBER: caption}, "article": ..., "headline": ...}; `img_splits.json`, an object
ARTICLE_NUMBER -> split; and the images ARTICLE_NUMBER.jpg in `images` (or `resized`). The caption is the text; the
article is not read. Without `img_splits.json` the split is 80-10-10 at random.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reproduce.readers.split_lists import rows_with_splits
from subtext.data.rows import Source, read_object
from subtext.errors import DataError

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

    Raises:
        DataError: If a file is no such JSON.
    """
    file = _articles(path)
    assert file is not None
    root = images if images is not None else path
    lists = path / _SPLITS
    splits = read_object(lists) if lists.is_file() else {}
    if not all(isinstance(split, str) for split in splits.values()):
        raise DataError(f"{lists} needs an object of IMAGE: split; it has other values; download it again")
    splits = {name.removesuffix(".jpg"): split for name, split in splits.items()}
    rows = rows_with_splits(_columns(file), splits, f"{_SPLITS} names", root, _IMAGES)
    return Source(list(rows), root)


def _columns(file: Path) -> dict[str, dict[str, Any]]:
    """ARTICLE_NUMBER -> the columns of the image."""
    rows = {}
    for article, content in read_object(file).items():
        images = content.get("images") if isinstance(content, dict) else None
        if not isinstance(images, dict):
            raise DataError(
                f"{file} needs an object of 'images' (NUMBER: caption) in each article; '{article[:80]}' has none"
            )
        for number, caption in images.items():
            name = f"{article}_{number}"
            rows[name] = {"id": name, "image": f"{name}.jpg", "caption": caption, "article": article}
    return rows
