"""An audit for people: as text, and as one page that can be attached to a review."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import fill
from typing import Any

from subtext.core import DIRECTIONS
from subtext.errors import counted
from subtext.evaluation import Result
from subtext.evaluation.audit import Audit, Check
from subtext.report.page import Figure, Page, Section

MARKS = {"pass": "pass", "fail": "FAIL", "not applicable": "n/a"}
_WIDTH = 110


def text(found: Audit) -> str:
    """Every check with what was done and found, the figures, and the verdict at the end."""
    lines = [_head(found), ""]
    for check in found.checks:
        lines.append(f"{MARKS[check.outcome]:4}  {check.name}")
        lines += [fill(part, _WIDTH, initial_indent="      ", subsequent_indent="      ") for part in _parts(check)]
    lines += ["", f"{_figures(found)}.", f"{found.verdict}."]
    return "\n".join(lines)


def page(found: Audit, result: Result) -> Page:
    """The same as a page."""
    figures = []
    for direction in DIRECTIONS:
        for k in (1, 10):
            name = f"{direction}/recall@{k}"
            low, high = result.intervals.get(name, (None, None))
            label = f"{direction.replace('_', ' ')}, recall@{k}"
            figures.append(Figure(label, result.figures[name], result.chance[name], low, high))
    about = found.about
    return Page(
        title=f"Audit of {about['audited']}",
        lead=_head(found),
        verdict=f"{found.verdict}.",
        figures=figures,
        figures_text="Recall in per cent on the audited split, with 95 % intervals by resampling pictures.",
        sections=[
            Section(f"{MARKS[check.outcome]}: {check.name}", " ".join(_parts(check)), ()) for check in found.checks
        ],
        facts=[
            *([("run", about["run"])] if "run" in about else []),
            (about["kind"] if "run" not in about else "model", _told(about["model"])),
            ("data", f"{about['data']}, split {about['split']}, {about['data_fingerprint']}"),
            ("settings", _told(about["settings"])),
            ("versions", _told(about["versions"])),
        ],
    )


def _parts(check: Check) -> list[str]:
    return [check.did, f"Found: {check.found}."]


def _told(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in values.items())


def _head(found: Audit) -> str:
    about = found.about
    counts = f"{counted(about['pictures'], 'picture')}, {counted(about['texts'], 'text')}"
    return f"audit of {about['audited']} on split {about['split']} of {Path(about['data']).name}: {counts}"


def _figures(found: Audit) -> str:
    told = []
    for direction in DIRECTIONS:
        values = "/".join(f"{found.figures[f'{direction}/recall@{k}']:.1f}" for k in (1, 5, 10))
        told.append(f"{direction.replace('_', ' ')} recall@1/5/10 {values}")
    return ", ".join(told)
