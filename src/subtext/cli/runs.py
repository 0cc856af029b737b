"""`subtext runs`."""

from __future__ import annotations

import json

import click

from subtext.api.options import parameters
from subtext.api.runs import runs as verb
from subtext.cli.command import Command, click_parameter, command_help


def _act(ctx: click.Context) -> None:
    listed = verb(ctx.params["folders"])
    click.echo(json.dumps(listed.to_json(), indent=2, ensure_ascii=False) if ctx.params["as_json"] else str(listed))


runs = Command(
    "runs",
    _act,
    {
        "Folders": [click_parameter(parameter) for parameter in parameters(verb)],
        "Output": [click.Option(["--json", "as_json"], is_flag=True, help="Print JSON, one object per run.")],
    },
    help=command_help(verb),
    examples=["subtext runs", "subtext runs experiments --json"],
)
