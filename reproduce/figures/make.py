"""Draws a figure and writes its files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from reproduce.figures import of_dataset, of_epochs, of_systems
from reproduce.figures.config import Figure, FigureConfig
from subtext.data import atomic
from subtext.errors import RequirementError
from subtext.report.page import HtmlPage, PageSection, render

MAKERS: dict[str, Callable[[FigureConfig], Figure]] = {
    "daa2022_fig1a": of_dataset.texts_of_one_image,
    "daa2022_fig1b": of_dataset.pairs_above_thresholds,
    "daa2022_fig1c": of_systems.two_lists,
    "daa2022_fig3": of_systems.asp_by_n,
    "daa2022_fig4": of_epochs.asp_by_epoch,
}


def make(config: FigureConfig) -> Figure:
    """Draw the figure and write its files.

    Raises what reading and scoring raise; RequirementError for systems that do not fit the figure, OutputError for a
    file that cannot be written, both before the work begins.
    """
    from subtext.evaluation.relevance.graded import check

    config.check()
    check(config.relevance)
    for path in config.files:
        atomic.require_file(path)
    if len({path.resolve() for path in config.files}) < len(config.files):
        raise RequirementError(f"--out and --json both write to {config.out}; give two different files")
    figure = replace(MAKERS[config.name](config), files=tuple(config.files))
    if config.out is not None:
        atomic.write_text(config.out, figure.drawing if config.out.suffix == ".svg" else render(_page(config, figure)))
    if config.json is not None:
        atomic.write_text(config.json, figure.json_text() + "\n")
    return figure


def _page(config: FigureConfig, figure: Figure) -> HtmlPage:
    """The figure as a self-contained page."""
    sections = list(figure.sections)
    if figure.drawing:
        sections.append(PageSection(config.kind.title, "", (), drawing=figure.drawing))
    return HtmlPage(
        title=config.kind.title,
        lead=f"{figure.lead} {figure.summary}",
        verdict="",
        figures=(),
        figures_text="",
        sections=sections,
        facts=figure.facts,
    )
