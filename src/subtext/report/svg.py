"""What every drawing here begins and ends with, and its inks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

INK, SOFT, OURS, THEIRS, LINE = "#1b1f24", "#5b6470", "#2f6f5e", "#c2571a", "#e2dfd8"
"""Of words, of lesser words, of what was measured here, of what it is held against, of rules."""


def document(width: int, height: int, parts: Sequence[str], *, label: str = "") -> str:
    """Elements on a white ground as one SVG document.

    label  what a screen reader says of it; empty for the words in the drawing alone
    """
    spoken = f'role="img" aria-label="{escape(label)}" ' if label else ""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {spoken}'
        f'font-family="system-ui,sans-serif" font-size="12" fill="{INK}">'
    )
    return "\n".join([head, f'<rect width="{width}" height="{height}" fill="#fff"/>', *parts, "</svg>"]) + "\n"
