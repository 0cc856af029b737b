"""`subtext index build`, `add`, `update`, `watch`, `move` and `import`: how items come into an index."""

from __future__ import annotations

from collections.abc import Sequence

import click

from subtext.api.load import Work
from subtext.cli.command import PATH, Command, data_options, index_argument, run_options


def _run(text: str, *, required: bool = False) -> click.Option:
    return click.Option(["--run"], type=PATH, required=required, metavar="RUN", help=text)


def _split() -> click.Option:
    return click.Option(["--split"], default="all", show_default=True, help="Which split; all for the whole set.")


def _build(ctx: click.Context) -> None:
    work, values = Work.from_options(ctx.params), ctx.params
    from subtext.api.index.growth import build

    click.echo(build(work, values["index"]))


def _add(ctx: click.Context) -> None:
    from subtext.api.index.growth import add

    click.echo(add(Work.from_options(ctx.params), ctx.params["index"], again=ctx.params["again"]))


def _update(ctx: click.Context) -> None:
    from subtext.api.index.growth import update

    work = Work.from_options({**ctx.params, "split": "all"})
    click.echo(update(work, ctx.params["index"], keep_missing=ctx.params["keep_missing"]))


def _watch(ctx: click.Context) -> None:
    from subtext.api.index.watching import watch

    work, values = Work.from_options({**ctx.params, "split": "all"}), ctx.params
    looked = watch(
        work, values["index"], every=values["every"], rounds=values["rounds"], keep_missing=values["keep_missing"]
    )
    click.echo(looked)


def _move(ctx: click.Context) -> None:
    from subtext.api.index.growth import move

    work = Work.from_options({**ctx.params, "split": "all"})
    click.echo(move(work, ctx.params["index"], leave_out=ctx.params["leave_out"]))


def _import(ctx: click.Context) -> None:
    from subtext.api.index.importing import import_vectors

    values = ctx.params
    click.echo(
        import_vectors(
            values["index"], values["vectors"], run=values["run"], data=values["data"], images=values["images"]
        )
    )


def _keep_missing() -> click.Option:
    text = "Delete nothing that the data no longer has."
    return click.Option(["--keep-missing"], is_flag=True, help=text)


GROWING: Sequence[click.Command] = (
    Command(
        "build",
        _build,
        {
            "Index": [index_argument(), _run("Run whose model embeds.", required=True)],
            "Data": [*data_options(), _split()],
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
    ),
    Command(
        "add",
        _add,
        {
            "Index": [
                index_argument(),
                click.Option(["--again"], is_flag=True, help="Bring back items that were deleted before."),
            ],
            "Data": [*data_options(), _split()],
            "Run": [_run("Where the index's run is now, if it was moved."), *run_options()],
        },
        help="""Put the items of a data set into INDEX: those that are new, or whose picture or words have changed.

        What is there already is not embedded again. Without --data an add that was cut off goes on.""",
        examples=["subtext index add library --data new.jsonl --images photos", "subtext index add library"],
        usage="INDEX --data DATA [OPTIONS]",
    ),
    Command(
        "update",
        _update,
        {
            "Index": [index_argument(), _keep_missing()],
            "Data": data_options(),
            "Run": [_run("Where the index's run is now, if it was moved."), *run_options()],
        },
        help="""Read again the data that INDEX was made of: embed what is new or changed, delete what is gone.""",
        examples=["subtext index update library", "subtext index update library --keep-missing"],
        usage="INDEX [OPTIONS]",
    ),
    Command(
        "watch",
        _watch,
        {
            "Index": [
                index_argument(),
                _keep_missing(),
                click.Option(
                    ["--every"],
                    type=click.FloatRange(0),
                    default=30.0,
                    show_default=True,
                    help="Seconds between looks.",
                ),
                click.Option(["--rounds"], type=click.IntRange(1), help="How many looks; no end by default."),
            ],
            "Data": data_options(),
            "Run": [_run("Where the index's run is now, if it was moved."), *run_options()],
        },
        help="Update INDEX now, and whenever its data changes, until you stop it.",
        examples=["subtext index watch library", "subtext index watch library --every 5"],
        usage="INDEX [OPTIONS]",
    ),
    Command(
        "move",
        _move,
        {
            "Index": [
                index_argument(),
                _run("Run whose model is to embed.", required=True),
                click.Option(["--leave-out"], is_flag=True, help="Leave behind what no data set has any more."),
            ],
            "Data": data_options(),
            "Run": run_options(),
        },
        help="""Embed all items of INDEX by another model, while the vectors that are there serve; then change over.

        One that was cut off goes on when it is given again.""",
        examples=["subtext index move library --run runs/better"],
        usage="INDEX --run RUN [OPTIONS]",
    ),
    Command(
        "import",
        _import,
        {
            "Index": [index_argument(), click.Argument(["vectors"], type=PATH)],
            "Items": [
                click.Option(["--data"], type=PATH, help="Data set that says more of the ids: paths, words, metadata."),
                click.Option(["--images"], type=PATH, help="Folder that picture paths start from."),
            ],
            "Model": [_run("Run whose model made the vectors; without it words cannot be asked.")],
        },
        help="""Put vectors that were made elsewhere into INDEX, a new one or one of the same model.

        VECTORS is an .npz or .parquet as `subtext embed` writes them: image_ids, image_vectors, text_ids, text_vectors
        (and image_groups, text_groups: equal ones go together).""",
        examples=["subtext index import library vectors.npz --run runs/first --data photos.jsonl"],
        usage="INDEX VECTORS [OPTIONS]",
    ),
)
"""In the order of a user's needs."""
