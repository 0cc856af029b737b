"""`subtext evaluate`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from subtext.api import evaluate as api
from subtext.api.options import parameters
from subtext.cli.command import verb_command
from subtext.cli.options import as_typed
from subtext.errors import RequirementError


def measure(verb: Callable[..., Any], ctx: click.Context) -> Any:
    """Call a verb that measures RUN, a pretrained model or files, and print its result, as JSON for `--json -`."""
    values = {parameter.name: ctx.params[parameter.name] for parameter in parameters(verb)}
    printed = values["json"] == Path("-")
    try:
        result = verb(**values | ({"json": None} if printed else {}))
    except RequirementError as error:
        if values["model"] is None:
            raise
        # What the recipe says of its option `model` is said of --model.
        raise RequirementError(as_typed(str(error), ["model"])) from error
    click.echo(result.json_text() if printed else str(result))
    return result


evaluate = verb_command(
    api.evaluate,
    examples=[
        "subtext evaluate runs/first --split val --json figures.json",
        "subtext evaluate runs/first --data other.jsonl --split all",
        "subtext evaluate --model openai/clip-vit-base-patch32 --data captions.jsonl --split test",
        "subtext evaluate runs/fast --rerank runs/expensive --candidates 10,20,50,100,200 --plot sweep.svg",
        "subtext evaluate --scores mine.npz --data captions.jsonl --split test --relevance tfidf1",
    ],
    usage="RUN | --model NAME_OR_PATH | --scores FILE [OPTIONS]",
)
evaluate.act = lambda ctx: measure(api.evaluate, ctx)
evaluate.renamed |= {"--words": "--by-length"}
