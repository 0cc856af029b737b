"""Commands made from the signatures of public functions: help in sections, an example, old names of options."""

from __future__ import annotations

import errno
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from json import dumps
from pathlib import Path
from typing import Any

import click

from subtext.api.options import Parameter, parameters
from subtext.cli.options import as_typed
from subtext.errors import ArgumentError, SubtextError

PATH = click.Path(path_type=Path)
"""Any path; whether it exists is checked where it is read, so that the sentence can say what was expected there."""

HELP = ("-h", "--help")

RENAMED_OPTIONS = {
    "--bad": "--on-error",
    "--figure": "--metric",
    "--human": "--human-ratings",
    "--plausible": "--pmrp",
    "--precision": "--r-precision",
    "--rated": "--positive-rating",
    "--sample": "--sample-size",
    "--samples": "--resamples",
    "--space": "--alignment-uniformity",
    "--space-of-pairs": "--pair-alignment-uniformity",
    "--behind-proxy": "--trust-proxy",
    "--by-words": "--lexical",
    "--for": "--target",
    "--hubs": "--hubness",
    "--keep": "--storage-dir",
    "--name": "--allowed-host",
    "--pictures": "--image-folder",
    "--unchecked": "--skip-leak-check",
    "--unlike": "--not-like",
    "--unlike-weight": "--not-like-weight",
    "--why": "--explain",
    "--without": "--not-text",
    "--again": "--restore-deleted",
    "--every": "--interval",
    "--from": "--ids-from",
    "--leave-out": "--drop-missing",
    "--rounds": "--max-checks",
}
"""Old option -> its names now, of different commands. The old name works for one more release."""

RENAMED_VALUES = {"--on-error": {"refuse": "raise"}, "--skip": {"picture-overlap": "image-overlap"}}
"""Option -> old value -> its name now."""


class Command(click.Command):
    """A command that lists its options under headings, shows an example, and reads its context.

    act       gets the context, whose `params` hold the values: many options need no function of many arguments
    sections  heading -> parameters, in the order of the help
    renamed, renamed_values  old flag -> flag, and flag -> old value -> value, beside those of all commands
    """

    def __init__(
        self,
        name: str,
        act: Callable[[click.Context], None],
        sections: Mapping[str, Sequence[click.Parameter]],
        *,
        help: str,
        examples: Sequence[str],
        usage: str = "[OPTIONS]",
        renamed: Mapping[str, str] | None = None,
        renamed_values: Mapping[str, Mapping[str, str]] | None = None,
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
        self.renamed = RENAMED_OPTIONS | dict(renamed or {})
        self.renamed_values = RENAMED_VALUES | {flag: dict(values) for flag, values in (renamed_values or {}).items()}
        self.headings = {p.name: heading for heading, parameters in sections.items() for p in parameters}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words; old names of options become today's, with a note on standard error."""
        flags = {flag for parameter in self.params for flag in (*parameter.opts, *parameter.secondary_opts)}
        return super().parse_args(ctx, self._current(args, flags))

    def _current(self, args: Sequence[str], flags: set[str]) -> list[str]:
        """The words of a command line with today's names of options and values."""
        current: list[str] = []
        for word in args:
            flag, equals, value = word.partition("=")
            renamed = self.renamed.get(flag)
            if renamed is not None and flag not in flags and renamed in flags:
                click.echo(f"note: {flag} is now {renamed}; the old name goes away in the next release", err=True)
                flag = renamed
            if equals:
                value = self.renamed_values.get(flag, {}).get(value, value)
            elif current and not flag.startswith("-"):
                flag = self.renamed_values.get(current[-1], {}).get(flag, flag)
            current.append(f"{flag}{equals}{value}")
        return current

    def invoke(self, ctx: click.Context) -> Any:
        """Carry the command out; arguments that do not go together end as a usage error that names the options."""
        try:
            self.act(ctx)
        except ArgumentError as error:
            names = [parameter.name for parameter in self.params if parameter.name and parameter.opts[0][:1] == "-"]
            raise click.UsageError(as_typed(str(error), names), ctx) from error

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """The usage as it was given, which names the arguments; else what click makes of the parameters."""
        whole = self.options_metavar
        return [whole] if whole is not None and whole != "[OPTIONS]" else super().collect_usage_pieces(ctx)

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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands by name; hidden ones are left out."""
        rows = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                text = command.short_help or (command.help or "").partition("\n\n")[0]
                rows.append((name, " ".join(text.split())))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def verb_command(
    verb: Callable[..., Any],
    *,
    examples: Sequence[str],
    name: str | None = None,
    help: str | None = None,
    usage: str = "[OPTIONS]",
    required: Sequence[str] = (),
    show: Callable[[Any], None] | None = None,
    json: bool = False,
    succeeded: Callable[[Any], bool] | None = None,
    renamed: Mapping[str, str] | None = None,
) -> Command:
    """The command of a public function: its options, defaults, ranges and help come from the function's signature.

    name   of the command; the function's where it is None
    help   the command's help; the function's docstring up to the paragraph that explains arguments or errors if None
    usage  what stands after the command's name in its usage line
    required  parameters that the command line needs though Python does not, such as the file to write
    show   prints what the function returns; its `str` by default, and nothing for None
    json   adds --json, which prints the result's `to_json` instead
    succeeded  whether a result means exit code 0; otherwise it is 1
    renamed    further old names of options, by today's

    A result's `warnings` go to standard error.
    """
    described = parameters(verb)
    sections: dict[str, list[click.Parameter]] = {}
    for parameter in described:
        needed = replace(parameter, required=parameter.required or parameter.name in required)
        sections.setdefault(parameter.section or "Options", []).append(click_parameter(needed))
    if json:
        flag = click.Option(["--json", "as_json"], is_flag=True, help="Print the result as JSON.")
        sections.setdefault("Output", []).append(flag)
    title = name or verb.__name__.strip("_")

    def act(ctx: click.Context) -> None:
        result = verb(**{parameter.name: ctx.params[parameter.name] for parameter in described})
        for warning in getattr(result, "warnings", ()):
            click.echo(f"warning: {warning}", err=True)
        if ctx.params.get("as_json"):
            click.echo(dumps(result.to_json(), indent=2, ensure_ascii=False))
        elif show is not None:
            show(result)
        elif result is not None:
            click.echo(str(result))
        if succeeded is not None and not succeeded(result):
            ctx.exit(1)

    text = help if help is not None else command_help(verb)
    return Command(title, act, sections, help=text, examples=examples, usage=usage, renamed=renamed)


def command_help(verb: Callable[..., Any]) -> str:
    """The paragraphs of a docstring that a command's help shows: those before arguments, results and errors."""
    kept: list[str] = []
    for paragraph in (inspect.getdoc(verb) or "").split("\n\n"):
        if re.match(r"(Args|Arguments|Returns|Raises|Yields|Example)\b|>>>|\w+(, \w+)*  +\S", paragraph):
            break
        kept.append(paragraph)
    return "\n\n".join(kept)


def click_parameter(parameter: Parameter) -> click.Parameter:
    """The argument or option of a verb's parameter."""
    kind = _click_type(parameter)
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
        return click.Option(flags, callback=_commas(parameter), metavar=parameter.metavar, default=typed, **common)
    return click.Option(
        flags,
        type=kind,
        multiple=parameter.multiple,
        metavar=parameter.metavar,
        **common,
    )


def _click_type(parameter: Parameter) -> Any:
    if parameter.choices is not None:
        return click.Choice(list(parameter.choices))
    if parameter.type is Path:
        return Index() if parameter.metavar == "INDEX" else PATH
    if parameter.range is not None:
        low, high = parameter.range.least, parameter.range.most
        if parameter.type is int:
            return click.IntRange(None if low is None else int(low), None if high is None else int(high))
        return click.FloatRange(low, high)
    return parameter.type


def _commas(parameter: Parameter) -> Callable[[click.Context, click.Parameter, str | None], tuple[Any, ...] | None]:
    """A callback that reads values with commas between them."""

    def read(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[Any, ...] | None:
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

    return read


@contextmanager
def error_messages(ctx: click.Context) -> Iterator[None]:
    """Turn errors of Subtext and of the system into one sentence and exit code 1, an interruption into code 130."""
    try:
        yield
    except ArgumentError:
        # The command turns it into a usage error.
        raise
    except SubtextError as error:
        click.echo(f"error: {error}", err=True)
        ctx.exit(1)
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        where = f": {error.filename}" if error.filename else ""
        click.echo(f"error: {error.strerror or error}{where}", err=True)
        ctx.exit(1)
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        ctx.exit(130)


def example(*lines: str) -> str:
    """An epilogue that keeps its lines as they are."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)


def cuts(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    """`5,10` as numbers of 1 or more.

    Raises click.BadParameter for anything else.
    """
    pieces = [piece.strip() for piece in value.split(",") if piece.strip()]
    if not all(piece.isdecimal() and int(piece) > 0 for piece in pieces):
        raise click.BadParameter(f"'{value}' needs whole numbers of 1 or more with commas between them, as in 5,10")
    return tuple(dict.fromkeys(int(piece) for piece in pieces))


class Index(click.ParamType):  # type: ignore[type-arg]  # Generic in new clicks alone.
    """An index by its name: a folder's path, or the address of one in a database, which stays as it was typed."""

    name = "index"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path | str:
        """A path, or an address."""
        return str(value) if "://" in str(value) else Path(value)


def index_argument() -> click.Argument:
    """INDEX, a folder or an address."""
    return click.Argument(["index"], type=Index())


def run_options() -> list[click.Parameter]:
    """How a command on a run is carried out: device, batches, threads, quiet."""
    return [
        device_option(),
        click.Option(["--batch-size"], type=click.IntRange(1), default=128, show_default=True, help="Items at a time."),
        workers_option(),
        quiet_option(),
    ]


def device_option() -> click.Option:
    """--device."""
    text = "cpu, cuda, cuda:1, mps; auto: a GPU if there is one."
    return click.Option(["--device"], default="auto", show_default=True, help=text)


def bf16_option() -> click.Option:
    """--bf16, where pairs are scored by regions and words."""
    text = "Score pairs in bfloat16, where the machine multiplies in it. Default: as the model was trained."
    return click.Option(["--bf16/--no-bf16"], default=None, help=text)


def workers_option() -> click.Option:
    """--workers."""
    text = "Threads that read ahead."
    return click.Option(["--workers"], type=click.IntRange(0), default=2, show_default=True, help=text)


def quiet_option() -> click.Option:
    """--quiet."""
    return click.Option(["--quiet", "-q"], is_flag=True, help="No progress.")


def data_options() -> list[click.Parameter]:
    """Where data, pictures and features are, for a command on a run that remembers them."""
    return [
        click.Option(["--data"], type=PATH, help="Data set; the run remembers its own, give it to use another."),
        click.Option(["--images"], type=PATH, help="Folder that picture paths start from."),
        click.Option(
            ["--features"], type=PATH, help="Precomputed picture features: npz, npy, h5 or a folder (docs/datasets.md)."
        ),
        click.Option(["--text-features"], type=PATH, help="Precomputed text features, likewise."),
        click.Option(["--split-seed"], type=int, help="Seed of the 80-10-10 split of data without splits."),
        click.Option(
            ["--on-error"], type=click.Choice(["raise", "skip"]), help="What to do with rows that cannot be used."
        ),
    ]
