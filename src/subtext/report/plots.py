"""Drawings by matplotlib as SVG: charts of lines and reliability diagrams, panels side by side.

The same input gives the same text, text stays text, and no date is written.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subtext.errors import ArgumentError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SOFT, OURS, THEIRS, RULE = "#5b6470", "#2f6f5e", "#c2571a", "#e2dfd8"
"""Colours of lesser words, of results, of what they are compared with, of rules."""
_COLOURS = (OURS, THEIRS, "#3b5fa8", "#8a4a8f", "#7a6a10", "#a03048")
_DASHES = ("-", "--", ":")


@dataclass(frozen=True, repr=False)
class Plot:
    """A drawing as SVG: a notebook shows it, and `save` writes it.

    Attributes:
        svg: The document.
    """

    svg: str

    def __repr__(self) -> str:
        return f"Plot(SVG, {len(self.svg):,} characters; save(FILE) writes it)"

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> Path:
        """Write the SVG.

        Args:
            path: A file that ends in .svg.

        Returns:
            The path.

        Raises:
            ArgumentError: If the suffix is another.
            OutputError: If the file cannot be written.
        """
        from subtext.data.atomic import write_text

        path = Path(path).expanduser()
        if path.suffix != ".svg":
            raise ArgumentError(f"a drawing is saved as SVG; it got {path.name}; name a file that ends in .svg")
        write_text(path, self.svg + "\n")
        return path


@dataclass(frozen=True)
class Bar:
    """A value with its interval.

    Attributes:
        name: Beside it.
        value: The value.
        low: Of the interval; NaN for none.
        high: See `low`.
        reference: What it is compared with, such as chance; NaN for nothing.
    """

    name: str
    value: float
    low: float = math.nan
    high: float = math.nan
    reference: float = math.nan

    def html(self, least: float, most: float) -> str:
        """The bar for a cell of a table in a notebook.

        Args:
            least: Value at the left end; the bar begins at 0, or there.
            most: Value at the right end.

        Returns:
            An SVG element.
        """
        width, height = 160, 14

        def at(value: float) -> float:
            return round(width * (min(max(value, least), most) - least) / ((most - least) or 1.0), 1)

        zero = at(max(least, 0.0))
        start, end = sorted((zero, at(self.value)))
        marks = [f'<rect x="{start}" y="3" width="{max(end - start, 1):.1f}" height="8" fill="{OURS}" opacity="0.55"/>']
        if math.isfinite(self.low) and math.isfinite(self.high):
            low, high = at(self.low), at(self.high)
            line = f"M{low} 7H{high}M{low} 3V11M{high} 3V11"
            marks.append(f'<path d="{line}" stroke="currentColor" fill="none"/>')
        if math.isfinite(self.reference):
            place = at(self.reference)
            marks.append(f'<path d="M{place} 1V13" stroke="{THEIRS}" stroke-dasharray="2 2"/>')
        label = f"{self.name}: {self.value:.1f}"
        return (
            f'<svg role="img" aria-label="{escape(label)}" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}">{"".join(marks)}</svg>'
        )


def bars(panels: Mapping[str, Sequence[Bar]], label: str) -> str:
    """Draw panels of values with intervals, from left to right; a dashed tick is what a value is compared with.

    Args:
        panels: Title -> values, from top to bottom.
        label: Of the horizontal axes.

    Returns:
        An SVG document.
    """
    most = max((len(values) for values in panels.values()), default=1)
    figure, axes = side_by_side(max(1, len(panels)), 4.2, 1.0 + 0.32 * most)
    for (title, values), ax in zip(panels.items(), axes, strict=False):
        set_titles(ax, title, "")
        for row, bar in enumerate(values):
            ax.barh(row, bar.value, height=0.55, color=OURS, alpha=0.55)
            if math.isfinite(bar.low) and math.isfinite(bar.high):
                ax.plot([bar.low, bar.high], [row, row], color="black", lw=1, marker="|", ms=7)
            if math.isfinite(bar.reference):
                ax.plot([bar.reference] * 2, [row - 0.4, row + 0.4], color=THEIRS, lw=1, linestyle="--")
        names = [bar.name.replace("$", r"\$") for bar in values]
        ax.set_yticks(range(len(values)), names)
        ax.invert_yaxis()
        ax.set_xlabel(label, color=SOFT)
        ax.spines[["right", "top"]].set_visible(False)
        ax.axvline(0, color=RULE, lw=1)
    return svg(figure, "; ".join(panels))


@dataclass(frozen=True)
class Curve:
    """A line through points.

    Attributes:
        name: In the legend.
        points: (x, y) from left to right; points that are not finite are left out.
        reference: Grey and dashed: a line to compare with, such as chance.
    """

    name: str
    points: Sequence[tuple[float, float]]
    reference: bool = False


@dataclass(frozen=True)
class Chart:
    """A panel of curves.

    Attributes:
        title: Over the panel.
        x_label: Below the axis.
        y_label: Beside the axis.
        curves: The curves, each with its name.
        log_y: Points that are not above 0 on it are left out.
        log_x: Whether an axis is logarithmic.
        most: Largest possible value on the vertical axis, such as 100 %; None for none.
    """

    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve]
    log_y: bool = False
    log_x: bool = False
    most: float | None = None


@dataclass(frozen=True)
class ReliabilityDiagram:
    """One reliability diagram.

    Attributes:
        title: Over the panel.
        remark: Below the title.
        predicted: (B) mean probability of each bin.
        came_true: (B) share of each bin that came true.
        counts: (B) predictions in each bin.
    """

    title: str
    remark: str
    predicted: Sequence[float]
    came_true: Sequence[float]
    counts: Sequence[float]


def charts(panels: Sequence[Chart]) -> str:
    """Draw panels from left to right, each with its own axes and a legend below.

    Args:
        panels: The panels.

    Returns:
        An SVG document.
    """
    from matplotlib.ticker import MaxNLocator

    lines = max(len(chart.curves) for chart in panels)
    figure, axes = side_by_side(len(panels), 4.2, 3.3 + 0.22 * lines)
    for chart, ax in zip(panels, axes, strict=True):
        ax.set_title(chart.title, loc="left", fontweight="bold", parse_math=False)
        ax.set_xlabel(chart.x_label, color=SOFT, parse_math=False)
        ax.set_ylabel(chart.y_label, color=SOFT, parse_math=False)
        ax.spines[["right", "top"]].set_visible(False)
        ax.grid(axis="y", color=RULE)
        ax.set_axisbelow(True)
        if chart.log_x:
            ax.set_xscale("log")
        elif all(float(x).is_integer() for curve in chart.curves for x, _ in curve.points if math.isfinite(x)):
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))  # There is no epoch 1.25.
        if chart.log_y:
            ax.set_yscale("log")
        lines = references = points = 0
        for curve in chart.curves:
            shown = [(x, y) for x, y in curve.points if _is_shown(x, chart.log_x) and _is_shown(y, chart.log_y)]
            points += len(shown)
            if curve.reference:
                style, colour, marker = ("--", ":")[references % 2], SOFT, None
                references += 1
            else:
                # Lines of one colour differ in their dashes.
                style = _DASHES[(lines // len(_COLOURS) + lines) % len(_DASHES)]
                colour, marker = _COLOURS[lines % len(_COLOURS)], "o"
                lines += 1
            (line,) = ax.plot(
                *zip(*shown, strict=True) if shown else ([], []), style, color=colour, marker=marker, ms=3
            )
            line.set_gid(f"curve of {chart.title}: {curve.name}")
            line.set_label(curve.name.replace("$", r"\$"))
        bottom, top = ax.get_ylim()
        if chart.most is not None and top > chart.most:
            ax.set_ylim(top=chart.most + 0.03 * (chart.most - bottom))
        if points:
            ax.legend(loc="upper left", bbox_to_anchor=(0, -0.16), frameon=False)
        else:
            ax.text(0.5, 0.5, "no data", transform=ax.transAxes, ha="center")
    return svg(figure, "; ".join(chart.title for chart in panels))


def reliability_diagrams(panels: Sequence[ReliabilityDiagram]) -> str:
    """Draw panels from left to right; a dot's area is the number of predictions in its bin.

    Args:
        panels: The panels.

    Returns:
        An SVG document.
    """
    figure, axes = side_by_side(len(panels), 3.2, 3.4)
    for panel, ax in zip(panels, axes, strict=True):
        most = max([*panel.counts, 1])
        ax.plot([0, 1], [0, 1], linestyle=":", color=SOFT, linewidth=1)
        sizes = [(2 + 8 * (count / most) ** 0.5) ** 2 for count in panel.counts]
        ax.scatter(panel.predicted, panel.came_true, s=sizes, color=OURS, alpha=0.75, linewidths=0, zorder=3)
        ax.set(xlim=(0, 1), ylim=(0, 1), xticks=[0, 1], yticks=[0, 1], aspect="equal")
        ax.set_xlabel("predicted probability", color=SOFT)
        ax.set_ylabel("share that came true", color=SOFT)
        set_titles(ax, panel.title, panel.remark)
    return svg(figure, "; ".join(panel.title for panel in panels))


def svg(figure: Figure, label: str) -> str:
    """Convert a figure to an SVG element that a page may hold.

    Args:
        figure: The figure.
        label: Text for a screen reader.

    Returns:
        The element.
    """
    import matplotlib

    file = StringIO()
    settings: Any = {"svg.hashsalt": "subtext", "svg.fonttype": "none", "font.size": 9, "font.family": "sans-serif"}
    with matplotlib.rc_context(settings):
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(file, format="svg", metadata=metadata, facecolor="white", bbox_inches="tight")
    text = file.getvalue()
    return f'<svg role="img" aria-label="{escape(label)}"{text[text.index("<svg") + 4 :]}'


def side_by_side(count: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """Make a figure of panels from left to right.

    Args:
        count: Number of panels.
        width: Of a panel, inches.
        height: Of a panel, inches.

    Returns:
        The figure and its axes.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * count, height), layout="constrained")
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


def set_titles(ax: Axes, title: str, remark: str) -> None:
    """Put a title over a panel, and a remark below the title.

    Args:
        ax: The panel.
        title: Over the panel.
        remark: Below the title.
    """
    ax.set_title(f"{title}\n", loc="left", fontweight="bold", fontsize=9, parse_math=False)
    ax.text(0, 1.03, remark, transform=ax.transAxes, color=SOFT, fontsize=8, parse_math=False)


def _is_shown(value: float, log: bool) -> bool:
    return math.isfinite(value) and (value > 0 or not log)
