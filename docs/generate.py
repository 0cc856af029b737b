"""Write docs/methods.md, the catalogue of models, methods and their parts, from the docstrings.

    python docs/generate.py            writes the page
    python docs/generate.py --check    exit code 1 when the page is out of date

Networks, and parts that share a file, are listed by class. Any other part lies in the file that bears its name
(`smooth_ap.py` holds `SmoothAP`). A row is the first paragraph of a docstring. The paper in brackets
becomes the last column; where the part names none, its file may.
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
    "recipes/methods": ("Methods", "A change of the training: `subtext train MODEL --with METHOD`."),
    "models/encoders": (
        "Encoders",
        "Pixels, words or features -> vectors of regions or words (N P E), and pooled vectors (N G).",
    ),
    "models/heads": ("Heads", "The output of an encoder -> unit vectors in the joint space, K per item."),
    "models/similarity": ("Similarities", "Embeddings, Embeddings -> scores; larger is better."),
    "objectives/losses": ("Losses", "Comparison -> one differentiable value per query."),
    "objectives/mining.py": (
        "Mining",
        "Scene, Epoch -> the input of a loss: sampled negatives, weighted cells.",
    ),
    "objectives/regularisers.py": ("Regularisers", "Scene -> one value per batch."),
    "objectives/weighting.py": ("Weightings", "Scene, Epoch -> one weight per query, without gradient."),
    "evaluation/metrics": ("Metrics", "Comparison -> one value per query; NaN if it is undefined."),
}
"""Folder or file in src/subtext -> title and description of its section."""

MODULES = ("encoders", "heads", "similarity")
"""Folders whose parts own parameters."""

HEAD = """# Catalogue of models and methods

This page lists all models, training methods and their parts. [Concepts](concepts.md) explains how the
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


def module_name(path: Path) -> str:
    """The name of a module: that of its folder, for a package."""
    return path.parent.name if path.name == "__init__.py" else path.stem


def file_entries(path: Path, room: str) -> list[Entry]:
    """The rows of one file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    rows = []
    for node in tree.body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef) or node.name.startswith("_"):
            continue
        methods = {inner.name for inner in node.body if isinstance(inner, ast.FunctionDef)}
        if path.parent.name in MODULES:
            is_part = bool({"forward", "score"} & methods)
        elif room.endswith(".py"):
            is_part = "__call__" in methods
        elif room.endswith("/metrics"):
            is_part = isinstance(node, ast.ClassDef)
        else:
            is_part = node.name.replace("_", "").lower() == module_name(path).replace("_", "")
        if is_part:
            text = " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())
            paper = PAPER.search(text) or PAPER.search(ast.get_docstring(tree) or "")
            description = PAPER.sub("", text, count=1).rstrip(".") + "."
            rows.append(Entry(node.name, description, " ".join(paper[1].split()) if paper else "", path))
    return rows


def entries(room: str) -> list[Entry]:
    """The rows of a folder or file, sorted by file."""
    place = SOURCE / room
    files = [place] if place.is_file() else sorted([*place.glob("*.py"), *place.glob("*/__init__.py")], key=module_name)
    return [row for path in files for row in file_entries(path, room)]


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
