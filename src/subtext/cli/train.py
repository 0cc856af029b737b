"""`subtext train [MODEL]`: every model recipe is a command; its options are the verb's, the recipe's and the plan's."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from subtext.api.options import parameters
from subtext.api.train import train as verb
from subtext.cli.command import HELP, Command, as_typed, click_parameter, command_help, example, flag_of
from subtext.errors import RecipeError, RequirementError
from subtext.recipes.catalogue import RECOMMENDED, Option, Recipe, methods, models, plan_options, read_method, unknown
from subtext.report.text_table import printable


class Models(click.Group):
    """A group whose commands are the model recipes; without a name `subtext train` takes the recommended one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the model first: the one that is named, or the recommended one."""
        if args and args[0].startswith("-") and args[0] not in HELP:
            name = RECOMMENDED
            ctx.meta["recommended"] = True
            for index in range(1, len(args)):
                if args[index] in models() and not args[index - 1].startswith("-"):
                    name = args.pop(index)
                    ctx.meta["recommended"] = False
                    break
            args = [name, *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the models."""
        return list(models())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a model."""
        return model_command(models()[cmd_name]) if cmd_name in models() else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The model that the first word names; an unknown one is answered with near names."""
        if args and args[0] not in models():
            advice = f"; a data set is named by --data {shlex.quote(args[0])}" if Path(args[0]).exists() else ""
            raise click.UsageError(unknown("model", args[0], models()) + advice, ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Models and methods with their summaries."""
        with formatter.section("Models (subtext train MODEL --help lists the options of one)"):
            formatter.write_dl(
                [(name + (" *" if name == RECOMMENDED else ""), recipe.summary) for name, recipe in models().items()]
            )
        with formatter.section("Methods (--with METHOD:key=value,...)"):
            formatter.write_dl(
                [
                    (":".join([name, ",".join(option.name for option in recipe.options)]), recipe.summary)
                    for name, recipe in methods().items()
                ]
            )


@click.group(
    cls=Models,
    options_metavar="",
    subcommand_metavar="[MODEL] --data DATA --out RUN [OPTIONS]",
    context_settings={"help_option_names": list(HELP)},
    epilog=example(
        "subtext train --data captions.jsonl --out runs/first",
        "subtext train pvse --data captions.jsonl --out runs/pvse --views 4 --epochs 20",
        "subtext train vse --data captions.jsonl --out runs/vse --features features.npz",
    ),
    help=f"{command_help(verb)}\n\nWithout MODEL, this trains the recommended model (*).",
)
def train() -> None:
    """The group; its help is the verb's."""


def model_command(recipe: Recipe) -> Command:
    """The command of one model."""

    def act(ctx: click.Context, arguments: dict[str, Any]) -> None:
        if ctx.meta.get("recommended") and not ctx.params["quiet"] and is_first():
            click.echo(f"no model named; training the recommended one, {recipe.name}: {recipe.summary}", err=True)
        run = verb(recipe.name, **arguments)
        if is_first():
            click.echo(printable(str(run)))
        if run.record.status == "stopped":
            ctx.exit(130)

    start = f"subtext train {recipe.name} --data captions.jsonl --out runs/{recipe.name}"
    features = " --features features.npz" if any(option.name == "image" for option in recipe.options) else ""
    return training_command(
        recipe,
        act,
        help=recipe.summary,
        examples=[start, f"{start}{features} --epochs 10"],
        usage="--data DATA --out RUN [OPTIONS]",
    )


def training_command(
    recipe: Recipe,
    act: Callable[[click.Context, dict[str, Any]], None],
    *,
    help: str,
    examples: Sequence[str],
    usage: str,
    without: Sequence[str] = (),
    more: Sequence[click.Option] = (),
) -> Command:
    """A command that trains a model: the options of `subtext.train` but for some, and more of its own.

    Args:
        act: Gets the context, and the keyword arguments of `subtext.train`.
        without: Parameters of the verb that the command does not have.
        more: Options of its own.
    """

    def act_on_arguments(ctx: click.Context) -> None:
        other = {option.name for option in more}
        with spelt_as_typed(ctx):
            act(ctx, {name: value for name, value in arguments(ctx).items() if name not in other})

    sections: dict[str, list[click.Parameter]] = {
        "Data": [],
        f"Options of {recipe.name}": [recipe_option(option) for option in recipe.options],
        "Training": [recipe_option(option) for option in plan_options(recipe.plan)],
        "Run": [],
    }
    for parameter in parameters(verb):
        if parameter.section and parameter.name not in without:
            sections[parameter.section].append(click_parameter(parameter))
    if more:
        sections["Sweep"] = list(more)
    return Command(recipe.name, act_on_arguments, sections, help=help, examples=examples, usage=usage)


def arguments(ctx: click.Context) -> dict[str, Any]:
    """The keyword arguments of `subtext.train`: those of the verb, and the options that were given.

    Raises:
        click.BadParameter: For an unknown method, or an unknown option or value of one.
    """
    try:
        for text in ctx.params["with_"]:
            read_method(text)
    except RecipeError as error:
        raise click.BadParameter(str(error), ctx, param_hint="--with") from None
    verb_names = {parameter.name for parameter in parameters(verb)}
    default = (click.core.ParameterSource.DEFAULT, click.core.ParameterSource.DEFAULT_MAP)
    values = {
        name: value
        for name, value in ctx.params.items()
        if name in verb_names or ctx.get_parameter_source(name) not in default
    }
    return values | {"quiet": ctx.params["quiet"] or not is_first()}


def is_first() -> bool:
    """Whether this is the first process, which speaks for all that `accelerate launch` started."""
    return os.environ.get("RANK", "0") == "0"


def recipe_option(option: Option) -> click.Option:
    """The option of a recipe or of the plan for click."""
    flag = flag_of(option.name)
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


@contextmanager
def spelt_as_typed(ctx: click.Context) -> Iterator[None]:
    """Errors raised meanwhile spell options as they are typed; those of a method stay as they are in --with."""
    try:
        yield
    except (RecipeError, RequirementError) as error:
        method_options = {option.name for option in methods()[error.method].options} if error.method else set()
        text = as_typed(str(error), set(ctx.params) - method_options)
        named = not error.method or error.method in text
        raise type(error)(text if named else f"--with {error.method}: {text}") from error
