"""`subtext data found`, apart from the commands that make data sets."""

from __future__ import annotations

import click

from subtext.api.load import Work
from subtext.cli.command import PATH, Command, data_options, run_options


def _found(ctx: click.Context) -> None:
    given = {**ctx.params, "model": None}
    if given["graph"] is None:
        for name in ("beta", "gamma"):
            if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
                raise click.UsageError(f"--{name} weights scores of neighbours; name their graph (--graph GRAPH)", ctx)
    from subtext.api.detect_noise import Near, found

    near = None if given["graph"] is None else Near(given["graph"], given["beta"], given["gamma"])
    click.echo(found(Work.from_options(given), given["labels"], near=near, in_json=given["as_json"]))


FOUND = Command(
    "found",
    _found,
    {
        "Run": [click.Argument(["run"], type=PATH)],
        "Looseness": [
            click.Option(["--labels"], type=PATH, required=True, metavar="FILE", help="Of `subtext data loosen`."),
            click.Option(["--graph"], type=PATH, help="Of the loosened data: diversity and discrepancy, too."),
            click.Option(["--beta"], type=float, default=3.0, show_default=True, help="combined: of diversity."),
            click.Option(["--gamma"], type=float, default=1.0, show_default=True, help="combined: of discrepancy."),
            click.Option(["--split"], default="train", show_default=True, help="Whose pairs."),
            click.Option(["--json", "as_json"], is_flag=True, help="As JSON."),
        ],
        "Data": data_options(),
        "Carry out": run_options(),
    },
    help="""Say how well RUN's scores tell the pairs that were loosened, beside simple rivals: the area under the curve.

    RUN was trained on what `subtext data loosen` wrote. Scores are those of its weights as they are kept: cosine, value
    of a triplet loss, weight by rank, words of the text, density among the other pairs; with --graph diversity and
    discrepancy of both modalities, and both combined.""",
    examples=["subtext data found runs/loose --labels labels.json --graph graphs/loose"],
    usage="RUN --labels FILE [OPTIONS]",
)
