"""`subtext compare`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from subtext.api import compare as api
from subtext.api.options import parameters
from subtext.cli.command import PATH, verb_command

BETWEEN = "vs"


def sides(words: Sequence[Path]) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Files before and after `vs`; of two files without it, each is a side.

    Raises click.UsageError for anything else.
    """
    positions = [position for position, word in enumerate(words) if str(word) == BETWEEN]
    if not positions and len(words) == 2:
        return (words[0],), (words[1],)
    if len(positions) != 1 or positions[0] in (0, len(words) - 1):
        raise click.UsageError(
            "name two files, or those of two sides with the word 'vs' between them: A1.json A2.json vs B1.json B2.json"
        )
    return tuple(words[: positions[0]]), tuple(words[positions[0] + 1 :])


def _act(ctx: click.Context) -> None:
    first, second = sides(ctx.params["files"])
    values = {parameter.name: ctx.params[parameter.name] for parameter in parameters(api.compare)}
    printed = values["json"] == Path("-")
    compared = api.compare(first, second, **values | ({"json": None} if printed else {}))
    click.echo(compared.json_text() if printed else str(compared))


compare = verb_command(
    api.compare,
    examples=[
        "subtext compare a.json b.json",
        "subtext compare ours-*.json vs plain-*.json --metric recall@10 --json compared.json",
    ],
    usage="A.json B.json | A1.json A2.json ... vs B1.json B2.json ... [OPTIONS]",
)
compare.act = _act
compare.params.insert(0, click.Argument(["files"], type=PATH, nargs=-1, required=True))
