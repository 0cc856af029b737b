"""What a reader has to hold in mind at once stays small; what hides trouble stays out."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from walk import ROOT, SOURCE

FILES = sorted(SOURCE.rglob("*.py"))
LONGEST_FILE, LONGEST_FUNCTION, MOST_ARGUMENTS = 300, 60, 8
Function = ast.FunctionDef | ast.AsyncFunctionDef

every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def functions(path: Path) -> Iterator[Function]:
    yield from (node for node in ast.walk(parsed(path)) if isinstance(node, Function))


def at(path: Path, node: Function) -> str:
    return f"{path.relative_to(SOURCE)}:{node.lineno} {node.name}"


def is_recipe(path: Path) -> bool:
    return path.parent.name in ("hosts", "methods") and path.parent.parent.name == "recipes"


def test_there_is_something_to_look_at():
    assert len(FILES) > 30


@every_file
def test_files_are_short(path):
    assert len(path.read_text().splitlines()) <= LONGEST_FILE


@every_file
def test_functions_are_short(path):
    long = [at(path, node) for node in functions(path) if (node.end_lineno or 0) - node.lineno + 1 > LONGEST_FUNCTION]
    assert not long


@every_file
def test_functions_take_few_arguments_and_none_by_the_sack(path):
    """A recipe's arguments are its command line, so it may have more."""
    for node in functions(path):
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        named = [argument for argument in arguments if argument.arg not in ("self", "cls")]
        assert len(named) <= MOST_ARGUMENTS or is_recipe(path), at(path, node)
        assert node.args.kwarg is None, f"{at(path, node)} takes **{node.args.kwarg and node.args.kwarg.arg}"


@every_file
def test_classes_inherit_once(path):
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ClassDef):
            ours = [base for base in map(ast.unparse, node.bases) if not hasattr(builtins, base)]
            assert len(ours) <= 1, f"{path.relative_to(SOURCE)}:{node.lineno} {node.name}"


@every_file
def test_no_error_is_swallowed_whole(path):
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ExceptHandler):
            caught = [] if node.type is None else node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            names = [ast.unparse(each) for each in caught]
            assert names and not {"Exception", "BaseException"} & set(names), f"{path.name}:{node.lineno} {names}"


@every_file
def test_no_pickle(path):
    tree = parsed(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            assert not {"pickle", "dill", "joblib", "shelve", "marshal"} & {name.split(".")[0] for name in names}
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            assert given.get("allow_pickle", "False") == "False", f"{path.name}:{node.lineno}"
            assert called != "torch.save", f"{path.name}:{node.lineno}"
            assert called != "torch.load" or given.get("weights_only") == "True", f"{path.name}:{node.lineno}"


@every_file
def test_no_catch_all_names(path):
    assert path.stem not in ("utils", "util", "helpers", "misc", "common")
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ClassDef):
            assert not node.name.endswith(("Manager", "Handler", "Wrapper", "Base", "Mixin", "Util", "Utils"))


def texts() -> list[Path]:
    kinds = {".py", ".md", ".toml", ".txt", ".yml", ".yaml", ".cfg", ".html", ".css", ".js", ".sh"}
    rooms = [
        ROOT / name
        for name in ("src", "tests", "docs", "examples", "benchmarks", "tools", ".ci")
        if (ROOT / name).is_dir()
    ]
    inside = [path for room in rooms for path in room.rglob("*") if path.is_file()]
    return [
        path
        for path in [*ROOT.glob("*"), *inside]
        if path.is_file() and (path.suffix in kinds or path.name == "Makefile")
    ]


FORBIDDEN = ("../" + "shared", "/" + "work/", "/" + "root/", "/" + "home/", "TO" + "DO", "FIX" + "ME")


@pytest.mark.parametrize("words", FORBIDDEN)
def test_nothing_points_at_one_machine_or_puts_work_off(words):
    found = [str(path.relative_to(ROOT)) for path in texts() if words in path.read_text(errors="replace")]
    assert not found
