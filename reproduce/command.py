"""The commands `python -m reproduce.NAME`, made from signatures of functions as those of `subtext` are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from subtext.cli.command import error_messages, function_command
from subtext.cli.commands import CommandEntry


@dataclass(frozen=True)
class Text:
    """A result that is a text alone."""

    text: str

    def __str__(self) -> str:
        return self.text


def command(function: Callable[..., Any], *, name: str, examples: Sequence[str], usage: str) -> click.Command:
    """The command of a function; it prints the result, or the result's JSON for `--json -`. Errors are one sentence."""
    described = function_command(function, CommandEntry(examples, usage=usage), name=name)
    act = described.act

    def report_errors(ctx: click.Context) -> None:
        with error_messages(ctx):
            act(ctx)

    described.act = report_errors
    return described


class ReportingGroup(click.Group):
    """A group whose commands end with one sentence for an error."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error becomes one sentence and exit code 1."""
        with error_messages(ctx):
            return super().invoke(ctx)


def group(name: str, help: str, commands: Sequence[click.Command]) -> click.Group:
    """A command of several others."""
    return ReportingGroup(name, help=help, commands=commands, context_settings={"help_option_names": ["-h", "--help"]})
