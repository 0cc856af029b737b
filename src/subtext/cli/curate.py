"""`subtext curate`."""

from __future__ import annotations

import click

from subtext.api.load import Work
from subtext.cli.command import PATH, Command, data_options, run_options

DROP = ("mismatched", "copies", "leaks", "unusable", "flagged")


def _act(ctx: click.Context) -> None:
    from subtext.api.curate import Curation, curate

    values = {**ctx.params, "data": ctx.params["source"], "model": None}
    click.echo(curate(Work.from_options(values), Curation.from_options(values)))


curate = Command(
    "curate",
    _act,
    {
        "Data": [
            click.Argument(["source"], type=PATH, metavar="DATA"),
            *(option for option in data_options() if option.name != "data"),
            click.Option(["--split"], default="all", show_default=True, help="Whose pairs."),
        ],
        "Model": [
            click.Option(["--run"], type=PATH, required=True, metavar="RUN", help="Run whose scores are looked at."),
            click.Option(["--graph"], type=PATH, help="Neighbours of the texts; built from their words by default."),
        ],
        "Output": [
            click.Option(["--out"], type=PATH, required=True, metavar="DIR", help="A new folder for what is found."),
            click.Option(
                ["--export"],
                type=PATH,
                multiple=True,
                metavar="FILE",
                help="Pairs that are kept: .jsonl, .parquet, or .tar (WebDataset); repeatable.",
            ),
            click.Option(
                ["--shown"], type=click.IntRange(1), default=500, show_default=True, help="Pairs on the page."
            ),
        ],
        "Leave out": [
            click.Option(
                ["--drop"],
                type=click.Choice(DROP),
                multiple=True,
                help="For this reason; repeatable. Default: all but flagged.",
            ),
            click.Option(
                ["--mismatched", "least"],
                type=click.FloatRange(0, 1),
                default=0.5,
                show_default=True,
                help="Probability of a mismatch from which a pair goes.",
            ),
        ],
        "Measure": [
            click.Option(
                ["--labels"], type=PATH, metavar="FILE", help="Of `subtext data loosen`: how well it is told."
            ),
        ],
        "Carry out": run_options(),
    },
    help="""Look at every pair of DATA by RUN: how well it belongs together, what is copied, odd, or in two splits.

    Literal, loose and mismatched are probabilities: pairs are held beside pictures with texts drawn by chance, and with
    texts of neighbours. DIR gets a page to sort and filter, a table of every pair, and what was left out, and why.""",
    examples=[
        "subtext curate pairs.jsonl --run runs/first --out curated",
        "subtext curate pairs.jsonl --run runs/first --out curated --export kept.parquet --mismatched 0.8",
    ],
    usage="DATA --run RUN --out DIR [OPTIONS]",
)
