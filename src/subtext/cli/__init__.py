"""The command line: `subtext COMMAND ...`; what a command needs is imported when it is called.

Exit codes: 0 done; 1 the work cannot be done, said in one sentence; 2 the command line is wrong; 130 interrupted.
Results go to standard output, progress and remarks to standard error.
"""

from __future__ import annotations

import io
import sys
from importlib.metadata import entry_points
from typing import Any

import click

import subtext
from subtext.cli.command import HELP, CommandGroup, error_messages, example, function_command
from subtext.cli.commands import COMMANDS, EXAMPLES, GROUPS, SUMMARIES, CommandEntry
from subtext.settings import did_you_mean
from subtext.settings.to_click import PATH
from subtext.version import __version__

GROUP = "subtext.commands"
"""Entry points of other packages: a command's name -> a function; its `Annotated` parameters are the options."""


class LazyGroup(click.Group):
    """A group whose commands are imported when one is used, and whose errors end in a sentence."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command line; characters that the output's encoding lacks are printed as escapes.

        Args:
            *args: As of `click.Group`.
            **options: As of `click.Group`.

        Returns:
            As of `click.Group`.
        """
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        return super().main(*args, **options)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order in which a new user needs them.

        Args:
            ctx: Of the call.

        Returns:
            Subtext's own commands, then those of other packages.
        """
        return [*SUMMARIES, *(point.name for point in entry_points(group=GROUP) if point.name not in SUMMARIES)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, None when there is none.

        Args:
            ctx: Of the call.
            cmd_name: As it was typed.

        Returns:
            The command; it is imported now.
        """
        if cmd_name not in SUMMARIES:
            entry = CommandEntry([f"subtext {cmd_name} --help"])
            for point in entry_points(group=GROUP, name=cmd_name):
                try:
                    return function_command(point.load(), entry, name=cmd_name)
                except (ImportError, AttributeError, SyntaxError) as error:
                    raise click.ClickException(f"{cmd_name} of {point.value} cannot be loaded: {error}") from error
            return None
        return _named_command(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first word names; an unknown one is answered with the nearest names.

        Args:
            ctx: Of the call.
            args: Words that were typed.

        Returns:
            Name, command and the words after the name.

        Raises:
            click.UsageError: For an unknown command.
        """
        if args and args[0] not in SUMMARIES and not args[0].startswith("-") and not self.get_command(ctx, args[0]):
            of_groups = " or ".join(f"subtext {full}" for full in COMMANDS if full.partition(" ")[2] == args[0])
            advice = f"there is no command called '{args[0]}'; did you mean {of_groups}?"
            commands = dict.fromkeys(self.list_commands(ctx))
            raise click.UsageError(advice if of_groups else did_you_mean("command", args[0], commands), ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, from the table above: no module is imported for it.

        Args:
            ctx: Of the call.
            formatter: Receives the list.
        """
        with formatter.section("Commands"):
            formatter.write_dl(list(SUMMARIES.items()))
        if others := [(point.name, point.value) for point in entry_points(group=GROUP) if point.name not in SUMMARIES]:
            with formatter.section("Commands of other packages"):
                formatter.write_dl(others)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error of Subtext becomes one sentence and exit code 1.

        Args:
            ctx: Of the call.

        Returns:
            What the command returns.
        """
        with error_messages(ctx):
            return super().invoke(ctx)


@click.group(
    cls=LazyGroup,
    epilog=example(*EXAMPLES),
    context_settings={"help_option_names": list(HELP), "max_content_width": 110},
)
@click.version_option(__version__, prog_name="subtext")
def main() -> None:
    """Search archives of images whose texts do not describe the images."""


def _named_command(name: str) -> click.Command:
    """The command, or the group of commands, of a name of `SUMMARIES`."""
    if name == "train":
        from subtext.cli.train import train

        return train
    if name not in GROUPS:
        return _of_entry(name)
    commands = {full.partition(" ")[2]: _of_entry(full) for full in COMMANDS if full.partition(" ")[0] == name}
    return CommandGroup(name, commands, help=GROUPS[name].help, epilog=example(*GROUPS[name].examples))


def _of_entry(full_name: str) -> click.Command:
    entry = COMMANDS[full_name]
    group, _, name = full_name.rpartition(" ")
    if full_name in ("evaluate", "audit"):
        # Of flat options their functions make the objects that the public ones take.
        from subtext.cli import evaluate as flat

        function = getattr(flat, full_name)
    else:
        names = entry.function, f"{name}_{group}", name.replace("-", "_")
        function = getattr(subtext, next(candidate for candidate in names if candidate in subtext.__all__))
    made = function_command(function, entry, name=name)
    if full_name == "index delete":
        made.params.append(click.Option(["--yes", "-y"], is_flag=True, help="Delete without asking."))
    if name == "compare":
        made.params.insert(0, click.Argument(["files"], type=PATH, nargs=-1, required=True))
    return made
