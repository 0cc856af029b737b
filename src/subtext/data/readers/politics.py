"""Politics (Thomas and Kovashka 2019): pictures of left- and right-leaning news sites, with their articles.

The release is pickles, which can run any program when they are opened, so Subtext opens none: docs/datasets.md has the
lines that write them as JSON, to be run by who trusts them. A folder then has `politics.jsonl`, a line a picture with
the release's own names: `local_path`, `content_text`, and the keys that it stood under, `leaning` and `issue`; and
`train_test_paths.json`, an object with the lists "train" and "test" of paths. The pictures lie under their local_path.

The text is the whole article; `subtext data prepare --sentences 2 --longer-than 500` and `subtext data dedup` make of
it what Thomas and Kovashka 2020 trained on, and what tables of their papers ask for. Validation is drawn from train, as
many pictures as there are in test.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from subtext.data.columns import Raw, rows_of
from subtext.data.places import read_object
from subtext.data.readers.table import raws
from subtext.data.rows import Problem, Row, Source
from subtext.errors import DataError
from subtext.ops import draw

FILE = "politics.jsonl"
_SPLITS = "train_test_paths.json"
_FIRST = 2**20
"""Bytes of the first line that are looked at; an article is shorter."""


def is_politics(folder: Path) -> bool:
    """Whether politics.jsonl has the release's own names, or its lists lie beside it: any table may be so named."""
    file = folder / FILE
    if not file.is_file():
        return False
    if (folder / _SPLITS).is_file():
        return True
    with file.open("rb") as lines:
        first = lines.readline(_FIRST)
    return b'"local_path"' in first or b'"content_text"' in first


def read_politics(folder: Path, images: Path | None) -> Source:
    """One picture and one article a row; what the two lists do not name is left out.

    The same picture under two issues is one; it keeps its first article.

    Raises DataError when a file is no such JSON.
    """
    return Source(_rows(folder / FILE, _splits(folder / _SPLITS)), images if images is not None else folder)


def _rows(file: Path, splits: Mapping[str, str] | None) -> Iterator[Row | Problem]:
    yield from rows_of(_raws(file, splits), None)


def _raws(file: Path, splits: Mapping[str, str] | None) -> Iterator[Raw]:
    seen: set[str] = set()
    for where, raw in raws(file):
        if isinstance(raw, Problem):
            yield where, raw
            continue
        path = raw.get("local_path")
        if not isinstance(path, str) or "content_text" not in raw:
            yield (
                where,
                Problem(where, "needs 'local_path' and 'content_text'; docs/datasets.md says how to write them"),
            )
            continue
        if path in seen or (splits is not None and path not in splits):
            continue
        seen.add(path)
        columns: dict[str, Any] = {"id": path, "image": path, "caption": raw["content_text"]}
        columns |= {name: raw[name] for name in ("leaning", "issue") if raw.get(name) is not None}
        yield where, columns | ({"split": splits[path]} if splits is not None else {})


def _splits(file: Path) -> dict[str, str] | None:
    """Path -> split; None where there is no file, and 80-10-10 are drawn."""
    if not file.is_file():
        return None
    lists = read_object(file)
    train, test = lists.get("train", lists.get("train_imgs")), lists.get("test", lists.get("test_imgs"))
    if not isinstance(train, list) or not isinstance(test, list):
        raise DataError(f"{file} needs lists of paths, 'train' and 'test'; it has {', '.join(sorted(lists)) or 'none'}")
    paths = list(dict.fromkeys(map(str, train)))
    drawn = draw.uniform(draw.keys(paths), seed=0, epoch=0, purpose="politics validation")[:, 0]
    held = min(len(test), len(paths) // 2)
    val = {paths[place] for place in np.argsort(drawn, kind="stable")[:held]}
    splits = {path: "val" if path in val else "train" for path in paths}
    return splits | dict.fromkeys(map(str, test), "test")
