"""The one reader: the settings of a function or of a dataclass, from annotations, without importing anything heavy."""

from __future__ import annotations

import inspect
import os
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, Unpack, get_args, get_origin, get_type_hints

from subtext.errors import RecipeError
from subtext.settings.field import ACCEPTED, Field
from subtext.settings.marks import Commas, Flag, Interval, Metavar, OptionGroup, Shown, Unfold

T = TypeVar("T")


_LOADED = {
    name: type(name, (), {"__module__": "builtins"})
    for name in ("Dataset", "Rows", "Arrays", "Model", "EmbeddedDataset", "Setup", "BuildContext")
}
"""Stand in evaluated annotations for classes that are imported for type checkers alone."""


@cache
def fields_of(described: Any) -> tuple[Field, ...]:
    """The settings of a function, or of a dataclass, in the order of its signature.

    A parameter without `Annotated` is left out, unless its type is a dataclass: then the fields of that are read, with
    `owner` the parameter's name. A field that has the parameter's own name is described by the parameter.

    Args:
        described: A function, a dataclass, or (for other defaults) an instance of a hashable dataclass.

    Returns:
        One setting per parameter or field.
    """
    if not isinstance(described, type) and is_dataclass(described):
        return _of_dataclass(type(described), described)
    if isinstance(described, type):
        return _of_dataclass(described, None)
    result: list[Field] = []
    for name, parameter in inspect.signature(described).parameters.items():
        result += _of_parameter(name, hint_of(described, name), parameter)
    return tuple(result)


def objects_of(function: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a function from flat values, such as those of a command line.

    Args:
        function: Some of its parameters may be dataclasses of settings.
        values: Value by name, of a parameter or of a field of such a dataclass.

    Returns:
        Arguments by name: each dataclass is made of its own fields among the values.
    """
    result = dict(values)
    parameters = inspect.signature(function).parameters
    for name in parameters:
        if (kind := unfolded(function, name)) is not None:
            # A parameter of the function is its own, where a field has the same name.
            names = [f.name for f in fields(kind) if f.name == name or f.name not in parameters]
            own = {field: result.pop(field) for field in names if field in result}
            if own:
                result[name] = kind(**own)
    return result


@cache
def unfolded(described: Any, name: str) -> Any:
    """The dataclass that a parameter of a function is unfolded from; None for another parameter.

    Args:
        described: The function.
        name: Of the parameter.

    Returns:
        The dataclass, or None.
    """
    return _dataclass_of(hint_of(described, name))


def hint_of(function: Callable[..., Any], name: str) -> Any:
    """The evaluated annotation of a parameter; None for a type that only type checkers import.

    Args:
        function: Its annotations may be text.
        name: Of the parameter.

    Returns:
        The type with its marks, or None.
    """
    holder = types.SimpleNamespace(__annotations__={name: function.__annotations__.get(name)})
    try:
        found = inspect.unwrap(function).__globals__
        return get_type_hints(holder, globalns=found, localns=_LOADED, include_extras=True)[name]
    except NameError:
        return None


def options_of(function: Callable[..., Any], name: str) -> dict[str, Any]:
    """The annotations of a TypedDict that a parameter `**options: Unpack[...]` names; empty for another parameter.

    Args:
        function: Its annotations may be text.
        name: Of the parameter.

    Returns:
        Key -> annotation.
    """
    hint = hint_of(function, name)
    if get_origin(hint) is not Unpack:
        return {}
    return get_type_hints(get_args(hint)[0], localns=_LOADED, include_extras=True)


def _of_dataclass(kind: Any, defaults: Any) -> tuple[Field, ...]:
    hints = get_type_hints(kind, localns=_LOADED, include_extras=True)
    result = []
    for field in fields(kind):
        if get_origin(hints[field.name]) is not Annotated:
            continue
        default = field.default if defaults is None else getattr(defaults, field.name)
        result.append(_field(field.name, hints[field.name], inspect.Parameter.empty if default is MISSING else default))
    return tuple(result)


def _of_parameter(name: str, hint: Any, parameter: inspect.Parameter) -> list[Field]:
    kind = _dataclass_of(hint)
    if kind is None:
        positional = parameter.kind is not parameter.KEYWORD_ONLY
        return [_field(name, hint, parameter.default, positional)] if get_origin(hint) is Annotated else []
    marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    unfold = _mark(Unfold, marks) or Unfold(parameter.default if isinstance(parameter.default, kind) else kind())
    result = []
    for field in _of_dataclass(kind, unfold.defaults):
        if field.name in unfold.without:
            continue
        if field.name == name:
            positional = parameter.kind is not parameter.KEYWORD_ONLY
            field = _field(name, hint, parameter.default, positional) if _text(marks) else field
        group = _mark(OptionGroup, marks)
        result.append(replace(field, owner=name, group=field.group or (group.name if group else "")))
    return result


def _field(name: str, hint: Any, default: Any, positional: bool = False) -> Field:
    kind, *marks = get_args(hint)
    if not _text(marks):
        raise RecipeError(f"a setting needs Annotated[type, 'help']; '{name}' has no help", field=name)
    members = tuple(member for member in _members(kind) if not _is_dataclass(member))
    # A function also takes loaded objects in Python; the command line has the path or the plain value.
    plain = Path if Path in members else next(m for m in members if m in ACCEPTED or get_origin(m) in (tuple, Literal))
    multiple = get_origin(plain) is tuple
    if multiple:
        members = _members(get_args(plain)[0])
        plain = Path if Path in members else members[0]
    choices = tuple(str(choice) for choice in get_args(plain)) if get_origin(plain) is Literal else None
    # Literals are checked by their choices; a whole number is a number, too.
    accepted = tuple(ACCEPTED.get(member) for member in members if member is not type(None))
    flag = _mark(Flag, marks)
    metavar, group, shown = _mark(Metavar, marks), _mark(OptionGroup, marks), _mark(Shown, marks)
    required = default is inspect.Parameter.empty
    return Field(
        name=name,
        type=str if choices is not None else plain,
        help="".join(getattr(mark, "prefix", "") for mark in marks) + _text(marks),
        default=None if required else default,
        required=required,
        optional=type(None) in _members(kind),
        choices=choices,
        interval=_mark(Interval, marks),
        multiple=multiple,
        commas=_mark(Commas, marks) is not None,
        accepted=None if None in accepted else tuple(dict.fromkeys(filter(None, accepted))),
        positional=positional,
        both=positional and flag is not None,
        flag=f"--{name.strip('_').replace('_', '-')}" if flag is None else flag.name,
        short="" if flag is None else flag.short,
        metavar=None if metavar is None else metavar.text,
        group="" if group is None else group.name,
        shown=None if shown is None else shown.text,
        marks=tuple(marks),
    )


def _text(marks: Sequence[object]) -> str:
    return next((mark for mark in marks if isinstance(mark, str)), "")


def _mark(kind: type[T], marks: Sequence[object]) -> T | None:
    return next((mark for mark in marks if isinstance(mark, kind)), None)


def _members(kind: Any) -> tuple[Any, ...]:
    members = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    return tuple(Path if member == os.PathLike[str] else member for member in members)


def _is_dataclass(kind: Any) -> bool:
    """Whether a type is a dataclass of settings."""
    if not (isinstance(kind, type) and is_dataclass(kind)):
        return False
    annotations = (hint for base in kind.__mro__ for hint in vars(base).get("__annotations__", {}).values())
    return any("Annotated" in str(hint) for hint in annotations)


def _dataclass_of(hint: Any) -> Any:
    """The dataclass of settings among the types of an annotation."""
    kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return next((member for member in _members(kind) if _is_dataclass(member)), None)
