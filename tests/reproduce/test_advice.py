"""The paragraph on sample weights in docs/choosing.md is made from docs/evidence.json, whatever rows are finished."""

from __future__ import annotations

import copy
import json

import pytest

from reproduce.advice import MAIN, PAGE, REPORT, paragraph, with_paragraph


def test_paragraph_on_the_page_is_made_from_the_report() -> None:
    page, report = PAGE.read_text(encoding="utf-8"), json.loads(REPORT.read_text(encoding="utf-8"))
    assert with_paragraph(page, report) == page, "run python -m reproduce.advice"


def test_paragraph_follows_the_rows_that_are_finished() -> None:
    report = json.loads(REPORT.read_text(encoding="utf-8"))
    rows = report["experiment"][MAIN]["rows"]
    oracle = rows["oracle"]["above uniform"]["abstract"]
    assert f"{oracle['difference']:+.1f} [{oracle['low']:+.1f}, {oracle['high']:+.1f}]" in paragraph(report)
    bare = copy.deepcopy(report)
    kept = {name: row for name, row in rows.items() if name in ("uniform", "oracle")}
    bare["experiment"][MAIN]["rows"] = kept
    assert "weights by neighbours" not in paragraph(bare) and "times as long" not in paragraph(bare)
    found = {"difference": 3.04, "low": 1.0, "high": 5.0}
    kept["discrepancy images 85"] = {**rows["uniform"], "above uniform": dict.fromkeys(("abstract", "literal"), found)}
    row = "DISCREPANCY of images at an effective size of 85 %"
    assert f"1 raised abstract pairs above equal weights; {row} the most: +3.0 [+1.0, +5.0]" in paragraph(bare)
    found |= {"low": -1.0}
    assert "None of 1 forms" in paragraph(bare)
    del kept["oracle"]
    with pytest.raises(KeyError):
        paragraph(bare)
