"""How a verb describes its options: one signature that Python, the command line and the server read.

A verb is a function, decorated by `verb`, whose parameters are typed by `Annotated`. The annotation carries the help
text and, where they apply, a `Range`, a `Metavar`, a `Flag`, a `OptionGroup`, `Commas` or `Shown`. `parameters` reads
the signature without importing anything heavy, so a verb's module imports numpy and torch inside its functions.

The aliases below are the options that several verbs share. A verb that has all of `DataOptions` takes
`**options: Unpack[DataOptions]`: its signature and its command name each of them.
"""

from __future__ import annotations

import inspect
import os
import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, wraps
from numbers import Integral, Real
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    ParamSpec,
    TypedDict,
    TypeVar,
    Union,
    Unpack,
    get_args,
    get_origin,
    get_type_hints,
)  # fmt: skip

from subtext.errors import ArgumentError

if TYPE_CHECKING:
    from subtext.data.dataset import Dataset


class _Named(type):
    def __instancecheck__(cls, value: object) -> bool:
        return type(value).__name__ == cls.__name__


_IN_MEMORY = {"Dataset": _Named("Dataset", (), {"__module__": "builtins"})}
"""Stands for the class in the evaluated annotations, so that options are read without numpy."""
_ACCEPTED: dict[Any, type] = {bool: bool, int: Integral, float: Real, str: str, Path: os.PathLike}
_TYPES = {bool: "True or False", Integral: "a whole number", Real: "a number", str: "text", os.PathLike: "a path"}
"""Type of an annotation -> what is accepted for it -> its name in a message."""
OPTIONS = "Arguments:"
"""Begins the part of a docstring that `verb` writes."""
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


class Metavar(str):
    """What stands for the value in a command's help, such as FILE."""


@dataclass(frozen=True)
class Flag:
    """The option's name on the command line where it is not the parameter's own; an argument may be given so, too."""

    name: str
    short: str = ""


class OptionGroup(str):
    """The heading that the option stands under in a command's help."""


class Commas:
    """A tuple that is typed as one text with commas: `5,10`. Other tuples are typed by repeating the option."""


class Shown(str):
    """The default that the help states, where None stands for it in the signature."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a verb.

    Attributes:
        type: Bool, int, float, str or Path: of the value, or of each value of a tuple.
        required: Whether it has no default.
        optional: Whether it may be None.
        choices: The values that it takes; None for any of the type.
        multiple: Whether it is a tuple; commas: whether the command line separates its values by commas.
        both: Whether an argument of the command line may also be given as an option.
        accepted: Types of a value, or of each value of a tuple; None where it may be an object that is loaded already.
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
    both: bool = False
    accepted: tuple[Any, ...] | None = None

    def __str__(self) -> str:
        """The help, with choices, range and default."""
        text = self.help.rstrip(".")
        text += f". One of {', '.join(self.choices)}" if self.choices else ""
        text += f". {str(self.range).capitalize()}" if self.range else ""
        text += "" if self.required or self.default in (None, (), False) else f". Default: {self.default!r}"
        return f"{text}."

    def check(self, value: object) -> None:
        """Raise ArgumentError for a value of another type, not among the choices, or out of range."""
        values = value if self.multiple and isinstance(value, tuple | list) else (value,)
        for item in values:
            if item is None:
                continue
            if self.accepted is not None and not isinstance(item, self.accepted):
                names = " or ".join(_TYPES[kind] for kind in self.accepted)
                got = f"an array of shape {tuple(item.shape)}; save it" if hasattr(item, "shape") else repr(item)
                raise ArgumentError(f"{self.name} needs {names}; it got {got}")
            if self.choices is not None and item not in self.choices:
                raise ArgumentError(f"{self.name} needs one of {', '.join(self.choices)}; it got {item!r}")
            if self.range is not None and isinstance(item, int | float):
                low, high = self.range.least, self.range.most
                if (low is not None and not item >= low) or (high is not None and not item <= high):
                    raise ArgumentError(f"{self.name} needs {self.range}; it got {item}")


@cache
def parameters(verb: Callable[..., Any]) -> tuple[Parameter, ...]:
    """The parameters of a verb, in the order of its signature; those without `Annotated` are left out.

    Types that are imported under TYPE_CHECKING alone must not stand inside an `Annotated`, but for `Dataset`.
    """
    hints = {name: _hint(verb, name) for name in inspect.signature(verb).parameters}
    return tuple(
        _parameter(name, hints[name], parameter)
        for name, parameter in inspect.signature(verb).parameters.items()
        if get_origin(hints[name]) is Annotated
    )


def verb(function: Callable[P, T]) -> Callable[P, T]:
    """Check the arguments of a public function against its annotations before it runs, and describe them.

    A list stands for a tuple, a value alone for a tuple of one. The docstring gets a line for each argument.

    Raises:
        ArgumentError: For a value of another type, not among the choices, or out of range.
        TypeError: If the name is unknown.
    """
    signature, hints = inspect.signature(function), dict(function.__annotations__)
    named: list[inspect.Parameter] = []
    shared: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        unpacked = _hint(function, parameter.name) if parameter.kind is parameter.VAR_KEYWORD else None
        if get_origin(unpacked) is not Unpack:
            named.append(parameter)
            continue
        options = get_type_hints(get_args(unpacked)[0], localns=_IN_MEMORY, include_extras=True)
        hints |= options
        for name in sorted(options, key=lambda option: option != "data"):
            shared.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=DEFAULTS.get(name)))
    signature = signature.replace(parameters=sorted([*shared, *named], key=lambda parameter: parameter.kind))

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            from subtext.recipes.catalogue import unknown

            names = [name for name in kwargs if name not in signature.parameters]
            advice = unknown("argument", names[0], signature.parameters) if names else str(error)
            raise TypeError(f"{function.__name__}: {advice}") from None
        for parameter in parameters(checked):
            if (value := bound.arguments.get(parameter.name)) is not None:
                if parameter.multiple and isinstance(value, str | Real | os.PathLike | list):
                    value = tuple(value) if isinstance(value, list) else (value,)
                # A number of numpy becomes one of Python, which JSON can hold.
                value = tuple(map(_plain, value)) if isinstance(value, tuple) else _plain(value)
                bound.arguments[parameter.name] = value
                parameter.check(value)
        return function(*bound.args, **bound.kwargs)

    checked.__signature__, checked.__annotations__ = signature, hints  # type: ignore[attr-defined]
    described = parameters(checked)
    # Without the help texts, which stand in the docstring, a signature can be read.
    plain = {parameter.name: get_args(_hint(checked, parameter.name))[0] for parameter in described}
    shown = [p.replace(annotation=plain.get(name, p.annotation)) for name, p in signature.parameters.items()]
    checked.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
    width = max((len(parameter.name) for parameter in described), default=0)
    table = [f"    {parameter.name:{width}}  {parameter}" for parameter in described]
    checked.__doc__ = "\n".join([(function.__doc__ or "").rstrip(), "", f"    {OPTIONS}", *table, "    "])
    return checked


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, Real) and hasattr(value, "item") else value


def _hint(verb: Callable[..., Any], name: str) -> Any:
    """The evaluated annotation of a parameter; None for a type that only type checkers import."""
    holder = types.SimpleNamespace(__annotations__={name: verb.__annotations__.get(name)})
    try:
        return get_type_hints(
            holder, globalns=inspect.unwrap(verb).__globals__, localns=_IN_MEMORY, include_extras=True
        )[name]
    except NameError:
        return None


def _parameter(name: str, hint: Any, parameter: inspect.Parameter) -> Parameter:
    kind, text, *marks = get_args(hint)
    members = _members(kind)
    # A verb also takes loaded objects in Python; the command line has the path or the plain value.
    plain = Path if Path in members else next(m for m in members if m in _ACCEPTED or get_origin(m) in (tuple, Literal))
    multiple = get_origin(plain) is tuple
    if multiple:
        members = _members(get_args(plain)[0])
        plain = Path if Path in members else members[0]
    choices = tuple(str(choice) for choice in get_args(plain)) if get_origin(plain) is Literal else None
    # Literals are checked by their choices; a whole number is a number, too.
    expected = tuple(_ACCEPTED.get(member) for member in members if member is not type(None))

    def mark(of: Callable[..., T]) -> T | None:
        return next((item for item in marks if isinstance(item, of)), None)  # type: ignore[arg-type]

    flag = mark(Flag) or Flag(f"--{name.strip('_').replace('_', '-')}")
    required, positional = parameter.default is parameter.empty, parameter.kind is not parameter.KEYWORD_ONLY
    return Parameter(
        name=name,
        type=str if choices is not None else plain,
        help=text,
        default=None if required else parameter.default,
        required=required,
        optional=type(None) in _members(kind),
        positional=positional,
        choices=choices,
        multiple=multiple,
        commas=mark(Commas) is not None,
        range=mark(Range),
        metavar=mark(Metavar),
        flag=flag.name,
        short=flag.short,
        section=mark(OptionGroup) or "",
        shown=mark(Shown),
        both=positional and mark(Flag) is not None,
        accepted=None if None in expected else tuple(dict.fromkeys(filter(None, expected))),
    )


def _members(kind: Any) -> tuple[Any, ...]:
    members = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    return tuple(Path if member == os.PathLike[str] else member for member in members)


_RUN = OptionGroup("Run")
_DATA = OptionGroup("Data")

AnyPath = str | os.PathLike[str]
"""A path, or a result that has a folder, such as a Run."""

_MODEL = OptionGroup("Model")
OptionalRun = Annotated[AnyPath | None, "Folder of a trained run.", _MODEL, Metavar("RUN")]
Pretrained = Annotated[
    AnyPath | None,
    "Pretrained dual encoder instead of RUN: a hub name or a folder (CLIP, SigLIP), or open_clip:ARCHITECTURE/WEIGHTS.",
    _MODEL,
    Metavar("NAME_OR_FOLDER"),
]
TextPrompt = Annotated[
    str | None, "Words around every text for --model, with {} in its place: 'a photo of {}'.", _MODEL, Metavar("PROMPT")
]
Run = Annotated[AnyPath, "Folder of a trained run.", _MODEL, Metavar("RUN")]
IndexArgument = Annotated[str | Path, "Folder of an index, or its address.", OptionGroup("Index"), Metavar("INDEX")]
IndexRun = Annotated[AnyPath | None, "New folder of the run of the index, if it was moved.", _RUN, Metavar("RUN")]
IndexPretrained = Annotated[
    AnyPath | None,
    "New folder of the pretrained model of the index, if it was moved.",
    _RUN,
    Metavar("NAME_OR_FOLDER"),
]
IndexData = Annotated[
    "str | Path | Dataset | None",
    "Data set: a file or folder. Default: that of the run, or of an interrupted add.",
    _DATA,
    Metavar("DATA"),
    Flag("--data"),
]
Data = Annotated["str | Path | Dataset | None", "Data set: a file or folder. Default: that of the run.", _DATA]
Images = Annotated[str | Path | None, "Folder of relative image paths.", _DATA]
Features = Annotated[
    str | Path | None, "Precomputed image features: npz, npy, h5 or a folder (docs/datasets.md).", _DATA
]
TextFeatures = Annotated[str | Path | None, "Precomputed text features, in the same formats.", _DATA]
Columns = Annotated[
    str | None,
    "Columns of a foreign table: image=filename,text=headline+caption,date=taken_on. Default: guessed by usual names.",
    _DATA,
    Metavar("ROLE=COLUMN,..."),
]
TextFields = Annotated[
    str | None,
    "Fields that are texts of an image, with commas. Default for images in a folder: headline,caption.",
    _DATA,
    Metavar("FIELD,..."),
]
SplitSeed = Annotated[int | None, "Seed of the 80-10-10 split of data without splits.", _DATA]
OnError = Annotated[Literal["raise", "skip"] | None, "What to do with rows that cannot be used.", _DATA]
Split = Annotated[str | None, "Split to use; all: the complete data set. Default: the run's validation split.", _DATA]
Device = Annotated[str, "cpu, cuda, cuda:1 or mps; auto: a GPU if there is one.", _RUN]
BatchSize = Annotated[int, "Items per batch.", Range(1), _RUN]
Workers = Annotated[int, "Threads that load data.", Range(0), _RUN]
Quiet = Annotated[bool, "Show no progress.", Flag("--quiet", "-q"), _RUN]
Bf16 = Annotated[bool | None, "Score pairs in bfloat16 if the machine supports it. Default: as in training.", _RUN]
Seed = Annotated[int, "Seed of every random choice.", _RUN]
Json = Annotated[str | Path | None, "Write the result as JSON; - for standard output.", Metavar("FILE")]


class ModelOptions(TypedDict, total=False):
    """The options of every verb that uses a model on a data set, without the data set."""

    images: Images
    features: Features
    text_features: TextFeatures
    columns: Columns
    text_fields: TextFields
    split_seed: SplitSeed
    on_error: OnError
    device: Device
    batch_size: BatchSize
    workers: Workers
    quiet: Quiet


class DataOptions(ModelOptions, total=False):
    """The same, with the data set."""

    data: Data


DEFAULTS = {"device": "auto", "batch_size": 128, "workers": 2, "quiet": False, "similarity": "cosine"}
"""The defaults of shared options; of all others None."""
