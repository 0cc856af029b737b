"""`subtext neighbours build` and `subtext neighbours show`."""

from __future__ import annotations

import click

from subtext.api.load import Sources
from subtext.cli.command import PATH, Command, device_option, example, quiet_option

SPACES = "doc2vec, lsa, sentence:NAME, features:FILE (of pictures), text-features:FILE"


@click.group(
    epilog=example(
        "subtext neighbours build neighbours --data pairs.jsonl --space lsa",
        "subtext neighbours show neighbours --item 17",
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
)
def neighbours() -> None:
    """Find the texts that lie near each text, or look at what was found."""


def _build(ctx: click.Context) -> None:
    from subtext.api.neighbours import Asked, build

    given = ctx.params
    sources = Sources(given["data"], given["images"], split_seed=given["split_seed"], bad=given["bad"])
    click.echo(build(Asked.from_options(given), sources, given["out"]))


def _show(ctx: click.Context) -> None:
    from subtext.api.neighbourhood import show

    given = ctx.params
    click.echo(show(given["graph"], given["item"], top=given["top"], page=given["html"], in_json=given["as_json"]))


neighbours.add_command(
    Command(
        "build",
        _build,
        {
            "Graph": [
                click.Argument(["out"], type=PATH),
                click.Option(["--space"], default="doc2vec", show_default=True, metavar="SPACE", help=f"{SPACES}."),
                click.Option(
                    ["--neighbours"], type=click.IntRange(1), default=200, show_default=True, help="For each text."
                ),
                click.Option(
                    ["--search"],
                    type=click.Choice(["exact", "approximate"]),
                    default="exact",
                    show_default=True,
                    help="Compare all, or walk an HNSW graph.",
                ),
                click.Option(
                    ["--same-picture"],
                    type=click.Choice(["drop", "keep"]),
                    default="drop",
                    show_default=True,
                    help="Whether texts of one picture may be neighbours.",
                ),
                click.Option(
                    ["--distance"], type=click.Choice(["l2", "cosine"]), help="Default: what suits the space."
                ),
            ],
            "Space": [
                click.Option(["--width"], type=click.IntRange(1), default=200, show_default=True, help="doc2vec, lsa."),
                click.Option(
                    ["--min-count"],
                    type=click.IntRange(1),
                    default=20,
                    show_default=True,
                    help="doc2vec: rarer words are left out; lower it for a small set.",
                ),
                click.Option(
                    ["--space-epochs"], type=click.IntRange(1), help="doc2vec: default 50, 20 from 200,000 texts on."
                ),
                click.Option(
                    ["--sentences"], type=click.IntRange(1), help="doc2vec: read only the first so many of each text."
                ),
                click.Option(["--seed"], type=int, default=0, show_default=True, help="doc2vec, lsa."),
                device_option(),
            ],
            "Data": [
                click.Option(["--data"], type=PATH, required=True, help="Data set."),
                click.Option(["--images"], type=PATH, help="Folder that picture paths start from."),
                click.Option(
                    ["--split"], default="train", show_default=True, help="Whose texts get neighbours; all for all."
                ),
                click.Option(
                    ["--among"], help="Whose texts may be neighbours. Default: those of the split; of all, train's."
                ),
                click.Option(["--split-seed"], type=int, help="Seed of the 80-10-10 split of data without splits."),
                click.Option(
                    ["--bad"], type=click.Choice(["refuse", "skip"]), help="What to do with rows that cannot be used."
                ),
            ],
            "Run": [quiet_option()],
        },
        help="""Write the new folder OUT: for every text its nearest texts, in a space of meaning.

        A text is never a neighbour of itself, of the same words, or (by default) of its own picture's texts. Texts of
        other splits than --among get neighbours and are none.""",
        examples=[
            "subtext neighbours build graphs/lsa --data captions.jsonl --space lsa",
            "subtext neighbours build graphs/d2v --data captions.jsonl --neighbours 50 --min-count 5",
        ],
        usage="OUT --data DATA [OPTIONS]",
    )
)

neighbours.add_command(
    Command(
        "show",
        _show,
        {
            "Graph": [click.Argument(["graph"], type=PATH)],
            "Output": [
                click.Option(["--item"], metavar="ID", help="A text, or a picture (then its first text)."),
                click.Option(
                    ["--top"], type=click.IntRange(1), default=10, show_default=True, help="Neighbours shown."
                ),
                click.Option(["--html"], type=PATH, metavar="FILE", help="One page with the pictures in it."),
                click.Option(["--json", "as_json"], is_flag=True, help="As JSON."),
            ],
        },
        help="""Say how good GRAPH is, and show the neighbours of an item.

        Good is how many neighbours other measures (cosine of TF-IDF, CIDEr-D) call related, beside random pairs. The
        data set has to stand where it stood.""",
        examples=[
            "subtext neighbours show graphs/lsa",
            "subtext neighbours show graphs/lsa --item 1000268201_693b08cb0e.jpg --html near.html",
        ],
        usage="GRAPH [OPTIONS]",
    )
)
