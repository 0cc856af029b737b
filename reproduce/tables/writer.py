"""A published table beside ours, as Markdown, LaTeX, plain lines and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, stdev
from typing import Any

SURE = 0.05
"""Corrected p-value below which a difference bears a mark."""

_LATEX = {"\\": r"\textbackslash{}", "±": r"$\pm$", "→": r"$\to$", "−": r"$-$", "λ": r"$\lambda$", "Γ": r"$\Gamma$",
          "α": r"$\alpha$", "β": r"$\beta$", "γ": r"$\gamma$", "μ": r"$\mu$", "σ": r"$\sigma$", "Ω": r"$\Omega$",
          "Ψ": r"$\Psi$", "·": r"$\cdot$", "|": r"$|$", **{sign: f"\\{sign}" for sign in "&%$#_{}"}}  # fmt: skip


@dataclass(frozen=True)
class Against:
    """A paired test against another row.

    name         of that row             difference   ours minus theirs     low, high   95 % interval
    p_value      two-sided               corrected    for all tests of the table (Holm)
    Numbers that there are not, for want of pictures, are NaN.
    """

    name: str
    difference: float
    low: float
    high: float
    p_value: float
    corrected: float

    @property
    def sure(self) -> bool:
        """Whether the corrected p-value is below 0.05 and the interval leaves 0 out."""
        return self.corrected < SURE and (self.low > 0 or self.high < 0)


@dataclass(frozen=True)
class Cell:
    """One cell.

    ours     one value a seed; empty where nothing was measured     paper  the printed number
    missing  why there is no value of ours, as in "not run: needs COCO"
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
    """A whole table.

    notes  sentences below it, in order        about  what else the JSON holds: protocol, data, runs
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
    written: list[list[str]] = []
    for line in sheet.lines:
        written.append([line.name, *[_ours(cell) for cell in line.cells]])
        if any(cell.paper is not None for cell in line.cells):
            written.append(["  paper", *["-" if c.paper is None else number(c.paper) for c in line.cells]])
        names = {cell.against.name for cell in line.cells if cell.against is not None}
        for name in sorted(names):
            tests = [c.against if c.against is not None and c.against.name == name else None for c in line.cells]
            written.append([f"  against {name}", *[_test(test) for test in tests]])
    return written


def markdown(sheet: Sheet) -> str:
    """The table as a Markdown page."""
    lines = [f"# {sheet.title}", "", _row(["", *sheet.columns]), "|" + "---|" * (len(sheet.columns) + 1)]
    for label, *cells in grid(sheet):
        lines.append(_row([label.strip() if label.startswith(" ") else f"**{label}**", *cells]))
    return "\n".join([*lines, "", *(f"* {note}" for note in sheet.notes)]) + "\n"


def latex(sheet: Sheet) -> str:
    """The table as a LaTeX `table` with booktabs rules."""
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
    """Everything, as indented JSON; a number that there is not is null."""
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
    whole = {"title": sheet.title, **sheet.about, "columns": list(sheet.columns), "rows": rows, "notes": sheet.notes}
    return json.dumps(_finite(whole), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def number(value: float) -> str:
    """A value as papers print it: four decimals, whole numbers as they are.

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
