"""The trainings of a table, each in a folder that is named after everything that decides its result.

Rows whose ratio of beta and gamma a sweep chooses have more trainings, on a subset.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from reproduce.tables.config import FACTORS, JOINT, TableConfig, cells_of, digest, options_of, swept_option
from reproduce.tables.specification import RATIOS, UNSWEPT, Ratio, Row, Shared
from subtext import Plan
from subtext.errors import RecipeError
from subtext.models.checkpoint import Record, load_record
from subtext.recipes.build import chosen_facts, is_read
from subtext.recipes.catalogue import methods, models


@dataclass(frozen=True)
class Training:
    """One training of a row: on a data set, with a seed and a learning rate.

    model, options, methods, plan  arguments of `subtext.train`
    features  of images; None for pixels
    factor  of the table's learning rate        folder  of the run
    """

    row: Row
    data: str
    seed: int
    factor: float
    model: str
    options: Mapping[str, object]
    methods: tuple[tuple[str, Mapping[str, object]], ...]
    plan: Mapping[str, object]
    features: Path | None
    folder: Path


@dataclass(frozen=True)
class Evaluation:
    """The runs that are evaluated for a row and seed: one, or several whose mean score is measured.

    folder  that of the one training, or one named after all of them; the measurements are written beside it
    """

    trainings: tuple[Training, ...]
    folder: Path

    def file(self, measure: str, split: str) -> Path:
        """A measurement without its suffix: figures in JSON, values per query in npz."""
        return self.folder.with_name(f"{self.folder.name}.{measure}.{split}")


def training(config: TableConfig, row: Row, data: str, *, seed: int, factor: float = 1.0) -> Training:
    """The training of a row; the name of its folder changes with everything that decides the result.

    Raises RecipeError for a value that an option does not take.
    """
    assert row.system is not None
    system = row.system.on(data)
    features = config.features(row, data)
    pixels = config.table.pixels if features is None else {}
    values = {**system.options, **pixels, **config.table.plan, **system.plan}
    if system.model == JOINT and features is not None and (cells := cells_of(features)):
        values["grid_cells"] = cells
    options, plan = _options_and_plan(system.model, values, config, data, features)
    rate = plan.get("lr", models()[system.model].plan.lr)
    assert isinstance(rate, int | float)
    plan["lr"] = rate * factor
    chosen, identities = [], []
    for name, shared in system.methods:
        method = _resolved(config, data, shared)
        # Shared files count by name alone, so the complete folder can be moved.
        identities.append((name, {k: _name_of(config, data, v) for k, v in method.items()}))
        chosen.append((name, {k: str(v.resolve()) if isinstance(v, Path) else v for k, v in method.items()}))
    # The learning rate is part of the run's name, so the trials of a row lie side by side.
    plan_but_rate = {name: value for name, value in plan.items() if name != "lr"}
    identity = [system.model, options, identities, plan_but_rate, config.cut(data, features)]
    identity += [system.code] if system.code else []
    label = "+".join([system.model, *(name for name, _ in chosen)])
    folder = config.out / "runs" / data / f"{label}-{digest(identity)}" / f"seed{seed}-rate{plan['lr']:.3g}"
    return Training(row, data, seed, factor, system.model, options, tuple(chosen), plan, features, folder)


def trials_of(config: TableConfig, row: Row, data: str) -> list[Training]:
    """The trainings among which a row's learning rate and swept options are chosen, all with the first seed."""
    rows = _swept_rows(config, row, data)
    return [training(config, each, data, seed=0, factor=factor) for each in rows for factor in FACTORS[: config.trials]]


def _swept_rows(config: TableConfig, row: Row, data: str) -> list[Row]:
    """The row with each combination of the values of the options that are swept and that it has; itself without any."""
    assert row.system is not None
    rows = [replace(row, system=row.system.on(data))]
    for name, values in config.sweeps.items():
        part, option = swept_option(name)
        if row.system.has(part, option):
            recipe = methods()[part] if part in dict(row.system.methods) else models()[part]
            read = next(each for each in recipe.options if each.name == option)
            parsed = [read.parse(value, RecipeError) for value in values]
            rows = [
                replace(each, system=each.system.but(part, option, value))
                for each in rows
                if each.system is not None
                for value in parsed
            ]
    return rows


def evaluations_of(config: TableConfig, row: Row, members: Sequence[Sequence[Training]]) -> list[Evaluation]:
    """The runs that are evaluated for a row, one evaluation per seed.

    members  trainings per seed, of each row that this row averages or of this row alone
    """
    if not row.mean_of:
        return [Evaluation((run,), run.folder) for run in members[0]]
    evaluations = []
    for runs in zip(*members, strict=True):
        identity = [str(run.folder.relative_to(config.out)) for run in runs]
        folder = config.out / "runs" / runs[0].data / f"{row.key}-{digest(identity)}" / f"seed{runs[0].seed}"
        evaluations.append(Evaluation(runs, folder))
    return evaluations


def seeds_of(first: Training, config: TableConfig) -> list[Training]:
    """The chosen training with every seed; it has the first seed itself."""
    later = [training(config, first.row, first.data, seed=s, factor=first.factor) for s in range(1, config.seeds)]
    return [replace(first, seed=0), *later]


def is_swept(row: Row, data: str) -> bool:
    """Whether a sweep chooses a row's ratio on a data set, because the paper has none for it."""
    return row.system is not None and row.system.on(data).swept


def with_ratio(row: Row, data: str, ratio: Ratio) -> Row:
    """The row with a ratio, where a sweep chooses it; any other row unchanged."""
    return replace(row, system=row.system.on(data).at(ratio)) if row.system and is_swept(row, data) else row


def sweep_of(config: TableConfig, row: Row, data: str) -> tuple[TableConfig, list[Training]]:
    """The trainings among which a row's ratio is chosen, in the order of RATIOS, and their configuration.

    Their table has fewer images; they have seed 0, the table's learning rate and a graph of their own texts.
    """
    subset = config.sweep if config.subset is None else min(config.sweep, config.subset)
    small = replace(config, subset=subset)
    return small, [training(small, with_ratio(row, data, ratio), data, seed=0) for ratio in RATIOS]


def settled(config: TableConfig, row: Row, data: str) -> Row | None:
    """The row with the ratio that its sweep chose, or unchanged where nothing is swept; None before the sweep's end."""
    if not is_swept(row, data):
        return row
    if not config.sweep:
        return with_ratio(row, data, UNSWEPT)
    runs = sweep_of(config, row, data)[1]
    if any(status(run) != "finished" for run in runs):
        return None
    return with_ratio(row, data, best_ratio([load_record(run.folder) for run in runs]))


def status(run: Training) -> str:
    """State of a training: "finished", "started" or "not started"."""
    if not (run.folder / "run.json").is_file():
        return "not started"
    return "finished" if load_record(run.folder).status == "finished" else "started"


def validation_score(record: Record) -> float:
    """The value by which a training's plan selects the epoch; larger is better, so a loss is negated."""
    if record.plan.get("select") == "loss":
        return -record.best.get("loss", math.inf)
    return record.best.get("rsum", -math.inf)


def best_ratio(records: Sequence[Record]) -> Ratio:
    """The best ratio of trainings in the order of RATIOS; of equal ones the first."""
    scores = [validation_score(record) for record in records]
    return RATIOS[scores.index(max(scores))]


def _resolved(config: TableConfig, data: str, options: Mapping[str, object]) -> dict[str, object]:
    """A method's options with the shared values filled in; an existing graph has its own number of neighbours."""
    graph = config.existing_graph(data) if Shared.TEXT_GRAPH in options.values() else None
    shared: dict[object, object] = {
        Shared.NEIGHBOURS: config.neighbours if graph is None else graph.neighbours,
        Shared.FEATURES: config.data[data].of_graphs,
        Shared.TEXT_VECTORS: config.text_vectors(data),
        **{kind: config.graph(data, kind) for kind in (Shared.TEXT_GRAPH, Shared.IMAGE_GRAPH)},
    }
    return {key: shared[value] if isinstance(value, Shared) else value for key, value in options.items()}


def _name_of(config: TableConfig, data: str, value: object) -> object:
    """An option's value in the identity of a run: the name of a shared file, the fingerprint of an existing graph."""
    graph = config.existing_graph(data)
    if graph is not None and value == graph.folder:
        return graph.fingerprint
    if value is not None and value == config.data[data].graph_features:
        return str(config.data[data].to_json()["graph_features"])
    return value.name if isinstance(value, Path) else value


def _options_and_plan(
    model: str, values: Mapping[str, object], config: TableConfig, data: str, features: Path | None
) -> tuple[dict[str, object], dict[str, object]]:
    """Model options and plan of a row with the user's changes, without options that nothing then reads.

    A change that the row's model does not have is left out; of a row that reads regions beside pixels also one of how
    pixels are read.
    """
    options = options_of(model)
    changes = {name: options[name].parse(text, RecipeError) for name, text in config.changes.items() if name in options}
    beside = features is not None and features != config.data[data].features
    if beside:
        changes.pop("image", None)
    values = {**values, **changes}
    facts = chosen_facts(values)
    if features is not None and values.get("image", "auto") == "auto":
        facts["image"] = ("features", "regions", "regions beside a vector")
    if facts["image"][0] in ("features", "tiny", "auto") and "backbone" not in facts.get("text", ()):
        # Nothing is pretrained, so no option of a pretrained body is read.
        facts["body"] = ()
    used = {
        name: value
        for name, value in values.items()
        if (name in changes and not beside) or name not in options or is_read(options[name], facts)
    }
    plan = set(Plan.__dataclass_fields__)
    return (
        {name: value for name, value in used.items() if name not in plan},
        {name: value for name, value in used.items() if name in plan},
    )
