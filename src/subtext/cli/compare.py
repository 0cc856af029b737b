"""`subtext compare`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from subtext.cli.command import PATH, Command

BETWEEN = "vs"


def sides(words: Sequence[Path]) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Files before and after `vs`; of two files without it, each is a side.

    Raises click.UsageError for anything else.
    """
    places = [place for place, word in enumerate(words) if str(word) == BETWEEN]
    if not places and len(words) == 2:
        return (words[0],), (words[1],)
    if len(places) != 1 or places[0] in (0, len(words) - 1):
        raise click.UsageError(
            "name two files, or those of two sides with the word 'vs' between them: A1.json A2.json vs B1.json B2.json"
        )
    return tuple(words[: places[0]]), tuple(words[places[0] + 1 :])


def _act(ctx: click.Context) -> None:
    values = ctx.params
    first, second = sides(values["files"])
    from subtext.api.compare import Asked, carry_out

    printed = values["json_out"] == Path("-")
    found = carry_out(
        Asked(
            first,
            second,
            figures=values["figures"],
            samples=values["samples"],
            seed=values["seed"],
            json_out=None if printed else values["json_out"],
        )
    )
    click.echo(found.json_text() if printed else found.text())


compare = Command(
    "compare",
    _act,
    {
        "Figures": [
            click.Argument(["files"], type=PATH, nargs=-1, required=True),
            click.Option(
                ["--figure", "figures"],
                multiple=True,
                metavar="NAME",
                help="Such as recall@10; again for more. Fewer figures, chosen before looking, make stronger tests. "
                "Default: all means but ranks.",
            ),
        ],
        "Resampling": [
            click.Option(
                ["--samples"],
                type=click.IntRange(100),
                default=2000,
                show_default=True,
                help="Of intervals and p-values.",
            ),
            click.Option(["--seed"], default=0, show_default=True, help="Seed of all that is drawn."),
        ],
        "Output": [
            click.Option(
                ["--json", "json_out"], type=PATH, metavar="FILE", help="Write it as JSON; - for standard output."
            )
        ],
    },
    help="""Say whether one system is better than another, from figures of `subtext evaluate` on the same queries.

    Each file needs its values a query beside it: evaluate with --json A.json --per-query A.npz. Differences come with
    an interval that draws pictures and runs together, and two p-values, corrected over figures: over queries (these
    trained models) and over runs (the methods; needs several seeds a side).""",
    examples=[
        "subtext compare a.json b.json",
        "subtext compare ours-*.json vs plain-*.json --figure recall@10 --json compared.json",
    ],
    usage="A.json B.json | A1.json A2.json ... vs B1.json B2.json ... [OPTIONS]",
)
