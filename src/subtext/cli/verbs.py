"""The commands that are one public function each: usage, examples, and what is special about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypedDict

import click

import subtext
from subtext.cli.command import HELP_TEXTS, PATH, CommandGroup, example, examples, verb_command
from subtext.text_helpers import counted


class CommandEntry(TypedDict, total=False):
    """How a function becomes a command; see `verb_command`.

    Attributes:
        verb: The public function, where it has neither the name of the command nor that with its group: build_index.
    """

    verb: str
    usage: str
    required: list[str]
    json: bool
    exit_code: Callable[[Any], int]
    text: Callable[[Any], str]
    extra_arguments: Callable[[click.Context], dict[str, Any]]


def sides(words: Sequence[Path]) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Files before and after `vs`; of two files without it, each is a side.

    Raises:
        click.UsageError: For anything else.
    """
    positions = [position for position, word in enumerate(words) if str(word) == "vs"]
    if not positions and len(words) == 2:
        return (words[0],), (words[1],)
    if len(positions) != 1 or positions[0] in (0, len(words) - 1):
        raise click.UsageError(
            "name two files, or those of two sides with the word 'vs' between them: A1.json A2.json vs B1.json B2.json"
        )
    return tuple(words[: positions[0]]), tuple(words[positions[0] + 1 :])


VERBS: dict[str, CommandEntry] = {
    "demo": {"verb": "run_demo", "exit_code": lambda shown: 130 if shown.stopped else 0},
    "ensemble": {"verb": "ensemble_runs"},
    "evaluate": {"usage": "RUN | --model NAME_OR_FOLDER | --scores FILE [OPTIONS]"},
    "compare": {
        "usage": "A.json B.json | A1.json A2.json ... vs B1.json B2.json ... [OPTIONS]",
        "extra_arguments": lambda ctx: dict(zip(("first", "second"), sides(ctx.params["files"]), strict=True)),
    },
    "audit": {
        "usage": "RUN | --model NAME_OR_FOLDER | --scores FILE [OPTIONS]",
        "exit_code": lambda audit: int(not audit.passed),
    },
    "embed": {"required": ["out"], "usage": "RUN | --model NAME_OR_FOLDER --data DATA, --out FILE [OPTIONS]"},
    "search": {"usage": 'INDEX "QUERY" | --image FILE | --like ID [OPTIONS]', "json": True},
    "serve": {},
    "score": {"json": True, "usage": "PAIRS --run RUN | --model NAME_OR_FOLDER [OPTIONS]"},
    "curate": {"usage": "DATA --run RUN | --model NAME_OR_FOLDER, --out DIR [OPTIONS]"},
    "export": {"verb": "export_run", "usage": "RUN --hf DIR | --onnx DIR"},
    "runs": {"verb": "list_runs", "json": True, "exit_code": lambda listed: int(not listed.intact)},
    "models": {"verb": "list_models", "json": True},
    "data check": {"verb": "check_dataset", "json": True, "exit_code": lambda report: int(not report.usable)},
    "data prepare": {"required": ["out"]},
    "data dedup": {"required": ["out"]},
    "data join": {"verb": "join_features"},
    "data corrupt": {"required": ["out", "labels"]},
    "data detect-noise": {"required": ["labels"], "json": True},
    "index build": {"usage": "INDEX [DATA] --run RUN | --model NAME_OR_FOLDER [OPTIONS]"},
    "index add": {"verb": "add_to_index", "usage": "INDEX DATA [OPTIONS]"},
    "index update": {},
    "index watch": {"text": lambda checks: f"checked {counted(checks, 'time')}"},
    "index move": {"usage": "INDEX --run RUN | --model NAME_OR_FOLDER [OPTIONS]"},
    "index import": {},
    "index calibrate": {},
    "index delete": {
        "verb": "delete_from_index",
        "extra_arguments": lambda ctx: {} if ctx.params["yes"] else {"confirm": click.confirm},
    },
    "index compact": {},
    "index info": {"verb": "index_info", "json": True},
    "index verify": {"json": True, "exit_code": lambda result: int(not result.intact)},
    "index backup": {},
    "index restore": {},
    "neighbours build": {},
    "neighbours show": {"json": True},
}
"""Command, with its group -> how it is made. In the order of a user's needs."""

GROUPS: dict[str, str] = HELP_TEXTS["groups"]
"""Group -> its help."""


def command(name: str) -> click.Command:
    """The command, or the group of commands, of that name."""
    if name not in GROUPS:
        return _verb_command(name)
    commands = {full.partition(" ")[2]: _verb_command(full) for full in VERBS if full.partition(" ")[0] == name}
    return CommandGroup(name, commands, help=GROUPS[name], epilog=example(*examples()[name]))


def _verb_command(full_name: str) -> click.Command:
    entry: dict[str, Any] = {**VERBS[full_name]}
    group, _, name = full_name.rpartition(" ")
    names = entry.pop("verb", ""), f"{name}_{group}", name.replace("-", "_")
    verb = getattr(subtext, next(verb_name for verb_name in names if verb_name in subtext.__all__))
    click_command = verb_command(verb, name=name, examples=examples()[full_name], **entry)
    click_command.short_help = HELP_TEXTS["commands"].get(full_name)
    if full_name == "index delete":
        click_command.params.append(click.Option(["--yes", "-y"], is_flag=True, help="Delete without asking."))
    if name == "compare":
        click_command.params.insert(0, click.Argument(["files"], type=PATH, nargs=-1, required=True))
    return click_command
