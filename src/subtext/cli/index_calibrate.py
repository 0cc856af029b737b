"""`subtext index calibrate`: what the scores of an index are worth."""

from __future__ import annotations

import click

from subtext.api.load import Work
from subtext.cli.command import PATH, Command, data_options, index_argument, run_options


def _calibrate(ctx: click.Context) -> None:
    if ctx.params["data"] is None:
        raise click.UsageError("say which pairs are held out: --data DATA --split SPLIT", ctx)
    from subtext.api.index.calibrating import calibrate

    values = ctx.params
    told = calibrate(Work.from_options(values), values["index"], unchecked=values["unchecked"], seed=values["seed"])
    click.echo(told)


CALIBRATE = Command(
    "calibrate",
    _calibrate,
    {
        "Index": [index_argument()],
        "Held-out pairs": [
            *data_options(),
            click.Option(["--split"], required=True, metavar="SPLIT", help="Neither trained on nor selected by."),
            click.Option(["--unchecked"], is_flag=True, help="You know that they were not: do not look it up."),
            click.Option(["--seed"], default=0, show_default=True, help="Of the halves, and of chance pairs."),
        ],
        "Run": [
            click.Option(["--run"], type=PATH, metavar="RUN", help="Where the index's run is now, if it was moved."),
            *run_options(),
        ],
    },
    help="""Turn the scores of INDEX into probabilities of being a true match, by pairs that its model never saw.

    One half of the pairs is fitted on; on the other the calibration error is measured, and told. Kept in the index with
    its reliability plot: from then on `subtext search` tells probabilities, takes --min-probability, and says when
    nothing matches well. When more than a tenth of the items came or went since, it is stale: calibrate again.""",
    examples=["subtext index calibrate library --data photos.jsonl --split test"],
    usage="INDEX --data DATA --split SPLIT [OPTIONS]",
)
