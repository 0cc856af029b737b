"""A reliability plot: what probabilities said beside what came true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_SIDE, _GAP, _TOP, _FOOT = 220, 40, 56, 44
_INK, _SOFT, _DOT, _LINE = "#1b1f24", "#5b6470", "#2f6f5e", "#e2dfd8"


@dataclass(frozen=True)
class Panel:
    """One reliability diagram: of each bin the mean probability, the share that came true, and how many."""

    title: str
    remark: str
    predicted: Sequence[float]
    came_true: Sequence[float]
    counts: Sequence[float]


def reliability_plot(panels: Sequence[Panel]) -> str:
    """The panels from left to right as one SVG document; a dot's area is the number of predictions in its bin."""
    width, height = len(panels) * (_SIDE + _GAP) + _GAP, _TOP + _SIDE + _FOOT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="system-ui,sans-serif" '
        f'font-size="12" fill="{_INK}">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for place, panel in enumerate(panels):
        parts += _panel(panel, _GAP + place * (_SIDE + _GAP))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(panel: Panel, left: int) -> list[str]:
    bottom, most = _TOP + _SIDE, max([*panel.counts, 1])
    dots = [
        f'<circle cx="{left + _SIDE * x:.1f}" cy="{bottom - _SIDE * y:.1f}" r="{2 + 8 * (n / most) ** 0.5:.1f}" '
        f'fill="{_DOT}" fill-opacity="0.75"><title>{x:.3f} said, {y:.3f} came true, {n:,.0f}</title></circle>'
        for x, y, n in zip(panel.predicted, panel.came_true, panel.counts, strict=True)
    ]
    return [
        f'<text x="{left}" y="20" font-weight="600">{escape(panel.title)}</text>',
        f'<text x="{left}" y="38" fill="{_SOFT}">{escape(panel.remark)}</text>',
        f'<rect x="{left}" y="{_TOP}" width="{_SIDE}" height="{_SIDE}" fill="none" stroke="{_LINE}"/>',
        f'<line x1="{left}" y1="{bottom}" x2="{left + _SIDE}" y2="{_TOP}" stroke="{_SOFT}" stroke-dasharray="4 4"/>',
        *dots,
        f'<text x="{left}" y="{bottom + 16}" fill="{_SOFT}">0</text>',
        f'<text x="{left + _SIDE}" y="{bottom + 16}" fill="{_SOFT}" text-anchor="end">1</text>',
        f'<text x="{left + _SIDE / 2:.0f}" y="{bottom + 32}" fill="{_SOFT}" text-anchor="middle">probability said; '
        "upward: share that came true</text>",
    ]
