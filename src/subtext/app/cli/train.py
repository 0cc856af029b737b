"""`subtext train [HOST]`: every host recipe is a command whose options are its signature, the plan and the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, cast

import click

from subtext.app.cli.command import PATH, Sectioned, example, unknown
from subtext.app.cli.options import chosen, click_option, parse_methods, plan_options
from subtext.app.job import Job, Sources
from subtext.recipes.catalogue import RECOMMENDED, Recipe, hosts, methods

RECIPE, PLAN = "recipe__", "plan__"
HELP = ("-h", "--help")


class Hosts(click.Group):
    """The group whose commands are the host recipes; without a host it takes the recommended one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the host first: the one that is named, or the recommended one."""
        if args and args[0].startswith("-") and args[0] not in HELP:
            ctx.meta["recommended"] = True
            name = RECOMMENDED
            for place in range(1, len(args)):
                if args[place] in hosts() and not args[place - 1].startswith("-"):
                    name = args.pop(place)
                    ctx.meta["recommended"] = False
                    break
            args = [name, *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The hosts' names."""
        return list(hosts())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a host."""
        return host_command(hosts()[cmd_name]) if cmd_name in hosts() else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The host that the first word names; an unknown one is answered with near names."""
        if args and args[0] not in hosts():
            raise click.UsageError(unknown("host", args[0], hosts()), ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Hosts and methods with their summaries."""
        with formatter.section("Hosts (subtext train HOST --help lists the options of one)"):
            formatter.write_dl(
                [(name + (" *" if name == RECOMMENDED else ""), recipe.summary) for name, recipe in hosts().items()]
            )
        with formatter.section("Methods (--with METHOD:key=value,...)"):
            formatter.write_dl([(_method_usage(recipe), recipe.summary) for recipe in methods().values()])


class Host(Sectioned):
    """Training with one host recipe."""

    recipe: Recipe

    def invoke(self, ctx: click.Context) -> Any:
        """Collect what was asked for into a Job and carry it out."""
        from subtext.app.training import train as carry_out

        job = _job(ctx, self.recipe)
        if ctx.meta.get("recommended") and not job.quiet:
            click.echo(f"no host named; taking the recommended one, {job.host}: {self.recipe.summary}", err=True)
        click.echo(carry_out(job))


@click.group(
    cls=Hosts,
    options_metavar="",
    subcommand_metavar="[HOST] --data DATA --out RUN [OPTIONS]",
    context_settings={"help_option_names": list(HELP)},
    epilog=example(
        "subtext train --data captions.jsonl --out runs/first",
        "subtext train pvse --data captions.jsonl --out runs/pvse --views 4 --epochs 20",
        "subtext train vse --data captions.jsonl --out runs/vse --features features.npz",
    ),
)
def train() -> None:
    """Train a model on pairs of pictures and texts, and keep it in the folder RUN.

    Without HOST the recommended one (*) is taken. DATA is anything that `subtext data check` reads.
    """


def host_command(recipe: Recipe) -> Host:
    """The command of one host."""
    recipe_options = [click_option(option, RECIPE) for option in recipe.options]
    training = [click_option(option, PLAN) for option in plan_options(recipe.plan)]
    data, run = _data_options(), _run_options()
    command = Host(
        recipe.name,
        params=[*data, *recipe_options, *training, *run],
        help=recipe.summary,
        options_metavar="--data DATA --out RUN [OPTIONS]",
        context_settings={"help_option_names": list(HELP)},
        epilog=example(
            f"subtext train {recipe.name} --data captions.jsonl --out runs/{recipe.name}",
            f"subtext train {recipe.name} --data captions.jsonl --out runs/{recipe.name} --features features.npz"
            " --epochs 10",
        ),
    )
    command.recipe = recipe
    sections = {"Data": data, f"Options of {recipe.name}": recipe_options, "Training": training, "Run": run}
    command.headings = {
        option.name: heading for heading, options in sections.items() for option in options if option.name
    }
    return command


def _data_options() -> list[click.Option]:
    return [
        click.Option(["--data"], type=PATH, required=True, help="Data set: file or folder.", metavar="DATA"),
        click.Option(["--images"], type=PATH, help="Folder that picture paths start from."),
        click.Option(["--features"], type=PATH, help="Precomputed picture features: npz with names, pooled, grid."),
        click.Option(["--text-features"], type=PATH, help="Precomputed text features, likewise."),
        click.Option(["--train-split"], default="train", show_default=True, help="Split that is learnt from."),
        click.Option(
            ["--val-split"], default="val", show_default=True, help="Split that selects the epoch; none for no selection."
        ),
        click.Option(
            ["--split-seed"], default=0, show_default=True, help="Seed of the 80-10-10 split of data without splits."
        ),
        click.Option(
            ["--bad"],
            type=click.Choice(["refuse", "skip"]),
            default="refuse",
            show_default=True,
            help="What to do with rows that cannot be used.",
        ),
    ]


def _run_options() -> list[click.Option]:
    return [
        click.Option(["--out"], type=PATH, required=True, help="Folder of the run; new, or --resume.", metavar="RUN"),
        click.Option(
            ["--with", "with_"], multiple=True, metavar="METHOD[:key=value,...]", help="A training method; repeatable."
        ),
        click.Option(["--seed"], default=0, show_default=True, help="Seed of every random draw."),
        click.Option(["--device"], default="auto", show_default=True, help="cpu, cuda, mps; auto: a GPU if there is one."),
        click.Option(["--workers"], default=2, show_default=True, help="Threads that read ahead."),
        click.Option(["--resume"], is_flag=True, help="Go on from the last checkpoint in RUN."),
        click.Option(["--checkpoint-every"], default=0, help="Steps between checkpoints; 0: at the end of each epoch."),
        click.Option(["--keep"], default=1, show_default=True, help="Checkpoints kept."),
        click.Option(["--cache"], type=PATH, help="Folder for outputs of frozen encoders; RUN/cache if not given."),
        click.Option(["--tensorboard"], is_flag=True, help="Also write TensorBoard logs (extra: tensorboard)."),
        click.Option(["--dry-run"], is_flag=True, help="Build everything, say how large it is, train nothing."),
        click.Option(["--quiet", "-q"], is_flag=True, help="No progress."),
    ]


def _job(ctx: click.Context, recipe: Recipe) -> Job:
    values = ctx.params
    run_names = ("seed", "device", "workers", "resume", "checkpoint_every", "keep", "cache", "tensorboard")
    return Job(
        host=recipe.name,
        arguments=chosen(ctx, RECIPE, given_only=False),
        methods=tuple(parse_methods(values["with_"], methods())),
        plan=chosen(ctx, PLAN, given_only=True),
        sources=_sources(ctx),
        out=cast(Path, values["out"]),
        run={name: values[name] for name in run_names},
        dry_run=values["dry_run"],
        quiet=values["quiet"],
    )


def _sources(ctx: click.Context) -> Sources:
    values = ctx.params
    return Sources(
        data=values["data"],
        images=values["images"],
        features=values["features"],
        text_features=values["text_features"],
        train_split=values["train_split"],
        val_split=None if values["val_split"] == "none" else values["val_split"],
        split_seed=values["split_seed"],
        bad=cast(Literal["refuse", "skip"], values["bad"]),
    )


def _method_usage(recipe: Recipe) -> str:
    return recipe.name + (":" + ",".join(option.name for option in recipe.options) if recipe.options else "")
