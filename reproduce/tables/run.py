"""Rows carried out: each training that is not there is run, or gone on with, and measured once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reproduce.tables.material import Loaded, load, require
from reproduce.tables.measures import Measured, measure
from reproduce.tables.request import Asked, built_for
from reproduce.tables.specification import Row
from reproduce.tables.sweep import known, status, sweep_of
from reproduce.tables.trainings import Scored, Training, scored_of, seeds_of, trials_of
from subtext.api.load import choose_device
from subtext.api.train import build_setup, initial_record
from subtext.data.atomic import write_file, write_text
from subtext.errors import (
    CheckpointError,
    DataError,
    RecipeError,
    RequirementError,
    SubtextError,
    TrainingError,
    counted,
)
from subtext.models.checkpoint import Record, load_record
from subtext.models.ensemble import ensemble
from subtext.report.progress import say, training_meter
from subtext.training.fit import fit
from subtext.training.setup import Fitted, RunOptions

MENDABLE = (CheckpointError, DataError, RecipeError, RequirementError, TrainingError)
"""What ends one row, and leaves the others."""


class Stopped(SubtextError):
    """Somebody asked to stop; what was done is kept."""


@dataclass
class Bench:
    """A data set on which rows are trained: what they share is read and built when the first of them needs it."""

    asked: Asked
    key: str

    @cached_property
    def loaded(self) -> Loaded:
        """The pairs."""
        return load(self.asked, self.key)

    def fitted(self, run: Training, *, number: str) -> Fitted:
        """Train, go on, or open what is finished.

        Raises Stopped when somebody asked to stop; what preparing and training raise.
        """
        asked = self.asked
        for kind in sorted(built_for(run.row), key=lambda each: each.name):
            require(asked, self.key, kind, self.loaded)
        say(f"{number}: {run.row.name} on {asked.data_set(self.key).name}, seed {run.seed}", quiet=asked.quiet)
        job, material = run.job, self.loaded.material
        setup = build_setup(job, material, seed=run.seed)
        cache = asked.shared(self.key) / "cache"
        options = RunOptions(
            seed=run.seed,
            device=choose_device(asked.device),
            workers=asked.workers,
            resume=True,
            keep_checkpoints=1,
            cache=cache,
        )
        with training_meter(quiet=asked.quiet) as told:
            record = initial_record(job, material, setup)
            fitted = fit(setup, material.train, material.val, job.out, record=record, run=options, report=told)
        if fitted.record.status == "stopped":
            raise Stopped(f"stopped in {run.folder}; the same command goes on from there")
        return fitted


@dataclass
class Found:
    """What a row gave on a data set: a value a seed for each measurement, or why there is none.

    trained   the trainings behind it, a seed each        figures  measurement -> figures, a seed each
    queries   figure -> (seeds, queries) values           clusters figure -> (queries) pictures
    sizes     part of the data set -> pictures, texts and pairs
    missing   for its cells                               failed   for the notes
    """

    trained: list[Training] = field(default_factory=list)
    figures: dict[str, list[Mapping[str, float]]] = field(default_factory=dict)
    queries: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    clusters: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    sizes: dict[str, dict[str, int]] = field(default_factory=dict)
    missing: str = ""
    failed: str = ""


def run_row(bench: Bench, row: Row, wanted: list[str], number: str) -> Found:
    """Train and measure a row with every seed, after its trials.

    wanted  measurements

    What cannot be done for this row alone is told in `failed`. Raises Stopped when somebody asked to stop.
    """
    asked = bench.asked
    if (found := there(asked, row, bench.key, wanted)) is not None:
        return found
    try:
        settled = [_settled(bench, member, number) for member in asked.table.members(row)]
        members = [seeds_of(_best(bench, trials_of(asked, member, bench.key), number), asked) for member in settled]
        runs = scored_of(asked, row, members)
        for run in runs:
            _measure(bench, run, wanted, number)
    except MENDABLE as problem:
        return Found(missing="not run: see the notes", failed=f"{row.name} on {bench.key}: {problem}")
    return gathered(runs, wanted, asked.split)


def there(asked: Asked, row: Row, data: str, wanted: list[str]) -> Found | None:
    """What a row gave before; None unless every trial and every seed of it is there and measured."""
    members = []
    for each in asked.table.members(row):
        if (member := known(asked, each, data)) is None:
            return None
        trials = trials_of(asked, member, data)
        if any(status(run) != "finished" for run in trials):
            return None
        members.append(seeds_of(_chosen(trials, [load_record(run.folder) for run in trials]), asked))
    runs = scored_of(asked, row, members)
    if not all(_npz(run.measured(name, asked.split)).is_file() for run in runs for name in wanted):
        return None
    return gathered(runs, wanted, asked.split)


def gathered(runs: list[Scored], wanted: list[str], split: str) -> Found:
    """What was measured of trainings that are all there."""
    found = Found(trained=[training for run in runs for training in run.trainings])
    for name in wanted:
        places = [run.measured(name, split) for run in runs]
        told = [_read(place) for place in places]
        found.figures[name], found.sizes = [each["figures"] for each in told], told[0]["sizes"]
        each = []
        for place in places:
            with np.load(_npz(place), allow_pickle=False) as file:
                each.append({key: np.asarray(file[key]) for key in file.files})
        for key in each[0]:
            side, _, figure = key.partition("/")
            if side == "query":
                found.queries[figure] = np.stack([values[key] for values in each]).astype(np.float64)
            else:
                found.clusters[figure] = each[0][key].astype(np.int64)
    return found


def _settled(bench: Bench, row: Row, number: str) -> Row:
    """The row with its ratio, after the sweep that chooses it where that is still to be made."""
    if (there_ := known(bench.asked, row, bench.key)) is not None:
        return there_
    small, runs = sweep_of(bench.asked, row, bench.key)
    few = Bench(small, bench.key)
    for place, run in enumerate(runs, start=1):
        if status(run) != "finished":
            few.fitted(run, number=f"{number}, ratio {place} of {len(runs)}")
    settled = known(bench.asked, row, bench.key)
    assert settled is not None
    return settled


def _best(bench: Bench, trials: list[Training], number: str) -> Training:
    """Of the trials the one with the best validation; the first of equals."""
    if len(trials) == 1:
        return trials[0]
    told = f"{number}, one of {counted(len(trials), 'trial')}"
    records: list[Record] = [
        load_record(run.folder) if status(run) == "finished" else bench.fitted(run, number=told).record
        for run in trials
    ]
    return _chosen(trials, records)


def _chosen(trials: list[Training], records: list[Record]) -> Training:
    sums = [record.best.get("rsum", float("-inf")) for record in records]
    return trials[sums.index(max(sums))]


def _measure(bench: Bench, run: Scored, wanted: list[str], number: str) -> None:
    missing = [name for name in wanted if not _npz(run.measured(name, bench.asked.split)).is_file()]
    if not missing:
        return
    fitted = [bench.fitted(training, number=number) for training in run.trainings]
    model = fitted[0].model if len(fitted) == 1 else ensemble([each.model for each in fitted])
    for name in missing:
        found = measure(name, model, bench.key, bench.asked, bench.loaded)
        _keep(run.measured(name, bench.asked.split), found, [each.record for each in fitted], bench.loaded)


def _keep(place: Path, found: Measured, records: list[Record], loaded: Loaded) -> None:
    """Write figures, then values a query: where the second is, both are whole.

    records  of the trainings that were scored together
    """
    about: dict[str, Any] = {
        "figures": dict(found.figures),
        "data": found.data,
        "sizes": loaded.counts(),
        "trained_on": records[0].data.fingerprint,
        "epochs": max(record.epochs for record in records),
        "best_epoch": records[0].best_epoch if len(records) == 1 else None,
        "seconds": sum(record.seconds for record in records),
        "version": records[0].version,
    }
    write_text(place.with_name(f"{place.name}.json"), json.dumps(about, indent=2) + "\n")
    arrays: dict[str, NDArray[Any]] = {f"query/{name}": values for name, values in found.queries.items()}
    arrays |= {f"picture/{name}": values for name, values in found.clusters.items()}

    def fill(path: Path) -> None:
        with path.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)

    write_file(_npz(place), fill)


def _npz(place: Path) -> Path:
    return place.with_name(f"{place.name}.npz")


def _read(place: Path) -> dict[str, Any]:
    return dict(json.loads(place.with_name(f"{place.name}.json").read_text(encoding="utf-8")))
