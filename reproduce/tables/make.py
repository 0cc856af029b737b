"""A table from the data sets to the files: finished runs are reused, missing ones are trained."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from reproduce.command import Text
from reproduce.tables.config import TableConfig, measure_of
from reproduce.tables.material import require_prepared
from reproduce.tables.plot import plot
from reproduce.tables.run import Bench, RowResult, Stopped, finished_row, run_row
from reproduce.tables.sheet import Sheet, as_json, grid, latex, markdown, sheet_of, with_data
from reproduce.tables.specification import UNSWEPT, Row
from reproduce.tables.trainings import Training, is_swept, seeds_of, settled, status, sweep_of, trials_of, with_ratio
from subtext.data import atomic
from subtext.report.progress import say
from subtext.report.text_table import Cell, table
from subtext.text_helpers import counted

FORMATS = {"md": markdown, "tex": latex, "json": as_json, "svg": plot}
"""Suffix of a file -> the function that makes its text of a sheet."""


@dataclass(frozen=True)
class TableResult:
    """A table, and how the run ended.

    sheet   its cells, ours and the paper's     config  what was reproduced
    stopped  why the run was stopped; empty if it was not
    failed   whether a row could not be run
    """

    sheet: Sheet
    config: TableConfig
    stopped: str = ""
    failed: bool = False

    @property
    def exit_code(self) -> int:
        """130 for a stopped run, 1 where a row failed."""
        return 130 if self.stopped else int(self.failed)

    def to_json(self) -> dict[str, Any]:
        """Every cell and the protocol, as in the JSON file."""
        return dict(json.loads(as_json(self.sheet)))

    def __str__(self) -> str:
        if self.stopped:
            return self.stopped
        files = ", ".join(str(self.config.out / f"{self.config.name}.{suffix}") for suffix in FORMATS)
        return f"{_text(self.sheet)}\nwritten: {files}"

    __repr__ = __str__


def make(config: TableConfig) -> TableResult:
    """Train the missing runs of the chosen rows, data set by data set, and write OUT/NAME.md, .tex, .json and .svg.

    The files are rewritten after every row. The same call resumes after any end, even a kill. A row that cannot be run
    says why, and the others are run.

    Raises DataError for data in another form than the table's paper read.
    """
    require_prepared(config)
    results = _finished(config)
    todo = [(row, data) for data in config.data for row in config.rows if _measurements(config, row, data)]
    todo = [(row, data) for row, data in todo if (row.key, data) not in results and not config.missing(row, data)]
    sheet = _write(config, results)
    bench: Bench | None = None
    for number, (row, data) in enumerate(todo, start=1):
        if bench is None or bench.key != data:
            bench = Bench(config, data)
        label = f"row {number} of {len(todo)}"
        try:
            result = run_row(bench, row, _measurements(config, row, data), label)
        except Stopped as stop:
            return TableResult(sheet, config, stopped=str(stop))
        say(f"{label}: {result.failed or 'done'}", quiet=config.quiet)
        results[row.key, data] = result
        sheet = _write(config, results)
    return TableResult(sheet, config, failed=any(result.failed for result in results.values()))


def plan_of(config: TableConfig) -> Text:
    """The trainings of the table and the state of each row; reads no data and trains nothing."""
    require_prepared(config)
    lines: list[list[Cell]] = []
    remaining = 0
    for row in config.rows:
        for data in dict.fromkeys([*config.table.data, *config.data]):
            if not row.trained:
                continue
            missing, name = config.missing(row, data), config.data_set(data).name
            # The members of an averaged row are counted with their own rows, where these are chosen too.
            members = [member for member in config.table.members(row) if member is row or member not in config.rows]
            runs = [] if missing else _trainings(config, members, data)
            states = [status(run) for run in runs]
            if missing:
                state = f"not run: needs {missing}"
            elif finished_row(config, row, data, _measurements(config, row, data)) is not None:
                state = "finished"
            else:
                unfinished, started = sum(state != "finished" for state in states), states.count("started")
                remaining += unfinished
                state = f"{unfinished} to train" if unfinished else "to be measured"
                state += f", {started} started" if started else ""
            lines.append([row.key, name, len(runs), state])
    head = f"{config.name}: {counted(config.seeds, 'seed')}, {counted(config.trials, 'trial')} per row"
    return Text("\n".join([head, table(["row", "data", "trainings", "state"], lines), f"to train: {remaining}"]))


def _trainings(config: TableConfig, rows: list[Row], data: str) -> list[Training]:
    """All trainings of rows on a data set: sweeps, trials and seeds, with the first trial where none is chosen yet."""
    runs: list[Training] = []
    for row in rows:
        if is_swept(row, data) and config.sweep:
            runs += sweep_of(config, row, data)[1]
        trials = trials_of(config, settled(config, row, data) or with_ratio(row, data, UNSWEPT), data)
        runs += [*trials, *seeds_of(trials[0], config)[1:]]
    # A sweep over as many images as the table trains on shares one training with the table.
    return list({run.folder: run for run in runs}.values())


def _finished(config: TableConfig) -> dict[tuple[str, str], RowResult]:
    """The results of finished rows, with baselines that are not among the chosen rows."""
    results = {}
    for data in config.data:
        for row in config.table.rows:
            names = _measurements(config, row, data)
            if names and not config.missing(row, data):
                result = finished_row(config, row, data, names)
                if result is not None:
                    results[row.key, data] = result
    return results


def _measurements(config: TableConfig, row: Row, data: str) -> list[str]:
    """The measurements that a row needs on a data set."""
    if not row.trained:
        return []
    return list(dict.fromkeys(measure_of(config, row, column) for column in config.columns if column.data == data))


def _write(config: TableConfig, results: dict[tuple[str, str], RowResult]) -> Sheet:
    sheet = sheet_of(config, results)
    for suffix, text_of in FORMATS.items():
        atomic.write_text(config.out / f"{config.name}.{suffix}", text_of(sheet))
    return sheet


def _text(sheet: Sheet) -> str:
    """The table for a terminal; columns without any value of ours become a line below it, unless all are."""
    filled_sheet, hidden = with_data(sheet)
    lines: list[list[Cell]] = [list(line) for line in grid(filled_sheet)]
    remarks = [f"not run here, and with the paper's numbers in the JSON file: {', '.join(hidden)}"] if hidden else []
    notes = [f"note: {note}" for note in sheet.notes]
    return "\n".join([sheet.title, table(["", *filled_sheet.columns], lines), *remarks, *notes])
