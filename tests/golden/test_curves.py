"""Curves as SVG: well-formed, every point where its axes say, escaped, and nothing where there is nothing."""

from __future__ import annotations

import math
from xml.etree import ElementTree

from subtext.report.curves import Chart, Curve, curves, ticks
from subtext.report.page import Page, Section, render

NAMES = {"svg": "http://www.w3.org/2000/svg"}


def lines(text: str) -> list[list[tuple[float, float]]]:
    found = ElementTree.fromstring(text).findall("svg:polyline", NAMES)
    return [[tuple(map(float, point.split(","))) for point in line.get("points", "").split()] for line in found]


def test_points_lie_where_the_axes_say() -> None:
    text = curves([Chart("t", "x", "y", [Curve("a", [(0, 10), (5, 15), (10, 20)]), Curve("b", [(0, 20)], quiet=True)])])
    (first, middle, last), (top,) = lines(text)
    assert middle == ((first[0] + last[0]) / 2, (first[1] + last[1]) / 2)
    assert first[0] < last[0] and first[1] > last[1], "up is up"
    assert top == (first[0], last[1])
    labels = [node.text for node in ElementTree.fromstring(text).findall("svg:text", NAMES)]
    assert {"t", "x", "y", "a", "b", "10", "20", "0"} <= set(labels)


def test_powers_of_ten_are_even_steps() -> None:
    text = curves([Chart("t", "x", "y", [Curve("a", [(1, 1000), (2, 100), (3, 10), (4, 0)])], logs=True)])
    (line,) = lines(text)
    assert len(line) == 3, "0 has no power of ten"
    assert math.isclose(line[1][1] - line[0][1], line[2][1] - line[1][1], abs_tol=0.11)
    assert ">1,000<" in text and ">10<" in text


def test_what_is_no_number_is_left_out_and_names_are_escaped() -> None:
    text = curves(
        [Chart("<t>", "x & y", "u", [Curve("a<b", [(1, math.nan), (2, 3.0), (3, 3.0)])]), Chart("e", "", "", [])]
    )
    (line,) = lines(text)
    assert len(line) == 2 and "&lt;t&gt;" in text and "a&lt;b" in text and "nothing to show" in text


def test_ticks_are_round() -> None:
    assert ticks(0, 25000) == [0, 5000, 10000, 15000, 20000, 25000]
    assert ticks(49.9, 50.4) == [49.9, 50.0, 50.1, 50.2, 50.3, 50.4]
    assert ticks(-1, 1) == [-1, -0.5, 0, 0.5, 1]


def test_a_page_holds_a_drawing_as_it_is() -> None:
    drawing = curves([Chart("t", "x", "y", [Curve("a", [(0, 1), (1, 2)])])])
    page = render(Page("p", "l", "", (), "", [Section("s", "", (), drawing=drawing)]))
    assert drawing in page and "<script" not in page
