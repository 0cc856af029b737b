"""`subtext index delete`, `compact`, `info`, `verify`, `backup` and `restore`: how an index is looked after."""

from __future__ import annotations

from collections.abc import Sequence

import click

from subtext.cli.command import PATH, Command, index_argument


def _json(text: str) -> click.Option:
    return click.Option(["--json", "as_json"], is_flag=True, help=text)


def _delete(ctx: click.Context) -> None:
    from subtext.api.index.care import delete

    values = ctx.params
    told = delete(
        values["index"],
        values["ids"],
        side="texts" if values["texts"] else "images",
        where=values["where"],
        listed=values["listed"],
        keep_texts=values["keep_texts"],
    )
    click.echo(told)


def _compact(ctx: click.Context) -> None:
    from subtext.api.index.care import compact

    click.echo(compact(ctx.params["index"], seed=ctx.params["seed"]))


def _info(ctx: click.Context) -> None:
    from subtext.api.index.telling import info

    click.echo(info(ctx.params["index"], as_json=ctx.params["as_json"]))


def _verify(ctx: click.Context) -> None:
    from subtext.api.index.telling import verify

    told, whole = verify(ctx.params["index"], as_json=ctx.params["as_json"])
    click.echo(told)
    if not whole:
        ctx.exit(1)


def _upgrade(ctx: click.Context) -> None:
    from subtext.api.index.care import upgrade

    click.echo(upgrade(ctx.params["index"]))


def _migrate(ctx: click.Context) -> None:
    from subtext.api.index.care import migrate

    click.echo(migrate(ctx.params["shards"], ctx.params["new"]))


def _backup(ctx: click.Context) -> None:
    from subtext.api.index.care import backup

    click.echo(backup(ctx.params["index"], ctx.params["out"]))


def _restore(ctx: click.Context) -> None:
    from subtext.api.index.care import restore

    click.echo(restore(ctx.params["copy"], ctx.params["index"]))


CARING: Sequence[click.Command] = (
    Command(
        "delete",
        _delete,
        {
            "Items": [
                index_argument(),
                click.Argument(["ids"], nargs=-1),
                click.Option(["--from", "listed"], type=PATH, metavar="FILE", help="A text file of ids, one a line."),
                click.Option(
                    ["--where"], multiple=True, metavar="CONDITION", help="Those that fulfil it: 'year < 1950'."
                ),
                click.Option(["--texts"], is_flag=True, help="Ids and conditions are of texts, not of pictures."),
                click.Option(["--keep-texts"], is_flag=True, help="Keep the texts that have no other picture."),
            ],
        },
        help="""Delete pictures, and the texts that belong to them alone, from INDEX.

        They are not found from now on: words, metadata, thumbnails, cached files and log lines go at once, vectors from
        the disk with `compact`. Data that still has them does not bring them back (add --again does).""",
        examples=["subtext index delete library 1936-041", "subtext index delete library --where 'rights = withdrawn'"],
        usage="INDEX [IDS]... [OPTIONS]",
    ),
    Command(
        "compact",
        _compact,
        {
            "Index": [
                index_argument(),
                click.Option(["--seed"], type=int, default=0, show_default=True, help="Of the sample for the lists."),
            ]
        },
        help="""Take deleted vectors off the disk, join segments, and sort a large INDEX into lists.

        Beyond 200,000 vectors a side a query compares the likeliest lists alone; how many these are is measured here,
        so that 99 % of the ten nearest are found. In PostgreSQL, beyond 20,000, a graph (HNSW) is made.""",
        examples=["subtext index compact library"],
        usage="INDEX [OPTIONS]",
    ),
    Command(
        "info",
        _info,
        {"Index": [index_argument()], "Output": [_json("The manifest, counts and jobs as JSON.")]},
        help="Say what INDEX holds: items, vectors, size, fields, the model that made it, and what was cut off.",
        examples=["subtext index info library", "subtext index info library --json"],
        usage="INDEX [OPTIONS]",
    ),
    Command(
        "verify",
        _verify,
        {"Index": [index_argument()], "Output": [_json("The problems as JSON.")]},
        help="Read every byte of INDEX, compare checksums, and name what is damaged; exit code 1 if anything is.",
        examples=["subtext index verify library"],
        usage="INDEX [OPTIONS]",
    ),
    Command(
        "upgrade",
        _upgrade,
        {"Index": [index_argument()]},
        help="""Upgrade the schema of an INDEX in PostgreSQL that an earlier version of Subtext made.

        In one transaction, while others wait. An index folder needs no upgrade.""",
        examples=["subtext index upgrade 'postgresql://editor@db/archive?index=library'"],
        usage="INDEX",
    ),
    Command(
        "migrate",
        _migrate,
        {"Index": [click.Argument(["shards"], type=PATH), click.Argument(["new"], type=PATH)]},
        help="""Copy SHARDS, an index in shards of an earlier version of Subtext, into the new folder NEW.

        Nothing is embedded again: items, vectors, links, deletions, journal and calibration are copied. Run the command
        again to resume an interrupted copy.""",
        examples=["subtext index migrate archive library"],
        usage="SHARDS NEW",
    ),
    Command(
        "backup",
        _backup,
        {"Index": [index_argument(), click.Argument(["out"], type=PATH)]},
        help="Copy INDEX as it is now into the new folder OUT, while it is searched and written.",
        examples=["subtext index backup library backups/monday"],
        usage="INDEX OUT",
    ),
    Command(
        "restore",
        _restore,
        {"Index": [click.Argument(["copy"], type=PATH), index_argument()]},
        help="Make the new folder INDEX of the backup COPY, which is checked first.",
        examples=["subtext index restore backups/monday library"],
        usage="COPY INDEX",
    ),
)
"""In the order of a user's needs."""
