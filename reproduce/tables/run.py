"""Trains and measures rows: finished trainings are reused, interrupted ones resumed, each is measured once."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import subtext as st
from reproduce.tables.config import TableConfig, built_for
from reproduce.tables.material import TableData, read, require, save_arrays
from reproduce.tables.measures import Measured, Subject, measure
from reproduce.tables.specification import Row
from reproduce.tables.trainings import (
    Evaluation,
    Training,
    evaluations_of,
    seeds_of,
    settled,
    status,
    sweep_of,
    trials_of,
)
from subtext.data import atomic
from subtext.errors import CheckpointError, DataError, RecipeError, RequirementError, SubtextError, TrainingError
from subtext.models.checkpoint import Record, load_record
from subtext.report.progress import say
from subtext.text_helpers import counted

ROW_ERRORS = (CheckpointError, DataError, RecipeError, RequirementError, TrainingError)
"""Errors that end one row; the next rows are run."""


class Stopped(SubtextError):
    """The user stopped a training; its last checkpoint is kept."""


@dataclass
class Bench:
    """A data set on which rows are trained; its pairs and what rows share are read and built on first use."""

    config: TableConfig
    key: str

    @cached_property
    def data(self) -> TableData:
        """The pairs."""
        return read(self.config, self.key)

    def train(self, run: Training, *, label: str) -> Record:
        """Train, resume, or check a finished run.

        Raises Stopped when the user stops it; what preparing and training raise.
        """
        config, paths = self.config, self.config.data[self.key]
        for kind in sorted(built_for(run.row), key=lambda kind: kind.name):
            require(config, self.key, kind, self.data)
        say(f"{label}: {run.row.name} on {config.data_set(self.key).name}, seed {run.seed}", quiet=config.quiet)
        trained = st.train(
            run.model,
            data=st.DataConfig(
                paths.data,
                features=run.features,
                text_features=paths.text_features,
                train_data=self.data.train,
                val_data=self.data.selection,
                val_split=config.selection_split,
                **paths.reading,
            ),
            out=run.folder,
            options=run.options,
            methods=list(run.methods),
            plan=run.plan,
            run=st.RunConfig(
                seed=run.seed,
                device=config.device,
                workers=config.workers,
                resume=True,
                keep_checkpoints=1,
                save_every_epochs=config.save_every_epochs,
                cache=config.shared(self.key) / "cache",
            ),
            quiet=config.quiet,
        )
        if trained.record.status == "stopped":
            raise Stopped(f"stopped in {run.folder}; run the same command again to resume")
        if not keeps_epochs(config, run):
            raise RequirementError(
                f"--save-every-epochs needs trainings that kept their epochs; {run.folder} was finished without them; "
                "remove that folder, or leave the option out"
            )
        return trained.record


@dataclass
class RowResult:
    """The measurements of a row on a data set, or why there are none.

    trained   the trainings, one per seed                 figures   measurement -> figures per seed
    queries   figure -> (seeds, queries) values           clusters  figure -> (queries) images
    sizes     part of the data set -> images, texts and pairs
    missing   text of its cells                           failed    text of the notes
    """

    trained: list[Training] = field(default_factory=list)
    figures: dict[str, list[Mapping[str, float]]] = field(default_factory=dict)
    queries: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    clusters: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    sizes: dict[str, dict[str, int]] = field(default_factory=dict)
    missing: str = ""
    failed: str = ""


def keeps_epochs(config: TableConfig, run: Training) -> bool:
    """Whether a finished training has the saved epochs that the table is to have."""
    return not config.save_every_epochs or (run.folder / "epochs").is_dir()


def run_row(bench: Bench, row: Row, measurements: list[str], label: str) -> RowResult:
    """Train a row with every seed, after its trials, and measure it.

    An error of this row alone is reported in `failed`. Raises Stopped when the user stops a training.
    """
    config = bench.config
    if (result := finished_row(config, row, bench.key, measurements)) is not None:
        return result
    try:
        rows = [_with_swept_ratio(bench, member, label) for member in config.table.members(row)]
        members = [seeds_of(_best(bench, trials_of(config, member, bench.key), label), config) for member in rows]
        evaluations = evaluations_of(config, row, members)
        for evaluation in evaluations:
            _measure(bench, evaluation, measurements, label)
    except ROW_ERRORS as problem:
        return RowResult(missing="not run: see the notes", failed=f"{row.name} on {bench.key}: {problem}")
    return read_measurements(evaluations, measurements, config.split)


def finished_row(config: TableConfig, row: Row, data: str, measurements: list[str]) -> RowResult | None:
    """The result of a row; None unless all its trials and seeds are trained and measured."""
    members = []
    for unsettled in config.table.members(row):
        if (member := settled(config, unsettled, data)) is None:
            return None
        trials = trials_of(config, member, data)
        if any(status(run) != "finished" for run in trials):
            return None
        members.append(seeds_of(_chosen(trials, [load_record(run.folder) for run in trials]), config))
        if not all(keeps_epochs(config, run) for run in members[-1] if status(run) == "finished"):
            return None
    evaluations = evaluations_of(config, row, members)
    if not all(_npz(run.file(name, config.split)).is_file() for run in evaluations for name in measurements):
        return None
    return read_measurements(evaluations, measurements, config.split)


def read_measurements(evaluations: list[Evaluation], measurements: list[str], split: str) -> RowResult:
    """The written measurements of every seed."""
    result = RowResult(trained=[training for run in evaluations for training in run.trainings])
    for name in measurements:
        paths = [run.file(name, split) for run in evaluations]
        contents = [json.loads(_json(path).read_text(encoding="utf-8")) for path in paths]
        result.figures[name], result.sizes = [content["figures"] for content in contents], contents[0]["sizes"]
        arrays = []
        for path in paths:
            with np.load(_npz(path), allow_pickle=False) as file:
                arrays.append({key: np.asarray(file[key]) for key in file.files})
        for key in arrays[0]:
            kind, _, figure = key.partition("/")
            if kind == "query":
                result.queries[figure] = np.stack([values[key] for values in arrays]).astype(np.float64)
            else:
                result.clusters[figure] = arrays[0][key].astype(np.int64)
    return result


def _with_swept_ratio(bench: Bench, row: Row, label: str) -> Row:
    """The row with its ratio, after the sweep that chooses it."""
    if (row_with_ratio := settled(bench.config, row, bench.key)) is not None:
        return row_with_ratio
    small, runs = sweep_of(bench.config, row, bench.key)
    small_bench = Bench(small, bench.key)
    for number, run in enumerate(runs, start=1):
        if status(run) != "finished":
            small_bench.train(run, label=f"{label}, ratio {number} of {len(runs)}")
    row_with_ratio = settled(bench.config, row, bench.key)
    assert row_with_ratio is not None
    return row_with_ratio


def _best(bench: Bench, trials: list[Training], label: str) -> Training:
    """The trial with the best validation recall; of equal ones the first."""
    if len(trials) == 1:
        return trials[0]
    label = f"{label}, one of {counted(len(trials), 'trial')}"
    records = [
        load_record(run.folder) if status(run) == "finished" else bench.train(run, label=label) for run in trials
    ]
    return _chosen(trials, records)


def _chosen(trials: list[Training], records: list[Record]) -> Training:
    sums = [record.best.get("rsum", float("-inf")) for record in records]
    return trials[sums.index(max(sums))]


def _measure(bench: Bench, evaluation: Evaluation, measurements: list[str], label: str) -> None:
    """Write the measurements that do not exist yet."""
    config = bench.config
    missing = [name for name in measurements if not _npz(evaluation.file(name, config.split)).is_file()]
    if not missing and all(keeps_epochs(config, training) for training in evaluation.trainings):
        return
    records = [bench.train(training, label=label) for training in evaluation.trainings]
    with _run_of(evaluation) as run:
        for name in missing:
            measured = measure(name, Subject(run, bench.key, config, bench.data, evaluation.trainings[0].features))
            _write(evaluation.file(name, config.split), measured, records, bench.data)


@contextmanager
def _run_of(evaluation: Evaluation) -> Iterator[Path]:
    """The folder of the one run, or of an ensemble of several that is removed afterwards."""
    if len(evaluation.trainings) == 1:
        yield evaluation.trainings[0].folder
        return
    with tempfile.TemporaryDirectory() as folder:
        yield st.ensemble_runs(
            tuple(training.folder for training in evaluation.trainings), out=Path(folder, "mean")
        ).path


def _write(path: Path, measured: Measured, records: list[Record], data: TableData) -> None:
    """Write the figures, then the values per query: where the second file exists, both are complete.

    records  of the trainings whose models were evaluated together
    """
    content: dict[str, Any] = {
        "figures": dict(measured.figures),
        "data": measured.data,
        "sizes": data.counts(),
        "trained_on": records[0].fingerprint,
        "epochs": max(record.epochs for record in records),
        "best_epoch": records[0].best_epoch if len(records) == 1 else None,
        "seconds": sum(record.seconds for record in records),
        "version": records[0].version,
    }
    atomic.write_text(_json(path), json.dumps(content, indent=2) + "\n")
    arrays: dict[str, NDArray[Any]] = {f"query/{name}": values for name, values in measured.queries.items()}
    arrays |= {f"picture/{name}": values for name, values in measured.clusters.items()}
    save_arrays(_npz(path), np.savez_compressed, **arrays)


def _npz(path: Path) -> Path:
    return path.with_name(f"{path.name}.npz")


def _json(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")
