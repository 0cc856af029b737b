"""`python -m reproduce.weights tune HOST`: every host recipe is a command, as for `subtext train`."""

from __future__ import annotations

import click

from subtext.api.train import job_of
from subtext.cli.command import PATH, Command, example
from subtext.cli.train import Models, arguments, is_first, spelt_as_typed, training_command
from subtext.recipes.catalogue import Recipe, models

WITHOUT = ("resume", "dry_run")
"""Options of `subtext train` that there is nothing to say with: the command goes on by itself."""


class Hosts(Models):
    """The group whose commands are the model recipes; one has to be named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The words as they are: no model is recommended."""
        return click.Group.parse_args(self, ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a model."""
        return _command(models()[cmd_name]) if cmd_name in models() else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The models with their summaries."""
        click.Group.format_commands(self, ctx, formatter)


@click.group(
    cls=Hosts,
    options_metavar="",
    subcommand_metavar="HOST --data DATA --with combined:graph=GRAPH,... --out DIR [OPTIONS]",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=example("python -m reproduce.weights tune pvse --data pairs.jsonl --with combined:graph=g --out sweep"),
)
def tune() -> None:
    """Choose beta and gamma of the method combined (COMBINED-VAL) by validation, on a small subset."""


def _command(recipe: Recipe) -> Command:
    sweep = [
        click.Option(
            ["--subset"],
            type=click.IntRange(2),
            default=1000,
            show_default=True,
            help="Training pictures, drawn once by the seed; all where there are no more.",
        ),
        click.Option(["--json", "file"], type=PATH, metavar="FILE", help="Write what is printed as JSON, too."),
    ]
    command = training_command(
        recipe,
        lambda ctx: _tune(ctx, recipe),
        without=WITHOUT,
        more=sweep,
        help=f"""Train the nine ratios of the paper for {recipe.name}, and say which does best on validation.

        1:1, 1:2, 2:1, 1:3, 3:1, 1:4, 4:1, 1:5 and 5:1, each on the same subset with the same options and seed, judged
        by what selects the epoch (--select); of equals the first. Options are those of `subtext train {recipe.name}`;
        the last line is the one to train with.""",
        examples=[
            f"python -m reproduce.weights tune {recipe.name} --data pairs.jsonl --with combined:graph=g --out sweep",
        ],
        usage="--data DATA --with combined:graph=GRAPH,... --out DIR [OPTIONS]",
    )
    command.short_help = recipe.summary
    for option in command.params:
        if isinstance(option, click.Option) and option.name == "out":
            option.help, option.metavar = "Folder with a run for each ratio; the same command goes on there.", "DIR"
    return command


def _tune(ctx: click.Context, recipe: Recipe) -> None:
    own = {"subset", "file"}
    job = job_of(recipe.name, {name: value for name, value in arguments(ctx).items() if name not in own})
    from reproduce.weights.ratio_sweep import tune as carry_out

    with spelt_as_typed(ctx):
        tuned = carry_out(job, subset=ctx.params["subset"], spelt=ctx.params["with_"], file=ctx.params["file"])
    if is_first():
        click.echo(tuned.text)
    if tuned.stopped:
        ctx.exit(130)
