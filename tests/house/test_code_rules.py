"""Rules that hold for every file: no pickle, no swallowed errors, no catch-all file names, no paths of one machine."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from find_parts import ROOT, SOURCE

FILES = sorted(SOURCE.rglob("*.py"))
CATCH_ALL_FILES = {"utils", "util", "helpers", "misc", "common"}
PICKLES = {"pickle", "dill", "joblib", "shelve", "marshal"}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def every(*kinds: type[ast.AST]) -> Iterator[tuple[Path, ast.AST]]:
    for path in FILES:
        yield from ((path, node) for node in ast.walk(parsed(path)) if isinstance(node, kinds))


def at(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(SOURCE)}:{getattr(node, 'lineno', 1)} {getattr(node, 'name', '')}".rstrip()


def test_no_error_is_silently_swallowed():
    found = []
    for path, node in every(ast.ExceptHandler):
        caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type] if node.type else []
        names = {ast.unparse(each) for each in caught}
        if not names or names & {"Exception", "BaseException"}:
            found.append(at(path, node))
    assert not found


def test_no_pickle_is_used():
    found = []
    for path, node in every(ast.Import, ast.ImportFrom):
        names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
        if PICKLES & {name.split(".")[0] for name in names}:
            found.append(at(path, node))
    for path, node in every(ast.Call):
        called = ast.unparse(node.func)
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        allowed = given.get("allow_pickle", "False") == "False"
        if not allowed or called == "torch.save" or (called == "torch.load" and given.get("weights_only") != "True"):
            found.append(at(path, node))
    assert not found


def test_models_never_run_remote_code():
    """transformers asks on the terminal, and runs the code on "y", wherever a call does not forbid it."""
    opens = {"from_pretrained", "from_config"}
    calls = [(path, node) for path, node in every(ast.Call) if getattr(node.func, "attr", "") in opens]
    assert len(calls) > 5
    forbids = [
        node.func
        for _, node in calls
        if {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}.get("trust_remote_code") == "False"
    ]
    found = [at(path, node) for path, node in every(ast.Attribute) if node.attr in opens and node not in forbids]
    assert not found
    imported = [
        alias.name for _, node in every(ast.ImportFrom) if node.module == "transformers" for alias in node.names
    ]
    assert "pipeline" not in imported and "AutoModel" in imported


def test_no_file_has_a_catch_all_name():
    assert not [str(path) for path in FILES if path.stem in CATCH_ALL_FILES]


def texts() -> list[Path]:
    kinds = {".py", ".md", ".toml", ".txt", ".yml", ".yaml", ".cfg", ".html", ".css", ".js", ".sh"}
    rooms = [ROOT / name for name in ("src", "tests", "docs", "examples", "benchmarks", "reproduce", ".ci")]
    found = [*ROOT.glob("*"), *(path for room in rooms if room.is_dir() for path in room.rglob("*"))]
    return [path for path in found if path.is_file() and (path.suffix in kinds or path.name in ("Makefile", "run"))]


FORBIDDEN = ("../" + "shared", "/" + "work/", "/" + "root/", "/" + "home/")


@pytest.mark.parametrize("words", FORBIDDEN)
def test_nothing_points_at_one_machine(words):
    found = [str(path.relative_to(ROOT)) for path in texts() if words in path.read_text(errors="replace")]
    assert not found
