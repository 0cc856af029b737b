"""Curves over one axis as one SVG picture, panels side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from subtext.report.svg import LINE, OURS, SOFT, THEIRS, document

_PANEL, _HEIGHT, _LEFT, _GAP, _TOP, _LEGEND = 340, 220, 64, 28, 48, 18
_COLOURS = (OURS, THEIRS, "#3b5fa8", "#8a4a8f", "#7a6a10", "#a03048")
_DASHES = ("none", "6 3", "2 3")
_QUIET = ("8 4", "2 4")
_TICKS = 5


@dataclass(frozen=True)
class Curve:
    """A line through points.

    name    in the legend
    points  (x, y) from left to right; a point whose y is no finite number is left out
    quiet   grey and dashed: a line to compare with, as chance is
    """

    name: str
    points: Sequence[tuple[float, float]]
    quiet: bool = False


@dataclass(frozen=True)
class Chart:
    """A panel.

    title   above it      across, up  what its axes are
    logs    whether the upright axis counts in powers of ten; what is not above 0 is left out then
    logs_across  the same of the other axis
    """

    title: str
    across: str
    up: str
    curves: Sequence[Curve]
    logs: bool = False
    logs_across: bool = False


def curves(charts: Sequence[Chart]) -> str:
    """The panels from left to right as one SVG document, each with its own axes and a legend below."""
    width = len(charts) * (_LEFT + _PANEL) + (len(charts) + 1) * _GAP
    most = max(len(chart.curves) for chart in charts)
    height = _TOP + _HEIGHT + 52 + _LEGEND * most
    panels = [_panel(chart, _GAP + place * (_LEFT + _PANEL + _GAP) + _LEFT) for place, chart in enumerate(charts)]
    told = "; ".join(chart.title for chart in charts)
    return document(width, height, [part for panel in panels for part in panel], label=told)


def ticks(low: float, high: float) -> list[float]:
    """Round numbers between two ends, 1, 2 or 5 times a power of ten apart, about five of them.

    >>> ticks(0.0, 1.0), ticks(48.2, 61.0)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [50.0, 55.0, 60.0])
    """
    step = _step(low, high)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(place * step, 12) + 0.0 for place in range(first, last + 1)]


def _step(low: float, high: float) -> float:
    rough = ((high - low) or 1.0) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))


def _panel(chart: Chart, left: int) -> list[str]:
    bottom = _TOP + _HEIGHT
    drawn = [
        [
            (_height(x, chart.logs_across), y)
            for x, y in curve.points
            if _shown(x, chart.logs_across) and _shown(y, chart.logs)
        ]
        for curve in chart.curves
    ]
    parts = [f'<text x="{left}" y="18" font-size="14" font-weight="600">{escape(chart.title)}</text>']
    parts.append(f'<text x="{left}" y="{_TOP - 10}" fill="{SOFT}">{escape(chart.up)}</text>')
    middle = left + _PANEL / 2
    parts.append(
        f'<text x="{middle}" y="{bottom + 34}" text-anchor="middle" fill="{SOFT}">{escape(chart.across)}</text>'
    )
    points = [point for line in drawn for point in line]
    if points:
        parts += _drawn(chart, drawn, points, left)
    else:
        parts.append(f'<text x="{middle}" y="{bottom - _HEIGHT / 2}" text-anchor="middle">nothing to show</text>')
    return parts


def _drawn(
    chart: Chart, drawn: list[list[tuple[float, float]]], points: list[tuple[float, float]], left: int
) -> list[str]:
    """Axes, lines and legend."""
    bottom = _TOP + _HEIGHT
    heights = [_height(y, chart.logs) for _, y in points]
    least, most = _ends([x for x, _ in points])
    low, high = _rounded(*_ends(heights), logs=chart.logs)

    def across(x: float) -> float:
        return round(left + (x - least) / (most - least) * _PANEL, 1)

    def up(y: float) -> float:
        return round(bottom - (y - low) / (high - low) * _HEIGHT, 1)

    parts = []
    for tick in range(int(low), int(high) + 1) if chart.logs else ticks(low, high):
        label = _number(10.0**tick if chart.logs else tick)
        parts.append(f'<line x1="{left}" x2="{left + _PANEL}" y1="{up(tick)}" y2="{up(tick)}" stroke="{LINE}"/>')
        parts.append(f'<text x="{left - 6}" y="{up(tick) + 4}" text-anchor="end" fill="{SOFT}">{label}</text>')
    parts.append(f'<line x1="{left}" x2="{left + _PANEL}" y1="{bottom}" y2="{bottom}" stroke="{SOFT}"/>')
    for tick in _powers(least, most) if chart.logs_across else ticks(least, most):
        x, label = across(tick), _number(10.0**tick if chart.logs_across else tick)
        parts.append(f'<text x="{x}" y="{bottom + 16}" text-anchor="middle" fill="{SOFT}">{label}</text>')
    loud, quiet = 0, 0
    for place, (curve, line) in enumerate(zip(chart.curves, drawn, strict=True)):
        colour, dash = (SOFT, _QUIET[quiet % 2]) if curve.quiet else (_COLOURS[loud % len(_COLOURS)], _dash(loud))
        loud, quiet = loud + (not curve.quiet), quiet + curve.quiet
        stroke = f'stroke="{colour}" stroke-width="{1.5 if curve.quiet else 2}" stroke-dasharray="{dash}"'
        dots = [(across(x), up(_height(y, chart.logs))) for x, y in line]
        path = " ".join(f"{x},{y}" for x, y in dots)
        parts.append(f'<polyline points="{path}" fill="none" {stroke}/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="2.5" fill="{colour}"/>' for x, y in dots if not curve.quiet]
        y = bottom + 52 + _LEGEND * place
        parts.append(f'<line x1="{left}" x2="{left + 28}" y1="{y - 4}" y2="{y - 4}" {stroke}/>')
        parts.append(f'<text x="{left + 36}" y="{y}">{escape(curve.name)}</text>')
    return parts


def _powers(low: float, high: float) -> list[float]:
    """Logarithms of 1, 2 and 5 times powers of ten between two ends that are logarithms."""
    found = [
        power + math.log10(factor) for power in range(math.floor(low), math.ceil(high) + 1) for factor in (1, 2, 5)
    ]
    return [tick for tick in found if low - 1e-9 <= tick <= high + 1e-9]


def _shown(y: float, logs: bool) -> bool:
    return math.isfinite(y) and (y > 0 or not logs)


def _height(y: float, logs: bool) -> float:
    return math.log10(y) if logs else y


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """Least and greatest; a little apart where they are one."""
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _rounded(low: float, high: float, *, logs: bool) -> tuple[float, float]:
    """The round numbers, or powers of ten, just below and just above."""
    step = 1.0 if logs else _step(low, high)
    return math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step


def _dash(number: int) -> str:
    """Lines that share a colour, or are seen without one, differ in their dashes."""
    return _DASHES[(number // len(_COLOURS) + number) % len(_DASHES)]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"
