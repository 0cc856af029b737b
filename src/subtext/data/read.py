"""Read a data set: find its reader, assemble its rows into a Dataset, and check its images.

Checks that image files exist and can be decoded.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from subtext.data.batches import read_ahead
from subtext.data.dataset import Dataset, Items, Judgements, Problem, summarise
from subtext.data.image_files import image_exists, open_image
from subtext.data.readers import readers
from subtext.data.readers.table import TABLES
from subtext.data.rows import MERGED, Progress, Row, RowError, Source, draw_splits
from subtext.errors import DataError, counted

_TEXT_COLUMNS = ("language",)
"""Columns that describe a text, and are lists where a row has several."""


class UnusableData(DataError):
    """A data set of which nothing, or not enough, can be used; `problems` has the reasons, row by row."""

    def __init__(self, message: str, problems: list[Problem]) -> None:
        super().__init__(message)
        self.problems = problems


def read(
    path: str | Path,
    *,
    images: str | Path | None = None,
    split_seed: int = 0,
    on_error: Literal["raise", "skip"] = "raise",
    verify: bool = False,
    merge_split: Mapping[str, str] | None = None,
    need_images: bool = True,
    progress: Progress | None = None,
) -> Dataset:
    """Read a data set of any format that a reader recognises.

    images       folder that relative image paths start from; by default the data set's own, or its `images`
    split_seed   of the 80-10-10 split by group, for data without splits
    on_error     "raise" when a row cannot be used, or "skip" such rows
    verify       decode every image once; `progress` gets the number of decoded images and their total
    merge_split  further names of splits that are read as another ("restval", "dev" and the like are built in)
    need_images  False where features replace the images, whose files may be missing then

    Raises DataError when no reader fits, no pair remains, or a row cannot be used and on_error is "raise".
    """
    path = Path(path).expanduser()
    folder = None if images is None else Path(images).expanduser()
    try:
        source = open_source(path, folder)
        dataset, where = _assemble(source, split_seed, {**MERGED, **(merge_split or {})})
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    if folder is None:
        dataset = replace(dataset, root=_root(source, dataset.images.values))
    problems = list(dataset.problems)
    if need_images and len(dataset.images):
        dataset, image_problems = check_images(dataset, where, verify=verify, progress=progress)
        problems += image_problems
    fatal = [problem for problem in problems if problem.fatal]
    reasons = summarise(fatal)
    summary = f": {'; '.join(reasons[:3])}{'; ...' if len(reasons) > 3 else ''}" if reasons else ""
    if not len(dataset.links):
        raise UnusableData(f"{path} needs at least one image with a text; it has none{summary}", problems)
    if fatal and on_error == "raise":
        raise UnusableData(
            f"{path} has {counted(len(fatal), 'problem')}{summary}; correct {'it' if len(fatal) == 1 else 'them'}, "
            "or skip unusable rows (--on-error skip)",
            problems,
        )
    return replace(dataset, problems=tuple(problems))


def open_source(path: Path, images: Path | None) -> Source:
    """The rows of the data set at a path, by the first reader that recognises it.

    Raises DataError that names what the readers look for when none does.
    """
    if images is not None and not images.is_dir():
        raise DataError(f"the image folder needs to exist; {images} {'is a file' if images.exists() else 'does not'}")
    if path.is_file() and path.stat().st_size == 0:
        raise DataError(f"{path} needs rows; the file is empty")
    available = readers()
    reader = next((reader for reader in available if reader.recognises(path)), None)
    if reader is not None:
        return reader.read(path, images)
    if path.is_file():
        raise DataError(
            f"a data set needs a file with the suffix {', '.join(TABLES)} or .tar; it got {path.name}; or name a folder"
        )
    if not path.is_dir():
        raise DataError(f"a data set needs a file, a folder or a pattern of tars; {path} does not exist")
    files = ", ".join(sorted(file.name for file in path.iterdir())[:8]) or "nothing"
    forms = "; ".join(reader.LOOKS_FOR for reader in available)
    raise DataError(f"{path} has no known format; looked for {forms}; it contains {files}")


def _root(source: Source, values: list[str | bytes | None]) -> Path:
    """The source's own root, or its folder `images` where the first images lie there and not in the root."""
    first = [value for value in values[:20] if isinstance(value, str)]
    folder = source.root / "images"
    if not first or any(image_exists(value, source.root) for value in first):
        return source.root
    return folder if any(image_exists(value, folder) for value in first) else source.root


def _assemble(source: Source, seed: int, merged_splits: Mapping[str, str]) -> tuple[Dataset, list[str]]:
    """All rows as a Dataset, and where each image was first named; contradicting rows become problems."""
    assembly = _Assembly(merged_splits)
    problems = []
    for row in source.rows:
        if isinstance(row, Problem):
            problems.append(row)
            continue
        try:
            assembly.add(row)
        except RowError as error:
            problems.append(error.at(row.where))
    assembly.link_groups()
    splits, missing = _splits(assembly.groups, seed)
    dataset = Dataset(
        images=assembly.images.items(splits),
        texts=assembly.texts.items(splits),
        links=np.array(list(assembly.links), dtype=np.int64).reshape(-1, 2),
        root=source.root,
        judgements=_judgements(source, assembly),
        problems=(*problems, *missing),
        features=source.features,
    )
    # Items without a split or a partner are left out.
    linked = np.zeros(len(dataset.images), dtype=bool)
    linked[dataset.links[:, 0]] = True
    linked[list(assembly.unpaired)] = True
    image_rows = np.flatnonzero(linked & (dataset.images.splits != "")).astype(np.int64)
    text_rows = np.flatnonzero(dataset.texts.splits != "").astype(np.int64)
    if len(image_rows) < len(dataset.images) or len(text_rows) < len(dataset.texts):
        dataset = dataset.subset(image_rows, text_rows)
    return dataset, [assembly.images.where[row] for row in image_rows]


def _splits(groups: _Groups, seed: int) -> tuple[NDArray[np.character], list[Problem]]:
    """The split of each group: its own, "" where it has none, or a random one where no group has any."""
    if all(split is None for split in groups.splits):
        return draw_splits(groups.first, seed=seed), []
    missing = [
        Problem(where, "has no split, and other rows have one; name the split of every row")
        for split, where in zip(groups.splits, groups.where, strict=True)
        if split is None
    ]
    return np.array([split or "" for split in groups.splits]), missing


def _judgements(source: Source, assembly: _Assembly) -> Judgements | None:
    if not source.judgements:
        return None
    text_rows, image_rows = assembly.texts.row_of, assembly.images.row_of
    rows = [
        (text_rows[text], image_rows[image], score)
        for text, image, score in source.judgements
        if text in text_rows and image in image_rows
    ]
    return Judgements(
        texts=np.array([text for text, _, _ in rows], dtype=np.int64),
        images=np.array([image for _, image, _ in rows], dtype=np.int64),
        scores=np.array([score for _, _, score in rows], dtype=np.float32),
    )


@dataclass
class _Column:
    """Images or texts, a row each: the columns of Items, where each was first named, and its row by name."""

    ids: list[str] = field(default_factory=list)
    values: list[str | bytes | None] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    metadata: list[Mapping[str, Any]] = field(default_factory=list)
    where: list[str] = field(default_factory=list)
    row_of: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, value: str | bytes | None, group: int, metadata: Mapping[str, Any], where: str) -> int:
        """The row of a new item."""
        row = len(self.ids)
        self.row_of[name] = row
        self.ids.append(name)
        self.values.append(value)
        self.groups.append(group)
        self.metadata.append(metadata)
        self.where.append(where)
        return row

    def items(self, splits: NDArray[np.character]) -> Items:
        """All of them as columns; `splits` has one entry per group."""
        groups = np.asarray(self.groups, dtype=np.int64)
        names = dict.fromkeys(name for columns in self.metadata for name in columns)
        return Items(
            ids=self.ids,
            values=self.values,
            groups=groups,
            splits=splits[groups],
            metadata={name: [columns.get(name) for columns in self.metadata] for name in names},
        )


@dataclass
class _Groups:
    """Groups by number: their names, their first image and row, and their split."""

    row_of: dict[str, int] = field(default_factory=dict)
    first: list[str] = field(default_factory=list)
    splits: list[str | None] = field(default_factory=list)
    where: list[str] = field(default_factory=list)
    names: list[str | None] = field(default_factory=list)

    def add(self, name: str | None, first: str, split: str | None, where: str) -> int:
        """The number of a new group; `first` is its first image."""
        number = len(self.first)
        if name is not None:
            self.row_of[name] = number
        self.first.append(first)
        self.splits.append(split)
        self.where.append(where)
        self.names.append(name)
        return number


class _Assembly:
    """Takes rows one by one, and refuses those that contradict earlier ones.

    links     (image row, text row) of every pair, in order
    unpaired  images that have no partner on purpose
    """

    def __init__(self, merged_splits: Mapping[str, str]) -> None:
        self.merged_splits = merged_splits
        self.images, self.texts, self.groups = _Column(), _Column(), _Groups()
        self.by_path: dict[str | bytes, int] = {}
        self.links: dict[tuple[int, int], None] = {}
        self.text_of: dict[tuple[int, str], int] = {}
        self.text_counts: dict[int, int] = {}
        self.unpaired: set[int] = set()

    def add(self, row: Row) -> None:
        """Add a row. Raises RowError when it contradicts an earlier one."""
        split = row.split and self.merged_splits.get(row.split.lower(), row.split)
        image = None
        if row.image is not None or row.image_id is not None:
            image = self._image(row, split)
            if row.unpaired:
                self.unpaired.add(image)
        group = self.images.groups[image] if image is not None else self._group_of_text(row, split)
        for number, text in enumerate(row.texts):
            self._text(row, number, text, image, group)

    def link_groups(self) -> None:
        """Link an image without a text of its own, in a group that has texts, to all of them."""
        linked = {image for image, _ in self.links} | self.unpaired
        without = [row for row in range(len(self.images.ids)) if row not in linked]
        if not without:
            return
        texts: dict[int, list[int]] = {}
        for row, group in enumerate(self.texts.groups):
            texts.setdefault(group, []).append(row)
        for image in without:
            for text in texts.get(self.images.groups[image], []):
                self.links[(image, text)] = None

    def _image(self, row: Row, split: str | None) -> int:
        path = row.image
        image = None if path is None else self.by_path.get(path)
        digest = "" if isinstance(path, str) else blake2b(path or b"", digest_size=8).hexdigest()
        name = row.image_id or (path if isinstance(path, str) else digest)
        same_name = self.images.row_of.get(name)
        if image is None and same_name is not None:
            value = self.images.values[same_name]
            if path is not None and value is not None:
                shown = value if isinstance(value, str) else "stored as bytes"
                raise RowError(
                    f"id '{name}' names another image ({shown}, {self.images.where[same_name]}); ids need to be unique"
                )
            image = same_name
        elif image is not None and same_name is not None and same_name != image:
            raise RowError(f"id '{name}' names another image ({self.images.where[same_name]}); ids need to be unique")
        if image is None:
            image = self.images.add(name, path, self._group(row, split, name), row.metadata, row.where)
            if path is not None:
                self.by_path[path] = image
            return image
        # An image that is named again needs to be in the same group and the same split.
        group = self.images.groups[image]
        self._require_one_split(f"image '{self.images.ids[image]}'", split, group)
        if row.group is not None and self.groups.names[group] != row.group:
            raise RowError(
                f"image '{self.images.ids[image]}' is in group '{row.group}' here and in "
                f"'{self.groups.names[group]}' ({self.images.where[image]}); an image needs to be in one group"
            )
        self.images.row_of.setdefault(name, image)
        return image

    def _group(self, row: Row, split: str | None, first: str) -> int:
        number = None if row.group is None else self.groups.row_of.get(row.group)
        if number is None:
            return self.groups.add(row.group, first, split, row.where)
        self._require_one_split(f"group '{row.group}'", split, number)
        return number

    def _group_of_text(self, row: Row, split: str | None) -> int:
        text = row.text_ids and self.texts.row_of.get(row.text_ids[0])
        if isinstance(text, int):
            return self.texts.groups[text]
        return self._group(row, split, (row.text_ids or [""])[0] or row.where)

    def _require_one_split(self, subject: str, split: str | None, group: int) -> None:
        before = self.groups.splits[group]
        if before is None:
            self.groups.splits[group] = split
        elif split is not None and before != split:
            raise RowError(
                f"{subject} is in split '{split}' here and in '{before}' ({self.groups.where[group]}); it needs to be "
                "in one split only"
            )

    def _text(self, row: Row, number: int, value: str | None, image: int | None, group: int) -> None:
        named_group = self.groups.names[group] is not None
        if row.text_ids is not None:
            name = row.text_ids[number]
            text = self.texts.row_of.get(name)
            if text is not None and (self.texts.values[text] != value or self.texts.groups[text] != group):
                raise RowError(
                    f"text id '{name}' names another text ({self.texts.where[text]}); ids need to be unique, "
                    "and a text of several images needs them in one group"
                )
        else:
            owner = self.images.ids[image] if image is not None else row.where
            # In a group that the file names, the same words from another image are the same text.
            text = self.text_of.get((group, value)) if named_group and value is not None else None
            if text is not None and image is not None and (image, text) in self.links:
                text = None
            name = self._next_name(owner, group if image is None else image) if text is None else ""
        if text is None:
            count = len(row.texts)
            metadata: Mapping[str, Any] = row.metadata
            for column in _TEXT_COLUMNS if count > 1 else ():
                values = metadata.get(column)
                if isinstance(values, list) and len(values) == count:
                    metadata = {**metadata, column: values[number]}
            text = self.texts.add(name, value, group, metadata, row.where)
            if named_group and value is not None:
                self.text_of.setdefault((group, value), text)
        if image is not None:
            self.links[(image, text)] = None

    def _next_name(self, owner: str, key: int) -> str:
        """IMAGE#0, IMAGE#1, ...: the names by which text features are joined."""
        while True:
            number = self.text_counts.get(key, 0)
            self.text_counts[key] = number + 1
            name = f"{owner}#{number}"
            if name not in self.texts.row_of:
                return name


def check_images(
    dataset: Dataset, where: list[str], *, verify: bool, progress: Progress | None = None
) -> tuple[Dataset, list[Problem]]:
    """The dataset whose images can be used, and a problem for each image that cannot.

    verify  decode every image, in threads; otherwise only check that its file exists

    Where no file exists the folder is wrong, which is one problem and not one per row.
    """
    dataset = _respelled(dataset)
    missing = _missing(dataset.images, dataset.root)
    if len(missing) == len(dataset.images) > 1:
        first = (dataset.root / str(dataset.images.values[0])).absolute()
        message = f"none of the {len(missing):,} exists; the first path was {first}; name their folder (--images)"
        return keep_images(dataset, np.empty(0, dtype=np.int64)), [Problem("images", message)]
    reasons = _without_file(dataset.images) | missing
    if verify:
        reasons |= _undecodable(dataset, set(reasons), progress)
    if not reasons:
        return dataset, []
    keep = np.ones(len(dataset.images), dtype=bool)
    keep[list(reasons)] = False
    problems = [
        Problem(where[row], message, name=_name_in(message, dataset.images, row))
        for row, message in sorted(reasons.items())
    ]
    return keep_images(dataset, np.flatnonzero(keep).astype(np.int64)), problems


def keep_images(dataset: Dataset, rows: NDArray[np.int64]) -> Dataset:
    """The images at these rows, and the texts that still have an image or never had one."""
    keep = np.zeros(len(dataset.images), dtype=bool)
    keep[rows] = True
    had, has = (np.zeros(len(dataset.texts), dtype=bool) for _ in range(2))
    had[dataset.links[:, 1]] = True
    has[dataset.links[keep[dataset.links[:, 0]], 1]] = True
    return dataset.subset(rows, np.flatnonzero(has | ~had).astype(np.int64))


def _without_file(images: Items) -> dict[int, str]:
    """Images without a file, where others have one; where none has, all are known by features."""
    without = [row for row, value in enumerate(images.values) if value is None]
    if len(without) == len(images):
        return {}
    return {row: f"image '{images.ids[row]}' has no file, and others have one; fill in its 'image'" for row in without}


def _missing(images: Items, root: Path) -> dict[int, str]:
    """Images whose file does not exist: each folder is listed once, which is faster than a check per file."""
    listed: dict[str, set[str]] = {}
    missing = {}
    start = os.fspath(root)
    for row, value in enumerate(images.values):
        if not isinstance(value, str) or "?offset=" in value:
            continue
        folder, name = os.path.split(os.path.join(start, value))  # noqa: PTH118 (30,000 paths, once per image)
        if folder not in listed:
            listed[folder] = _names_in(folder)
        if name not in listed[folder]:
            missing[row] = f"image '{value}' is not in {root}; name the folder of the images (--images)"
    return missing


def _name_in(sentence: str, images: Items, row: int) -> str:
    """The name of the image as the sentence has it."""
    value = images.values[row]
    name = value if isinstance(value, str) else images.ids[row]
    return next((form for form in (f"'{name}'", name) if form in sentence), "")


def _respelled(dataset: Dataset) -> Dataset:
    """Paths as the disk spells them: an accent is one character or two, and some archivers convert between them."""
    values = list(dataset.images.values)
    for row, value in enumerate(values):
        if isinstance(value, str) and not value.isascii() and not image_exists(value, dataset.root):
            forms = (unicodedata.normalize(form, value) for form in ("NFC", "NFD"))
            values[row] = next((form for form in forms if image_exists(form, dataset.root)), value)
    return (
        replace(dataset, images=replace(dataset.images, values=values)) if values != dataset.images.values else dataset
    )


def _names_in(folder: str) -> set[str]:
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries if not entry.is_dir()}
    except (OSError, ValueError):
        return set()


def _undecodable(dataset: Dataset, skipped: set[int], progress: Progress | None) -> dict[int, str]:
    rows = [row for row, value in enumerate(dataset.images.values) if value is not None and row not in skipped]

    def decode(row: int) -> str | None:
        try:
            # The full file is decoded, at a small scale where the format has one.
            open_image(dataset.images.values[row], dataset.root, at_least=32)
        except DataError as error:
            return str(error)
        return None

    reasons = {}
    for done, (row, reason) in enumerate(
        zip(rows, read_ahead(rows, decode, workers=os.cpu_count() or 1), strict=True), 1
    ):
        if reason is not None:
            reasons[row] = reason
        if progress is not None:
            progress(done, len(rows))
    return reasons
