"""WebDataset tars: files of one name are one sample (000017.jpg, 000017.txt, 000017.json).

Pictures stay where they are: a sample keeps the place of its picture inside the tar, so that memory does not grow with
the pictures. A compressed tar has no such places, and its pictures are kept in memory.
"""

from __future__ import annotations

import glob
import json
import re
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from subtext.data.columns import TEXT, Raw, described, rows_of
from subtext.data.image_files import inside
from subtext.data.rows import Problem, Row, Source
from subtext.data.splits import split_in_name
from subtext.errors import DataError

PICTURES = frozenset(("jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff", "ppm", "pgm", "jp2", "avif"))
"""Endings of members that are pictures."""

TARS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
"""Endings of shards."""

_WORDS = frozenset(("txt", "text", "caption", "captions"))
_BROKEN = (tarfile.TarError, EOFError, OSError, zlib.error)
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")


def shards(pattern: Path) -> list[Path]:
    """The tars of a folder, one tar, or all that a pattern names: braces ({000..017}, {a,b}) and * ? [ ].

    Empty when there is none.
    """
    if pattern.is_dir():
        found = [path for path in pattern.rglob("*") if path.name.endswith(TARS) and path.is_file()]
        return sorted(found)
    if pattern.is_file():
        return [pattern] if pattern.name.endswith(TARS) else []
    names = [name for text in _expand(str(pattern)) for name in sorted(glob.glob(text))]  # noqa: PTH207 (absolute too)
    return [Path(name) for name in dict.fromkeys(names) if name.endswith(TARS)]


def read_webdataset(pattern: Path, images: Path | None) -> Source:
    """All samples of all shards. A shard's name gives its split ("train-0001.tar") where every shard's does."""
    paths = shards(pattern)
    root = pattern if pattern.is_dir() else paths[0].parent
    named = [
        split_in_name(path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name) for path in paths
    ]
    splits = named if all(named) else [None] * len(paths)
    rows = [row for path, split in zip(paths, splits, strict=True) for row in _rows(path, root, split)]
    return Source(_unique(rows), images if images is not None else root)


def _rows(path: Path, root: Path, split: str | None) -> Iterator[Row | Problem]:
    shard = path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path.resolve())
    raws: list[Raw] = []
    for sample in _samples(path, shard):
        if isinstance(sample, Problem):
            raws.append((sample.where, sample))
        else:
            # A name that is no UTF-8 has to be shown somehow.
            where = f"{shard} sample {sample['id']}".encode("utf-8", "replace").decode()
            raws.append((where, _columns(sample, where)))
    yield from rows_of(raws, None, split=split)


def _samples(path: Path, shard: str) -> Iterator[dict[str, Any] | Problem]:
    """Members of one key, as they stand one after the other."""
    sample: dict[str, Any] = {}
    count = 0
    try:
        with tarfile.open(path, "r:*") as tar:
            plain = type(tar.fileobj).__name__ in ("BufferedReader", "FileIO", "ExFileObject", "_FileInFile")
            for member in tar:
                # tarfile remembers every member it has seen; a shard of a million would not fit.
                tar.members = []  # type: ignore[attr-defined]
                folder, _, name = member.name.rpartition("/")
                stem, _, ending = name.partition(".")
                if not member.isreg() or not stem or not ending:
                    continue
                key = f"{folder}/{stem}" if folder not in ("", ".") else stem
                if sample and sample["id"] != key:
                    yield sample
                    count += 1
                    sample = {}
                sample["id"] = key
                ending = ending.lower()
                if ending.rpartition(".")[2] in PICTURES and "image" not in sample:
                    sample["image"] = inside(shard, member.offset_data, member.size) if plain else _data(tar, member)
                elif ending in _WORDS or ending in ("json", "cls"):
                    sample[ending] = _data(tar, member)
    except _BROKEN as error:
        # Of a file that is no tar at all, the message has a line for every compression that was tried.
        reason = str(error).partition("\n")[0].rstrip(":")
        yield Problem(shard, f"is cut off or damaged after {count} samples: {reason}; fetch it again")
        return
    if sample:
        yield sample


def _data(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    return b"" if file is None else file.read()


def _columns(sample: dict[str, Any], where: str) -> dict[str, Any] | Problem:
    if "image" not in sample:
        return Problem(where, "has no picture; its files end in none of " + ", ".join(sorted(PICTURES)))
    columns: dict[str, Any] = {"id": sample["id"], "image": sample["image"]}
    if "json" in sample:
        try:
            found = json.loads(sample["json"])
        except (ValueError, RecursionError) as error:
            return Problem(where, f"its .json is no JSON: {str(error)[:200]}", name=str(error)[:200])
        if not isinstance(found, dict):
            return Problem(where, f"its .json needs to be an object; it is {described(found)}")
        columns = {name: value for name, value in found.items() if name not in ("id", "image", "file_name")} | columns
    written = next((sample[ending] for ending in sorted(_WORDS) if ending in sample), None)
    if written is not None and not columns.get("captions"):
        columns = {name: value for name, value in columns.items() if name not in TEXT}
        columns["text"] = written.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape").strip()
    if "cls" in sample:
        columns.setdefault("labels", sample["cls"].decode("utf-8", "replace").strip())
    return columns


def _unique(rows: list[Row | Problem]) -> list[Row | Problem]:
    """Keys that begin anew in every shard get the shard's name before them."""
    counts = Counter(row.image_id for row in rows if isinstance(row, Row))
    if not counts or max(counts.values()) == 1:
        return rows
    return [
        replace(row, image_id=f"{row.where.split(' sample ')[0]}/{row.image_id}") if isinstance(row, Row) else row
        for row in rows
    ]


def _expand(text: str) -> list[str]:
    found = _BRACES.search(text)
    if found is None:
        return [text]
    span = _RANGE.fullmatch(found[1])
    if span is None:
        choices = found[1].split(",")
    else:
        first, last = int(span[1]), int(span[2])
        if abs(last - first) > 1_000_000:
            raise DataError(f"{text} names {abs(last - first):,} shards; give a smaller range")
        choices = [str(number).zfill(len(span[1])) for number in range(first, last + 1)]
    return [name for choice in choices for name in _expand(text[: found.start()] + choice + text[found.end() :])]
