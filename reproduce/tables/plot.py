"""A table as a drawing: a panel for each column, a dot for each row, a diamond for the published value."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reproduce.tables.sheet import Cell, Sheet, number
from subtext.report.plots import OURS, RULE, SOFT, THEIRS, svg


def plot(sheet: Sheet) -> str:
    """The table as SVG.

    Our value is a dot at the mean on a bar from the lowest seed to the highest, filled where the difference from the
    row's baseline is significant; the published value is an open diamond. A column has an axis of its own, from its
    least number to its greatest; a row that was not run has no dot.
    """
    figure = Figure(figsize=(2.5 + 2.4 * len(sheet.columns), 1.2 + 0.34 * len(sheet.lines)), layout="constrained")
    figure.suptitle(sheet.title, x=0, ha="left", fontweight="bold", parse_math=False)
    figure.supxlabel(
        "dot: mean over seeds, bar: lowest to highest, filled: differs from its baseline; diamond: the paper",
        color=SOFT,
        fontsize=8,
    )
    axes = figure.subplots(1, len(sheet.columns), sharey=True, squeeze=False)[0]
    for column, ax in enumerate(axes):
        ax.set_title(sheet.columns[column], loc="left", fontsize=9, fontweight="bold", parse_math=False)
        _panel(ax, [line.cells[column] for line in sheet.lines])
    axes[0].set_yticks(range(len(sheet.lines)), [line.name for line in sheet.lines], parse_math=False)
    axes[0].invert_yaxis()
    return svg(figure, sheet.title)


def _panel(ax: Axes, cells: list[Cell]) -> None:
    ax.spines[["left", "right", "top", "bottom"]].set_visible(False)
    ax.tick_params(length=0)
    ax.grid(axis="y", color=RULE)
    values = [value for cell in cells for value in (*cell.ours, cell.paper) if value is not None]
    ends = (min(values), max(values)) if values else ()
    ax.set_xticks(ends, [number(end) for end in ends])
    for row, cell in enumerate(cells):
        if cell.paper is not None:
            ax.plot(cell.paper, row, "D", color=THEIRS, fillstyle="none", gid="published")
        if cell.ours:
            sure = cell.against is not None and cell.against.sure
            ax.plot([min(cell.ours), max(cell.ours)], [row, row], "-", color=OURS, linewidth=2)
            ax.plot(cell.mean, row, "o", color=OURS, markerfacecolor=OURS if sure else "white", gid="ours")
