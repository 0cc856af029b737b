"""`subtext evaluate`."""

from __future__ import annotations

import re
from pathlib import Path

import click

from subtext.app.cli.command import PATH, Command, data_options, run_options
from subtext.app.cli.options import as_typed
from subtext.app.job import Work
from subtext.errors import RequirementError

FILES = ("scores", "image_embeddings", "text_embeddings", "image_ids", "text_ids")
"""Options for what another program made."""
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


def _cuts(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    """`5,10` as numbers of 1 or more.

    Raises click.BadParameter for anything else.
    """
    pieces = [piece.strip() for piece in value.split(",") if piece.strip()]
    if not all(piece.isdecimal() and int(piece) > 0 for piece in pieces):
        raise click.BadParameter(f"'{value}' needs whole numbers of 1 or more with commas between them, as in 5,10")
    return tuple(dict.fromkeys(int(piece) for piece in pieces))


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
    files = any(values[name] is not None for name in FILES)
    if (values["run"] is not None) + (values["model"] is not None) + files != 1:
        raise click.UsageError(
            "give one of these: RUN, a folder that `subtext train` made; --model NAME_OR_PATH; --scores FILE; or "
            "--image-embeddings FILE and --text-embeddings FILE",
            ctx,
        )
    if values["model"] is not None:
        _require_pretrained(ctx)
    from subtext.app.evaluation import evaluate as carry_out
    from subtext.app.evaluation import summary
    from subtext.app.further import Wanted
    from subtext.app.outside import Files

    names = ("ties", "folds", "c_way", "bootstrap", "seed")
    printed = values["json_out"] == Path("-")
    try:
        result = carry_out(
            Work.from_options(values),
            {name: values[name] for name in names},
            None if printed else values["json_out"],
            values["per_query"],
            graph=values["graph"],
            wanted=Wanted.from_options(values),
            files=Files.from_options(values),
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
        "Any model's output": [
            click.Option(
                ["--scores"], type=PATH, help="Scores of pictures x texts with ids: npz, npy, safetensors, parquet."
            ),
            click.Option(["--image-embeddings"], type=PATH, help="Vectors of the pictures with ids, the same formats."),
            click.Option(["--text-embeddings"], type=PATH, help="Vectors of the texts; may be the same file."),
            click.Option(["--image-ids"], type=PATH, help="Names of the pictures, one a line, if not in the file."),
            click.Option(["--text-ids"], type=PATH, help="Names of the texts, one a line, if not in the file."),
            click.Option(
                ["--similarity"],
                type=click.Choice(["cosine", "dot"]),
                default="cosine",
                show_default=True,
                help="Of embeddings.",
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
            click.Option(
                ["--references"], type=click.IntRange(1), help="First texts a picture is known by. Default: all."
            ),
            click.Option(["--cache"], type=PATH, metavar="FOLDER", help="Where matrices of relevance are kept."),
            click.Option(
                ["--asp-ties"],
                type=click.Choice(["ordinal", "min", "average"]),
                default="ordinal",
                show_default=True,
                help="Ranks of equal values in ASP.",
            ),
            click.Option(
                ["--asp-top"], callback=_cuts, default="", metavar="N,N,...", help="ASP over the N most relevant, too."
            ),
            click.Option(["--gain"], callback=_cuts, default="5,10,20", show_default=True, help="k of gain@k."),
            click.Option(["--ndcg"], callback=_cuts, default="10", show_default=True, help="k of nDCG@k."),
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
        "subtext evaluate --scores mine.npz --data captions.jsonl --split test --relevance tfidf1",
    ],
    usage="RUN | --model NAME_OR_PATH | --scores FILE [OPTIONS]",
)
