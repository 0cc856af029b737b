"""`subtext index`: an index is built, changed, looked at, kept safe and moved."""

from __future__ import annotations

import click

from subtext.cli.command import example
from subtext.cli.index_build import GROWING
from subtext.cli.index_calibrate import CALIBRATE
from subtext.cli.index_maintenance import CARING


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
    """Build a search index over pictures and texts, change it, look at it, and keep it safe.

    An index is a folder, or lies in a PostgreSQL database: postgresql://USER@HOST/DATABASE?index=NAME (give the
    password as PGPASSWORD, or in ~/.pgpass). One process writes to a folder at a time, any number to a database; any
    number search meanwhile. What a command has reported as done survives a crash; one that was cut off goes on when it
    is given again.
    """


for command in (*GROWING, CALIBRATE, *CARING):
    index.add_command(command)
