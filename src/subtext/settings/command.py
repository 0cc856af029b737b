"""The decorator of public functions that are commands: their arguments are checked before they run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import wraps
from typing import Annotated, Any, ParamSpec, TypeVar, get_args, get_origin

from subtext.errors import ArgumentError, SubtextError
from subtext.settings.field import did_you_mean
from subtext.settings.reader import fields_of, hint_of, options_of, unfolded

P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C")


def command(function: Callable[P, T] | None = None, *, defaults: Mapping[str, Any] | None = None) -> Any:
    """Check the arguments of a public function against its annotations before it runs.

    A list stands for a tuple, a value alone for a tuple of one, a mapping of fields for a dataclass of settings.

    Args:
        function: Its `Annotated` parameters are the settings; `**options: Unpack[...]` adds those of a TypedDict.
        defaults: The defaults of these; None for the others.

    Returns:
        The function, with a signature that names every setting.

    Raises:
        ArgumentError: When called with a value of another type, not among the choices, or out of range.
        TypeError: When called with an unknown name.
    """
    if function is None:
        return lambda function: command(function, defaults=defaults)
    signature, hints = inspect.signature(function), dict(function.__annotations__)
    named: list[inspect.Parameter] = []
    shared: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        options = options_of(function, parameter.name) if parameter.kind is parameter.VAR_KEYWORD else {}
        if not options:
            named.append(parameter)
        hints |= options
        for name in sorted(options, key=lambda option: option != "data"):
            shared.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=(defaults or {}).get(name)))
    signature = signature.replace(parameters=sorted([*shared, *named], key=lambda parameter: parameter.kind))

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            advice = _advice(checked, kwargs) or _named_advice(checked, args, kwargs)
            raise TypeError(f"{function.__name__}: {advice or error}") from None
        for field in fields_of(checked):
            if not field.owner and bound.arguments.get(field.name) is not None:
                bound.arguments[field.name] = field.check(bound.arguments[field.name])
        for name in dict.fromkeys(field.owner for field in fields_of(checked) if field.owner):
            value, kind = bound.arguments.get(name), unfolded(checked, name)
            if isinstance(value, Mapping):
                bound.arguments[name] = _object(kind, name, value)
            elif value is not None and not isinstance(value, kind) and takes_only(hint_of(checked, name), kind):
                raise ArgumentError(
                    f"{name} needs a {kind.__name__}, or a mapping of its fields; it got {value!r:.60}", field=name
                )
        return function(*bound.args, **bound.kwargs)

    checked.__signature__, checked.__annotations__ = signature, hints  # type: ignore[attr-defined]
    # Without the help texts, which stand in the docstring, a signature can be read.
    shown = [
        parameter.replace(annotation=get_args(hint)[0]) if get_origin(hint) is Annotated else parameter
        for name, parameter in signature.parameters.items()
        for hint in (hint_of(checked, name),)
    ]
    checked.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
    return checked


def named_fields(error: type[SubtextError] = ArgumentError) -> Callable[[type[C]], type[C]]:
    """A decorator of dataclasses of settings: an unknown name raises an error with the nearest one.

    Args:
        error: What is raised.

    Returns:
        The decorator.
    """

    def decorate(kind: type[C]) -> type[C]:
        made = kind.__init__

        @wraps(made)
        def checked(self: Any, *args: Any, **values: Any) -> None:
            known = {field.name: None for field in fields(kind)} | {f.name: f for f in fields_of(kind)}  # type: ignore[arg-type]
            for name in values:
                if name not in known:
                    raise error(did_you_mean(f"field of {kind.__name__}", name, known), field=name)
            made(self, *args, **values)

        kind.__init__ = checked  # type: ignore[method-assign]
        return kind

    return decorate


def takes_only(hint: Any, kind: Any) -> bool:
    """Whether a parameter takes a dataclass or its fields alone.

    Args:
        hint: Of the parameter.
        kind: The dataclass.

    Returns:
        False where it takes other objects, too.
    """
    members = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return all(it in (kind, type(None)) or get_origin(it) is Mapping for it in get_args(members) or (members,))


def _object(kind: Any, name: str, values: Mapping[str, Any]) -> Any:
    """The dataclass of a parameter from a mapping of its fields."""
    known = {field.name: None for field in fields(kind)} | {field.name: field for field in fields_of(kind)}
    for key in values:
        if key not in known:
            raise ArgumentError(did_you_mean(f"field of {name}", key, known))
    return kind(**values)


def _named_advice(function: Callable[..., Any], args: Sequence[Any], arguments: Mapping[str, Any]) -> str:
    """What to do about arguments without a name that need one; empty where there are none."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return ""
    alone = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    unnamed = [parameter.name for parameter in parameters if parameter.kind in alone]
    if len(args) <= len(unnamed):
        return ""
    following = [
        parameter.name
        for parameter in parameters
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.name not in arguments
    ]
    needed = [one.name for one in parameters if one.name in following and one.default is one.empty]
    shown = ", ".join([*unnamed, *(f"{name}=..." for name in (needed or following)[: len(args) - len(unnamed)])])
    return (
        f"{args[len(unnamed)]!r:.60} needs the name of its argument; {' and '.join(unnamed) or 'nothing'} alone may go "
        f"without; write {getattr(function, '__name__', 'it')}({shown})"
    )


def _advice(function: Callable[..., Any], arguments: Mapping[str, Any]) -> str:
    """What to do about the first unknown argument; empty where all are known."""
    names = inspect.signature(function).parameters
    for name in arguments:
        if name not in names:
            for field in fields_of(function):
                if field.name == name and (owner := field.owner):
                    # The data set is itself a field of what holds all that belongs to it.
                    itself = any(part.name == owner for part in fields(unfolded(function, owner)))
                    own = f"'{owner}': {owner.upper()}, " if itself else ""
                    return f"'{name}' is a field of {owner}; give it there, as in {owner}={{{own}'{name}': ...}}"
            owned = {field.name: field for field in fields_of(function) if field.owner}
            sentence = did_you_mean("argument", name, {**owned, **names})
            near = sentence.partition("did you mean ")[2].removesuffix("?").split(" or ")
            if near[0] in owned:
                owner = owned[near[0]].owner
                return f"{sentence.partition(';')[0]}; did you mean {owner}={{'{near[0]}': ...}}?"
            if not near[0]:
                sentence = did_you_mean("argument", name, names)
            if "options" in names:
                sentence += f"; an option of the model goes into options={{'{name}': ...}}"
            return sentence
    return ""
