"""`subtext demo`."""

from __future__ import annotations

from typing import Any

import click

import subtext
from subtext.cli.command import verb_command


def _show(shown: Any) -> None:
    click.echo(str(shown))
    if shown.stopped:
        click.get_current_context().exit(130)


demo = verb_command(subtext.demo, examples=["subtext demo", "subtext demo --out emoji --seed 1"], show=_show)
