"""`subtext train [HOST]`: every host recipe is a command whose options are its signature, the plan and the run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import click

from subtext.api.job import Job, Sources
from subtext.cli.command import (
    HELP,
    PATH,
    Command,
    device_option,
    example,
    quiet_option,
    workers_option,
)
from subtext.cli.options import as_typed, chosen, click_option, parse_methods
from subtext.errors import RecipeError, RequirementError
from subtext.recipes.catalogue import RECOMMENDED, Recipe, hosts, methods, plan_options, unknown

RECIPE, PLAN = "recipe__", "plan__"


def require_host(ctx: click.Context, args: Sequence[str]) -> None:
    """Raise UsageError, with near names, where the first word is no host."""
    if args and args[0] not in hosts():
        raise click.UsageError(unknown("host", args[0], hosts()), ctx)


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
        require_host(ctx, args)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Hosts and methods with their summaries."""
        with formatter.section("Hosts (subtext train HOST --help lists the options of one)"):
            formatter.write_dl(
                [(name + (" *" if name == RECOMMENDED else ""), recipe.summary) for name, recipe in hosts().items()]
            )
        with formatter.section("Methods (--with METHOD:key=value,...)"):
            formatter.write_dl([(_method_usage(recipe), recipe.summary) for recipe in methods().values()])


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


def host_command(recipe: Recipe) -> Command:
    """The command of one host."""
    start = f"subtext train {recipe.name} --data captions.jsonl --out runs/{recipe.name}"
    return Command(
        recipe.name,
        lambda ctx: _carry_out(ctx, recipe),
        sections(recipe, run_options()),
        help=recipe.summary,
        examples=[start, f"{start} --features features.npz --epochs 10"],
        usage="--data DATA --out RUN [OPTIONS]",
    )


def sections(recipe: Recipe, run: Sequence[click.Option]) -> Mapping[str, Sequence[click.Parameter]]:
    """What a command that trains a host is told: data, the host's options, the plan's, and these of the run."""
    return {
        "Data": _data_options(),
        f"Options of {recipe.name}": [click_option(option, RECIPE) for option in recipe.options],
        "Training": [click_option(option, PLAN) for option in plan_options(recipe.plan)],
        "Run": run,
    }


def _carry_out(ctx: click.Context, recipe: Recipe) -> None:
    job = job_of(ctx, recipe, quiet=ctx.params["quiet"] or not speaks())
    from subtext.api.train import train as carry_out

    if ctx.meta.get("recommended") and not job.quiet:
        click.echo(f"no host named; taking the recommended one, {job.host}: {recipe.summary}", err=True)
    with spelt_as_typed(ctx):
        trained = carry_out(job)
    if speaks():
        click.echo(trained.text)
    if trained.stopped:
        ctx.exit(130)


def speaks() -> bool:
    """Whether this process speaks: under `accelerate launch` one does for all."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def spelt_as_typed(ctx: click.Context) -> Iterator[None]:
    """What is refused meanwhile names options as they are typed: a method's own stay as they stand in --with."""
    try:
        yield
    except (RecipeError, RequirementError) as error:
        own = {option.name for option in methods()[error.method].options} if error.method else set()
        text = as_typed(str(error), {name.rpartition("__")[2] for name in ctx.params} - own)
        told = not error.method or error.method in text
        raise type(error)(text if told else f"--with {error.method}: {text}") from error


def _data_options() -> list[click.Option]:
    def option(names: str, text: str, *, metavar: str | None = None, required: bool = False) -> click.Option:
        return click.Option([names], type=PATH, help=text, metavar=metavar, required=required)

    def default(names: str, value: str | int, text: str) -> click.Option:
        return click.Option([names], default=value, show_default=True, help=text)

    return [
        option("--data", "Data set: file or folder.", metavar="DATA", required=True),
        option("--images", "Folder that picture paths start from."),
        option("--features", "Precomputed picture features: npz, npy, h5 or a folder (docs/datasets.md)."),
        option("--text-features", "Precomputed text features, likewise."),
        default("--train-split", "train", "Split that is learnt from."),
        default("--val-split", "val", "Split that selects the epoch; none for no selection."),
        default("--split-seed", 0, "Seed of the 80-10-10 split of data without splits."),
        click.Option(
            ["--bad"],
            type=click.Choice(["refuse", "skip"]),
            default="refuse",
            show_default=True,
            help="What to do with rows that cannot be used.",
        ),
    ]


def run_options() -> list[click.Option]:
    """How a training is carried out, and where."""
    return [
        click.Option(["--out"], type=PATH, required=True, help="Folder of the run; new, or --resume.", metavar="RUN"),
        click.Option(
            ["--with", "with_"], multiple=True, metavar="METHOD[:key=value,...]", help="A training method; repeatable."
        ),
        click.Option(["--seed"], default=0, show_default=True, help="Seed of every random draw."),
        device_option(),
        workers_option(),
        click.Option(["--resume"], is_flag=True, help="Go on from the last checkpoint in RUN."),
        click.Option(["--checkpoint-every"], default=0, help="Steps between checkpoints; 0: at the end of each epoch."),
        click.Option(["--keep"], default=2, show_default=True, help="Checkpoints kept."),
        click.Option(["--keep-epochs"], default=0, help="Keep each so many-th epoch as a run, RUN/epochs/EPOCH."),
        click.Option(["--cache"], type=PATH, help="Folder for outputs of frozen encoders; RUN/cache if not given."),
        click.Option(["--tensorboard"], is_flag=True, help="Also write TensorBoard logs (extra: tensorboard)."),
        click.Option(["--dry-run"], is_flag=True, help="Build everything, say how large it is, train nothing."),
        quiet_option(),
    ]


def job_of(ctx: click.Context, recipe: Recipe, *, quiet: bool) -> Job:
    """The training that a command's options ask for; of the run's options a command may have some alone."""
    values = ctx.params
    run_names = ("seed", "device", "workers", "resume", "checkpoint_every", "keep", "keep_epochs")
    return Job(
        host=recipe.name,
        arguments=chosen(ctx, RECIPE, given_only=False),
        methods=tuple(parse_methods(ctx, "with_", methods())),
        plan=chosen(ctx, PLAN, given_only=True),
        sources=Sources.from_options(values),
        out=values["out"],
        train_split=values["train_split"],
        val_split=None if values["val_split"] == "none" else values["val_split"],
        run={name: values[name] for name in (*run_names, "cache", "tensorboard") if name in values},
        dry_run=values.get("dry_run", False),
        quiet=quiet,
    )


def _method_usage(recipe: Recipe) -> str:
    return recipe.name + (":" + ",".join(option.name for option in recipe.options) if recipe.options else "")
