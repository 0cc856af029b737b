"""What a published table is made of: data sets, rows that can be trained, and the numbers that were printed."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache

from reproduce.tables.figure_names import DIRECTIONS
from subtext.errors import RecipeError
from subtext.recipes import catalogue
from subtext.settings import did_you_mean


class Shared(Enum):
    """An option's value that rows share: a graph, made once for a data set, its width, or a file of vectors."""

    TEXT_GRAPH = "a graph of the texts"
    IMAGE_GRAPH = "a graph by the images' features"
    FEATURES = "the images' features"
    TEXT_VECTORS = "the texts' vectors in the space of their graph"
    NEIGHBOURS = "the number of neighbours in the graphs"


class Swept(Enum):
    """An option's value that is chosen on a data set by a sweep, as COMBINED-VAL chooses its ratio."""

    BETA = "weight of diversity"
    GAMMA = "weight of discrepancy"


Ratio = tuple[float, float]
"""beta and gamma"""
RATIOS: tuple[Ratio, ...] = ((1, 1), (1, 2), (2, 1), (1, 3), (3, 1), (1, 4), (4, 1), (1, 5), (5, 1))
"""Candidates of Thomas and Kovashka (2022), compared for every data set on a small part of the training pairs."""
UNSWEPT: Ratio = (3, 1)
"""Used where nothing is swept: the paper's choice for two of its four data sets."""


@dataclass(frozen=True)
class ByData:
    """An option's value that a paper chose for each data set.

    values  key of a data set -> value        default  for a data set that the paper did not have
    """

    values: Mapping[str, object]
    default: object


@dataclass(frozen=True)
class DataSet:
    """The data set of a column.

    key     on the command line                    name  in the papers
    c       candidates of one c-way choice
    images  approximate number in the papers; None for a data set that is not theirs
    """

    key: str
    name: str
    c: int
    images: int | None = None


DATA_SETS = {
    data_set.key: data_set
    for data_set in (
        DataSet("politics", "Politics", 5, 246_131),
        DataSet("goodnews", "GoodNews", 5, 466_000),
        DataSet("conccap", "ConcCap", 20, 3_300_000),
        DataSet("coco", "COCO", 100, 120_000),
        DataSet("flickr30k", "Flickr30K", 100, 31_000),
        DataSet("cub", "CUB Captions", 20, 11_788),
    )
}
"""The data sets of the papers, and the c of their choices; no paper states that of Flickr30K, which is COCO's here."""


@dataclass(frozen=True)
class Column:
    """A data set's key and a figure; an empty key stands for the mean over all other columns."""

    data: str
    figure: str


@dataclass(frozen=True)
class System:
    """A model, its options, and methods with theirs; values may be ByData, those of methods also Shared.

    plan  fields of the training plan that replace the table's
    code  digest of files that its methods stand in, where these are the user's
    """

    model: str
    options: Mapping[str, object] = field(default_factory=dict)
    methods: tuple[tuple[str, Mapping[str, object]], ...] = ()
    plan: Mapping[str, object] = field(default_factory=dict)
    code: str = ""

    def on(self, data: str) -> System:
        """The same with the values that were chosen for a data set."""
        methods = tuple((name, _chosen(options, data)) for name, options in self.methods)
        return replace(self, options=_chosen(self.options, data), methods=methods, plan=_chosen(self.plan, data))

    def has(self, part: str, option: str) -> bool:
        """Whether it is of this model or has this method, and that has this option."""
        if part == self.model:
            return option in {each.name for each in catalogue.models()[part].options}
        return part in dict(self.methods) and option in {each.name for each in catalogue.methods()[part].options}

    def but(self, part: str, option: str, value: object) -> System:
        """The same with another value of an option of its model or of a method."""
        if part == self.model:
            return replace(self, options={**self.options, option: value})
        methods = tuple((name, {**own, option: value} if name == part else own) for name, own in self.methods)
        return replace(self, methods=methods)

    @property
    def swept(self) -> bool:
        """Whether a sweep is still to choose an option, of a system `on` a data set."""
        return any(isinstance(value, Swept) for _, options in self.methods for value in options.values())

    def at(self, ratio: Ratio) -> System:
        """The same with this beta and gamma where a sweep is to choose them."""
        values: dict[object, object] = dict(zip(Swept, map(float, ratio), strict=True))
        methods = tuple(
            (name, {key: values[value] if isinstance(value, Swept) else value for key, value in options.items()})
            for name, options in self.methods
        )
        return replace(self, methods=methods)

    def lacks(self) -> str:
        """The part that this version of Subtext does not have, as in "the method hal"; empty for none.

        >>> System("vse", {}, (("telepathy", {}),)).lacks()
        'the method telepathy'
        """
        if self.model not in catalogue.models():
            return f"the model {self.model}"
        parts = [("model", catalogue.models()[self.model], self.options)]
        for name, options in self.methods:
            if name not in catalogue.methods():
                return f"the method {name}"
            parts.append(("method", catalogue.methods()[name], options))
        for kind, recipe, options in parts:
            for name in options:
                if name not in {option.name for option in recipe.options}:
                    return f"the option {name} of the {kind} {recipe.name}"
        return ""


HUBNESS, BM25 = "hubness", "bm25"
"""Null models."""


@dataclass(frozen=True)
class Row:
    """A row of a table.

    key       on the command line                        name  as printed
    system    to train; None for a line of settings that the paper chose
    printed   the paper's numbers, column by column; None for an empty cell
    baseline  key of the row that it is tested against; empty for none
    figure    of its cells, where it is not that of the columns
    mean_of   keys of the rows whose models are averaged, seed by seed; empty for none
    null      HUBNESS or BM25 of a null model, which is measured on the runs of `mean_of`; empty for none
    """

    key: str
    name: str
    system: System | None
    printed: tuple[float | None, ...]
    baseline: str = ""
    figure: str = ""
    mean_of: tuple[str, ...] = ()
    null: str = ""

    @property
    def trained(self) -> bool:
        """Whether it is trained here, or is the mean of rows that are."""
        return self.system is not None or bool(self.mean_of)


@dataclass(frozen=True)
class PublishedTable:
    """A table.

    title    in our words                            paper   with the number of the table
    plan     fields of the training plan that rows share; a system may replace some
    pixels   options of the image side where images are read as pixels
    notes    below the table: questions that the paper leaves open, and differences from it
    sentences  data set -> number of sentences that the paper reads of each text, from its start
    """

    title: str
    paper: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    plan: Mapping[str, object]
    pixels: Mapping[str, object]
    notes: tuple[str, ...]
    sentences: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        keys = [row.key for row in self.rows]
        for row in self.rows:
            if len(row.printed) != len(self.columns) or row.baseline not in ("", *keys) or keys.count(row.key) > 1:
                raise RecipeError(
                    f"a row needs a unique key, {len(self.columns)} printed numbers and a baseline among the rows; "
                    f"'{row.key}' has {len(row.printed)} numbers and the baseline '{row.baseline}'"
                )
            if not set(row.mean_of) <= {member.key for member in self.rows if member.system is not None}:
                raise RecipeError(f"a mean needs trained rows; '{row.key}' is that of {', '.join(row.mean_of)}")

    @property
    def data(self) -> tuple[str, ...]:
        """Keys of its data sets, in the order of the columns."""
        return tuple(dict.fromkeys(column.data for column in self.columns if column.data))

    def figure(self, row: Row, column: Column) -> str:
        """The figure of a cell."""
        return row.figure or column.figure

    def members(self, row: Row) -> tuple[Row, ...]:
        """The rows whose models a row averages; the row itself where it averages none."""
        return tuple(member for member in self.rows if member.key in row.mean_of) or (row,)

    def select(self, keys: Sequence[str]) -> tuple[Row, ...]:
        """The rows of these keys, in the table's order; all for none.

        Raises RecipeError for an unknown key, with similar ones.
        """
        by_key = {row.key: row for row in self.rows}
        for key in keys:
            if key not in by_key:
                raise RecipeError(did_you_mean("row", key, by_key))
        return tuple(row for row in self.rows if not keys or row.key in keys)


@cache
def tables() -> dict[str, PublishedTable]:
    """Every table by the name of its file."""
    from reproduce import published as package

    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    return {name: importlib.import_module(f"{package.__name__}.{name}").TABLE for name in names}


def printed(numbers: str) -> tuple[float | None, ...]:
    """Printed numbers, separated by spaces; "-" for an empty cell.

    >>> printed(".6541 -")
    (0.6541, None)
    """
    return tuple(None if number == "-" else float(number) for number in numbers.split())


def both_ways(data: Sequence[str]) -> tuple[Column, ...]:
    """Columns of both directions for each data set."""
    return tuple(Column(key, direction) for key in data for direction in DIRECTIONS)


def ranked(data: str, names: Sequence[str], size: str = "") -> tuple[Column, ...]:
    """Columns of these ranking figures of a data set, one direction after the other; size "(1k)": folds of 1,000."""
    return tuple(Column(data, f"{direction}/{name}{size}") for direction in DIRECTIONS for name in names)


def _chosen(options: Mapping[str, object], data: str) -> dict[str, object]:
    return {
        name: value.values.get(data, value.default) if isinstance(value, ByData) else value
        for name, value in options.items()
    }
