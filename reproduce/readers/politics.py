"""Politics (Thomas and Kovashka 2019): images of left- and right-leaning news sites, with their articles.

The release consists of pickles, which can run any program when they are opened, so Subtext opens none: docs/datasets.md
has the lines that convert them to JSON, for those who trust them. A folder then has `politics.jsonl`, a line per image
with the release's own names: `local_path`, `content_text`, and the keys above it, `leaning` and `issue`; and
`train_test_paths.json`, an object with the lists "train" and "test" of paths. The images lie under their local_path.

The text is the full article; `python -m reproduce data prepare` with `--max-sentences 2 --longer-than 500`, and `data
dedup`, make of it what Thomas and Kovashka 2020 trained on, and what the tables of their papers need. Validation is
sampled from train, as many images as there are in test.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from subtext.data.dataset import RowIssue
from subtext.data.readers.table import records
from subtext.data.rows import Record, Source, read_object, rows_of
from subtext.errors import DataError
from subtext.ops import draw

PRIORITY = 50
LOOKS_FOR = "politics.jsonl"
_SPLITS = "train_test_paths.json"
_FIRST = 2**20
"""Bytes of the first line that are inspected; an article is shorter."""


def recognises(path: Path) -> bool:
    """Whether politics.jsonl has the release's own names, or its lists lie beside it: any table may have that name."""
    file = path / LOOKS_FOR
    if not file.is_file() or (path / _SPLITS).is_file():
        return file.is_file()
    with file.open("rb") as lines:
        first = lines.readline(_FIRST)
    return b'"local_path"' in first or b'"content_text"' in first


def read(path: Path, images: Path | None) -> Source:
    """One image and one article per row; images in neither of the two lists are left out.

    An image under two issues is one image with its first article.

    Raises:
        DataError: If a file is no such JSON.
    """
    rows = rows_of(_records(path / LOOKS_FOR, _splits(path / _SPLITS)), None)
    return Source(rows, images if images is not None else path)


def _records(file: Path, splits: Mapping[str, str] | None) -> Iterator[Record]:
    paths: set[str] = set()
    for where, entry in records(file):
        if isinstance(entry, RowIssue):
            yield where, entry
            continue
        path = entry.get("local_path")
        if not isinstance(path, str) or "content_text" not in entry:
            problem = "needs 'local_path' and 'content_text'; docs/datasets.md says how to write them"
            yield where, RowIssue(where, problem)
            continue
        if path in paths or (splits is not None and path not in splits):
            continue
        paths.add(path)
        columns = {"id": path, "image": path, "caption": entry["content_text"]}
        columns |= {name: entry.get(name) for name in ("leaning", "issue")}
        yield where, columns | ({"split": splits[path]} if splits is not None else {})


def _splits(file: Path) -> dict[str, str] | None:
    """Path -> split; None where there is no file, and the split is 80-10-10 at random."""
    if not file.is_file():
        return None
    lists = read_object(file)
    train, test = lists.get("train", lists.get("train_imgs")), lists.get("test", lists.get("test_imgs"))
    if not isinstance(train, list) or not isinstance(test, list):
        raise DataError(f"{file} needs lists of paths, 'train' and 'test'; it has {', '.join(sorted(lists)) or 'none'}")
    paths = list(dict.fromkeys(map(str, train)))
    draws = draw.uniform(draw.keys(paths), seed=0, epoch=0, purpose="politics validation")[:, 0]
    count = min(len(test), len(paths) // 2)
    val = {paths[row] for row in np.argsort(draws, kind="stable")[:count]}
    splits = {path: "val" if path in val else "train" for path in paths}
    return splits | dict.fromkeys(map(str, test), "test")
