"""What the commands share: help in sections, an example, near names, paths."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click

PATH = click.Path(path_type=Path)
"""Any path; whether it exists is checked where it is read, so that the sentence can say what was expected there."""


class Sectioned(click.Command):
    """A command whose help lists its options under headings.

    headings  option name -> heading; what has none stands under "Options"
    """

    headings: dict[str, str]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options, heading by heading, in the order of declaration."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            line = parameter.get_help_record(ctx)
            if line is not None:
                sections.setdefault(getattr(self, "headings", {}).get(parameter.name or "", "Options"), []).append(line)
        for heading, lines in sections.items():
            with formatter.section(heading):
                formatter.write_dl(lines, col_max=34)


def example(*lines: str) -> str:
    """An epilogue for `click.command(epilog=...)` that keeps its lines as they are."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """A sentence for a name that does not exist, with the nearest that do."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(names) or 'none'}"
    return f"there is no {what} '{name}'; {hint}"


def device_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """The option --device."""
    return click.option(
        "--device", default="auto", show_default=True, help="cpu, cuda, cuda:1, mps; auto: a GPU if there is one."
    )(function)


def data_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say where data, pictures and features are, for commands on a run that remembers them."""
    options: Sequence[Callable[..., Any]] = (
        click.option("--data", type=PATH, help="Data set; remembered by the run, give it to use another."),
        click.option("--images", type=PATH, help="Folder that picture paths start from."),
        click.option("--features", type=PATH, help="Precomputed picture features, npz with names."),
        click.option("--text-features", type=PATH, help="Precomputed text features, npz with names."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def choose_device(name: str) -> str:
    """The device that the option asks for; "auto" is the first GPU, or the processor.

    Raises click.BadParameter when the machine does not have it.
    """
    import torch

    if name == "auto":
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise click.BadParameter(f"'{name}' cannot be used here: {reason}", param_hint="--device") from None
    return name
