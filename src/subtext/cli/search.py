"""`subtext search`."""

from __future__ import annotations

import click

from subtext.cli.command import PATH, Command, bf16_option, device_option, index_argument


def _act(ctx: click.Context) -> None:
    values = ctx.params
    if values["words"] is None and values["image"] is None and not values["like"]:
        raise click.UsageError('give "WORDS", --image FILE, --like ID, or several of these', ctx)
    if values["features"] is not None and values["image"] is None:
        raise click.UsageError("--features says where --image FILE is looked up; leave it out, or give a picture", ctx)
    for name in ("candidates", "rerank_features", "bf16"):
        if values["rerank"] is None and ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
            raise click.UsageError(f"--{name.replace('_', '-')} belongs to --rerank RUN; give that, or none", ctx)
    several = [name for name in ("like", "unlike", "without") if values[name]]
    if values["rerank"] is not None and (several or (values["words"] and values["image"]) or values["min_probability"]):
        raise click.UsageError("--rerank takes words alone, or a picture alone, and has no probabilities", ctx)
    from subtext.api.search import Places, Question, ask
    from subtext.api.two_stage import Rerank

    places = Places(values["run"], values["features"], values["device"], Rerank.from_options(values), values["bf16"])
    click.echo(ask(values["index"], Question.from_options(values), places=places, as_json=values["as_json"]))


search = Command(
    "search",
    _act,
    {
        "Query": [
            index_argument(),
            click.Argument(["words"], required=False),
            click.Option(["--image"], type=PATH, metavar="FILE", help="Ask with a picture, or with both."),
            click.Option(["--features"], type=PATH, metavar="FILE", help="Features that --image is looked up in."),
            click.Option(
                ["--image-weight"],
                type=click.FloatRange(0, 1),
                default=0.5,
                show_default=True,
                help="Share of the picture, or else of --like, beside words.",
            ),
            click.Option(["--like"], multiple=True, metavar="ID", help="Like this item of the index; repeatable."),
            click.Option(["--unlike"], multiple=True, metavar="ID", help="Unlike this item; repeatable."),
            click.Option(["--without"], metavar="WORDS", help="Unlike these words."),
            click.Option(
                ["--unlike-weight"],
                type=click.FloatRange(0),
                default=0.5,
                show_default=True,
                help="What these count, beside 1 for what is wanted.",
            ),
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
            click.Option(
                ["--min-probability"],
                type=click.FloatRange(0, 1),
                metavar="P",
                help="Only what is as likely a true match (index calibrate).",
            ),
            click.Option(["--why"], is_flag=True, help="The captions that speak for each hit, with their cosines."),
            click.Option(["--json", "as_json"], is_flag=True, help="The answer as JSON."),
        ],
        "Order": [
            click.Option(["--by-words"], is_flag=True, help="Find by the words themselves, too; fused by rank."),
            click.Option(["--hubs"], type=click.Choice(["csls", "softmax"]), help="Hold back what is near to all."),
            click.Option(
                ["--diversity"],
                type=click.FloatRange(0, 1),
                default=0.0,
                show_default=True,
                help="Spread near-copies out; 1 for nothing else.",
            ),
        ],
        "Two stages": [
            click.Option(
                ["--rerank"], type=PATH, metavar="RUN", help="A second model, which re-orders what the index finds."
            ),
            click.Option(
                ["--candidates"],
                type=click.IntRange(1),
                default=100,
                show_default=True,
                help="How many it is shown.",
            ),
            click.Option(
                ["--rerank-features"], type=PATH, metavar="FILE", help="Features it reads, if not those it remembers."
            ),
            bf16_option(),
        ],
        "Run": [
            click.Option(["--run"], type=PATH, metavar="RUN", help="Where the index's run is now, if it was moved."),
            device_option(),
        ],
    },
    help="""Find the pictures (or texts) of INDEX that go best with WORDS, with a picture, or with items of INDEX.

    The score is the cosine of their vectors: it orders what is found for one query, and is no probability. An index
    that was calibrated (subtext index calibrate) tells probabilities as well, and says when nothing in it matches well.
    Of several things together it is a weighted sum, in standard deviations above the mean item. Words that
    the model does not know are told on standard error and in the JSON (unknown_words). Where it knows none, the answer
    means nothing: that is told too, and the exit code is still 0.

    With --rerank the score is the second model's, and what the first one did not find is not shown to it.

    A model that reads precomputed features takes as --image a picture whose name its features have (those that the
    index was built from, unless --features names others), or an .npy or .npz with the features of one picture.""",
    examples=[
        'subtext search library "a dog that waits for its owner"',
        "subtext search library --image photo.jpg --for texts --top 5",
        'subtext search library "the same at night" --image photo.jpg --image-weight 0.7',
        'subtext search library --like 1936-041 --without "a dog" --diversity 0.3',
        'subtext search library "empty street" --min-probability 0.2 --why --json',
        'subtext search library "a dog that waits" --rerank runs/dear --candidates 200',
        "subtext search library \"empty street\" --where 'year < 1950' --where 'place in Paris, Wien'",
    ],
    usage='INDEX "WORDS" | --image FILE | --like ID [OPTIONS]',
)
