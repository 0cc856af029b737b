"""Write docs/methods.md, the catalogue of everything that can be put together, from the docstrings.

    python docs/generate.py            writes the page
    python docs/generate.py --check    says whether it is up to date, by its exit code

A part stands in the file that bears its name (`view_diversity.py` holds `ViewDiversity`). Its row is the first
paragraph of its docstring, from which the paper in brackets is taken out; where the part names none, its file may.
Nothing is imported but what names the recommended host: the page can be made without torch.
"""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from subtext.recipes.catalogue import RECOMMENDED

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "subtext"
PAGE = ROOT / "docs" / "methods.md"

PAPER = re.compile(r"\s*\(([^()]*?(?:18|19|20)\d\d[a-z]?[^()]*)\)")

ROOMS = {
    "recipes/hosts": ("Hosts", "A model family, from encoders to objective: `subtext train HOST`."),
    "recipes/methods": ("Methods", "What changes only the training of a host: `subtext train HOST --with METHOD`."),
    "encoders": ("Encoders", "Pixels, words or features -> parts (N P E) and pooled vectors (N G)."),
    "heads": ("Heads", "An encoder's output -> unit vectors in the joint space, K an item."),
    "similarity": ("Similarities", "Embeddings, Embeddings -> scores; larger is better."),
    "losses": ("Losses", "Comparison -> one differentiable value a query."),
    "mining": ("Mining", "Scene, Epoch -> the comparison that a loss reads: drawn negatives, cells that count more."),
    "regularisers": ("Regularisers", "Scene -> one value a batch."),
    "weighting": ("Weightings", "Scene, Epoch -> one weight a query, without gradient."),
    "metrics": ("Metrics", "Comparison -> one value a query; NaN where it has no meaning."),
}

MODULES = ("encoders", "heads", "similarity")
"""Rooms whose parts own parameters."""

HEAD = """# Methods

What there is, from the docstrings of the code. This page is generated: change a docstring and run
`python docs/generate.py`. How the parts fit together stands in [concepts.md](concepts.md).
"""


@dataclass(frozen=True)
class Entry:
    """One row: what it is called, its sentence, its paper (empty for none) and its file."""

    name: str
    sentence: str
    paper: str
    file: Path


def entry(path: Path) -> Entry | None:
    """The row of one file; None where no public class or function bears its name."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    wanted = path.stem.replace("_", "")
    modules = path.parent.name in MODULES
    for node in tree.body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef):
            continue
        # Where parts are modules, a plain record that bears the name of its file is no part.
        if modules and not (isinstance(node, ast.ClassDef) and "nn.Module" in map(ast.unparse, node.bases)):
            continue
        if node.name.replace("_", "").lower() == wanted:
            text = " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())
            paper = PAPER.search(text) or PAPER.search(ast.get_docstring(tree) or "")
            sentence = PAPER.sub("", text, count=1).rstrip(".") + "."
            return Entry(node.name, sentence, " ".join(paper[1].split()) if paper else "", path)
    return None


def section(room: str) -> str:
    """A heading and a table, or nothing for a room without parts."""
    title, what = ROOMS[room]
    found = [row for path in sorted((SOURCE / room).glob("*.py")) if (row := entry(path)) is not None]
    if not found:
        return ""
    lines = [f"## {title}", "", what, "", "| name | what it does | paper |", "|---|---|---|"]
    for row in found:
        recommended = " (recommended)" if room == "recipes/hosts" and row.name == RECOMMENDED else ""
        link = f"[`{row.name}`](../{row.file.relative_to(ROOT).as_posix()})"
        lines.append(f"| {link}{recommended} | {_cell(row.sentence)} | {_cell(row.paper)} |")
    return "\n".join(lines) + "\n"


def catalogue() -> str:
    """The whole page."""
    return "\n".join([HEAD, *filter(None, map(section, ROOMS))])


def _cell(text: str) -> str:
    # A bar would end the cell of a Markdown table.
    return text.replace("|", "\\|")


def main() -> int:
    """Write the page, or compare it."""
    page = catalogue()
    if "--check" in sys.argv[1:]:
        return int(not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page)
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
