"""`subtext gallery compare`."""

from __future__ import annotations

import click

from subtext.cli.command import PATH, Command, data_options, example, run_options


@click.group(
    epilog=example("subtext gallery compare runs/a runs/b --out both.html"),
    context_settings={"help_option_names": ["-h", "--help"]},
)
def gallery() -> None:
    """Look at what runs find, on one page with the pictures in it."""


def _compare(ctx: click.Context) -> None:
    from reproduce.gallery import Asked, compare

    click.echo(compare(Asked.from_options(ctx.params)))


gallery.add_command(
    Command(
        "compare",
        _compare,
        {
            "Runs": [click.Argument(["first"], type=PATH), click.Argument(["second"], type=PATH)],
            "Output": [click.Option(["--out"], type=PATH, required=True, metavar="FILE", help="The page, HTML.")],
            "Gallery": [
                click.Option(
                    ["--word", "words"],
                    multiple=True,
                    help="Words to find pictures for; again for more. Default: drawn.",
                ),
                click.Option(
                    ["--count"],
                    type=click.IntRange(1),
                    default=4,
                    show_default=True,
                    help="Words, and pictures, drawn.",
                ),
                click.Option(["--top"], type=click.IntRange(1), default=5, show_default=True, help="Found, shown."),
                click.Option(
                    ["--graph"],
                    type=PATH,
                    help="A graph (subtext neighbours) of this split's texts: which pairs moved together.",
                ),
                click.Option(
                    ["--pairs"],
                    type=click.IntRange(2),
                    default=10_000,
                    show_default=True,
                    help="Neighbours sampled from the graph.",
                ),
                click.Option(["--seed"], type=int, default=0, show_default=True, help="Seed of all that is drawn."),
            ],
            "Data": [
                *data_options(),
                click.Option(["--split"], help="Which split, or all. Default: the first run's validation split."),
            ],
            "Run": run_options(),
        },
        help="""Show what the runs FIRST and SECOND find for the same words and pictures, side by side.

        With --graph also the neighbours that each of them has pulled together most, relative to the other, texts
        and the pictures of such texts: by the cosine of their embeddings, in standard deviations above that of random
        pairs of the same run.""",
        examples=[
            "subtext gallery compare runs/plain runs/ours --out compare.html",
            "subtext gallery compare runs/plain runs/ours --split test --graph graphs/test --word freedom --out f.html",
        ],
        usage="FIRST SECOND --out FILE [OPTIONS]",
    )
)
