"""The catalogue of recipes and their options, read from signatures without importing anything heavy."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from subtext.errors import RecipeError
from subtext.training.plan import IsPath, Plan, Range, Requires

RECOMMENDED = "dual"
"""The model that is trained when none is named."""

_YES, _NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_KINDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


@dataclass(frozen=True)
class Option:
    """One option of a recipe or of the training plan.

    Attributes:
        name: As in Python, with underscores.
        type: Int, float, str or bool.
        choices: The values that it takes; None for any of the type.
        help: One line, after the choices that the option requires.
        group: The argument of the recipe that it is a field of; empty where it is an argument itself.
        requires: The choices that have to be made for the option to be read; all of them.
        range: The numbers that it takes; None for all of its type.
        is_path: Whether it is a file or folder.
    """

    name: str
    type: type
    choices: tuple[object, ...] | None
    default: object
    help: str
    group: str = ""
    requires: tuple[Requires, ...] = ()
    range: Range | None = None
    is_path: bool = False

    def read(self, value: object) -> object:
        """A value of this option's type, from itself or from text.

        Raises:
            RecipeError: For any other value.
        """
        result = self._typed(value)
        if self.range is not None:
            self.range.require(self.name, result)
        return result

    def holds(self, facts: Mapping[str, Any]) -> bool:
        """Whether anything reads the option, as far as the facts are known."""
        return all(requirement.holds(facts) for requirement in self.requires)

    def _typed(self, value: Any) -> object:
        value = value.item() if getattr(value, "shape", None) == () else value  # A number of numpy or torch.
        if self.choices is not None:
            choices = {str(choice): choice for choice in self.choices}
            if str(value) not in choices:
                raise RecipeError(f"{self.name} needs one of {', '.join(choices)}; it got '{value}'")
            return choices[str(value)]
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


@dataclass(frozen=True)
class Recipe:
    """A model or a method.

    Attributes:
        function: A model: (context, *, options) -> Setup; a method: (setup, *, options) -> Setup.
        summary: The first sentence of its docstring.
        plan: How a model is trained by default; the common plan for a method, which brings none.
        groups: Argument name -> dataclass, for options that several models share.
    """

    name: str
    function: Callable[..., Any]
    summary: str
    options: list[Option]
    plan: Plan
    groups: Mapping[str, type]

    def arguments(self, options: Mapping[str, object]) -> dict[str, Any]:
        """The keyword arguments of `function` for flat options.

        Raises:
            RecipeError: For an unknown option, with near names, and for a value of the wrong kind.
        """
        values = read_options(f"option of '{self.name}'", self.options, options)
        result: dict[str, Any] = {option.name: values[option.name] for option in self.options if not option.group}
        for group, kind in self.groups.items():
            result[group] = kind(**{o.name: values[o.name] for o in self.options if o.group == group})
        return result


@cache
def models() -> dict[str, Recipe]:
    """Every model recipe by name: encoders, similarity and objective of a model family."""
    return _recipes("models")


@cache
def methods() -> dict[str, Recipe]:
    """Every method by name: it changes how a model is trained and nothing else."""
    return _recipes("methods")


def register_method(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add a training method under the name of its function, for `train(with_=...)`; usable as a decorator.

    Args:
        function: Setup -> Setup. Its keyword-only parameters are the options: each has a default and a type
            Annotated[type, "help"].

    Raises:
        RecipeError: For an option without help or default, and for the name of a method of this package.
    """
    known = methods().get(function.__name__)
    if known is not None and known.function.__module__.startswith(f"{__package__}."):
        raise RecipeError(f"a method needs a name of its own; '{function.__name__}' is one of this package; rename it")
    methods()[function.__name__] = _recipe(function, Plan())
    return function


def plan_options(plan: Plan) -> list[Option]:
    """Every field of the plan as an option whose default is this plan's value."""
    return _fields(Plan, plan, "")


def read_options(kind: str, options: Iterable[Option], arguments: Mapping[str, object]) -> dict[str, Any]:
    """The value of every option: the one given, else the default.

    Args:
        kind: What the options are, for a message.

    Raises:
        RecipeError: For an unknown option, with near names, and for a value of the wrong kind.
    """
    by_name = {option.name: option for option in options}
    values = {name: option.default for name, option in by_name.items()}
    for name, value in arguments.items():
        if name not in by_name:
            raise RecipeError(unknown(kind, name, by_name))
        values[name] = by_name[name].read(value)
    return values


def read_method(text: str) -> tuple[str, dict[str, object]]:
    """`mithun:strength=0.5,hardest_only=no` as ("mithun", {"strength": 0.5, "hardest_only": False}).

    Paths become absolute.

    Raises:
        RecipeError: For an unknown method, option or value, with near names.
    """
    name, _, assignments = text.partition(":")
    if name not in methods():
        raise RecipeError(unknown("method", name, methods()))
    options = {option.name: option for option in methods()[name].options}
    values: dict[str, object] = {}
    for assignment in filter(None, assignments.split(",")):
        key, equals, value = assignment.partition("=")
        key, value = key.strip().replace("-", "_"), value.strip()
        if not equals:
            raise RecipeError(f"'{assignment}' needs the form option=value")
        if key not in options:
            raise RecipeError(unknown(f"option of the method {name}", key, options))
        option = options[key]
        if option.is_path and value:
            value = str(Path(value).expanduser().absolute())
        values[option.name] = option.read(value)
    return name, values


def unknown(kind: str, name: str, names: Mapping[str, object]) -> str:
    """The sentence for an unknown name, with the nearest known ones."""
    matches = get_close_matches(name, list(names), n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(matches)}?" if matches else f"there are {', '.join(names) or 'none'}"
    return f"there is no {kind} called '{name}'; {hint}"


def _recipes(folder: str) -> dict[str, Recipe]:
    """The recipe of every module of a folder: the function of its name."""
    recipes = {}
    for name in sorted(info.name for info in pkgutil.iter_modules([str(Path(__file__).parent / folder)])):
        module = importlib.import_module(f"{__package__}.{folder}.{name}")
        recipes[name] = _recipe(getattr(module, name), getattr(module, "PLAN", Plan()))
    return recipes


def _recipe(function: Callable[..., Any], plan: Plan) -> Recipe:
    # A method from outside the package may import the type of its first parameter and its result for checks alone.
    hints = get_type_hints(function, localns={"Setup": object}, include_extras=True)
    options: list[Option] = []
    groups: dict[str, type] = {}
    for argument, parameter in list(inspect.signature(function).parameters.items())[1:]:
        if is_dataclass(hints.get(argument)):
            groups[argument] = hints[argument]
            options += _fields(hints[argument], parameter.default, argument)
        else:
            options.append(_option(argument, hints.get(argument), parameter.default, ""))
    summary = (inspect.getdoc(function) or "").partition("\n\n")[0].replace("\n", " ")
    return Recipe(function.__name__, function, summary, options, plan, groups)


def _fields(kind: Any, value: object, group: str) -> list[Option]:
    hints = get_type_hints(kind, include_extras=True)
    assert all(field.default is not MISSING for field in fields(kind)), f"{kind.__name__} needs a default everywhere"
    return [_option(f.name, hints[f.name], getattr(value, f.name), group) for f in fields(kind)]


def _option(name: str, hint: Any, default: object, group: str) -> Option:
    if get_origin(hint) is not Annotated or default is inspect.Parameter.empty:
        raise RecipeError(
            f"a recipe's option needs Annotated[type, 'help'] and a default; '{name}' has {hint or 'no type'}"
        )
    kind, text, *marks = get_args(hint)
    requires = tuple(mark for mark in marks if isinstance(mark, Requires))
    literal = get_origin(kind) is Literal
    return Option(
        name=name,
        type=str if literal else kind,
        choices=get_args(kind) if literal else None,
        default=default,
        help="".join(requirement.prefix for requirement in requires) + text,
        group=group,
        requires=requires,
        range=next((mark for mark in marks if isinstance(mark, Range)), None),
        is_path=any(isinstance(mark, IsPath) for mark in marks),
    )
