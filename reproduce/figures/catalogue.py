"""The figures and what each needs; importing this is fast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PAPER = "Li et al., NeurIPS 2022"
ECCV2020, CVPRW2022 = "Thomas and Kovashka, ECCV 2020", "Thomas and Kovashka, CVPR workshops 2022"
_COMPARE = "python -m reproduce.gallery compare BASELINE OURS --out FILE"


@dataclass(frozen=True)
class FigureKind:
    """A figure.

    title        what it shows                          where    paper and number of the figure
    least, most  numbers of systems that it takes       systems  "any": runs and files of scores; "runs": runs only
    curve        whether it is a drawing (SVG, or a page around it) instead of a page of lists
    """

    title: str
    where: str
    least: int
    most: int
    systems: Literal["any", "runs"] = "any"
    curve: bool = False


FIGURES = {
    "daa2022_fig1a": FigureKind("One image's texts in order of relevance", f"{PAPER}, Figure 1a", 0, 1, "runs"),
    "daa2022_fig1b": FigureKind(
        "Pairs above each threshold of relevance", f"{PAPER}, Figure 1b", 0, 1, "runs", curve=True
    ),
    "daa2022_fig1c": FigureKind(
        "Top results of two systems with equal recall, and their relevance", f"{PAPER}, Figure 1c", 2, 2
    ),
    "daa2022_fig3": FigureKind("ASP over the N most relevant candidates", f"{PAPER}, Figure 3", 1, 12, curve=True),
    "daa2022_fig4": FigureKind("ASP after each epoch", f"{PAPER}, Figure 4", 1, 12, "runs", curve=True),
}


@dataclass(frozen=True)
class Elsewhere:
    """A figure that another command of this repository makes.

    title  what it shows        where  paper and number of the figure        command  that makes it
    """

    title: str
    where: str
    command: str


OTHERS = {
    "cvprw2022_fig3": Elsewhere(
        "Images that two runs find for an abstract word",
        f"{CVPRW2022}, Figure 3",
        f"{_COMPARE} --word justice --word patriotism",
    ),
    "cvprw2022_fig4": Elsewhere(
        "Pairs with the largest and the smallest weight",
        f"{CVPRW2022}, Figure 4",
        "python -m reproduce.weights report RUN --graph GRAPH --page FILE",
    ),
    "eccv2020_fig5": Elsewhere(
        "Semantic neighbours with the smallest ratio of their distances in two runs",
        f"{ECCV2020}, Figure 5",
        f"{_COMPARE} --graph GRAPH --pairs 10000",
    ),
    "eccv2020_fig6": Elsewhere(
        "The three best images of two runs for a word", f"{ECCV2020}, Figure 6", f"{_COMPARE} --top 3 --word freedom"
    ),
}
"""Figures that are pages of other commands."""


def listing() -> str:
    """Every figure with what it needs, in the order of the names."""
    lines = []
    for name in sorted({**FIGURES, **OTHERS}):
        if name in OTHERS:
            other = OTHERS[name]
            lines += [f"{name}  {other.where}: {other.title}", f"  by: {other.command}"]
        else:
            lines += [f"{name}  {FIGURES[name].where}: {FIGURES[name].title}", f"  needs: {needed(FIGURES[name])}"]
    return "\n".join(lines)


def needed(figure: FigureKind) -> str:
    """What it needs, in words."""
    if not figure.least:
        return "a data set, or a run that remembers one"
    count = f"{figure.least}" if figure.least == figure.most else f"{figure.least} to {figure.most}"
    if figure.systems == "runs":
        return f"{count} runs, trained with --save-every-epochs, also those of a table: TABLE.json#ROW/DATA"
    return f"{count} runs, or files of scores or vectors"
