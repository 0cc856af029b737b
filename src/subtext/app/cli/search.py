"""`subtext search`."""

from __future__ import annotations

import click

from subtext.app.cli.command import PATH, Command, device_option


def _act(ctx: click.Context) -> None:
    values = ctx.params
    if (values["words"] is None) == (values["image"] is None):
        raise click.UsageError('give either "WORDS" or --image FILE', ctx)
    if values["features"] is not None and values["image"] is None:
        raise click.UsageError("--features says where --image FILE is looked up; leave it out, or give a picture", ctx)
    from subtext.app.asking import Places, ask

    click.echo(
        ask(
            values["index"],
            text=values["words"],
            image=values["image"],
            top=values["top"],
            target=values["target"],
            where=values["where"],
            places=Places(values["run"], values["features"], values["device"]),
            as_json=values["as_json"],
        )
    )


search = Command(
    "search",
    _act,
    {
        "Query": [
            click.Argument(["index"], type=PATH),
            click.Argument(["words"], required=False),
            click.Option(["--image"], type=PATH, metavar="FILE", help="Ask with a picture instead of words."),
            click.Option(["--features"], type=PATH, metavar="FILE", help="Features that --image is looked up in."),
        ],
        "Answer": [
            click.Option(["--top"], type=click.IntRange(1), default=10, show_default=True, help="How many to find."),
            click.Option(
                ["--for", "target"],
                type=click.Choice(["images", "texts"]),
                default="images",
                show_default=True,
                help="What to look for.",
            ),
            click.Option(
                ["--where"],
                multiple=True,
                metavar="CONDITION",
                help="Only what fulfils it: 'year >= 1990'; repeatable.",
            ),
            click.Option(["--json", "as_json"], is_flag=True, help="The answer as JSON."),
        ],
        "Run": [
            click.Option(["--run"], type=PATH, metavar="RUN", help="Where the index's run is now, if it was moved."),
            device_option(),
        ],
    },
    help="""Find the pictures (or texts) of INDEX that go best with WORDS or with a picture.

    The score is the cosine of their vectors: it orders what is found for one query, and is no probability. Words that
    the model does not know are told on standard error and in the JSON (unknown_words). Where it knows none, the answer
    means nothing: that is told too, and the exit code is still 0.

    A model that reads precomputed features takes as --image a picture whose name its features have (those that the
    index was built from, unless --features names others), or an .npy or .npz with the features of one picture.""",
    examples=[
        'subtext search library "a dog that waits for its owner"',
        "subtext search library --image photo.jpg --for texts --top 5",
        'subtext search library "empty street" --json',
        "subtext search library \"empty street\" --where 'year < 1950' --where 'place in Paris, Wien'",
    ],
    usage='INDEX "WORDS" | --image FILE [OPTIONS]',
)
