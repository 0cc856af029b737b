"""A published table beside ours, as Markdown, LaTeX, plain lines and JSON.

A sheet has a cell for each row and column, paired tests, and notes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean, stdev
from typing import Any

import numpy as np

import subtext
from reproduce.tables.config import FACTORS, TableConfig, measure_of, reads_regions, swept_option
from reproduce.tables.figure_names import FIGURES
from reproduce.tables.run import RowResult
from reproduce.tables.specification import RATIOS, Column, Row
from reproduce.tables.trainings import Training, is_swept, settled, sweep_of, trials_of, validation_score
from subtext.evaluation.intervals import holm, paired
from subtext.models.checkpoint import load_record
from subtext.text_helpers import counted

SURE = 0.05
"""Corrected p-value below which a difference is marked."""

_LATEX = {"\\": r"\textbackslash{}", "±": r"$\pm$", "→": r"$\to$", "−": r"$-$", "λ": r"$\lambda$", "Γ": r"$\Gamma$",
          "α": r"$\alpha$", "β": r"$\beta$", "γ": r"$\gamma$", "μ": r"$\mu$", "σ": r"$\sigma$", "Ω": r"$\Omega$",
          "Ψ": r"$\Psi$", "·": r"$\cdot$", "|": r"$|$", **{sign: f"\\{sign}" for sign in "&%$#_{}"}}  # fmt: skip


@dataclass(frozen=True)
class Against:
    """A paired test against another row.

    name         of that row             difference   ours minus theirs     low, high   95 % interval
    p_value      two-sided               corrected    for all tests of the table (Holm)
    Intervals and p-values are NaN where there are too few images.
    """

    name: str
    difference: float
    low: float
    high: float
    p_value: float
    corrected: float

    @property
    def sure(self) -> bool:
        """Whether the corrected p-value is below 0.05 and the interval excludes 0."""
        return self.corrected < SURE and (self.low > 0 or self.high < 0)


@dataclass(frozen=True)
class Cell:
    """One cell.

    ours     one value per seed; empty where nothing was measured     paper  the printed number
    missing  the reason where `ours` is empty, as in "not run: needs COCO"
    """

    ours: tuple[float, ...] = ()
    paper: float | None = None
    missing: str = ""
    against: Against | None = None

    @property
    def mean(self) -> float:
        """Over the seeds; NaN where nothing was measured."""
        return fmean(self.ours) if self.ours else math.nan

    @property
    def spread(self) -> float:
        """Standard deviation over seeds; NaN below two of them."""
        return stdev(self.ours) if len(self.ours) > 1 else math.nan


@dataclass(frozen=True)
class Line:
    """A row of the table: a name and a cell for each column."""

    name: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Sheet:
    """A complete table.

    notes  sentences below it, in order        about  the rest of the JSON: protocol, data, runs
    """

    title: str
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()
    about: dict[str, Any] = field(default_factory=dict)


def grid(sheet: Sheet) -> list[list[str]]:
    """Every row as up to three lines of text: ours, the paper's, and the difference from its baseline.

    The first cell is the label; a line that would be empty is left out.
    """
    rows: list[list[str]] = []
    for line in sheet.lines:
        rows.append([line.name, *[_ours(cell) for cell in line.cells]])
        if any(cell.paper is not None for cell in line.cells):
            rows.append(["  paper", *["-" if c.paper is None else number(c.paper) for c in line.cells]])
        names = {cell.against.name for cell in line.cells if cell.against is not None}
        for name in sorted(names):
            tests = [c.against if c.against is not None and c.against.name == name else None for c in line.cells]
            rows.append([f"  against {name}", *[_test(test) for test in tests]])
    return rows


def with_data(sheet: Sheet) -> tuple[Sheet, list[str]]:
    """The table without the columns in which nothing was measured, and their names; as it is where all are such."""
    columns = range(len(sheet.columns))
    filled = [column for column in columns if any(line.cells[column].ours for line in sheet.lines)] or list(columns)
    kept = replace(
        sheet,
        columns=tuple(sheet.columns[column] for column in filled),
        lines=tuple(replace(line, cells=tuple(line.cells[column] for column in filled)) for line in sheet.lines),
    )
    return kept, [name for column, name in enumerate(sheet.columns) if column not in filled]


def _without_data(sheet: Sheet) -> Sheet:
    """The table for a page: the columns that it leaves out are named in a note."""
    kept, hidden = with_data(sheet)
    left_out = f"Left out, not measured: {', '.join(hidden)}; the JSON file has the paper's numbers."
    return replace(kept, notes=(*kept.notes, left_out)) if hidden else kept


def markdown(sheet: Sheet) -> str:
    """The table as a Markdown page, without columns that have no data."""
    sheet = _without_data(sheet)
    lines = [f"# {sheet.title}", "", _row(["", *sheet.columns]), "|" + "---|" * (len(sheet.columns) + 1)]
    for label, *cells in grid(sheet):
        lines.append(_row([label.strip() if label.startswith(" ") else f"**{label}**", *cells]))
    return "\n".join([*lines, "", *(f"* {note}" for note in sheet.notes)]) + "\n"


def latex(sheet: Sheet) -> str:
    """The table as a LaTeX `table` with booktabs rules, without columns that have no data."""
    sheet = _without_data(sheet)
    lines = [
        "% needs \\usepackage{booktabs}",
        "\\begin{table}",
        "\\centering\\small",
        f"\\begin{{tabular}}{{l{'r' * len(sheet.columns)}}}",
        "\\toprule",
        " & ".join(["", *map(_escaped, sheet.columns)]) + " \\\\",
    ]
    for label, *cells in grid(sheet):
        if not label.startswith(" "):
            lines.append("\\midrule")
        indent = "\\quad " if label.startswith(" ") else ""
        lines.append(" & ".join([indent + _escaped(label.strip()), *map(_escaped, cells)]) + " \\\\")
    notes = " ".join(_escaped(note) for note in sheet.notes)
    lines += ["\\bottomrule", "\\end{tabular}", f"\\caption{{{_escaped(sheet.title)}. {notes}}}", "\\end{table}"]
    return "\n".join(lines) + "\n"


def as_json(sheet: Sheet) -> str:
    """Everything, as indented JSON; a missing number is null."""
    rows = []
    for line in sheet.lines:
        cells = {}
        for column, cell in zip(sheet.columns, line.cells, strict=True):
            test = None if cell.against is None else asdict(cell.against) | {"sure": cell.against.sure}
            cells[column] = {
                "mean": cell.mean, "spread": cell.spread, "seeds": list(cell.ours), "paper": cell.paper,
                "not_run": cell.missing or None, "against": test,
            }  # fmt: skip
        rows.append({"row": line.name, "cells": cells})
    content = {"title": sheet.title, **sheet.about, "columns": list(sheet.columns), "rows": rows, "notes": sheet.notes}
    return json.dumps(_finite(content), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def number(value: float) -> str:
    """A value as papers print it: four decimals, integers as they are.

    >>> number(0.62701), number(196.0)
    ('0.6270', '196')
    """
    return f"{value:.0f}" if value == round(value) and abs(value) > 1 else f"{value:.4f}"


def _ours(cell: Cell) -> str:
    if not cell.ours:
        return cell.missing or "-"
    mark = "*" if cell.against is not None and cell.against.sure else ""
    return number(cell.mean) + ("" if math.isnan(cell.spread) else f" ± {cell.spread:.4f}") + mark


def _test(test: Against | None) -> str:
    if test is None:
        return "-"
    if math.isnan(test.p_value):
        return f"{test.difference:+.4f}"
    return f"{test.difference:+.4f} [{test.low:+.4f}, {test.high:+.4f}] p {test.corrected:.3f}"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in text)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


Results = Mapping[tuple[str, str], RowResult]
"""(key of a row, key of a data set) -> its measurements."""
Sizes = Mapping[str, dict[str, dict[str, int]]]
"""Data set -> part -> numbers of images, texts and pairs, for data sets that rows were trained on."""


def sheet_of(config: TableConfig, results: Results) -> Sheet:
    """The table of all chosen rows, with our cells and the paper's."""
    columns = config.columns
    sizes = {data: result.sizes for (_, data), result in results.items() if result.sizes}
    lines = [Line(row.name, tuple(_cell(config, row, column, results) for column in columns)) for row in config.rows]
    lines = [_averaged(config, row, line) for row, line in zip(config.rows, lines, strict=True)]
    failed = [result.failed for result in results.values() if result.failed]
    return Sheet(
        title=f"{config.table.paper}: {config.table.title}",
        columns=tuple(_head(config, column) for column in columns),
        lines=tuple(_corrected(lines)),
        notes=(
            *_protocol(config, sizes),
            *_existing_graphs(config),
            *_swept(config, results),
            *_chosen_options(config, results),
            *config.table.notes,
            *(f"Not run: {reason}" for reason in failed),
        ),
        about=_about(config, results, sizes),
    )


def _head(config: TableConfig, column: Column) -> str:
    if not column.data:
        return "Avg"
    return f"{config.data_set(column.data).name} {FIGURES[column.figure].label}"


def _cell(config: TableConfig, row: Row, column: Column, results: Results) -> Cell:
    columns = config.table.columns
    paper = row.printed[columns.index(column)] if column in columns else None
    if not column.data:
        return Cell(paper=paper)
    if not row.trained:
        return Cell(paper=paper, missing="taken as printed" if column in columns else "")
    if needs := config.missing(row, column.data):
        return Cell(paper=paper, missing=f"not run: needs {needs}")
    result = results.get((row.key, column.data))
    if result is None or result.missing:
        return Cell(paper=paper, missing=result.missing if result else "not run yet")
    figure = config.table.figure(row, column)
    ours = tuple(figures[figure] for figures in result.figures[measure_of(config, row, column)])
    if np.isnan(ours).all():
        # No labels, folds of other sizes, no texts of that length.
        return Cell(paper=paper, missing="nothing to measure it by")
    return Cell(ours, paper, against=_sheet_test(config, row, column, results))


def _sheet_test(config: TableConfig, row: Row, column: Column, results: Results) -> Against | None:
    """Ours against the row's baseline, where both have values for the same queries and seeds."""
    figure = config.table.figure(row, column)
    ours, baseline = (results.get((key, column.data)) for key in (row.key, row.baseline))
    if ours is None or baseline is None or figure not in ours.queries or figure not in baseline.queries:
        return None
    if ours.queries[figure].shape != baseline.queries[figure].shape:
        return None
    test = paired(ours.queries[figure], baseline.queries[figure], ours.clusters[figure])
    name = next(candidate.name for candidate in config.table.rows if candidate.key == row.baseline)
    return Against(name, test.difference, test.low, test.high, test.p_value, test.p_value)


def _averaged(config: TableConfig, row: Row, line: Line) -> Line:
    """The line with the mean of the table's own columns, where all of them were run."""
    columns = config.table.columns
    parts = [c for c, column in zip(line.cells, config.columns, strict=True) if column in columns and column.data]
    lacking = sum(not cell.ours for cell in parts)
    cells = list(line.cells)
    for index, column in enumerate(config.columns):
        if column.data or not row.trained:
            continue
        if lacking:
            cells[index] = replace(cells[index], missing=f"not run: needs {lacking} more of {len(parts)} columns")
        else:
            by_seed = zip(*(cell.ours for cell in parts), strict=True)
            cells[index] = replace(cells[index], ours=tuple(float(np.mean(values)) for values in by_seed))
    return replace(line, cells=tuple(cells))


def _corrected(lines: list[Line]) -> list[Line]:
    """The lines with p-values corrected for all tests of the table."""
    tests = [cell.against for line in lines for cell in line.cells if cell.against is not None]
    corrected = iter(holm([test.p_value for test in tests]))
    return [
        replace(
            line,
            cells=tuple(
                cell
                if cell.against is None
                else replace(cell, against=replace(cell.against, corrected=next(corrected)))
                for cell in line.cells
            ),
        )
        for line in lines
    ]


def _protocol(config: TableConfig, sizes: Sizes) -> list[str]:
    """How our numbers were made, in sentences."""
    selects = (
        "a tenth of the training images, the same for every row,"
        if config.selection_split is None
        else f"the split '{config.selection_split}'"
    )
    factors = ", ".join(f"x {factor:.3g}" for factor in FACTORS[: config.trials])
    tuning = (
        "no row is tuned: the settings are the table's"
        if config.trials == 1
        else f"every row tries {config.trials} learning rates ({factors}) with seed 0, and keeps the one with the best "
        "validation recall"
    )
    notes = [
        f"Ours: mean ± standard deviation over {counted(config.seeds, 'seed')}, scored on the split '{config.split}' "
        f"after training; {selects} selects the epoch; {tuning}.",
        "Against a baseline: difference, 95 % interval and p, of other trainings and images from three seeds on "
        "(Student's t) and of other images alone with fewer; p corrected for all tests of the table (Holm); * where p "
        "is below 0.05 and the interval excludes 0.",
    ]
    for key in config.data:
        notes.append(_size(config, key, sizes))
    if config.changes:
        changes = ", ".join(f"{name}={value}" for name, value in config.changes.items())
        notes.append(f"Changed for every row that has the option: {changes}.")
    return notes


def _swept(config: TableConfig, results: Results) -> list[str]:
    """The choice of a row's ratio on the user's own data."""
    notes = []
    for (key, data), (beta, gamma) in _ratios(config, results).items():
        row = next(row for row in config.table.rows if row.key == key)
        ratio = f"{row.name} on {config.data_set(data).name}: β = {beta:g}, γ = {gamma:g}"
        if not config.sweep:
            notes.append(f"{ratio}, which was not swept (--sweep 0); the paper has none for this data set.")
            continue
        small, runs = sweep_of(config, row, data)
        value = "loss" if runs[0].plan.get("select") == "loss" else "recall"
        notes.append(
            f"{ratio}, the best of {len(RATIOS)} ratios by validation {value} after training on at most "
            f"{small.subset:,} images, with seed 0; other rows have no such sweep."
        )
    return notes


def _chosen_options(config: TableConfig, results: Results) -> list[str]:
    """The values of swept options that rows chose, and what each gave on the split that chooses."""
    notes = []
    for name, values in config.sweeps.items():
        part, option = swept_option(name)
        for row in config.rows:
            for data in config.data:
                result = results.get((row.key, data))
                if row.system is None or not row.system.has(part, option) or result is None or not result.trained:
                    continue
                chosen = _value(result.trained[0], part, option)
                of_value: dict[str, list[float]] = {}
                settled_row = settled(config, row, data)
                for run in trials_of(config, settled_row, data) if settled_row is not None else []:
                    of_value.setdefault(str(_value(run, part, option)), []).append(
                        validation_score(load_record(run.folder))
                    )
                scores = ", ".join(f"{value}: {max(found):.2f}" for value, found in of_value.items())
                notes.append(
                    f"{row.name} on {config.data_set(data).name}: {part}.{option} = {chosen}, the best of "
                    f"{', '.join(values)} with seed 0 on the split that selects ({scores})."
                )
    return notes


def _value(run: Training, part: str, option: str) -> object:
    return run.options[option] if part == run.model else dict(run.methods)[part][option]


def _ratios(config: TableConfig, results: Results) -> dict[tuple[str, str], tuple[object, object]]:
    """(row, data set) -> beta and gamma, where the paper has none for it."""
    ratios = {}
    for row in config.rows:
        for data in config.data:
            result = results.get((row.key, data))
            if result and result.trained and is_swept(row, data):
                options = dict(result.trained[0].methods)["combined"]
                ratios[row.key, data] = (options["beta"], options["gamma"])
    return ratios


def _size(config: TableConfig, key: str, sizes: Sizes) -> str:
    data = config.data_set(key)
    parts = sizes.get(key)
    counts = ", ".join(f"{part} {n['pictures']:,}" for part, n in parts.items()) if parts else "no row is trained on it"
    paper = f"; the paper had about {data.images:,}" if data.images else "; not a data set of the paper"
    cut = "" if config.subset is None else f", at most {config.subset:,} of them for training"
    chosen = any(FIGURES[column.figure].measure == "question" for column in config.columns if column.data)
    choice = f"; choice among {data.c}, every pair a question of its own" if chosen else ""
    return f"{data.name} (images): {counts}{cut}{paper}{choice}{_read(config, key)}."


def _read(config: TableConfig, key: str) -> str:
    """What rows read of the images, where it is not pixels alone."""
    paths, network = config.data[key], config.table.pixels.get("image")
    members = [member for row in config.rows for member in config.table.members(row) if member.system]
    by_regions = [reads_regions(member) for member in members]
    said = []
    if paths.regions is not None and any(by_regions):
        said.append("models of regions read those of a detector, as in the paper")
    if paths.features is not None and (paths.regions is None or not all(by_regions)):
        papers = [f"pixels by a {network}"] * (not all(by_regions)) + ["regions of a detector"] * any(by_regions)
        said.append(f"precomputed image features, where the rows of the paper read {' or '.join(papers)}")
    if paths.graph_features is not None:
        said.append("graphs by images and densities have features of their own")
    return "".join(f"; {text}" for text in said)


def _graph(config: TableConfig, key: str) -> dict[str, Any]:
    """The choice of the texts' neighbours: that of the table, or of an existing graph."""
    if (graph := config.existing_graph(key)) is not None:
        return graph.to_json()
    return {"neighbours": config.neighbours, "space": config.space, "min_count": config.min_count}


def _existing_graphs(config: TableConfig) -> list[str]:
    """The graphs that the table did not build."""
    notes = []
    for key in config.data:
        if (graph := config.existing_graph(key)) is not None:
            notes.append(
                f"{config.data_set(key).name}: neighbours of texts are those of an existing graph "
                f"({graph.neighbours} per text, by {graph.settings.get('distance')} in {graph.space.get('name')}; "
                f"{graph.fingerprint[:8]}); --space, --neighbours and --min-count do not apply."
            )
    return notes


def _about(config: TableConfig, results: Results, sizes: Sizes) -> dict[str, Any]:
    """The JSON without the cells."""
    return {
        "table": config.name,
        "paper": config.table.paper,
        "version": subtext.__version__,
        "protocol": {
            "seeds": config.seeds, "trials": config.trials, "factors": list(FACTORS[: config.trials]),
            "subset": config.subset, "sweep": config.sweep,
            "sweep_options": {name: list(values) for name, values in config.sweeps.items()},
            "split": config.split, "val_split": config.val_split,
            "changes": dict(config.changes),
            "plan": dict(config.table.plan),
        },
        "data": {
            key: {
                **config.data[key].to_json(), "c": config.data_set(key).c, "sizes": sizes.get(key),
                "graph": _graph(config, key),
            }
            for key in config.data
        },
        "swept": {
            f"{row}/{data}": {"beta": beta, "gamma": gamma}
            for (row, data), (beta, gamma) in _ratios(config, results).items()
        },
        "plans": {
            f"{row}/{data}": dict(result.trained[0].plan) for (row, data), result in results.items() if result.trained
        },
        "runs": {
            f"{row}/{data}": [str(run.folder.relative_to(config.out)) for run in result.trained]
            for (row, data), result in results.items()
        },
    }  # fmt: skip
