"""The curves of a drawing, read back from its SVG."""

from __future__ import annotations

import re
from xml.etree import ElementTree

NAMES = {"svg": "http://www.w3.org/2000/svg"}


def curve_points(text: str) -> list[list[tuple[float, float]]]:
    """The points of each curve, in units of the drawing."""
    groups = ElementTree.fromstring(text).iterfind(".//svg:g", NAMES)
    paths = [group.find("svg:path", NAMES) for group in groups if group.get("id", "").startswith("curve of ")]
    numbers = [re.findall(r"-?\d+(?:\.\d+)?", path.get("d", "")) for path in paths if path is not None]
    return [list(zip(map(float, row[::2]), map(float, row[1::2]), strict=True)) for row in numbers]
