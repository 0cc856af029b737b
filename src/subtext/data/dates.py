"""Dates as text."""

from __future__ import annotations

import re
from datetime import datetime

_DAY = re.compile(r"(\d{4})/(\d\d?)/(\d\d?)|(\d\d?)\.(\d\d?)\.(\d{4})", re.ASCII)
_ISO = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d.*)?", re.ASCII)


def parse_date(cell: str) -> str | None:
    """Parse a date in a form that has one meaning only.

    Args:
        cell: 2021-03-05 with or without a time, 2021/03/05, 05.03.2021 or 5.3.2021.

    Returns:
        The date as ISO 8601; None if the text is no such date.
    """
    if match := _DAY.fullmatch(cell):
        cell = f"{match[1] or match[6]}-{match[2] or match[5]:0>2}-{match[3] or match[4]:0>2}"
    if not _ISO.fullmatch(cell):
        return None
    try:
        datetime.fromisoformat(cell)
    except ValueError:
        return None
    return cell
