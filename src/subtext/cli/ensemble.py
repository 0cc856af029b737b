"""`subtext ensemble`."""

from __future__ import annotations

import click

from subtext.cli.command import PATH, Command


def _act(ctx: click.Context) -> None:
    if len(ctx.params["runs"]) < 2:
        raise click.UsageError("an ensemble needs two runs or more; name another", ctx)
    from subtext.api.ensemble import ensemble as carry_out

    click.echo(carry_out(ctx.params["runs"], ctx.params["out"]))


ensemble = Command(
    "ensemble",
    _act,
    {
        "Runs": [click.Argument(["runs"], type=PATH, nargs=-1, required=True, metavar="RUN RUN ...")],
        "Output": [
            click.Option(
                ["--out"], type=PATH, required=True, metavar="RUN", help="Folder of the ensemble; new, or empty."
            )
        ],
    },
    help="""Join runs that were trained apart to one, whose score of a pair is the mean of theirs.

    SGRAF is published so: one run of `sgraf --reasoning saf` and one of `--reasoning sgr`. What is written is a run
    like any other: evaluate, audit, search --rerank, score, curate and distil take it. It holds copies of all weights.
    The runs have to have learnt from the same pairs, with the same vocabulary and features, at the same width.""",
    examples=[
        "subtext ensemble runs/saf runs/sgr --out runs/sgraf",
        "subtext evaluate runs/fast --rerank runs/sgraf --candidates 100",
    ],
    usage="RUN RUN ... --out RUN",
)
