"""A table's configuration, the paths of the files that its rows share, and existing graphs that the user names."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from reproduce.tables.figure_names import FIGURES
from reproduce.tables.specification import DATA_SETS, Column, DataSet, PublishedTable, Row, Shared, System
from subtext import Plan
from subtext.errors import DataError, RecipeError, RequirementError
from subtext.graphs.build import GraphOptions
from subtext.graphs.spaces import Doc2VecSpace, LsaSpace, SentenceSpace, Space
from subtext.recipes.catalogue import models, plan_options
from subtext.settings import Field, did_you_mean

SPACES: Mapping[str, Any] = {"doc2vec": Doc2VecSpace, "lsa": LsaSpace, "sentence": SentenceSpace}
"""Text spaces that their settings alone define."""
LETTERS = {"K": "neighbours", "lambda": "total_weight"}
"""Letters of the papers for options of sample weights."""
REGION_MODELS = frozenset({"ascl", "chan", "dsran", "imram", "scan", "sgraf"})
"""Models whose papers read regions of a detector; from pixels they would have the cells of a backbone."""
JOINT = "dsran"
"""The model that tells cells from regions."""
FACTORS = (1.0, 3.0, 1 / 3, 10.0, 0.1)
"""Factors of the learning rate in a row's trials, in their order."""


@dataclass(frozen=True)
class DataPaths:
    """The files of a data set, and how they are read; see `subtext.read` and `subtext.train`.

    graph_features  of a graph by images, and of a density, where rows read pixels or other features
    regions         features of regions for the models that read them, beside pixels or other features
    """

    data: Path
    images: Path | None = None
    features: Path | None = None
    text_features: Path | None = None
    graph_features: Path | None = None
    regions: Path | None = None
    split_seed: int | None = None
    on_error: Literal["raise", "skip"] | None = None

    @property
    def reading(self) -> dict[str, Any]:
        """The options of reading, with their defaults."""
        on_error, split_seed = self.on_error or "raise", self.split_seed or 0
        return {"images": self.images, "split_seed": split_seed, "on_error": on_error}

    @property
    def of_graphs(self) -> Path | None:
        """The features of a graph by images, and of a density."""
        return self.graph_features or self.features

    def to_json(self) -> dict[str, Any]:
        """Plain data with absolute paths."""
        return {
            name: str(value.expanduser().resolve()) if isinstance(value, Path) else value
            for name, value in asdict(self).items()
        }


@dataclass(frozen=True)
class ExistingGraph:
    """The manifest of a graph that the user names.

    fingerprint  of its texts, space and settings and, in newer graphs, of the neighbours themselves
    neighbours   of each text
    space        "name" of the text space, and its settings
    settings     how neighbours were chosen
    """

    folder: Path
    fingerprint: str
    neighbours: int
    space: Mapping[str, Any]
    settings: Mapping[str, Any]

    @property
    def options(self) -> GraphOptions:
        """The same choice of neighbours, for other texts."""
        same_image, distance = self.settings["same_image"], self.settings.get("distance")
        return GraphOptions(self.neighbours, candidate_split="all", same_image=same_image, distance=distance)

    def text_space(self, configured: Callable[[], Space], device: str) -> Space:
        """Its text space, not yet fitted.

        configured  makes the space of the command's options, for spaces that their settings do not define, such as a
                    file of features

        Raises RequirementError where such a space is not the one of the options.
        """
        settings = {name: value for name, value in self.space.items() if name != "name"}
        name = str(self.space.get("name"))
        if name in SPACES and set(settings) <= {option.name for option in fields(SPACES[name])}:
            defined: Space = SPACES[name](**settings, **({"device": device} if name == "sentence" else {}))
            return defined
        space = configured()
        if dict(space.settings()) != dict(self.space):
            raise RequirementError(
                f"vectors of other texts need the text space of {self.folder}, {name}; --space is "
                f"{space.settings()['name']}; name the space that the graph was built with"
            )
        return space

    def to_json(self) -> dict[str, Any]:
        """Plain data for a table's JSON."""
        return {
            "given": str(self.folder.expanduser().resolve()),
            "fingerprint": self.fingerprint,
            "neighbours": self.neighbours,
            "space": dict(self.space),
            "settings": dict(self.settings),
        }


def read_graph(folder: Path) -> ExistingGraph:
    """Read a graph's manifest; the arrays are read and checked where they are used.

    Raises DataError where the folder is no graph.
    """
    file = folder / "graph.json"
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
        if manifest["kind"] != "subtext graph":
            raise ValueError("it is of another kind")
        fingerprint = "-".join(str(manifest[name]) for name in ("fingerprint", "arrays") if manifest.get(name))
        neighbours, space, settings = int(manifest["neighbours"]), dict(manifest["space"]), dict(manifest["settings"])
    except (OSError, ValueError, KeyError, TypeError) as problem:
        reason = "does not exist" if isinstance(problem, FileNotFoundError) else f"cannot be read ({problem!r})"
        raise DataError(
            f"--graph needs a folder that `subtext neighbours build` wrote; {folder} is none: {file.name} {reason}"
        ) from problem
    return ExistingGraph(folder, fingerprint, neighbours, space, settings)


@dataclass(frozen=True)
class TableConfig:
    """A table and the protocol of its reproduction.

    name, table   of `specification.tables()`        rows       to train
    data          key -> its files                   changes    model options and plan fields for every row, as text
    seeds         trainings per row                  trials     learning rates per row, chosen by validation
    sweep         training images of a sweep that chooses a row's ratio on a data set; 0: no sweep
    subset        training images; None for all      split      is evaluated      val_split  selects the epoch
    sweeps        "PART.OPTION" -> values among which each row that has it chooses, by validation
    save_every_epochs   every Nth epoch of a training is kept; 0 for none
    c             candidates of a c-way choice on a data set that is not the papers'
    space, neighbours, min_count   of the graphs that rows share
    graphs        key -> existing graph of the training texts, used with its own space and neighbours
    """

    name: str
    table: PublishedTable
    rows: tuple[Row, ...]
    out: Path
    data: Mapping[str, DataPaths] = field(default_factory=dict)
    changes: Mapping[str, str] = field(default_factory=dict)
    seeds: int = 3
    trials: int = 1
    subset: int | None = None
    sweep: int = 1000
    sweeps: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    split: str = "test"
    val_split: str = "val"
    save_every_epochs: int = 0
    c: int = 20
    space: str = "doc2vec"
    neighbours: int = 200
    min_count: int = 20
    graphs: Mapping[str, Path] = field(default_factory=dict)
    device: str = "auto"
    workers: int = 2
    quiet: bool = False

    def __post_init__(self) -> None:
        systems = [member.system for row in self.rows for member in self.table.members(row) if member.system]
        options = {name for system in systems for name in options_of(system.model)}
        for name in self.changes:
            if name not in options:
                raise RecipeError(did_you_mean("option of these rows", name, dict.fromkeys(sorted(options))))
        for name, values in self.sweeps.items():
            part, option = swept_option(name)
            if not any(system.has(part, option) for system in systems):
                raise RecipeError(
                    f"--sweep-option needs METHOD.OPTION of a method or model of these rows; none has '{name}'"
                )
            if len(set(values)) < len(values) or not all(values):
                raise RecipeError(f"--sweep-option {name} needs different values; it got '{','.join(values)}'")

    @property
    def torch_device(self) -> str:
        """The device by its name in PyTorch; "auto" is the first GPU, or the processor."""
        return ("cuda" if torch.cuda.is_available() else "cpu") if self.device == "auto" else self.device

    def data_set(self, key: str) -> DataSet:
        """A data set of the papers, or one of the user."""
        return DATA_SETS.get(key, DataSet(key, key, self.c))

    @property
    def columns(self) -> tuple[Column, ...]:
        """The table's columns, and the same figures for each data set of the user, before the means."""
        columns = self.table.columns
        figures = dict.fromkeys(column.figure for column in columns if column.data)
        added = [Column(key, figure) for key in self.data if key not in self.table.data for figure in figures]
        return (*(c for c in columns if c.data), *added, *(c for c in columns if not c.data))

    def shared(self, data: str) -> Path:
        """Folder of the files that rows share on a data set: graphs and the outputs of frozen encoders."""
        return self.out / "shared" / data

    def graph(self, data: str, kind: Shared) -> Path:
        """Folder of a graph."""
        if kind is Shared.TEXT_GRAPH and data in self.graphs:
            return self.graphs[data]
        identity = self.neighbourhood(data)
        if kind is Shared.IMAGE_GRAPH:
            identity = [*self.cut(data, self.data[data].of_graphs), self.neighbours]
        return self.shared(data) / f"{kind.name.lower()}-{digest(identity)}"

    def scored_graph(self, data: str) -> Path:
        """Folder of the graph of the evaluated texts."""
        return self.shared(data) / f"scored_graph-{digest([*self.neighbourhood(data), self.split])}"

    def text_vectors(self, data: str) -> Path:
        """File of the training texts' vectors in the space of the graph."""
        graph = self.existing_graph(data)
        space = [self.space, self.min_count] if graph is None else [dict(graph.space)]
        return self.shared(data) / f"text_places-{digest([*self.cut(data), *space])}.npz"

    def existing_graph(self, data: str) -> ExistingGraph | None:
        """The graph that the user names; None where the table builds its own.

        Raises DataError where the folder is no graph.
        """
        return read_graph(self.graphs[data]) if data in self.graphs else None

    def neighbourhood(self, data: str) -> list[object]:
        """Everything that decides which texts are neighbours."""
        graph = self.existing_graph(data)
        choice: list[object] = [self.neighbours, self.space, self.min_count] if graph is None else [graph.fingerprint]
        return [*self.cut(data), *choice]

    @property
    def selection_split(self) -> str | None:
        """The split that selects the epoch; None where a part of the training images does."""
        return None if self.split == self.val_split else self.val_split

    def features(self, row: Row, data: str) -> Path | None:
        """The image features that a row reads; None for pixels."""
        paths = self.data[data]
        return (paths.regions or paths.features) if reads_regions(row) else paths.features

    def cut(self, data: str, features: Path | None = None) -> list[object]:
        """Everything that decides which pairs are trained on.

        features  the image features that are read, where they are not those of the data set
        """
        paths = self.data[data].to_json()
        for name in ("graph_features", "regions"):
            del paths[name]
        if features is not None:
            paths["features"] = str(features.expanduser().resolve())
        # Folders keep the names that they had when this option was called `bad` and its values refuse and skip.
        on_error = paths.pop("on_error")
        paths["bad"] = "refuse" if on_error == "raise" else on_error
        return [paths, self.subset, self.selection_split]

    def missing(self, row: Row, data: str) -> str:
        """What a row needs on a data set and does not have, as in "COCO, the method hal"; empty when it can be run."""
        if row.mean_of:
            return next(filter(None, (self.missing(member, data) for member in self.table.members(row))), "")
        if row.system is None:
            return ""
        needs = [] if data in self.data else [self.data_set(data).name]
        if lacks := row.system.lacks():
            needs.append(lacks)
        elif data in self.data and self.data[data].of_graphs is None and _reads_features(row.system):
            needs.append("--graph-features or --features, which its method reads")
        elif data in self.data and reads_regions(row):
            if (file := self.features(row, data)) is None:
                needs.append("--regions or --features: its model reads regions of a detector")
            elif row.system.model == JOINT and "grid_cells" not in self.changes and not cells_of(file):
                needs.append(
                    "cells before the regions, as `subtext data join CELLS REGIONS` writes them, or --set grid_cells=N"
                )
        return ", ".join(needs)


def measure_of(config: TableConfig, row: Row, column: Column) -> str:
    """The measurement that fills a cell, with what it depends on: a graph even where the row was trained without."""
    measure = FIGURES[config.table.figure(row, column)].measure
    if row.null:
        return f"{row.null}-{measure_of(config, replace(row, null=''), column)}"
    if measure in ("preservation", "scores"):
        return f"{measure}-{digest(config.neighbourhood(column.data))}"
    return f"{measure}{config.data_set(column.data).c}" if measure == "question" else measure


def built_for(row: Row) -> set[Shared]:
    """The shared files that a row's methods need before training."""
    values = _method_values(row.system) if row.system else []
    return {kind for kind in (Shared.TEXT_GRAPH, Shared.IMAGE_GRAPH, Shared.TEXT_VECTORS) if kind in values}


def swept_option(name: str) -> tuple[str, str]:
    """(method or model, option) of PART.OPTION, in which papers' letters stand for two options.

    >>> swept_option("diversity.K")
    ('diversity', 'neighbours')
    """
    part, _, option = name.partition(".")
    return part.strip(), LETTERS.get(option.strip(), option.strip().replace("-", "_"))


def reads_regions(row: Row) -> bool:
    """Whether a row's model reads regions of a detector."""
    return row.system is not None and row.system.model in REGION_MODELS


def cells_of(file: Path) -> int:
    """How many first parts of each image are cells of a grid, in a file of `subtext data join`; 0 in any other."""
    file = file.expanduser()
    if file.suffix != ".npz" or not file.is_file():
        return 0
    with np.load(file, allow_pickle=False) as arrays:
        return int(arrays["cells"]) if "cells" in arrays.files else 0


def _reads_features(system: System) -> bool:
    values = _method_values(system)
    return Shared.IMAGE_GRAPH in values or Shared.FEATURES in values


def _method_values(system: System) -> list[object]:
    return [value for _, options in system.methods for value in options.values()]


def options_of(model: str) -> dict[str, Field]:
    """The options of a model and of its training by their names; none for an unknown model."""
    options = [*models()[model].options, *plan_options(Plan())] if model in models() else []
    return {option.name: option for option in options}


def digest(identity: object) -> str:
    """Ten hexadecimal digits of plain data."""
    text = json.dumps(identity, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=5).hexdigest()
