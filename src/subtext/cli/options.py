"""Options of recipes and of the training plan on the command line; nothing heavy is imported for them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from subtext.recipes.catalogue import Option


def recipe_option(option: Option) -> click.Option:
    """The option of a recipe or of the plan for click."""
    flag = _flag(option.name)
    if option.type is bool:
        flags = [f"{flag}/--no-{flag.removeprefix('--')}", option.name]
        return click.Option(flags, default=bool(option.default), show_default=True, help=option.help)
    return click.Option(
        [flag, option.name],
        type=click.Choice([str(choice) for choice in option.choices]) if option.choices else option.type,
        default=option.default,
        show_default=option.default is not None and option.default != "",
        help=option.help,
    )


def old_flags(options: Iterable[Option]) -> dict[str, str]:
    """Old flag -> flag, for options that were renamed."""
    flags: dict[str, str] = {}
    for option in options:
        if option.old_name:
            flags[_flag(option.old_name)] = _flag(option.name)
            if option.type is bool:
                flags[_flag(f"no_{option.old_name}")] = _flag(f"no_{option.name}")
    return flags


def as_typed(message: str, names: Collection[str]) -> str:
    """A message that spells options as Python does, with each of them as it is typed: `lr needs` -> `--lr needs`.

    `name=value` anywhere, a name at the start or before " is " or after "leave ", and a name of several words anywhere.

    >>> as_typed("token_mask needs text=gru; text is bag; leave token_mask out", ["token_mask", "text"])
    '--token-mask needs --text gru; --text is bag; leave --token-mask out'
    """
    either = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    before, after = r"(?<![\w./=-])", r"(?![\w./-])"
    message = re.sub(rf"{before}({either})=(True|False){after}", _switch, message)
    message = re.sub(rf"{before}({either})=(?=\S)", lambda match: f"{_flag(match[1])} ", message)
    message = re.sub(rf"(^|; |leave )({either})(?= needs | is | out\b)", lambda m: m[1] + _flag(m[2]), message)
    several = "|".join(name for name in either.split("|") if "_" in name)
    return re.sub(rf"{before}({several}){after}", lambda match: _flag(match[1]), message) if several else message


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _switch(match: re.Match[str]) -> str:
    flag = _flag(match[1])
    return flag if match[2] == "True" else flag.replace("--", "--no-", 1)
