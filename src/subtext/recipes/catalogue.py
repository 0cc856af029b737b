"""The catalogue of recipes and their options, read from signatures without importing anything heavy."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from subtext.errors import RecipeError
from subtext.settings import Field, IsPath, did_you_mean, fields_of
from subtext.settings.reader import unfolded
from subtext.training.plan import Plan, Requires

RECOMMENDED = "dual"
"""The model that is trained when none is named."""


@dataclass(frozen=True)
class Recipe:
    """A model or a method.

    Attributes:
        name: That of its function.
        function: A model: (context, *, options) -> Setup; a method: (setup, *, options) -> Setup.
        summary: The first sentence of its docstring.
        options: Its settings; one that several models share has the `owner` that it is a field of.
        plan: How a model is trained by default; the common plan for a method, which brings none.
    """

    name: str
    function: Callable[..., Any]
    summary: str
    options: tuple[Field, ...]
    plan: Plan

    def arguments(self, options: Mapping[str, object]) -> dict[str, Any]:
        """The keyword arguments of `function` for flat options.

        Args:
            options: Values by name; those left out keep their defaults.

        Returns:
            Keyword arguments; options with an owner are joined in its dataclass.

        Raises:
            RecipeError: For an unknown option, with the nearest names, and for a value of the wrong kind.
        """
        values = read_options(f"option of '{self.name}'", self.options, options)
        result: dict[str, Any] = {option.name: values[option.name] for option in self.options if not option.owner}
        for owner in dict.fromkeys(option.owner for option in self.options if option.owner):
            own = {option.name: values[option.name] for option in self.options if option.owner == owner}
            result[owner] = unfolded(self.function, owner)(**own)
        return result


@cache
def models() -> dict[str, Recipe]:
    """Every model recipe by name: encoders, similarity and objective of a model family.

    Returns:
        Name -> recipe.
    """
    return _recipes("models")


@cache
def methods() -> dict[str, Recipe]:
    """Every method by name: it changes how a model is trained and nothing else.

    Returns:
        Name -> recipe.
    """
    return _recipes("methods")


def register_method(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add a training method under the name of its function, for `train(methods=...)`; usable as a decorator.

    Args:
        function: Setup -> Setup. Its keyword-only parameters are the options: each has a default and a type
            Annotated[type, "help"].

    Returns:
        The function.

    Raises:
        RecipeError: For an option without help or default, and for the name of a method of this package.
    """
    known = methods().get(function.__name__)
    if known is not None and known.function.__module__.startswith(f"{__package__}."):
        raise RecipeError(f"a method needs a name of its own; '{function.__name__}' is one of this package; rename it")
    methods()[function.__name__] = _recipe(function, Plan())
    return function


@cache
def plan_options(plan: Plan) -> tuple[Field, ...]:
    """Every field of the plan as an option whose default is this plan's value.

    Args:
        plan: Its values are the defaults.

    Returns:
        One setting per field.
    """
    return fields_of(plan)


def requirements(option: Field) -> tuple[Requires, ...]:
    """The choices that have to be made for an option to be read; all of them.

    Args:
        option: Of a model, a method or a plan.

    Returns:
        Its `Requires` marks.
    """
    return tuple(mark for mark in option.marks if isinstance(mark, Requires))


def read_options(kind: str, options: Iterable[Field], arguments: Mapping[str, object]) -> dict[str, Any]:
    """The value of every option: the one that `arguments` has, else the default.

    Args:
        kind: What the options are, for a message.
        options: The known ones.
        arguments: Values by name; numbers may be text.

    Returns:
        Name -> value, checked and converted to the option's type.

    Raises:
        RecipeError: For an unknown option, with the nearest names, and for a value of the wrong kind.
    """
    known = {option.name: option for option in options}
    values = {name: option.default for name, option in known.items()}
    for name, value in arguments.items():
        if name not in known:
            raise RecipeError(did_you_mean(kind, name, known))
        values[name] = known[name].parse(value, RecipeError)
    return values


def read_method(text: str) -> tuple[str, dict[str, object]]:
    """`mithun:strength=0.5,hardest_only=no` as ("mithun", {"strength": 0.5, "hardest_only": False}).

    Paths become absolute.

    Args:
        text: A method and its options, as the command line has them.

    Returns:
        The method's name, and the options that were given.

    Raises:
        RecipeError: For an unknown method, option or value, with the nearest names.
    """
    name, _, assignments = text.partition(":")
    if name not in methods():
        raise RecipeError(did_you_mean("method", name, methods()))
    options = {option.name: option for option in methods()[name].options}
    values: dict[str, object] = {}
    for assignment in filter(None, assignments.split(",")):
        key, equals, value = assignment.partition("=")
        key, value = key.strip().replace("-", "_"), value.strip()
        if not equals:
            raise RecipeError(f"'{assignment}' needs the form option=value")
        if key not in options:
            raise RecipeError(did_you_mean(f"option of the method {name}", key, options))
        option = options[key]
        if value and any(isinstance(mark, IsPath) for mark in option.marks):
            value = str(Path(value).expanduser().absolute())
        values[option.name] = option.parse(value, RecipeError)
    return name, values


def _recipes(folder: str) -> dict[str, Recipe]:
    """The recipe of every module of a folder: the function of its name."""
    recipes = {}
    for name in sorted(info.name for info in pkgutil.iter_modules([str(Path(__file__).parent / folder)])):
        module = importlib.import_module(f"{__package__}.{folder}.{name}")
        recipes[name] = _recipe(getattr(module, name), getattr(module, "PLAN", Plan()))
    return recipes


def _recipe(function: Callable[..., Any], plan: Plan) -> Recipe:
    options = fields_of(function)
    described = {option.owner or option.name for option in options}
    for name in list(inspect.signature(function).parameters)[1:]:
        if name not in described or any(option.required for option in options if option.name == name):
            raise RecipeError(f"a recipe's option needs Annotated[type, 'help'] and a default; '{name}' has not both")
    summary = (inspect.getdoc(function) or "").partition("\n\n")[0].replace("\n", " ")
    return Recipe(function.__name__, function, summary, options, plan)
