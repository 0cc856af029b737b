"""Dataset: images, texts and their pairs, as columns.

An image and a text belong together when they share a group: the truth is a group id, never a position. `links` are the
pairs that the rows of the file name, which training samples from; the truth of evaluation is the full group, or graded
judgements where the data set has them.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from html import escape
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from subtext.data.spool import Splits, taken
from subtext.errors import ArgumentError, DataError, RequirementError
from subtext.ops import draw
from subtext.text_helpers import counted

if TYPE_CHECKING:
    import pandas

    from subtext.data.feature_file import FeatureFile


class KnownImage(NamedTuple):
    """What an index has of an image.

    Attributes:
        key: Key of the image.
        id: Id of the image.
        path: Its path, relative to the root of the index; None for none.
        stamp: Size and times of its file, and the mark of its rows, if it has one; None for no file.
        content: 16 bytes, the digest of the file.
        texts: Keys of its texts.
    """

    key: int
    id: str
    path: str | None
    stamp: str | None
    content: bytes
    texts: tuple[int, ...]


@dataclass(frozen=True, repr=False)
class Items:
    """The images, or the texts, of a data set, one entry per item in every column.

    Columns are lists; of what is read for an index they may be in a file (`data.spool`).

    Attributes:
        ids: Names, unique within the modality.
        values: Image: str path relative to Dataset.root, or bytes; text: str; None for an item known by features alone.
        groups: (N) int64, equal for what belongs together.
        splits: (N) of "train", "val", "test", or what the data set calls them.
        metadata: Name -> (N) extra columns: labels, language, and any other column of the row.
        marks: Of images that were read for an index, (N) hashes of their rows, "" for none; see `data.unchanged`.
    """

    ids: Sequence[str]
    values: Sequence[str | bytes | None]
    groups: NDArray[np.int64]
    splits: NDArray[Any] | Splits
    metadata: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    marks: Sequence[str] = ()

    def __len__(self) -> int:
        """The number of items."""
        return len(self.ids)

    def __repr__(self) -> str:
        return f"Items({len(self):,})"

    @cached_property
    def keys(self) -> NDArray[np.int64]:
        """(N) keys for random draws: a function of the id alone."""
        return draw.keys(self.ids)

    def take(self, rows: NDArray[np.int64]) -> Items:
        """Select items.

        Args:
            rows: (N) indices.

        Returns:
            The items at these rows, in this order.
        """
        take = partial(taken, rows=rows, known={})
        return Items(
            ids=take(self.ids),
            values=take(self.values),
            groups=self.groups[rows],
            splits=self.splits[rows],
            metadata={name: take(column) for name, column in self.metadata.items()},
            marks=take(self.marks) if self.marks else (),
        )


@dataclass(frozen=True)
class Judgements:
    """Graded truth of a data set: the score of (text row, image row), as in an MTEB qrels table.

    Attributes:
        texts: (J) text rows.
        images: (J) image rows.
        scores: (J) float32, the score of each (text, image).
    """

    texts: NDArray[np.int64]
    images: NDArray[np.int64]
    scores: NDArray[np.float32]


@dataclass(frozen=True)
class RowIssue:
    """A defect of a data set.

    Attributes:
        where: "line 17", "metadata.csv line 3", "image a.jpg".
        what: What is wrong, and what to do.
        fatal: Whether the row or item cannot be used; else it is a warning.
        name: The part of the sentence that differs from row to row ("'a.jpg'"), by which problems of one kind are
            counted; "" where none does.
        item: Id of the image that the row names; "" where the row does not say so much.
        files: What the row names and the disk does not have; of a note, the images that no row names.
        more: How many other rows have the same problem and are not kept.
    """

    where: str
    what: str
    fatal: bool = True
    name: str = ""
    item: str = ""
    files: tuple[str, ...] = ()
    more: int = 0

    def __str__(self) -> str:
        """Format position and message in one sentence; a message that begins with the position is not repeated."""
        named = self.what.startswith((f"{self.where} ", f"{self.where.removeprefix('image ')} "))
        return self.what if named else f"{self.where}: {self.what}"

    @property
    def kind(self) -> str:
        """The sentence without the name, which problems of one kind share."""
        return self.what.replace(self.name, "...", 1) if self.name else self.what


def summarise(problems: Iterable[RowIssue]) -> list[str]:
    """Summarise problems, one sentence for each kind.

    Args:
        problems: The problems of rows.

    Returns:
        Sentences with the first rows that have the problem, and their number.

    Example:
        >>> summarise([RowIssue(f"line {n}", "has no text") for n in range(2, 7)])
        ['line 2 and 4 like it (line 3, line 4, ...): has no text']
    """
    sentences = []
    for first, *similar in _first_ones(problems):
        number = len(similar) + sum(problem.more for problem in similar)
        rows = ", ".join([*(problem.where for problem in similar), *(["..."] if number > len(similar) else [])])
        repeated = f" and {number:,} like it ({rows})" if similar else ""
        sentences.append(f"{first.where}{repeated}: {first.what}" if repeated else str(first))
    return sentences


def alike(problems: Iterable[RowIssue]) -> list[RowIssue]:
    """The first problems of each kind, with the number of the others: all that `summarise` says.

    Args:
        problems: The problems of rows.

    Returns:
        Up to three of each kind.
    """
    return [problem for ones in _first_ones(problems) for problem in ones]


def _first_ones(problems: Iterable[RowIssue]) -> list[list[RowIssue]]:
    """Up to three problems of each kind; the third has the number of the others."""
    kinds: dict[tuple[str, bool], list[RowIssue]] = {}
    more = Counter[tuple[str, bool]]()
    for problem in problems:
        kind = problem.kind, problem.fatal
        ones = kinds.setdefault(kind, [])
        if len(ones) < 3:
            ones.append(problem)
        else:
            more[kind] += 1 + problem.more
    for kind, number in more.items():
        third = kinds[kind][2]
        kinds[kind][2] = replace(third, more=third.more + number)
    return list(kinds.values())


@dataclass(frozen=True, repr=False)
class Dataset:
    """A data set of images and texts.

    Attributes:
        images: The items.
        texts: See `images`.
        links: (L, 2) int64, image row and text row of every pair in the data.
        root: The folder of relative image paths.
        judgements: Graded relevance judgements, if the data set has any.
        problems: The problems found while reading, in order. Rows with fatal problems are not in the data set.
        features: Precomputed image features, if the data set has features instead of images.
        own_splits: Whether the data names its splits; False if Subtext sampled them.
        form: What its path was read as: the name of a reader, and of a part of a folder; "" for rows in memory.
    """

    images: Items
    texts: Items
    links: NDArray[np.int64]
    root: Path
    judgements: Judgements | None = None
    problems: tuple[RowIssue, ...] = ()
    features: FeatureFile | None = None
    own_splits: bool = True
    form: str = ""

    def __len__(self) -> int:
        """The number of pairs."""
        return len(self.links)

    def __repr__(self) -> str:
        items = f"{counted(len(self.images), 'image')}, {counted(len(self.texts), 'text')}"
        splits = ", ".join(f"{name} {count:,}" for name, count in self.counts().items())
        problems = f"; {counted(len(self.problems), 'problem')}" if self.problems else ""
        return f"Dataset({items}, {counted(len(self), 'pair')}; images by split: {splits or 'none'}{problems})"

    def _repr_html_(self) -> str:
        from subtext.data.image_files import thumbnail

        cells = []
        for image, text in self.links[np.unique(np.linspace(0, len(self) - 1, min(6, len(self))).astype(int))]:
            source = thumbnail(self.images.values[image], self.root) if self.images.values[image] is not None else None
            name = escape(self.images.ids[image])
            shown = f'<img src="{source}" alt="{name}" style="max-height:120px">' if source else name
            caption = escape(str(self.texts.values[text] or self.texts.ids[text])[:200])
            cells.append(f'<td style="vertical-align:top;text-align:left;max-width:170px">{shown}<br>{caption}</td>')
        return f"<div>{escape(repr(self))}<table><tr>{''.join(cells)}</tr></table></div>"

    def to_frame(self) -> pandas.DataFrame:
        """Return a table of the pairs. Needs pandas.

        Returns:
            A row per pair: image, text, their ids, split, group and the metadata of both; a column of the data that has
            one of these names gets a number: "image_id (2)".
        """
        images, texts = self.images.take(self.links[:, 0]), self.texts.take(self.links[:, 1])
        columns: dict[str, Sequence[Any]] = {
            "image_id": images.ids, "text_id": texts.ids, "image": list(images.values), "text": list(texts.values),
            "split": images.splits.tolist(), "group": images.groups.tolist(),
        }  # fmt: skip
        taken = {*columns, *images.metadata, *texts.metadata}
        renamed: dict[str, str] = {}
        for name in [name for name in columns if name in images.metadata or name in texts.metadata]:
            # A column of the data never takes the place of the ids.
            number = next(number for number in count(2) if f"{name} ({number})" not in taken)
            renamed[name] = f"{name} ({number})"
        for name, values in (*images.metadata.items(), *texts.metadata.items()):
            name = renamed.get(name, name)
            before = columns.get(name, [None] * len(self))
            columns[name] = [old if new is None else new for new, old in zip(values, before, strict=True)]
        return frame(columns)

    def split(self, name: str, *, need_pairs: bool = True) -> Dataset:
        """Select the images and texts of one split. To select pairs by their rows, use `select`.

        Args:
            name: Name of the split; "all" for the full data set.
            need_pairs: False to accept a split without pairs, as for an index.

        Returns:
            The data set of this split.

        Raises:
            DataError: If the split has no pair, or no item.
        """
        if name == "all":
            return self
        chosen = self.subset(*(np.flatnonzero(items.splits == name) for items in (self.images, self.texts)))
        if not (len(chosen.links) if need_pairs else len(chosen.images) + len(chosen.texts)):
            splits = ", ".join(f"{split} ({count})" for split, count in self.counts().items())
            needs = "pair" if need_pairs else "image or text"
            raise DataError(
                f"split '{name}' needs at least one {needs}; this data set has {splits or 'none'}; name one of these"
            )
        return chosen

    def counts(self) -> dict[str, int]:
        """Count the images of each split.

        Returns:
            Split -> number of images.
        """
        names, counts = np.unique(self.images.splits, return_counts=True)
        return {str(name): int(count) for name, count in zip(names, counts, strict=True)}

    def select(self, pairs: ArrayLike | slice) -> Dataset:
        """Select pairs with their images and texts; the same as `dataset[:100]`.

        Args:
            pairs: (N) indices, a mask (L) or a slice.

        Returns:
            The data set of these pairs.

        Raises:
            IndexError: If an index is out of range.
            ArgumentError: If `pairs` is the name of a split.
        """
        rows = pairs if isinstance(pairs, slice) else np.asarray(pairs).reshape(-1)
        if not isinstance(rows, slice) and rows.dtype.kind == "U":
            raise ArgumentError(f"select takes rows of pairs; the pairs of a split are dataset.split({str(rows[0])!r})")
        links = self.links[rows]
        images, texts = (np.array(list(dict.fromkeys(column)), dtype=np.int64) for column in links.T.tolist())
        chosen = self.subset(images, texts)
        row_of = [{row: new for new, row in enumerate(rows.tolist())} for rows in (images, texts)]
        new = [[row_of[0][image], row_of[1][text]] for image, text in links.tolist()]
        return replace(chosen, links=np.array(new, dtype=np.int64).reshape(-1, 2))

    __getitem__ = select

    def subset(self, image_rows: NDArray[np.int64], text_rows: NDArray[np.int64]) -> Dataset:
        """Select images and texts, with their links and judgements.

        Args:
            image_rows: Indices of images.
            text_rows: Indices of texts.

        Returns:
            The data set of these items, in this order.
        """
        kept = [np.zeros(len(items), dtype=bool) for items in (self.images, self.texts)]
        kept[0][image_rows] = kept[1][text_rows] = True
        links = self.links[kept[0][self.links[:, 0]] & kept[1][self.links[:, 1]]]
        for column, rows in enumerate((image_rows, text_rows)):
            links[:, column] = _places(links[:, column], rows)
        judgements = self.judgements
        if judgements is not None:
            present = kept[0][judgements.images] & kept[1][judgements.texts]
            judgements = Judgements(
                texts=_places(judgements.texts[present], text_rows),
                images=_places(judgements.images[present], image_rows),
                scores=judgements.scores[present],
            )
        return replace(
            self,
            images=self.images.take(image_rows),
            texts=self.texts.take(text_rows),
            links=links,
            judgements=judgements,
        )


def _places(rows: NDArray[np.int64], chosen: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where rows stand among those that are chosen, all of which they are."""
    if not len(rows):
        return rows
    order = np.argsort(chosen, kind="stable")
    places: NDArray[np.int64] = order[np.searchsorted(chosen, rows, side="right", sorter=order) - 1]
    return places


def fingerprint(pairs: Dataset) -> str:
    """Hash a data set: any id, text, link, group, split or judgement changes it, and so does their order.

    Images count by their id, not by their pixels.

    Args:
        pairs: The data set.

    Returns:
        32 hexadecimal digits.
    """
    digest = hashlib.blake2b(digest_size=16)

    def add(name: str, values: Sequence[str]) -> None:
        digest.update(f"{name} {len(values)}\n".encode())
        for value in values:
            coded = value.encode("utf-8", "surrogatepass")
            digest.update(len(coded).to_bytes(8, "little"))
            digest.update(coded)

    for name, items in (("images", pairs.images), ("texts", pairs.texts)):
        add(name, items.ids)
        add("splits", [str(split) for split in items.splits])
        digest.update(items.groups.astype("<i8").tobytes())
    add("words", ["" if value is None else str(value) for value in pairs.texts.values])
    digest.update(pairs.links.astype("<i8").tobytes())
    if (graded := pairs.judgements) is not None:
        for column, kind in ((graded.texts, "<i8"), (graded.images, "<i8"), (graded.scores, "<f4")):
            digest.update(column.astype(kind).tobytes())
    return digest.hexdigest()


def frame(rows: Sequence[Mapping[str, Any]] | Mapping[str, Sequence[Any]]) -> pandas.DataFrame:
    """Make a pandas DataFrame.

    Args:
        rows: Rows as mappings, or name -> column.

    Returns:
        The table.

    Raises:
        RequirementError: If pandas is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise RequirementError("a data frame needs pandas, which is not installed; pip install pandas") from error
    return pandas.DataFrame(rows)
