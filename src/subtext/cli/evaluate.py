"""`subtext evaluate`."""

from __future__ import annotations

import re
from pathlib import Path

import click

from subtext.api.load import Work
from subtext.cli.command import PATH, Command, bf16_option, cuts, data_options, run_options
from subtext.cli.subject import judged_options, model_as_typed, relevance_options, require_one

TIES = ("pessimistic", "optimistic", "expected", "stable")


def folds(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """A number of folds, or sizes such as `1k+5k`.

    Raises click.BadParameter for anything else.
    """
    if not re.fullmatch(r"[1-9]\d*|[1-9]\d*k(\+[1-9]\d*k)*", value):
        raise click.BadParameter(f"'{value}' needs a number of folds, or sizes in thousands: 5, 1k, 1k+5k")
    return value


def _names(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, ...]:
    """`tfidf1,ciderd` as names."""
    return tuple(dict.fromkeys(piece.strip() for piece in value.split(",") if piece.strip()))


_OF_ONE = ("graph", "space", "space_of_pairs")
"""Options that look at one model's embeddings."""


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


def _require_stages(ctx: click.Context) -> None:
    """Raise click.UsageError for what does not go with a second stage, or needs one."""
    values = ctx.params
    if values["rerank"] is None:
        for name in ("candidates", "rerank_features", "plot"):
            if ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
                raise click.UsageError(f"--{name.replace('_', '-')} belongs to --rerank RUN; give that, or none", ctx)
    elif values["plot"] is not None and len(values["candidates"]) < 2:
        raise click.UsageError("--plot draws a sweep: give several --candidates, as in 10,20,50,100", ctx)
    elif (values["run"] or values["model"]) is None or any(values[name] for name in _OF_ONE):
        raise click.UsageError(
            "--rerank re-orders what a model finds; it goes neither with another program's output nor with --graph, "
            "--space and --space-of-pairs, which look at one model",
            ctx,
        )


def _act(ctx: click.Context) -> None:
    values = ctx.params
    require_one(ctx)
    _require_stages(ctx)
    from subtext.api.evaluate import evaluate as carry_out
    from subtext.api.evaluate import summary
    from subtext.api.external import Files
    from subtext.api.extra_metrics import Wanted
    from subtext.api.two_stage import Rerank

    names = ("ties", "folds", "c_way", "bootstrap", "seed")
    printed = values["json_out"] == Path("-")
    with model_as_typed(ctx):
        result = carry_out(
            Work.from_options(values),
            {name: values[name] for name in names},
            None if printed else values["json_out"],
            values["per_query"],
            graph=values["graph"],
            wanted=Wanted.from_options(values),
            files=Files.from_options(values),
            rerank=Rerank.from_options(values),
        )
    click.echo(result.text() if printed else summary(result))


evaluate = Command(
    "evaluate",
    _act,
    {
        **judged_options(),
        "Two stages": [
            click.Option(
                ["--rerank"], type=PATH, metavar="RUN", help="A second model, which re-orders what the first one finds."
            ),
            click.Option(
                ["--candidates"],
                callback=cuts,
                default="100",
                show_default=True,
                metavar="N[,N...]",
                help="How many it is shown a query; several: a sweep, beside scoring every pair.",
            ),
            click.Option(
                ["--rerank-features"], type=PATH, metavar="FILE", help="Features it reads, if not those it remembers."
            ),
            click.Option(["--plot"], type=PATH, metavar="FILE", help="Draw the sweep: recall over cost, as SVG."),
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
                callback=folds,
                default="1",
                show_default=True,
                help="Cut the pictures into folds and average (COCO 1K: 5); 1k+5k measures folds of both sizes.",
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
        "Relevance": [
            click.Option(
                ["--relevance"],
                callback=_names,
                default="",
                metavar="NAME,...",
                help="ASP, gain and nDCG by relevance: tfidf1, ciderd, cider, judged, class_tfidf1, sentence:MODEL.",
            ),
            *relevance_options(),
            click.Option(
                ["--asp-top"], callback=cuts, default="", metavar="N,N,...", help="ASP over the N most relevant, too."
            ),
            click.Option(["--gain"], callback=cuts, default="5,10,20", show_default=True, help="k of gain@k."),
            click.Option(["--ndcg"], callback=cuts, default="10", show_default=True, help="k of nDCG@k."),
        ],
        "Truth": [
            click.Option(["--precision"], is_flag=True, help="R-Precision and mAP@R of the pairs."),
            click.Option(
                ["--truth"],
                multiple=True,
                metavar="NAME=PATH",
                help="Recall, R-Precision, mAP@R by eccv=FOLDER or cxc=FOLDER of eccv_caption; again for more.",
            ),
            click.Option(["--plausible"], is_flag=True, help="PMRP by the pictures' labels."),
            click.Option(["--human"], type=PATH, metavar="TABLE", help="Agreement with people's scores of pairs."),
            click.Option(["--rated"], type=float, help="Score from which people say yes. Default: mid-range."),
        ],
        "Space and subsets": [
            click.Option(["--words"], is_flag=True, help="Recall of texts by their length in words."),
            click.Option(
                ["--hubness"],
                type=click.IntRange(0),
                default=0,
                show_default=True,
                help="Skewness of how often a candidate is among the first k; 0 for none.",
            ),
            click.Option(["--space"], is_flag=True, help="Alignment and uniformity of embeddings."),
            click.Option(
                ["--space-of-pairs"],
                is_flag=True,
                help="The same of what a model of pairs makes of each item with its own partner (ascl).",
            ),
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
        "Run": [*run_options(), bf16_option()],
    },
    help="""Measure how well RUN finds the texts of pictures and the pictures of texts.

    The data is the run's own unless --data names another. Recall is in per cent; the line "95 %" is an interval by
    resampling pictures, where there are ten or more; "chance" is what guessing would give on the same data.""",
    examples=[
        "subtext evaluate runs/first --split val --json figures.json",
        "subtext evaluate runs/first --data other.jsonl --split all",
        "subtext evaluate --model openai/clip-vit-base-patch32 --data captions.jsonl --split test",
        "subtext evaluate runs/fast --rerank runs/dear --candidates 10,20,50,100,200 --plot sweep.svg",
        "subtext evaluate --scores mine.npz --data captions.jsonl --split test --relevance tfidf1",
    ],
    usage="RUN | --model NAME_OR_PATH | --scores FILE [OPTIONS]",
)
