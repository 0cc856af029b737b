"""Which recipes there are and what they can be told, read from their signatures without anything heavy."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from types import ModuleType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from subtext.errors import RecipeError
from subtext.training.option_marks import Before, Place, Span, When
from subtext.training.plan import Plan

RECOMMENDED = "dual"
"""The host that is trained when none is named."""

_YES, _NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


@dataclass(frozen=True)
class Option:
    """One thing that a recipe can be told.

    name     as in Python, with underscores
    type     int, float, str or bool
    choices  the values that there are; None for any of the type
    default  what holds when it is left out
    help     one line, after what has to be chosen for the option to be read
    group    the argument of the recipe that it is a field of; empty where it is an argument itself
    when     what has to be chosen for the option to be read; all of them
    span     the numbers that it takes; None for all of its type
    unsaid   what holds where an older record does not have the option: the default, or what `Before` says
    place    whether it is a file or folder
    """

    name: str
    type: type
    choices: tuple[object, ...] | None
    default: object
    help: str
    group: str = ""
    when: tuple[When, ...] = ()
    span: Span | None = None
    unsaid: object = None
    place: bool = False

    def read(self, value: object) -> object:
        """A value of this option's type, from itself or from text. Raises RecipeError when it is none that it takes."""
        found = self._typed(value)
        if self.span is not None and not (
            isinstance(found, int | float) and self.span.least <= found < self.span.below
        ):
            raise RecipeError(f"{self.name} needs {self.span}; it got {found}")
        return found

    def _typed(self, value: object) -> object:
        if self.choices is not None:
            found = {str(choice): choice for choice in self.choices}
            if str(value) not in found:
                raise RecipeError(f"{self.name} needs one of {', '.join(found)}; it got '{value}'")
            return found[str(value)]
        if self.type is bool and isinstance(value, str) and value.lower() in _YES + _NO:
            return value.lower() in _YES
        numeric = (int, float) if self.type is float else self.type
        if isinstance(value, numeric) and (self.type is bool or not isinstance(value, bool)):
            return self.type(value)
        if isinstance(value, str) and self.type in (int, float):
            try:
                return self.type(value)
            except ValueError:
                pass
        raise RecipeError(f"{self.name} needs {_KINDS[self.type]}; it got {value!r}")


_KINDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


@dataclass(frozen=True)
class Recipe:
    """A host or a method.

    function  a host: (context, *, options) -> Setup; a method: (setup, *, options) -> Setup
    summary   the first sentence of its docstring
    plan      how a host is trained unless told otherwise; the common plan for a method, which brings none
    groups    argument name -> dataclass, for options that several hosts share
    """

    name: str
    function: Callable[..., Any]
    summary: str
    options: list[Option]
    plan: Plan
    groups: Mapping[str, type]

    def arguments(self, given: Mapping[str, object]) -> dict[str, Any]:
        """The keyword arguments of `function` for flat options.

        Raises RecipeError for an option that there is not, with near names, and for a value of the wrong kind.
        """
        flat = read_options(f"option of '{self.name}'", self.options, given)
        result: dict[str, Any] = {option.name: flat[option.name] for option in self.options if not option.group}
        for group, kind in self.groups.items():
            result[group] = kind(**{o.name: flat[o.name] for o in self.options if o.group == group})
        return result


@cache
def hosts() -> dict[str, Recipe]:
    """Every host by name: a model family, from encoders to objective."""
    from subtext.recipes import models as package

    return {recipe.name: recipe for recipe in _recipes(package)}


@cache
def methods() -> dict[str, Recipe]:
    """Every method by name: what changes the training of a host and nothing else."""
    from subtext.recipes import methods as package

    return {recipe.name: recipe for recipe in _recipes(package)}


def plan_options(plan: Plan) -> list[Option]:
    """Every field of the plan as an option whose default is this plan's value."""
    return _fields(Plan, plan, "")


def read_options(kind: str, options: Iterable[Option], given: Mapping[str, object]) -> dict[str, Any]:
    """The value of every option, its default where none was given.

    kind  what they are, for a message

    Raises RecipeError for an option that there is not, with near names, and for a value of the wrong kind.
    """
    known = {option.name: option for option in options}
    flat = {name: option.default for name, option in known.items()}
    for name, value in given.items():
        if name not in known:
            raise RecipeError(unknown(kind, name, known))
        flat[name] = known[name].read(value)
    return flat


def unknown(kind: str, name: str, known: Mapping[str, object]) -> str:
    """The sentence for a name that is not among the known ones, with the nearest of them."""
    near = get_close_matches(name, list(known), n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known) or 'none'}"
    return f"there is no {kind} called '{name}'; {hint}"


def _recipes(package: ModuleType) -> Iterator[Recipe]:
    for found in sorted(pkgutil.iter_modules(package.__path__), key=lambda module: module.name):
        module = importlib.import_module(f"{package.__name__}.{found.name}")
        yield _recipe(module, getattr(module, found.name))


def _recipe(module: ModuleType, function: Callable[..., Any]) -> Recipe:
    # The types of what goes in first and comes out last are heavy: they are known by name alone.
    hints = get_type_hints(function, localns={"BuildContext": object, "Setup": object}, include_extras=True)
    options: list[Option] = []
    groups: dict[str, type] = {}
    for name, parameter in list(inspect.signature(function).parameters.items())[1:]:
        if is_dataclass(hints[name]):
            groups[name] = hints[name]
            options += _fields(hints[name], parameter.default, name)
        else:
            options.append(_option(name, hints[name], parameter.default, ""))
    summary = (inspect.getdoc(function) or "").partition("\n\n")[0].replace("\n", " ")
    name = module.__name__.rpartition(".")[2]
    return Recipe(name, function, summary, options, getattr(module, "PLAN", Plan()), groups)


def _fields(kind: Any, value: object, group: str) -> list[Option]:
    hints = get_type_hints(kind, include_extras=True)
    assert all(field.default is not MISSING for field in fields(kind)), f"{kind.__name__} needs a default everywhere"
    return [_option(field.name, hints[field.name], getattr(value, field.name), group) for field in fields(kind)]


def _option(name: str, hint: Any, default: object, group: str) -> Option:
    if get_origin(hint) is not Annotated or default is inspect.Parameter.empty:
        raise RecipeError(f"a recipe's option needs Annotated[type, 'help'] and a default; '{name}' has {hint}")
    kind, text, *marks = get_args(hint)
    when = tuple(mark for mark in marks if isinstance(mark, When))
    span = next((mark for mark in marks if isinstance(mark, Span)), None)
    unsaid = next((mark.value for mark in marks if isinstance(mark, Before)), default)
    text = "".join(one.prefix for one in when) + text
    if get_origin(kind) is Literal:
        return Option(name, str, get_args(kind), default, text, group, when, unsaid=unsaid)
    place = any(isinstance(mark, Place) for mark in marks)
    return Option(name, kind, None, default, text, group, when, span, unsaid, place)
