"""`subtext data found`, apart from the commands that make data sets."""

from __future__ import annotations

import click

from subtext.app.cli.command import PATH, Command, data_options, run_options
from subtext.app.job import Work


def _found(ctx: click.Context) -> None:
    from subtext.app.finding import found

    given = {**ctx.params, "model": None}
    click.echo(found(Work.from_options(given), given["labels"], graph=given["graph"], in_json=given["as_json"]))


FOUND = Command(
    "found",
    _found,
    {
        "Run": [click.Argument(["run"], type=PATH)],
        "Looseness": [
            click.Option(["--labels"], type=PATH, required=True, metavar="FILE", help="Of `subtext data loosen`."),
            click.Option(["--graph"], type=PATH, help="Of the loosened data: diversity and discrepancy, too."),
            click.Option(["--split"], default="train", show_default=True, help="Whose pairs."),
            click.Option(["--json", "as_json"], is_flag=True, help="As JSON."),
        ],
        "Data": data_options(),
        "Carry out": run_options(),
    },
    help="""Say how well RUN's scores tell the pairs that were loosened, beside simple rivals: the area under the curve.

    RUN was trained on what `subtext data loosen` wrote. Scores are those of its weights as they are kept: cosine, value
    of a triplet loss, words of the text; with --graph diversity and discrepancy of both modalities.""",
    examples=["subtext data found runs/loose --labels labels.json --graph graphs/loose"],
    usage="RUN --labels FILE [OPTIONS]",
)
