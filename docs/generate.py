"""Write docs/methods.md, the catalogue of models, methods and their parts, from the docstrings.

    python docs/generate.py            writes the page
    python docs/generate.py --check    exit code 1 when the page is out of date

A part lies in the file that bears its name (`view_diversity.py` holds `ViewDiversity`). Its row is the first paragraph
of its docstring. The paper in brackets becomes the last column; where the part names none, its file may.
Only the name of the recommended model is imported, so the page can be made without torch.
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
    "recipes/models": ("Models", "A model family, from encoders to objective: `subtext train MODEL`."),
    "recipes/methods": ("Methods", "A change of the training alone: `subtext train MODEL --with METHOD`."),
    "models/encoders": ("Encoders", "Pixels, words or features -> parts (N P E) and pooled vectors (N G)."),
    "models/heads": ("Heads", "The output of an encoder -> unit vectors in the joint space, K per item."),
    "models/similarity": ("Similarities", "Embeddings, Embeddings -> scores; larger is better."),
    "objectives/losses": ("Losses", "Comparison -> one differentiable value per query."),
    "objectives/mining": (
        "Mining",
        "Scene, Epoch -> the comparison that a loss reads: sampled negatives, weighted cells.",
    ),
    "objectives/regularisers": ("Regularisers", "Scene -> one value per batch."),
    "objectives/weighting": ("Weightings", "Scene, Epoch -> one weight per query, without gradient."),
    "evaluation/metrics": ("Metrics", "Comparison -> one value per query; NaN where it is undefined."),
}
"""Folder in src/subtext -> title and description of its section."""

MODULES = ("encoders", "heads", "similarity")
"""Folders whose parts own parameters."""

HEAD = """# Catalogue of models and methods

Every model, every training method, and the parts that they are made of. [Concepts](concepts.md) explains how the
parts fit together; [choosing](choosing.md) helps to pick a model.
`subtext train MODEL --help` lists the options of a model.

This page is generated from the docstrings. To change it, change a docstring and run `python docs/generate.py`.
"""


@dataclass(frozen=True)
class Entry:
    """One row: name, description, paper (empty for none) and file."""

    name: str
    description: str
    paper: str
    file: Path


def entry(path: Path) -> Entry | None:
    """The row of one file; None where no public class or function bears its name."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    name = path.stem.replace("_", "")
    is_module = path.parent.name in MODULES
    for node in tree.body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef):
            continue
        # Where parts are torch modules, a plain record that bears the name of its file is not a part.
        if is_module and not (isinstance(node, ast.ClassDef) and "nn.Module" in map(ast.unparse, node.bases)):
            continue
        if node.name.replace("_", "").lower() == name:
            text = " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())
            paper = PAPER.search(text) or PAPER.search(ast.get_docstring(tree) or "")
            description = PAPER.sub("", text, count=1).rstrip(".") + "."
            return Entry(node.name, description, " ".join(paper[1].split()) if paper else "", path)
    return None


def entries(room: str) -> list[Entry]:
    """The rows of a folder, sorted by file."""
    return [row for path in sorted((SOURCE / room).glob("*.py")) if (row := entry(path)) is not None]


def section(room: str) -> str:
    """A heading and a table."""
    title, description = ROOMS[room]
    lines = [f"## {title}", "", description, "", "| name | description | paper |", "|---|---|---|"]
    for row in entries(room):
        recommended = " (recommended)" if room == "recipes/models" and row.name == RECOMMENDED else ""
        link = f"[`{row.name}`](../{row.file.relative_to(ROOT).as_posix()})"
        lines.append(f"| {link}{recommended} | {_cell(row.description)} | {_cell(row.paper)} |")
    return "\n".join(lines) + "\n"


def catalogue() -> str:
    """The complete page."""
    return "\n".join([HEAD, *map(section, ROOMS)])


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
