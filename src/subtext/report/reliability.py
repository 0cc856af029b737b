"""A reliability plot: what probabilities said beside what came true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from subtext.report.svg import LINE, OURS, SOFT, document

_SIDE, _GAP, _TOP, _FOOT = 220, 40, 56, 44


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
    parts = [part for place, panel in enumerate(panels) for part in _panel(panel, _GAP + place * (_SIDE + _GAP))]
    return document(width, height, parts)


def _panel(panel: Panel, left: int) -> list[str]:
    bottom, most = _TOP + _SIDE, max([*panel.counts, 1])
    dots = [
        f'<circle cx="{left + _SIDE * x:.1f}" cy="{bottom - _SIDE * y:.1f}" r="{2 + 8 * (n / most) ** 0.5:.1f}" '
        f'fill="{OURS}" fill-opacity="0.75"><title>{x:.3f} said, {y:.3f} came true, {n:,.0f}</title></circle>'
        for x, y, n in zip(panel.predicted, panel.came_true, panel.counts, strict=True)
    ]
    return [
        f'<text x="{left}" y="20" font-weight="600">{escape(panel.title)}</text>',
        f'<text x="{left}" y="38" fill="{SOFT}">{escape(panel.remark)}</text>',
        f'<rect x="{left}" y="{_TOP}" width="{_SIDE}" height="{_SIDE}" fill="none" stroke="{LINE}"/>',
        f'<line x1="{left}" y1="{bottom}" x2="{left + _SIDE}" y2="{_TOP}" stroke="{SOFT}" stroke-dasharray="4 4"/>',
        *dots,
        f'<text x="{left}" y="{bottom + 16}" fill="{SOFT}">0</text>',
        f'<text x="{left + _SIDE}" y="{bottom + 16}" fill="{SOFT}" text-anchor="end">1</text>',
        f'<text x="{left + _SIDE / 2:.0f}" y="{bottom + 32}" fill="{SOFT}" text-anchor="middle">probability said; '
        "upward: share that came true</text>",
    ]
