"""`subtext demo`."""

from __future__ import annotations

from pathlib import Path

import click

from subtext.cli.command import PATH, Command, device_option, quiet_option, workers_option


def _act(ctx: click.Context) -> None:
    from subtext.demo.flow import Demo
    from subtext.demo.flow import demo as carry_out

    names = ("out", "seed", "epochs", "device", "workers", "quiet")
    shown = carry_out(Demo(**{name: ctx.params[name] for name in names}))
    click.echo(shown.text)
    if shown.stopped:
        ctx.exit(130)


demo = Command(
    "demo",
    _act,
    {
        "Demonstration": [
            click.Option(
                ["--out"],
                type=PATH,
                default=Path("demo"),
                show_default=True,
                help="Folder for data, run, index and page.",
            ),
            click.Option(["--seed"], default=0, show_default=True, help="Seed of every random choice."),
            click.Option(
                ["--epochs"], type=click.IntRange(1), help="Epochs of the training; fewer are faster and worse."
            ),
        ],
        "Run": [device_option(), workers_option(), quiet_option()],
    },
    help="""Show every step on a small example, in minutes: some 3,900 emoji with their names in six languages.

    It writes the emoji as a data set, trains a small model, evaluates it on emoji that it has not seen, builds an
    index, answers three searches, and writes a page with the results. It needs the extra "demo"
    (pip install 'subtext[demo]'). Run the command again to resume an interrupted demonstration.""",
    examples=["subtext demo", "subtext demo --out emoji --seed 1"],
)
