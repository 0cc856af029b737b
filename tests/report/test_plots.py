"""Drawings as SVG: well-formed, the same each time, every point where its axes say, and escaped."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest
from curve_points import NAMES, curve_points

from reproduce.weights.scores_report import Histogram, histograms
from subtext.report.page import HtmlPage, PageSection, render
from subtext.report.plots import Chart, Curve, ReliabilityDiagram, charts, reliability_diagrams

pytestmark = pytest.mark.golden


def labels(text: str) -> set[str | None]:
    return {node.text for node in ElementTree.fromstring(text).iterfind(".//svg:text", NAMES)}


def test_points_lie_where_axes_say() -> None:
    curves = [Curve("a", [(0, 10), (5, 15), (10, 20)]), Curve("b", [(0, 20), (10, 20)], reference=True)]
    text = charts([Chart("t", "x", "y", curves)])
    (first, middle, last), (top, _) = curve_points(text)
    assert middle == pytest.approx(((first[0] + last[0]) / 2, (first[1] + last[1]) / 2))
    assert first[0] < last[0] and first[1] > last[1], "up is up"
    assert top == pytest.approx((first[0], last[1]))
    assert {"t", "x", "y", "a", "b", "10", "20", "0"} <= labels(text)


def test_log_axis_spaces_powers_of_ten_evenly() -> None:
    text = charts([Chart("t", "x", "y", [Curve("a", [(1, 1000), (2, 100), (3, 10), (4, 0)])], log_y=True)])
    (line,) = curve_points(text)
    assert len(line) == 3, "0 has no power of ten"
    assert math.isclose(line[1][1] - line[0][1], line[2][1] - line[1][1], abs_tol=0.11)


def test_non_finite_points_are_dropped_and_labels_escaped() -> None:
    curves = [Curve("a<b, $5 or _x_", [(1, math.nan), (2, 3.0), (3, 3.0)])]
    text = charts([Chart("<t>", "x & y", "u", curves), Chart("e", "", "", [])])
    (line,) = curve_points(text)
    assert len(line) == 2 and {"<t>", "x & y", "a<b, $5 or _x_", "no data"} <= labels(text)


def test_axes_name_whole_epochs_and_no_share_above_100() -> None:
    text = charts([Chart("t", "epoch", "%", [Curve("a", [(1, 100), (2, 100), (3, 100)])], most=100)])
    assert {"1", "2", "3", "100"} <= labels(text) and not {"1.25", "1.5", "102"} & labels(text)
    assert {"0.0", "0.2"} <= labels(charts([Chart("t", "x", "y", [Curve("a", [(0, 1), (0.5, 2), (1, 3)])])]))


def test_page_embeds_svg_unchanged() -> None:
    drawing = charts([Chart("t", "x", "y", [Curve("a", [(0, 1), (1, 2)])])])
    page = render(HtmlPage("p", "l", "", (), "", [PageSection("s", "", (), drawing=drawing)]))
    assert drawing in page and "<script" not in page


def test_equal_input_gives_equal_svg() -> None:
    panel = ReliabilityDiagram("photos", "error 0.03", [0.1, 0.5], [0.2, 0.6], [3, 8])
    bars = Histogram("weights", "mean 0.2", -1, 1, [1, 0, 3])
    chart = Chart("t", "x", "y", [Curve("a", [(0, 1), (1, 2)])])
    for draw in (lambda: reliability_diagrams([panel]), lambda: histograms([bars, bars]), lambda: charts([chart])):
        assert draw() == draw() and draw().startswith('<svg role="img"')
    assert {"photos", "error 0.03", "predicted probability"} <= labels(reliability_diagrams([panel]))
    assert {"weights", "mean 0.2", "-1.000", "1.000"} <= labels(histograms([bars]))
