"""The generated pages of the documentation site: API reference, catalogue, command line and examples.

They are written to docs/generated before Sphinx reads its sources.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import generate
from sphinx.util.typing import stringify_annotation

import subtext
from subtext.recipes.catalogue import Recipe, methods, models
from subtext.settings import Field

ROOT = Path(__file__).parent.parent
GENERATED = ROOT / "docs" / "generated"
REPRODUCE = ROOT / "reproduce"

BUILDING_BLOCKS: dict[str, tuple[str, ...]] = {
    "subtext": ("settings", "text_helpers", "version"),
    "subtext.api": ("options",),
    "subtext.api.interpolate": ("scale_updates",),
    "subtext.api.train": ("flat_arguments",),
    "subtext.cli.command": ("error_messages", "function_command"),
    "subtext.cli.commands": ("CommandEntry",),
    "subtext.cli.train": ("Models", "is_first", "training_command"),
    "subtext.curation.judged": ("kinds_of_pairs",),
    "subtext.data": ("atomic", "external_outputs", "noise", "rows"),
    "subtext.data.batches": ("item_batch",),
    "subtext.data.dataset": ("Items", "RowIssue", "fingerprint"),
    "subtext.data.feature_file": ("FeatureFile",),
    "subtext.data.image_files": ("thumbnail",),
    "subtext.data.readers.table": ("records",),
    "subtext.data.words": ("tokenise",),
    "subtext.data.write": ("write_dataset",),
    "subtext.evaluation": ("embed_pairs", "evaluate_model", "metrics"),
    "subtext.evaluation.embedding": ("embed_items",),
    "subtext.evaluation.intervals": ("holm", "paired"),
    "subtext.evaluation.metric": ("Measure",),
    "subtext.evaluation.metrics.agreement": ("spearman",),
    "subtext.evaluation.relevance": ("cider", "graded", "match", "tfidf"),
    "subtext.evaluation.scoring": ("matrix",),
    "subtext.evaluation.checks.space": ("space",),
    "subtext.models.checkpoint": ("Record", "load_record"),
    "subtext.models.encoders.language": ("SentenceEncoder",),
    "subtext.objectives.objective": ("WeightTotal",),
    "subtext.objectives.scene": ("batch_items", "count_pairs", "pairs_to_queries"),
    "subtext.graphs": ("build", "graph", "spaces"),
    "subtext.ops": ("draw", "neighbour_scores", "roc"),
    "subtext.ops.compiled": ("semantic_rank",),
    "subtext.recipes": ("catalogue",),
    "subtext.recipes.build": ("build", "chosen_facts", "is_read"),
    "subtext.recipes.methods.soft_labels.teachers": ("image_vectors", "text_vectors"),
    "subtext.recipes.parts": ("weight_terms",),
    "subtext.report": ("page", "plots", "progress", "text_table"),
    "subtext.retrieval": ("confidence",),
    "subtext.training.setup": ("BuildContext", "Setup"),
    "subtext.recipes.neighbour_scores": ("NeighbourScores",),
}
"""Module -> functions, classes and modules in it that studies are written with. A module stands for its public names.

They are public beside the names of `subtext`, the parts of the catalogue, `subtext.core` and `subtext.errors`.
"""


def write() -> None:
    """Write all generated pages."""
    shutil.rmtree(GENERATED, ignore_errors=True)
    GENERATED.mkdir()
    (GENERATED / "python.rst").write_text(python_page(), encoding="utf-8")
    for room in generate.ROOMS:
        (GENERATED / f"{room_name(room)}.rst").write_text(room_page(room), encoding="utf-8")
    (GENERATED / "building_blocks.rst").write_text(building_blocks_page(), encoding="utf-8")
    (GENERATED / "commands.md").write_text(commands_page(), encoding="utf-8")
    for path in sorted((ROOT / "examples").glob("*.py")):
        if "# %%" not in path.read_text(encoding="utf-8"):
            continue
        (GENERATED / f"example_{path.stem}.md").write_text(example_page(path), encoding="utf-8")
    for name in ("CHANGELOG", "CONTRIBUTING"):
        shutil.copy(ROOT / f"{name}.md", GENERATED / f"{name.lower()}.md")
    shutil.copy(REPRODUCE / "README.md", GENERATED / "reproduce.md")
    shutil.copytree(REPRODUCE / "notes", GENERATED / "notes")
    with (GENERATED / "notes" / "README.md").open("a", encoding="utf-8") as contents:
        contents.write("\n```{toctree}\n:hidden:\n:glob:\n\n[a-z]*\n```\n")


def python_page() -> str:
    """The public names of `subtext`: functions, classes, and errors."""
    names = sorted(name for name in subtext.__all__ if not name.startswith("_"))
    functions = [name for name in names if not inspect.isclass(getattr(subtext, name))]
    errors = [name for name in set(names) - set(functions) if issubclass(getattr(subtext, name), Exception)]
    classes = [name for name in names if name not in functions and name not in errors]
    lines = [*heading("Python API", "="), "Everything below is a name of `subtext`: ``import subtext as st``.", ""]
    lines += [*heading("Functions", "-")]
    for name in functions:
        lines += [f".. autofunction:: subtext.{name}", ""]
    lines += [*heading("Classes", "-")]
    for name in classes:
        lines += [f".. autoclass:: subtext.{name}", "   :members:", ""]
    lines += [*heading("Errors", "-"), "All are a `SubtextError`. Anything else that is raised is a bug.", ""]
    for name in sorted(errors):
        lines += [f".. autoexception:: subtext.{name}", ""]
    return "\n".join(lines)


def room_name(room: str) -> str:
    """The page of a section of the catalogue."""
    return room.rpartition("/")[2].removesuffix(".py")


def room_page(room: str) -> str:
    """One section of the catalogue: each part with its formula, options and examples."""
    title, description = generate.ROOMS[room]
    lines = [*heading(title, "="), description.replace("`", "``"), ""]
    directive = "autofunction" if room.startswith("recipes/") else "autoclass"
    for entry in generate.entries(room):
        lines += [*heading(entry.name, "-"), f".. {directive}:: {dotted(entry.file)}.{entry.name}", ""]
    return "\n".join(lines)


def building_blocks_page() -> str:
    """The functions, classes and modules of BUILDING_BLOCKS."""
    lines = [*heading("Building blocks", "="), "What studies are written with, beside the names of ``subtext``.", ""]
    for module, names in BUILDING_BLOCKS.items():
        lines += heading(module, "-")
        for name in names:
            value = getattr(importlib.import_module(module), name, None)
            if value is None or inspect.ismodule(value):
                lines += [*heading(f"{module}.{name}", "~"), f".. automodule:: {module}.{name}", "   :members:"]
                # Parts have a page of their own.
                room = f"{module}.{name}".removeprefix("subtext.").replace(".", "/")
                parts = generate.entries(room) if room in generate.ROOMS else []
                lines += [f"   :exclude-members: {', '.join(part.name for part in parts)}" for _ in parts[:1]] + [""]
            elif inspect.isclass(value):
                lines += [f".. autoclass:: {module}.{name}", "   :members:", ""]
            else:
                lines += [f".. autofunction:: {module}.{name}", ""]
    return "\n".join(lines)


def dotted(path: Path) -> str:
    """src/subtext/a/b.py -> subtext.a.b."""
    return ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)


def commands_page() -> str:
    """The help of every command."""
    os.environ["COLUMNS"] = "100"
    lines = ["# Command line", "", "The output of `--help` of every command.", ""]
    for path, text in commands():
        lines += [f"## {path}", "", "```text", text.rstrip(), "```", ""]
    return "\n".join(lines)


def commands() -> Iterator[tuple[str, str]]:
    """Each command's name and help, groups before their commands; hidden ones are left out."""
    import click

    from subtext.cli import main

    def walk(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
        yield context.command_path, command.get_help(context)
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                if inner is not None and not inner.hidden:
                    yield from walk(inner, click.Context(inner, info_name=name, parent=context, terminal_width=100))

    yield from walk(main, click.Context(main, info_name="subtext", terminal_width=100))


def example_page(path: Path) -> str:
    """A script in `# %%` cells as a page: Markdown cells as text, others as code."""
    lines: list[str] = []
    for cell in re.split(r"^# %%", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        head, _, body = cell.partition("\n")
        body = body.strip("\n")
        if "[markdown]" in head:
            lines += [re.sub(r"^# ?", "", body, flags=re.MULTILINE), ""]
        else:
            lines += ["```python", body, "```", ""]
    lines += [
        f"Source: `examples/{path.name}`. It runs as a script, and as a notebook in any editor that knows `# %%`."
    ]
    return "\n".join(lines) + "\n"


def heading(text: str, line: str) -> list[str]:
    """A reStructuredText heading."""
    return [text, line * len(text), ""]


LINK = re.compile(r"(?<!!)\[(`?)([^\]`]+)`?\]\(([^)#\s:]+(?:\.\w+|/))(#[^)\s]*)?\)")
SITE = {
    **{Path(f"{name}.md"): Path(f"docs/generated/{name.lower()}.md") for name in ("CHANGELOG", "CONTRIBUTING")},
    Path("reproduce/README.md"): Path("docs/generated/reproduce.md"),
    **{path.relative_to(ROOT): Path("docs/generated/notes") / path.name for path in (REPRODUCE / "notes").glob("*.md")},
}
"""Files of the repository that are copied into the site -> their copies."""


def rewrite_links(app: Any, name: str, source: list[str]) -> None:
    """Links between files of the repository become links between pages of the site; other files become plain code."""
    here = Path(f"docs/{name}.md")
    origin = {copy: path for path, copy in SITE.items()}.get(here, here)

    def page(match: re.Match[str]) -> str:
        text, target, anchor = match[2], match[3], match[4] or ""
        path = Path(os.path.normpath(origin.parent / target))
        if name == "methods" and path.is_relative_to("src"):
            return f"{{py:obj}}`{text} <{dotted(ROOT / path)}.{text}>`"
        if path.parent == Path("examples") and path.suffix == ".py":
            path = Path(f"docs/generated/example_{path.stem}.md")
        path = SITE.get(path, path)
        if not path.is_relative_to("docs"):
            return f"`{path}`"
        return f"[{match[1]}{text}{match[1]}](/{path.relative_to('docs')}{anchor})"

    source[0] = LINK.sub(page, source[0])


SECTION = re.compile(r"(Args|Attributes|Raises|Returns|Yields|Complexity|Example):")
FORMULA = re.compile(r"\S+ = |.*\S {2,}\S")
OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
MARKUP = re.compile(r"[\\*|]|(?<=\w)_(?!\w)|^\(?\w+[.)](?= )")


def process_docstring(app: Any, what: str, name: str, target: Any, options: Any, lines: list[str]) -> None:
    """Prepare a docstring for napoleon: prose loses what would be markup, formulas become literal blocks.

    A formula is a line that is indented more than its section, has a gap, or begins with `name = `. Types are those
    of the annotations.
    """
    types = types_of(target)
    if name.startswith(RECIPES) and name.rpartition(".")[2] in {**models(), **methods()}:
        lines += ["", "Args:", *(f"    {option.name}: {option_text(option)}" for option in recipe(name).options)]
        types |= {option.name: option.type.__name__ for option in recipe(name).options}
    found: list[str] = []
    # Napoleon takes what stands before a colon for a type, in the first line of a variable's docstring as of `Returns`.
    section, paragraph = "", "header" if what in ("data", "attribute", "property") else "text"
    in_code = False
    for line in [*lines, ""]:
        depth, text = len(line) - len(line.lstrip()), line.strip()
        if not text or (depth == 0 and SECTION.fullmatch(text)):
            section = text[:-1] if text else section
            paragraph, in_code = "header" if text else "text", False
            found.append(text)
            continue
        if depth == 0:
            section = ""
        fields = section in ("Args", "Attributes", "Raises")
        inner = 4 * bool(section) + 4 * fields
        if text.startswith(">>>") or paragraph == "example":
            paragraph = "example"
            found.append(line)
            continue
        entry = fields and depth == 4
        if not entry and (depth > inner or FORMULA.match(text)):
            if paragraph != "formula":
                found += ["", f"{' ' * inner}::", ""]
            paragraph = "formula"
            found.append(f"    {line}")
            continue
        if paragraph == "formula":
            found.append("")
        head = ""
        if entry:
            head, _, text = text.partition(": ")
            head += f" ({types[head]}): " if head in types else ": "
        elif paragraph == "header" and section != "Example":
            head = f"{types.get('return', '') if section == 'Returns' else ''}: "
        paragraph = "text"
        parts = []
        for part in re.split("(`)", text):
            in_code ^= part == "`"
            if not in_code and part != "`":
                part = OPTION.sub(r"``\g<0>``", MARKUP.sub(r"\\\g<0>", part))
            parts.append("``" if part == "`" else part)
        found.append(f"{' ' * depth}{head}{''.join(parts)}")
    lines[:] = found


RECIPES = ("subtext.recipes.models.", "subtext.recipes.methods.")


def recipe(name: str) -> Recipe:
    """The recipe of a function's full name."""
    return {**models(), **methods()}[name.rpartition(".")[2]]


def option_text(option: Field) -> str:
    """Help, values and default of an option of a recipe."""
    values = f" One of {', '.join(map(str, option.choices))}." if option.choices else ""
    values += f" Range: {option.interval}." if option.interval else ""
    return f"{option.help}.{values} Default: {json.dumps(option.default)}."


def types_of(target: Any) -> dict[str, str]:
    """Parameter, or "return" -> its type as the source has it, without what `Annotated` adds."""
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):
        return {}
    kinds = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    found = {}
    for name, kind in {**kinds, "return": signature.return_annotation}.items():
        if kind is inspect.Parameter.empty:
            continue
        if isinstance(kind, str):
            tree = ast.parse(kind, mode="eval").body
            if isinstance(tree, ast.Subscript) and ast.unparse(tree.value) == "Annotated":
                kind = ast.unparse(tree.slice.elts[0])
        else:
            kind = stringify_annotation(get_args(kind)[0] if get_origin(kind) is Annotated else kind, "smart")
        found[name] = MARKUP.sub(r"\\\g<0>", kind)
    return found


def process_signature(
    app: Any, what: str, name: str, target: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str, str] | None:
    """The signature without annotations; types stand with the parameters."""
    if what not in ("function", "method", "class"):
        return None
    try:
        bare = inspect.signature(target)
    except (TypeError, ValueError):
        return None
    if name.startswith(RECIPES) and name.rpartition(".")[2] in {**models(), **methods()}:
        return f"({next(iter(bare.parameters))}, **options)", ""
    plain = [parameter.replace(annotation=parameter.empty) for parameter in bare.parameters.values()]
    if plain and plain[0].name == "self":
        plain = plain[1:]
    text = str(bare.replace(parameters=plain, return_annotation=bare.empty))
    return re.sub(r"<class '([\w.]+)'>", r"\1", re.sub(r"<function \S+ at 0x\w+>", "...", text)), ""
