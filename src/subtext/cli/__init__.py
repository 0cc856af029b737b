"""The command line: `subtext COMMAND ...`; what a command needs is imported when it is called.

Exit codes: 0 done; 1 the work cannot be done, said in one sentence; 2 the command line is wrong; 130 interrupted.
Results go to standard output, progress and remarks to standard error.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

import click

from subtext.cli.command import HELP, HELP_TEXTS, error_messages, example, examples
from subtext.version import __version__

COMMANDS: dict[str, str] = {name: line for name, line in HELP_TEXTS["commands"].items() if " " not in name}
"""Command name -> its line in `subtext --help`."""

GROUP = "subtext.commands"
"""Entry points of other packages: a command's name -> a function; its `Annotated` parameters are the options."""


class LazyGroup(click.Group):
    """A group whose commands are imported when one is asked for, and whose errors end in a sentence."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order in which a new user needs them."""
        return [*COMMANDS, *(point.name for point in entry_points(group=GROUP) if point.name not in COMMANDS)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, None when there is none."""
        if cmd_name not in COMMANDS:
            from subtext.cli.command import verb_command

            example = f"subtext {cmd_name} --help"
            for point in entry_points(group=GROUP, name=cmd_name):
                try:
                    return verb_command(point.load(), name=cmd_name, examples=[example])
                except (ImportError, AttributeError, SyntaxError) as error:
                    raise click.ClickException(f"{cmd_name} of {point.value} cannot be loaded: {error}") from error
            return None
        if cmd_name == "train":
            from subtext.cli.train import train

            return train
        from subtext.cli.verbs import command

        return command(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first word names; an unknown one is answered with near names."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-") and not self.get_command(ctx, args[0]):
            from subtext.cli.verbs import VERBS
            from subtext.recipes.catalogue import unknown

            of_groups = " or ".join(f"subtext {full}" for full in VERBS if full.partition(" ")[2] == args[0])
            advice = f"there is no command called '{args[0]}'; did you mean {of_groups}?"
            commands = dict.fromkeys(self.list_commands(ctx))
            raise click.UsageError(advice if of_groups else unknown("command", args[0], commands), ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, from the table above: no module is imported for it."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))
        if others := [(point.name, point.value) for point in entry_points(group=GROUP) if point.name not in COMMANDS]:
            with formatter.section("Commands of other packages"):
                formatter.write_dl(others)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error of Subtext becomes one sentence and exit code 1."""
        with error_messages(ctx):
            return super().invoke(ctx)


@click.group(
    cls=LazyGroup,
    epilog=example(*examples()["subtext"]),
    context_settings={"help_option_names": list(HELP), "max_content_width": 110},
)
@click.version_option(__version__, prog_name="subtext")
def main() -> None:
    """Search archives of images whose texts do not describe the images."""
