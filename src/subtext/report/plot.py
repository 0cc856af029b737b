"""A table as a picture: a panel for each column, a dot for each row, a diamond for the paper's number."""

from __future__ import annotations

from html import escape

from reproduce.tables.writer import Cell, Sheet, number
from subtext.report.svg import LINE, OURS, SOFT, THEIRS, document

_LABEL, _PANEL, _GAP, _ROW, _TOP = 200, 190, 24, 26, 70


def plot(sheet: Sheet) -> str:
    """The table as SVG.

    Ours is a dot at the mean on a bar from the lowest seed to the highest, filled where the difference from the row's
    baseline is sure; the paper's number is an open diamond. A column has an axis of its own, from its least number to
    its greatest; what was not run has no dot.
    """
    width = _LABEL + len(sheet.columns) * (_PANEL + _GAP)
    height = _TOP + _ROW * len(sheet.lines) + 30
    parts = [
        f'<text x="8" y="20" font-size="14" font-weight="600">{escape(sheet.title)}</text>',
        f'<text x="8" y="38" fill="{SOFT}">dot: mean over seeds, bar: lowest to highest, filled: differs from its '
        "baseline; diamond: the paper</text>",
    ]
    for row, line in enumerate(sheet.lines):
        parts.append(f'<text x="8" y="{_place(row) + 4}">{escape(line.name)}</text>')
    for column, name in enumerate(sheet.columns):
        left = _LABEL + column * (_PANEL + _GAP)
        parts.append(f'<text x="{left}" y="{_TOP - 12}" font-weight="600">{escape(name)}</text>')
        parts += _panel([line.cells[column] for line in sheet.lines], left)
    return document(width, height, parts)


def _place(row: int) -> int:
    return _TOP + _ROW * row + _ROW // 2


def _panel(cells: list[Cell], left: int) -> list[str]:
    known = [value for cell in cells for value in (*cell.ours, cell.paper) if value is not None]
    if not known:
        return []
    least, most = min(known), max(known)
    span = (most - least) or 1.0

    def across(value: float) -> float:
        return round(left + 8 + (value - least) / span * (_PANEL - 16), 1)

    end = _place(len(cells) - 1) + _ROW // 2
    parts = [
        f'<text x="{left}" y="{end + 16}" fill="{SOFT}">{number(least)}</text>',
        f'<text x="{left + _PANEL}" y="{end + 16}" fill="{SOFT}" text-anchor="end">{number(most)}</text>',
    ]
    for row, cell in enumerate(cells):
        y = _place(row)
        parts.append(f'<line x1="{left}" x2="{left + _PANEL}" y1="{y}" y2="{y}" stroke="{LINE}"/>')
        if cell.paper is not None:
            x = across(cell.paper)
            points = f"{x},{y - 5} {x + 5},{y} {x},{y + 5} {x - 5},{y}"
            parts.append(f'<polygon points="{points}" fill="none" stroke="{THEIRS}" stroke-width="1.5"/>')
        if cell.ours:
            low, high = across(min(cell.ours)), across(max(cell.ours))
            sure = cell.against is not None and cell.against.sure
            parts.append(f'<line x1="{low}" x2="{high}" y1="{y}" y2="{y}" stroke="{OURS}" stroke-width="2"/>')
            parts.append(
                f'<circle cx="{across(cell.mean)}" cy="{y}" r="4" stroke="{OURS}" stroke-width="1.5" '
                f'fill="{OURS if sure else "#fff"}"/>'
            )
    return parts
