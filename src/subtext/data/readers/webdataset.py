"""WebDataset tars: files of one name are one sample (000017.jpg, 000017.txt, 000017.json).

Images stay in the tar: a sample holds the offset of its image in it. A compressed tar has no such offsets; the bytes of
its images go on with their samples. Tars are read twice, first their names.
"""

from __future__ import annotations

import glob
import json
import re
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from subtext.data.dataset import RowIssue
from subtext.data.folders import IMAGES as SUFFIXES, iter_files
from subtext.data.image_files import inside
from subtext.data.rows import MARK, TEXT, Record, Row, Source, described, rows_of, split_in_name
from subtext.data.spool import KeySet
from subtext.errors import DataError

PRIORITY = 70
LOOKS_FOR = "*.tar (WebDataset)"

IMAGES = frozenset(suffix.removeprefix(".") for suffix in SUFFIXES)
"""Suffixes of members that are images."""

TARS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
"""Suffixes of shards."""

_TEXTS = frozenset(("txt", "text", "caption", "captions"))
_BROKEN = (tarfile.TarError, EOFError, OSError, zlib.error)
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")


def recognises(path: Path) -> bool:
    """Recognise a tar, a folder with tars, or a pattern that names some.

    Args:
        path: File, folder or pattern; it need not exist.

    Returns:
        Whether there are tars.
    """
    return bool(shards(path))


def shards(pattern: Path, refuse: Callable[[OSError], NoReturn] | None = None) -> list[Path]:
    """List the tars of a folder, one tar, or all that a pattern names.

    Args:
        pattern: A path, with braces ({000..017}, {a,b}) and * ? [ ] if it is a pattern.
        refuse: Called for a sub-folder that cannot be read; None passes over it.

    Returns:
        The tars in order; empty if there are none.

    Raises:
        DataError: If braces name more than a million shards.
    """
    if pattern.is_dir():
        return sorted(pattern / name for name in iter_files(pattern, refuse) if name.endswith(TARS))
    if pattern.is_file():
        return [pattern] if pattern.name.endswith(TARS) else []
    names = [name for text in _expand(str(pattern)) for name in sorted(glob.glob(text))]  # noqa: PTH207 (absolute too)
    return [Path(name) for name in dict.fromkeys(names) if name.endswith(TARS)]


def read(path: Path, images: Path | None) -> Source:
    """Read all samples of all shards. A shard's name gives its split ("train-0001.tar") where every shard's does.

    Args:
        path: A tar, a folder with tars, or a pattern.
        images: Folder of relative image paths; None for the folder of the shards.

    Returns:
        A row per sample.
    """

    def refuse(problem: OSError) -> NoReturn:
        raise DataError(f"{problem.filename} cannot be read: {problem.strerror}; its tars are not gone")

    files = shards(path, refuse)
    root = path if path.is_dir() else files[0].parent
    names = [file.relative_to(root).as_posix() if file.is_relative_to(root) else "" for file in files]
    splits = [split_in_name(name or file.name) for file, name in zip(files, names, strict=True)]

    def rows() -> Iterator[Row | RowIssue]:
        # Where shards share keys, each key gets the name of its shard as a prefix: hence all names are read first.
        shared = _has_twice(key for file in files for key in _keys(file))
        for file, name, split in zip(files, names, splits, strict=True):
            records = _records(file, name or str(file.resolve()))
            for row in rows_of(records, None, split=split if all(splits) else None):
                if shared and isinstance(row, Row):
                    row.image_id = f"{row.where.split(' sample ')[0]}/{row.image_id}"
                yield row

    return Source(rows(), images if images is not None else root)


def _records(path: Path, shard: str) -> Iterator[Record]:
    for sample in _samples(path, shard):
        if isinstance(sample, RowIssue):
            yield sample.where, sample
        else:
            # A name that is no UTF-8 must still be printable.
            where = f"{shard} sample {sample['id']}".encode("utf-8", "replace").decode()
            yield where, _columns(sample, where)


def _has_twice(keys: Iterable[str]) -> bool:
    seen = KeySet()
    for key in keys:
        if key in seen:
            return True
        seen.add(key)
    return False


def _keys(path: Path) -> Iterator[str]:
    """The keys of the samples that have an image, as far as a shard can be read."""
    for sample in _samples(path, "", names=True):
        if not isinstance(sample, RowIssue) and "image" in sample:
            yield sample["id"]


def _samples(path: Path, shard: str, *, names: bool = False) -> Iterator[dict[str, Any] | RowIssue]:
    """The consecutive members of one key; their `names` alone, or also what they hold."""
    sample: dict[str, Any] = {}
    count = 0
    try:
        with tarfile.open(path, "r:*") as tar:
            seekable = type(tar.fileobj).__name__ in ("BufferedReader", "FileIO", "ExFileObject", "_FileInFile")
            for member in tar:
                # tarfile remembers every member; those of a shard of a million would not fit in memory.
                tar.members = []  # type: ignore[attr-defined]
                folder, _, name = member.name.rpartition("/")
                stem, _, suffix = name.partition(".")
                if not member.isreg() or not stem or not suffix:
                    continue
                key = f"{folder}/{stem}" if folder not in ("", ".") else stem
                if sample and sample["id"] != key:
                    yield sample
                    count += 1
                    sample = {}
                sample["id"] = key
                suffix = suffix.lower()
                if names:
                    sample |= {"image": ""} if suffix.rpartition(".")[2] in IMAGES else {}
                elif suffix.rpartition(".")[2] in IMAGES and "image" not in sample:
                    sample["image"] = inside(shard, member.offset_data, member.size) if seekable else _data(tar, member)
                elif suffix in _TEXTS or suffix in ("json", "cls"):
                    sample[suffix] = _data(tar, member)
    except _BROKEN as error:
        # For a file that is no tar at all, the message has a line for every compression that was tried.
        reason = str(error).partition("\n")[0].rstrip(":")
        yield RowIssue(shard, f"is cut off or damaged after {count} samples: {reason}; download it again")
        return
    if sample:
        yield sample


def _data(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    return b"" if file is None else file.read()


def _columns(sample: dict[str, Any], where: str) -> dict[str, Any] | RowIssue:
    if "image" not in sample:
        return RowIssue(where, "has no image; its files end in none of " + ", ".join(sorted(IMAGES)))
    columns: dict[str, Any] = {"id": sample["id"], "image": sample["image"]}
    if "json" in sample:
        try:
            values = json.loads(sample["json"])
        except (ValueError, RecursionError) as error:
            return RowIssue(where, f"its .json is no JSON: {str(error)[:200]}", name=str(error)[:200])
        if not isinstance(values, dict):
            return RowIssue(where, f"its .json needs to be an object; it is {described(values)}")
        columns = {name: value for name, value in values.items() if name not in ("id", "image", "file_name")} | columns
    text = next((sample[suffix] for suffix in sorted(_TEXTS) if suffix in sample), None)
    if text is not None and not columns.get("captions"):
        columns = {name: value for name, value in columns.items() if name not in TEXT}
        columns["text"] = text.removeprefix(MARK).decode("utf-8", "surrogateescape").strip()
    if "cls" in sample:
        columns.setdefault("labels", sample["cls"].decode("utf-8", "replace").strip())
    return columns


def _expand(text: str) -> list[str]:
    braces = _BRACES.search(text)
    if braces is None:
        return [text]
    choices = braces[1].split(",")
    if span := _RANGE.fullmatch(braces[1]):
        first, last = int(span[1]), int(span[2])
        if abs(last - first) > 1_000_000:
            raise DataError(f"{text} names {abs(last - first):,} shards; use a smaller range")
        choices = [str(number).zfill(len(span[1])) for number in range(first, last + 1)]
    return [name for choice in choices for name in _expand(text[: braces.start()] + choice + text[braces.end() :])]
