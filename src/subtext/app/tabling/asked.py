"""What `subtext table` was asked for, and the trainings that follow from it; of files it reads what a graph is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from subtext.app.job import Job, Sources
from subtext.app.tabling.given import Given, read_given
from subtext.data.supply import Supply
from subtext.errors import RecipeError
from subtext.recipes import catalogue, unread
from subtext.recipes.catalogue import Option, hosts, plan_options, unknown
from subtext.recipes.published import DATA_SETS, FIGURES, Column, DataSet, Published, Row, Shared, System
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
        known = {option.name for row in rows if row.system for option in _options(row.system.host)}
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
        return self.shared(data) / f"{kind.name.lower()}-{_digest(told)}"

    def scored_graph(self, data: str) -> Path:
        """Folder of the graph of the texts that are scored."""
        return self.shared(data) / f"scored_graph-{_digest([*self.near(data), self.split])}"

    def places(self, data: str) -> Path:
        """File of the training texts' places in the space of the graph."""
        found = self.given(data)
        space = [self.space, self.min_count] if found is None else [dict(found.space)]
        return self.shared(data) / f"text_places-{_digest([*self.cut(data), *space])}.npz"

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


@dataclass(frozen=True)
class Training:
    """One training of a row: on a data set, with a seed and a learning rate.

    folder  the run's        factor  what the table's learning rate is multiplied by
    """

    row: Row
    data: str
    seed: int
    factor: float
    job: Job
    folder: Path


@dataclass(frozen=True)
class Scored:
    """What is scored of a row for a seed: one training, or several whose models are joined.

    folder  the one training's, or one that is named after all of them; its files stand beside it
    """

    trainings: tuple[Training, ...]
    folder: Path

    def measured(self, measure: str, split: str) -> Path:
        """Where its figures stand, without the ending: figures in JSON, values a query in npz."""
        return self.folder.with_name(f"{self.folder.name}.{measure}.{split}")


def training(asked: Asked, row: Row, data: str, *, seed: int, factor: float = 1.0) -> Training:
    """The training of a row, whose folder's name changes with everything that is asked of it.

    Raises RecipeError for a change that an option does not take.
    """
    assert row.system is not None
    system = row.system.on(data)
    sources = asked.data[data]
    pixels = asked.table.pixels if sources.features is None else {}
    values = {**system.options, **pixels, **asked.table.plan, **system.plan}
    arguments, plan = _settled(system.host, values, asked, sources)
    plan["lr"] = _rate(plan, system.host) * factor
    methods = [(name, _supplied(asked, data, options)) for name, options in system.methods]
    # The rate stands in the run's own name, so that trials of one row lie side by side; what is shared is known by its
    # name, so that everything may be moved together.
    others = {name: value for name, value in plan.items() if name != "lr"}
    spelt = [
        (name, {key: _known_by(asked, data, value) for key, value in options.items()}) for name, options in methods
    ]
    told = [system.host, arguments, spelt, others, asked.cut(data), *_since(methods)]
    label = "+".join([system.host, *(name for name, _ in methods)])
    rate = f"-rate{plan['lr']:.3g}"
    folder = asked.out / "runs" / data / f"{label}-{_digest(told)}" / f"seed{seed}{rate}"
    job = Job(
        host=system.host,
        arguments=arguments,
        methods=tuple(
            (name, {key: str(value.resolve()) if isinstance(value, Path) else value for key, value in options.items()})
            for name, options in methods
        ),
        plan=plan,
        sources=sources,
        out=folder,
        val_split=asked.selects,
        quiet=asked.quiet,
    )
    return Training(row, data, seed, factor, job, folder)


def measure_of(asked: Asked, row: Row, column: Column) -> str:
    """Which measurement fills a cell, with what it depends on: a graph, even where the row learnt from none."""
    measure = FIGURES[asked.table.figure(row, column)].measure
    if measure in ("preservation", "scores"):
        return f"{measure}-{_digest(asked.near(column.data))}"
    return f"{measure}{asked.data_set(column.data).c}" if measure == "choice" else measure


def built_for(row: Row) -> set[Shared]:
    """What a row's methods need that is built before they are trained."""
    methods = row.system.methods if row.system else ()
    every = [value for _, options in methods for value in options.values()]
    return {kind for kind in (Shared.TEXT_GRAPH, Shared.IMAGE_GRAPH, Shared.TEXT_PLACES) if kind in every}


def _reads_features(system: System) -> bool:
    every = [value for _, options in system.methods for value in options.values()]
    return Shared.IMAGE_GRAPH in every or Shared.FEATURES in every


def _supplied(asked: Asked, data: str, options: Mapping[str, object]) -> dict[str, object]:
    """A method's options with what rows share in its place; a graph that was given has its own number of neighbours."""
    found = asked.given(data) if Shared.TEXT_GRAPH in options.values() else None
    shared: dict[object, object] = {
        Shared.NEIGHBOURS: asked.neighbours if found is None else found.neighbours,
        Shared.FEATURES: asked.data[data].features,
        Shared.TEXT_PLACES: asked.places(data),
        **{kind: asked.graph(data, kind) for kind in (Shared.TEXT_GRAPH, Shared.IMAGE_GRAPH)},
    }
    return {key: shared[value] if isinstance(value, Shared) else value for key, value in options.items()}


def _known_by(asked: Asked, data: str, value: object) -> object:
    """An option's value as a run's name has it: of what is shared the name, of a graph that was given what is in it."""
    found = asked.given(data)
    if found is not None and value == found.folder:
        return found.mark
    return value.name if isinstance(value, Path) else value


def _options(host: str) -> list[Option]:
    return [*hosts()[host].options, *plan_options(Plan())] if host in hosts() else []


def _settled(
    host: str, own: Mapping[str, object], asked: Asked, sources: Sources
) -> tuple[dict[str, object], dict[str, object]]:
    """Host options and plan of a row: its own, without what the user's changes leave nothing to read it, and these.

    A change that the row's host does not know is not made there.
    """
    known = {option.name: option for option in _options(host)}
    changes = {name: known[name].read(value) for name, value in asked.changes.items() if name in known}
    values = {**own, **changes}
    facts = unread.asked(values, Supply())
    if sources.features is not None and values.get("image", "auto") == "auto":
        facts["image"] = ("features", "regions", "regions beside a vector")
    if facts["image"][0] in ("features", "tiny", "auto") and "backbone" not in facts.get("text", ()):
        # Nothing is pretrained: a plan's words on that are not read.
        facts["body"] = ()
    kept = {
        name: value
        for name, value in values.items()
        if name in changes or name not in known or all(when.holds(facts) for when in known[name].when)
    }
    plan = set(Plan.__dataclass_fields__)
    return (
        {name: value for name, value in kept.items() if name not in plan},
        {name: value for name, value in kept.items() if name in plan},
    )


def _rate(plan: Mapping[str, object], host: str) -> float:
    rate = plan.get("lr", hosts()[host].plan.lr)
    assert isinstance(rate, int | float)
    return float(rate)


def _since(methods: Sequence[tuple[str, Mapping[str, object]]]) -> list[dict[str, object]]:
    """What is not said of options that did something else before there were any: their rows are others since."""
    found = []
    for name, given in methods:
        options = catalogue.methods()[name].options
        found.append({o.name: o.default for o in options if o.unsaid != o.default and o.name not in given})
    return [each for each in found if each]


def _digest(told: object) -> str:
    text = json.dumps(told, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=5).hexdigest()


def trials_of(asked: Asked, row: Row, data: str) -> list[Training]:
    """The trainings among which a row's learning rate is chosen, all with the first seed."""
    return [training(asked, row, data, seed=0, factor=factor) for factor in FACTORS[: asked.trials]]


def scored_of(asked: Asked, row: Row, members: Sequence[Sequence[Training]]) -> list[Scored]:
    """What is scored of a row, a seed each.

    members  the trainings of the rows that it joins, or its own alone, a seed each
    """
    if not row.mean_of:
        return [Scored((training,), training.folder) for training in members[0]]
    found = []
    for parts in zip(*members, strict=True):
        told = [str(part.folder.relative_to(asked.out)) for part in parts]
        place = asked.out / "runs" / parts[0].data / f"{row.key}-{_digest(told)}" / f"seed{parts[0].seed}"
        found.append(Scored(parts, place))
    return found


def seeds_of(first: Training, asked: Asked) -> list[Training]:
    """The chosen training with every seed, the first of which it has had."""
    more = [training(asked, first.row, first.data, seed=s, factor=first.factor) for s in range(1, asked.seeds)]
    return [replace(first, seed=0), *more]
