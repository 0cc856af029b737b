"""The trainings that follow from what `subtext table` was asked for, each in a folder named after all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from reproduce.tables.request import FACTORS, Asked, digest, options_of
from reproduce.tables.specification import Row, Shared
from subtext.api.load import Sources
from subtext.api.train import Job
from subtext.data.build_context import BuildContext
from subtext.models import renamed_options
from subtext.recipes import build as unread
from subtext.recipes import catalogue
from subtext.recipes.catalogue import models
from subtext.training.plan import Plan


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
    methods = [
        (name, renamed_options.current(_supplied(asked, data, options), renamed_options.of_method(name)))
        for name, options in system.methods
    ]
    # The rate stands in the run's own name, so that trials of one row lie side by side; what is shared is known by its
    # name, so that everything may be moved together.
    others = {name: value for name, value in plan.items() if name != "lr"}
    # Folders keep the names that they had before options were renamed.
    spelt = [
        (
            name,
            renamed_options.earlier(
                {key: _known_by(asked, data, value) for key, value in options.items()}, renamed_options.of_method(name)
            ),
        )
        for name, options in methods
    ]
    told = [
        system.host,
        renamed_options.earlier(arguments, renamed_options.of_model(system.host)),
        spelt,
        renamed_options.earlier(others, renamed_options.PLAN),
        asked.cut(data),
        *_since(methods),
    ]
    label = "+".join([system.host, *(name for name, _ in methods)])
    rate = f"-rate{plan['lr']:.3g}"
    folder = asked.out / "runs" / data / f"{label}-{digest(told)}" / f"seed{seed}{rate}"
    job = Job(
        model=system.host,
        options=arguments,
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
        place = asked.out / "runs" / parts[0].data / f"{row.key}-{digest(told)}" / f"seed{parts[0].seed}"
        found.append(Scored(parts, place))
    return found


def seeds_of(first: Training, asked: Asked) -> list[Training]:
    """The chosen training with every seed, the first of which it has had."""
    more = [training(asked, first.row, first.data, seed=s, factor=first.factor) for s in range(1, asked.seeds)]
    return [replace(first, seed=0), *more]


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


def _settled(
    host: str, own: Mapping[str, object], asked: Asked, sources: Sources
) -> tuple[dict[str, object], dict[str, object]]:
    """Host options and plan of a row: its own, without what the user's changes leave nothing to read it, and these.

    A change that the row's host does not know is not made there.
    """
    known = {option.name: option for option in options_of(host)}
    renamed = {**renamed_options.PLAN, **renamed_options.of_model(host)}
    asked_for = renamed_options.current(asked.changes, renamed)
    changes = {name: known[name].read(value) for name, value in asked_for.items() if name in known}
    values = {**renamed_options.current(own, renamed), **changes}
    facts = unread.chosen_facts(values, BuildContext())
    if sources.features is not None and values.get("image", "auto") == "auto":
        facts["image"] = ("features", "regions", "regions beside a vector")
    if facts["image"][0] in ("features", "tiny", "auto") and "backbone" not in facts.get("text", ()):
        # Nothing is pretrained: a plan's words on that are not read.
        facts["body"] = ()
    kept = {
        name: value
        for name, value in values.items()
        if name in changes or name not in known or known[name].holds(facts)
    }
    plan = set(Plan.__dataclass_fields__)
    return (
        {name: value for name, value in kept.items() if name not in plan},
        {name: value for name, value in kept.items() if name in plan},
    )


def _rate(plan: Mapping[str, object], host: str) -> float:
    rate = plan.get("lr", models()[host].plan.lr)
    assert isinstance(rate, int | float)
    return float(rate)


def _since(methods: Sequence[tuple[str, Mapping[str, object]]]) -> list[dict[str, object]]:
    """What is not said of options that did something else before there were any: their rows are others since."""
    found = []
    for name, given in methods:
        options = catalogue.methods()[name].options
        found.append(
            {o.old_name or o.name: o.default for o in options if o.before != o.default and o.name not in given}
        )
    return [each for each in found if each]
