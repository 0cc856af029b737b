"""Read a data set: choose its reader, assemble its rows into a Dataset, and check its images."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from inspect import signature
from itertools import chain, islice
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from subtext.data.addresses import as_path, is_address, is_https, joined_path, shown
from subtext.data.batches import read_ahead
from subtext.data.dataset import Dataset, Items, Judgements, RowIssue, alike, summarise
from subtext.data.embedded import note_of
from subtext.data.folders import TABLES, Folders, file_identity, plain_name
from subtext.data.image_files import (
    LARGEST_FILE,
    PAGES,
    image_exists,
    limit_pixels,
    most_pixels,
    open_image,
    pages_note,
)
from subtext.data.join import joined
from subtext.data.object_store import begin, downloaded_again, fetched, list_store, looked_up, was_asked
from subtext.data.objects import NAME, Records, Rows, records_of
from subtext.data.readers import Reader, images as images_reader, readers
from subtext.data.readers.table import typed_rows
from subtext.data.rows import (
    MERGED,
    SHARES,
    Columns,
    Progress,
    Row,
    RowError,
    Source,
    draw_split_numbers,
    parse_columns,
    rows_of,
)
from subtext.data.spool import Column, RowFinder, Splits, Spool, changed, taken
from subtext.data.unchanged import ImageTaker, ListedImage, ReadAgain, Unchanged
from subtext.errors import ArgumentError, DataError, RequirementError, Setting
from subtext.text_helpers import counted

NONE_THERE = "images"
"""Position of the problem that no image of a data set exists."""
_TEXT_COLUMNS = ("language",)
"""Columns that describe a text, and are lists where a row has several."""


class UnusableData(DataError):
    """A data set of which nothing, or not enough, can be used.

    Args:
        message: The summary.
        problems: The reasons, row by row.
    """

    def __init__(self, message: str, problems: list[RowIssue]) -> None:
        super().__init__(message)
        self.problems = problems


def read(
    data: str | Path | Dataset | Records | Rows | Source,
    *,
    images: str | Path | None = None,
    split_seed: int = 0,
    on_error: Literal["raise", "skip"] = "raise",
    verify: bool | Callable[[str | bytes, Path], bool] = False,
    merge_split: Mapping[str, str] | None = None,
    need_images: bool = True,
    columns: str | Mapping[str, str | Sequence[str]] | None = None,
    text_fields: str | None = None,
    progress: Progress | None = None,
    form: str | None = None,
    max_pixels: float | None = None,
    embedded: bool = True,
    unchanged: Unchanged | None = None,
) -> Dataset:
    """Read a data set of any format that a reader recognises.

    Args:
        data: A file or a folder; or a table that Arrow can read (a frame of pandas or polars, a table of pyarrow); or
            rows, any iterable or torch `Dataset` of mappings such as {"image": "a.jpg", "captions": ["The ruling
            stands."], "split": "train"}, whose images are paths, bytes or PIL images; or a Dataset, whose images are
            then checked again; or what a reader returned, of which each missing image is a problem of its own.
        images: Folder of relative image paths. Default: the folder of the data set, or the folder `images` in it; for
            rows, the current folder.
        split_seed: Seed of the 80-10-10 split by group, for data without splits.
        on_error: What to do with rows that cannot be used: "raise" an error, or "skip" them.
        verify: True to decode every image once. Or a function that returns True for the images to decode; its arguments
            are the image (path or bytes) and the folder of the images.
        merge_split: Other names of splits -> the split that they belong to. "restval", "dev" and similar names are
            built in.
        need_images: False if features replace the images. Image files may then be missing.
        columns: Columns of a table with other names, such as "image=filename,text=headline+caption,date=taken_on", or
            {"image": "filename", "text": ["headline", "caption"]}. Default: guessed from usual names.
        text_fields: Fields with texts of the image, such as "headline,keywords". Default for a folder of images:
            "headline,caption".
        progress: Called with the number of decoded images and their total.
        form: What a path was read as before (`Dataset.form`): what came into a folder since does not change what the
            folder is, and a note says so. Default: what the path looks like now.
        max_pixels: Million pixels of the largest image that this process decodes from now on, more than 0. Default: as
            many as half of the memory at hand allows, 89 or more.
        embedded: Whether what is written inside the images of a table (IPTC, XMP, EXIF) fills the fields that the table
            lacks. Where both have a field, that of the table counts.
        unchanged: What an index has: rows that say the same are passed over and counted there, and the data set has
            the others alone. None to read all rows.

    Returns:
        The images, texts and pairs, and the problems of skipped rows.

    Raises:
        DataError: If no reader recognises the data, no pair remains, or a row cannot be used and on_error is "raise".
        ArgumentError: If an argument does not apply to such data.
    """
    limit_pixels(max_pixels)
    taker = None if unchanged is None or not need_images else unchanged.taker
    few = isinstance(data, Source)  # Joined already, and too few to list whole folders for.
    folder = None if images is None else as_path(images)
    store = folder if is_address(folder) else None
    folder = folder if store is None else None
    if folder is not None and not folder.is_dir():
        raise DataError(f"the image folder needs to exist; {folder} {'is a file' if folder.exists() else 'does not'}")
    path = as_path(data) if isinstance(data, str | Path) else "the data set"
    if images is not None and is_address(path):
        raise ArgumentError("images of a store lie where their data set lies; leave ", Setting("images"), " out")
    if isinstance(data, Dataset):
        if split_seed or merge_split or columns or text_fields:
            raise ArgumentError(
                Setting("split_seed"),
                ", ",
                Setting("merge_split"),
                ", ",
                Setting("columns"),
                " and ",
                Setting("text_fields"),
                " are for files and rows; a data set has its splits already",
            )
        # What could not be used is left out of it already.
        usable = tuple(problem for problem in data.problems if not problem.fatal)
        dataset = replace(data, root=folder or data.root, problems=usable)
        if store is not None:
            values = [in_store(store, value) if isinstance(value, str) else value for value in data.images.values]
            dataset = replace(dataset, images=replace(dataset.images, values=values))
        where: Sequence[str] = [f"image {n}" for n in data.images.ids]
        textless = np.zeros(len(data.images), dtype=bool)
    else:
        try:
            roles, actual, changed = parse_columns(columns, text_fields), "", list[RowIssue]()
            if not few:
                begin()
            if isinstance(path, Path):
                source, actual, changed = _open_source(path, folder, roles, form)
            elif isinstance(data, Source):
                source = data
            else:
                source = _source_of_records(records_of(data), folder, roles)
            if store is not None:
                source = replace(source, rows=rows_in_store(source.rows, store), whole=None)
            if not few:
                source = source if images is not None else _with_images_found(source)
                if unchanged is None:
                    source = replace(source, rows=looked_up(source.rows, _asked_before))
                if unchanged is not None:
                    unchanged.begin()
                    # Who passes over rows does not know which files no row names.
                    whole = None if unchanged.number else source.whole
                    source = replace(source, rows=unchanged.changed(source.rows, source.root), whole=whole)
            if need_images:
                # What is inside, the check and the vectors are of one download.
                needed = _address
                if taker is not None:
                    taker.begin(source.root, actual, progress)
                    needed = partial(_address_not_done, taker)
                rows = fetched(source.rows, needed, most=LARGEST_FILE * most_pixels())
                source = replace(source, rows=rows)
            if not few:
                source = replace(source, rows=_with_inside(source.rows))
                if source.tables and need_images:
                    source = joined(source, embedded=embedded)
            files = _Files(source.root, few=few) if need_images else None
            merged = {**MERGED, **(merge_split or {})}
            dataset, where, textless = _assemble(source, split_seed, merged, files, unchanged, taker)
            dataset = replace(dataset, form=actual, problems=(*changed, *dataset.problems))
        except ReadAgain:
            return read(
                data,
                images=images,
                split_seed=split_seed,
                on_error=on_error,
                verify=verify,
                merge_split=merge_split,
                need_images=need_images,
                columns=columns,
                text_fields=text_fields,
                progress=progress,
                form=form,
                max_pixels=max_pixels,
                embedded=embedded,
                unchanged=cast(Unchanged, unchanged).whole_listing(),
            )
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    problems = list(dataset.problems)
    passed_over = 0 if unchanged is None else unchanged.items
    if need_images and len(dataset.images):
        setting = "--images" if isinstance(path, Path) else "images=FOLDER"
        dataset, image_problems, kept = _check_images(
            dataset,
            where,
            images is not None or few,
            setting=setting,
            verify=verify,
            progress=progress,
            each=few or bool(passed_over),
        )
        # A folder of images has said of its pages already what decoding says.
        said = set(problems)
        problems += [problem for problem in image_problems if problem not in said]
        problems += _nearly_alike(dataset)
        if again := downloaded_again():
            problems.append(RowIssue("downloads", again, fatal=False))
        if kept is not None:
            where, textless = taken(where, kept), textless[kept]
    if len(dataset):
        note = "has no text; its image is an item of an index, and of no pair"
        problems += alike(RowIssue(where[int(row)], note, fatal=False) for row in np.flatnonzero(textless))
    fatal = [problem for problem in problems if problem.fatal]
    reasons = summarise(fatal)
    summary = f": {'; '.join(reasons[:3])}{'; ...' if len(reasons) > 3 else ''}" if reasons else ""
    if not len(dataset.images) and not passed_over:
        raise UnusableData(f"{path} needs at least one image; it has none{summary}", problems)
    if fatal and on_error == "raise":
        raise UnusableData(
            f"{path} has {counted(len(fatal), 'problem')}{summary}; correct {'it' if len(fatal) == 1 else 'them'}, "
            "or skip unusable rows (--on-error skip)",
            problems,
        )
    return replace(dataset, problems=tuple(problems))


def _address(row: Row | RowIssue) -> str | None:
    """The address of the image of a row; None for another image."""
    return row.image if isinstance(row, Row) and isinstance(row.image, str) and is_address(row.image) else None


def _address_not_done(taker: ImageTaker, row: Row | RowIssue) -> str | None:
    """The address of a row whose image is still to be downloaded."""
    address = _address(row)
    return None if address is None or taker.is_done(address) else address


def _asked_before(row: Row | RowIssue) -> str | None:
    """The address of a row of which an earlier reading knows; it may have changed since."""
    address = _address(row)
    return address if address is not None and was_asked(address) else None


def in_store(store: Path, image: str) -> str:
    """The address of an image that a table names.

    Args:
        store: The folder that its relative paths start from, a place in a store.
        image: A path, or an address.

    Returns:
        The address; a path that starts at the top of a disk stays.
    """
    is_whole = is_address(image) or os.path.isabs(image)  # noqa: PTH117 (30,000 paths)
    return image if is_whole else f"{str(store).rstrip('/')}/{image}".replace("\\", "/")


def row_in_store(store: Path, row: Row) -> Row:
    """A row whose relative path starts in a store.

    Args:
        store: The folder, a place in a store.
        row: The row.

    Returns:
        The row with the address of its image, and the id that it has without.
    """
    if not isinstance(row.image, str):
        return row
    return replace(row, image=in_store(store, row.image), image_id=row.image_id or row.image)


def rows_in_store(rows: Iterable[Row | RowIssue], store: Path) -> Iterator[Row | RowIssue]:
    """The rows of a table whose relative paths start in a store; what lies there is listed once.

    Args:
        rows: The rows.
        store: The folder, a place in a store; behind https each image is asked for by itself.

    Yields:
        The rows with addresses, and the ids that they have without.
    """
    if not is_https(str(store)):
        list_store(store)
    for row in rows:
        yield row_in_store(store, row) if isinstance(row, Row) else row


def _source_of_records(table: Records, images: Path | None, columns: Columns) -> Source:
    """The rows of a table in memory, as those of a table in a file."""
    tables = (Path(NAME),) if images is not None else ()
    rows = typed_rows(table.rows, columns, NAME, header=table.header)
    return Source(rows_of(rows, None if columns else NAME), images or Path(), tables=tables)


def _with_images_found(source: Source) -> Source:
    """The source with the folder `images` as its root where the images lie in that."""
    rows = iter(source.rows)
    head = list(islice(rows, 100))
    named = (row.image for row in head if isinstance(row, Row) and isinstance(row.image, str))
    first = [name for name in named if not is_address(name)][:20]
    root, inner = source.root, source.root / "images"
    if not any(image_exists(name, root) for name in first) and any(image_exists(name, inner) for name in first):
        root = inner
    return replace(source, rows=chain(head, rows), root=root)


def _form_of(reader: Reader, path: Path) -> str:
    """A reader and what it reads of a folder, as one text."""
    name = str(getattr(reader, "__name__", type(reader).__qualname__)).rpartition(".")[2]
    part = reader.part(path) if hasattr(reader, "part") else ""
    return f"{name}:{part}" if part else name


def _open_source(
    path: Path, images: Path | None, columns: Columns, form: str | None
) -> tuple[Source, str, list[RowIssue]]:
    """The rows of the data set at a path, by the first reader that recognises it, or by that of an earlier reading.

    Returns:
        The rows, what the path was read as, and a note where it would be something else today.

    Raises:
        DataError: If it names what the readers look for when none does.
    """
    if path.is_file() and path.stat().st_size == 0:
        raise DataError(f"{path} needs rows; the file is empty")
    available = readers()
    reader = next((reader for reader in available if reader.recognises(path)), None)
    now, notes, part = "" if reader is None else _form_of(reader, path), list[RowIssue](), ""
    if form is not None and form != now and (path.exists() or reader is not None):
        name, _, part = form.partition(":")
        guessed = reader
        reader = next((reader for reader in available if _form_of(reader, path).partition(":")[0] == name), None)
        if reader is None:
            raise RequirementError(f"{path} needs the reader `{name}`, which read it first; install its package again")
        of = f"{path} was {reader.LOOKS_FOR}{f' ({part})' * bool(part)} when it was first read"
        is_there = (path / part).is_file() if part and not part.isdigit() else bool(part) or reader.recognises(path)
        if not is_there and (reader is not images_reader or not path.is_dir()):
            raise DataError(
                f"{of}, and is not now; nothing was read; put it back, or name what is to take its place (",
                Setting("data"),
                ")",
            )
        if guessed is not None:
            what = f"{of}, and stays so; it looks like {guessed.LOOKS_FOR} now; name that by itself to read it (--data)"
            notes.append(RowIssue(str(path), what, fatal=False))
        now = form
    if reader is not None:
        if columns and "columns" not in signature(reader.read).parameters:
            raise ArgumentError(
                Setting("columns"),
                " and ",
                Setting("text_fields"),
                f" are for tables and folders of images; {path} is read as {reader.LOOKS_FOR}, which has fixed names",
            )
        more: dict[str, Any] = {"columns": columns} if columns else {}
        source = cast(Any, reader).read(path, images, **more, **({"part": part} if part else {}))
        if not isinstance(source, Source):
            raise RequirementError(f"a reader's read needs to return a Source; {reader!r} returned {source!r:.60}")
        return source, now, notes
    if path.is_file():
        raise DataError(
            f"a data set needs a file with the suffix {', '.join(TABLES)} or .tar; it got {path.name}; or name a folder"
        )
    if not path.is_dir():
        raise DataError(f"a data set needs a file, a folder or a pattern of tars; {path} does not exist")
    files = ", ".join(sorted(file.name for file in path.iterdir())[:8]) or "nothing"
    forms = "; ".join(reader.LOOKS_FOR for reader in available)
    raise DataError(f"{path} needs images, one table or a known data set; it contains {files}; looked for {forms}")


def _with_inside(rows: Iterable[Row | RowIssue]) -> Iterator[Row | RowIssue]:
    """Rows with what is written inside their images, where a reader left that for later."""
    for row in rows:
        if isinstance(row, Row) and row.inside is not None:
            yield from (replace(it, mark=row.mark) if isinstance(it, Row) else it for it in row.inside())
        else:
            yield row


def _assemble(
    source: Source,
    seed: int,
    merged_splits: Mapping[str, str],
    files: _Files | None,
    unchanged: Unchanged | None,
    taker: ImageTaker | None = None,
) -> tuple[Dataset, Sequence[str], NDArray[np.bool_]]:
    """All rows as a Dataset, where each of its images was first named, and which of them are of no pair.

    What is read for an index may be long: it lies in a file.
    """
    assembly = _Assembly(merged_splits, files, spooled=unchanged is not None)
    problems, last = list[RowIssue](), None
    for row in source.rows:
        if isinstance(row, RowIssue):
            problems.append(row)
            continue
        if not isinstance(row, Row):
            raise RequirementError(f"a reader's rows need to be of the class Row, or a Problem; one is {row!r:.60}")
        try:
            image = assembly.add(row)
        except RowError as error:
            error.item = row.image_id or (row.image if isinstance(row.image, str) else "")
            problems.append(error.at(row.where))
            # The bytes of the image that was named last are still to be read.
            before = None if last is None else assembly.images.entries[last].value
            if taker is not None and (address := _address(row)) is not None and address != before:
                taker.leave(address)
            continue
        if taker is not None and image != last:
            # The rows of an image mostly stand together: what they say of it is known now.
            assembly.give(last, taker, splits=unchanged is not None and unchanged.split)
            last = image
    if taker is not None:
        assembly.give(last, taker, splits=unchanged is not None and unchanged.split)
        taker.finish()
    problems += assembly.notes.values()
    triples = [
        (text_row, image_row, score)
        for text, image, score in source.judgements
        if (text_row := assembly.texts.find(text)) is not None
        and (image_row := assembly.images.find(image)) is not None
    ]
    links = assembly.all_links()
    assembly.forget()
    groups, names = assembly.groups, ["", *assembly.splits]
    own_splits = len(names) > 1 or (unchanged is not None and unchanged.split)
    if not own_splits:
        codes, names = draw_split_numbers((group.first for group in groups), seed=seed), list(SHARES)
    else:
        codes = np.frombuffer(assembly.split_of, dtype=np.uint16)
        codes = codes if len(names) > 256 else codes.astype(np.uint8)
        reason = "has no split, and other rows have one; name the split of every row"
        without = (groups[int(number)] for number in np.flatnonzero(codes == 0))
        problems += [RowIssue(group.where, reason, item=group.first) for group in without]
    columns = zip(*triples, strict=True) if triples else ((), (), ())
    types = (np.int64, np.int64, np.float32)
    judgements = Judgements(*(np.array(column, dtype=kind) for column, kind in zip(columns, types, strict=True)))
    dataset = Dataset(
        images=assembly.images.items(names, codes),
        texts=assembly.texts.items(names, codes),
        links=links,
        root=source.root,
        judgements=judgements if source.judgements else None,
        problems=tuple(problems),
        features=source.features,
        own_splits=own_splits,
    )
    # Images whose text could not be used, and items without a split, are left out.
    usable = np.frombuffer(assembly.alone, dtype=np.uint8) > 0
    textless = np.frombuffer(assembly.textless, dtype=np.uint8) > 0
    usable[links[:, 0]] = True
    textless[links[:, 0]] = False
    usable &= dataset.images.splits != ""
    with_split = dataset.texts.splits != ""
    where = assembly.images.column("where")
    if usable.all() and with_split.all():
        return dataset, where, textless
    kept = np.flatnonzero(usable)
    return dataset.subset(kept, np.flatnonzero(with_split)), taken(where, kept), textless[kept]


class _Item(NamedTuple):
    """An image or a text, where it was first named, and the mark of its rows; none where they do not stand together."""

    name: str
    value: str | bytes | None
    group: int
    metadata: Mapping[str, Any]
    where: str
    mark: tuple[int, str] | None = None

    @classmethod
    def of(cls, fields: list[Any]) -> _Item:
        """An item of its fields, as a file has them."""
        name, value, group, metadata, where, mark = fields
        return cls(name, value, group, metadata, where, None if mark is None else (mark[0], mark[1]))


class _Column:
    """Images or texts in the order of their rows, and the row of each name.

    Args:
        spooled: Whether they lie in a file.
        named: See the attribute.

    Attributes:
        entries: The items.
        groups: Their groups.
        fields: Names of their metadata, in the order of the rows.
        rows: Finds an item by its name.
        merged: Whether a later row added fields to an item.
        marked: Whether an item has a mark.
        named: Whether items are found by their names, which costs some bytes of each; else from the first search on.
    """

    def __init__(self, *, spooled: bool, named: bool = True) -> None:
        self.entries: list[_Item] | Spool[_Item] = Spool(_Item.of) if spooled else []
        self.groups, self.fields, self.merged, self.marked = array("q"), dict[str, None](), False, False
        self.rows, self._others, self.named = RowFinder(), dict[str, int](), named

    def __len__(self) -> int:
        return len(self.entries)

    def find(self, name: str) -> int | None:
        """The row of a name."""
        if not self.named:
            self.named = True
            for row, item in enumerate(self.entries):
                self.rows.add(item.name, row)
        other = self._others.get(name) if self._others else None
        return other if other is not None else self.rows.find(name, lambda row: self.entries[row].name == name)

    def add(self, item: _Item) -> int:
        """The row of a new item."""
        row = len(self.entries)
        if self.named:
            self.rows.add(item.name, row)
        self.entries.append(item)
        self.groups.append(item.group)
        self.fields |= dict.fromkeys(item.metadata)
        self.marked |= item.mark is not None
        return row

    def name_also(self, name: str, row: int) -> int:
        """The row of a name; an unknown one becomes another name of an item."""
        known = self.find(name)
        return self._others.setdefault(name, row) if known is None else known

    def column(self, field: str) -> Sequence[Any]:
        """A field of all items."""
        if isinstance(self.entries, Spool):
            return Column(self.entries, attrgetter(field))
        return [getattr(item, field) for item in self.entries]

    def items(self, splits: Sequence[str], codes: NDArray[Any]) -> Items:
        """All of them as columns; `codes` has of each group the place of its split."""
        entries, groups = self.entries, np.frombuffer(self.groups, dtype=np.int64)
        names = self.fields
        if self.merged:
            names = dict.fromkeys(name for item in entries for name in item.metadata)
        if isinstance(entries, Spool):
            metadata: dict[str, Sequence[Any]] = {name: Column(entries, _field(name)) for name in names}
            marks: Sequence[str] = Column(entries, _mark) if self.marked else []
        else:
            metadata = {name: [item.metadata.get(name) for item in entries] for name in names}
            marks = [_mark(item) for item in entries] if self.marked else []
        own = codes[groups]
        of_items = Splits(splits, own) if isinstance(entries, Spool) else np.array(splits)[own]
        return Items(self.column("name"), self.column("value"), groups, of_items, metadata, marks)


def _field(name: str) -> Callable[[_Item], Any]:
    return lambda item: item.metadata.get(name)


def _mark(item: _Item) -> str:
    return "" if item.mark is None else item.mark[1]


class _Group(NamedTuple):
    """A group of images and texts: its name, its first image, and where it was first named."""

    name: str | None
    first: str
    where: str


class _Files:
    """Tells whether two paths are the same file, however they are spelt: by device and inode.

    Args:
        root: Folder of relative paths.
        few: Whether each file is looked at, and no folder is listed.
    """

    def __init__(self, root: Path, *, few: bool = False) -> None:
        self.root, self.few, self.folders = root, few, dict[str, dict[str, set[str]]]()
        self.listed = Folders(lambda entry: 0 if entry.is_symlink() else entry.inode())
        self._device = "", 0

    def key(self, path: str) -> str | tuple[int, int]:
        """What equal files have in common; different ones rarely, which `same` tells apart.

        Args:
            path: Path of an image.

        Returns:
            Device and inode; the path itself where there is no such file.
        """
        if "?offset=" in path or is_address(path):
            return path
        whole = os.path.join(self.root, path)  # noqa: PTH118 (30,000 paths)
        folder, name = os.path.split(whole)
        names = None if self.few else self.listed.of(folder)
        if names is None:
            if (identity := file_identity(whole)) is not None:
                return identity
        elif name in names:
            if folder != self._device[0]:
                self._device = folder, os.stat(folder).st_dev  # noqa: PTH116
            return (self._device[1], names[name]) if names[name] else file_identity(f"{folder}/{name}") or path
        spelt = as_on_disk(path, self.root, self.folders)
        return path if spelt is None or spelt == path else self.key(spelt)

    def same(self, one: str | bytes | None, other: str | bytes | None) -> bool:
        """Tell whether two paths of one key are the same file: some file systems number their folders' entries anew.

        Args:
            one: A path.
            other: Another.

        Returns:
            Whether they are.
        """
        if one == other or not (isinstance(one, str) and isinstance(other, str)) or is_address(one):
            return one == other
        spelt = (as_on_disk(path, self.root, self.folders) or path for path in (one, other))
        identities = {file_identity(str(self.root / path)) for path in spelt}
        return len(identities) == 1 and None not in identities


class _Assembly:
    """Takes rows one by one, and refuses those that contradict earlier ones.

    Args:
        merged_splits: Names of splits -> the split that they belong to.
        files: Tells files apart; None where no image has a file.
        spooled: Whether the items lie in a file.

    Attributes:
        groups: The groups.
        split_of: Of each group, the number of its split in `splits`, from 1; 0 for none.
        splits: Split -> its number.
        alone: Of each image, whether it may be of no pair: it has no partner on purpose, or a row that has no text.
        textless: Of each image, whether it has a row that has no text.
        unpaired: Of each image, whether it has no partner on purpose.
        paired: Of each image, whether it has a text.
        notes: On rows with another value of a field (second) of an image (first).
    """

    def __init__(self, merged_splits: Mapping[str, str], files: _Files | None, *, spooled: bool) -> None:
        self.merged_splits, self.files = merged_splits, files
        self.images, self.texts = _Column(spooled=spooled), _Column(spooled=spooled, named=False)
        self.groups: list[_Group] | Spool[_Group] = Spool(_Group._make) if spooled else []
        self.split_of, self.splits = array("H"), dict[str, int]()
        self.alone, self.textless, self.unpaired, self.paired = (bytearray() for _ in range(4))
        self.notes: dict[tuple[int, str], RowIssue] = {}
        self._named_groups, self._by_file, self._text_of = RowFinder(), RowFinder(), RowFinder()
        self._linked = array("I"), array("I")
        self._first_image = array("I")
        self._more_links: set[tuple[int, int]] = set()
        self._text_counts = array("I")

    def add(self, row: Row) -> int | None:
        """Add a row.

        Returns:
            Its image; None for none.

        Raises:
            RowError: If it contradicts an earlier one.
        """
        split = row.split and self.merged_splits.get(row.split.lower(), row.split)
        image = None
        if row.image is not None or row.image_id is not None:
            image = self._image(row, split)
            group = self.images.groups[image]
            if row.unpaired:
                self.unpaired[image] = self.alone[image] = 1
            if not row.texts:
                self.textless[image] = self.alone[image] = 1
        elif row.text_ids and (text := self.texts.find(row.text_ids[0])) is not None:
            group = self.texts.groups[text]
        else:
            group = self._group(row, split, (row.text_ids or [""])[0] or row.where)
        for number, value in enumerate(row.texts):
            self._text(row, number, value, image, group)
        return image

    def give(self, image: int | None, taker: ImageTaker, *, splits: bool) -> None:
        """Give the image that was named last to who takes those of stores, if it stays whatever follows.

        Args:
            image: The image; None for none.
            taker: Takes it.
            splits: Whether rows that were passed over have splits.
        """
        if image is None or not isinstance(address := self.images.entries[image].value, str) or not is_address(address):
            return
        item = self.images.entries[image]
        code = self.split_of[item.group]
        split = list(self.splits)[code - 1] if code else ""
        if (self.alone[image] or self.paired[image]) and (split or not (self.splits or splits)):
            mark = "" if item.mark is None else item.mark[1]
            fields = tuple(self.images.fields)
            taker.take(ListedImage(item.name, address, item.metadata, fields, split, mark))

    def all_links(self) -> NDArray[np.int64]:
        """(L, 2) the pairs in their order; an image without a text of its own, in a group of texts, has all of them."""
        links = np.empty((len(self._linked[0]), 2), dtype=np.int64)
        for column, numbers in enumerate(self._linked):
            links[:, column] = np.frombuffer(numbers, dtype=f"u{numbers.itemsize}")
        linked = np.frombuffer(self.unpaired, dtype=np.uint8) > 0
        linked[links[:, 0]] = True
        without = np.flatnonzero(~linked)
        if not (len(without) and len(self.texts)):
            return links
        groups = np.frombuffer(self.texts.groups, dtype=np.int64)
        own = np.frombuffer(self.images.groups, dtype=np.int64)[without]
        order = np.argsort(groups, kind="stable")
        begins, ends = (np.searchsorted(groups, own, side=side, sorter=order) for side in ("left", "right"))
        more = [
            np.stack([np.full(ends[n] - begins[n], without[n]), order[begins[n] : ends[n]]], axis=1)
            for n in np.flatnonzero(ends > begins)
        ]
        return np.concatenate([links, *more]) if more else links

    def forget(self) -> None:
        """Free what finds rows: no more are added."""
        self._named_groups = self._by_file = self._text_of = self.images.rows = self.texts.rows = RowFinder()
        self._linked = self._first_image, self._text_counts = array("I"), array("I")

    def _image(self, row: Row, split: str | None) -> int:
        path, entries = row.image, self.images.entries
        file = path if self.files is None or not isinstance(path, str) else self.files.key(path)
        files = self.files

        def is_same(image: int) -> bool:
            value = entries[image].value
            return value == path if files is None else files.same(value, path)

        image = None if file is None else self._by_file.find(file, is_same)
        name = row.image_id or (path if isinstance(path, str) else blake2b(path or b"", digest_size=8).hexdigest())
        same_name = self.images.find(name)
        if same_name is not None and same_name != image:
            namesake = entries[same_name]
            if image is not None:
                raise RowError(f"id '{name}' names another image ({namesake.where}); ids need to be unique")
            # Some file systems tell the number of a file in two ways.
            if path is not None and namesake.value is not None and not is_same(same_name):
                shown = namesake.value if isinstance(namesake.value, str) else "stored as bytes"
                raise RowError(f"id '{name}' names another image ({shown}, {namesake.where}); ids need to be unique")
            image = same_name
        if image is None:
            item = _Item(name, path, self._group(row, split, name), row.metadata, row.where, row.mark)
            image = self.images.add(item)
            for flags in (self.alone, self.textless, self.unpaired, self.paired):
                flags.append(0)
            if file is not None:
                self._by_file.add(file, image)
            return image
        # An image that is named again needs to be in the same group and the same split.
        item = entries[image]
        if item.mark is not None and item.mark != row.mark:
            # Its rows do not stand together: none of them says all of it.
            entries[image] = item = item._replace(mark=None)
        self._require_one_split(f"image '{item.name}'", split, item.group)
        if row.group is not None and (group_name := self.groups[item.group].name) != row.group:
            raise RowError(
                f"image '{item.name}' is in group '{row.group}' here and in '{group_name}' ({item.where}); an image "
                "needs to be in one group"
            )
        if self.images.name_also(name, image) == image and row.image_id is not None and name != item.name:
            shown = f"'{item.name}' and '{name}'"
            file_name = f"file '{path}'" if isinstance(path, str) else "image"
            note = f"the {file_name} has two ids, {shown}; it is one item, and the first is kept"
            self.notes.setdefault((image, f"id {name}"), RowIssue(row.where, note, fatal=False, name=shown))
        if more := row.metadata.keys() - item.metadata.keys():
            entries[image] = item._replace(metadata={**row.metadata, **item.metadata})
            self.images.fields |= dict.fromkeys(more)
            self.images.merged = True
        for field, value in row.metadata.items():
            first = item.metadata.get(field, value)
            if value != first and value == value and field not in _TEXT_COLUMNS and (image, field) not in self.notes:
                name = f"'{item.name}' has {str(first)[:40]!r} and {str(value)[:40]!r}"
                note = f"an image has one value of '{field}'; {name}; the first is kept"
                self.notes[image, field] = RowIssue(row.where, note, fatal=False, name=name)
        return image

    def _group(self, row: Row, split: str | None, first: str) -> int:
        code = self._code(split)
        if row.group is not None:
            number = self._named_groups.find(row.group, lambda number: self.groups[number].name == row.group)
            if number is not None:
                self._require_one_split(f"group '{row.group}'", split, number)
                return number
            self._named_groups.add(row.group, len(self.groups))
        self.groups.append(_Group(row.group, first, row.where))
        self.split_of.append(code)
        return len(self.groups) - 1

    def _code(self, split: str | None) -> int:
        """The number of a split.

        Raises:
            RowError: If a data set has more of them than a column of splits has.
        """
        if split is not None and split not in self.splits and len(self.splits) >= _MOST_SPLITS:
            raise RowError(f"names one more split, '{split}', than the {_MOST_SPLITS:,} that a data set may have")
        return 0 if split is None else self.splits.setdefault(split, len(self.splits) + 1)

    def _require_one_split(self, subject: str, split: str | None, number: int) -> None:
        code = self._code(split)
        if not self.split_of[number]:
            self.split_of[number] = code
        elif code and self.split_of[number] != code:
            other = list(self.splits)[self.split_of[number] - 1]
            raise RowError(
                f"{subject} is in split '{split}' here and in '{other}' ({self.groups[number].where}); it needs to be "
                "in one split only"
            )

    def _text(self, row: Row, number: int, value: str | None, image: int | None, group: int) -> None:
        # In a group that the file names, the same words from another image are the same text.
        named = value is not None and len(self._named_groups) > 0 and self.groups[group].name is not None
        if row.text_ids is not None:
            name = row.text_ids[number]
            text = self.texts.find(name)
            namesake = None if text is None else self.texts.entries[text]
            if namesake is not None and (namesake.value != value or namesake.group != group):
                raise RowError(
                    f"text id '{name}' names another text ({namesake.where}); ids need to be unique, and a text of "
                    "several images needs them in one group"
                )
        else:
            text = self._text_of.find((group, value), partial(self._is_text, group, value)) if named else None
            if text is not None and image is not None and self._is_linked(image, text):
                text = None
            name = ""
            # IMAGE#0, IMAGE#1, ...: the names by which text features are joined; one of another form may be like it.
            other = image is None or self.texts.named
            while text is None and (not name or (other and self.texts.find(name) is not None)):
                count = self._next_count(group if image is None else image)
                name = f"{row.where if image is None else self.images.entries[image].name}#{count}"
        if text is None:
            metadata: Mapping[str, Any] = row.metadata
            for column in _TEXT_COLUMNS:
                values = metadata.get(column)
                if isinstance(values, list) and len(values) == len(row.texts):
                    metadata = {**metadata, column: values[number]}
            text = self.texts.add(_Item(name, value, group, metadata, row.where))
            self._first_image.append(0)
            if named and self._text_of.find((group, value), partial(self._is_text, group, value)) is None:
                self._text_of.add((group, value), text)
        if image is not None and not self._is_linked(image, text):
            if self._first_image[text]:
                self._more_links.add((image, text))
            else:
                self._first_image[text] = image + 1
            self.paired[image] = 1
            self._linked[0].append(image)
            self._linked[1].append(text)

    def _is_text(self, group: int, value: str | None, text: int) -> bool:
        item = self.texts.entries[text]
        return item.group == group and item.value == value

    def _is_linked(self, image: int, text: int) -> bool:
        return self._first_image[text] == image + 1 or (image, text) in self._more_links

    def _next_count(self, number: int) -> int:
        if number >= len(self._text_counts):
            self._text_counts.extend([0] * (number + 1 - len(self._text_counts)))
        self._text_counts[number] += 1
        return self._text_counts[number] - 1


_MOST_SPLITS = 65_535
"""Names of splits of one data set."""


def _check_images(
    dataset: Dataset,
    where: Sequence[str],
    named: bool,
    *,
    setting: str,
    verify: bool | Callable[[str | bytes, Path], bool],
    progress: Progress | None,
    each: bool = False,
) -> tuple[Dataset, list[RowIssue], NDArray[np.int64] | None]:
    """Check the images of a data set; each that cannot be used becomes a problem.

    Where no file exists the folder is wrong, which is one problem and not one per row.

    Args:
        dataset: The data set.
        where: Position of each image, for messages.
        named: Whether the user named the folder of the images.
        setting: That names it.
        verify: Decode every image, or those that it chooses, in threads; otherwise only check that its file exists.
        progress: Called with the number of decoded images and their total.
        each: Whether each missing image is a problem even where no file exists, as of the few rows of a `Source`.

    Returns:
        The data set whose images can be used, the problems, and the rows of these images; None for all.
    """
    root, respelt = dataset.root, dict[int, str]()
    missing, folders = _missing(dataset, few=each), dict[str, dict[str, set[str]]]()
    for row, lost in list(missing.items()):
        if is_address(lost):
            continue
        if (spelt := as_on_disk(lost, root, folders)) is not None and image_exists(spelt, root):
            respelt[row] = spelt
            del missing[row]
    if respelt:
        dataset = replace(dataset, images=replace(dataset.images, values=changed(dataset.images.values, respelt)))
    images, values = dataset.images, dataset.images.values
    if len(missing) == len(images) > 1 and not each:
        first = shown(str(joined_path(root, str(values[0])).absolute()))
        message = f"none of the {len(missing):,} exists; the first path was {first}; name their folder ({setting})"
        whole = RowIssue(NONE_THERE, message, files=tuple(missing.values()))
        return _keep_images(dataset, np.zeros(len(images), dtype=bool)), [whole], np.zeros(0, dtype=np.int64)
    folder = "or add the file" if named else f"add the file, or name the folder of the images ({setting})"
    advice = f"correct its path, {folder}"
    reasons = {
        row: f"image '{shown(path)}' is not there; correct its address, or add it"
        if is_address(path)
        else f"image '{path}' is not in {root}; {advice}"
        for row, path in missing.items()
    }
    notes: list[RowIssue] = []
    pathless = [row for row, value in enumerate(values) if value is None]
    if len(pathless) < len(images):
        # Where no image has a file, all are known by features.
        reasons |= {
            row: f"image '{images.ids[row]}' has no file, and others have one; fill in its 'image'" for row in pathless
        }
    if verify:
        wanted = np.ones(len(images), dtype=bool)
        wanted[[*reasons, *pathless]] = False
        if callable(verify):
            for chosen in np.flatnonzero(wanted):
                wanted[chosen] = verify(cast(str | bytes, values[int(chosen)]), root)
        rows = np.flatnonzero(wanted)
        if isinstance(verify, ImageDecoder):
            undecodable, notes = verify.decode(dataset, rows, progress)
        else:
            undecodable, notes = decoded_images(images, root, rows, progress)
        reasons |= undecodable
    if not reasons:
        return dataset, notes, None
    keep = np.ones(len(images), dtype=bool)
    keep[list(reasons)] = False
    problems = []
    for row, reason in sorted(reasons.items()):
        # The name of the image, as the sentence has it.
        value = values[row]
        name = value if isinstance(value, str) else images.ids[row]
        names = (form for form in (f"'{name}'", name) if form in reason)
        gone = (name,) if row in missing or row in pathless else ()
        problems.append(RowIssue(where[row], reason, name=next(names, ""), item=images.ids[row], files=gone))
    return _keep_images(dataset, keep), [*problems, *notes], np.flatnonzero(keep)


def _nearly_alike(dataset: Dataset) -> list[RowIssue]:
    """Notes on images whose paths differ in case or accents alone: they are two items, as the disk has two files."""
    folded = np.fromiter((hash(plain_name(value)) if isinstance(value, str) else 0 for value in dataset.images.values),
                         dtype=np.int64, count=len(dataset.images))  # fmt: skip
    ordered = np.sort(folded)
    again = ordered[1:] == ordered[:-1]
    named: dict[str, list[str]] = {}
    twice = np.flatnonzero(np.isin(folded, ordered[1:][again])) if again.any() else ()
    for row in twice:
        if isinstance(value := dataset.images.values[int(row)], str):
            named.setdefault(plain_name(value), []).append(value)
    notes = []
    for names in filter(lambda names: len(names) > 1, named.values()):
        shown = " and ".join(f"'{name}'" for name in names[:2])
        what = f"{shown} differ in case or accents alone; they are two files, and two items"
        notes.append(RowIssue(f"image {names[0]}", what, fatal=False, name=shown))
    return notes


def _keep_images(dataset: Dataset, keep: NDArray[np.bool_]) -> Dataset:
    """The marked images, and the texts that still have an image or never had one."""
    had, has = (np.zeros(len(dataset.texts), dtype=bool) for _ in range(2))
    had[dataset.links[:, 1]] = True
    has[dataset.links[keep[dataset.links[:, 0]], 1]] = True
    return dataset.subset(np.flatnonzero(keep), np.flatnonzero(has | ~had))


def _missing(dataset: Dataset, *, few: bool) -> dict[int, str]:
    """The images whose file does not exist, and its path; listing each folder once is faster than a check per file."""
    listed = Folders(lambda entry: not entry.is_dir())
    missing = dict[int, str]()
    root = os.fspath(dataset.root)
    for row, value in enumerate(dataset.images.values):
        if isinstance(value, str) and is_address(value):
            missing |= {} if image_exists(value, dataset.root) else {row: value}
            continue
        if not isinstance(value, str) or "?offset=" in value or (few and image_exists(value, dataset.root)):
            continue
        folder, name = os.path.split(os.path.join(root, value))  # noqa: PTH118 (30,000 paths, once per image)
        names = listed.of(folder)
        if not (image_exists(value, dataset.root) if names is None else names.get(name)):
            missing[row] = value
    return missing


def as_on_disk(path: str, root: Path, folders: dict[str, dict[str, set[str]]]) -> str | None:
    """Find the spelling that the disk has for a path: Windows writes backslashes and any case, some split accents.

    Args:
        path: The path.
        root: Folder of relative paths.
        folders: Plain name -> the names of each folder that was listed before.

    Returns:
        The path of the one file that matches; None if there is none.
    """
    parts: list[str] = []
    for part in path.replace("\\", "/").split("/"):
        folder = os.path.join(root, "/".join([*parts, ""]))  # noqa: PTH118 (parts may be of no valid path)
        if folder not in folders:
            names = folders[folder] = {}
            with suppress(OSError, ValueError):
                for name in os.listdir(folder):  # noqa: PTH208
                    names.setdefault(plain_name(name), set()).add(name)
        named = {part} if part in ("", ".", "..") else folders[folder].get(plain_name(part), set())
        if part not in named and len(named) != 1:
            return None
        parts.append(part if part in named else min(named))
    return os.path.normpath("/".join(parts))


@runtime_checkable
class ImageDecoder(Protocol):
    """Decodes the images of a data set elsewhere; called, it says which ones, as any `verify` that is a function."""

    def __call__(self, value: str | bytes, root: Path) -> bool:
        """Whether an image is decoded."""

    def decode(
        self, dataset: Dataset, rows: NDArray[np.int64], progress: Progress | None
    ) -> tuple[dict[int, str], list[RowIssue]]:
        """As `decoded_images`, of the images of a data set."""


def decoded_images(
    items: Items, root: Path, rows: NDArray[np.int64], progress: Progress | None, *, workers: int | None = None
) -> tuple[dict[int, str], list[RowIssue]]:
    """Decode every file completely, at a small scale if it has one.

    Args:
        items: Images.
        root: Folder of relative paths.
        rows: Of those to decode.
        progress: Called with the number of decoded images and their total.
        workers: Threads; None for one a processor.

    Returns:
        The images that cannot be decoded, and why; and notes on those of several pages.
    """

    def decode(row: int) -> str | int:
        try:
            image = open_image(items.values[row], root, at_least=32, thumbnail=True)
        except DataError as error:
            return str(error)
        return int(image.info.get(PAGES, 1))

    reasons, notes = {}, []

    def address(row: int) -> str | None:
        value = items.values[row]
        return value if isinstance(value, str) and is_address(value) else None

    # What was kept is not downloaded again.
    there = fetched(map(int, rows), address, most=LARGEST_FILE * most_pixels())
    answers = zip(map(int, rows), read_ahead(there, decode, workers=workers or os.cpu_count() or 1), strict=True)
    for done, (row, answer) in enumerate(answers, 1):
        if isinstance(answer, str):
            reasons[row] = answer
        elif answer > 1:
            value = items.values[row]
            notes.append(note_of(value if isinstance(value, str) else items.ids[row], pages_note(answer)))
        if progress is not None:
            progress(done, len(rows))
    return reasons, notes
