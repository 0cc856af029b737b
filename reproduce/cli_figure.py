"""`subtext figure`: figures of a paper, drawn from a data set, from runs, or from what any model gave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from reproduce.figures.catalogue import FIGURES, listing
from subtext.api.evaluate import evaluate
from subtext.api.options import parameters
from subtext.cli.command import PATH, Command, click_parameter, cuts, data_options, run_options
from subtext.recipes.catalogue import unknown


def _levels(ctx: click.Context, param: click.Parameter, value: str) -> tuple[float, ...]:
    """`0.1,0.3` as numbers.

    Raises click.BadParameter for what is no number.
    """
    try:
        return tuple(float(piece) for piece in value.split(",") if piece.strip())
    except ValueError:
        raise click.BadParameter(f"'{value}' needs numbers with commas between them, as in 0.1,0.3") from None


def _act(ctx: click.Context) -> None:
    given: dict[str, Any] = ctx.params
    if given["listed"]:
        click.echo(listing())
        return
    if given["name"] is None or (given["out"] is None and given["json_out"] is None):
        raise click.UsageError(
            "name a figure and a file: subtext figure NAME --out FILE (or --json FILE); --list shows the figures", ctx
        )
    if given["name"] not in FIGURES:
        raise click.UsageError(unknown("figure", given["name"], FIGURES), ctx)
    from reproduce.figures.make import json_text, make, told
    from reproduce.figures.request import Asked

    asked = Asked.from_options(given)
    drawn = make(asked)
    click.echo(json_text(drawn) if given["json_out"] == Path("-") else told(asked, drawn))


figure = Command(
    "figure",
    _act,
    {
        "Figure": [
            click.Argument(["name"], required=False),
            click.Argument(["systems"], nargs=-1, metavar="[[NAME=]PATH ...]"),
            click.Option(["--list", "listed"], is_flag=True, help="Figures, and what each is drawn of."),
        ],
        "Data": [
            *data_options(),
            click.Option(["--split"], help="Which split, or all. Default: the first run's validation split."),
        ],
        "Relevance": [
            click.Option(
                ["--relevance"], default="tfidf1", show_default=True, help="As for subtext evaluate; one of them."
            ),
            *(click_parameter(p) for p in parameters(evaluate) if p.name in ("references", "cache", "asp_ties")),
        ],
        "What is shown": [
            click.Option(["--item"], help="Id of the picture or text that asks (1a, 1c). Default: drawn."),
            click.Option(
                ["--direction"],
                type=click.Choice(["text_to_image", "image_to_text"]),
                default="text_to_image",
                show_default=True,
                help="Who asks (1c).",
            ),
            click.Option(["--count"], type=click.IntRange(1), help="How many are listed (1a: 10, 1c: 100)."),
            click.Option(
                ["--thresholds"], callback=_levels, default="", metavar="X,X,...", help="Thresholds (1b). Default: 20."
            ),
            click.Option(
                ["--tops"], callback=cuts, default="", metavar="N,N,...", help="N (3). Default: twentieths of all."
            ),
            click.Option(["--seed"], default=0, show_default=True, help="Seed of what is drawn."),
        ],
        "Output": [
            click.Option(["--out"], type=PATH, metavar="FILE", help="A page, .html; of curves also .svg."),
            click.Option(
                ["--json", "json_out"], type=PATH, metavar="FILE", help="Its numbers as JSON; - for standard output."
            ),
        ],
        "Run": run_options(),
    },
    help="""Draw a figure of a paper from your own data, runs, or any model's scores or vectors.

    A system is a run's folder, or a file of scores or of both sides' vectors with ids (npz, npy, safetensors, parquet);
    NAME= calls it so in the figure. What is written needs nothing but itself.""",
    examples=[
        "subtext figure --list",
        "subtext figure daa2022_fig1b --data captions.jsonl --split test --out pairs.svg --json pairs.json",
        "subtext figure daa2022_fig3 plain=runs/plain daa=runs/daa --split test --out asp.html",
        "subtext figure daa2022_fig4 runs/daa --out epochs.svg",
    ],
    usage="NAME [[NAME=]PATH ...] --out FILE [OPTIONS]",
)
