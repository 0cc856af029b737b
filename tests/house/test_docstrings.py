"""Docstrings of the public interface name every parameter, what is returned, and which errors are raised."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "subtext"
ROOMS = (
    "errors.py",
    "text_helpers.py",
    "core",
    "objectives",
    "models",
    "graphs",
    "evaluation/metrics",
    "data/readers",
    "retrieval/stores/store.py",
    "recipes/build.py",
    "recipes/methods",
    "recipes/models",
    "api",
    "cli",
)
"""Folders and files whose public classes and functions are all checked, exported or not.

Not the routes of the server: of them, the whole docstring is what /openapi.json says.
"""
STUB = SOURCE / "__init__.pyi"
CALLS = ("__call__",)
"""Special methods that are public."""
NO_VALUE = ("None", "NoReturn", "Never")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def file_of(module: str) -> Path:
    place = SOURCE.parent.joinpath(*module.split("."))
    return place.with_suffix(".py") if place.with_suffix(".py").exists() else place / "__init__.py"


def defined(path: Path, name: str) -> tuple[Path, str]:
    """File and name under which a function or class is defined that a module imports, or has a second name for."""
    for node in parsed(path).body:
        if isinstance(node, Function | ast.ClassDef) and node.name == name:
            return path, name
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return defined(file_of(node.module), alias.name)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and ast.unparse(node.targets[0]) == name:
            return defined(path, node.value.id)
    raise AssertionError(f"{path.relative_to(SOURCE)} defines no function or class {name}")


def named_in_stub() -> Iterator[tuple[Path, str]]:
    """File and name of every function and class that `subtext` exports."""
    for node in parsed(STUB).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (defined(file_of(node.module), a.name) for a in node.names if a.name != "__version__")


def in_rooms() -> Iterator[tuple[Path, str]]:
    """File and name of every function and class without an underscore in ROOMS."""
    for room in ROOMS:
        place = SOURCE / room
        for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
            for node in parsed(path).body:
                if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
                    yield path, node.name


def subjects() -> list[tuple[Path, str]]:
    """What is checked: every name that `subtext` exports, and everything in ROOMS."""
    return sorted({*named_in_stub(), *in_rooms()})


def entries(docstring: str, section: str) -> set[str]:
    """The names that a section of a docstring describes."""
    found = re.search(rf"^{section}:\n((?: +.*\n?|\n)*)", docstring, re.MULTILINE)
    return set(re.findall(r"^ {4}\*{0,2}([\w.]+)(?: \([^)]*\))?: *\S", found[1], re.MULTILINE)) if found else set()


def parameters(node: Function) -> list[str]:
    """Names of all parameters but self and cls."""
    plain = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
    if plain and plain[0] in ("self", "cls"):
        plain = plain[1:]
    several = [each.arg for each in (node.args.vararg, node.args.kwarg) if each is not None]
    return [*plain, *(each.arg for each in node.args.kwonlyargs), *several]


def decorated(node: Function | ast.ClassDef, *words: str) -> bool:
    return any(word in ast.unparse(each) for each in node.decorator_list for word in words)


def errors_of(module: ast.Module) -> set[str]:
    """Classes that a module takes from the package's errors."""
    return {
        alias.asname or alias.name
        for node in ast.walk(module)
        if isinstance(node, ast.ImportFrom) and (node.module or "") == "subtext.errors"
        for alias in node.names
    }


def raised(node: Function) -> set[str]:
    """Names of the classes that a body raises itself, not in a function inside it."""
    found, waiting = set(), list(ast.iter_child_nodes(node))
    while waiting:
        each = waiting.pop()
        if isinstance(each, Function | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(each, ast.Raise) and each.exc is not None:
            thrown = each.exc.func if isinstance(each.exc, ast.Call) else each.exc
            if isinstance(thrown, ast.Name):
                found.add(thrown.id)
        waiting += ast.iter_child_nodes(each)
    return found


def lacks_of_function(node: Function, errors: set[str], told: str = "") -> Iterator[str]:
    """What a function's docstring lacks; `told` is a further docstring, that of the class of an `__init__`."""
    docstring = ast.get_docstring(node) or ""
    described = entries(docstring, "Args") | entries(told, "Args") | entries(told, "Attributes")
    if missing := [name for name in parameters(node) if name not in described]:
        yield f"Args of {', '.join(missing)}"
    is_value = node.name != "__init__" and not decorated(node, "property", ".setter")
    is_value = is_value and node.returns is not None and ast.unparse(node.returns) not in NO_VALUE
    if is_value and not re.search(r"^(Returns|Yields):$", docstring, re.MULTILINE):
        yield "Returns"
    if unsaid := (raised(node) & errors) - entries(docstring, "Raises") - entries(told, "Raises"):
        yield f"Raises of {', '.join(sorted(unsaid))}"


def lacks_of_class(node: ast.ClassDef, errors: set[str]) -> Iterator[tuple[ast.AST, str, str]]:
    """Node, name and lack of a class: its constructor's parameters, and its public methods."""
    docstring = ast.get_docstring(node) or ""
    methods = [each for each in node.body if isinstance(each, Function)]
    if decorated(node, "dataclass"):
        described = entries(docstring, "Args") | entries(docstring, "Attributes")
        fields = [
            each.target.id
            for each in node.body
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
            if not each.target.id.startswith("_") and "ClassVar" not in ast.unparse(each.annotation)
            if "init=False" not in ast.unparse(each)
            # An option says what it is where it stands: `Annotated[int, "..."]`.
            if "Annotated" not in ast.unparse(each.annotation)
        ]
        if missing := [name for name in fields if name not in described]:
            yield node, node.name, f"Args or Attributes of {', '.join(missing)}"
    for method in methods:
        name = f"{node.name}.{method.name}"
        if method.name in ("__init__", "__post_init__"):
            yield from ((node, node.name, lack) for lack in lacks_of_function(method, errors, docstring))
        elif (method.name in CALLS or not method.name.startswith("_")) and not decorated(method, "overload"):
            # A part says in its class which errors it raises, whether by its constructor or by its call.
            told = docstring if method.name in ("__call__", "forward") else ""
            raises = re.search(r"^Raises:\n(?: +.*\n?|\n)*", told, re.MULTILINE)
            for lack in lacks_of_function(method, errors, raises[0] if raises else ""):
                yield method, name, lack


def lacks(path: Path, name: str) -> list[str]:
    """One line for everything that the docstrings of a function or class lack."""
    module = parsed(path)
    errors = errors_of(module)
    found = []
    for node in module.body:
        if getattr(node, "name", None) != name:
            continue
        if isinstance(node, ast.ClassDef):
            rows = list(lacks_of_class(node, errors))
        else:
            assert isinstance(node, Function)
            rows = [(node, name, lack) for lack in lacks_of_function(node, errors) if not decorated(node, "overload")]
        found += [f"{path.relative_to(SOURCE)}:{where.lineno} {each} lacks {lack}" for where, each, lack in rows]
    return found


@pytest.mark.parametrize(
    ("path", "name"), subjects(), ids=[f"{path.relative_to(SOURCE)}:{name}" for path, name in subjects()]
)
def test_docstring_has_args_returns_and_raises(path: Path, name: str) -> None:
    assert not lacks(path, name), "\n" + "\n".join(lacks(path, name))


def test_incomplete_docstring_is_detected() -> None:
    source = "def f(a, *, b, **c) -> int:\n    'One.\\n\\nArgs:\\n    a: It.'\n    raise DataError('x')"
    (node,) = ast.parse(source).body
    assert isinstance(node, ast.FunctionDef)
    assert list(lacks_of_function(node, {"DataError"})) == ["Args of b, c", "Returns", "Raises of DataError"]
