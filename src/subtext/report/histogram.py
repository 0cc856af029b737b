"""Histograms as one SVG picture, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_PANEL, _HEIGHT, _GAP, _TOP, _FOOT = 240, 130, 24, 40, 30
_INK, _SOFT, _BAR = "#1b1f24", "#5b6470", "#2f6f5e"


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
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="system-ui,sans-serif" '
        f'font-size="12" fill="{_INK}">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for place, one in enumerate(each):
        parts += _panel(one, _GAP + place * (_PANEL + _GAP))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(one: Histogram, left: int) -> list[str]:
    bottom, step = _TOP + _HEIGHT, _PANEL / len(one.counts)
    most = max([*one.counts, 1])
    bars = [
        f'<rect x="{left + place * step:.1f}" y="{bottom - _HEIGHT * count / most:.1f}" width="{step * 0.9:.1f}" '
        f'height="{_HEIGHT * count / most:.1f}" fill="{_BAR}"/>'
        for place, count in enumerate(one.counts)
        if count
    ]
    return [
        f'<text x="{left}" y="16" font-weight="600">{escape(one.title)}</text>',
        f'<text x="{left}" y="31" fill="{_SOFT}">{escape(one.remark)}</text>',
        *bars,
        f'<line x1="{left}" x2="{left + _PANEL}" y1="{bottom}" y2="{bottom}" stroke="{_SOFT}"/>',
        f'<text x="{left}" y="{bottom + 16}" fill="{_SOFT}">{one.low:.3f}</text>',
        f'<text x="{left + _PANEL}" y="{bottom + 16}" fill="{_SOFT}" text-anchor="end">{one.high:.3f}</text>',
    ]
