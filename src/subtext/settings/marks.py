"""What stands beside a help text in an annotation: `Annotated[int, "help", Interval(1), Metavar("N")]`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import isfinite
from typing import Any


@dataclass(frozen=True)
class Interval:
    """The finite numbers that a setting takes; a bound of None is no bound.

    Attributes:
        minimum: The smallest number, included.
        maximum: The largest number, included.
        above: A lower bound that is not included.
        below: An upper bound that is not included.
    """

    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    below: float | None = None

    def __contains__(self, number: float) -> bool:
        return (
            isfinite(number)
            and (self.minimum is None or number >= self.minimum)
            and (self.maximum is None or number <= self.maximum)
            and (self.above is None or number > self.above)
            and (self.below is None or number < self.below)
        )

    def __str__(self) -> str:
        """The interval in words, for a message: "1 or more", "a number in [0, 1)"."""
        low, high = self.minimum, self.maximum
        if self.below is not None:
            left = f"({self.above:g}" if low is None and self.above is not None else f"[{low or 0:g}"
            return f"a number in {left}, {self.below:g})"
        if self.above is not None:
            return f"a number above {self.above:g}" + ("" if high is None else f", at most {high:g}")
        if low is not None and high is not None:
            return f"a number from {low:g} to {high:g}"
        return f"{low:g} or more" if low is not None else f"{high:g} or less"


@dataclass(frozen=True)
class Metavar:
    """What stands for the value in a command's help, such as FILE.

    Attributes:
        text: As it is shown.
    """

    text: str


@dataclass(frozen=True)
class Flag:
    """The option's name on the command line where it is not the parameter's own; an argument may be given so, too.

    Attributes:
        name: With its hyphens: `--with`.
        short: A short form, such as `-q`; empty for none.
    """

    name: str
    short: str = ""


@dataclass(frozen=True)
class OptionGroup:
    """The heading that the option stands under in a command's help.

    Attributes:
        name: Of the heading.
    """

    name: str


@dataclass(frozen=True)
class Commas:
    """A tuple that is typed as one text with commas: `5,10`. Other tuples are typed by repeating the option."""


@dataclass(frozen=True)
class Shown:
    """The default that the help states, where None stands for it in the signature.

    Attributes:
        text: Of the default.
    """

    text: str


@dataclass(frozen=True)
class IsPath:
    """The value is a file or folder. Its absolute path is stored, so that a run opens from everywhere."""


@dataclass(frozen=True)
class Unfold:
    """The parameter is also a dataclass, whose fields are settings of their own.

    Attributes:
        defaults: An instance; its values are the defaults.
        without: Names of fields that the function does not read.
    """

    defaults: Any
    without: Collection[str] = ()
