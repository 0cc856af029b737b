"""What the commands share: help in sections with an example, near names, common options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

PATH = click.Path(path_type=Path)
"""Any path; whether it exists is checked where it is read, so that the sentence can say what was expected there."""

HELP = ("-h", "--help")


class Command(click.Command):
    """A command that lists its options under headings, shows an example, and reads its context.

    act       gets the context, whose `params` hold the values: many options need no function of many arguments
    sections  heading -> parameters, in the order of the help
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

    def invoke(self, ctx: click.Context) -> Any:
        """Do what the command is for."""
        self.act(ctx)

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
            ["--bad"], type=click.Choice(["refuse", "skip"]), help="What to do with rows that cannot be used."
        ),
    ]
