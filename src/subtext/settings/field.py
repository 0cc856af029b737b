"""One setting: its name, type, default, help and the values that it takes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from subtext.errors import ArgumentError, SubtextError
from subtext.settings.marks import Interval, IsPath
from subtext.settings.values import shown, why_no_path, why_no_text

ACCEPTED: dict[Any, type] = {bool: bool, int: Integral, float: Real, str: str, Path: os.PathLike}
"""Type of a setting -> what is accepted for it."""
_ErrorClass = type[SubtextError]
_NAMES = {bool: "true or false", Integral: "a whole number", Real: "a number", str: "text", os.PathLike: "a path"}
_YES, _NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


@dataclass(frozen=True)
class Field:
    """One setting, as `fields_of` reads it.

    Attributes:
        name: As in Python, with underscores.
        type: bool, int, float, str or Path: of the value, or of each value of a tuple.
        help: What the command line and the HTTP interface say about it.
        default: None where it is required.
        required: Whether it has no default.
        optional: Whether it may be None.
        choices: The values that it takes; None for any of the type.
        interval: The numbers that it takes; None for all of the type.
        multiple: Whether it is a tuple of values.
        commas: Whether the command line separates its values by commas.
        accepted: Types of a value, or of each value of a tuple; None where it may be an object that is loaded already.
        positional: Whether it is an argument of the command line.
        both: Whether that argument may also be given as an option.
        flag: The option of the command line; `short` its short form, or empty.
        short: See `flag`.
        metavar: What stands for the value in a command's help.
        group: The heading in a command's help.
        shown: The default that the help states, where None stands for it.
        owner: The parameter whose dataclass has this field; empty for a parameter itself.
        marks: All marks of the annotation, those of other subpackages, too.
    """

    name: str
    type: type
    help: str
    default: Any = None
    required: bool = False
    optional: bool = False
    choices: tuple[str, ...] | None = None
    interval: Interval | None = None
    multiple: bool = False
    commas: bool = False
    accepted: tuple[Any, ...] | None = None
    positional: bool = False
    both: bool = False
    flag: str = ""
    short: str = ""
    metavar: str | None = None
    group: str = ""
    shown: str | None = None
    owner: str = ""
    marks: tuple[object, ...] = ()

    def check(self, value: Any, error: _ErrorClass = ArgumentError) -> Any:
        """The value as plain Python.

        A list becomes a tuple, a number of numpy one that JSON can hold, and a path its text where the setting is text:
        the name of an encoder may be a folder.

        Args:
            value: None is accepted.
            error: What is raised.

        Returns:
            The checked value.

        Raises:
            SubtextError: The `error`, with `field`, for another type, for a value that is not among the choices, or
                out of the interval.
        """
        if value is None:
            return None
        if self.multiple:
            values = tuple(value) if isinstance(value, list | tuple) else (value,)
            return tuple(self._checked(item, error) for item in values)
        return self._checked(value, error)

    def parse(self, value: Any, error: _ErrorClass = ArgumentError) -> Any:
        """As `check`, for a value that may be text where the setting is a number or true or false.

        Args:
            value: None is accepted.
            error: What is raised.

        Returns:
            The checked value.
        """
        if isinstance(value, str) and self.choices is None:
            if self.type is bool and value.lower() in _YES + _NO:
                return value.lower() in _YES
            if self.type in (int, float):
                try:
                    value = self.type(value)
                except ValueError:
                    raise self._refused(_NAMES[ACCEPTED[self.type]], value, error) from None
        value = self.check(value, error)
        return float(value) if self.type is float and isinstance(value, int) else value

    def _checked(self, value: Any, error: _ErrorClass) -> Any:
        if value is None:
            return None
        if getattr(value, "shape", None) == () and hasattr(value, "item"):
            value = value.item()
        if self.type is str and isinstance(value, os.PathLike):
            value = os.fspath(value)
        if self.choices is not None:
            if str(value) not in self.choices or not isinstance(value, str | int | float):
                raise self._refused(f"one of {', '.join(self.choices)}", value, error)
        elif self.accepted is not None:
            number = isinstance(value, bool) and bool not in self.accepted
            if number or not isinstance(value, self.accepted):
                raise self._refused(" or ".join(_NAMES[kind] for kind in self.accepted), value, error)
        if self.interval is not None and isinstance(value, int | float) and value not in self.interval:
            raise self._refused(str(self.interval), value, error)
        if reason := self.why_not(value):
            raise error(f"{self.name} {reason}", field=self.name)
        return value

    def why_not(self, value: object) -> str:
        """Why a value is neither text nor a path, where this setting is one of them.

        Args:
            value: Of any type.

        Returns:
            What it needs, what it got and what to do; empty where it is one.
        """
        if not isinstance(value, str | os.PathLike):
            return ""
        is_path = self.type is Path or (value and any(isinstance(mark, IsPath) for mark in self.marks))
        if is_path and "://" not in str(value):
            return why_no_path(value)
        return why_no_text(value) if isinstance(value, str) else ""

    def _refused(self, needs: str, value: Any, error: _ErrorClass) -> SubtextError:
        got = shown(value) if isinstance(value, str) else repr(value)
        if hasattr(value, "shape"):
            advice = "; save it" if os.PathLike in (self.accepted or ()) else ""
            got = f"an array of shape {tuple(value.shape)}{advice}"
        return error(f"{self.name} needs {needs}; it got {got}", field=self.name)


def did_you_mean(kind: str, name: str, names: Mapping[str, object]) -> str:
    """The sentence for an unknown name, with the nearest known ones.

    Args:
        kind: What the names are, for the message.
        name: The unknown name.
        names: The known ones; where one is a `Field`, its help is searched, too: `learning_rate` finds `lr`.

    Returns:
        The sentence.
    """
    words = name.replace("_", " ").replace("-", " ").lower()
    helps = {key: field.help for key, field in names.items() if isinstance(field, Field)}
    # What a help text begins with is what it is about; a word further on may be anything.
    told = {key: text for key, text in helps.items() if re.match(rf"(?:\w+ )?{re.escape(words)}\b", text.lower())}
    matches = get_close_matches(name, list(names), n=3, cutoff=0.5)
    if told and len(words) > 3 and not get_close_matches(name, list(names), n=1, cutoff=0.8):
        matches = [min(told, key=lambda key: len(told[key]))]
    hint = f"did you mean {' or '.join(matches)}?" if matches else f"there are {', '.join(names) or 'none'}"
    return f"there is no {kind} called {shown(name)}; {hint}"
