"""`subtext score`."""

from __future__ import annotations

import click

from subtext.api.load import Work
from subtext.cli.command import PATH, Command, Index, data_options, run_options


def _act(ctx: click.Context) -> None:
    from subtext.api.score import score

    values = {**ctx.params, "data": ctx.params["source"], "model": None}
    report = score(
        Work.from_options(values),
        index=values["index"],
        graph=values["graph"],
        out=values["out"],
        as_json=values["as_json"],
    )
    click.echo(report)


score = Command(
    "score",
    _act,
    {
        "Pairs": [
            click.Argument(["source"], type=PATH, metavar="PAIRS"),
            *(option for option in data_options() if option.name != "data"),
            click.Option(["--split"], default="all", show_default=True, help="Whose pairs."),
        ],
        "Model": [
            click.Option(["--run"], type=PATH, required=True, metavar="RUN", help="Run whose model compares."),
            click.Option(["--index"], type=Index(), help="A calibrated index of that model: for probabilities."),
            click.Option(["--graph"], type=PATH, help="Neighbours of the texts; built from their words by default."),
        ],
        "Output": [
            click.Option(["--out"], type=PATH, metavar="FILE", help="Write every pair as JSON lines."),
            click.Option(["--json", "as_json"], is_flag=True, help="The answer as JSON."),
        ],
        "Carry out": run_options(),
    },
    help="""Say of each pair of PAIRS whether its picture supports its text: similarity, probability, looseness.

    Similarity is the cosine. The probability of a pair being right comes from an index that was calibrated on held-out
    pairs. Looseness is 1 - P(literal), by how the pair lies among the others: it needs fifty pairs or more.""",
    examples=["subtext score claims.jsonl --run runs/first --index library --json"],
    usage="PAIRS --run RUN [OPTIONS]",
)
