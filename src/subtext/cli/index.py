"""`subtext index`: build, grow, calibrate, check and maintain an index."""

from __future__ import annotations

import json
from typing import Any

import click

from subtext.api.index import build, calibrate, importing, maintain
from subtext.api.options import parameters
from subtext.cli.command import Command, click_parameter, command_help, example, verb_command


def _with_json(verb: Any, name: str, examples: list[str]) -> Command:
    """A command of one INDEX whose result is also printed as JSON; a result that is not intact exits with 1."""

    def act(ctx: click.Context) -> None:
        result = verb(ctx.params["index"])
        as_json = ctx.params["as_json"]
        click.echo(json.dumps(result.to_json(), indent=2, ensure_ascii=False) if as_json else str(result))
        if not getattr(result, "intact", True):
            ctx.exit(1)

    sections: dict[str, list[click.Parameter]] = {
        "Index": [click_parameter(parameter) for parameter in parameters(verb)],
        "Output": [click.Option(["--json", "as_json"], is_flag=True, help="Print JSON.")],
    }
    return Command(name, act, sections, help=command_help(verb), examples=examples, usage="INDEX [OPTIONS]")


def _show_checks(checks: int) -> None:
    click.echo(f"checked {checks} time{'s' if checks != 1 else ''}")


@click.group(
    epilog=example(
        "subtext index build library --run runs/first",
        "subtext index add library --data new.jsonl --images photos",
        "subtext index delete library 1936-041 1936-042",
        "subtext index verify library",
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
)
def index() -> None:
    """Build a search index over images and texts, change it, check it, and back it up.

    An index is a folder, or lies in a PostgreSQL database: postgresql://USER@HOST/DATABASE?index=NAME (give the
    password as PGPASSWORD, or in ~/.pgpass). One process at a time writes to a folder, any number to a database. Any
    number of processes search meanwhile. What a command has reported as done survives a crash. Run an interrupted
    command again to resume it.
    """


COMMANDS = (
    verb_command(
        build.build_index,
        name="build",
        examples=[
            "subtext index build library --run runs/first",
            "subtext index build library --run runs/first --data photos.jsonl --images photos",
        ],
        usage="INDEX --run RUN [OPTIONS]",
    ),
    verb_command(
        build.add_to_index,
        name="add",
        examples=["subtext index add library --data new.jsonl --images photos", "subtext index add library"],
        usage="INDEX --data DATA [OPTIONS]",
    ),
    verb_command(
        build.update_index,
        name="update",
        examples=["subtext index update library", "subtext index update library --keep-missing"],
        usage="INDEX [OPTIONS]",
    ),
    verb_command(
        build.watch_index,
        name="watch",
        examples=["subtext index watch library", "subtext index watch library --interval 5"],
        usage="INDEX [OPTIONS]",
        show=_show_checks,
    ),
    verb_command(
        build.move_index,
        name="move",
        examples=["subtext index move library --run runs/better"],
        usage="INDEX --run RUN [OPTIONS]",
    ),
    verb_command(
        importing.import_index,
        name="import",
        examples=["subtext index import library vectors.npz --run runs/first --data photos.jsonl"],
        usage="INDEX VECTORS [OPTIONS]",
    ),
    verb_command(
        calibrate.calibrate,
        examples=["subtext index calibrate library --data photos.jsonl --split test"],
        usage="INDEX --data DATA --split SPLIT [OPTIONS]",
    ),
    verb_command(
        maintain.delete_from_index,
        name="delete",
        examples=["subtext index delete library 1936-041", "subtext index delete library --where 'rights = withdrawn'"],
        usage="INDEX [IDS]... [OPTIONS]",
    ),
    verb_command(
        maintain.compact_index,
        name="compact",
        examples=["subtext index compact library"],
        usage="INDEX [OPTIONS]",
    ),
    _with_json(maintain.index_info, "info", ["subtext index info library", "subtext index info library --json"]),
    _with_json(maintain.verify_index, "verify", ["subtext index verify library"]),
    verb_command(
        maintain.upgrade_index,
        name="upgrade",
        examples=["subtext index upgrade 'postgresql://editor@db/archive?index=library'"],
        usage="INDEX",
    ),
    verb_command(
        maintain.migrate_index,
        name="migrate",
        examples=["subtext index migrate archive library"],
        usage="SHARDS NEW",
    ),
    verb_command(
        maintain.backup_index,
        name="backup",
        examples=["subtext index backup library backups/monday"],
        usage="INDEX OUT",
    ),
    verb_command(
        maintain.restore_index,
        name="restore",
        examples=["subtext index restore backups/monday library"],
        usage="BACKUP INDEX",
    ),
)
"""In the order of a user's needs."""

SUMMARIES = {
    "build": "Embed images and texts and store them in a new index.",
    "add": "Add the new and changed items of a data set.",
    "update": "Apply the changes of the data set to its index.",
    "watch": "Update an index whenever its data changes.",
    "move": "Embed all items with another run.",
    "import": "Import vectors that were computed elsewhere.",
    "calibrate": "Turn scores into probabilities of a true match.",
    "delete": "Delete images and their texts.",
    "compact": "Free disk space and speed up large indexes.",
    "info": "Show what an index holds.",
    "verify": "Check an index for damage.",
    "upgrade": "Upgrade the schema of a PostgreSQL index.",
    "migrate": "Copy an index in shards into a new index.",
    "backup": "Copy an index into a new folder.",
    "restore": "Restore a backup to a new index.",
}
"""Command -> its line in `subtext index --help`."""

for command in COMMANDS:
    command.short_help = SUMMARIES[str(command.name)]
    index.add_command(command)
