"""The commands that are one public function each: usage, examples, and what is special about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypedDict

import click

import subtext
from subtext.cli.command import PATH, RENAMED_OPTIONS, CommandGroup, example, verb_command
from subtext.errors import counted


class Entry(TypedDict, total=False):
    """How a function becomes a command; see `verb_command`.

    verb     the public function, where it has neither the name of the command nor that with its group: build_index
    summary  its line in the help of its group, where that is not the first paragraph of its own help
    """

    verb: str
    summary: str
    usage: str
    required: list[str]
    json: bool
    exit_code: Callable[[Any], int]
    text: Callable[[Any], str]
    extra_arguments: Callable[[click.Context], dict[str, Any]]


def sides(words: Sequence[Path]) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Files before and after `vs`; of two files without it, each is a side.

    Raises click.UsageError for anything else.
    """
    positions = [position for position, word in enumerate(words) if str(word) == "vs"]
    if not positions and len(words) == 2:
        return (words[0],), (words[1],)
    if len(positions) != 1 or positions[0] in (0, len(words) - 1):
        raise click.UsageError(
            "name two files, or those of two sides with the word 'vs' between them: A1.json A2.json vs B1.json B2.json"
        )
    return tuple(words[: positions[0]]), tuple(words[positions[0] + 1 :])


VERBS: dict[str, Entry] = {
    "demo": {"exit_code": lambda shown: 130 if shown.stopped else 0},
    "ensemble": {},
    "evaluate": {"usage": "RUN | --model NAME_OR_PATH | --scores FILE [OPTIONS]"},
    "compare": {
        "usage": "A.json B.json | A1.json A2.json ... vs B1.json B2.json ... [OPTIONS]",
        "extra_arguments": lambda ctx: dict(zip(("first", "second"), sides(ctx.params["files"]), strict=True)),
    },
    "audit": {
        "usage": "RUN | --model NAME_OR_PATH | --scores FILE [OPTIONS]",
        "exit_code": lambda audit: int(not audit.passed),
    },
    "embed": {"required": ["out"]},
    "search": {"usage": 'INDEX "QUERY" | --image FILE | --like ID [OPTIONS]', "json": True},
    "serve": {},
    "score": {"json": True},
    "curate": {},
    "export": {"usage": "RUN --hf DIR | --onnx DIR"},
    "runs": {"json": True, "exit_code": lambda listed: int(not listed.intact)},
    "data check": {"json": True, "exit_code": lambda report: int(not report.usable)},
    "data prepare": {"required": ["out"]},
    "data dedup": {"required": ["out"]},
    "data join": {},
    "data corrupt": {"required": ["out", "labels"]},
    "data detect-noise": {"required": ["labels"], "json": True},
    "index build": {"summary": "Embed images and texts and store them in a new index."},
    "index add": {
        "verb": "add_to_index",
        "summary": "Add the new and changed items of a data set.",
        "usage": "INDEX --data DATA [OPTIONS]",
    },
    "index update": {"summary": "Apply the changes of the data set to its index."},
    "index watch": {
        "summary": "Update an index whenever its data changes.",
        "text": lambda checks: f"checked {counted(checks, 'time')}",
    },
    "index move": {"summary": "Embed all items with another run."},
    "index import": {"summary": "Import vectors from a file."},
    "index calibrate": {"summary": "Turn scores into probabilities of a match."},
    "index delete": {"verb": "delete_from_index", "summary": "Delete images and their texts."},
    "index compact": {"summary": "Free disk space and speed up large indexes."},
    "index info": {"verb": "index_info", "summary": "Show the contents of an index.", "json": True},
    "index verify": {
        "summary": "Check an index for damage.",
        "json": True,
        "exit_code": lambda result: int(not result.intact),
    },
    "index upgrade": {"summary": "Upgrade the schema of a PostgreSQL index."},
    "index migrate": {"summary": "Copy an index in shards into a new index."},
    "index backup": {"summary": "Copy an index into a new folder."},
    "index restore": {"summary": "Restore a backup to a new index."},
    "neighbours build": {},
    "neighbours show": {"json": True},
}
"""Command, with its group -> how it is made. In the order of a user's needs."""

GROUPS = {
    "data": "Check a data set, or derive a new one from it.",
    "index": """Build a search index over images and texts, change it, check it, and back it up.

        An index is a folder, or it is in a PostgreSQL database: postgresql://USER@HOST/DATABASE?index=NAME (set the
        password in PGPASSWORD or ~/.pgpass). A folder allows one writing process at a time, a database any number. Any
        number of processes can search at the same time. Completed changes survive a crash. Run an interrupted command
        again to resume it.""",
    "neighbours": "Find the semantic neighbours of each text, or show them.",
}
"""Group -> its help."""

RENAMED: Mapping[str, Mapping[str, str]] = {"data": {"found": "detect-noise", "loosen": "corrupt"}}
"""Group -> old command -> its name now."""


@cache
def examples() -> dict[str, list[str]]:
    """Command or group -> the examples in its help."""
    sections = Path(__file__).with_name("examples.txt").read_text(encoding="utf-8").split("\n\n")
    lines = [section.strip().splitlines() for section in sections]
    return {heading.removesuffix(":"): [line.strip() for line in typed] for heading, *typed in lines}


def command(name: str) -> click.Command:
    """The command, or the group of commands, of that name."""
    if name not in GROUPS:
        return _verb_command(name)
    commands = {full.partition(" ")[2]: _verb_command(full) for full in VERBS if full.partition(" ")[0] == name}
    return CommandGroup(
        name, commands, help=GROUPS[name], epilog=example(*examples()[name]), renamed=RENAMED.get(name, {})
    )


def _verb_command(full_name: str) -> click.Command:
    entry: dict[str, Any] = {**VERBS[full_name]}
    group, _, name = full_name.rpartition(" ")
    names = entry.pop("verb", ""), f"{name}_{group}", name.replace("-", "_")
    verb = getattr(subtext, next(verb_name for verb_name in names if verb_name in subtext.__all__))
    summary = entry.pop("summary", None)
    entry |= {"examples": examples()[full_name], "renamed": RENAMED_OPTIONS.get(full_name)}
    click_command = verb_command(verb, name=name, **entry)
    click_command.short_help = summary
    if name == "compare":
        click_command.params.insert(0, click.Argument(["files"], type=PATH, nargs=-1, required=True))
    return click_command
