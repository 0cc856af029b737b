"""A figure from what was asked to the files that it leaves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from reproduce.figures import of_data, of_epochs, of_systems
from reproduce.figures.request import Asked, Drawn
from subtext.data.atomic import require_file, write_text
from subtext.errors import RequirementError
from subtext.report.page import Page, Section, render

MAKERS: dict[str, Callable[[Asked], Drawn]] = {
    "daa2022_fig1a": of_data.one_picture,
    "daa2022_fig1b": of_data.many_thresholds,
    "daa2022_fig1c": of_systems.two_lists,
    "daa2022_fig3": of_systems.over_tops,
    "daa2022_fig4": of_epochs.by_epoch,
}


def make(asked: Asked) -> Drawn:
    """Draw it, and write the files that are asked for.

    Raises what reading and scoring raise; RequirementError for what does not suit the figure, OutputError for a file
    that cannot be written, both before the work begins.
    """
    from subtext.evaluation.relevance.grade import check

    asked.check()
    check(asked.relevance)
    files = [path for path in (asked.out, asked.json_out) if path is not None]
    for path in files:
        require_file(path)
    if len({path.resolve() for path in files}) < len(files):
        raise RequirementError(f"figure and numbers need a file each; both are to go to {asked.out}")
    drawn = MAKERS[asked.name](asked)
    if asked.out is not None:
        write_text(asked.out, drawn.drawing if asked.out.suffix == ".svg" else render(page(asked, drawn)))
    if asked.json_out is not None:
        write_text(asked.json_out, json_text(drawn) + "\n")
    return drawn


def page(asked: Asked, drawn: Drawn) -> Page:
    """The figure as one page that needs nothing but itself."""
    sections = list(drawn.sections)
    if drawn.drawing:
        sections.append(Section(asked.figure.title, "", (), drawing=drawn.drawing))
    return Page(
        title=asked.figure.title,
        lead=f"{drawn.lead} {drawn.said}",
        verdict="",
        figures=(),
        figures_text="",
        sections=sections,
        facts=drawn.facts,
    )


def json_text(drawn: Drawn) -> str:
    """Its numbers as indented JSON."""
    return json.dumps(drawn.numbers, indent=2, ensure_ascii=False, allow_nan=False)


def told(asked: Asked, drawn: Drawn) -> str:
    """What the command says."""
    written = [str(path) for path in (asked.out, asked.json_out) if path is not None and path != Path("-")]
    return "\n".join([drawn.said, *([", ".join(written)] if written else [])])
