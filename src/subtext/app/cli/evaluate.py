"""`subtext evaluate`."""

from __future__ import annotations

from pathlib import Path

import click

from subtext.app.cli.command import PATH, Command, data_options, run_options
from subtext.app.cli.options import as_typed
from subtext.app.job import Work
from subtext.errors import RequirementError

TIES = ("pessimistic", "optimistic", "expected", "stable")


def numbers(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    """`5,20,100` as numbers.

    Raises click.BadParameter for what is no number, or below 2.
    """
    try:
        found = tuple(int(piece) for piece in value.split(",") if piece.strip())
    except ValueError:
        raise click.BadParameter(f"'{value}' needs whole numbers with commas between them, as in 5,20,100") from None
    if any(number < 2 for number in found):
        raise click.BadParameter(f"'{value}' needs numbers of 2 or more: one candidate is no choice")
    return found


def _require_pretrained(ctx: click.Context) -> None:
    """Raise click.UsageError for what does not go with --model."""
    values = ctx.params
    if Path(values["model"], "run.json").is_file():
        raise click.UsageError(f"--model is for pretrained models; for a run: subtext evaluate {values['model']}", ctx)
    if values["data"] is None:
        raise click.UsageError("--model needs --data: a pretrained model remembers no data set", ctx)
    if values["features"] or values["text_features"]:
        raise click.UsageError("--model reads pictures and words, no features; leave --features out", ctx)


def _act(ctx: click.Context) -> None:
    values = ctx.params
    if (values["run"] is None) == (values["model"] is None):
        raise click.UsageError("give either RUN, a folder that `subtext train` made, or --model NAME_OR_PATH", ctx)
    if values["model"] is not None:
        _require_pretrained(ctx)
    from subtext.app.evaluation import evaluate as carry_out
    from subtext.app.evaluation import summary

    names = ("ties", "folds", "c_way", "bootstrap", "seed")
    printed = values["json_out"] == Path("-")
    try:
        result = carry_out(
            Work.from_options(values),
            {name: values[name] for name in names},
            None if printed else values["json_out"],
            values["per_query"],
            graph=values["graph"],
        )
    except RequirementError as error:
        if values["model"] is None:
            raise
        raise RequirementError(as_typed(str(error), ["model"])) from error
    click.echo(result.text() if printed else summary(result))


evaluate = Command(
    "evaluate",
    _act,
    {
        "Model": [
            click.Argument(["run"], type=PATH, required=False),
            click.Option(
                ["--model"],
                metavar="NAME_OR_PATH",
                help="A pretrained dual encoder (CLIP, SigLIP) as it is, for no RUN.",
            ),
        ],
        "Data": [
            *data_options(),
            click.Option(
                ["--split"],
                help="Which split, or all. Default: the run's validation split, which chose its epoch.",
            ),
        ],
        "Protocol": [
            click.Option(
                ["--ties"],
                type=click.Choice(TIES),
                default="pessimistic",
                show_default=True,
                help="Where a partner stands among candidates of the same score.",
            ),
            click.Option(
                ["--folds"],
                type=click.IntRange(1),
                default=1,
                show_default=True,
                help="Cut the pictures into folds and average (COCO 1K: 5).",
            ),
            click.Option(
                ["--c-way"],
                callback=numbers,
                default="",
                metavar="N,N,...",
                help="Accuracy at picking one of c, for instance 5,20,100.",
            ),
            click.Option(
                ["--graph"],
                type=PATH,
                help="Also measure how many neighbours in this graph (subtext neighbours) are near in the joint space.",
            ),
            click.Option(
                ["--bootstrap"],
                type=click.IntRange(0),
                default=1000,
                show_default=True,
                help="Resamplings by picture for 95 % intervals; 0 for none.",
            ),
            click.Option(["--seed"], default=0, show_default=True, help="Seed of samples and resamplings."),
        ],
        "Output": [
            click.Option(
                ["--json", "json_out"],
                type=PATH,
                metavar="FILE",
                help="Write figures and protocol as JSON; - for standard output.",
            ),
            click.Option(["--per-query"], type=PATH, help="Write one value a query, npz, for paired tests."),
        ],
        "Run": run_options(),
    },
    help="""Measure how well RUN finds the texts of pictures and the pictures of texts.

    The data is the run's own unless --data names another. Recall is in per cent; the line "95 %" is an interval by
    resampling pictures, where there are ten or more; "chance" is what guessing would give on the same data.""",
    examples=[
        "subtext evaluate runs/first --split val --json figures.json",
        "subtext evaluate runs/first --data other.jsonl --split all",
        "subtext evaluate --model openai/clip-vit-base-patch32 --data captions.jsonl --split test",
    ],
    usage="RUN | --model NAME_OR_PATH [OPTIONS]",
)
