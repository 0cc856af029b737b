"""`subtext train [MODEL]`: each model is a command; its options are those of the function, the model and the plan."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

import subtext
from subtext.api.train import flat_arguments
from subtext.cli.command import HELP, Command, command_help, example
from subtext.cli.commands import COMMANDS
from subtext.errors import RecipeError
from subtext.recipes.catalogue import RECOMMENDED, Recipe, methods, models, plan_options, read_method
from subtext.report.text_table import printable
from subtext.settings import did_you_mean, fields_of
from subtext.settings.to_click import to_click


class Models(click.Group):
    """A group whose commands are the model recipes; without a name `subtext train` takes the recommended one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the model first: the one that is named, or the recommended one.

        Args:
            ctx: Of the call.
            args: Words that were typed.

        Returns:
            Words that are left.
        """
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
        """The names of the models.

        Args:
            ctx: Of the call.

        Returns:
            Names of the models.
        """
        return list(models())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a model.

        Args:
            ctx: Of the call.
            cmd_name: As it was typed.

        Returns:
            The command; None for an unknown model.
        """
        return model_command(models()[cmd_name]) if cmd_name in models() else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The model that the first word names; an unknown one is answered with the nearest names.

        Args:
            ctx: Of the call.
            args: Words that were typed.

        Returns:
            Name, command and the words after the name.

        Raises:
            click.UsageError: For an unknown model.
        """
        if args and args[0] not in models():
            advice = f"; a data set is named by --data {shlex.quote(args[0])}" if Path(args[0]).exists() else ""
            raise click.UsageError(did_you_mean("model", args[0], models()) + advice, ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Models and methods with their summaries.

        Args:
            ctx: Of the call.
            formatter: Receives the lists.
        """
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
    epilog=example(*COMMANDS["train"].examples),
    help=f"{command_help(subtext.train)}\n\nWithout MODEL, this trains the recommended model (*).",
)
def train() -> None:
    """The group; its help is the function's."""


def model_command(recipe: Recipe) -> Command:
    """The command of one model.

    Args:
        recipe: The model.

    Returns:
        The command; its options are the model's and those of `subtext.train`.
    """

    def act(ctx: click.Context, arguments: dict[str, Any]) -> None:
        if ctx.meta.get("recommended") and not ctx.params["quiet"] and is_first():
            click.echo(f"no model named; training the recommended one, {recipe.name}: {recipe.summary}", err=True)
        run = subtext.train(recipe.name, **flat_arguments(recipe.name, arguments))
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
        recipe: The model.
        act: Gets the context, and flat arguments of `subtext.train`; see `flat_arguments`.
        help: The paragraphs of its help.
        examples: Lines that the help shows.
        usage: What stands after the command's name.
        without: Settings of the function that the command does not have.
        more: Options of its own.

    Returns:
        The command.
    """

    def act_on_arguments(ctx: click.Context) -> None:
        act(ctx, arguments(ctx, recipe))

    sections: dict[str, list[click.Parameter]] = {
        "Data": [],
        f"Options of {recipe.name}": [to_click(option, of_recipe=True) for option in recipe.options],
        "Training": [to_click(option, of_recipe=True) for option in plan_options(recipe.plan)],
        "Run": [],
    }
    for field in fields_of(subtext.train):
        if field.owner != "plan" and field.group and field.name not in without:
            sections[field.group].append(to_click(field))
    if more:
        sections["Sweep"] = list(more)
    return Command(recipe.name, act_on_arguments, sections, help=help, examples=examples, usage=usage)


def arguments(ctx: click.Context, recipe: Recipe) -> dict[str, Any]:
    """Flat arguments of `subtext.train`; of the model's options and the plan, those that were given.

    Args:
        ctx: Its `params` hold the values.
        recipe: The model.

    Returns:
        Value by name, for `flat_arguments`.

    Raises:
        click.BadParameter: For an unknown method, or an unknown option or value of one.
    """
    try:
        for text in ctx.params["methods"]:
            read_method(text)
    except RecipeError as error:
        raise click.BadParameter(str(error), ctx, param_hint="--with") from None
    default = (click.core.ParameterSource.DEFAULT, click.core.ParameterSource.DEFAULT_MAP)
    given = {name for name in ctx.params if ctx.get_parameter_source(name) not in default}
    # Of a model and its plan only what was given; the rest is the recipe's.
    recipes = {option.name for option in [*recipe.options, *plan_options(recipe.plan)]}
    more = {field.name for field in fields_of(subtext.train)}
    values = {name: value for name, value in ctx.params.items() if name in (recipes & given) | (more - recipes)}
    return values | {"quiet": ctx.params["quiet"] or not is_first()}


def is_first() -> bool:
    """Whether this is the first process, which speaks for all that a launcher started.

    Returns:
        True without a launcher.
    """
    return os.environ.get("RANK", "0") == "0"
