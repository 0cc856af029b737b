"""Histograms as one SVG picture, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from subtext.report.svg import OURS, SOFT, document

_PANEL, _HEIGHT, _GAP, _TOP, _FOOT = 240, 130, 24, 40, 30


@dataclass(frozen=True)
class Histogram:
    """Counts in equal parts between two ends, below a title and a remark."""

    title: str
    remark: str
    low: float
    high: float
    counts: Sequence[int]


def histograms(each: Sequence[Histogram]) -> str:
    """The panels from left to right, each as high as its highest bar, as one SVG document."""
    width, height = len(each) * (_PANEL + _GAP) + _GAP, _TOP + _HEIGHT + _FOOT
    panels = [_panel(one, _GAP + place * (_PANEL + _GAP)) for place, one in enumerate(each)]
    return document(width, height, [part for panel in panels for part in panel])


def _panel(one: Histogram, left: int) -> list[str]:
    bottom, step = _TOP + _HEIGHT, _PANEL / len(one.counts)
    most = max([*one.counts, 1])
    bars = [
        f'<rect x="{left + place * step:.1f}" y="{bottom - _HEIGHT * count / most:.1f}" width="{step * 0.9:.1f}" '
        f'height="{_HEIGHT * count / most:.1f}" fill="{OURS}"/>'
        for place, count in enumerate(one.counts)
        if count
    ]
    return [
        f'<text x="{left}" y="16" font-weight="600">{escape(one.title)}</text>',
        f'<text x="{left}" y="31" fill="{SOFT}">{escape(one.remark)}</text>',
        *bars,
        f'<line x1="{left}" x2="{left + _PANEL}" y1="{bottom}" y2="{bottom}" stroke="{SOFT}"/>',
        f'<text x="{left}" y="{bottom + 16}" fill="{SOFT}">{one.low:.3f}</text>',
        f'<text x="{left + _PANEL}" y="{bottom + 16}" fill="{SOFT}" text-anchor="end">{one.high:.3f}</text>',
    ]
