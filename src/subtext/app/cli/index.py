"""`subtext index build` and `subtext index info`."""

from __future__ import annotations

import click

from subtext.app.cli.command import PATH, Command, data_options, example, run_options
from subtext.app.job import Work


@click.group(
    epilog=example("subtext index build index --run runs/a", "subtext index info index"),
    context_settings={"help_option_names": ["-h", "--help"]},
)
def index() -> None:
    """Build a search index over pictures and texts, or look at one."""


def _build(ctx: click.Context) -> None:
    from subtext.app.indexing import build

    click.echo(build(Work.from_options(ctx.params), ctx.params["index"]))


def _info(ctx: click.Context) -> None:
    from subtext.app.indexing import info

    click.echo(info(ctx.params["index"], as_json=ctx.params["as_json"]))


index.add_command(
    Command(
        "build",
        _build,
        {
            "Index": [
                click.Argument(["index"], type=PATH),
                click.Option(["--run"], type=PATH, required=True, metavar="RUN", help="Run whose model embeds."),
            ],
            "Data": [
                *data_options(),
                click.Option(["--split"], default="all", show_default=True, help="Which split; all for the whole set."),
            ],
            "Run": run_options(),
        },
        help="""Embed pictures and texts by RUN and keep them in the new folder INDEX, to be searched.

        The data is the run's own unless --data names another. The folder says by itself which model made it: queries
        of another model are refused. A model that only scores pairs is refused, too.""",
        examples=[
            "subtext index build library --run runs/first",
            "subtext index build library --run runs/first --data photos.jsonl --images photos",
        ],
        usage="INDEX --run RUN [OPTIONS]",
    )
)

index.add_command(
    Command(
        "info",
        _info,
        {
            "Index": [click.Argument(["index"], type=PATH)],
            "Output": [click.Option(["--json", "as_json"], is_flag=True, help="The manifest as JSON.")],
        },
        help="Say what INDEX holds: items, vectors, size, and the model that made it.",
        examples=["subtext index info library", "subtext index info library --json"],
        usage="INDEX [OPTIONS]",
    )
)
