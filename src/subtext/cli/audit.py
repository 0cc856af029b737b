"""`subtext audit`."""

from __future__ import annotations

from pathlib import Path

import click

from subtext.cli.command import PATH, Command, bf16_option, data_options, run_options
from subtext.cli.subject import judged_options, model_as_typed, require_one

CHECKS = (
    "held-out",
    "repeat",
    "order",
    "blocks",
    "neighbours",
    "names",
    "truth",
    "captions",
    "ties",
    "finite",
    "picture-overlap",
    "text-overlap",
    "vocabulary",
)


def _act(ctx: click.Context) -> None:
    require_one(ctx)
    if ctx.params["run"] is not None and ctx.params["train_split"] is not None:
        raise click.UsageError("--train-split is for what has no record; RUN knows what it learnt from", ctx)
    from subtext.api.audit.carry_out import audit, json_text
    from subtext.api.audit.page import text
    from subtext.api.audit.subject import Asked

    with model_as_typed(ctx):
        found = audit(Asked.from_options(ctx.params))
    click.echo(json_text(found) if ctx.params["json_out"] == Path("-") else text(found))
    if not found.passed:
        ctx.exit(1)


audit = Command(
    "audit",
    _act,
    {
        **judged_options(),
        "Data": [
            *data_options(),
            click.Option(["--split"], help="Which split. Default: the run's validation split, which chose its epoch."),
            click.Option(["--train-split"], help="For no RUN: the split of this data that was learnt from, if known."),
        ],
        "Checks": [
            click.Option(
                ["--skip"], type=click.Choice(CHECKS), multiple=True, help="Leave a check out; again for more."
            ),
            click.Option(
                ["--sample"],
                type=click.IntRange(2),
                default=128,
                show_default=True,
                help="Pictures that are scored again in other orders, blocks and company.",
            ),
            click.Option(
                ["--tolerance"],
                type=click.FloatRange(0),
                default=1e-3,
                show_default=True,
                help="What a score may change by, in standard deviations of the scores.",
            ),
            click.Option(["--seed"], default=0, show_default=True, help="Seed of sample and shuffles."),
        ],
        "Output": [
            click.Option(
                ["--json", "json_out"],
                type=PATH,
                metavar="FILE",
                help="Write it as JSON; - for standard output.",
            ),
            click.Option(["--html", "html_out"], type=PATH, metavar="FILE", help="Write it as one page."),
        ],
        "Run": [*run_options(), bf16_option()],
    },
    help="""Check an evaluation for leaks and for scores that depend on more than their pair.

    Scores are made again in other orders, blocks and company; truth is shuffled; ties, captions and numbers that are
    none are counted; pictures, texts and words of the training split are looked for in the audited one. Of scores or
    vectors of another program, what needs the model is named as not possible. Exit code 1 when a check fails.""",
    examples=[
        "subtext audit runs/first --split test --html audit.html",
        "subtext audit runs/first --data other.jsonl --split all --json audit.json",
        "subtext audit --model openai/clip-vit-base-patch32 --data captions.jsonl --split test",
        "subtext audit --scores mine.npz --data captions.jsonl --split test --train-split train --html audit.html",
    ],
    usage="RUN | --model NAME_OR_PATH | --scores FILE [OPTIONS]",
)
