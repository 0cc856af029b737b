"""Commands made from the signatures of public functions: help in sections, an example, errors with flags."""

from __future__ import annotations

import errno
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from io import IOBase
from pathlib import Path
from traceback import walk_tb
from typing import Any

import click

from subtext.cli.commands import CommandEntry
from subtext.errors import ArgumentError, Setting, SubtextError
from subtext.report.text_table import printable
from subtext.settings import fields_of, objects_of
from subtext.settings.to_click import DescribedArgument, to_click
from subtext.text_helpers import json_text

HELP = ("-h", "--help")
BOTH = "_option"
"""Ends the name of an option that stands for an argument."""
_LONG = re.compile(r"(\S{200})(\S{100,})")
_MINUS = re.compile(r"-[^\W\d_]\S")


class Command(click.Command):
    """A command that lists its options under headings, shows an example, and reads its context.

    Args:
        name: Of the command.
        act: Gets the context, whose `params` hold the values: many options need no function of many arguments.
        sections: Heading -> parameters, in the order of the help.
        help: Its paragraphs.
        examples: Lines that the help shows.
        usage: What stands after the command's name.
    """

    def __init__(
        self,
        name: str,
        act: Callable[[click.Context], None],
        sections: Mapping[str, Sequence[click.Parameter]],
        *,
        help: str,
        examples: Sequence[str],
        usage: str,
    ) -> None:
        super().__init__(
            name,
            params=[parameter for parameters in sections.values() for parameter in parameters],
            help=help,
            epilog=example(*examples),
            options_metavar=usage,
            context_settings={"help_option_names": list(HELP)},
        )
        self.act = act
        self.headings = {p.name: heading for heading, parameters in sections.items() for p in parameters}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words; one that begins with a hyphen is a query, where a command takes one.

        Args:
            ctx: Of the call.
            args: Words that were typed.

        Returns:
            Words that are left.

        Raises:
            click.UsageError: For an unknown option or a word too many.
        """
        # "-dog" is a query: no option is a word after one hyphen.
        valued = {flag for option in self.params if not getattr(option, "is_flag", True) for flag in option.opts}
        has_query = any(isinstance(it, click.Argument) and it.metavar == "QUERY" for it in self.params)
        for number, word in enumerate(args if has_query and "--" not in args else ()):
            if _MINUS.match(word) and not (number and args[number - 1] in valued):
                args = [*args[:number], *args[number + 1 :], "--", word]
                break
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if not error.message.startswith("Got unexpected extra argument"):
                raise
            flags = {flag for parameter in self.params for flag in parameter.opts}
            named = "; a data set is named by --data" if "--data" in flags else ""
            raise click.UsageError(f"{error.message}{named}; put words that belong together in quotes", ctx) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Carry the command out; arguments that do not go together end as a usage error that names the option.

        Args:
            ctx: Its `params` hold the values.

        Returns:
            None.

        Raises:
            click.UsageError: For arguments that do not go together.
            SubtextError: With flags as they are typed, if the work cannot be done.
        """
        try:
            self.act(ctx)
        except ArgumentError as error:
            raise click.UsageError(self.spelt(error), ctx) from error
        except SubtextError as error:
            error.args = (self.spelt(error),)
            error.field = ""
            raise

    def spelt(self, error: SubtextError) -> str:
        """The message of an error with its settings as they are typed: `lr needs` -> `--lr needs`.

        Args:
            error: Its `field` and `method` name the setting.

        Returns:
            The message.
        """
        if error.method:
            message = str(error)
            return message if error.method in message else f"--with {error.method}: {message}"
        options = {str(it.name).removesuffix(BOTH): it for it in self.params if isinstance(it, click.Option)}
        message = "".join(typed(part, options) for part in error.args)
        if error.field in options:
            return f"{options[error.field].opts[0]}{message.removeprefix(error.field)}"
        return message

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """The usage of the command, which names the arguments.

        Args:
            ctx: Of the call.

        Returns:
            One text.
        """
        return [str(self.options_metavar)]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The arguments and options, heading by heading; an argument that is also an option is in the usage alone.

        Args:
            ctx: Of the call.
            formatter: Receives the headings and their options.
        """
        sections: dict[str, list[tuple[str, str]]] = {}
        parameters = self.get_params(ctx)
        names = {parameter.name for parameter in parameters}
        for parameter in parameters:
            line = parameter.get_help_record(ctx)
            if isinstance(parameter, DescribedArgument):
                both = f"{parameter.name}{BOTH}" in names
                line = None if both else (parameter.make_metavar(ctx), parameter.description)
            if line is not None:
                sections.setdefault(self.headings.get(parameter.name, "Help"), []).append(line)
        for heading, lines in sections.items():
            with formatter.section(heading):
                formatter.write_dl(lines, col_max=34)


class CommandGroup(click.Group):
    """A group whose help shows the first paragraph of each command in full.

    Args:
        name: Of the group.
        commands: Name -> command, in the order of the help.
        help: Its paragraphs.
        epilog: What the help ends with.
    """

    def __init__(self, name: str, commands: dict[str, click.Command], *, help: str, epilog: str) -> None:
        super().__init__(name, commands, help=help, epilog=epilog, context_settings={"help_option_names": list(HELP)})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order in which they were added.

        Args:
            ctx: Of the call.

        Returns:
            Names.
        """
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands with their summaries.

        Args:
            ctx: Of the call.
            formatter: Receives the list.
        """
        texts = [
            (name, made.short_help or (made.help or "").partition("\n\n")[0]) for name, made in self.commands.items()
        ]
        with formatter.section("Commands"):
            formatter.write_dl([(name, " ".join(text.split())) for name, text in texts])


def typed(part: object, options: Mapping[str, click.Option]) -> str:
    """A part of a message; a setting that is an option as one types it.

    Args:
        part: Text, or a `Setting`.
        options: Option by the name of its setting.

    Returns:
        The part as text.
    """
    if not isinstance(part, Setting) or part.name not in options:
        return str(part)
    option = options[part.name]
    if option.is_flag and part.value in ("True", "False"):
        return option.opts[0] if part.value == "True" else option.secondary_opts[0]
    return option.opts[0] if part.value is None else f"{option.opts[0]} {part.value}"


def function_command(function: Callable[..., Any], entry: CommandEntry, *, name: str) -> Command:
    """The command of a public function: its options, defaults, ranges and help come from the function's signature.

    A result's `warnings` go to standard error.

    Args:
        function: Its `Annotated` parameters, and the fields of its dataclasses, are the options.
        entry: What its signature does not say.
        name: Of the command.

    Returns:
        The command.
    """
    described = [replace(f, required=f.required or f.name in entry.required) for f in fields_of(function)]
    sections: dict[str, list[click.Parameter]] = {}
    for field in described:
        shown = sections.setdefault(field.group or "Options", [])
        if field.both:
            # Either will do, so neither is required by itself.
            shown.append(to_click(replace(field, required=False)))
            shown.append(to_click(replace(field, required=False, positional=False, name=f"{field.name}{BOTH}")))
        else:
            shown.append(to_click(field))
    if "Run" in sections:
        sections["Run"] = sections.pop("Run")
    if entry.json:
        flag = click.Option(["--json", "as_json"], is_flag=True, help="Print the result as JSON.")
        sections.setdefault("Output", []).append(flag)
    if entry.jsonl is not None:
        flag = click.Option(["--jsonl", "as_jsonl"], is_flag=True, help="Print a line of JSON for each result.")
        sections.setdefault("Output", []).append(flag)

    def act(ctx: click.Context) -> None:
        values = {field.name: ctx.params[field.name] for field in described}
        for field in described:
            option = ctx.params.get(f"{field.name}{BOTH}") if field.both else None
            if option is not None and values[field.name] is not None:
                raise ArgumentError(f"{field.flag} and {values[field.name]} name the same thing; give one")
            values[field.name] = values[field.name] if option is None else option
            if field.both and field.required and values[field.name] is None:
                raise click.UsageError(
                    f"Missing argument '{field.metavar or field.name.upper()}' (or {field.flag}).", ctx
                )
        as_jsonl = entry.jsonl is not None and ctx.params["as_jsonl"]
        if entry.queries and values[entry.queries] == "-":
            values[entry.queries] = queries_of(sys.stdin)
        if entry.instead_of_jsonl and not as_jsonl and values[entry.instead_of_jsonl] is None:
            raise ArgumentError("give ", Setting(entry.instead_of_jsonl, "FILE"), " or --jsonl; it got neither")
        as_json = ctx.params.get("as_json") or values.get("json") == Path("-")
        if as_json and as_jsonl:
            raise ArgumentError("--json prints one value, and --jsonl a line for each; give one of them")
        if values.get("json") == Path("-"):
            values["json"] = None
        result = function(**objects_of(function, values), **entry.extra_arguments(ctx))
        several = result if isinstance(result, list) else [result]
        for warning in dict.fromkeys(it for one in several for it in getattr(one, "warnings", ())):
            click.echo(printable(f"warning: {warning}"), err=True)
        if as_jsonl:
            assert entry.jsonl is not None
            for line in entry.jsonl(result):
                click.echo(printable(json_text(line)))
        elif as_json:
            plain = [one.to_json() for one in several]
            click.echo(printable(json_text(plain if isinstance(result, list) else plain[0], indent=2)))
        elif isinstance(result, list):
            texts = zip(values[entry.queries], map(entry.text, several), strict=True)
            click.echo(printable("\n\n".join(f"{query}\n{text}" for query, text in texts)))
        elif result is not None:
            click.echo(printable(entry.text(result)))
        if code := entry.exit_code(result):
            ctx.exit(code)

    words = []
    for field in described:
        value = field.metavar or field.name.upper()
        if field.positional:
            value = value if field.required or value.startswith("[") else f"[{value}]"
            words.append(f"{value}..." if field.multiple and "..." not in value else value)
        elif field.required:
            words.append(f"{field.flag} {value}")
    if entry.json or any(not (field.positional or field.required) for field in described):
        words.append("[OPTIONS]")
    usage = entry.usage or " ".join(words)
    made = Command(name, act, sections, help=command_help(function), examples=entry.examples, usage=usage)
    made.short_help = entry.summary or None
    return made


def queries_of(lines: Iterable[str]) -> list[str]:
    """The queries of the standard input, one in each line.

    Args:
        lines: Of a file of text; empty ones are left out.

    Returns:
        The queries.

    Raises:
        ArgumentError: If there is none.
    """
    queries = [line.strip() for line in lines if line.strip()]
    if not queries:
        raise ArgumentError("- needs a query in each line of the standard input; there is none")
    return queries


def command_help(function: Callable[..., Any]) -> str:
    """The paragraphs of a docstring that a command's help shows: those before arguments, results and errors.

    Args:
        function: With a docstring.

    Returns:
        Paragraphs, with an empty line between them.
    """
    shown: list[str] = []
    for paragraph in (inspect.getdoc(function) or "").split("\n\n"):
        if re.match(r"(Args|Returns|Raises|Yields|Example):|>>>", paragraph):
            break
        shown.append(paragraph)
    return "\n\n".join(shown)


@contextmanager
def error_messages(ctx: click.Context) -> Iterator[None]:
    """Turn errors of Subtext and of the system into one sentence and exit code 1, an interruption into code 130.

    Args:
        ctx: Of the call; it exits with the code.

    Yields:
        Once, to the code that may raise.
    """
    try:
        yield
    except ArgumentError:
        # The command turns it into a usage error.
        raise
    except click.ClickException as error:
        vars(error)["message"] = without_long_words(error.message)
        raise
    except SubtextError as error:
        click.echo(printable(without_long_words(f"error: {error}")), err=True)
        ctx.exit(1)
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        where = file_of(error)
        advice = "look to that file and its disk, and do it again"
        if error.errno == errno.EIO:
            advice = "the disk, or the network to it, reports an error: look to it, or use a copy on another one"
        message = f"error: {where or 'a file'} cannot be read or written: {error.strerror or error}; {advice}"
        click.echo(printable(without_long_words(message)), err=True)
        ctx.exit(1)
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        ctx.exit(130)


def file_of(error: OSError) -> str:
    """The file that an error of the system is about.

    The system names a file that it cannot open; where reading or writing an open one fails, it does not. That file is
    then among the variables of the functions that failed, the innermost first.

    Args:
        error: With its traceback.

    Returns:
        The path; empty where there is none.
    """
    if error.filename:
        return str(error.filename)
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        for value in frame.f_locals.values():
            name = (
                value
                if isinstance(value, Path)
                else getattr(value, "name", None)
                if isinstance(value, IOBase)
                else None
            )
            if isinstance(name, str | Path) and Path(name).exists():
                return str(name)
    return ""


def without_long_words(message: str) -> str:
    """A message in which words of hundreds of letters are cut: no sentence is read that repeats a value of thousands.

    Args:
        message: Of an error.

    Returns:
        The message.

    Example:
        >>> without_long_words("no file " + "x" * 10000)[:24]
        'no file xxxxxxxxxxxxxxxx'
        >>> without_long_words("no file " + "x" * 10000)[-30:]
        'xxx... (9,800 more characters)'
    """
    return _LONG.sub(lambda match: f"{match[1]}... ({len(match[2]):,} more characters)", message)


def example(*lines: str) -> str:
    """An epilogue that keeps its lines as they are.

    Args:
        lines: Commands.

    Returns:
        The text.
    """
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)
