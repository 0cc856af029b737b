"""Recipe signatures and the training plan as command-line options; nothing heavy is imported for it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path

import click

from subtext.errors import RecipeError
from subtext.recipes.catalogue import Option, Recipe, unknown


def click_option(option: Option, prefix: str) -> click.Option:
    """The option for click; its parameter is called `prefix` + name, so that recipes and runs may share words."""
    flag = _flag(option.name)
    if option.type is bool:
        return click.Option(
            [f"{flag}/--no-{flag.removeprefix('--')}", prefix + option.name],
            default=bool(option.default),
            show_default=True,
            help=option.help,
        )
    return click.Option(
        [flag, prefix + option.name],
        type=click.Choice([str(choice) for choice in option.choices]) if option.choices else option.type,
        default=None if option.default is None else option.default,
        show_default=option.default is not None and option.default != "",
        help=option.help,
    )


def as_typed(message: str, names: Collection[str]) -> str:
    """A message that spells options as Python does, with each of them as it is typed: `lr needs` -> `--lr needs`.

    `name=value` anywhere, a name at the start or before " is " or after "leave ", and a name of several words anywhere.

    >>> as_typed("token_mask needs text=gru; text is bag; leave token_mask out", ["token_mask", "text"])
    '--token-mask needs --text gru; --text is bag; leave --token-mask out'
    """
    either = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    before, after = r"(?<![\w./=-])", r"(?![\w./-])"
    message = re.sub(rf"{before}({either})=(True|False){after}", _switch, message)
    message = re.sub(rf"{before}({either})=(?=\S)", lambda found: f"{_flag(found[1])} ", message)
    message = re.sub(rf"(^|; |leave )({either})(?= needs | is | out\b)", lambda f: f[1] + _flag(f[2]), message)
    several = "|".join(name for name in either.split("|") if "_" in name)
    return re.sub(rf"{before}({several}){after}", lambda found: _flag(found[1]), message) if several else message


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _switch(found: re.Match[str]) -> str:
    flag = _flag(found[1])
    return flag if found[2] == "True" else flag.replace("--", "--no-", 1)


def chosen(ctx: click.Context, prefix: str, *, given_only: bool) -> dict[str, object]:
    """Values of the options with that prefix, by the recipe's own names; `given_only` leaves defaults out."""
    default = (click.core.ParameterSource.DEFAULT, click.core.ParameterSource.DEFAULT_MAP)
    return {
        name.removeprefix(prefix): value
        for name, value in ctx.params.items()
        if name.startswith(prefix) and not (given_only and ctx.get_parameter_source(name) in default)
    }


def parse_methods(ctx: click.Context, name: str, known: Mapping[str, Recipe]) -> list[tuple[str, dict[str, object]]]:
    """`mithun:strength=0.5,hard=no` as ("mithun", {"strength": 0.5, "hard": False}), each in order.

    name  of the context's parameter that holds the texts

    Raises click.BadParameter for a method, option or value that does not exist, with near names.
    """
    try:
        return [_parse_method(text, known) for text in ctx.params[name]]
    except RecipeError as error:
        raise click.BadParameter(str(error), ctx, param_hint="--with") from None


def _parse_method(text: str, known: Mapping[str, Recipe]) -> tuple[str, dict[str, object]]:
    name, _, rest = text.partition(":")
    if name not in known:
        raise RecipeError(unknown("method", name, known))
    options = {option.name: option for option in known[name].options}
    arguments: dict[str, object] = {option.name: option.default for option in options.values()}
    for piece in filter(None, rest.split(",")):
        key, equals, value = piece.partition("=")
        key = key.strip().replace("-", "_")
        if not equals:
            raise RecipeError(f"'{piece}' needs the form option=value")
        if key not in options:
            raise RecipeError(unknown(f"option of the method {name}", key, options))
        value = value.strip()
        if options[key].place and value:
            value = str(Path(value).expanduser().absolute())
        arguments[key] = options[key].read(value)
    return name, arguments
