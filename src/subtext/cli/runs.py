"""`subtext runs`."""

from __future__ import annotations

from pathlib import Path

import click

from subtext.cli.command import PATH, Command


def _act(ctx: click.Context) -> None:
    from subtext.api.runs import list_runs

    folders = ctx.params["folders"] or (Path(),)
    click.echo(list_runs(folders, as_json=ctx.params["as_json"]))


runs = Command(
    "runs",
    _act,
    {
        "Folders": [click.Argument(["folders"], type=PATH, nargs=-1, metavar="[FOLDER ...]")],
        "Output": [click.Option(["--json", "as_json"], is_flag=True, help="As JSON, one object a run.")],
    },
    help="""List what was trained: recipe, data, best figures, epochs, status, disk use.

    Looks in each FOLDER and two levels below it; without FOLDER in the current one.""",
    examples=["subtext runs", "subtext runs experiments --json"],
)
