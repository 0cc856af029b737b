"""The shape of the code: imports without circles, its names, and a public function for each command."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import click
import pytest
from walk import SOURCE

import subtext
from subtext.cli import evaluate as flat, main
from subtext.cli.command import BOTH
from subtext.cli.commands import COMMANDS as ENTRIES
from subtext.recipes.catalogue import models, plan_options
from subtext.settings import fields_of

DEEPEST, MOST_VAGUE = 12, 0.01
"""Modules in a chain of imports; the share of names that say nothing."""
VAGUE = frozenset(
    re.findall(
        r"\w+",
        """
        told tell tells asked asks wanted found given kept held known seen said looked judged made drawn
        near dear own other others more further here there what which who whole alone together piece pieces
        thing things one ones each way ways place places much many often again rest left
        """,
    )
)
"""Words that say nothing as the whole of a name."""


@cache
def trees() -> dict[str, ast.Module]:
    """Module name -> its syntax tree."""
    names = {
        ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__"): path
        for path in SOURCE.rglob("*.py")
    }
    return {name: ast.parse(path.read_text()) for name, path in names.items()}


def imported(name: str) -> set[str]:
    """The modules of the package that a module imports when it is imported itself."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                continue
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, ast.Import):
                found.update(alias.name for alias in child.names)
            elif isinstance(child, ast.ImportFrom) and child.module:
                for alias in child.names:
                    full = f"{child.module}.{alias.name}"
                    found.add(full if full in trees() else child.module)
            visit(child)

    visit(trees()[name])
    return (found & set(trees())) - {name}


@cache
def chain(name: str) -> tuple[str, ...]:
    """The longest chain of imports that begins with a module."""
    return (name, *max((chain(other) for other in imported(name)), key=len, default=()))


def test_imports_run_in_no_circle_and_are_not_deep():
    # A circle of top-level imports would end this in a RecursionError.
    deepest = max((chain(name) for name in trees()), key=len)
    assert len(deepest) <= DEEPEST, " -> ".join(deepest)


def bound_names(tree: ast.AST) -> list[str]:
    """Every name that a module binds: functions, classes, parameters, variables."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names += [node.name, *(argument.arg for argument in node.args.args + node.args.kwonlyargs)]
        elif isinstance(node, ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append(node.id)
    return names


def test_names_say_what_they_name():
    names = [name.strip("_").lower() for tree in trees().values() for name in bound_names(tree)]
    vague = [name for name in names if name in VAGUE]
    assert len(vague) <= MOST_VAGUE * len(names), f"{len(vague)} of {len(names)}"


def test_tab_completion_shows_the_public_names():
    assert set(subtext.__all__) <= set(dir(subtext))
    assert set(subtext.__all__) == {"__version__", *subtext._MODULES}, "write the names in both"
    for name in subtext.__all__:
        assert getattr(subtext, name) is not None


def commands(group: click.Command, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    """Every command that the help lists, by its path; a group that only holds others is left out."""
    if not isinstance(group, click.Group):
        return [(path, group)]
    context = click.Context(group)
    listed = [(name, group.get_command(context, name)) for name in group.list_commands(context)]
    return [
        item
        for name, command in listed
        if command is not None and not command.hidden
        for item in commands(command, (*path, name))
    ]


def public_functions(path: tuple[str, ...]) -> list[Callable[..., Any]]:
    """The public functions that a command may be of: `index build` of `build_index`, `runs` of `list_runs`."""
    *groups, name = (word.replace("-", "_") for word in path)
    names = [entry.function or name] if (entry := ENTRIES.get(" ".join(path))) else [name]
    for group in groups:
        # Every model is a command of `train`, and an argument of the function.
        names += [f"{name}_{group}"]
        names += [group] if group == "train" else []
    return [getattr(subtext, name) for name in names if name in subtext.__all__]


COMMANDS = commands(main)
FLAT = {("evaluate",): flat.evaluate, ("audit",): flat.audit}
"""Commands whose flat options become the objects that the public function takes."""
PYTHON_ONLY = {"train": {"model", "options"}, "index": {"wait", "confirm"}, "demo": {"limit"}}
"""Parameters that are no options: a model is a command with its options, data sets in memory, functions that ask."""


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=[" ".join(path) for path, _ in COMMANDS])
def test_every_command_is_one_public_function_with_the_same_parameters(path, command):
    functions = [FLAT[path]] if path in FLAT else public_functions(path)
    assert len(functions) == 1, functions
    fields = fields_of(functions[0])
    parameters = set(inspect.signature(functions[0]).parameters) - {field.owner for field in fields}
    described = (parameters | {field.name for field in fields if field.owner}) - PYTHON_ONLY.get(path[0], set())
    # How the result is printed is no argument of a function that returns it.
    # Nor is the answer to a question that a function of Python is given as a function.
    typed = {str(parameter.name).removesuffix(BOTH) for parameter in command.params} - {"as_json", "yes"}
    if path[0] == "train":
        recipe = models()[path[1]]
        typed -= {option.name for option in recipe.options}
        assert {option.name for option in plan_options(recipe.plan)} <= typed
    if path == ("compare",):
        # The files of both sides are typed with the word "vs" between them.
        typed = typed - {"files"} | {"first", "second"}
    assert typed == described
