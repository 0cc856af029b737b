"""What `subtext table` was asked for, and where what its rows share lies; of files it reads what a graph is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reproduce.tables.arguments import Given, read_given
from reproduce.tables.figure_names import FIGURES
from reproduce.tables.specification import DATA_SETS, Column, DataSet, Published, Row, Shared, System
from subtext.api.load import Sources
from subtext.errors import RecipeError
from subtext.recipes.catalogue import Option, models, plan_options, unknown
from subtext.training.plan import Plan

FACTORS = (1.0, 3.0, 1 / 3, 10.0, 0.1)
"""What the tuning trials of a row multiply the learning rate by, in their order."""


@dataclass(frozen=True)
class Asked:
    """A table and how it is to be trained.

    name, table   of `published.tables()`            rows      those that are to be trained
    data          key -> where it is                 changes   host options and plan fields for every row, as text
    seeds         trainings of each row              trials    learning rates that each row may try, by validation
    sweep         training pictures for a row whose ratio is to be swept on a data set; 0: the ratio is not swept
    subset        training pictures; None for all    split     which is scored      val_split  which selects the epoch
    c             of the choice on a data set that is not the papers'
    space, neighbours, min_count   of the graphs that rows share
    graphs        key -> a graph of the texts that is there already, whose own space and neighbours hold
    """

    name: str
    table: Published
    rows: tuple[Row, ...]
    out: Path
    data: Mapping[str, Sources] = field(default_factory=dict)
    changes: Mapping[str, str] = field(default_factory=dict)
    seeds: int = 3
    trials: int = 1
    subset: int | None = None
    sweep: int = 1000
    split: str = "test"
    val_split: str = "val"
    c: int = 20
    space: str = "doc2vec"
    neighbours: int = 200
    min_count: int = 20
    graphs: Mapping[str, Path] = field(default_factory=dict)
    device: str = "auto"
    workers: int = 2
    quiet: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.trials <= len(FACTORS):
            raise RecipeError(f"--trials needs 1 to {len(FACTORS)}; it got {self.trials}")
        rows = [each for row in self.rows for each in self.table.members(row)]
        known = {
            name
            for row in rows
            if row.system
            for o in options_of(row.system.host)
            for name in (o.name, o.old_name)
            if name
        }
        for name in self.changes:
            if name not in known:
                raise RecipeError(unknown("option of these rows", name, dict.fromkeys(sorted(known))))

    def data_set(self, key: str) -> DataSet:
        """A data set of the papers, or one of the user's own."""
        return DATA_SETS.get(key, DataSet(key, key, self.c))

    @property
    def columns(self) -> tuple[Column, ...]:
        """The table's, and the same figures for each data set that the table does not have."""
        own = self.table.columns
        figures = dict.fromkeys(column.figure for column in own if column.data)
        more = [Column(key, figure) for key in self.data if key not in self.table.data for figure in figures]
        return (*(c for c in own if c.data), *more, *(c for c in own if not c.data))

    def shared(self, data: str) -> Path:
        """Folder of what the rows on a data set share: graphs and the outputs of frozen encoders."""
        return self.out / "shared" / data

    def graph(self, data: str, kind: Shared) -> Path:
        """Folder of a graph."""
        if kind is Shared.TEXT_GRAPH and data in self.graphs:
            return self.graphs[data]
        told = self.near(data) if kind is Shared.TEXT_GRAPH else [*self.cut(data), self.neighbours]
        return self.shared(data) / f"{kind.name.lower()}-{digest(told)}"

    def scored_graph(self, data: str) -> Path:
        """Folder of the graph of the texts that are scored."""
        return self.shared(data) / f"scored_graph-{digest([*self.near(data), self.split])}"

    def places(self, data: str) -> Path:
        """File of the training texts' places in the space of the graph."""
        found = self.given(data)
        space = [self.space, self.min_count] if found is None else [dict(found.space)]
        return self.shared(data) / f"text_places-{digest([*self.cut(data), *space])}.npz"

    def given(self, data: str) -> Given | None:
        """The graph that is there already; None where the table builds its own.

        Raises DataError where the folder is no graph.
        """
        return read_given(self.graphs[data]) if data in self.graphs else None

    def near(self, data: str) -> list[object]:
        """What decides which texts are neighbours."""
        found = self.given(data)
        told: list[object] = [self.neighbours, self.space, self.min_count] if found is None else [found.mark]
        return [*self.cut(data), *told]

    @property
    def selects(self) -> str | None:
        """The split that selects the epoch; None where some of the training pictures do."""
        return None if self.split == self.val_split else self.val_split

    def cut(self, data: str) -> list[object]:
        """What decides which pairs are learnt from."""
        return [self.sources(data), self.subset, self.selects]

    def sources(self, data: str) -> dict[str, Any]:
        """Where a data set is, as JSON can hold it."""
        return self.data[data].to_json()

    def missing(self, row: Row, data: str) -> str:
        """Why a row cannot be run on a data set, as in "COCO, the method hal"; empty when it can."""
        if row.mean_of:
            return next(filter(None, (self.missing(member, data) for member in self.table.members(row))), "")
        if row.system is None:
            return ""
        needs = [] if data in self.data else [self.data_set(data).name]
        if lacks := row.system.lacks():
            needs.append(lacks)
        elif data in self.data and self.data[data].features is None and _reads_features(row.system):
            needs.append("--features, which its method reads")
        return ", ".join(needs)


def measure_of(asked: Asked, row: Row, column: Column) -> str:
    """Which measurement fills a cell, with what it depends on: a graph, even where the row learnt from none."""
    measure = FIGURES[asked.table.figure(row, column)].measure
    if measure in ("preservation", "scores"):
        return f"{measure}-{digest(asked.near(column.data))}"
    return f"{measure}{asked.data_set(column.data).c}" if measure == "choice" else measure


def built_for(row: Row) -> set[Shared]:
    """What a row's methods need that is built before they are trained."""
    methods = row.system.methods if row.system else ()
    every = [value for _, options in methods for value in options.values()]
    return {kind for kind in (Shared.TEXT_GRAPH, Shared.IMAGE_GRAPH, Shared.TEXT_PLACES) if kind in every}


def _reads_features(system: System) -> bool:
    every = [value for _, options in system.methods for value in options.values()]
    return Shared.IMAGE_GRAPH in every or Shared.FEATURES in every


def options_of(host: str) -> list[Option]:
    """What can be asked of a host and of its training; nothing for one that there is not."""
    return [*models()[host].options, *plan_options(Plan())] if host in models() else []


def digest(told: object) -> str:
    """Ten hexadecimal digits of what JSON can hold."""
    text = json.dumps(told, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=5).hexdigest()
