"""A small table as it is written: Markdown, LaTeX, JSON and a picture."""

from __future__ import annotations

import json
import math
import re
from xml.etree import ElementTree

import pytest

from reproduce.tables.plot import plot
from reproduce.tables.sheet import Against, Cell, Line, Sheet, as_json, latex, markdown

pytestmark = pytest.mark.golden

TEST = Against("PVSE", 0.012, 0.004, 0.021, 0.002, 0.004)
SHEET = Sheet(
    title="A & B, Table 1",
    columns=("COCO I→T", "mine I→T"),
    lines=(
        Line("PVSE", (Cell((), 0.6541, "not run: needs COCO"), Cell((0.50, 0.52)))),
        Line("|α_X|", (Cell((), 0.7, "not run: needs COCO"), Cell((0.51, 0.534), against=TEST))),
        Line("K", (Cell((), 3.0, "taken as printed"), Cell())),
    ),
    notes=("5 % of it.",),
    about={"table": "made"},
)

MARKDOWN = r"""# A & B, Table 1

|  | mine I→T |
|---|---|
| **PVSE** | 0.5100 ± 0.0141 |
| **\|α_X\|** | 0.5220 ± 0.0170* |
| against PVSE | +0.0120 [+0.0040, +0.0210] p 0.004 |
| **K** | - |

* 5 % of it.
* Left out, not measured: COCO I→T; the JSON file has the paper's numbers.
"""

LATEX = r"""% needs \usepackage{booktabs}
\begin{table}
\centering\small
\begin{tabular}{lr}
\toprule
 & mine I$\to$T \\
\midrule
PVSE & 0.5100 $\pm$ 0.0141 \\
\midrule
$|$$\alpha$\_X$|$ & 0.5220 $\pm$ 0.0170* \\
\quad against PVSE & +0.0120 [+0.0040, +0.0210] p 0.004 \\
\midrule
K & - \\
\bottomrule
\end{tabular}
\caption{A \& B, Table 1. 5 \% of it. Left out, not measured: COCO I$\to$T; the JSON file has the paper's numbers.}
\end{table}
"""


def test_markdown_output() -> None:
    assert markdown(SHEET) == MARKDOWN


def test_table_without_any_data_keeps_its_columns() -> None:
    page = markdown(Sheet("t", ("c",), (Line("r", (Cell((), 0.7, "not run: needs COCO"),)),)))
    assert "| **r** | not run: needs COCO |\n| paper | 0.7000 |" in page and "Left out" not in page


def test_latex_output() -> None:
    assert latex(SHEET) == LATEX


def test_json_output() -> None:
    found = json.loads(as_json(SHEET))
    assert (found["title"], found["table"], found["columns"]) == ("A & B, Table 1", "made", ["COCO I→T", "mine I→T"])
    first, second = found["rows"][0]["cells"], found["rows"][1]["cells"]
    empty = {"mean": None, "spread": None, "seeds": [], "paper": 0.6541, "not_run": "not run: needs COCO"}
    assert first["COCO I→T"] == {**empty, "against": None}
    assert second["mine I→T"]["seeds"] == [0.51, 0.534] and second["mine I→T"]["not_run"] is None
    assert second["mine I→T"]["against"] == {
        "name": "PVSE", "difference": 0.012, "low": 0.004, "high": 0.021, "p_value": 0.002, "corrected": 0.004,
        "sure": True,
    }  # fmt: skip


def test_plot_marks_trained_and_printed_values() -> None:
    drawing = plot(SHEET)
    ElementTree.fromstring(drawing)
    assert drawing.count('id="ours') == 2 and drawing.count('id="published') == 3
    dots = re.findall(r'<g id="ours.*?</use>|<g id="ours.*?<use[^>]*>', drawing, re.DOTALL)
    assert sum("fill: #2f6f5e" in dot for dot in dots) == 1


@pytest.mark.parametrize(
    ("low", "high", "corrected", "sure"),
    [(0.1, 0.2, 0.01, True), (-0.2, -0.1, 0.01, True), (0.1, 0.2, 0.05, False), (-0.1, 0.2, 0.01, False)],
)
def test_difference_is_significant_by_both_tests(low: float, high: float, corrected: float, sure: bool) -> None:
    assert Against("", 0.1, low, high, 0.0, corrected).sure is sure
    assert not Against("", 0.1, math.nan, math.nan, math.nan, math.nan).sure


def test_single_seed_has_no_spread() -> None:
    assert "0.5000 |" in markdown(Sheet("t", ("c",), (Line("r", (Cell((0.5,)),)),)))
