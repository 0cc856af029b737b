"""Commands made from the signatures of public functions: help in sections, and an example."""

from __future__ import annotations

import errno
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from json import dumps, loads
from pathlib import Path
from typing import Any

import click

from subtext.api.options import Parameter, parameters
from subtext.errors import ArgumentError, RequirementError, SubtextError
from subtext.report.text_table import printable

PATH = click.Path(path_type=Path)
"""Any path; whether it exists is checked where it is read, so that the sentence can say what was expected there."""

HELP = ("-h", "--help")

_MINUS = re.compile(r"-[^\W\d_]\S")

BOTH = "_option"
"""Ends the name of an option that stands for an argument."""

_FOLDER = Path(__file__).parent
HELP_TEXTS: dict[str, dict[str, str]] = loads((_FOLDER / "help_texts.json").read_text(encoding="utf-8"))
"""For "commands", command -> its line in a list of commands; for "groups", group -> its help."""


class Command(click.Command):
    """A command that lists its options under headings, shows an example, and reads its context.

    Args:
        act: Gets the context, whose `params` hold the values: many options need no function of many arguments.
        sections: Heading -> parameters, in the order of the help.
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
        """Parse the words; an error about a word too many says what was meant."""
        # "-dog" is a query, where a command takes one: no option is a word after one hyphen.
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
            has_data = any("--data" in option.opts for option in self.params)
            named = "; a data set is named by --data" if has_data else ""
            raise click.UsageError(f"{error.message}{named}; put words that belong together in quotes", ctx) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Carry the command out; arguments that do not go together end as a usage error that names the options."""
        try:
            self.act(ctx)
        except ArgumentError as error:
            options = [option for option in self.params if isinstance(option, click.Option) and option.name]
            names = [str(option.name).removesuffix(BOTH) for option in options]
            raise click.UsageError(as_typed(str(error), names), ctx) from error

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """The usage of the command, which names the arguments."""
        return [str(self.options_metavar)]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options, heading by heading."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            line = parameter.get_help_record(ctx)
            if line is not None:
                sections.setdefault(self.headings.get(parameter.name, "Help"), []).append(line)
        for heading, lines in sections.items():
            with formatter.section(heading):
                formatter.write_dl(lines, col_max=34)


class CommandGroup(click.Group):
    """A group whose help shows the first paragraph of each command in full."""

    def __init__(self, name: str, commands: dict[str, click.Command], *, help: str, epilog: str) -> None:
        super().__init__(name, commands, help=help, epilog=epilog, context_settings={"help_option_names": list(HELP)})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order in which they were added."""
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands with their summaries."""
        texts = [
            (name, made.short_help or (made.help or "").partition("\n\n")[0]) for name, made in self.commands.items()
        ]
        with formatter.section("Commands"):
            formatter.write_dl([(name, " ".join(text.split())) for name, text in texts])


def verb_command(
    verb: Callable[..., Any],
    *,
    examples: Sequence[str],
    name: str | None = None,
    usage: str | None = None,
    required: Sequence[str] = (),
    json: bool = False,
    text: Callable[[Any], str] = str,
    exit_code: Callable[[Any], int] = lambda result: getattr(result, "exit_code", 0),
    extra_arguments: Callable[[click.Context], dict[str, Any]] = lambda ctx: {},
) -> Command:
    """The command of a public function: its options, defaults, ranges and help come from the function's signature.

    A result's `warnings` go to standard error.

    Args:
        name: Of the command; the function's where it is None.
        usage: What stands after the command's name in its usage line; by default the arguments and required options.
        required: Parameters that the command line needs though Python does not, such as the file to write.
        json: Adds --json, which prints the result's `to_json` instead, as `--json -` does where `json` names a file.
        text: What is printed of the result, unless that is None.
        exit_code: Of a result.
        extra_arguments: Further arguments of the function.
    """
    described = [
        replace(parameter, required=parameter.required or parameter.name in required) for parameter in parameters(verb)
    ]
    sections: dict[str, list[click.Parameter]] = {}
    for parameter in described:
        shown = sections.setdefault(parameter.section or "Options", [])
        shown.append(click_parameter(parameter))
        if parameter.both:
            shown.append(click_parameter(replace(parameter, positional=False, name=f"{parameter.name}{BOTH}")))
    if "Run" in sections:
        sections["Run"] = sections.pop("Run")
    if json:
        flag = click.Option(["--json", "as_json"], is_flag=True, help="Print the result as JSON.")
        sections.setdefault("Output", []).append(flag)
    options = [parameter.name for parameter in described if not parameter.positional]

    def act(ctx: click.Context) -> None:
        values = {parameter.name: ctx.params[parameter.name] for parameter in described}
        for parameter in described:
            option = ctx.params.get(f"{parameter.name}{BOTH}") if parameter.both else None
            if option is not None and values[parameter.name] is not None:
                raise ArgumentError(f"{parameter.flag} and {values[parameter.name]} name the same thing; give one")
            values[parameter.name] = values[parameter.name] if option is None else option
        as_json = ctx.params.get("as_json") or values.get("json") == Path("-")
        if values.get("json") == Path("-"):
            values["json"] = None
        try:
            result = verb(**values, **extra_arguments(ctx))
        except RequirementError as error:
            error.args = (as_typed(str(error), options),)
            raise
        for warning in getattr(result, "warnings", ()):
            click.echo(printable(f"warning: {warning}"), err=True)
        if as_json:
            click.echo(printable(dumps(result.to_json(), indent=2, ensure_ascii=False)))
        elif result is not None:
            click.echo(printable(text(result)))
        if code := exit_code(result):
            ctx.exit(code)

    words = []
    for parameter in described:
        value = parameter.metavar or parameter.name.upper()
        if parameter.positional:
            value = value if parameter.required or value.startswith("[") else f"[{value}]"
            words.append(f"{value}..." if parameter.multiple and "..." not in value else value)
        elif parameter.required:
            words.append(f"{parameter.flag} {value}")
    if json or any(not (parameter.positional or parameter.required) for parameter in described):
        words.append("[OPTIONS]")
    title, usage = name or verb.__name__, usage or " ".join(words)
    return Command(title, act, sections, help=command_help(verb), examples=examples, usage=usage)


def command_help(verb: Callable[..., Any]) -> str:
    """The paragraphs of a docstring that a command's help shows: those before arguments, results and errors."""
    shown: list[str] = []
    for paragraph in (inspect.getdoc(verb) or "").split("\n\n"):
        if re.match(r"(Args|Arguments|Returns|Raises|Yields|Example)\b|>>>|\w+(, \w+)*  +\S", paragraph):
            break
        shown.append(paragraph)
    return "\n\n".join(shown)


def click_parameter(parameter: Parameter) -> click.Parameter:
    """The argument or option of a verb's parameter."""
    kind: Any = parameter.type
    if parameter.choices is not None:
        kind = click.Choice(list(parameter.choices))
    elif parameter.type is Path:
        # An address in a database stays as it was typed.
        addressed = parameter.metavar in ("INDEX", "NEW", "BACKUP")
        kind = (lambda name: name if "://" in name else Path(name)) if addressed else PATH
    elif parameter.range is not None:
        low, high = parameter.range.least, parameter.range.most
        if parameter.type is int:
            kind = click.IntRange(None if low is None else int(low), None if high is None else int(high))
        else:
            kind = click.FloatRange(low, high)
    if parameter.positional:
        return click.Argument(
            [parameter.name],
            type=kind,
            required=parameter.required,
            nargs=-1 if parameter.multiple else 1,
            metavar=parameter.metavar,
            **({} if parameter.required or parameter.multiple else {"default": parameter.default}),
        )
    shown: bool | str = parameter.shown or parameter.default not in (None, "", (), False)
    flags = [parameter.flag, *([parameter.short] if parameter.short else []), parameter.name]
    common: dict[str, Any] = {"help": parameter.help, "show_default": shown, "required": parameter.required}
    if not parameter.required and not parameter.commas and parameter.type is not bool:
        common["default"] = parameter.default
    if parameter.type is bool:
        if parameter.default is False:
            return click.Option(flags, is_flag=True, default=False, help=parameter.help)
        flags[0] += f"/--no-{parameter.flag.removeprefix('--')}"
        return click.Option(flags, default=parameter.default, **common)
    if parameter.commas:
        typed = None if parameter.default is None else ",".join(map(str, parameter.default))
        read = partial(_read_commas, parameter)
        return click.Option(flags, callback=read, metavar=parameter.metavar, default=typed, **common)
    return click.Option(flags, type=kind, multiple=parameter.multiple, metavar=parameter.metavar, **common)


def _read_commas(
    parameter: Parameter, ctx: click.Context, param: click.Parameter, value: str | None
) -> tuple[Any, ...] | None:
    """The values that a text has with commas between them."""
    if value is None:
        return None
    texts = dict.fromkeys(text.strip() for text in value.split(",") if text.strip())
    try:
        values = tuple(parameter.type(text) for text in texts)
        parameter.check(values)
    except (ValueError, ArgumentError):
        kind = {int: "whole numbers", float: "numbers"}.get(parameter.type, "values")
        span = f", each {parameter.range}" if parameter.range else ""
        span += f", each one of {', '.join(parameter.choices)}" if parameter.choices else ""
        raise click.BadParameter(f"'{value}' needs {kind} with commas between them{span}") from None
    return values


@contextmanager
def error_messages(ctx: click.Context) -> Iterator[None]:
    """Turn errors of Subtext and of the system into one sentence and exit code 1, an interruption into code 130."""
    try:
        yield
    except ArgumentError:
        # The command turns it into a usage error.
        raise
    except SubtextError as error:
        click.echo(printable(f"error: {error}"), err=True)
        ctx.exit(1)
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        where = f": {error.filename}" if error.filename else ""
        click.echo(printable(f"error: {error.strerror or error}{where}"), err=True)
        ctx.exit(1)
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        ctx.exit(130)


@cache
def examples() -> dict[str, list[str]]:
    """Command or group -> the examples in its help."""
    sections = (_FOLDER / "examples.txt").read_text(encoding="utf-8").split("\n\n")
    lines = [section.strip().splitlines() for section in sections]
    return {heading.removesuffix(":"): [line.strip() for line in typed] for heading, *typed in lines}


def example(*lines: str) -> str:
    """An epilogue that keeps its lines as they are."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)


def as_typed(message: str, names: Collection[str]) -> str:
    """A message that spells options as Python does, with each of them as it is typed: `lr needs` -> `--lr needs`.

    `name=value` anywhere, a name at the start or before " is " or after "leave ", and a name of several words anywhere.

    Example:
        >>> as_typed("token_mask needs text=gru; text is bag; leave token_mask out", ["token_mask", "text"])
        '--token-mask needs --text gru; --text is bag; leave --token-mask out'
    """
    if not names:
        return message
    either = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    before, after = r"(?<![\w./=-])", r"(?![\w./-])"
    message = re.sub(rf"{before}({either})=True{after}", lambda match: flag_of(match[1]), message)
    message = re.sub(rf"{before}({either})=False{after}", lambda match: flag_of(f"no_{match[1]}"), message)
    message = re.sub(rf"{before}({either})=(?=\S)", lambda match: f"{flag_of(match[1])} ", message)
    message = re.sub(rf"(^|; |leave )({either})(?= needs | is | out\b)", lambda m: m[1] + flag_of(m[2]), message)
    several = "|".join(name for name in either.split("|") if "_" in name)
    return re.sub(rf"{before}({several}){after}", lambda match: flag_of(match[1]), message) if several else message


def flag_of(name: str) -> str:
    """How an option is typed."""
    return f"--{name.replace('_', '-')}"
