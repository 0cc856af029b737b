"""What a command judges: RUN, a pretrained model, or what any model gave; the options for it, and their agreement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from subtext.cli.command import PATH
from subtext.cli.options import as_typed
from subtext.errors import RequirementError

FILES = ("scores", "image_embeddings", "text_embeddings", "image_ids", "text_ids")
"""Options for what another program made."""


def judged_options() -> dict[str, list[click.Parameter]]:
    """The options by their headings, RUN among them."""
    return {
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
    }


def relevance_options() -> list[click.Parameter]:
    """How a relevance is computed, and ranked in ASP."""
    return [
        click.Option(["--references"], type=click.IntRange(1), help="First texts a picture is known by. Default: all."),
        click.Option(["--cache"], type=PATH, metavar="FOLDER", help="Where matrices of relevance are kept."),
        click.Option(
            ["--asp-ties"],
            type=click.Choice(["ordinal", "min", "average"]),
            default="ordinal",
            show_default=True,
            help="Ranks of equal values in ASP.",
        ),
    ]


def require_one(ctx: click.Context) -> None:
    """Raise click.UsageError unless just one of RUN, --model and files is given, with what it needs."""
    values = ctx.params
    files = any(values[name] is not None for name in FILES)
    if (values["run"] is not None) + (values["model"] is not None) + files != 1:
        raise click.UsageError(
            "give one of these: RUN, a folder that `subtext train` made; --model NAME_OR_PATH; --scores FILE; or "
            "--image-embeddings FILE and --text-embeddings FILE",
            ctx,
        )
    if files and values.get("bf16") is not None:
        raise click.UsageError("--bf16 is for a RUN that scores pairs; another program's output is scored already", ctx)
    if values["model"] is not None:
        _require_pretrained(ctx)


@contextmanager
def model_as_typed(ctx: click.Context) -> Iterator[None]:
    """What a recipe refuses of its option `model` is said of --model."""
    try:
        yield
    except RequirementError as error:
        if ctx.params["model"] is None:
            raise
        raise RequirementError(as_typed(str(error), ["model"])) from error


def _require_pretrained(ctx: click.Context) -> None:
    """Raise click.UsageError for what does not go with --model."""
    values = ctx.params
    if Path(values["model"], "run.json").is_file():
        raise click.UsageError(
            f"--model is for pretrained models; for a run: subtext {ctx.command.name} {values['model']}", ctx
        )
    if values["data"] is None:
        raise click.UsageError("--model needs --data: a pretrained model remembers no data set", ctx)
    if values["features"] or values["text_features"]:
        raise click.UsageError("--model reads pictures and words, no features; leave --features out", ctx)
