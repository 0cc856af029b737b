"""`subtext weights tune HOST`: every host recipe is a command, as for `subtext train`."""

from __future__ import annotations

import click

from subtext.cli.command import PATH, Command, example
from subtext.cli.train import job_of, require_host, run_options, sections, speaks, spelt_as_typed
from subtext.recipes.catalogue import Recipe, hosts

WITHOUT = ("resume", "dry_run")
"""Options of `subtext train` that there is nothing to say with: the command goes on by itself."""


class Hosts(click.Group):
    """The group whose commands are the host recipes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The hosts' names."""
        return list(hosts())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a host."""
        return _command(hosts()[cmd_name]) if cmd_name in hosts() else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The host that the first word names; an unknown one is answered with near names."""
        require_host(ctx, args)
        return super().resolve_command(ctx, args)


@click.group(
    cls=Hosts,
    options_metavar="",
    subcommand_metavar="HOST --data DATA --with combined:graph=GRAPH,... --out DIR [OPTIONS]",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=example("subtext weights tune pvse --data pairs.jsonl --with combined:graph=graphs/d2v --out sweep"),
)
def tune() -> None:
    """Choose beta and gamma of the method combined (COMBINED-VAL) by validation, on a small subset."""


def _command(recipe: Recipe) -> Command:
    run = [option for option in run_options() if option.name not in WITHOUT]
    for option in run:
        if option.name == "out":
            option.help, option.metavar = "Folder with a run for each ratio; the same command goes on there.", "DIR"
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
    command = Command(
        recipe.name,
        lambda ctx: _tune(ctx, recipe),
        {**sections(recipe, run), "Sweep": sweep},
        help=f"""Train the nine ratios of the paper for {recipe.name}, and say which does best on validation.

        1:1, 1:2, 2:1, 1:3, 3:1, 1:4, 4:1, 1:5 and 5:1, each on the same subset with the same options and seed, judged
        by what selects the epoch (--select); of equals the first. Options are those of `subtext train {recipe.name}`;
        the last line is the one to train with.""",
        examples=[
            f"subtext weights tune {recipe.name} --data pairs.jsonl --with combined:graph=graphs/d2v --out sweep",
        ],
        usage="--data DATA --with combined:graph=GRAPH,... --out DIR [OPTIONS]",
    )
    command.short_help = recipe.summary
    return command


def _tune(ctx: click.Context, recipe: Recipe) -> None:
    job = job_of(ctx, recipe, quiet=ctx.params["quiet"] or not speaks())
    from reproduce.weight_tuning import tune as carry_out

    with spelt_as_typed(ctx):
        tuned = carry_out(job, subset=ctx.params["subset"], spelt=ctx.params["with_"], file=ctx.params["file"])
    if speaks():
        click.echo(tuned.text)
    if tuned.stopped:
        ctx.exit(130)
