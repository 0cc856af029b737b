"""The shape of the code: imports without circles, its names, and a public function for each command."""

from __future__ import annotations

import ast
import inspect
import pkgutil
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any

import click
import pytest
from find_parts import SOURCE

import subtext
from subtext.cli import evaluate as flat, main
from subtext.cli.command import BOTH
from subtext.cli.commands import COMMANDS as ENTRIES
from subtext.recipes.catalogue import models, plan_options
from subtext.settings import fields_of

STUB = SOURCE / "__init__.pyi"


@cache
def trees() -> dict[str, ast.Module]:
    """Module name -> its syntax tree."""
    names = {
        ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__"): path
        for path in SOURCE.rglob("*.py")
    }
    return {name: ast.parse(path.read_text()) for name, path in names.items()}


def imported(tree: ast.Module, modules: Collection[str]) -> set[str]:
    """Those of the modules that a syntax tree imports anywhere: at the top, in functions, and for types alone."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            full = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= full | ({node.module} if full - set(modules) else set())
    # `import subtext` imports a module of the package when one of its names is read.
    return (found & set(modules)) - {"subtext"}


def circles(edges: Mapping[str, set[str]]) -> list[set[str]]:
    """Modules that import one another, directly or through others (Tarjan 1972)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for other in edges[name]:
            if other not in order:
                visit(other)
            if other in stack:
                low[name] = min(low[name], low[other])
        if low[name] == order[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                found.append(set(stack[at:]))
            del stack[at:]

    for name in edges:
        if name not in order:
            visit(name)
    return found


def test_imports_run_in_no_circle():
    assert circles({name: imported(tree, trees()) - {name} for name, tree in trees().items()}) == []


def test_a_circle_is_found_through_lazy_imports_and_those_for_types():
    sources = {
        "a": "def f():\n    from b import x",
        "b": "if TYPE_CHECKING:\n    import c",
        "c": "from a import f\nimport d",
        "d": "",
    }
    edges = {name: imported(ast.parse(text), sources) for name, text in sources.items()}
    assert circles(edges) == [{"a", "b", "c"}]


def test_no_two_classes_share_a_name():
    names = Counter(node.name for tree in trees().values() for node in tree.body if isinstance(node, ast.ClassDef))
    assert [name for name, count in names.items() if count > 1] == []


def test_a_name_is_a_package_or_a_public_name_but_not_both():
    modules = {info.name for info in pkgutil.iter_modules(subtext.__path__)}
    assert modules & set(subtext.__all__) == set()
    for name in modules - {"__main__"}:
        scope: dict[str, object] = {}
        exec(f"import subtext.{name} as module", scope)
        assert inspect.ismodule(scope["module"]), name


def test_the_public_names_are_the_same_for_python_tab_completion_and_type_checkers():
    modules = {info.name for info in pkgutil.iter_modules(subtext.__path__)}
    stub = {
        alias.asname: node.module
        for node in ast.parse(STUB.read_text()).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert {name: module for name, module in stub.items() if name != "__version__"} == subtext._MODULES
    assert set(subtext.__all__) == set(stub) == {"__version__", *subtext._MODULES}
    assert [name for name in dir(subtext) if name not in modules] == sorted(subtext.__all__)
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
OBJECTS = {"progress", "callbacks"}
"""Functions and objects that are called, which nobody can type."""
PYTHON_ONLY = {"train": {"model", "options"}, "index": {"wait", "confirm"}, "demo": {"limit"}}
"""Parameters that are no options: a model is a command with its options, data sets in memory, functions that ask."""


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=[" ".join(path) for path, _ in COMMANDS])
def test_every_command_equals_one_public_function(path, command):
    functions = [FLAT[path]] if path in FLAT else public_functions(path)
    assert len(functions) == 1, functions
    # Metrics, protocol and second stage are objects in Python, made of flat options.
    function = getattr(flat, path[0]) if path in (("evaluate",), ("audit",)) else functions[0]
    fields = fields_of(function)
    parameters = set(inspect.signature(function).parameters) - {field.owner for field in fields}
    described = (
        (parameters | {field.name for field in fields if field.owner}) - PYTHON_ONLY.get(path[0], set()) - OBJECTS
    )
    # How the result is printed is no argument of a function that returns it.
    # Nor is the answer to a question that a function of Python is given as a function.
    typed = {str(parameter.name).removesuffix(BOTH) for parameter in command.params} - {"as_json", "as_jsonl", "yes"}
    if path[0] == "train":
        recipe = models()[path[1]]
        typed -= {option.name for option in recipe.options}
        assert {option.name for option in plan_options(recipe.plan)} <= typed
    if path == ("compare",):
        # The files of both sides are typed with the word "vs" between them.
        typed = typed - {"files"} | {"first", "second"}
    assert typed == described
