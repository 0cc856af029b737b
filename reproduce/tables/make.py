"""A table from beginning to end: what is there is kept, what is missing is trained, and the files are written."""

from __future__ import annotations

from dataclasses import dataclass, replace

from reproduce.tables.plot import plot
from reproduce.tables.prepared import require_prepared
from reproduce.tables.request import Asked, measure_of
from reproduce.tables.run import Bench, Found, Stopped, run_row, there
from reproduce.tables.sheet import sheet
from reproduce.tables.specification import UNSWEPT, Row
from reproduce.tables.sweep import at, is_swept, known, status, sweep_of
from reproduce.tables.trainings import Training, seeds_of, trials_of
from reproduce.tables.writer import Sheet, as_json, grid, latex, markdown
from subtext.data.atomic import write_text
from subtext.errors import counted
from subtext.report.progress import say
from subtext.report.text_table import Cell, table


@dataclass(frozen=True)
class Made:
    """What is said in the end, whether somebody stopped it before, and whether a row could not be run."""

    text: str
    stopped: bool = False
    failed: bool = False


def make(asked: Asked) -> Made:
    """Train what is missing of the chosen rows, data set by data set, and write OUT/NAME.md, .tex, .json and .svg.

    The files are written anew after every row: they tell at any time what there is. The same call after any end, a kill
    among them, goes on. A row that cannot be run says why, and the others are run.

    Raises DataError for data that the table's paper read otherwise.
    """
    require_prepared(asked)
    results = _there(asked)
    todo = [(row, data) for data in asked.data for row in asked.rows if _wanted(asked, row, data)]
    todo = [(row, data) for row, data in todo if (row.key, data) not in results and not asked.missing(row, data)]
    written = _write(asked, results)
    bench: Bench | None = None
    for number, (row, data) in enumerate(todo, start=1):
        if bench is None or bench.key != data:
            bench = Bench(asked, data)
        told = f"row {number} of {len(todo)}"
        try:
            found = run_row(bench, row, _wanted(asked, row, data), told)
        except Stopped as stop:
            return Made(str(stop), stopped=True)
        say(f"{told}: {found.failed or 'done'}", quiet=asked.quiet)
        results[row.key, data] = found
        written = _write(asked, results)
    failed = any(found.failed for found in results.values())
    where = ", ".join(str(asked.out / f"{asked.name}.{ending}") for ending in ("md", "tex", "json", "svg"))
    return Made(f"{_plain(written)}\nwritten: {where}", failed=failed)


def plan(asked: Asked) -> str:
    """Which trainings there are and how far each row is; no data is read, and nothing trained."""
    require_prepared(asked)
    rows: list[list[Cell]] = []
    left = 0
    keys = list(dict.fromkeys([*asked.table.data, *asked.data]))
    for row in asked.rows:
        for data in keys:
            if not row.trained:
                continue
            # What a row joins is counted with its own row, where that is chosen too.
            parts = [each for each in asked.table.members(row) if each is row or each not in asked.rows]
            runs = [] if (missing := asked.missing(row, data)) else _trainings(asked, parts, data)
            count = len(runs)
            if missing:
                rows.append([row.key, asked.data_set(data).name, count, f"not run: needs {missing}"])
                continue
            if there(asked, row, data, _wanted(asked, row, data)) is not None:
                rows.append([row.key, asked.data_set(data).name, count, "all there"])
                continue
            states = [status(run) for run in runs]
            open_ = sum(state != "finished" for state in states)
            left += open_
            begun = states.count("begun")
            told = f"{open_} to train" if open_ else "to be measured"
            rows.append([row.key, asked.data_set(data).name, count, told + (f", {begun} begun" if begun else "")])
    head = f"{asked.name}: {counted(asked.seeds, 'seed')}, {counted(asked.trials, 'trial')} a row"
    return "\n".join([head, table(["row", "data", "trainings", "state"], rows), f"to train: {left}"])


def _trainings(asked: Asked, parts: list[Row], data: str) -> list[Training]:
    """All that rows need on a data set: sweeps, trials and seeds; before a choice is made, as if of the first."""
    found: list[Training] = []
    for row in parts:
        if is_swept(row, data) and asked.sweep:
            found += sweep_of(asked, row, data)[1]
        trials = trials_of(asked, known(asked, row, data) or at(row, data, UNSWEPT), data)
        found += [*trials, *seeds_of(trials[0], asked)[1:]]
    # A sweep on as many pictures as the table learns from has one of its trainings among its own.
    return list({run.folder: run for run in found}.values())


def _there(asked: Asked) -> dict[tuple[str, str], Found]:
    """What is there already, baselines that are not among the chosen rows with it."""
    found = {}
    for data in asked.data:
        for row in asked.table.rows:
            wanted = _wanted(asked, row, data)
            if wanted and not asked.missing(row, data) and (had := there(asked, row, data, wanted)) is not None:
                found[row.key, data] = had
    return found


def _wanted(asked: Asked, row: Row, data: str) -> list[str]:
    """The measurements that a row needs on a data set."""
    if not row.trained:
        return []
    return list(dict.fromkeys(measure_of(asked, row, column) for column in asked.columns if column.data == data))


def _write(asked: Asked, results: dict[tuple[str, str], Found]) -> Sheet:
    made = sheet(asked, results)
    for ending, text in {"md": markdown(made), "tex": latex(made), "json": as_json(made), "svg": plot(made)}.items():
        write_text(asked.out / f"{asked.name}.{ending}", text)
    return made


def _plain(made: Sheet) -> str:
    """The table for a screen: columns that nothing of was run are told in a line, unless there are no others."""
    kept = [place for place in range(len(made.columns)) if any(line.cells[place].ours for line in made.lines)]
    kept = kept or list(range(len(made.columns)))
    shown = replace(
        made,
        columns=tuple(made.columns[place] for place in kept),
        lines=tuple(replace(line, cells=tuple(line.cells[place] for place in kept)) for line in made.lines),
    )
    rows: list[list[Cell]] = [list(row) for row in grid(shown)]
    hidden = [name for place, name in enumerate(made.columns) if place not in kept]
    told = [f"not run here, and in the files with the paper's numbers: {', '.join(hidden)}"] if hidden else []
    notes = [f"note: {note}" for note in made.notes]
    return "\n".join([made.title, table(["", *shown.columns], rows), *told, *notes])
