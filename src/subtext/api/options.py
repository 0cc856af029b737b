"""How a verb describes its options: one signature that Python, the command line and the server read.

A verb is a function, decorated by `verb`, whose parameters are typed by `Annotated`. The annotation carries the help
text and, where they apply, a `Range`, a `Metavar`, a `Flag`, a `Section`, `Commas` or `Shown`. `parameters` reads the
signature without importing anything heavy, so a verb's module imports numpy and torch inside its functions.

The aliases below are the options that several verbs share.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Range:
    """The numbers that an option takes: `least` and `most` are included; None for no bound."""

    least: float | None = None
    most: float | None = None

    def __str__(self) -> str:
        if self.least is not None and self.most is not None:
            return f"a number from {self.least:g} to {self.most:g}"
        return f"{self.least:g} or more" if self.least is not None else f"{self.most:g} or less"


@dataclass(frozen=True)
class Metavar:
    """What stands for the value in a command's help, such as FILE."""

    name: str


@dataclass(frozen=True)
class Flag:
    """The option's name on the command line where it is not the parameter's own."""

    name: str
    short: str = ""


@dataclass(frozen=True)
class Section:
    """The heading that the option stands under in a command's help."""

    name: str


@dataclass(frozen=True)
class Commas:
    """A tuple that is typed as one text with commas: `5,10`. Other tuples are typed by repeating the option."""


@dataclass(frozen=True)
class Shown:
    """The default that the help states, where None stands for it in the signature."""

    value: str


@dataclass(frozen=True)
class Parameter:
    """One parameter of a verb.

    type      bool, int, float, str or Path: of the value, or of each value of a tuple
    choices   the values that it takes; None for any of the type
    multiple  whether it is a tuple; commas: whether the command line separates its values by commas
    required  whether it has no default
    optional  whether it may be None
    """

    name: str
    type: type
    help: str
    default: Any
    required: bool
    optional: bool
    positional: bool
    choices: tuple[str, ...] | None = None
    multiple: bool = False
    commas: bool = False
    range: Range | None = None
    metavar: str | None = None
    flag: str = ""
    short: str = ""
    section: str = ""
    shown: str | None = None

    def check(self, value: object) -> None:
        """Raise ArgumentError for a value that is not among the choices, or out of range."""
        from subtext.errors import ArgumentError

        values = value if self.multiple and isinstance(value, tuple | list) else (value,)
        for item in values:
            if item is None:
                continue
            if self.choices is not None and item not in self.choices:
                raise ArgumentError(f"{self.name} needs one of {', '.join(self.choices)}; it got {item!r}")
            if self.range is not None and isinstance(item, int | float):
                low, high = self.range.least, self.range.most
                if (low is not None and not item >= low) or (high is not None and not item <= high):
                    raise ArgumentError(f"{self.name} needs {self.range}; it got {item}")


@cache
def parameters(verb: Callable[..., Any]) -> tuple[Parameter, ...]:
    """The parameters of a verb, in the order of its signature; those without `Annotated` are left out.

    Types that are imported under TYPE_CHECKING alone must not stand inside an `Annotated`.
    """
    signature = inspect.signature(verb)
    described = {name: hint for name, hint in verb.__annotations__.items() if name in signature.parameters}
    hints = _hints(verb, described)
    return tuple(
        _parameter(name, hints[name], signature.parameters[name])
        for name in signature.parameters
        if get_origin(hints.get(name)) is Annotated
    )


def verb(function: Callable[P, T]) -> Callable[P, T]:
    """Check the arguments of a public function against its annotations before it runs.

    Raises ArgumentError for a value that is not among the choices, or out of range.
    """
    signature = inspect.signature(function)

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        values = signature.bind(*args, **kwargs).arguments
        for parameter in parameters(checked):
            if parameter.name in values:
                parameter.check(values[parameter.name])
        return function(*args, **kwargs)

    return checked


def _hints(verb: Callable[..., Any], described: dict[str, Any]) -> dict[str, Any]:
    """The evaluated annotations; a name that only type checkers import is left out."""
    hints: dict[str, Any] = {}
    for name, hint in described.items():
        holder = types.SimpleNamespace(__annotations__={name: hint})
        try:
            hints |= get_type_hints(holder, globalns=inspect.unwrap(verb).__globals__, include_extras=True)
        except NameError:
            continue
    return hints


def _parameter(name: str, hint: Any, parameter: inspect.Parameter) -> Parameter:
    kind, text, *marks = get_args(hint)
    members = [member for member in _members(kind) if member is not type(None)]
    optional = len(members) < len(_members(kind))
    # A verb also takes loaded objects in Python; the command line has the path or the plain value.
    plain = next(member for member in members if _is_plain(member))
    if Path in members:
        plain = Path
    multiple = get_origin(plain) is tuple
    if multiple:
        inner = get_args(plain)[0]
        plain = Path if Path in _members(inner) else _members(inner)[0]
    choices = tuple(str(choice) for choice in get_args(plain)) if get_origin(plain) is Literal else None

    def mark(of: type) -> Any:
        return next((item for item in marks if isinstance(item, of)), None)

    flag, shown, metavar, section = mark(Flag), mark(Shown), mark(Metavar), mark(Section)
    return Parameter(
        name=name,
        type=str if choices is not None else plain,
        help=text,
        default=None if parameter.default is parameter.empty else parameter.default,
        required=parameter.default is parameter.empty,
        optional=optional,
        positional=parameter.kind is not parameter.KEYWORD_ONLY,
        choices=choices,
        multiple=multiple,
        commas=mark(Commas) is not None,
        range=mark(Range),
        metavar=metavar.name if metavar else None,
        flag=flag.name if flag else f"--{name.strip('_').replace('_', '-')}",
        short=flag.short if flag else "",
        section=section.name if section else "",
        shown=shown.value if shown else None,
    )


def _members(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _is_plain(kind: Any) -> bool:
    return kind in (bool, int, float, str, Path) or get_origin(kind) in (tuple, Literal)


Run = Annotated[str | Path, "Folder of a trained run.", Section("Model"), Metavar("RUN")]
Data = Annotated[
    str | Path | None,
    "Data set: a file or folder. Default: the run's own.",
    Section("Data"),
]
Images = Annotated[str | Path | None, "Folder that image paths start from.", Section("Data")]
Features = Annotated[
    str | Path | None,
    "Precomputed image features: npz, npy, h5 or a folder (docs/datasets.md).",
    Section("Data"),
]
TextFeatures = Annotated[str | Path | None, "Precomputed text features, in the same formats.", Section("Data")]
SplitSeed = Annotated[int | None, "Seed of the 80-10-10 split of data without splits.", Section("Data")]
OnError = Annotated[
    Literal["raise", "skip"] | None,
    "What to do with rows that cannot be used.",
    Section("Data"),
]
Split = Annotated[str | None, "Split to use, or all. Default: the run's validation split.", Section("Data")]
Device = Annotated[str, "cpu, cuda, cuda:1 or mps; auto: a GPU if there is one.", Section("Run")]
BatchSize = Annotated[int, "Items per batch.", Range(1), Section("Run")]
Workers = Annotated[int, "Threads that load data.", Range(0), Section("Run")]
Quiet = Annotated[bool, "Show no progress.", Flag("--quiet", "-q"), Section("Run")]
Bf16 = Annotated[
    bool | None,
    "Score pairs in bfloat16 where the machine supports it. Default: as the model was trained.",
    Section("Run"),
]
Seed = Annotated[int, "Seed of every random choice.", Section("Run")]
Json = Annotated[str | Path | None, "Write the result as JSON; - for standard output.", Flag("--json"), Metavar("FILE")]
