"""`subtext weights report`, `subtext weights gain` and `subtext weights tune`."""

from __future__ import annotations

from pathlib import Path

import click

from reproduce.cli_tuning import tune
from subtext.api.load import Work
from subtext.cli.command import PATH, Command, data_options, example, run_options

COMBINE = ("absdiff", "difference", "sum", "product", "maximum", "image", "text", "mean")


@click.group(
    epilog=example(
        "subtext weights report runs/a --graph neighbours",
        "subtext weights gain runs/a=runs/plain-a runs/b=runs/plain-b runs/c=runs/plain-c",
        "subtext weights tune pvse --data pairs.jsonl --with combined:graph=neighbours --out sweep",
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
)
def weights() -> None:
    """Look at what sample weights are made from, and choose the ratio of two of them."""


def _report(ctx: click.Context) -> None:
    from reproduce.weight_report import Asked, Shown, report

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
        statistics (COMBINED-STATS). Scores and weights are those that these options ask for, whatever weights RUN was
        trained with; `weights gain` tells of its own. --page shows the pairs themselves.""",
        examples=["subtext weights report runs/pvse --graph graphs/d2v --plot scores.svg --page pairs.html"],
        usage="RUN --graph GRAPH [OPTIONS]",
    )
)


class _Beside(click.ParamType):  # type: ignore[type-arg]  # Generic in new clicks alone.
    """RUN=BASELINE as two folders."""

    name = "RUN=BASELINE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Path, Path]:
        """The two sides of the first sign with a run on either, so that names may have signs of their own."""
        text = str(value)
        for place in (found for found, letter in enumerate(text) if letter == "="):
            sides = Path(text[:place]), Path(text[place + 1 :])
            if all(map(_is_run, sides)):
                return sides
        left, equals, right = text.partition("=")
        sides = Path(left), Path(right)
        none = [str(side) for side in sides if equals and not _is_run(side)]
        which = f"; {' and '.join(none)} {'is' if len(none) == 1 else 'are'} no run" if none else ""
        return self.fail(
            f"'{value}' needs two folders of runs with = between them{which}: runs/diverse=runs/plain", param, ctx
        )


def _is_run(folder: Path) -> bool:
    return (folder.expanduser() / "run.json").is_file()


def _gain(ctx: click.Context) -> None:
    from reproduce.weight_gain import gain

    given = {**ctx.params, "run": None, **dict.fromkeys(("data", "images", "features", "text_features"))}
    work = Work.from_options({**given, "split_seed": None, "on_error": None})
    click.echo(gain(work, ctx.params["pairs"], in_json=ctx.params["as_json"]))


weights.add_command(
    Command(
        "gain",
        _gain,
        {
            "Runs": [
                click.Argument(["pairs"], type=_Beside(), nargs=-1, required=True),
                click.Option(["--split"], help="What they are measured on. Default: each run's validation split."),
            ],
            "Output": [click.Option(["--json", "as_json"], is_flag=True, help="As JSON.")],
            "Carry out": run_options(),
        },
        help="""Say whether what DIVERSITY or DISCREPANCY gains goes with how uneven its scores and weights are.

        For every weighted RUN and its BASELINE: the score's standard deviation over the training pairs and the
        effective sample size of the weights, both in RUN's own space and by its own options, and what RUN's sum of
        six recalls is above BASELINE's, in per cent, beside what else the two trainings differ in. Over three or more
        of a method also Spearman's correlation, and how often chance has as much of it.""",
        examples=["subtext weights gain runs/div-0=runs/pvse-0 runs/div-1=runs/pvse-1 runs/loose/div=runs/loose/pvse"],
        usage="RUN=BASELINE ... [OPTIONS]",
    )
)
weights.add_command(tune)
