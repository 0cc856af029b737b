"""`subtext weights report` and `subtext weights tune`."""

from __future__ import annotations

import click

from subtext.app.cli.command import PATH, Command, data_options, example, run_options
from subtext.app.cli.tuning import tune
from subtext.app.job import Work

COMBINE = ("absdiff", "difference", "sum", "product", "maximum", "image", "text", "mean")


@click.group(
    epilog=example(
        "subtext weights report runs/a --graph neighbours",
        "subtext weights tune pvse --data pairs.jsonl --with combined:graph=neighbours --out sweep",
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
)
def weights() -> None:
    """Look at what sample weights are made from, and choose the ratio of two of them."""


def _report(ctx: click.Context) -> None:
    from subtext.app.weighing import Asked, Shown, report

    given = {**ctx.params, "model": None}
    names = ("graph", "neighbours", "views", "total", "pairs", "combine", "beta", "gamma")
    asked = Asked(*(given[name] for name in names))
    shown = Shown(given["plot"], given["page"], given["top"])
    click.echo(report(Work.from_options(given), asked, shown, in_json=given["as_json"]))


weights.add_command(
    Command(
        "report",
        _report,
        {
            "Run": [click.Argument(["run"], type=PATH)],
            "Scores": [
                click.Option(["--graph"], type=PATH, required=True, help="Of `subtext neighbours build`."),
                click.Option(
                    ["--neighbours"],
                    type=click.IntRange(0),
                    default=0,
                    show_default=True,
                    help="0: all of the graph's.",
                ),
                click.Option(
                    ["--views"], type=click.Choice(["max", "mean", "aligned"]), default="max", help="Several views."
                ),
                click.Option(["--split"], default="train", show_default=True, help="Whose pairs."),
            ],
            "Weights": [
                click.Option(["--total"], type=float, default=196.0, show_default=True, help="lambda."),
                click.Option(
                    ["--pairs"], type=click.IntRange(1), default=32, show_default=True, help="Of a batch, for total."
                ),
                click.Option(
                    ["--combine"],
                    type=click.Choice(COMBINE),
                    help="Of pictures and texts. Default: absdiff, and mean for combined.",
                ),
                click.Option(["--beta"], type=float, default=3.0, show_default=True, help="combined: of diversity."),
                click.Option(["--gamma"], type=float, default=1.0, show_default=True, help="combined: of discrepancy."),
            ],
            "Output": [
                click.Option(["--plot"], type=PATH, metavar="FILE", help="Histograms, as SVG."),
                click.Option(["--page"], type=PATH, metavar="FILE", help="The pairs of most and least weight, HTML."),
                click.Option(["--top"], type=click.IntRange(1), default=12, show_default=True, help="Pairs an end."),
                click.Option(["--json", "as_json"], is_flag=True, help="As JSON."),
            ],
            "Data": data_options(),
            "Carry out": run_options(),
        },
        help="""Say how diverse and how discrepant the neighbourhoods of a data set are in RUN's space.

        Mean, deviation and histogram of both scores for pictures and texts, Spearman's correlation of the two, and how
        uneven the weights are that come of each, and of both combined: by --beta and --gamma, and by the scores'
        statistics (COMBINED-STATS). --page shows the pairs themselves.""",
        examples=["subtext weights report runs/pvse --graph graphs/d2v --plot scores.svg --page pairs.html"],
        usage="RUN --graph GRAPH [OPTIONS]",
    )
)
weights.add_command(tune)
