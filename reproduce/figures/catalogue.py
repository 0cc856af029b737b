"""The figures and what each needs; importing this is fast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PAPER = "Li et al., NeurIPS 2022"


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


def listing() -> str:
    """Every figure with what it needs."""
    lines = []
    for name, figure in FIGURES.items():
        lines += [f"{name}  {figure.where}: {figure.title}", f"  needs: {needed(figure)}"]
    return "\n".join(lines)


def needed(figure: FigureKind) -> str:
    """What it needs, in words."""
    if not figure.least:
        return "a data set, or a run that remembers one"
    count = f"{figure.least}" if figure.least == figure.most else f"{figure.least} to {figure.most}"
    if figure.systems == "runs":
        return f"{count} runs, trained with --save-every-epochs"
    return f"{count} runs, or files of scores or vectors"
