"""Settings as arguments and options of click."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from subtext.errors import ArgumentError
from subtext.settings.field import Field
from subtext.settings.values import shown, why_no_path, why_no_text

_ADDRESSES = ("INDEX", "NEW", "BACKUP")
"""Metavars of paths that may be an address in a database, which stays as it was typed."""
_PLACES = ("data", "images", "image", "image_folder")
"""Settings that may name a place in an object store."""


class PathType(click.Path):
    """Any path; whether it exists is checked where it is read, so that the sentence can say what was expected there.

    Args:
        address: Whether it may also be an address in a database or a store, which stays text.
    """

    def __init__(self, *, address: bool = False) -> None:
        super().__init__(path_type=Path)
        self.address = address

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path that a word is.

        Args:
            value: As it was typed.
            param: Of the command.
            ctx: Of the call.

        Returns:
            A path; an address as text.
        """
        if self.address and "://" in str(value):
            return TEXT.convert(value, param, ctx)
        if reason := why_no_path(value):
            self.fail(reason, param, ctx)
        return super().convert(value, param, ctx)


class TextType(click.types.StringParamType):
    """Any text that can be written."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The text that a word is.

        Args:
            value: As it was typed.
            param: Of the command.
            ctx: Of the call.

        Returns:
            The text.
        """
        if reason := why_no_text(str(value)):
            self.fail(reason, param, ctx)
        return super().convert(value, param, ctx)


PATH, TEXT = PathType(), TextType()


class DescribedArgument(click.Argument):
    """An argument with a line of help, which click has in some versions alone, and in a section of its own.

    Attributes:
        description: The line.
    """

    description = ""


def to_click(field: Field, *, of_recipe: bool = False) -> click.Parameter:
    """The argument or option of a setting.

    Args:
        field: The setting.
        of_recipe: For the options of a recipe: a switch always has two sides, and the recipe checks the numbers.

    Returns:
        The argument, where the setting is positional, or the option.
    """
    kind: Any = field.type
    if field.choices is not None:
        kind = click.Choice(list(field.choices))
    elif field.type is Path:
        kind = PathType(address=field.metavar in _ADDRESSES or field.name in _PLACES)
    elif field.type is str:
        kind = TEXT
    elif field.interval is not None and not of_recipe:
        low, high = field.interval.minimum, field.interval.maximum
        if field.type is int:
            kind = click.IntRange(None if low is None else int(low), None if high is None else int(high))
        else:
            kind = click.FloatRange(low, high)
    if field.positional:
        argument = DescribedArgument(
            [field.name],
            type=kind,
            required=field.required,
            nargs=-1 if field.multiple else 1,
            metavar=field.metavar,
            **({} if field.required or field.multiple else {"default": field.default}),
        )
        argument.description = field.help
        return argument
    stated = field.default not in (None, "", (), False) or (of_recipe and field.default != "")
    shown: bool | str = field.shown or stated
    flags = [field.flag, *([field.short] if field.short else []), field.name]
    common: dict[str, Any] = {"help": field.help, "show_default": shown, "required": field.required}
    if not field.required and not field.commas and field.type is not bool:
        common["default"] = field.default
    if field.type is bool:
        if field.default is False and not of_recipe:
            return click.Option(flags, is_flag=True, default=False, help=field.help)
        flags[0] += f"/--no-{field.flag.removeprefix('--')}"
        return click.Option(flags, default=field.default, **common)
    if field.commas:
        typed = None if field.default is None else ",".join(map(str, field.default))
        read = partial(_read_commas, field)
        return click.Option(flags, type=TEXT, callback=read, metavar=field.metavar, default=typed, **common)
    return click.Option(flags, type=kind, multiple=field.multiple, metavar=field.metavar, **common)


def _read_commas(field: Field, ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[Any, ...] | None:
    """The values that a text has with commas between them."""
    if value is None:
        return None
    texts = dict.fromkeys(text.strip() for text in value.split(",") if text.strip())
    try:
        values: tuple[Any, ...] = field.check(tuple(field.type(text) for text in texts))
    except (ValueError, ArgumentError):
        kind = {int: "whole numbers", float: "numbers"}.get(field.type, "values")
        span = f", each {field.interval}" if field.interval else ""
        span += f", each one of {', '.join(field.choices)}" if field.choices else ""
        raise click.BadParameter(f"{shown(value)} needs {kind} with commas between them{span}") from None
    return values
