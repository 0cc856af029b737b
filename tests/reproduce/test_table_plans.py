"""One protocol: what trains the rows of a table differs only where a system says so."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import reproduce.systems
from reproduce.tables.config import DataPaths, TableConfig
from reproduce.tables.specification import PublishedTable, Row, System, tables
from reproduce.tables.trainings import training
from subtext.data.feature_file import FeatureShape
from subtext.recipes import catalogue
from subtext.recipes.build import build, used_options
from subtext.recipes.catalogue import plan_options
from subtext.training.plan import Plan
from subtext.training.setup import BuildContext

pytestmark = pytest.mark.contract

SMALL = {"embed_dim": "16", "word_dim": "8", "text": "gru"}
NAMES = sorted(tables())
TWO_PLANS = {"daa2022_table1": "SAF and SGR have the plan of Section 5.2 for them"}
"""Table whose paper trains its systems in two ways -> what its notes say of that."""


def trained(table: PublishedTable) -> list[Row]:
    return [row for row in table.rows if row.system is not None]


def on(row: Row, data: str) -> System:
    assert row.system is not None
    return row.system.on(data)


def as_pixels(table: PublishedTable, system: System) -> dict[str, object]:
    """What is read of the host's plan with the table's and the system's in it, where pictures are pixels."""
    found = read_of_plan(asdict(catalogue.models()[system.model].plan) | {**table.plan, **system.plan})
    # Methods say this for themselves: the other test builds them.
    return {each: value for each, value in found.items() if each != "drop_last"}


def read_of_plan(values: dict[str, object]) -> dict[str, object]:
    """What of a plan something reads."""
    return used_options(plan_options(Plan()), values, {name: (str(value),) for name, value in values.items()})


def as_features(name: str, row: Row, data: str) -> dict[str, object]:
    """The plan of the Setup that is built for a row, methods and all, where features stand for pictures."""
    table = tables()[name]
    known = {option.name for each in trained(table) for option in catalogue.models()[on(each, data).model].options}
    changes = {option: value for option, value in SMALL.items() if option in known}
    sources = DataPaths(data=Path("pairs.jsonl"), features=Path("features.npz"))
    config = TableConfig(name=name, table=table, rows=(row,), out=Path("out"), data={data: sources}, changes=changes)
    job = training(config, row, data, seed=0)
    regions = catalogue.models()[job.model].name in ("scan", "imram", "sgraf", "ascl", "dsran", "chan")
    shape = FeatureShape(pooled=None if regions else 8, grid=8)
    context = BuildContext(image_features=shape, texts=("two dogs run", "a red hat"), seed=0)
    return read_of_plan(asdict(build(job.model, job.options, methods=job.methods, plan=job.plan, context=context).plan))


def apart(name: str, plans: dict[str, tuple[dict[str, object], System]]) -> dict[str, dict[str, object]]:
    """Row -> what is trained otherwise in it than in the first; in a table of two plans but for what a system names."""
    (one, theirs), *_ = plans.values()
    found = {}
    for key, (plan, system) in plans.items():
        told = {*system.plan, *theirs.plan} if name in TWO_PLANS and system.plan != theirs.plan else set()
        both = (set(one) & set(plan)) - told
        if others := {each: (one[each], plan[each]) for each in both if one[each] != plan[each]}:
            found[key] = others
    return found


@pytest.mark.parametrize("name", NAMES)
def test_rows_share_one_plan_on_pixels(name: str) -> None:
    table = tables()[name]
    for data in (*table.data, "mine"):
        plans = {row.key: (as_pixels(table, on(row, data)), on(row, data)) for row in trained(table)}
        assert plans and not apart(name, plans)


@pytest.mark.parametrize("name", NAMES)
def test_rows_share_one_plan_with_methods(name: str) -> None:
    table = tables()[name]
    data = table.data[0]
    rows = [row for row in trained(table) if row.mean_of == () and not on(row, data).swept]
    plans = {row.key: (as_features(name, row, data), on(row, data)) for row in rows}
    assert plans and not apart(name, plans)


@pytest.mark.parametrize("name", TWO_PLANS)
def test_table_with_two_plans_has_note(name: str) -> None:
    assert any(note.startswith(TWO_PLANS[name]) for note in tables()[name].notes)


def test_eccv2020_plan_equals_published_section() -> None:
    table = tables()["eccv2020_table1"]
    told: dict[str, Any] = {"optimiser": "adam", "amsgrad": False, "lr": 1e-4, "weight_decay": 1e-5, "batch_size": 64}
    for row in table.rows:
        found = as_features("eccv2020_table1", row, "politics")
        assert found.items() >= (told | {"warmup": 0.0, "weight_average": "none", "max_grad_norm": 0.0}).items(), (
            row.key
        )


def test_systems_use_the_names_that_options_have_today() -> None:
    known_plan = {option.name for option in plan_options(Plan())}
    systems = [
        found
        for module in pkgutil.iter_modules(reproduce.systems.__path__)
        for value in vars(importlib.import_module(f"reproduce.systems.{module.name}")).values()
        for found in (value.values() if isinstance(value, dict) else [value])
        if isinstance(found, System)
    ]
    assert len(systems) > 40
    for system in systems:
        known = known_plan | {option.name for option in catalogue.models()[system.model].options}
        assert {*system.options, *system.plan} <= known
        for name, options in system.methods:
            assert set(options) <= {option.name for option in catalogue.methods()[name].options}
