"""The figures that can be drawn, and what each needs; nothing heavy is imported for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PAPER = "Li et al., NeurIPS 2022"


@dataclass(frozen=True)
class Known:
    """A figure.

    title        what it shows                      where  in which paper, and as what
    least, most  how many systems it is drawn of    systems  what these may be: runs and files of scores, or runs alone
    curve        whether it is a drawing (SVG, or a page around it), else a page of lists
    """

    title: str
    where: str
    least: int
    most: int
    systems: Literal["any", "runs"] = "any"
    curve: bool = False


FIGURES = {
    "daa2022_fig1a": Known("One picture's texts in order of relevance", f"{PAPER}, Figure 1a", 0, 1, "runs"),
    "daa2022_fig1b": Known("Pairs above each threshold of relevance", f"{PAPER}, Figure 1b", 0, 1, "runs", curve=True),
    "daa2022_fig1c": Known(
        "What two systems of equal recall find first, and how relevant it is", f"{PAPER}, Figure 1c", 2, 2
    ),
    "daa2022_fig3": Known("ASP over the N most relevant candidates", f"{PAPER}, Figure 3", 1, 12, curve=True),
    "daa2022_fig4": Known("ASP after each epoch", f"{PAPER}, Figure 4", 1, 12, "runs", curve=True),
}


def listing() -> str:
    """Every figure with what it needs."""
    lines = []
    for name, figure in FIGURES.items():
        lines += [f"{name}  {figure.where}: {figure.title}", f"  of: {needed(figure)}"]
    return "\n".join(lines)


def needed(figure: Known) -> str:
    """What it is drawn of, in words."""
    if not figure.least:
        return "a data set, or a run that remembers one"
    count = f"{figure.least}" if figure.least == figure.most else f"{figure.least} to {figure.most}"
    if figure.systems == "runs":
        return f"{count} runs, trained with --keep-epochs"
    return f"{count} runs, or files of scores or vectors"
