"""`subtext audit`."""

from __future__ import annotations

from pathlib import Path

import click

from subtext.app.cli.command import PATH, Command, data_options, run_options

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
    from subtext.app.auditing.carry_out import Asked, audit, json_text
    from subtext.app.auditing.page import text

    found = audit(Asked.from_options(ctx.params))
    click.echo(json_text(found) if ctx.params["json_out"] == Path("-") else text(found))
    if not found.passed:
        ctx.exit(1)


audit = Command(
    "audit",
    _act,
    {
        "Model": [click.Argument(["run"], type=PATH)],
        "Data": [
            *data_options(),
            click.Option(["--split"], help="Which split. Default: the run's validation split, which chose its epoch."),
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
        "Run": run_options(),
    },
    help="""Check an evaluation for leaks and for scores that depend on more than their pair.

    Scores are made again in other orders, blocks and company; truth is shuffled; ties, captions and numbers that are
    none are counted; pictures, texts and words of the training split are looked for in the audited one. Exit code 1
    when a check fails.""",
    examples=[
        "subtext audit runs/first --split test --html audit.html",
        "subtext audit runs/first --data other.jsonl --split all --json audit.json",
    ],
    usage="RUN [OPTIONS]",
)
