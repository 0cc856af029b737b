"""`subtext audit`."""

from __future__ import annotations

import click

from subtext.api import audit as api
from subtext.cli.command import verb_command
from subtext.cli.evaluate import measure


def _act(ctx: click.Context) -> None:
    if not measure(api.audit, ctx).passed:
        ctx.exit(1)


audit = verb_command(
    api.audit,
    examples=[
        "subtext audit runs/first --split test --html audit.html",
        "subtext audit runs/first --data other.jsonl --split all --json audit.json",
        "subtext audit --model openai/clip-vit-base-patch32 --data captions.jsonl --split test",
        "subtext audit --scores mine.npz --data captions.jsonl --split test --train-split train --html audit.html",
    ],
    usage="RUN | --model NAME_OR_PATH | --scores FILE [OPTIONS]",
)
audit.act = _act
