"""`reproduce` uses public names alone: of `subtext`, of the catalogue, and the building blocks of docs/pages.py."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
from find_parts import ROOT

import subtext

FILES = sorted((ROOT / "reproduce").rglob("*.py"))
OPEN_MODULES = ("subtext.core", "subtext.errors")


@cache
def pages() -> ModuleType:
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        return importlib.import_module("pages")
    finally:
        sys.path.remove(str(ROOT / "docs"))


@cache
def building_blocks() -> frozenset[str]:
    return frozenset(f"{module}.{name}" for module, names in pages().BUILDING_BLOCKS.items() for name in names)


@cache
def documented() -> frozenset[str]:
    """The names of `subtext` and the parts of the catalogue."""
    entries = [entry for room in pages().generate.ROOMS for entry in pages().generate.entries(room)]
    parts = {f"{pages().dotted(entry.file)}.{entry.name}" for entry in entries}
    return frozenset(parts | {f"subtext.{name}" for name in subtext.__all__})


def is_public(name: str) -> bool:
    if any(part.startswith("_") and part != "__version__" for part in name.split(".")):
        return False
    module = name.rpartition(".")[0]
    return name in documented() | building_blocks() or module in OPEN_MODULES or module in building_blocks()


def used(text: str) -> set[str]:
    """The names of the package that a module imports, or reads from `import subtext as st`."""
    names, aliases = set(), set()
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "subtext":
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            modules = {alias.name: alias.asname for alias in node.names if alias.name.partition(".")[0] == "subtext"}
            aliases |= {alias or "subtext" for alias in modules.values()}
            names |= modules.keys() - {"subtext"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            names.add(f"subtext.{node.attr}")
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_reproduce_files_use_public_names(path: Path):
    inner = sorted(name for name in used(path.read_text()) if not is_public(name))
    assert not inner, "use a public name, or add one that other studies need to BUILDING_BLOCKS in docs/pages.py"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_reproduce_calls_functions_not_commands(path: Path):
    """Options of commands may change their names unnoticed; those of functions are checked by mypy."""
    imports = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {alias.name for node in imports for alias in node.names} | {
        getattr(node, "module", "") for node in imports
    }
    assert not modules & {"subprocess", "subtext.cli.main"}


def code_of(page: str) -> str:
    """The Python blocks of a Markdown page; of an interactive session the lines that are typed."""
    blocks = re.findall(r"^```python\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    typed = re.compile(r"^(?:>>>|\.\.\.) (.*)$", flags=re.MULTILINE)
    return "\n".join("\n".join(typed.findall(block)) if ">>>" in block else block for block in blocks)


def test_every_building_block_is_used():
    python = [path.read_text() for path in [*FILES, *(ROOT / "examples").glob("*.py")]]
    python += [code_of(path.read_text()) for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]]
    names = {name for text in python for name in used(text)}
    assert not {block for block in building_blocks() if not any(f"{name}.".startswith(f"{block}.") for name in names)}


@pytest.mark.parametrize("block", sorted(building_blocks()))
def test_building_blocks_are_documented_once(block):
    module, _, name = block.rpartition(".")
    assert block not in documented()
    value = getattr(importlib.import_module(module), name, None)
    if value is None:
        value = importlib.import_module(block)
    assert inspect.ismodule(value) or inspect.isclass(value) or inspect.isfunction(value)
    assert inspect.getdoc(value)


def test_private_names_are_detected():
    assert used("import subtext as st\nst.api.train.build_setup\n") == {"subtext.api"}
    assert used("from subtext.api.train import TrainingData\n") == {"subtext.api.train.TrainingData"}
    assert not is_public("subtext.api.train.TrainingData")
    assert is_public("subtext.train") and is_public("subtext.core.Truth")
    assert is_public("subtext.objectives.losses.triplet.Triplet")
