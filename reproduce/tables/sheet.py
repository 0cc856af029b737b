"""From what rows gave to the sheet that is printed: cells, paired tests, and the notes below."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

import subtext
from reproduce.tables.figure_names import FIGURES
from reproduce.tables.request import FACTORS, Asked, measure_of
from reproduce.tables.run import Found
from reproduce.tables.specification import RATIOS, Column, Row
from reproduce.tables.sweep import is_swept, sweep_of
from reproduce.tables.writer import Against, Cell, Line, Sheet
from subtext.errors import counted
from subtext.evaluation.intervals import holm, paired

Results = Mapping[tuple[str, str], Found]
"""(row, data set) -> what it gave; both by key."""
Sizes = Mapping[str, dict[str, dict[str, int]]]
"""Data set -> part -> pictures, texts and pairs, for data sets that rows were trained on."""


def sheet(asked: Asked, results: Results) -> Sheet:
    """The table of all chosen rows, with our cells and the paper's."""
    columns = asked.columns
    sizes = {data: found.sizes for (_, data), found in results.items() if found.sizes}
    lines = [Line(row.name, tuple(_cell(asked, row, column, results) for column in columns)) for row in asked.rows]
    lines = [_averaged(asked, row, line) for row, line in zip(asked.rows, lines, strict=True)]
    failed = [found.failed for found in results.values() if found.failed]
    return Sheet(
        title=f"{asked.table.paper}: {asked.table.title}",
        columns=tuple(_head(asked, column) for column in columns),
        lines=tuple(_corrected(lines)),
        notes=(
            *_protocol(asked, sizes),
            *_given(asked),
            *_swept(asked, results),
            *asked.table.notes,
            *(f"Not run: {reason}" for reason in failed),
        ),
        about=_about(asked, results, sizes),
    )


def _head(asked: Asked, column: Column) -> str:
    if not column.data:
        return "Avg"
    return f"{asked.data_set(column.data).name} {FIGURES[column.figure].label}"


def _cell(asked: Asked, row: Row, column: Column, results: Results) -> Cell:
    own = list(asked.table.columns)
    paper = row.printed[own.index(column)] if column in own else None
    if not column.data:
        return Cell(paper=paper)
    if not row.trained:
        return Cell(paper=paper, missing="taken as printed" if column in own else "")
    if needs := asked.missing(row, column.data):
        return Cell(paper=paper, missing=f"not run: needs {needs}")
    found = results.get((row.key, column.data))
    if found is None or found.missing:
        return Cell(paper=paper, missing=found.missing if found else "not run yet")
    figure = asked.table.figure(row, column)
    ours = tuple(each[figure] for each in found.figures[measure_of(asked, row, column)])
    if np.isnan(ours).all():
        # No labels, folds of other sizes, no texts of that length.
        return Cell(paper=paper, missing="nothing to measure it by")
    return Cell(ours, paper, against=_test(asked, row, column, results))


def _test(asked: Asked, row: Row, column: Column, results: Results) -> Against | None:
    """Ours against the row's baseline, where both have values for the same queries and seeds."""
    figure = asked.table.figure(row, column)
    mine, theirs = (results.get((key, column.data)) for key in (row.key, row.baseline))
    if mine is None or theirs is None or figure not in mine.queries or figure not in theirs.queries:
        return None
    values = [found.queries[figure] for found in (mine, theirs)]
    if values[0].shape != values[1].shape:
        return None
    test = paired(values[0], values[1], mine.clusters[figure])
    name = next(each.name for each in asked.table.rows if each.key == row.baseline)
    return Against(name, test.difference, test.low, test.high, test.p_value, test.p_value)


def _averaged(asked: Asked, row: Row, line: Line) -> Line:
    """The line with the mean of the table's own columns, where all of them were run."""
    own = [cell for cell, column in zip(line.cells, asked.columns, strict=True) if column in asked.table.columns]
    parts = [cell for cell, column in zip(own, asked.table.columns, strict=True) if column.data]
    lacking = sum(not cell.ours for cell in parts)
    cells = list(line.cells)
    for place, column in enumerate(asked.columns):
        if column.data or not row.trained:
            continue
        if lacking:
            cells[place] = replace(cells[place], missing=f"not run: needs {lacking} more of {len(parts)} columns")
        else:
            each = zip(*(cell.ours for cell in parts), strict=True)
            cells[place] = replace(cells[place], ours=tuple(float(np.mean(values)) for values in each))
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


def _protocol(asked: Asked, sizes: Sizes) -> list[str]:
    """How our numbers were made, in sentences."""
    selects = (
        "a tenth of the training pictures, the same for every row,"
        if asked.selects is None
        else f"the split '{asked.selects}'"
    )
    factors = ", ".join(f"x {factor:.3g}" for factor in FACTORS[: asked.trials])
    tuning = (
        "no row is tuned: the settings are the table's"
        if asked.trials == 1
        else f"every row tries {asked.trials} learning rates ({factors}) with seed 0, and keeps the one with the best "
        "validation recall"
    )
    notes = [
        f"Ours: mean ± standard deviation over {counted(asked.seeds, 'seed')}, scored on the split '{asked.split}' "
        f"after training; {selects} selects the epoch; {tuning}.",
        "Against a baseline: difference, 95 % interval by resampling pictures and seeds, and p by changing signs of "
        "pictures, corrected for all tests of the table (Holm); * where p is below 0.05 and the interval leaves 0 out.",
    ]
    for key in asked.data:
        notes.append(_size(asked, key, sizes))
    if asked.changes:
        told = ", ".join(f"{name}={value}" for name, value in asked.changes.items())
        notes.append(f"Changed for every row that has the option: {told}.")
    return notes


def _swept(asked: Asked, results: Results) -> list[str]:
    """Where a row's ratio on the user's own data is from."""
    notes = []
    for (key, data), (beta, gamma) in _ratios(asked, results).items():
        row = next(row for row in asked.table.rows if row.key == key)
        told = f"{row.name} on {asked.data_set(data).name}: β = {beta:g}, γ = {gamma:g}"
        if not asked.sweep:
            notes.append(f"{told}, which was not swept (--sweep 0); the paper has none for this data set.")
            continue
        small, runs = sweep_of(asked, row, data)
        value = "loss" if runs[0].job.plan.get("select") == "loss" else "recall"
        notes.append(
            f"{told}, the best of {len(RATIOS)} ratios by validation {value} after learning from at most "
            f"{small.subset:,} training pictures, with seed 0; other rows have no such sweep."
        )
    return notes


def _ratios(asked: Asked, results: Results) -> dict[tuple[str, str], tuple[object, object]]:
    """(row, data set) -> beta and gamma, where the paper has none for it."""
    found = {}
    for row in asked.rows:
        for data in asked.data:
            known = results.get((row.key, data))
            if known and known.trained and is_swept(row, data):
                methods = dict(known.trained[0].job.methods)
                found[row.key, data] = (methods["combined"]["beta"], methods["combined"]["gamma"])
    return found


def _size(asked: Asked, key: str, sizes: Sizes) -> str:
    data = asked.data_set(key)
    parts = sizes.get(key)
    told = ", ".join(f"{part} {n['pictures']:,}" for part, n in parts.items()) if parts else "nothing trained on it"
    paper = f"; the paper had about {data.pictures:,}" if data.pictures else "; not a data set of the paper"
    cut = "" if asked.subset is None else f", at most {asked.subset:,} of them learnt from"
    chosen = any(FIGURES[column.figure].measure == "choice" for column in asked.columns if column.data)
    choice = f"; choice among {data.c}" if chosen else ""
    read = "; read as precomputed features, where the papers' ResNet-50 learns" if asked.data[key].features else ""
    return f"{data.name} (pictures): {told}{cut}{paper}{choice}{read}."


def _graph(asked: Asked, key: str) -> dict[str, Any]:
    """What the texts' neighbours are: as the table builds them, or as a graph that was given says."""
    if (found := asked.given(key)) is not None:
        return found.to_json()
    return {"neighbours": asked.neighbours, "space": asked.space, "min_count": asked.min_count}


def _given(asked: Asked) -> list[str]:
    """Which graphs the table did not build."""
    notes = []
    for key in asked.data:
        if (found := asked.given(key)) is not None:
            notes.append(
                f"{asked.data_set(key).name}: neighbours of texts are those of a graph that was given "
                f"({found.neighbours} each, by {found.settings.get('distance')} in {found.space.get('name')}; "
                f"{found.mark[:8]}), whatever --space, --neighbours and --min-count say."
            )
    return notes


def _about(asked: Asked, results: Results, sizes: Sizes) -> dict[str, Any]:
    """What the JSON holds beside the cells."""
    return {
        "table": asked.name,
        "paper": asked.table.paper,
        "version": subtext.__version__,
        "protocol": {
            "seeds": asked.seeds, "trials": asked.trials, "factors": list(FACTORS[: asked.trials]),
            "subset": asked.subset, "sweep": asked.sweep, "split": asked.split, "val_split": asked.val_split,
            "changes": dict(asked.changes),
            "plan": dict(asked.table.plan),
        },
        "data": {
            key: {
                **asked.sources(key), "c": asked.data_set(key).c, "sizes": sizes.get(key), "graph": _graph(asked, key),
            }
            for key in asked.data
        },
        "swept": {
            f"{row}/{data}": {"beta": beta, "gamma": gamma}
            for (row, data), (beta, gamma) in _ratios(asked, results).items()
        },
        "plans": {
            f"{row}/{data}": dict(found.trained[0].job.plan) for (row, data), found in results.items() if found.trained
        },
        "runs": {
            f"{row}/{data}": [str(run.folder.relative_to(asked.out)) for run in found.trained]
            for (row, data), found in results.items()
        },
    }  # fmt: skip
