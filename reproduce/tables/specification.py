"""What a published table is made of: data sets, rows that can be trained, and the numbers that were printed."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache
from typing import Any

from reproduce.tables.figure_names import WAYS
from subtext.errors import RecipeError
from subtext.recipes import catalogue


class Shared(Enum):
    """An option's value that rows share: a graph, made once for a data set, its width, or a file of vectors."""

    TEXT_GRAPH = "a graph of the texts"
    IMAGE_GRAPH = "a graph by the pictures' features"
    FEATURES = "the pictures' features"
    TEXT_PLACES = "where the texts stand in the space of their graph"
    NEIGHBOURS = "how many neighbours the graphs have"


class Swept(Enum):
    """An option's value that is chosen on a data set by a sweep, as COMBINED-VAL chooses its ratio."""

    BETA = "weight of diversity"
    GAMMA = "weight of discrepancy"


Ratio = tuple[float, float]
"""beta and gamma"""
RATIOS: tuple[Ratio, ...] = ((1, 1), (1, 2), (2, 1), (1, 3), (3, 1), (1, 4), (4, 1), (1, 5), (5, 1))
"""What Thomas and Kovashka (2022) chose from for every data set, on a small part of the training pairs."""
UNSWEPT: Ratio = (3, 1)
"""What is taken where nothing is swept: the paper's choice for two of its four data sets."""


@dataclass(frozen=True)
class ByData:
    """An option's value that a paper chose for each data set.

    values  key of a data set -> value        other  for a data set that the paper did not have
    """

    values: Mapping[str, object]
    other: object


@dataclass(frozen=True)
class DataSet:
    """Where a column's figures come from.

    key       how the command line calls it         name  how the papers do
    c         candidates of one c-way choice
    pictures  about how many the papers had; None for a data set that is not theirs
    """

    key: str
    name: str
    c: int
    pictures: int | None = None


DATA_SETS = {
    each.key: each
    for each in (
        DataSet("politics", "Politics", 5, 246_131),
        DataSet("goodnews", "GoodNews", 5, 466_000),
        DataSet("conccap", "ConcCap", 20, 3_300_000),
        DataSet("coco", "COCO", 100, 120_000),
        DataSet("flickr30k", "Flickr30K", 100, 31_000),
        DataSet("cub", "CUB Captions", 20, 11_788),
    )
}
"""The data sets of the papers, and the c of their choices; that of Flickr30K is not stated and taken as COCO's."""


@dataclass(frozen=True)
class Column:
    """A data set's key and a figure; an empty key stands for the mean over all other columns."""

    data: str
    figure: str


@dataclass(frozen=True)
class System:
    """What is trained: a host, its options, and methods with theirs; values may be ByData, methods' Shared too.

    plan  fields of the training plan that are its own, in the place of the table's
    """

    host: str
    options: Mapping[str, object] = field(default_factory=dict)
    methods: tuple[tuple[str, Mapping[str, object]], ...] = ()
    plan: Mapping[str, object] = field(default_factory=dict)

    def on(self, data: str) -> System:
        """The same with the values that were chosen for a data set."""
        methods = tuple((name, _chosen(options, data)) for name, options in self.methods)
        return System(self.host, _chosen(self.options, data), methods, _chosen(self.plan, data))

    @property
    def swept(self) -> bool:
        """Whether a sweep is still to choose an option; asked of a system `on` a data set."""
        return any(isinstance(value, Swept) for _, options in self.methods for value in options.values())

    def at(self, ratio: Ratio) -> System:
        """The same with beta and gamma in the place of what a sweep is to choose."""
        values: dict[object, object] = dict(zip(Swept, map(float, ratio), strict=True))
        methods = tuple(
            (name, {key: values[value] if isinstance(value, Swept) else value for key, value in options.items()})
            for name, options in self.methods
        )
        return replace(self, methods=methods)

    def lacks(self) -> str:
        """What of it this version of Subtext does not have, as in "the method hal"; empty when all is there.

        >>> System("vse", {}, (("telepathy", {}),)).lacks()
        'the method telepathy'
        """
        if self.host not in catalogue.models():
            return f"the host {self.host}"
        parts = [("host", catalogue.models()[self.host], self.options)]
        for name, options in self.methods:
            if name not in catalogue.methods():
                return f"the method {name}"
            parts.append(("method", catalogue.methods()[name], options))
        for kind, recipe, options in parts:
            for name in options:
                if name not in {known for option in recipe.options for known in (option.name, option.old_name)}:
                    return f"the option {name} of the {kind} {recipe.name}"
        return ""


@dataclass(frozen=True)
class Row:
    """A row of a table.

    key       how the command line calls it              name  as printed
    system    what is trained; None for a line of settings that the paper chose
    printed   the paper's numbers, column by column; None for a cell that is empty there
    baseline  key of the row that it is tested against; empty for none
    figure    what its cells hold, where that is not the columns' own figure
    mean_of   keys of the rows whose models are joined, seed by seed, to one that scores by their mean; empty for none
    """

    key: str
    name: str
    system: System | None
    printed: tuple[float | None, ...]
    baseline: str = ""
    figure: str = ""
    mean_of: tuple[str, ...] = ()

    @property
    def trained(self) -> bool:
        """Whether it can be run here: it is trained, or made of rows that are."""
        return self.system is not None or bool(self.mean_of)


@dataclass(frozen=True)
class PublishedTable:
    """A table.

    title    what it shows, in our words             paper   where it was printed
    plan     fields of the training plan that rows share; a system may have some of its own
    pixels   options of the pictures' side that hold where pictures are read as pixels
    notes    what the paper leaves open or we do otherwise, told below the table
    sentences  data set -> the first so many of each text, which are all that the paper reads
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
                    f"a row needs a key of its own, {len(self.columns)} printed numbers and a baseline among the rows; "
                    f"'{row.key}' has {len(row.printed)} numbers and the baseline '{row.baseline}'"
                )
            if not set(row.mean_of) <= {each.key for each in self.rows if each.system is not None}:
                raise RecipeError(f"a mean needs trained rows; '{row.key}' is that of {', '.join(row.mean_of)}")

    @property
    def data(self) -> tuple[str, ...]:
        """Keys of its data sets, in the order of the columns."""
        return tuple(dict.fromkeys(column.data for column in self.columns if column.data))

    def figure(self, row: Row, column: Column) -> str:
        """What a cell holds."""
        return row.figure or column.figure

    def members(self, row: Row) -> tuple[Row, ...]:
        """The rows whose models a row joins; the row itself where it joins none."""
        return tuple(each for each in self.rows if each.key in row.mean_of) or (row,)

    def select(self, keys: Sequence[str]) -> tuple[Row, ...]:
        """The rows of these keys, in the table's order; all for none.

        Raises RecipeError for a key that there is not, with near ones.
        """
        known = {row.key: row for row in self.rows}
        for key in keys:
            if key not in known:
                raise RecipeError(catalogue.unknown("row", key, known))
        return tuple(row for row in self.rows if not keys or row.key in keys)


@cache
def tables() -> dict[str, PublishedTable]:
    """Every table by name, which is that of its file."""
    from reproduce import published as package

    found: dict[str, Any] = {}
    for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda each: each.name):
        found[module.name] = importlib.import_module(f"{package.__name__}.{module.name}").TABLE
    return found


def both_ways(data: Sequence[str]) -> tuple[Column, ...]:
    """Columns of both directions for each data set."""
    return tuple(Column(key, way) for key in data for way in WAYS)


def ranked(data: str, names: Sequence[str], size: str = "") -> tuple[Column, ...]:
    """Columns of these figures of a data set's rankings, one way after the other; size "(1k)" for folds of 1,000."""
    return tuple(Column(data, f"{way}/{name}{size}") for way in WAYS for name in names)


def _chosen(options: Mapping[str, object], data: str) -> dict[str, object]:
    return {
        name: value.values.get(data, value.other) if isinstance(value, ByData) else value
        for name, value in options.items()
    }
